//! The worst steps, with all that is needed to see why.

use gradus_eval::report::{EvaluationSummary, FindingVerdict, ReportFinding};

use super::format_evaluator_title;
use super::text::{self, DisplayText};
use crate::html::count_text::format_count;

/// More evidence than this is left out, with a note.
const MAX_EVIDENCE: usize = 20;

#[derive(Debug)]
pub struct FindingListView {
    pub count: String,
    pub all: Vec<FindingView>,
}

#[derive(Debug)]
pub struct FindingView {
    pub trajectory_id: String,
    /// Where it can be looked at; in a page of the server only.
    pub href: Option<String>,
    /// None for a whole trajectory.
    pub step: Option<u32>,
    pub query: Option<DisplayText>,
    pub thought: Option<DisplayText>,
    pub tool: Option<String>,
    pub arguments: Option<DisplayText>,
    pub verdicts: Vec<FindingVerdictView>,
}

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
