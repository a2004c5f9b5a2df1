//! Google ADK's own attributes: whole requests and responses as JSON under `gcp.vertex.agent.*`.

use std::borrow::Cow;

use serde_json::Value as Json;

use crate::message::{Arguments, Message, Role, message_from_json, messages_from_json};
use crate::span::Span;

use super::wrapped::unwrap_result;
use super::{Facts, Kind, OfferedTools, fill, json, text};

pub(super) fn read<'s>(span: &'s Span<'_>, facts: &mut Facts<'s>) {
    let value = |key: &str| span.attributes.get(key);
    fill(&mut facts.session, value("gcp.vertex.agent.session_id").and_then(text));
    let response = value("gcp.vertex.agent.tool_response").and_then(text);
    let arguments = value("gcp.vertex.agent.tool_call_args").and_then(json);
    if arguments.is_some() || response.is_some() {
        if facts.kind == Kind::Other {
            facts.kind = Kind::Tool;
        }
        fill(&mut facts.tool.arguments, arguments.filter(Json::is_object).map(Arguments::Json));
        if let Some(Cow::Borrowed(text)) = response {
            let result = unwrap_result(text);
            facts.tool.is_error |= result.is_error;
            fill(&mut facts.tool.result, Some(result.text).filter(|text| text != "<not specified>"));
        }
        return;
    }
    let request = value("gcp.vertex.agent.llm_request").and_then(json).filter(is_filled);
    let reply = value("gcp.vertex.agent.llm_response").and_then(json).filter(is_filled);
    if request.is_none() && reply.is_none() {
        return;
    }
    if facts.kind == Kind::Other {
        facts.kind = Kind::Model;
    }
    if let Some(mut request) = request {
        if let Some(tools) = request.pointer_mut("/config/tools") {
            facts.offered_tools.push(OfferedTools::Owned(tools.take()));
        }
        fill(
            &mut facts.model,
            request.get("model").and_then(Json::as_str).map(|model| Cow::Owned(model.to_owned())),
        );
        facts.add_input(messages_from_json(request));
    }
    if let Some(mut reply) = reply {
        let usage = reply.get("usage_metadata").cloned().unwrap_or_default();
        fill(&mut facts.prompt_tokens, usage.get("prompt_token_count").and_then(Json::as_u64));
        fill(&mut facts.completion_tokens, usage.get("candidates_token_count").and_then(Json::as_u64));
        let message = reply.get_mut("content").map(Json::take).and_then(message_from_json);
        facts.add_output(
            message.into_iter().map(|message| Message { role: Role::Assistant, ..message }).collect(),
        );
    }
}

fn is_filled(json: &Json) -> bool {
    json.as_object().is_some_and(|object| !object.is_empty())
}
