//! Attributes of Google's Agent Development Kit: whole requests and responses as JSON under `gcp.vertex.agent.*`.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value as Json;
use serde_json::value::RawValue;

use crate::bounded_json;
use crate::message::{ArgumentsText, ChatMessage, MessageRole, message_from_json, messages_from_json};
use crate::span::{AttributeValue, Span};

use super::wrapped::unwrap_result;
use super::{NormalizedSpan, OfferedTools, OperationKind, fill_if_empty, read_json_attribute, read_text_attribute};

/// Reads a span of the ADK. A span has either a tool's arguments and response or a model's request and response.
pub(super) fn read_adk_span<'s>(span: &'s Span<'_>, facts: &mut NormalizedSpan<'s>) {
    let value = |key: &str| span.attributes.get(key);
    fill_if_empty(&mut facts.session, value("gcp.vertex.agent.session_id").and_then(read_text_attribute));
    let response = value("gcp.vertex.agent.tool_response").and_then(read_text_attribute);
    let arguments = value("gcp.vertex.agent.tool_call_args").and_then(read_json_attribute);
    // The span of a tool has no request and no reply, so it is complete here.
    if arguments.is_some() || response.is_some() {
        if facts.kind == OperationKind::Other {
            facts.kind = OperationKind::Tool;
        }
        fill_if_empty(&mut facts.tool.arguments, arguments.filter(Json::is_object).map(ArgumentsText::from));
        if let Some(Cow::Borrowed(text)) = response {
            let result = unwrap_result(text);
            facts.tool.is_error |= result.is_error;
            // The ADK writes this text where it did not record a response.
            fill_if_empty(&mut facts.tool.result, Some(result.text).filter(|text| text != "<not specified>"));
        }
        return;
    }
    let request = value("gcp.vertex.agent.llm_request").and_then(AttributeValue::as_str).and_then(AdkRequest::read);
    let reply = value("gcp.vertex.agent.llm_response").and_then(read_json_attribute).filter(is_filled);
    if request.is_none() && reply.is_none() {
        return;
    }
    if facts.kind == OperationKind::Other {
        facts.kind = OperationKind::Model;
    }
    if let Some(request) = request {
        fill_if_empty(&mut facts.model, request.model);
        facts.offered_tools.extend(request.config.tools.map(|tools| OfferedTools::Json(tools.get())));
        let parse = |raw: &RawValue| bounded_json::parse_bounded_json(raw.get());
        let system = request.config.system_instruction.and_then(parse);
        let contents = request.contents.and_then(parse).unwrap_or_default();
        facts.add_input(messages_from_json(serde_json::json!({"system": system, "contents": contents})));
    }
    if let Some(mut reply) = reply {
        let usage = reply.get("usage_metadata").cloned().unwrap_or_default();
        let count = |name: &str| usage.get(name).and_then(Json::as_u64);
        fill_if_empty(&mut facts.prompt_tokens, count("prompt_token_count"));
        fill_if_empty(&mut facts.cached_prompt_tokens, count("cached_content_token_count"));
        // Gemini counts thoughts separately from the reply, and bills them as output.
        let thoughts = count("thoughts_token_count").unwrap_or(0);
        let completion = count("candidates_token_count").map(|reply| reply.saturating_add(thoughts));
        fill_if_empty(&mut facts.completion_tokens, completion);
        let message = reply.get_mut("content").map(Json::take).and_then(message_from_json);
        facts.add_output(
            message.into_iter().map(|message| ChatMessage { role: MessageRole::Assistant, ..message }).collect(),
        );
    }
}

/// A recorded request. Most of it is tool definitions, which are the same on every call, so only the needed parts are
/// parsed.
#[derive(Deserialize)]
struct AdkRequest<'a> {
    #[serde(borrow)]
    model: Option<Cow<'a, str>>,
    #[serde(borrow)]
    contents: Option<&'a RawValue>,
    #[serde(borrow, default)]
    config: AdkRequestConfig<'a>,
}

/// The parts of a request's configuration that are read. The rest, such as safety settings, is skipped unparsed.
#[derive(Default, Deserialize)]
struct AdkRequestConfig<'a> {
    #[serde(borrow)]
    tools: Option<&'a RawValue>,
    #[serde(borrow)]
    system_instruction: Option<&'a RawValue>,
}

impl<'a> AdkRequest<'a> {
    /// `None` for `{}`, which spans have that are not requests.
    fn read(text: &'a str) -> Option<AdkRequest<'a>> {
        serde_json::from_str(text).ok().filter(|request: &AdkRequest<'_>| request.contents.is_some())
    }
}

/// Whether it is an object with content: the ADK writes `{}` on spans without a response.
fn is_filled(json: &Json) -> bool {
    json.as_object().is_some_and(|object| !object.is_empty())
}
