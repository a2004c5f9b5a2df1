//! LlamaIndex's own OpenTelemetry integration (`llama-index-observability-otel`): one span per method, what the method was
//! called for in `llamaindex.step.*`, and the messages of model calls in span events.
//!
//! Summaries of events are Python's `repr` of them, cut off after 200 characters. A value that is cut off is not read.

use std::borrow::Cow;

use serde_json::{Map, Value as Json};

use crate::literal;
use crate::message::{ArgumentsText, ChatMessage, MessageRole, message_from_json, messages_from_json};
use crate::span::{AttributeValue, Span, SpanEvent};

use super::{
    NormalizedSpan, OperationKind, fill_if_empty, read_json_attribute, read_offered_tools, read_text_attribute,
};

/// The name of the tracer of the integration.
pub(super) const SCOPE: &str = "llamaindex.opentelemetry";

/// Reads a span of the integration: a model call, a tool run or a whole workflow, by the events and the name of it.
pub(super) fn read_llamaindex_span<'s>(span: &'s Span<'_>, facts: &mut NormalizedSpan<'s>) {
    let first = |names: [&str; 2]| span.events.iter().find(|event| names.contains(&event.name.as_ref()));
    // Each piece of a stream is an event, too. Only the first and the last event have whole messages.
    let request = first(["LLMChatStartEvent", "LLMCompletionStartEvent"]);
    let reply = first(["LLMChatEndEvent", "LLMCompletionEndEvent"]);
    if request.is_some() || reply.is_some() {
        read_model_call(request, reply, facts);
        return;
    }
    if facts.kind != OperationKind::Other {
        return;
    }
    if span.events.iter().any(|event| event.name == "workflow.output") {
        facts.kind = OperationKind::Agent;
        return;
    }
    // A step of the workflow runs the tool; the method of the tool itself is a span within, which knows its error.
    let is_tool_run = [".call_tool", ".acall", ".call"].iter().any(|method| span.name.ends_with(method));
    let summary = span.attributes.get("llamaindex.step.input_summary").and_then(AttributeValue::as_str);
    if is_tool_run && let Some(call) = summary.and_then(PrintedCall::parse) {
        read_tool_run(span, call, facts);
    }
}

/// Request and reply of a model call, from the events at its start and at its end.
fn read_model_call<'s>(
    request: Option<&'s SpanEvent<'_>>,
    reply: Option<&'s SpanEvent<'_>>,
    facts: &mut NormalizedSpan<'s>,
) {
    if facts.kind == OperationKind::Other {
        facts.kind = OperationKind::Model;
    }
    let asked = |key: &str| [request, reply].into_iter().flatten().find_map(|event| event.attributes.get(key));
    let replied = |key: &str| reply.and_then(|event| event.attributes.get(key));
    let model = asked("model_dict.model_name").or_else(|| asked("model_dict.model"));
    fill_if_empty(&mut facts.model, model.and_then(read_text_attribute));
    facts.offered_tools.extend(asked("additional_kwargs.tools").map(read_offered_tools));
    let count = |name: &str| {
        let keys = [format!("response.raw.usage.{name}"), format!("response.additional_kwargs.{name}")];
        keys.iter().find_map(|key| replied(key)?.as_u64())
    };
    fill_if_empty(&mut facts.prompt_tokens, count("prompt_tokens"));
    fill_if_empty(&mut facts.completion_tokens, count("completion_tokens"));
    let messages = asked("messages").and_then(read_json_attribute).map(messages_from_json);
    let prompt = || asked("prompt").and_then(read_text_attribute);
    facts.add_input(match messages {
        Some(messages) => messages,
        None => prompt().map(|text| ChatMessage::from_text(MessageRole::User, text)).into_iter().collect(),
    });
    // The fields of the reply are attributes of their own, and structures in them are JSON text.
    let json = |key: &str| replied(key).and_then(read_json_attribute).filter(|json| !json.is_null());
    let mut message = Map::new();
    message.insert("role".to_owned(), Json::from("assistant"));
    message.extend(json("response.message.blocks").map(|blocks| ("blocks".to_owned(), blocks)));
    if let Some(calls) = json("response.message.additional_kwargs.tool_calls") {
        message.insert("tool_calls".to_owned(), calls);
    }
    let chat = message_from_json(Json::Object(message)).filter(|message| !message.is_empty());
    let text = || replied("response.text").and_then(read_text_attribute);
    facts.add_output(match chat {
        Some(message) => vec![message],
        None => text().map(|text| ChatMessage::from_text(MessageRole::Assistant, text)).into_iter().collect(),
    });
}

/// Name, arguments and result of a tool run.
fn read_tool_run<'s>(span: &'s Span<'_>, call: PrintedCall, facts: &mut NormalizedSpan<'s>) {
    facts.kind = OperationKind::Tool;
    fill_if_empty(&mut facts.tool.name, Some(Cow::Owned(call.name)));
    fill_if_empty(&mut facts.tool.arguments, call.arguments.map(ArgumentsText::from));
    fill_if_empty(&mut facts.tool.call_id, call.id.map(Cow::Owned));
    let output = span.events.iter().rfind(|event| event.name == "step.output");
    let output = output.and_then(|event| event.attributes.get("output")?.as_str());
    fill_if_empty(&mut facts.tool.result, output.and_then(parse_printed_result).map(Cow::Owned));
}

/// `ToolCall(tool_name='search', tool_kwargs={'query': 'x'}, tool_id='call_1')`, possibly cut off.
struct PrintedCall {
    name: String,
    arguments: Option<Json>,
    id: Option<String>,
}

impl PrintedCall {
    fn parse(text: &str) -> Option<PrintedCall> {
        let (name, rest) = parse_field(text, "ToolCall(tool_name=")?;
        let Json::String(name) = name else { return None };
        let (arguments, rest) = parse_field(rest, ", tool_kwargs=").unzip();
        let id = rest.and_then(|rest| parse_field(rest, ", tool_id="));
        let id = id.and_then(|(id, _)| id.as_str().map(str::to_owned));
        Some(PrintedCall { name, arguments: arguments.filter(Json::is_object), id })
    }
}

/// The text of a result that is one block, if it is not cut off:
/// `ToolCallResult(tool_name=…, tool_kwargs=…, tool_id=…, tool_output=ToolOutput(blocks=[TextBlock(…text='berth 7')], …`.
fn parse_printed_result(text: &str) -> Option<String> {
    let (_, rest) = parse_field(text, "ToolCallResult(tool_name=")?;
    let (_, rest) = parse_field(rest, ", tool_kwargs=")?;
    let (_, rest) = parse_field(rest, ", tool_id=")?;
    let (text, rest) = parse_field(rest, ", tool_output=ToolOutput(blocks=[TextBlock(block_type='text', text=")?;
    rest.starts_with(")]").then(|| text.as_str().map(str::to_owned)).flatten()
}

/// The literal behind a prefix, and what follows it.
fn parse_field<'t>(text: &'t str, prefix: &str) -> Option<(Json, &'t str)> {
    literal::parse_prefix(text.strip_prefix(prefix)?)
}
