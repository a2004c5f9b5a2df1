//! The worst steps, with query, thought, call, explanation and evidence, so that a reader can check a verdict without
//! the trace.

use gradus_eval::report::{EvaluationSummary, FindingVerdict, ReportFinding};

use super::format_evaluator_title;
use super::text::{self, DisplayText};
use crate::number_text::format_count;

/// Maximum number of quotations per verdict; the rest is counted. Verdicts of rules can have very many.
const MAX_EVIDENCE: usize = 20;

/// The findings in the order of the summary, worst first.
#[derive(Debug)]
pub struct FindingListView {
    pub count: String,
    pub all: Vec<FindingView>,
}

/// A step, or a whole trajectory, with at least one bad verdict.
#[derive(Debug)]
pub struct FindingView {
    pub trajectory_id: String,
    /// The page of the step; only the server has one.
    pub href: Option<String>,
    /// `None` for a whole trajectory.
    pub step: Option<u32>,
    pub query: Option<DisplayText>,
    pub thought: Option<DisplayText>,
    pub tool: Option<String>,
    pub arguments: Option<DisplayText>,
    pub verdicts: Vec<FindingVerdictView>,
}

/// One verdict on the step. `omitted` is the number of quotations that are not shown.
#[derive(Debug)]
pub struct FindingVerdictView {
    pub evaluator: String,
    pub label: String,
    pub explanation: DisplayText,
    pub evidence: Vec<DisplayText>,
    pub omitted: Option<String>,
}

impl FindingListView {
    pub fn from_summary(summary: &EvaluationSummary) -> FindingListView {
        FindingListView {
            count: format_count(summary.findings.len() as u64),
            all: summary.findings.iter().map(|found| FindingView::from_finding(found, summary)).collect(),
        }
    }
}

impl FindingView {
    fn from_finding(found: &ReportFinding, summary: &EvaluationSummary) -> FindingView {
        FindingView {
            trajectory_id: text::format_display_line(&found.trajectory_id),
            href: None,
            step: found.step_index,
            query: found.query.as_deref().map(text::format_display_block),
            thought: found.thought.as_deref().map(text::format_display_block),
            tool: found.tool.as_deref().map(text::format_display_line),
            arguments: found.arguments.as_deref().map(text::format_display_json),
            verdicts: found.verdicts.iter().map(|verdict| FindingVerdictView::from_verdict(verdict, summary)).collect(),
        }
    }
}

impl FindingVerdictView {
    fn from_verdict(verdict: &FindingVerdict, summary: &EvaluationSummary) -> FindingVerdictView {
        let more = verdict.evidence.len().saturating_sub(MAX_EVIDENCE);
        FindingVerdictView {
            evaluator: format_evaluator_title(summary, &verdict.evaluator),
            label: text::format_display_line(&verdict.label),
            explanation: text::format_display_block(&verdict.explanation),
            evidence: verdict
                .evidence
                .iter()
                .take(MAX_EVIDENCE)
                .map(|piece| text::format_display_block(piece))
                .collect(),
            omitted: (more > 0).then(|| format_count(more as u64)),
        }
    }
}
