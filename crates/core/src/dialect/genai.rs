//! The OpenTelemetry semantic conventions for GenAI, with their present and earlier names. Content is in attributes, in
//! span events, or in log records, which are events of their span by now.

use std::borrow::Cow;

use serde_json::Value as Json;

use crate::bounded_json::{self, MAX_JSON_NODES};
use crate::message::{ArgumentsText, ChatMessage, MessageRole, message_from_json, messages_from_json};
use crate::span::{AttributeValue, Span, SpanEvent};

use super::genai_messages;
use super::wrapped::{unwrap_arguments, unwrap_result};
use super::{
    NormalizedSpan, OperationKind, fill_if_empty, is_tool_reason, read_argument_attribute, read_json_attribute,
    read_offered_tools, read_text_attribute, text_or_json,
};

/// Reads a span by the GenAI conventions. Fields that an earlier dialect filled stay.
pub(super) fn read_genai_span<'s>(span: &'s Span<'_>, facts: &mut NormalizedSpan<'s>) {
    let mut operation = "";
    let mut list_request = false;
    let (mut system, mut input, mut output) = (None, None, None);
    for (key, value) in span.attributes.iter() {
        if let Some(rest) = key.strip_prefix("gen_ai.") {
            match rest {
                "operation.name" => operation = value.as_str().unwrap_or_default(),
                "agent.name" => fill_if_empty(&mut facts.agent, read_text_attribute(value)),
                "agent.version" => fill_if_empty(&mut facts.agent_version, read_text_attribute(value)),
                "conversation.id" => fill_if_empty(&mut facts.session, read_text_attribute(value)),
                "response.id" => fill_if_empty(&mut facts.response_id, read_text_attribute(value)),
                "response.finish_reasons" => facts.asks_for_tools |= is_tool_reason(value),
                "request.model" => fill_if_empty(&mut facts.model, read_text_attribute(value)),
                "usage.input_tokens" | "usage.prompt_tokens" => fill_if_empty(&mut facts.prompt_tokens, value.as_u64()),
                "usage.output_tokens" | "usage.completion_tokens" => {
                    fill_if_empty(&mut facts.completion_tokens, value.as_u64())
                }
                "usage.cache_read.input_tokens" | "usage.cache_read_input_tokens" => {
                    fill_if_empty(&mut facts.cached_prompt_tokens, value.as_u64())
                }
                "usage.cost" => fill_if_empty(&mut facts.cost_usd, value.as_f64()),
                "system_instructions" => system = read_json_attribute(value),
                "input.messages" | "prompt" => input = Some(value),
                "output.messages" | "completion" => output = Some(value),
                "tool.definitions" => facts.offered_tools.push(read_offered_tools(value)),
                "tool.name" => fill_if_empty(&mut facts.tool.name, read_text_attribute(value)),
                "tool.call.id" => fill_if_empty(&mut facts.tool.call_id, read_text_attribute(value)),
                "tool.description" => fill_if_empty(&mut facts.tool.description, read_text_attribute(value)),
                "tool.json_schema" | "tool.parameters" => fill_if_empty(&mut facts.tool.schema, text_or_json(value)),
                "tool.call.arguments" | "tool.input" => fill_if_empty(&mut facts.tool.arguments, tool_arguments(value)),
                "tool.call.result" | "tool.message" | "tool.output" => {
                    fill_if_empty(&mut facts.tool.result, extract_tool_result(value))
                }
                _ => {}
            }
        // An MCP client also records `tools/list` and others, which run no tool.
        } else if key == "mcp.method.name" {
            list_request = value.as_str() != Some("tools/call");
        }
    }
    if facts.kind == OperationKind::Other && !list_request {
        facts.kind = classify_genai_operation(operation, span);
    }
    // Messages on the span of a tool belong to the model call around it.
    if facts.kind == OperationKind::Tool {
        read_tool_events(span, facts);
        return;
    }
    let model_call = matches!(facts.kind, OperationKind::Model | OperationKind::Other);
    if let Some(value) = output {
        facts.add_output(parse_genai_messages(value, MessageRole::Assistant));
    }
    if let Some(value) = input {
        let mut messages = parse_genai_messages(value, MessageRole::User);
        // A list of parts, each of which reads like a message.
        let system: Vec<String> = system.map_or_else(Vec::new, |system| {
            messages_from_json(system).iter().map(|part| part.joined_text().into_owned()).collect()
        });
        if !system.is_empty() {
            messages.insert(0, ChatMessage::from_text(MessageRole::System, system.join("\n")));
        }
        facts.add_input(messages);
    }
    if model_call || facts.kind == OperationKind::Agent {
        read_message_events(span, facts);
    }
}

