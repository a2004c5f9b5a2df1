//! Conversations and tools as flat attributes of the OpenInference convention.

use gradus_llm::{ChatReply, ChatRequest, ChatToolDefinition, CompletionUsage, FinishReason, PromptMessage};
use opentelemetry::{KeyValue, Value};
use serde_json::json;

pub(super) const JSON: &str = "application/json";
pub(super) const TEXT: &str = "text/plain";

/// Builds a key-value pair of the OpenTelemetry SDK.
pub(super) fn build_attribute(key: impl Into<String>, value: impl Into<Value>) -> KeyValue {
    KeyValue::new(key.into(), value)
}

/// Builds attributes for messages, tools and parameters of a model call. The system prompt is message 0.
pub(super) fn build_request_attributes(chat: &ChatRequest<'_>, tools: &[&ChatToolDefinition]) -> Vec<KeyValue> {
    let mut attributes = Vec::with_capacity(chat.messages.len() * 3 + tools.len() + 4);
    let mut parameters = json!({ "max_tokens": chat.max_tokens });
    if let Some(temperature) = chat.temperature {
        parameters["temperature"] = json!(temperature);
    }
    if !chat.stop.is_empty() {
        parameters["stop"] = json!(chat.stop);
    }
    attributes.push(build_attribute("llm.invocation_parameters", parameters.to_string()));
    let system = "llm.input_messages.0.message";
    attributes.push(build_attribute(format!("{system}.role"), "system"));
    attributes.push(build_attribute(format!("{system}.content"), chat.system.to_owned()));
    for (index, message) in chat.messages.iter().enumerate() {
        add_message(&format!("llm.input_messages.{}.message", index + 1), message, &mut attributes);
    }
    for (index, tool) in tools.iter().enumerate() {
        let schema = json!({ "type": "function", "function": tool });
        attributes.push(build_attribute(format!("llm.tools.{index}.tool.json_schema"), schema.to_string()));
    }
    attributes
}

/// Builds attributes for the reply, its finish reason in OpenAI's terms, and token counts.
pub(super) fn build_reply_attributes(reply: &ChatReply) -> Vec<KeyValue> {
    let mut attributes = Vec::new();
    let said = PromptMessage::Assistant { text: reply.text.clone(), calls: reply.calls.clone() };
    add_message("llm.output_messages.0.message", &said, &mut attributes);
    attributes.push(build_attribute("output.value", reply.text.clone()));
    attributes.push(build_attribute("output.mime_type", TEXT));
    let finished = match reply.stop {
        FinishReason::Length => "length",
        FinishReason::Refused => "content_filter",
        FinishReason::Done if !reply.calls.is_empty() => "tool_calls",
        FinishReason::Done => "stop",
    };
    attributes.push(build_attribute("llm.finish_reason", finished));
    if let Some(usage) = reply.usage {
        attributes.extend(build_token_attributes(usage));
    }
    attributes
}

/// Builds attributes for token counts. Cached prompt tokens are part of the prompt count.
fn build_token_attributes(usage: CompletionUsage) -> [KeyValue; 4] {
    let count = |name: &str, tokens: u64| {
        build_attribute(format!("llm.token_count.{name}"), i64::try_from(tokens).unwrap_or(i64::MAX))
    };
    [
        count("prompt", usage.prompt),
        count("completion", usage.completion),
        count("total", usage.prompt.saturating_add(usage.completion)),
        count("prompt_details.cache_read", usage.cached_prompt),
    ]
}

/// Adds one message under a prefix.
fn add_message(prefix: &str, message: &PromptMessage, attributes: &mut Vec<KeyValue>) {
    let mut add = |name: &str, value: &str| {
        attributes.push(build_attribute(format!("{prefix}.{name}"), value.to_owned()));
    };
    match message {
        PromptMessage::User { text } => {
            add("role", "user");
            add("content", text);
        }
        PromptMessage::Assistant { text, calls } => {
            add("role", "assistant");
            if !text.is_empty() || calls.is_empty() {
                add("content", text);
            }
            for (index, call) in calls.iter().enumerate() {
                let call_prefix = format!("tool_calls.{index}.tool_call");
                add(&format!("{call_prefix}.id"), &call.id);
                add(&format!("{call_prefix}.function.name"), &call.name);
                add(&format!("{call_prefix}.function.arguments"), &call.arguments);
            }
        }
        PromptMessage::Tool { call_id, name, text, .. } => {
            add("role", "tool");
            add("tool_call_id", call_id);
            add("name", name);
            add("content", text);
        }
    }
}

/// Detects the MIME type by the first character; observations of tools are JSON or text.
pub(super) fn mime_type(text: &str) -> &'static str {
    if text.starts_with(['{', '[']) { JSON } else { TEXT }
}
