//! Asks a model for a verdict. It asks again if the answer cannot be parsed, and with less context if the prompt
//! exceeds the context window of the model.

use std::sync::Arc;

use gradus_llm::price::TokenPrice;
use gradus_llm::{
    AnswerForm, CallError, CompletionUsage, ContextRefusal, FinishReason, ModelCallFailure, ModelClient, ModelRequest,
};
use serde_json::value::RawValue;

use crate::label_probability::compute_label_probability;
use crate::learned_window::LearnedWindow;
use crate::prompt::{JudgePrompt, PromptWindow};
use crate::rubric::{Rubric, RubricLabels};
use crate::run::{JudgeModelRecord, QuestionKey};
use crate::verdict::{self, ParsedVerdict};

/// A model endpoint with the settings of a judge. All questions of a run share it, so its limiter and call counter see
/// all requests.
#[derive(Debug)]
pub struct ModelJudge {
    pub client: ModelClient,
    pub settings: JudgeSettings,
    /// `None` if the price of the model is unknown. Costs are then unknown, too, never 0.
    pub price: Option<TokenPrice>,
    /// The context window, once the endpoint has refused a prompt and named it.
    pub learned_window: LearnedWindow,
}

/// Everything besides prompt and endpoint that influences an answer. It is part of the cache key, except `max_reasks`,
/// `window` and `wants_logprobs`.
#[derive(Clone, Copy, Debug)]
pub struct JudgeSettings {
    /// Maximum length of an answer, in tokens.
    pub max_tokens: u32,
    /// `None` sends no temperature: some models refuse one.
    pub temperature: Option<f64>,
    /// Asks for JSON that follows a schema. Endpoints that reject this are asked for text.
    pub structured: bool,
    /// Maximum length of the explanation in JSON answers. Small models without one can go on until `max_tokens`, and
    /// then there is no label.
    pub max_explanation_chars: Option<u16>,
    /// How many times an unparseable answer is requested again.
    pub max_reasks: u32,
    /// Maximum length of a prompt.
    pub window: PromptWindow,
    /// Asks for log-probabilities, so that [`JudgeResponse::label_probability`] is known where the endpoint gives them.
    pub wants_logprobs: bool,
}

/// The result of one question, with everything that it cost.
#[derive(Debug)]
pub struct JudgeResponse {
    pub result: Result<ParsedVerdict, JudgeFailure>,
    /// Tokens of all answers to this question together, also of those that could not be parsed.
    pub usage: Option<CompletionUsage>,
    /// Whether more may have been billed than `usage` reports: an answer came without usage, or was lost.
    pub is_usage_partial: bool,
    /// Requests that were sent, retries included.
    pub calls: u32,
    /// The last answer as the model gave it, whether or not it could be parsed.
    pub raw_response: Option<String>,
    /// The probability of the given label among the labels of the rubric, from 0 to 1. `None` without a verdict,
    /// without [`JudgeSettings::wants_logprobs`], or if the endpoint gives no log-probabilities.
    pub label_probability: Option<f64>,
    /// The model that gave the last answer, as the endpoint names it.
    pub answered_by: Option<String>,
    /// The prompt that was answered; shorter than the first one if that was too long.
    pub prompt: JudgePrompt,
}

/// Why there is no verdict. The variants differ in what they mean for the rest of the run.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum JudgeFailure {
    /// This question was not answered for a reason of its own. Other questions are unaffected.
    #[error("{0}")]
    Case(String),
    /// The request failed. If many questions in a row fail like this, the runner considers the endpoint dead.
    #[error("{0}")]
    Call(String),
    /// The run's limit of requests is used up. The question stays open for the next run.
    #[error("the run's limit of calls is reached")]
    CallLimit,
    /// The endpoint will answer no question at all: wrong key, no quota, unknown model, unreachable, or silent.
    #[error("{0}")]
    Endpoint(ModelCallFailure),
}

/// Maximum number of times that a prompt which the endpoint refuses as too long is rendered again: for the window
/// that the endpoint names, or at half its size. Four halvings leave a sixteenth, so a wrong `--context-tokens` does
/// not fail the run.
const MAX_PROMPT_SHORTENINGS: u32 = 4;

impl ModelJudge {
    /// Provider and model, `openai:gpt-4o`, as in outcome lines.
    pub fn name(&self) -> String {
        self.client.endpoint().judge_name()
    }

