//! Asks a model for a verdict, again if its answer cannot be read, with less context if the question was too long.

use std::sync::Arc;

use gradus_llm::price::TokenPrice;
use gradus_llm::{AnswerForm, CallError, CompletionUsage, FinishReason, ModelCallFailure, ModelClient, ModelRequest};
use serde_json::value::RawValue;

use crate::prompt::{JudgePrompt, PromptWindow};
use crate::rubric::{Rubric, RubricLabels};
use crate::run::QuestionKey;
use crate::verdict::{self, ParsedVerdict};

/// A model that judges.
#[derive(Debug)]
pub struct ModelJudge {
    pub client: ModelClient,
    pub settings: JudgeSettings,
    /// `None` when nobody said what the model costs.
    pub price: Option<TokenPrice>,
}

#[derive(Clone, Copy, Debug)]
pub struct JudgeSettings {
    pub max_tokens: u32,
    pub temperature: Option<f64>,
    /// Whether to ask for JSON by a schema; endpoints that cannot do that are asked for text.
    pub structured: bool,
    /// How often an answer that cannot be read is asked for again.
    pub asks_again: u32,
    pub window: PromptWindow,
}

/// What came of asking.
#[derive(Debug)]
pub struct JudgeResponse {
    pub result: Result<ParsedVerdict, JudgeFailure>,
    pub usage: Option<CompletionUsage>,
    /// Something may have been paid for that `usage` does not hold: an answer did not say what it used, or did not arrive.
    pub is_usage_partial: bool,
    pub calls: u32,
    /// The prompt that was answered.
    pub prompt: JudgePrompt,
}

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum JudgeFailure {
    /// This question was not answered, for a reason of its own; others may be.
    #[error("{0}")]
    Case(String),
    /// The endpoint failed. It may be the question, but if that happens to all of them, it is not.
    #[error("{0}")]
    Call(String),
    /// The run may send no more requests.
    #[error("the run's limit of calls is reached")]
    CallLimit,
    /// No question to this endpoint will be answered.
    #[error("{0}")]
    Endpoint(ModelCallFailure),
}

/// How often a question that is too long is cut in half.
const HALVINGS: u32 = 4;

impl ModelJudge {
    /// `openai:gpt-4o`, for every output.
    pub fn name(&self) -> String {
        let endpoint = self.client.endpoint();
        format!("{}:{}", endpoint.provider.name(), endpoint.model)
    }

    /// What makes a question to this judge the same question.
    pub fn question_key(&self, rubric_hash: &str, prompt: &JudgePrompt, repeat: u32) -> QuestionKey {
        let endpoint = self.client.endpoint();
        let settings = &self.settings;
        // Temperatures as bits: they are compared, never read.
        let temperature = settings.temperature.map_or(u64::MAX, f64::to_bits);
        QuestionKey::from_parts(&[
            rubric_hash.as_bytes(),
            endpoint.provider.name().as_bytes(),
            // Two servers may call different models by one name.
            self.client.shown_url().as_bytes(),
            endpoint.model.as_bytes(),
            &settings.max_tokens.to_le_bytes(),
            &temperature.to_le_bytes(),
            &[u8::from(settings.structured)],
            &prompt.system_digest,
            prompt.user.as_bytes(),
            &repeat.to_le_bytes(),
        ])
    }

    /// What a question costs at most, before it is asked: every answer as long as it may be, and none readable but the
    /// last. Only calls that are paid for and fail otherwise can make it more.
    /// What a question without a word could cost: all that it may be answered with.
    pub fn most_an_answer_costs(&self) -> Option<f64> {
        let completion = (u64::from(self.settings.asks_again) + 1) * u64::from(self.settings.max_tokens);
        self.price.map(|price| price.cost_of_usage(CompletionUsage { completion, ..CompletionUsage::default() }))
    }

    pub fn most_it_costs(&self, prompt: &JudgePrompt) -> Option<f64> {
        let calls = u64::from(self.settings.asks_again) + 1;
        let usage = CompletionUsage {
            prompt: calls * most_tokens(prompt),
            completion: calls * u64::from(self.settings.max_tokens),
            cached_prompt: 0,
        };
        self.price.map(|price| price.cost_of_usage(usage))
    }

