//! The OpenAI Responses API: lists of items, response objects, and pairs of request and response. Calls that the
//! service runs itself (web search, code, MCP) are items with their results in them.

use gradus_core::assemble::tool_definitions;
use gradus_core::message::{ArgumentsText, result_text};
use gradus_core::trajectory::TokenUsage;
use serde_json::{Map, Value as Json};

use super::model_content::{HOSTED_ITEMS, HostedCall};
use super::span_record::{read_provider_usage, read_time_ns, take_field, text_under};
use crate::format_kinds::SessionReader;
use crate::import_sink::{ImportError, ImportSink};
use crate::session_builder::SessionBuilder;
use crate::turn_draft::{ImportedCall, ImportedResult, ResultStatus};

/// Items that are calls and have an id by which their result refers to them.
const CALL_ITEMS: [&str; 4] = ["function_call", "custom_tool_call", "local_shell_call", "computer_call"];

/// Whether these records are items of a conversation: all of them, and calls with their ids among them.
pub(crate) fn matches_items(records: &[Json]) -> bool {
    let kind = |record: &Json| record.get("type").and_then(Json::as_str).unwrap_or_default().to_owned();
    let is_call = |record: &Json| {
        let kind = kind(record);
        let is_function = kind == "function_call" && record.get("name").is_some() && record.get("call_id").is_some();
        is_function || HOSTED_ITEMS.contains(&kind.as_str())
    };
    let is_item = |record: &Json| {
        let kind = kind(record);
        let is_message = record.get("role").is_some_and(Json::is_string) && record.get("content").is_some();
        is_message
            || is_call(record)
            || kind.ends_with("_call_output")
            || kind.ends_with("_call")
            || kind == "reasoning"
    };
    records.iter().any(is_call) && records.iter().all(is_item)
}

/// Opens a reader of items.
pub(crate) fn open_reader() -> Box<dyn SessionReader> {
    Box::<ItemReader>::default()
}

/// Whether an object is a response, or has one under `response`.
pub(crate) fn matches_response(object: &Map<String, Json>) -> bool {
    let is_response = |object: &Map<String, Json>| {
        object.get("object").is_some_and(|kind| kind == "response") && object.get("output").is_some_and(Json::is_array)
    };
    is_response(object) || object.get("response").and_then(Json::as_object).is_some_and(is_response)
}

/// Reads a response with the request next to it or in it.
pub(crate) fn read_response(mut object: Map<String, Json>, sink: &mut dyn ImportSink) -> Result<(), ImportError> {
    let request = match take_field(&mut object, &["request", "body"]) {
        Json::Object(request) => request,
        _ => Map::new(),
    };
    let mut response = match object.remove("response") {
        Some(Json::Object(response)) => response,
        _ => std::mem::take(&mut object),
    };
    let field = |name: &str| {
        let places = [&request, &response, &object];
        places
            .into_iter()
            .find_map(|place| place.get(name).filter(|value| !value.is_null()).cloned())
            .unwrap_or_default()
    };
    let conversation = response.get("conversation").and_then(|conversation| conversation.get("id")?.as_str());
    let id = conversation.or_else(|| text_under(&response, &["id"]));
    let id = id.ok_or_else(|| ImportError::new("the response has no id"))?.to_owned();
    let mut items = ItemReader { builder: SessionBuilder::new(id), ..ItemReader::default() };
    if let Some(instructions) = field("instructions").as_str() {
        items.builder.set_system_prompt(instructions);
    }
    if let tools @ Json::Array(_) = field("tools") {
        items.builder.set_tools(tool_definitions(&tools.to_string()));
    }
    if let Some(model) = text_under(&response, &["model"]) {
        items.builder.set_model(model);
    }
    match field("input") {
        Json::String(query) => items.builder.begin_turn(&query, None, sink),
        Json::Array(input) => input.iter().for_each(|item| items.read_item(item, sink)),
        _ => {}
    }
    let created = response.get("created_at").map_or(0, read_time_ns);
    let created = jiff::Timestamp::from_nanosecond(i128::from(created)).ok().filter(|_| created > 0);
    items.at = created.map(|at| at.to_string());
    items.builder.begin_reply(items.at.as_deref());
    let output = take_field(&mut response, &["output"]);
    output.as_array().into_iter().flatten().for_each(|item| items.read_item(item, sink));
    if let Some(usage) = response.get("usage").filter(|usage| usage.is_object()) {
        let usage = read_provider_usage(usage);
        let tokens = TokenUsage {
            prompt: usage.prompt.unwrap_or_default(),
            completion: usage.completion.unwrap_or_default(),
            cached_prompt: usage.cached_prompt.unwrap_or_default(),
        };
        items.builder.set_usage(tokens, text_under(&response, &["model"]), None);
    }
    if let Some(error) = response.get("error").and_then(|error| error.get("message")?.as_str()) {
        items.builder.fail_turn(error);
    }
    items.builder.finish(sink);
    Ok(())
}