    /// The model and its parameters, for the files of a run.
    pub fn to_record(&self) -> JudgeModelRecord {
        let endpoint = self.client.endpoint();
        JudgeModelRecord {
            judge: self.name(),
            provider: endpoint.provider.name().to_owned(),
            model: endpoint.model.clone(),
            endpoint: self.client.shown_url().to_owned(),
            temperature: self.settings.temperature,
            max_tokens: self.settings.max_tokens,
            structured: self.settings.structured,
            logprobs: self.settings.wants_logprobs,
        }
    }

    /// The cache key of a question: everything that may change the answer. `repeat` numbers deliberate repetitions of
    /// one question; it is 0 for the first.
    pub fn question_key(&self, rubric_hash: &str, prompt: &JudgePrompt, repeat: u32) -> QuestionKey {
        let endpoint = self.client.endpoint();
        let settings = &self.settings;
        // Temperatures as bits: they are compared, never read.
        let temperature = settings.temperature.map_or(u64::MAX, f64::to_bits);
        let mut form = vec![u8::from(settings.structured)];
        form.extend(settings.max_explanation_chars.into_iter().flat_map(u16::to_le_bytes));
        QuestionKey::from_parts(&[
            rubric_hash.as_bytes(),
            endpoint.provider.name().as_bytes(),
            // Two servers may have different models under one name.
            self.client.shown_url().as_bytes(),
            endpoint.model.as_bytes(),
            &settings.max_tokens.to_le_bytes(),
            &temperature.to_le_bytes(),
            &form,
            &prompt.system_digest,
            prompt.user.as_bytes(),
            &repeat.to_le_bytes(),
        ])
    }

    /// Upper bound in dollars of the answers to one question, without its prompt: every allowed answer has maximum
    /// length. A budget below it would never admit a question. `None` if the price is unknown.
    pub fn max_answer_cost_usd(&self) -> Option<f64> {
        let completion = (u64::from(self.settings.max_reasks) + 1) * u64::from(self.settings.max_tokens);
        self.price.map(|price| price.cost_of_usage(CompletionUsage { completion, ..CompletionUsage::default() }))
    }

    /// Returns the same judge with its own limit of `max_calls` requests, retries included.
    #[must_use]
    pub fn with_own_calls(&self, max_calls: Option<u64>) -> ModelJudge {
        ModelJudge {
            client: self.client.with_own_calls(max_calls),
            settings: self.settings,
            price: self.price,
            learned_window: LearnedWindow::default(),
        }
    }

    /// Upper bound in dollars of a question before it is asked: every allowed answer has maximum length and only the
    /// last one can be parsed. Only retries of requests that were billed and then failed can exceed it.
    pub fn max_question_cost_usd(&self, prompt: &JudgePrompt) -> Option<f64> {
        let calls = u64::from(self.settings.max_reasks) + 1;
        let usage = CompletionUsage {
            prompt: calls * max_prompt_tokens(prompt),
            completion: calls * u64::from(self.settings.max_tokens),
            cached_prompt: 0,
        };
        self.price.map(|price| price.cost_of_usage(usage))
    }

