//! The verdicts on a step, summarized in a few words.

use std::collections::BTreeMap;

use super::verdict::VerdictDetailView;

/// Shown beside a folded step and in the outline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StepState {
    /// `fail`, `error` or `none`: the CSS class.
    pub(super) class: &'static str,
    pub(super) text: &'static str,
}

impl StepState {
    /// Summarizes the verdicts. A step is never called right: rules only notice mistakes, and a model only answers
    /// its question.
    pub(super) fn from_verdicts(verdicts: &[VerdictDetailView], is_error: bool) -> StepState {
        let judged = || verdicts.iter().filter(|one| one.class != "na" || one.label == "no rule fired");
        let (class, text) = if verdicts.iter().any(VerdictDetailView::is_wrong) {
            ("fail", "flagged")
        } else if is_error {
            ("error", "failed")
        } else if verdicts.iter().any(|one| one.class == "unsure") {
            ("none", "could not be judged")
        } else if judged().next().is_none() {
            ("none", "not judged")
        } else if judged().all(|one| one.is_rules) {
            ("none", "no rule fired")
        } else {
            ("none", "not flagged")
        };
        StepState { class, text }
    }
}

/// Summarizes the verdicts that flag nothing: those with an answer by name, the others by number. The verdict on how
/// the run ended is left out, since the page shows it at the top.
pub(super) fn summarize_other_verdicts(verdicts: &[VerdictDetailView]) -> Option<String> {
    let mut parts = Vec::new();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for verdict in verdicts.iter().filter(|one| !one.is_wrong() && !one.is_outcome) {
        if verdict.is_answered {
            parts.push(format!("{}: {}", verdict.title, verdict.label));
        } else {
            *counts.entry(&verdict.label).or_default() += 1;
        }
    }
    parts.extend(
        counts
            .into_iter()
            .map(|(label, count)| if count == 1 { label.to_owned() } else { format!("{label} ({count})") }),
    );
    (!parts.is_empty()).then(|| parts.join(", "))
}