/// Reads items in their order.
#[derive(Debug, Default)]
struct ItemReader {
    builder: SessionBuilder,
    at: Option<String>,
    /// What the model writes next belongs to a new reply.
    is_reply_over: bool,
    /// The first record, of which the id of a conversation without one is made.
    digest: Option<u128>,
}

impl SessionReader for ItemReader {
    fn read_record(&mut self, record: &[u8], sink: &mut dyn ImportSink) {
        if self.digest.is_none() {
            let digest = gradus_core::stable_digest(record);
            self.digest = Some(digest);
            self.builder.set_session_id(&format!("{digest:032x}"));
        }
        match serde_json::from_slice::<Json>(record) {
            Ok(item) => self.read_item(&item, sink),
            Err(error) => sink.report_bad_record(&error.to_string()),
        }
    }

    fn finish(self: Box<Self>, sink: &mut dyn ImportSink) {
        self.builder.finish(sink);
    }
}

impl ItemReader {
    fn read_item(&mut self, item: &Json, sink: &mut dyn ImportSink) {
        let text = |key: &str| item.get(key).and_then(Json::as_str).filter(|text| !text.is_empty());
        let kind = text("type").unwrap_or("message");
        let is_of_user = text("role").is_some_and(|role| role != "assistant") || kind.ends_with("_output");
        if !is_of_user && std::mem::take(&mut self.is_reply_over) {
            self.builder.begin_reply(self.at.as_deref());
        }
        match kind {
            "message" => self.read_message(item, sink),
            "reasoning" => {
                let parts = ["summary", "content"].iter().find_map(|key| {
                    item.get(*key).filter(|parts| parts.as_array().is_some_and(|parts| !parts.is_empty()))
                });
                if let Some(parts) = parts {
                    self.builder.add_reasoning(&result_text(parts.clone()));
                }
            }
            kind if CALL_ITEMS.contains(&kind) => {
                let name = text("name").unwrap_or_else(|| kind.trim_end_matches("_call"));
                let arguments = ["arguments", "input", "action"].iter().find_map(|key| item.get(*key)).cloned();
                self.add_call(text("call_id").or_else(|| text("id")), name, arguments);
            }
            kind if kind.ends_with("_call_output") => {
                let output = item.get("output").cloned().unwrap_or_default();
                let is_failed = text("status").is_some_and(|status| status == "failed" || status == "incomplete");
                self.add_result(text("call_id"), output, is_failed, sink);
            }
            kind if HOSTED_ITEMS.contains(&kind) => {
                if let Some(call) = HostedCall::from_item(item) {
                    self.read_hosted_call(call, sink);
                }
            }
            // Lists of tools, requests for approval, compactions: no step.
            "mcp_list_tools" | "mcp_approval_request" | "mcp_approval_response" | "compaction" | "item_reference" => {}
            other => sink.report_bad_record(&format!("an item of the unknown type `{other}`")),
        }
    }

    fn read_message(&mut self, item: &Json, sink: &mut dyn ImportSink) {
        let content = result_text(item.get("content").cloned().unwrap_or_default());
        match item.get("role").and_then(Json::as_str).unwrap_or_default() {
            "assistant" => self.builder.add_text(&content),
            "system" | "developer" => self.builder.set_system_prompt(&content),
            "user" => {
                self.is_reply_over = false;
                self.builder.begin_turn(&content, self.at.as_deref(), sink);
            }
            role => sink.report_bad_record(&format!("a message of the unknown role `{role}`")),
        }
    }

    /// Reads a call of the service's own tool. The service ran it within the response, and the model continued with
    /// its result.
    fn read_hosted_call(&mut self, call: HostedCall, sink: &mut dyn ImportSink) {
        self.add_call(call.id.as_deref(), &call.name, call.arguments);
        if let Some(result) = call.result {
            self.add_result(call.id.as_deref(), result, call.is_error, sink);
        }
        self.is_reply_over = true;
    }

    fn add_call(&mut self, id: Option<&str>, name: &str, arguments: Option<Json>) {
        let arguments = arguments.filter(|arguments| !arguments.is_null()).map(|arguments| match arguments {
            Json::String(text) => ArgumentsText::Text(text.into()),
            other => ArgumentsText::from(other),
        });
        self.builder.add_call(&ImportedCall { id, name, arguments }, self.at.as_deref());
    }

    fn add_result(&mut self, id: Option<&str>, output: Json, is_failed: bool, sink: &mut dyn ImportSink) {
        self.is_reply_over = true;
        let content = result_text(output);
        let status = if is_failed { ResultStatus::Error } else { ResultStatus::Success };
        if !self.builder.add_result(&ImportedResult { id, content: &content, status, at: self.at.as_deref() }) {
            sink.report_bad_record(&format!("a result of the unknown call `{}`", id.unwrap_or_default()));
        }
    }
}
