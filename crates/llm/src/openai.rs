//! OpenAI's Chat Completions API (`POST /chat/completions`), as OpenAI and the many compatible servers implement it.

pub(crate) mod chat;
mod logprobs;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::chat::ChatRequest;
use crate::error::ReplyDecodeError;
use crate::request::{
    AnswerForm, CompletionUsage, FinishReason, ModelReply, ModelRequest, TokenLogprob, read_model_name,
};

/// Features that an endpoint does not support. Learned from its refusals, so that no list of models has to be
/// maintained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EndpointQuirks {
    /// It does not know `response_format` with a JSON schema.
    pub no_json_schema: bool,
    /// It takes no temperature, as reasoning models do.
    pub no_temperature: bool,
    /// Newer models call the limit of an answer `max_completion_tokens`.
    pub completion_tokens: bool,
    /// Reasoning models take no stop sequences.
    pub no_stop: bool,
    /// It gives no log-probabilities.
    pub no_logprobs: bool,
}

/// Optional features that a request uses and that an endpoint may not support.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RequestedFeatures {
    pub temperature: bool,
    pub json: bool,
    pub stop: bool,
    pub logprobs: bool,
}

impl RequestedFeatures {
    pub(crate) fn for_request(request: &ModelRequest<'_>) -> RequestedFeatures {
        RequestedFeatures {
            temperature: request.temperature.is_some(),
            json: request.answer.is_json(),
            stop: false,
            logprobs: request.wants_logprobs,
        }
    }

    pub(crate) fn for_chat(chat: &ChatRequest<'_>) -> RequestedFeatures {
        let (temperature, stop) = (chat.temperature.is_some(), !chat.stop.is_empty());
        RequestedFeatures { temperature, json: false, stop, logprobs: false }
    }
}

impl EndpointQuirks {
    /// Returns the quirks after a refusal with this message; `None` if it names no feature that the request used and
    /// that is not yet a quirk. One feature is learned at a time, and the call is repeated, so the number of
    /// repetitions is bounded by the number of features.
    pub(crate) fn learn_from_refusal(self, features: RequestedFeatures, message: &str) -> Option<EndpointQuirks> {
        let message = message.to_ascii_lowercase();
        let says = |words: &[&str]| words.iter().any(|word| message.contains(word));
        if !self.completion_tokens && says(&["max_completion_tokens"]) {
            return Some(EndpointQuirks { completion_tokens: true, ..self });
        }
        // Before the temperature: a refusal of log-probabilities may name the sampling parameters, too.
        if !self.no_logprobs && features.logprobs && says(&["logprobs", "log probabilities", "log-probabilities"]) {
            return Some(EndpointQuirks { no_logprobs: true, ..self });
        }
        if !self.no_temperature && features.temperature && says(&["temperature"]) {
            return Some(EndpointQuirks { no_temperature: true, ..self });
        }
        // Only the quoted name counts: the plain word occurs in many messages.
        if !self.no_stop && features.stop && says(&["'stop'", "\"stop\"", "`stop`", "stop sequence", "parameter: stop"])
        {
            return Some(EndpointQuirks { no_stop: true, ..self });
        }
        let about_form = says(&["response_format", "json_schema", "structured output", "guided", "grammar", "schema"]);
        if !self.no_json_schema && features.json && about_form {
            return Some(EndpointQuirks { no_json_schema: true, ..self });
        }
        None
    }
}

#[derive(Serialize)]
struct OpenAiRequest<'b> {
    model: &'b str,
    messages: [OpenAiTextMessage<'b>; 2],
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_format: Option<ResponseFormat<'b>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    logprobs: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_logprobs: Option<u32>,
}

#[derive(Serialize)]
struct OpenAiTextMessage<'b> {
    role: &'static str,
    content: &'b str,
}

#[derive(Serialize)]
struct ResponseFormat<'b> {
    #[serde(rename = "type")]
    kind: &'static str,
    json_schema: JsonSchema<'b>,
}

#[derive(Serialize)]
struct JsonSchema<'b> {
    name: &'b str,
    strict: bool,
    schema: &'b RawValue,
}

