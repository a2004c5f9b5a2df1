//! Langtrace's spans of LangChain's chat models: messages and reply as JSON text in `langchain.inputs` and
//! `langchain.outputs`. Its spans of providers' clients follow the GenAI conventions, without replies that call tools.

use serde::Deserialize;
use serde_json::Value as Json;
use serde_json::value::RawValue;
use std::borrow::Cow;

use crate::message::{message_from_json, messages_from_json};
use crate::span::{AttributeValue, Span};

use super::{NormalizedSpan, OfferedTools, OperationKind, fill_if_empty, read_json_attribute};

/// The attribute that states what of LangChain a span records.
pub(super) const TASK_KEY: &str = "langchain.task.name";

/// The parts of `langchain.metadata` that are read.
#[derive(Deserialize)]
struct CallMetadata<'a> {
    #[serde(borrow)]
    tools: Option<&'a RawValue>,
}

/// Reads the call of a chat model whose output is one message. Several methods of LangChain record the same call; only the
/// outermost one has the message by itself.
pub(super) fn read_langtrace_span<'s>(span: &'s Span<'_>, facts: &mut NormalizedSpan<'s>) {
    let value = |key: &str| span.attributes.get(key);
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
