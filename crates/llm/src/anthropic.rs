//! Anthropic's Messages API (`POST /v1/messages`). It has no JSON mode, so a JSON answer is requested as the input of a
//! tool that the model must call.

pub(crate) mod chat;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::error::ReplyDecodeError;
use crate::request::{AnswerForm, CompletionUsage, FinishReason, ModelReply, ModelRequest, read_model_name};

/// Value of the header `anthropic-version`, which every request must carry.
pub(crate) const VERSION: &str = "2023-06-01";

#[derive(Serialize)]
struct AnthropicRequest<'b> {
    model: &'b str,
    max_tokens: u32,
    system: [SystemBlock<'b>; 1],
    messages: [AnthropicTextMessage<'b>; 1],
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<[AnthropicAnswerTool<'b>; 1]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<ToolChoice<'b>>,
}

#[derive(Serialize)]
struct SystemBlock<'b> {
    #[serde(rename = "type")]
    kind: &'static str,
    text: &'b str,
    /// Marks the end of the prefix that the provider caches between calls.
    cache_control: CacheControl,
}

#[derive(Serialize)]
struct CacheControl {
    #[serde(rename = "type")]
    kind: &'static str,
}

/// Marks a block: the provider caches the prompt up to it for a few minutes.
const CACHED_PREFIX: CacheControl = CacheControl { kind: "ephemeral" };

#[derive(Serialize)]
struct AnthropicTextMessage<'b> {
    role: &'static str,
    content: &'b str,
}

#[derive(Serialize)]
struct AnthropicAnswerTool<'b> {
    name: &'b str,
    description: &'static str,
    input_schema: &'b RawValue,
}

#[derive(Serialize)]
struct ToolChoice<'b> {
    #[serde(rename = "type")]
    kind: &'static str,
    name: &'b str,
}

/// Encodes the body of one question. No temperature is sent: newer models refuse it.
pub(crate) fn encode_anthropic_request(model: &str, request: &ModelRequest<'_>) -> Vec<u8> {
    let (tools, tool_choice) = match &request.answer {
        AnswerForm::Text => (None, None),
        AnswerForm::Json { name, schema } => (
            Some([AnthropicAnswerTool { name, description: "Hands in the answer.", input_schema: schema }]),
            Some(ToolChoice { kind: "tool", name }),
        ),
    };
    let body = AnthropicRequest {
        model,
        max_tokens: request.max_tokens,
        system: [SystemBlock { kind: "text", text: request.system, cache_control: CACHED_PREFIX }],
        messages: [AnthropicTextMessage { role: "user", content: request.user }],
        tools,
        tool_choice,
    };
    let mut bytes = Vec::with_capacity(request.system.len() + request.user.len() + 1024);
    // Writing texts and numbers into memory cannot fail.
    let _ = serde_json::to_writer(&mut bytes, &body);
    bytes
}

#[derive(Deserialize)]
struct AnthropicReply {
    content: Vec<AnthropicReplyBlock>,
    stop_reason: Option<String>,
    usage: Option<AnthropicUsage>,
    #[serde(default, deserialize_with = "read_model_name")]
    model: Option<String>,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum AnthropicReplyBlock {
    Text {
        text: String,
    },
    ToolUse {
        input: serde_json::Value,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct AnthropicUsage {
    #[serde(default)]
    input_tokens: u64,
    #[serde(default)]
    output_tokens: u64,
    cache_read_input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
}

impl From<AnthropicUsage> for CompletionUsage {
    fn from(usage: AnthropicUsage) -> CompletionUsage {
        let cached_prompt = usage.cache_read_input_tokens.unwrap_or(0);
        // `input_tokens` leaves out the tokens that were read from or written to the cache.
        let prompt = usage.input_tokens + cached_prompt + usage.cache_creation_input_tokens.unwrap_or(0);
        CompletionUsage { prompt, completion: usage.output_tokens, cached_prompt }
    }
}

/// Maps a stop reason. An unknown one counts as done: the text is complete either way.
fn map_stop_reason(reason: Option<&str>) -> FinishReason {
    match reason {
        Some("max_tokens" | "model_context_window_exceeded") => FinishReason::Length,
        Some("refusal") => FinishReason::Refused,
        _ => FinishReason::Done,
    }
}

/// Reads the text of a reply. The input of a tool call replaces the text, because it is the JSON that was asked for.
pub(crate) fn decode_anthropic_reply(bytes: &[u8]) -> Result<ModelReply, ReplyDecodeError> {
    let message: AnthropicReply = serde_json::from_slice(bytes)?;
    let stop = map_stop_reason(message.stop_reason.as_deref());
    let mut text = String::new();
    for block in &message.content {
        match block {
            AnthropicReplyBlock::ToolUse { input } => {
                text = input.to_string();
                break;
            }
            AnthropicReplyBlock::Text { text: more } => text.push_str(more),
            AnthropicReplyBlock::Other => {}
        }
    }
    let usage = message.usage.map(CompletionUsage::from);
    // The Messages API has no log-probabilities.
    Ok(ModelReply { text, usage, stop, model: message.model, token_logprobs: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_texts_and_tool_calls() {
        let text = decode_anthropic_reply(
            br#"{"content":[{"type":"thinking","thinking":"..."},{"type":"text","text":"a"},{"type":"text","text":"b"}],
            "stop_reason":"end_turn","usage":{"input_tokens":3,"output_tokens":2,"cache_read_input_tokens":7}}"#,
        )
        .expect("an answer");
        assert_eq!(text.text, "ab");
        assert_eq!(text.usage, Some(CompletionUsage { prompt: 10, completion: 2, cached_prompt: 7 }));
        let tool = decode_anthropic_reply(
            br#"{"model":"m-20261101","content":[{"type":"text","text":"here"},{"type":"tool_use","id":"x","name":"v","input":{"label":"correct"}}]}"#,
        )
        .expect("an answer");
        assert_eq!(tool.text, "{\"label\":\"correct\"}");
        assert_eq!((text.model, tool.model.as_deref()), (None, Some("m-20261101")));
        assert!(decode_anthropic_reply(br#"{"type":"error"}"#).is_err());
    }
}
