//! How a run ended, which is shown at the top of its page: verdicts on single steps mean little if there is no
//! answer.

use gradus_eval::evaluator::OUTCOME;
use gradus_report::html::text;

use crate::recorded_verdict::RecordedVerdict;

/// The verdict of the evaluator `outcome`.
pub(super) struct RunOutcome {
    /// The label in words: `limit reached`.
    pub(super) label: String,
    /// Whether the run ended without an answer.
    pub(super) is_dead: bool,
}

impl RunOutcome {
    /// Finds the verdict; `None` if the evaluator did not judge the run.
    pub(super) fn from_outcomes(outcomes: &[RecordedVerdict]) -> Option<RunOutcome> {
        let given =
            outcomes.iter().find(|given| *given.line.evaluator == *OUTCOME && given.line.step_index.is_none())?;
        Some(RunOutcome { label: format_outcome_label(given.line.label.as_deref()?), is_dead: given.is_wrong })
    }
}

/// Formats a label as words: `limit reached` for `limit_reached`.
pub(super) fn format_outcome_label(label: &str) -> String {
    text::format_display_line(&label.replace('_', " "))
}
