//! The most frequent errors: wrong verdicts by evaluator, tool and reason.

use gradus_eval::report::{EvaluationSummary, FailureExample, ReportFinding};

use super::{MAX_ROWS, format_evaluator_title, text};
use crate::failure_list::{FailureRow, list_failure_rows};
use crate::number_text::format_count;

/// The table of groups, the largest first.
#[derive(Debug)]
pub struct FailureGroupsView {
    pub rows: Vec<FailureGroupView>,
    /// How many groups are not shown, in words.
    pub omitted: Option<String>,
}

/// A row, formatted.
#[derive(Debug)]
pub struct FailureGroupView {
    pub evaluator: String,
    pub tool: Option<String>,
    pub rule: Option<String>,
    pub reason: String,
    pub count: String,
    pub share: String,
    pub examples: Vec<FailureExampleView>,
}

/// A wrong verdict of the group.
#[derive(Debug)]
pub struct FailureExampleView {
    pub trajectory_id: String,
    pub step: Option<u32>,
    pub request: String,
    /// The flagged step further down in the report, or its page on the server.
    pub href: Option<String>,
}

/// Maximum number of groups that are shown unfolded.
const MAX_UNFOLDED_GROUPS: usize = 10;
/// Maximum number of examples of a group, and maximum characters of their requests, which are only for recognition.
const MAX_EXAMPLES: usize = 2;
const MAX_REQUEST_CHARS: usize = 100;

impl FailureGroupsView {
    pub fn first(&self) -> &[FailureGroupView] {
        &self.rows[..self.rows.len().min(MAX_UNFOLDED_GROUPS)]
    }

    pub fn rest(&self) -> &[FailureGroupView] {
        self.rows.get(MAX_UNFOLDED_GROUPS..).unwrap_or_default()
    }

    pub fn from_summary(summary: &EvaluationSummary) -> FailureGroupsView {
        let rows = list_failure_rows(summary);
        let omitted = rows.len().saturating_sub(MAX_ROWS) as u64 + summary.omitted_failure_groups;
        FailureGroupsView {
            rows: rows.iter().take(MAX_ROWS).map(|row| FailureGroupView::from_row(row, summary)).collect(),
            omitted: (omitted > 0).then(|| format_count(omitted)),
        }
    }
}

impl FailureGroupView {
    fn from_row(row: &FailureRow, summary: &EvaluationSummary) -> FailureGroupView {
        FailureGroupView {
            evaluator: format_evaluator_title(summary, &row.evaluator),
            tool: row.tool.as_deref().map(text::format_display_line),
            rule: row.rule.as_deref().map(text::format_display_line),
            reason: text::format_display_line(&row.reason),
            count: format_count(row.count),
            share: format!("{:.1} %", row.share * 100.0),
            examples: row
                .examples
                .iter()
                .take(MAX_EXAMPLES)
                .map(|example| FailureExampleView::from_example(example, summary))
                .collect(),
        }
    }
}

impl FailureExampleView {
    fn from_example(example: &FailureExample, summary: &EvaluationSummary) -> FailureExampleView {
        let is_same = |found: &ReportFinding| {
            found.trajectory_id == example.trajectory_id && found.step_index == example.step_index
        };
        FailureExampleView {
            href: summary.findings.iter().position(is_same).map(|index| format!("#finding-{}", index + 1)),
            trajectory_id: text::format_display_line(&example.trajectory_id),
            step: example.step_index,
            request: example.request.as_deref().map_or_else(String::new, shorten_request),
        }
    }
}

pub(super) fn shorten_request(request: &str) -> String {
    let line = text::format_display_line(request);
    match line.char_indices().nth(MAX_REQUEST_CHARS) {
        Some((end, _)) => format!("{}…", line[..end].trim_end()),
        None => line,
    }
}