    /// Asks until there is a verdict or no further attempt is allowed. `render` makes the prompt for a smaller window.
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
            raw_response: None,
            label_probability: None,
            answered_by: None,
            prompt,
        };
        let answer = match self.settings.max_explanation_chars {
            Some(chars) => limit_explanation(answer, chars),
            None => answer.clone(),
        };
        let (mut shortenings, mut unread) = (0, 0);
        // Another question may have learned the window since the prompt was rendered, or long ago.
        if let Some(window) = self.learned_window.prompt_window(self.settings.max_tokens)
            && prompt_bytes(&judgement.prompt) > window.bytes
        {
            judgement.prompt = render(window);
        }
        let mut reminder: Option<String> = None;
        loop {
            // The reminder follows the prompt, so that the provider's prompt cache still covers the rest.
            let user = match &reminder {
                Some(reminder) => format!("{}\n\n{reminder}", judgement.prompt.user).into(),
                None => std::borrow::Cow::Borrowed(judgement.prompt.user.as_str()),
            };
            let request = ModelRequest {
                system: &judgement.prompt.system,
                user: &user,
                answer: answer.clone(),
                max_tokens: self.learned_window.answer_tokens(self.settings.max_tokens),
                temperature: self.settings.temperature,
                wants_logprobs: self.settings.wants_logprobs,
            };
            let (calls, answered) = self.client.ask(&request).await;
            judgement.calls += calls;
            let reply = match answered {
                Ok(reply) => reply,
                // A rejected prompt is not billed, so it counts neither as an attempt nor against the budget.
                Err(ModelCallFailure { error: CallError::TooLong(refusal), attempts })
                    if shortenings < MAX_PROMPT_SHORTENINGS =>
                {
                    shortenings += 1;
                    let refused_bytes = prompt_bytes(&judgement.prompt);
                    let shorter = render(self.window_after_refusal(&refusal, refused_bytes));
                    // Instructions and rubric cannot be cut. If they do not fit, asking again does not help.
                    if prompt_bytes(&shorter) < refused_bytes {
                        judgement.prompt = shorter;
                        continue;
                    }
                    let error = CallError::TooLong(refusal);
                    judgement.result = Err(self.classify_failure(ModelCallFailure { error, attempts }));
                    return judgement;
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
            let parsed = verdict::parse_verdict(&reply.text, labels);
            judgement.raw_response = Some(reply.text);
            judgement.answered_by = reply.model;
            let reason = match (parsed, reply.stop) {
                (Ok(reading), _) => {
                    judgement.label_probability =
                        compute_label_probability(&reply.token_logprobs, labels, &reading.label);
                    judgement.result = Ok(reading);
                    return judgement;
                }
                (Err(_), FinishReason::Refused) => "the judge refused to answer".to_owned(),
                (Err(_), FinishReason::Length) => {
                    format!("the judge's answer was cut off at {} tokens", self.settings.max_tokens)
                }
                (Err(unreadable), FinishReason::Done) => unreadable.to_string(),
            };
            if unread >= self.settings.max_reasks {
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

    /// The window for the next attempt: the one that the endpoint named, or half of the prompt that it refused.
    fn window_after_refusal(&self, refusal: &ContextRefusal, refused_bytes: usize) -> PromptWindow {
        self.learned_window.learn_from_refusal(refusal, refused_bytes);
        let learned = self.learned_window.prompt_window(self.settings.max_tokens);
        let half = PromptWindow { bytes: refused_bytes.min(self.settings.window.bytes) / 2 };
        // If the refused prompt already fitted the named window, the window is not used.
        learned.filter(|window| window.bytes < refused_bytes).unwrap_or(half)
    }

    /// Decides whether a failure concerns one question or all of them. An endpoint that never answered is treated as
    /// unreachable; once it has answered, a timeout concerns only one question.
    fn classify_failure(&self, failure: ModelCallFailure) -> JudgeFailure {
        let is_silence = matches!(failure.error, CallError::Connect(_) | CallError::Timeout(_));
        let never_reached = is_silence && !self.client.has_answered();
        let is_away = matches!(failure.error, CallError::Loading { .. } | CallError::Silent(_));
        if failure.error == CallError::CallLimit {
            JudgeFailure::CallLimit
        } else if failure.error.is_fatal() || never_reached || is_away {
            JudgeFailure::Endpoint(failure)
        } else if matches!(failure.error, CallError::TooLong(_))
            || (matches!(failure.error, CallError::Refused { .. }) && self.client.has_answered())
        {
            // A refusal (HTTP 4xx) by an endpoint that has answered others concerns the content of this question.
            JudgeFailure::Case(failure.to_string())
        } else {
            JudgeFailure::Call(failure.to_string())
        }
    }
}

/// The form in which a rubric's verdict is requested: a JSON schema whose `label` is an enum of the rubric's labels, or
/// text.
pub fn build_answer_form(rubric: &Rubric, structured: bool) -> AnswerForm {
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

/// The same form with a maximum length of the explanation.
fn limit_explanation(answer: &AnswerForm, max_chars: u16) -> AnswerForm {
    let AnswerForm::Json { name, schema } = answer else { return AnswerForm::Text };
    let limited = serde_json::from_str(schema.get()).and_then(|mut schema: serde_json::Value| {
        schema["properties"]["explanation"]["maxLength"] = max_chars.into();
        RawValue::from_string(schema.to_string())
    });
    match limited {
        Ok(schema) => AnswerForm::Json { name: Arc::clone(name), schema: Arc::from(schema) },
        Err(_) => answer.clone(),
    }
}

/// The size of a prompt, as [`PromptWindow`] counts it.
fn prompt_bytes(prompt: &JudgePrompt) -> usize {
    prompt.system.len() + prompt.user.len()
}

/// An upper bound of the prompt's tokens, for budgets. It assumes fewer bytes per token than usual.
fn max_prompt_tokens(prompt: &JudgePrompt) -> u64 {
    prompt_bytes(prompt).div_ceil(crate::prompt::BYTES_PER_TOKEN) as u64
}

/// An estimate of the prompt's tokens, for `--dry-run`. English text has about four bytes per token.
pub fn estimate_prompt_tokens(prompt: &JudgePrompt) -> u64 {
    const BYTES_PER_TOKEN: usize = 4;
    prompt_bytes(prompt).div_ceil(BYTES_PER_TOKEN) as u64
}
