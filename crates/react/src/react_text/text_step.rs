//! The content of a ReAct text: steps, and an answer.

use std::borrow::Cow;

use super::TextDefect;
use super::action::ActionInput;

/// A ReAct text in parts: a whole run, or one reply of a model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReactTranscript<'t> {
    pub question: Option<Cow<'t, str>>,
    pub steps: Vec<TextStep<'t>>,
    /// The thought that led to the answer, or to nothing.
    pub last_thought: Option<Cow<'t, str>>,
    pub answer: Option<Cow<'t, str>>,
    /// What could not be read, with the text in question.
    pub defects: Vec<(TextDefect, Cow<'t, str>)>,
    /// False when the text has none of ReAct's labels.
    pub is_react: bool,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct TextStep<'t> {
    pub thought: Option<Cow<'t, str>>,
    pub tool: Cow<'t, str>,
    pub input: ActionInput<'t>,
    pub observation: Option<Cow<'t, str>>,
    /// Asked for in the same action as the step before.
    pub parallel: bool,
    /// Where its action ends in the text that was read.
    pub end: usize,
}

impl<'t> TextStep<'t> {
    /// Returns the thought for a parallel call. A long thought that was assembled from pieces is only copied within
    /// the budget.
    pub(super) fn shared_thought(&self, budget: &mut CopyBudget) -> Option<Cow<'t, str>> {
        const MAX_COPIED_BYTES: usize = 4096;
        match self.thought.as_ref()? {
            Cow::Borrowed(thought) => Some(Cow::Borrowed(thought)),
            Cow::Owned(thought) if thought.len() <= MAX_COPIED_BYTES && budget.try_reserve(thought.len()) => {
                Some(Cow::Owned(thought.clone()))
            }
            Cow::Owned(_) => None,
        }
    }
}

/// Budget of bytes of thoughts that the steps of one text may copy from each other.
#[derive(Debug)]
pub(super) struct CopyBudget {
    pub(super) bytes_left: usize,
}

impl Default for CopyBudget {
    fn default() -> Self {
        CopyBudget { bytes_left: 1 << 20 }
    }
}

impl CopyBudget {
    pub(super) fn try_reserve(&mut self, bytes: usize) -> bool {
        let left = self.bytes_left.checked_sub(bytes);
        self.bytes_left = left.unwrap_or(self.bytes_left);
        left.is_some()
    }
}
