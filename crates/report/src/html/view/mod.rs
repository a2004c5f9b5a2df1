//! The content of the report, section by section, as strings that are ready to print. Decisions are made here and
//! tested here; templates only place and escape.

mod cost;
mod failure_groups;
mod findings;
mod gates;
pub mod metrics;
pub mod outcome;
pub mod tables;
mod tools;

use gradus_eval::evaluator::{OFFLINE_JUDGE, SIMULATOR_JUDGE};
use gradus_eval::outcome::OutcomeKind;
use gradus_eval::report::{EvaluationSummary, GateResult, MetricResult};

use super::number::format_minute;
use super::text::{self, DisplayText};
use crate::number_text::{format_count, format_counted_noun};

/// Maximum number of sources that are shown unfolded.
const MAX_UNFOLDED_SOURCES: usize = 4;
/// Maximum rows of any list; the rest is left out with a note. It bounds the size of the page.
const MAX_ROWS: usize = 100;

/// The context of the template of a report, also for the page of a run on the server.
#[derive(Debug)]
pub struct ReportView {
    pub run_id: String,
    pub complete: bool,
    /// Set by the server: a file alone cannot tell a running run from one that was killed.
    pub is_running: bool,
    pub stopped_because: Option<DisplayText>,
    pub judge: String,
    pub is_offline: bool,
    pub started: String,
    pub ended: Option<String>,
    pub sources: Vec<String>,
    /// Folded sources; `omitted_sources` is the number of sources that are left out.
    pub more_sources: Vec<String>,
    pub omitted_sources: Option<String>,
    pub trajectories: String,
    pub steps: String,
    /// Answers for which the judge saw shortened data, as a count with its noun.
    pub shortened: Option<String>,
    pub gates: Vec<gates::GateView>,
    /// How runs ended; `None` if the run was not judged for it.
    pub outcome: Option<outcome::OutcomeView>,
    pub metrics: metrics::MetricsView,
    /// Whether any question has a verdict; metrics of the simulator do not count.
    pub is_judged: bool,
    pub is_left_open: bool,
    pub tools: tools::ToolUseView,
    pub failure_groups: failure_groups::FailureGroupsView,
    pub findings: findings::FindingListView,
    /// Questions that failed or do not apply.
    pub reasons: UnansweredReasonList,
    /// Questions that the judge cannot decide.
    pub abstentions: UnansweredReasonList,
    pub cost: cost::CostView,
}

/// Reasons of one kind, most frequent first, and how many are left out.
#[derive(Debug)]
pub struct UnansweredReasonList {
    pub rows: Vec<UnansweredReason>,
    pub omitted: Option<String>,
}

/// Why questions have no verdict; `failed` is false for questions that do not apply.
#[derive(Debug)]
pub struct UnansweredReason {
    pub evaluator: String,
    pub failed: bool,
    pub reason: String,
    pub count: String,
}

impl ReportView {
    /// Formats a summary. All texts pass through [`text`], which bounds them.
    pub fn from_summary(summary: &EvaluationSummary, gates: &[GateResult]) -> ReportView {
        let mut sources = summary.sources.iter().take(MAX_ROWS).map(|source| text::format_display_line(source));
        ReportView {
            run_id: text::format_display_line(&summary.run_id),
            complete: summary.complete,
            is_running: false,
            stopped_because: summary.stopped_because.as_deref().map(text::format_display_block),
            judge: text::format_display_line(&summary.judge),
            is_offline: summary.judge == OFFLINE_JUDGE,
            started: format_minute(&summary.started),
            ended: summary.ended.as_deref().map(format_minute),
            sources: sources.by_ref().take(MAX_UNFOLDED_SOURCES).collect(),
            more_sources: sources.collect(),
            omitted_sources: format_omitted(summary.sources.len()),
            trajectories: format_count(summary.trajectories),
            steps: format_count(summary.steps),
            shortened: (summary.shortened > 0).then(|| format_counted_noun(summary.shortened, "answer", "answers")),
            gates: gates.iter().map(gates::GateView::from_result).collect(),
            outcome: outcome::OutcomeView::from_summary(summary),
            metrics: metrics::MetricsView::from_summary(summary, gates),
            is_judged: (summary.metrics.iter()).any(|metric| metric.denominator > 0 && metric.judge != SIMULATOR_JUDGE),
            is_left_open: summary.metrics.iter().any(|metric| metric.asked_count() > metric.denominator),
            tools: tools::ToolUseView::from_tool_uses(&summary.tools),
            failure_groups: failure_groups::FailureGroupsView::from_summary(summary),
            findings: findings::FindingListView::from_summary(summary),
            reasons: UnansweredReasonList::from_summary(summary, |kind| kind != OutcomeKind::Abstained),
            abstentions: UnansweredReasonList::from_summary(summary, |kind| kind == OutcomeKind::Abstained),
            cost: cost::CostView::from_summary(summary),
        }
    }
}

impl UnansweredReasonList {
    /// The reasons of the kinds that `is_listed` accepts.
    fn from_summary(summary: &EvaluationSummary, is_listed: impl Fn(OutcomeKind) -> bool) -> UnansweredReasonList {
        let listed: Vec<_> = summary.reasons.iter().filter(|reason| is_listed(reason.outcome)).collect();
        UnansweredReasonList {
            omitted: format_omitted(listed.len()),
            rows: listed
                .into_iter()
                .take(MAX_ROWS)
                .map(|reason| UnansweredReason {
                    evaluator: format_evaluator_title(summary, &reason.evaluator),
                    failed: reason.outcome == OutcomeKind::Failed,
                    reason: text::format_display_line(&reason.reason),
                    count: format_count(reason.count),
                })
                .collect(),
        }
    }
}

/// Formats how many rows of a list are left out; `None` if all are shown.
fn format_omitted(all: usize) -> Option<String> {
    all.checked_sub(MAX_ROWS).filter(|more| *more > 0).map(|more| format_count(more as u64))
}

/// The title of an evaluator, or its name if it has none.
fn format_evaluator_title(summary: &EvaluationSummary, evaluator: &str) -> String {
    let known: Option<&MetricResult> = summary.metrics.iter().find(|metric| metric.name == evaluator);
    text::format_display_line(
        known.map(|metric| metric.title.as_str()).filter(|title| !title.is_empty()).unwrap_or(evaluator),
    )
}
