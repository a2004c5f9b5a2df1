//! The version of the prompts that a verdict was made with.

/// Raised with every change to the text around a rubric's own text, so that the hash of a rubric distinguishes
/// verdicts before and after the change.
pub(crate) const PROMPT_VERSION: u32 = 4;
