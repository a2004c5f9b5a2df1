//! A reply that is code.

/// A reply of a code agent.
#[derive(Debug)]
pub(super) struct CodeReply {
    /// Index of the model call in its run.
    pub call: usize,
    pub thought: Option<String>,
    pub code: String,
}
