//! What a person sends to label a verdict.

use serde::Deserialize;

/// Body of `POST /labels`. Everything in it is untrusted: the verdict is looked up again.
#[derive(Clone, Deserialize)]
pub(super) struct LabelForm {
    pub(super) trajectory: String,
    /// Empty for a verdict on the whole trajectory.
    pub(super) step: Option<String>,
    pub(super) evaluator: String,
    /// The label that the person gives; empty if `other` is used.
    #[serde(default)]
    pub(super) label: String,
    /// A label in the person's own words, accepted only if no rubric defines the labels of the evaluator.
    pub(super) other: Option<String>,
    pub(super) note: Option<String>,
    pub(super) author: Option<String>,
    /// Fingerprint of the verdict that the page showed.
    pub(super) seen: Option<String>,
    /// Path to return to.
    pub(super) back: Option<String>,
    /// The random sample that the case is from, if the verdict was hidden.
    pub(super) draw: Option<String>,
}
