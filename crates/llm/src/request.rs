//! One question to a model and its answer, in no provider's terms.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// One question. What is the same in every question comes first, so that a provider's prompt cache can keep it.
#[derive(Clone, Debug)]
pub struct ModelRequest<'r> {
    /// The constant part.
    pub system: &'r str,
    pub user: &'r str,
    pub answer: AnswerForm,
    pub max_tokens: u32,
    /// Only some endpoints take one.
    pub temperature: Option<f64>,
}

/// The form an answer is asked in.
#[derive(Clone, Debug)]
pub enum AnswerForm {
    Text,
    /// JSON that fits a schema: enforced by the endpoint where it can, refused by it where it cannot.
    Json {
        name: Arc<str>,
        schema: Arc<serde_json::value::RawValue>,
    },
}

impl AnswerForm {
    pub fn is_json(&self) -> bool {
        matches!(self, AnswerForm::Json { .. })
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct ModelReply {
    /// The text, or the JSON that was asked for, as text.
    pub text: String,
    pub usage: Option<CompletionUsage>,
    pub stop: FinishReason,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompletionUsage {
    pub prompt: u64,
    pub completion: u64,
    /// Of the prompt's tokens, those that the provider had cached.
    pub cached_prompt: u64,
}

impl std::ops::AddAssign for CompletionUsage {
    fn add_assign(&mut self, other: CompletionUsage) {
        self.prompt += other.prompt;
        self.completion += other.completion;
        self.cached_prompt += other.cached_prompt;
    }
}

/// Why a model stopped writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    Done,
    /// The answer was cut at `max_tokens`.
    Length,
    /// The provider's filter or the model itself refused.
    Refused,
}