/// Classifies a span by `gen_ai.operation.name`.
fn classify_genai_operation(operation: &str, span: &Span<'_>) -> OperationKind {
    match operation {
        "chat" | "generate_content" | "text_completion" | "completion" => OperationKind::Model,
        "execute_tool" => OperationKind::Tool,
        "invoke_agent" | "invoke_workflow" | "agent_step" => OperationKind::Agent,
        "embeddings" | "create_agent" | "retrieval" => OperationKind::Other,
        // Instrumentations from before `gen_ai.operation.name` existed, and names that no convention has.
        unknown => {
            let has = |key: &str| span.attributes.get(key).is_some();
            if has("gen_ai.agent.tools") {
                OperationKind::Agent
            } else if has("gen_ai.tool.name") && !has("gen_ai.request.model") {
                OperationKind::Tool
            } else if unknown.is_empty()
                && has("gen_ai.request.model")
                && (has("gen_ai.system") || has("gen_ai.provider.name"))
            {
                OperationKind::Model
            } else {
                OperationKind::Other
            }
        }
    }
}

/// Messages in an attribute: the schema of the conventions, any other JSON, or plain text with the given role.
fn parse_genai_messages<'s>(value: &'s AttributeValue<'_>, role: MessageRole) -> Vec<ChatMessage<'s>> {
    let known = value.as_str().and_then(genai_messages::parse_message_list);
    let mut messages = match known.or_else(|| read_json_attribute(value).map(messages_from_json)) {
        Some(messages) => messages,
        None => value.as_str().map(|text| ChatMessage::from_text(role, text.to_owned())).into_iter().collect(),
    };
    // Some instrumentations give replies the role of the user or none.
    if role == MessageRole::Assistant {
        messages.iter_mut().for_each(|message| message.role = MessageRole::Assistant);
    }
    messages
}

/// Arguments of a tool. LangChain's callback wraps them in `input_str`.
fn tool_arguments<'s>(value: &'s AttributeValue<'_>) -> Option<ArgumentsText<'s>> {
    match value {
        AttributeValue::Str(text) if text.contains("\"input_str\"") => unwrap_arguments(Cow::Borrowed(text.as_ref())),
        other => read_argument_attribute(other),
    }
}

/// The result of a tool as text, without the envelopes that frameworks put around it.
fn extract_tool_result<'s>(value: &'s AttributeValue<'_>) -> Option<Cow<'s, str>> {
    match value {
        AttributeValue::Str(text) => Some(unwrap_result(text).text),
        AttributeValue::Null => None,
        other => Some(Cow::Owned(crate::message::result_text(other.to_json()))),
    }
}

/// Some SDKs record input and output of a tool as events of its span.
fn read_tool_events<'s>(span: &'s Span<'_>, facts: &mut NormalizedSpan<'s>) {
    for event in &span.events {
        match event.name.as_ref() {
            "gen_ai.tool.message" => {
                fill_if_empty(
                    &mut facts.tool.arguments,
                    event.attributes.get("content").and_then(read_argument_attribute),
                );
                fill_if_empty(&mut facts.tool.call_id, event.attributes.get("id").and_then(read_text_attribute));
            }
            "gen_ai.choice" => {
                let message = event.attributes.get("message").and_then(read_json_attribute);
                let text = message.map(crate::message::result_text);
                fill_if_empty(&mut facts.tool.result, text.map(Cow::Owned));
            }
            "gen_ai.client.inference.operation.details" => {
                let messages =
                    |key: &str| event.attributes.get(key).and_then(read_json_attribute).map(messages_from_json);
                for message in messages("gen_ai.input.messages").unwrap_or_default() {
                    for call in message.tool_calls() {
                        fill_if_empty(&mut facts.tool.arguments, call.arguments.clone());
                    }
                }
                for message in messages("gen_ai.output.messages").unwrap_or_default() {
                    for result in message.tool_results() {
                        fill_if_empty(&mut facts.tool.result, Some(Cow::Owned(result.content.clone().into_owned())));
                    }
                }
            }
            _ => {}
        }
    }
    if let Some(ArgumentsText::Text(text)) = &facts.tool.arguments
        && text.trim().is_empty()
    {
        facts.tool.arguments = None;
    }
}

