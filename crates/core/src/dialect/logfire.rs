//! pydantic-ai and Logfire: messages as JSON lists in `events` and `all_messages_events`, and `tool_arguments`,
//! `tool_response`, `final_result`.

use std::borrow::Cow;

use crate::message::{ChatMessage, MessageRole, messages_from_json};
use crate::span::Span;

use super::wrapped::unwrap_result;
use super::{
    NormalizedSpan, OfferedTools, OperationKind, fill_if_empty, read_argument_attribute, read_json_attribute,
    read_text_attribute, text_or_json,
};

/// Reads a span of pydantic-ai, in any of its instrumentation versions.
pub(super) fn read_logfire_span<'s>(span: &'s Span<'_>, facts: &mut NormalizedSpan<'s>) {
    let value = |key: &str| span.attributes.get(key);
    if value("tool_arguments").is_some() || value("tool_response").is_some() {
        facts.kind = OperationKind::Tool;
        fill_if_empty(&mut facts.tool.arguments, value("tool_arguments").and_then(read_argument_attribute));
        if let Some(response) = value("tool_response").and_then(|value| value.as_str()) {
            fill_if_empty(&mut facts.tool.result, Some(unwrap_result(response).text));
        }
    }
    fill_if_empty(&mut facts.agent, value("agent_name").and_then(read_text_attribute));
    // The span of the run repeats the messages of all calls, so they are read only if no call has them.
    let whole_run = value("all_messages_events").or_else(|| value("pydantic_ai.all_messages"));
    if whole_run.is_some() || value("final_result").is_some() {
        if facts.kind == OperationKind::Other {
            facts.kind = OperationKind::Agent;
        }
        fill_if_empty(&mut facts.answer, value("final_result").and_then(text_or_json));
        facts.run_messages = whole_run;
        // The usage of the run is the sum of its model calls, which are counted themselves.
        (facts.prompt_tokens, facts.completion_tokens, facts.cached_prompt_tokens) = (None, None, None);
        return;
    }
    if let Some(events) = value("events").and_then(read_json_attribute) {
        let (mut input, mut output) = (Vec::new(), Vec::new());
        for event in events.as_array().into_iter().flatten() {
            let is_reply = event.get("event.name").is_some_and(|name| name == "gen_ai.choice");
            for mut message in messages_from_json(event.clone()) {
                if is_reply {
                    message.role = MessageRole::Assistant;
                    output.push(message);
                } else {
                    input.push(message);
                }
            }
        }
        // Without an event of its own, the reply is what the assistant said last.
        if output.is_empty() {
            let is_other = |message: &ChatMessage<'_>| message.role != MessageRole::Assistant;
            output = input.split_off(input.iter().rposition(is_other).map_or(0, |last| last + 1));
        }
        facts.add_input(input);
        facts.add_output(output);
    }
    read_integration(span, facts);
    // Some versions mark the span of a tool by its name only.
    if facts.kind == OperationKind::Other && span.name == "running tool" {
        facts.kind = OperationKind::Tool;
        fill_if_empty(
            &mut facts.tool.name,
            value("gen_ai.tool.name").and_then(read_text_attribute).map(|name| Cow::Owned(name.into_owned())),
        );
    }
}

/// Integrations of Logfire with other SDKs: messages, or arguments and result, in `input` and `output`.
fn read_integration<'s>(span: &'s Span<'_>, facts: &mut NormalizedSpan<'s>) {
    let value = |key: &str| span.attributes.get(key);
    let messages = |key: &str| value(key).and_then(read_json_attribute).map(messages_from_json).unwrap_or_default();
    if let Some(tools) = value("response").and_then(|response| response.as_str()).and_then(find_tools) {
        facts.offered_tools.push(OfferedTools::Json(tools));
    }
    if value("gen_ai.system").is_none() || facts.kind != OperationKind::Other {
        return;
    }
    if value("gen_ai.request.model").is_some() {
        // The request as it was sent may hold messages that came later: the SDK goes on with the same list.
        facts.add_input(messages("input"));
        let mut output = messages("output");
        output.iter_mut().for_each(|message| message.role = MessageRole::Assistant);
        facts.add_output(output);
    } else if let (Some(name), Some(arguments)) = (value("name"), value("input")) {
        facts.kind = OperationKind::Tool;
        fill_if_empty(&mut facts.tool.name, read_text_attribute(name));
        fill_if_empty(&mut facts.tool.arguments, read_argument_attribute(arguments));
        if let Some(result) = value("output").and_then(|value| value.as_str()) {
            fill_if_empty(&mut facts.tool.result, Some(unwrap_result(result).text));
        }
    }
}

/// The list of tools inside of a recorded response, as text: the whole is not parsed for it.
fn find_tools(response: &str) -> Option<&str> {
    const KEY: &str = "\"tools\":";
    let list = &response[response.find(KEY)? + KEY.len()..];
    let mut values = serde_json::Deserializer::from_str(list).into_iter::<&serde_json::value::RawValue>();
    let text = values.next()?.ok()?.get();
    text.starts_with("[{").then_some(text)
}
