//! The Vercel AI SDK: `ai.operationId`, `ai.prompt*`, `ai.response.*`, `ai.toolCall.*`.

use std::borrow::Cow;

use serde_json::Value as Json;

use crate::message::{ChatMessage, MessagePart, MessageRole, messages_from_json};
use crate::span::{AttributeValue, Span};

use super::wrapped::unwrap_result;
use super::{
    NormalizedSpan, OfferedTools, OperationKind, fill_if_empty, read_argument_attribute, read_json_attribute,
    read_text_attribute,
};

/// Reads a span of the SDK. `ai.generateText` is the agent around, `ai.generateText.doGenerate` one model call inside
/// of it.
pub(super) fn read_vercel_span<'s>(span: &'s Span<'_>, facts: &mut NormalizedSpan<'s>) {
    let operation = span.attribute_text("ai.operationId").unwrap_or_default();
    let kind = match operation {
        "ai.toolCall" => OperationKind::Tool,
        _ if operation.ends_with(".doGenerate") || operation.ends_with(".doStream") => OperationKind::Model,
        "" => OperationKind::Other,
        _ => OperationKind::Agent,
    };
    if facts.kind == OperationKind::Other {
        facts.kind = kind;
    }
    let mut reply = ChatMessage::new(MessageRole::Assistant);
    let mut calls = Vec::new();
    for (key, value) in span.attributes.iter() {
        let Some(rest) = key.strip_prefix("ai.") else { continue };
        match rest {
            "model.id" => fill_if_empty(&mut facts.model, read_text_attribute(value)),
            "usage.inputTokens" | "usage.promptTokens" => fill_if_empty(&mut facts.prompt_tokens, value.as_u64()),
            "usage.outputTokens" | "usage.completionTokens" => {
                fill_if_empty(&mut facts.completion_tokens, value.as_u64())
            }
            "usage.cachedInputTokens" => fill_if_empty(&mut facts.cached_prompt_tokens, value.as_u64()),
            "prompt" | "prompt.messages" => {
                facts.add_input(read_json_attribute(value).map(prompt_messages).unwrap_or_default())
            }
            "prompt.tools" => read_tools(value, facts),
            "response.text" => reply.parts.extend(read_text_attribute(value).map(MessagePart::Text)),
            "response.reasoning" => reply.parts.extend(read_text_attribute(value).map(MessagePart::Reasoning)),
            "response.toolCalls" => {
                let list = read_json_attribute(value)
                    .map(|calls| serde_json::json!({"role": "assistant", "tool_calls": calls}));
                calls = list.map(messages_from_json).unwrap_or_default();
            }
            "toolCall.name" => fill_if_empty(&mut facts.tool.name, read_text_attribute(value)),
            "toolCall.id" => fill_if_empty(&mut facts.tool.call_id, read_text_attribute(value)),
            "toolCall.args" | "toolCall.input" => {
                fill_if_empty(&mut facts.tool.arguments, read_argument_attribute(value))
            }
            "toolCall.result" | "toolCall.output" => {
                fill_if_empty(&mut facts.tool.result, value.as_str().map(|text| unwrap_result(text).text));
            }
            _ => {
                // There is no attribute for the session. Applications put it into the metadata under a name of their
                // choice.
                if let Some(name) = rest.strip_prefix("telemetry.metadata.")
                    && matches!(
                        name,
                        "session.id"
                            | "sessionId"
                            | "session_id"
                            | "threadId"
                            | "thread_id"
                            | "conversationId"
                            | "chatId"
                    )
                {
                    fill_if_empty(&mut facts.session, read_text_attribute(value));
                }
            }
        }
    }
    reply.parts.extend(calls.into_iter().flat_map(|message| message.parts));
    // `ai.generateText` and `ai.streamText` are loops over model calls.
    if facts.kind == OperationKind::Agent {
        // The outer span repeats the first prompt and the last reply: its request and its answer.
        fill_if_empty(
            &mut facts.answer,
            Some(reply.joined_text().into_owned()).filter(|text| !text.is_empty()).map(Cow::Owned),
        );
    } else if !reply.is_empty() {
        facts.add_output(vec![reply]);
    }
}

/// The prompt as `{"system", "prompt"}`, `{"messages": [...]}` or the list itself.
fn prompt_messages(json: Json) -> Vec<ChatMessage<'static>> {
    match json {
        Json::Object(mut object) if object.get("prompt").is_some_and(|prompt| !prompt.is_null()) => {
            let mut messages = Vec::new();
            if let Some(Json::String(system)) = object.remove("system") {
                messages.push(ChatMessage::from_text(MessageRole::System, system));
            }
            messages.extend(object.remove("prompt").map(messages_from_json).unwrap_or_default());
            messages
        }
        json => messages_from_json(json),
    }
}

/// A list of tools, each as JSON text.
fn read_tools<'s>(value: &'s AttributeValue<'_>, facts: &mut NormalizedSpan<'s>) {
    match value {
        AttributeValue::Array(items) => facts.offered_tools.extend(items.iter().map(|item| match item {
            AttributeValue::Str(text) => OfferedTools::Json(text),
            other => OfferedTools::Value(other),
        })),
        AttributeValue::Str(text) => facts.offered_tools.push(OfferedTools::Json(text)),
        _ => {}
    }
}