/// Encodes the body of one question, without the features that the endpoint does not support.
pub(crate) fn encode_openai_request(model: &str, request: &ModelRequest<'_>, quirks: EndpointQuirks) -> Vec<u8> {
    let limit = Some(request.max_tokens);
    let wants_logprobs = request.wants_logprobs && !quirks.no_logprobs;
    let body = OpenAiRequest {
        model,
        messages: [
            OpenAiTextMessage { role: "system", content: request.system },
            OpenAiTextMessage { role: "user", content: request.user },
        ],
        temperature: request.temperature.filter(|_| !quirks.no_temperature),
        max_tokens: limit.filter(|_| !quirks.completion_tokens),
        max_completion_tokens: limit.filter(|_| quirks.completion_tokens),
        response_format: match &request.answer {
            AnswerForm::Json { name, schema } if !quirks.no_json_schema => {
                Some(ResponseFormat { kind: "json_schema", json_schema: JsonSchema { name, strict: true, schema } })
            }
            _ => None,
        },
        logprobs: wants_logprobs.then_some(true),
        top_logprobs: wants_logprobs.then_some(logprobs::TOP_LOGPROBS),
    };
    let mut bytes = Vec::with_capacity(request.system.len() + request.user.len() + 1024);
    // Writing texts and numbers into memory cannot fail.
    let _ = serde_json::to_writer(&mut bytes, &body);
    bytes
}

#[derive(Deserialize)]
struct OpenAiCompletion {
    choices: Vec<OpenAiChoice>,
    usage: Option<OpenAiUsage>,
    #[serde(default, deserialize_with = "read_model_name")]
    model: Option<String>,
}

#[derive(Deserialize)]
struct OpenAiChoice {
    message: OpenAiReply,
    finish_reason: Option<String>,
    #[serde(default, deserialize_with = "logprobs::read_token_logprobs")]
    logprobs: Vec<TokenLogprob>,
}

#[derive(Deserialize)]
struct OpenAiReply {
    content: Option<String>,
    refusal: Option<String>,
}

#[derive(Deserialize)]
struct OpenAiUsage {
    /// Signed, and negative numbers count as 0: one odd number should not make a reply unreadable.
    #[serde(default)]
    prompt_tokens: i64,
    #[serde(default)]
    completion_tokens: i64,
    prompt_tokens_details: Option<PromptDetails>,
}

impl From<OpenAiUsage> for CompletionUsage {
    fn from(usage: OpenAiUsage) -> CompletionUsage {
        CompletionUsage {
            prompt: usage.prompt_tokens.max(0) as u64,
            completion: usage.completion_tokens.max(0) as u64,
            cached_prompt: usage.prompt_tokens_details.and_then(|details| details.cached_tokens).unwrap_or(0),
        }
    }
}

#[derive(Deserialize)]
struct PromptDetails {
    cached_tokens: Option<u64>,
}

/// Parses a response body, or finds the error that it reports instead.
fn parse_openai_json<'b, T: Deserialize<'b>>(bytes: &'b [u8]) -> Result<T, ReplyDecodeError> {
    serde_json::from_slice(bytes).map_err(|error| {
        // Some servers send errors with a status of success.
        let json: Option<serde_json::Value> = serde_json::from_slice(bytes).ok();
        let message = json.as_ref().and_then(|json| json.get("error")?.get("message")?.as_str());
        match message {
            Some(message) => ReplyDecodeError::Reported { message: message.to_owned() },
            None => ReplyDecodeError::Json(error),
        }
    })
}

/// Maps a finish reason. An unknown one counts as done: the text is complete either way.
fn map_finish_reason(refused: bool, finish_reason: Option<&str>) -> FinishReason {
    match finish_reason {
        _ if refused => FinishReason::Refused,
        Some("content_filter") => FinishReason::Refused,
        Some("length") => FinishReason::Length,
        _ => FinishReason::Done,
    }
}

