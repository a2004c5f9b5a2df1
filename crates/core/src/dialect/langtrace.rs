//! Langtrace's spans of LangChain's chat models, with messages and reply as JSON text in `langchain.inputs` and
//! `langchain.outputs`, and of crews of CrewAI, with the messages of each task as Python prints them. Its spans of
//! providers' clients follow the GenAI conventions, without replies that call tools.

use serde::Deserialize;
use serde_json::Value as Json;
use serde_json::value::RawValue;
use std::borrow::Cow;

use crate::bounded_json::MAX_JSON_NODES;
use crate::literal;
use crate::message::{ChatMessage, message_from_json, messages_from_json};
use crate::quote_tracker::QuoteTracker;
use crate::span::{AttributeValue, Span};

use super::{NormalizedSpan, OfferedTools, OperationKind, fill_if_empty, read_json_attribute, read_text_attribute};

/// The attribute of a crew with what its tasks gave.
pub(super) const CREW_KEY: &str = "crewai.crew.tasks_output";

/// How the printed outputs of tasks begin.
const PRINTED_TASKS: &str = "[TaskOutput(";

/// The attribute that states what of LangChain a span records.
pub(super) const TASK_KEY: &str = "langchain.task.name";

/// The parts of `langchain.metadata` that are read.
#[derive(Deserialize)]
struct CallMetadata<'a> {
    #[serde(borrow)]
    tools: Option<&'a RawValue>,
}

/// Reads a crew, or the call of a chat model whose output is one message. Several methods of LangChain record the same call; only the
/// outermost one has the message by itself.
pub(super) fn read_langtrace_span<'s>(span: &'s Span<'_>, facts: &mut NormalizedSpan<'s>) {
    let value = |key: &str| span.attributes.get(key);
    if let Some(tasks) = value(CREW_KEY) {
        if facts.kind == OperationKind::Other {
            facts.kind = OperationKind::Agent;
        }
        facts.run_messages = Some(tasks).filter(|tasks| tasks.as_str().is_some_and(is_printed_tasks));
        fill_if_empty(&mut facts.answer, value("crewai.crew.result").and_then(read_text_attribute));
        return;
    }
    if facts.kind != OperationKind::Other || value(TASK_KEY).and_then(AttributeValue::as_str) != Some("chatmodel") {
        return;
    }
    let reply = value("langchain.outputs").and_then(read_json_attribute);
    let Some(reply) =
        reply.filter(|reply| reply.get("type").is_some_and(|kind| kind == "ai" || kind == "AIMessageChunk"))
    else {
        return;
    };
    facts.kind = OperationKind::Model;
    facts.add_output(message_from_json(reply).into_iter().collect());
    // The positional arguments: the messages, and the configuration of the run.
    if let Some(Json::Array(arguments)) = value("langchain.inputs").and_then(read_json_attribute) {
        let mut arguments = arguments.into_iter();
        facts.add_input(arguments.next().map(messages_from_json).unwrap_or_default());
        let thread = arguments.next().and_then(|config| {
            let thread = config.get("configurable")?.get("thread_id")?;
            thread.as_str().map(|thread| Cow::Owned(thread.to_owned()))
        });
        fill_if_empty(&mut facts.session, thread.filter(|thread: &Cow<'_, str>| !thread.is_empty()));
    }
    let metadata = value("langchain.metadata").and_then(AttributeValue::as_str);
    let metadata = metadata.and_then(|text| serde_json::from_str::<CallMetadata<'_>>(text).ok());
    facts
        .offered_tools
        .extend(metadata.and_then(|metadata| metadata.tools).map(|tools| OfferedTools::Json(tools.get())));
}

pub(super) fn is_printed_tasks(text: &str) -> bool {
    text.starts_with(PRINTED_TASKS)
}

/// The messages of all tasks of a crew: `[TaskOutput(description='…', …, messages=[{'role': 'user', …}, …]), …]`. Linear
/// time. None at all if one list is not made of literals.
pub(super) fn read_task_messages(text: &str) -> Vec<ChatMessage<'static>> {
    const FIELD: &str = ", messages=";
    // The list of tasks and the present task are open.
    const FIELD_DEPTH: usize = 2;
    let (mut at, mut depth, mut quotes) = (0, 0usize, QuoteTracker::default());
    let mut messages = Vec::new();
    while let Some(&byte) = text.as_bytes().get(at) {
        match byte {
            _ if !quotes.next_is_code(byte) => {}
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b',' if depth == FIELD_DEPTH && text[at..].starts_with(FIELD) => {
                let Some((list, rest)) = literal::parse_prefix(&text[at + FIELD.len()..]) else { return Vec::new() };
                messages.extend(messages_from_json(list));
                // Each list may be as long as the reader of literals allows, so their number is bounded here.
                if messages.len() > MAX_JSON_NODES {
                    break;
                }
                at = text.len() - rest.len();
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    messages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_tasks_are_found_outside_of_texts() {
        let task = |text: &str| {
            format!("TaskOutput(raw={text}, format=<Raw: 'raw'>, messages=[{{'role': 'user', 'content': 'é'}}], x=[1])")
        };
        let texts =
            |text: &str| read_task_messages(text).iter().map(|m| m.joined_text().into_owned()).collect::<Vec<_>>();
        let tasks = format!("[{}, {}]", task("'\\', messages=[1'"), task("\"it's, messages=[\""));
        assert!(is_printed_tasks(&tasks));
        assert_eq!(texts(&tasks), ["é", "é"]);
        for end in 0..tasks.len() {
            if let Some(cut) = tasks.get(..end) {
                assert!(texts(cut).len() <= 2);
            }
        }
        assert!(texts("[TaskOutput(a=1, messages=[Message(x=1)])]").is_empty());
        assert!(texts("]])), messages=['x']").is_empty());
    }
}