/// Reads `gen_ai.user.message` and the like: one event per message, the reply as `gen_ai.choice`.
fn read_message_events<'s>(span: &'s Span<'_>, facts: &mut NormalizedSpan<'s>) {
    let mut input = Vec::new();
    let mut output = Vec::new();
    for event in &span.events {
        let Some(name) = event.name.strip_prefix("gen_ai.") else { continue };
        // Each event may contain a whole list, so the number of messages is bounded here as well.
        if input.len() + output.len() > MAX_JSON_NODES {
            break;
        }
        match name {
            "client.inference.operation.details" => {
                for (key, list) in [("gen_ai.input.messages", &mut input), ("gen_ai.output.messages", &mut output)] {
                    list.extend(
                        event
                            .attributes
                            .get(key)
                            .and_then(read_json_attribute)
                            .map(messages_from_json)
                            .unwrap_or_default(),
                    );
                }
                if let Some(value) = event.attributes.get("gen_ai.tool.definitions") {
                    facts.offered_tools.push(read_offered_tools(value));
                }
            }
            "content.prompt" => input.extend(parse_event_messages(event, "gen_ai.prompt", MessageRole::User)),
            "content.completion" => {
                output.extend(parse_event_messages(event, "gen_ai.completion", MessageRole::Assistant))
            }
            "choice" => output.extend(parse_event_message(event, MessageRole::Assistant)),
            "assistant.message" => input.extend(parse_event_message(event, MessageRole::Assistant)),
            "user.message" => input.extend(parse_event_message(event, MessageRole::User)),
            "system.message" => input.extend(parse_event_message(event, MessageRole::System)),
            "tool.message" => input.extend(parse_event_message(event, MessageRole::Tool)),
            _ => {}
        }
    }
    output.iter_mut().for_each(|message: &mut ChatMessage<'_>| message.role = MessageRole::Assistant);
    facts.add_output(output);
    facts.add_input(input);
}

/// Messages of the events that OpenLLMetry's early versions wrote: one event per list, as JSON text.
fn parse_event_messages<'s>(event: &'s SpanEvent<'_>, key: &str, role: MessageRole) -> Vec<ChatMessage<'s>> {
    event.attributes.get(key).map(|value| parse_genai_messages(value, role)).unwrap_or_default()
}

/// A message in an event: from its body (log record) or its attributes (span event).
fn parse_event_message(event: &SpanEvent<'_>, role: MessageRole) -> Option<ChatMessage<'static>> {
    let mut object = match &event.body {
        Some(body) => match body.to_json() {
            Json::Object(object) => object,
            // Some SDKs write the body as JSON text.
            Json::String(text) => match bounded_json::parse_bounded_json(&text) {
                Some(Json::Object(object)) => object,
                _ => return Some(ChatMessage::from_text(role, text)),
            },
            _ => return None,
        },
        // Azure's SDKs write each message into one attribute.
        None if let Some(Json::Object(object)) =
            event.attributes.get("gen_ai.event.content").and_then(read_json_attribute) =>
        {
            object
        }
        None => event.attributes.iter().map(|(key, value)| (key.to_owned(), attribute_to_json(value))).collect(),
    };
    if let Some(Json::String(text)) = object.get("message")
        && !text.trim_start().starts_with(['{', '['])
    {
        let text = text.clone();
        object.insert("content".to_owned(), Json::String(text));
        object.remove("message");
    }
    // A message that is a list is the content of the message.
    if let Some(Json::Array(_)) = object.get("message") {
        let content = object.remove("message").unwrap_or_default();
        object.insert("content".to_owned(), content);
    }
    if role == MessageRole::Tool
        && !object.contains_key("tool_call_id")
        && let Some(id) = object.remove("id")
    {
        object.insert("tool_call_id".to_owned(), id);
    }
    object.insert("role".to_owned(), Json::String(role_name(role).to_owned()));
    if let Some(Json::Object(inner)) = object.get_mut("message") {
        inner.insert("role".to_owned(), Json::String(role_name(role).to_owned()));
    }
    message_from_json(Json::Object(object))
}

/// Attributes of events are flat, so lists and objects are written as JSON text.
fn attribute_to_json(value: &AttributeValue<'_>) -> Json {
    match value {
        AttributeValue::Str(text) if text.trim_start().starts_with(['{', '[']) => {
            bounded_json::parse_bounded_json(text).unwrap_or_else(|| Json::String(text.to_string()))
        }
        other => other.to_json(),
    }
}

fn role_name(role: MessageRole) -> &'static str {
    match role {
        MessageRole::System => "system",
        MessageRole::User => "user",
        MessageRole::Assistant => "assistant",
        MessageRole::Tool => "tool",
    }
}
