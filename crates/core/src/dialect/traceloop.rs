//! Traceloop's OpenLLMetry: `traceloop.*` around the work, `gen_ai.prompt.N.*` and `gen_ai.completion.N.*` for
//! messages.

use std::borrow::Cow;

use crate::message::{ChatMessage, MessagePart, MessageRole, ToolCall, ToolResult};
use crate::span::{AttributeValue, Span};

use super::wrapped::{unwrap_arguments, unwrap_result};
use super::{
    NormalizedSpan, OfferedTools, OperationKind, fill_if_empty, is_tool_reason, read_argument_attribute,
    read_json_attribute, read_text_attribute, text_or_json,
};

/// Reads a span of OpenLLMetry. Model calls may have been read by `genai` already; only what is missing is added.
pub(super) fn read_traceloop_span<'s>(span: &'s Span<'_>, facts: &mut NormalizedSpan<'s>) {
    let mut prompts: Vec<MessageAttribute<'s>> = Vec::new();
    let mut completions: Vec<MessageAttribute<'s>> = Vec::new();
    let mut functions: Vec<MessageAttribute<'s>> = Vec::new();
    let (mut span_kind, mut entity) = ("", None);
    for (key, value) in span.attributes.iter() {
        if let Some(rest) = key.strip_prefix("gen_ai.prompt.") {
            prompts.extend(parse_indexed_attribute(rest, value));
        } else if let Some(rest) = key.strip_prefix("gen_ai.completion.") {
            facts.asks_for_tools |= rest.ends_with(".finish_reason") && is_tool_reason(value);
            completions.extend(parse_indexed_attribute(rest, value));
        } else if let Some(rest) = key.strip_prefix("llm.request.functions.") {
            functions.extend(parse_indexed_attribute(rest, value));
        } else {
            match key {
                "traceloop.span.kind" => span_kind = value.as_str().unwrap_or_default(),
                "traceloop.entity.name" => entity = read_text_attribute(value),
                "traceloop.entity.input" => fill_if_empty(&mut facts.input_text, text_or_json(value)),
                "traceloop.entity.output" => fill_if_empty(&mut facts.output_text, text_or_json(value)),
                "traceloop.association.properties.session_id" | "traceloop.association.properties.thread_id" => {
                    fill_if_empty(&mut facts.session, read_text_attribute(value));
                }
                "llm.request.type" if facts.kind == OperationKind::Other && value.as_str() != Some("embedding") => {
                    facts.kind = OperationKind::Model;
                }
                _ => {}
            }
        }
    }
    if facts.kind == OperationKind::Other {
        facts.kind = match span_kind {
            "tool" => OperationKind::Tool,
            "agent" | "workflow" => OperationKind::Agent,
            _ => OperationKind::Other,
        };
    }
    match facts.kind {
        OperationKind::Tool => read_tool(entity, facts),
        OperationKind::Agent if span_kind == "agent" => fill_if_empty(&mut facts.agent, entity),
        _ => {}
    }
    functions.sort_by_key(|(index, _, _)| *index);
    for function in functions.chunk_by(|a, b| a.0 == b.0) {
        facts.offered_tools.extend(function_definition(function));
    }
    facts.add_input(build_traceloop_messages(prompts, MessageRole::User));
    facts.add_output(build_traceloop_messages(completions, MessageRole::Assistant));
}

/// A tool definition in `llm.request.functions.N.{name,description,parameters}`.
fn function_definition<'s>(fields: &[MessageAttribute<'s>]) -> Option<OfferedTools<'s>> {
    let field =
        |name: &str| fields.iter().find(|(_, field, _)| *field == name).and_then(|(_, _, value)| value.as_str());
    Some(OfferedTools::Function {
        name: field("name")?,
        description: field("description"),
        parameters: field("parameters"),
    })
}

/// Index of the message, name of the field, value.
type MessageAttribute<'s> = (usize, &'s str, &'s AttributeValue<'s>);

/// `3.role` becomes 3 and `role`. `None` for keys without an index.
fn parse_indexed_attribute<'s>(rest: &'s str, value: &'s AttributeValue<'_>) -> Option<MessageAttribute<'s>> {
    let (index, field) = rest.split_once('.')?;
    Some((index.parse().ok()?, field, value))
}

