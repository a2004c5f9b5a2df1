//! The label that a person has just given, which the review queue offers to undo.

use gradus_report::html::text;
use gradus_store::{LabelRow, ReviewPosition};

use super::label_authors::LabelAuthor;
use super::review_query::ReviewQuery;
use crate::evaluators::format_verdict_subject;
use crate::settings::ReloadableSettings;

/// The label that this person has just given.
pub(super) struct UndoableLabel {
    pub(super) what: String,
    pub(super) label: String,
    pub(super) number: i64,
    pub(super) updated_ns: i64,
    /// Where to continue after it is undone.
    pub(super) back: String,
}

impl UndoableLabel {
    /// Finds the label; `None` if it belongs to another person or is gone.
    pub(super) fn find(
        settings: &ReloadableSettings,
        choice: &ReviewQuery,
        labels: &[LabelRow],
        author: &LabelAuthor,
    ) -> Option<UndoableLabel> {
        let number: i64 = choice.labelled.as_deref()?.parse().ok()?;
        let row = labels.iter().find(|row| row.no == number && row.identifier == author.identifier)?;
        let url = choice.to_url();
        let back = match choice.which.sampling() {
            Some(_) => url.with("draw", choice.draw.as_deref()).with("at", choice.revealed.as_deref()),
            None => {
                let place = ReviewPosition {
                    start_ns: 0,
                    trajectory: row.trajectory,
                    step: row.step.unwrap_or(0),
                    evaluator: row.evaluator.clone(),
                };
                url.with("after", choice.after.as_deref()).with("at", Some(&place.to_string()))
            }
        };
        Some(UndoableLabel {
            what: format_verdict_subject(settings, &row.evaluator, row.step),
            label: text::format_display_line(&row.label),
            number,
            updated_ns: row.updated_ns,
            back: back.to_string(),
        })
    }
}
