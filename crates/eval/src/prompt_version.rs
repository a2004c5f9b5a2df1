//! Which prompts a verdict was made with.

/// Raised with every change to what stands around a rubric's own text, so that the hash of a rubric tells verdicts from
/// before the change from those after it.
pub(crate) const PROMPT_VERSION: u32 = 4;