/// Groups the fields by message. Exporters keep their order, but nothing guarantees it.
fn build_traceloop_messages<'s>(mut entries: Vec<MessageAttribute<'s>>, role: MessageRole) -> Vec<ChatMessage<'s>> {
    entries.sort_by_key(|(index, _, _)| *index);
    entries
        .chunk_by(|a, b| a.0 == b.0)
        .map(|fields| build_traceloop_message(fields, role))
        .filter(|message| !message.is_empty())
        .collect()
}

/// Builds one message from its flattened fields. A tool message becomes a result.
fn build_traceloop_message<'s>(fields: &[MessageAttribute<'s>], default_role: MessageRole) -> ChatMessage<'s> {
    let mut message = ChatMessage::new(default_role);
    let (mut content, mut call_id, mut reasoning) = (None, None, None);
    let mut calls: Vec<MessageAttribute<'s>> = Vec::new();
    let mut single_call = ToolCall::default();
    for &(_, field, value) in fields {
        match field {
            "role" => message.role = MessageRole::parse(value.as_str().unwrap_or_default()),
            "content" => content = Some(value),
            "reasoning" | "reasoning_content" => reasoning = read_text_attribute(value),
            // LiteLLM writes each call of a reply like this, under an index of its own.
            "function_call.name" => single_call.name = read_text_attribute(value).unwrap_or_default(),
            "function_call.arguments" => single_call.arguments = read_argument_attribute(value),
            "tool_call_id" => call_id = read_text_attribute(value),
            _ => calls.extend(field.strip_prefix("tool_calls.").and_then(|rest| parse_indexed_attribute(rest, value))),
        }
    }
    message.parts.extend(reasoning.map(MessagePart::Reasoning));
    if let Some(value) = content {
        message.parts.extend(content_parts(value));
    }
    // The text of a tool message is the result of the call that it names.
    if message.role == MessageRole::Tool {
        let content = Cow::Owned(message.joined_text().into_owned());
        message.parts = vec![MessagePart::ToolResult(ToolResult { id: call_id, content, ..ToolResult::default() })];
    }
    calls.sort_by_key(|(index, _, _)| *index);
    for fields in calls.chunk_by(|a, b| a.0 == b.0) {
        let mut call = ToolCall::default();
        for &(_, field, value) in fields {
            match field {
                "id" => call.id = read_text_attribute(value),
                "name" | "function.name" => call.name = read_text_attribute(value).unwrap_or_default(),
                "arguments" | "function.arguments" => call.arguments = read_argument_attribute(value),
                _ => {}
            }
        }
        if !call.name.is_empty() {
            message.parts.push(MessagePart::ToolCall(call));
        }
    }
    if !single_call.name.is_empty() && !message.has_tool_calls() {
        message.parts.push(MessagePart::ToolCall(single_call));
    }
    message
}

/// Content is a text, or a list of typed blocks as JSON text.
fn content_parts<'s>(value: &'s AttributeValue<'_>) -> Vec<MessagePart<'s>> {
    let looks_typed =
        value.as_str().is_some_and(|text| text.starts_with("[{\"type\"") || text.starts_with("{\"type\""));
    if looks_typed && let Some(blocks) = read_json_attribute(value) {
        let wrapped = serde_json::json!({"role": "assistant", "content": blocks});
        if let Some(message) = crate::message::message_from_json(wrapped)
            && !message.is_empty()
        {
            return message.parts;
        }
    }
    read_text_attribute(value).map(MessagePart::Text).into_iter().collect()
}

/// Name, arguments and result of a tool run. The entity is named `search.tool`.
fn read_tool<'s>(entity: Option<Cow<'s, str>>, facts: &mut NormalizedSpan<'s>) {
    fill_if_empty(
        &mut facts.tool.name,
        entity.map(|name| match name.strip_suffix(".tool") {
            Some(stem) => Cow::Owned(stem.to_owned()),
            None => name,
        }),
    );
    fill_if_empty(&mut facts.tool.arguments, facts.input_text.clone().and_then(unwrap_arguments));
    if facts.tool.result.is_none()
        && let Some(text) = facts.output_text.clone()
    {
        let result = unwrap_result(&text);
        facts.tool.is_error |= result.is_error;
        fill_if_empty(&mut facts.tool.call_id, result.call_id.map(Cow::Owned));
        facts.tool.result = Some(Cow::Owned(result.text.into_owned()));
    }
}
