//! One question to a model and its reply, independent of the provider.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// One question. The part that all questions share comes first, so that the provider's prompt cache can reuse it.
#[derive(Clone, Debug)]
pub struct ModelRequest<'r> {
    /// The constant part.
    pub system: &'r str,
    pub user: &'r str,
    pub answer: AnswerForm,
    /// Limit of the reply, not of the prompt.
    pub max_tokens: u32,
    /// Not sent to endpoints that do not accept one.
    pub temperature: Option<f64>,
    /// Asks for the log-probabilities of the answer's tokens. Endpoints that refuse them are asked without, and others
    /// ignore the wish, so a reply may lack them in any case.
    pub wants_logprobs: bool,
}

/// The form of the answer.
#[derive(Clone, Debug)]
pub enum AnswerForm {
    Text,
    /// JSON that fits a schema. Endpoints that support it enforce the schema. For others the schema is left out after
    /// their first refusal, so the caller must parse leniently in any case.
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

/// The reply to one question.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelReply {
    /// The text of the reply; a JSON answer is text, too. Registered secrets are masked.
    pub text: String,
    /// `None` if the endpoint does not report its usage.
    pub usage: Option<CompletionUsage>,
    pub stop: FinishReason,
    /// The model that answered, as the endpoint names it: a name without a version is often answered by one with it.
    /// Registered secrets are masked. `None` if the endpoint does not say.
    pub model: Option<String>,
    /// The tokens of the answer in order; empty unless they were asked for and the endpoint gives them.
    pub token_logprobs: Vec<TokenLogprob>,
}

/// Maximum characters of a model's name. Names of real models are far shorter.
const MAX_MODEL_NAME_CHARS: usize = 200;

/// Reads the field `model` of a reply. Anything but a string counts as absent, since the answer is usable without it.
pub(crate) fn read_model_name<'de, D: serde::Deserializer<'de>>(field: D) -> Result<Option<String>, D::Error> {
    let value = serde_json::Value::deserialize(field)?;
    let name = value.as_str().map(str::trim).filter(|name| !name.is_empty());
    Ok(name.map(|name| name.chars().take(MAX_MODEL_NAME_CHARS).collect()))
}

/// One token of an answer with its log-probability and the most likely alternatives at its position.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TokenLogprob {
    /// The text of the token. A character that is split over several tokens is kept as replacement characters.
    pub text: String,
    /// Natural logarithm of the probability.
    pub logprob: f64,
    /// Alternatives with their log-probabilities, most likely first. Most endpoints list the token itself, too.
    pub alternatives: Vec<(String, f64)>,
}

/// Tokens of one or several calls, as the provider counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompletionUsage {
    /// All tokens of the prompt, cached ones included.
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