/// Reads the first choice; no request asks for more than one.
pub(crate) fn decode_openai_reply(bytes: &[u8]) -> Result<ModelReply, ReplyDecodeError> {
    let completion: OpenAiCompletion = parse_openai_json(bytes)?;
    let choice = completion.choices.into_iter().next().ok_or(ReplyDecodeError::NoChoices)?;
    let refused = choice.message.refusal.is_some_and(|text| !text.is_empty());
    let stop = map_finish_reason(refused, choice.finish_reason.as_deref());
    let usage = completion.usage.map(CompletionUsage::from);
    let text = choice.message.content.unwrap_or_default();
    Ok(ModelReply { text, usage, stop, model: completion.model, token_logprobs: choice.logprobs })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn request(answer: AnswerForm) -> ModelRequest<'static> {
        ModelRequest { system: "s", user: "u", answer, max_tokens: 9, temperature: Some(0.0), wants_logprobs: true }
    }

    fn json_form() -> AnswerForm {
        let schema = RawValue::from_string("{\"type\":\"object\"}".to_owned()).expect("JSON");
        AnswerForm::Json { name: "verdict".into(), schema: Arc::from(schema) }
    }

    #[test]
    fn asks_in_the_form_the_endpoint_knows() {
        let body = |quirks| {
            let bytes = super::encode_openai_request("m", &request(json_form()), quirks);
            serde_json::from_slice::<serde_json::Value>(&bytes).expect("JSON")
        };
        let plain = body(EndpointQuirks::default());
        assert_eq!(plain["max_tokens"], 9);
        assert_eq!((&plain["logprobs"], &plain["top_logprobs"]), (&true.into(), &logprobs::TOP_LOGPROBS.into()));
        assert_eq!(plain["response_format"]["json_schema"]["strict"], true);
        let learned = body(EndpointQuirks {
            no_json_schema: true,
            no_temperature: true,
            completion_tokens: true,
            no_stop: false,
            no_logprobs: true,
        });
        assert_eq!(learned["max_completion_tokens"], 9);
        for absent in ["max_tokens", "temperature", "response_format", "logprobs", "top_logprobs"] {
            assert!(learned.get(absent).is_none(), "{absent}");
        }
    }

    #[test]
    fn learns_from_refusals() {
        let known = EndpointQuirks::default();
        let learn =
            |message: &str| known.learn_from_refusal(RequestedFeatures::for_request(&request(json_form())), message);
        assert!(
            learn("Unsupported parameter: 'max_tokens'; use 'max_completion_tokens' instead.")
                .is_some_and(|quirks| quirks.completion_tokens)
        );
        assert!(
            learn("Unsupported value: 'temperature' does not support 0.0").is_some_and(|quirks| quirks.no_temperature)
        );
        assert!(
            learn("Invalid parameter: 'response_format' of type 'json_schema' is not supported")
                .is_some_and(|quirks| quirks.no_json_schema)
        );
        for refusal in [
            "Unsupported parameter: 'logprobs' is not supported with this model.",
            "Requested sample logprobs of 5, which is greater than max allowed: 0",
            "[{\"type\":\"extra_forbidden\",\"loc\":[\"body\",\"top_logprobs\"]}]",
        ] {
            assert!(learn(refusal).is_some_and(|quirks| quirks.no_logprobs), "{refusal}");
        }
        assert_eq!(learn("Invalid request"), None);
        let text = request(AnswerForm::Text);
        assert_eq!(
            known.learn_from_refusal(RequestedFeatures::for_request(&text), "response_format is not supported"),
            None
        );
    }

    #[test]
    fn reads_answers_cuts_and_refusals() {
        let reply = decode_openai_reply(
            br#"{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}],
            "usage":{"prompt_tokens":5,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":4}}}"#,
        )
        .expect("an answer");
        assert_eq!((reply.text.as_str(), reply.stop), ("hi", FinishReason::Done));
        assert_eq!(reply.usage, Some(CompletionUsage { prompt: 5, completion: 2, cached_prompt: 4 }));
        let cut = decode_openai_reply(br#"{"choices":[{"message":{"content":"h"},"finish_reason":"length"}]}"#);
        assert_eq!(cut.expect("an answer").stop, FinishReason::Length);
        let refused = decode_openai_reply(br#"{"choices":[{"message":{"content":null,"refusal":"no"}}]}"#);
        assert_eq!(refused.expect("an answer").stop, FinishReason::Refused);
        assert!(decode_openai_reply(br#"{"choices":[]}"#).is_err());
        assert!(decode_openai_reply(br#"{"choices":[{"mess"#).is_err());
        assert!(decode_openai_reply(b"<html>").is_err());
    }
}