    /// Asks until there is a verdict or no hope of one. `render` makes the prompt for a smaller window.
    pub async fn judge(
        &self,
        answer: &AnswerForm,
        labels: &RubricLabels,
        prompt: JudgePrompt,
        render: impl Fn(PromptWindow) -> JudgePrompt,
    ) -> JudgeResponse {
        let mut judgement = JudgeResponse {
            result: Err(JudgeFailure::Case(String::new())),
            usage: None,
            is_usage_partial: false,
            calls: 0,
            prompt,
        };
        let mut window = self.settings.window;
        let (mut halvings, mut unread) = (0, 0);
        let mut reminder: Option<String> = None;
        loop {
            let user = match &reminder {
                Some(reminder) => format!("{}\n\n{reminder}", judgement.prompt.user).into(),
                None => std::borrow::Cow::Borrowed(judgement.prompt.user.as_str()),
            };
            let request = ModelRequest {
                system: &judgement.prompt.system,
                user: &user,
                answer: answer.clone(),
                max_tokens: self.settings.max_tokens,
                temperature: self.settings.temperature,
            };
            let (calls, answered) = self.client.ask(&request).await;
            judgement.calls += calls;
            let reply = match answered {
                Ok(reply) => reply,
                Err(ModelCallFailure { error: CallError::TooLong(_), .. }) if halvings < HALVINGS => {
                    halvings += 1;
                    window = window.halved();
                    judgement.prompt = render(window);
                    continue;
                }
                Err(failure) => {
                    judgement.is_usage_partial |= failure.error.may_be_paid_for();
                    judgement.result = Err(self.classify_failure(failure));
                    return judgement;
                }
            };
            match reply.usage {
                Some(usage) => *judgement.usage.get_or_insert_default() += usage,
                None => judgement.is_usage_partial = true,
            }
            let reason = match (verdict::parse_verdict(&reply.text, labels), reply.stop) {
                (Ok(reading), _) => {
                    judgement.result = Ok(reading);
                    return judgement;
                }
                (Err(_), FinishReason::Refused) => "the judge refused to answer".to_owned(),
                (Err(_), FinishReason::Length) => {
                    format!("the judge's answer was cut off at {} tokens", self.settings.max_tokens)
                }
                (Err(unreadable), FinishReason::Done) => unreadable.to_string(),
            };
            if unread >= self.settings.asks_again {
                let text = match unread {
                    0 => reason,
                    asked => format!("{reason} (asked {} times)", asked + 1),
                };
                judgement.result = Err(JudgeFailure::Case(text));
                return judgement;
            }
            unread += 1;
            let names: Vec<&str> = labels.names().collect();
            reminder = Some(format!(
                "An earlier answer could not be used: {reason}. Keep the explanation short, and end with the line LABEL: followed by exactly one of: {}",
                names.join(", ")
            ));
        }
    }

    fn classify_failure(&self, failure: ModelCallFailure) -> JudgeFailure {
        let is_silence = matches!(failure.error, CallError::Connect(_) | CallError::Timeout(_));
        let never_reached = is_silence && !self.client.has_answered();
        let has_no_model = matches!(failure.error, CallError::Loading { .. });
        if failure.error == CallError::CallLimit {
            JudgeFailure::CallLimit
        } else if failure.error.is_fatal() || never_reached || has_no_model {
            JudgeFailure::Endpoint(failure)
        } else if matches!(failure.error, CallError::TooLong(_))
            || (matches!(failure.error, CallError::Refused { .. }) && self.client.has_answered())
        {
            JudgeFailure::Case(failure.to_string())
        } else {
            JudgeFailure::Call(failure.to_string())
        }
    }
}

/// The form in which a rubric's verdict is asked for.
pub fn answer_form(rubric: &Rubric, structured: bool) -> AnswerForm {
    if !structured {
        return AnswerForm::Text;
    }
    let labels: Vec<&str> = rubric.labels.names().collect();
    // The explanation comes first: a label that is given before its reasons is a guess.
    let schema = serde_json::json!({
        "type": "object",
        "properties": {
            "explanation": {"type": "string"},
            "label": {"type": "string", "enum": labels},
        },
        "required": ["explanation", "label"],
        "additionalProperties": false,
    });
    match RawValue::from_string(schema.to_string()) {
        Ok(schema) => AnswerForm::Json { name: "verdict".into(), schema: Arc::from(schema) },
        Err(_) => AnswerForm::Text,
    }
}

/// More tokens than a prompt has.
fn most_tokens(prompt: &JudgePrompt) -> u64 {
    (prompt.system.len() + prompt.user.len()).div_ceil(crate::prompt::BYTES_PER_TOKEN) as u64
}

/// About how many tokens a prompt has.
pub fn estimated_tokens(prompt: &JudgePrompt) -> u64 {
    const BYTES_PER_TOKEN: usize = 4;
    (prompt.system.len() + prompt.user.len()).div_ceil(BYTES_PER_TOKEN) as u64
}
