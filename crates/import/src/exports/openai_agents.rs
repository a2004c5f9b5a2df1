//! Traces of the OpenAI Agents SDK, as its exporter sends them and trace processors write them: `{"object": "trace"}`
//! and `{"object": "trace.span", "span_data": {"type", ...}}`, as lines, as a list, or inside `data`, `items` or
//! `spans`.

use std::collections::HashMap;

use serde_json::{Map, Value as Json};

use super::span_record::{
    SpanRecord, SpanRecordKind, decode_json_text, read_provider_usage, span_id_from_text, take_field, text_under,
    trace_id_from_text,
};
use crate::format_kinds::SessionReader;
use crate::import_sink::{ImportError, ImportSink};

/// Keys of the items of a trace in files.
const LIST_KEYS: [&str; 3] = ["data", "items", "spans"];

/// Whether the first records of a file are items of traces. Lines of other kinds may occur between them.
pub(crate) fn matches_items(records: &[Json]) -> bool {
    records.iter().filter_map(Json::as_object).any(is_span_item)
}

fn is_span_item(object: &Map<String, Json>) -> bool {
    object.get("object").is_some_and(|kind| kind == "trace.span")
        && text_under(object, &["trace_id"]).is_some()
        && object.get("span_data").is_some_and(|data| data.get("type").is_some())
}

fn is_trace_item(object: &Map<String, Json>) -> bool {
    object.get("object").is_some_and(|kind| kind == "trace") && object.contains_key("workflow_name")
}

/// Whether an object is one item of a trace.
pub(crate) fn matches_item(object: &Map<String, Json>) -> bool {
    is_span_item(object) || is_trace_item(object)
}

/// Whether an object contains the items of a trace.
pub(crate) fn matches_item_list(object: &Map<String, Json>) -> bool {
    let is_item = |item: &Json| item.as_object().is_some_and(matches_item);
    let lists = LIST_KEYS.iter().filter_map(|key| object.get(*key)?.as_array());
    // A trace may have other items in front.
    lists.into_iter().any(|list| list.iter().take(20).any(is_item))
}

/// Reads one item. The trace itself has no content.
pub(crate) fn read_item(object: Map<String, Json>, sink: &mut dyn ImportSink) -> Result<(), ImportError> {
    TraceItemReader::default().read_item(object, sink);
    Ok(())
}

/// Reads an object that contains the items of a trace. The trace is next to them, around them or among them.
pub(crate) fn read_item_list(mut object: Map<String, Json>, sink: &mut dyn ImportSink) -> Result<(), ImportError> {
    let mut items = TraceItemReader::default();
    if let Some(Json::Object(trace)) = object.get("trace") {
        items.remember_trace_group(trace);
    }
    items.remember_trace_group(&object);
    for key in LIST_KEYS {
        if let Json::Array(list) = take_field(&mut object, &[key]) {
            for item in list {
                match item {
                    Json::Object(item) => items.read_item(item, sink),
                    _ => sink.report_bad_record("an item of the trace is no object"),
                }
            }
        }
    }
    Ok(())
}

/// Opens a reader of lines.
pub(crate) fn open_reader() -> Box<dyn SessionReader> {
    Box::<TraceItemReader>::default()
}

/// Reads the items of traces in their order. A trace comes before its spans.
#[derive(Debug, Default)]
struct TraceItemReader {
    /// The group of each trace: the conversation that it is a part of.
    groups: HashMap<String, String>,
}

impl SessionReader for TraceItemReader {
    fn read_record(&mut self, record: &[u8], sink: &mut dyn ImportSink) {
        match serde_json::from_slice(record) {
            Ok(Json::Object(item)) => self.read_item(item, sink),
            Ok(_) => sink.report_bad_record("an item of the trace is no object"),
            Err(error) => sink.report_bad_record(&error.to_string()),
        }
    }

    fn finish(self: Box<Self>, _sink: &mut dyn ImportSink) {}
}

impl TraceItemReader {
    fn remember_trace_group(&mut self, trace: &Map<String, Json>) {
        let id = text_under(trace, &["id", "trace_id"]);
        if let (Some(id), Some(group)) = (id, text_under(trace, &["group_id"])) {
            self.groups.insert(id.to_owned(), group.to_owned());
        }
    }

    fn read_item(&mut self, item: Map<String, Json>, sink: &mut dyn ImportSink) {
        if is_span_item(&item) {
            self.add_item_span(item, sink);
        } else if is_trace_item(&item) {
            self.remember_trace_group(&item);
        } else {
            sink.report_bad_record("neither a trace nor a span of the OpenAI Agents SDK");
        }
    }

    fn add_item_span(&self, mut item: Map<String, Json>, sink: &mut dyn ImportSink) {
        let trace = text_under(&item, &["trace_id"]).unwrap_or_default().to_owned();
        let group = self.groups.get(&trace);
        let Some(id) = text_under(&item, &["id", "span_id"]).and_then(span_id_from_text) else {
            return sink.report_bad_record("a span of the OpenAI Agents SDK without an id");
        };
        let Json::Object(mut data) = item.remove("span_data").unwrap_or_default() else { return };
        let kind = text_under(&data, &["type"]).unwrap_or_default().to_owned();
        let name = text_under(&data, &["name"]).unwrap_or(&kind).to_owned();
        let mut span = SpanRecord::new(trace_id_from_text(&trace), id, &name);
        let parent = text_under(&item, &["parent_id"]).and_then(span_id_from_text);
        if parent.is_none() {
            span.set_text("session.id", group.map(String::as_str).unwrap_or_default());
        }
        span.set_parent(parent);
        span.set_times(item.get("started_at"), item.get("ended_at"));
        match item.get("error") {
            None | Some(Json::Null) => {}
            Some(error) => span.set_error(error.get("message").and_then(Json::as_str).unwrap_or_default()),
        }
        // Spans of the JavaScript SDK have what is not exported under names with an underscore.
        let input = decode_json_text(take_field(&mut data, &["input", "_input"]));
        let output = take_field(&mut data, &["output"]);
        match kind.as_str() {
            "agent" => {
                span.set_kind(SpanRecordKind::Agent);
                span.set_text("agent.name", &name);
                span.set_chain_content(input, output);
            }
            "function" => {
                span.set_kind(SpanRecordKind::Tool);
                span.set_tool_content(&name, input, output);
            }
            "generation" => {
                span.set_kind(SpanRecordKind::Model);
                span.set_text("llm.model_name", text_under(&data, &["model"]).unwrap_or_default());
                span.set_usage(data.get("usage").map(read_provider_usage).unwrap_or_default());
                span.set_model_content(as_message_list(input), output);
            }
            "response" => set_response_call(data, input, output, &mut span),
            // Hand-overs, guardrails, turns, lists of tools: structure around the work.
            _ => span.set_kind(SpanRecordKind::Chain),
        }
        span.add_to(sink);
    }
}

/// Sets the content of a call of the Responses API. The SDK exports only the id of the response and its tokens;
/// processors of others add the response itself.
fn set_response_call(mut data: Map<String, Json>, input: Json, output: Json, span: &mut SpanRecord) {
    let mut response = decode_json_text(take_field(&mut data, &["response", "_response"]));
    span.set_kind(SpanRecordKind::Model);
    let model = response.get("model").and_then(Json::as_str).or_else(|| text_under(&data, &["model"]));
    span.set_text("llm.model_name", model.unwrap_or_default());
    let usage = data.get("usage").filter(|usage| usage.is_object()).or_else(|| response.get("usage"));
    span.set_usage(usage.map(read_provider_usage).unwrap_or_default());
    span.set_content("llm.tools", response.get("tools").cloned().unwrap_or_default());
    let instructions = response.get("instructions").filter(|text| text.is_string()).cloned();
    let reply = response.get_mut("output").map(Json::take).unwrap_or(output);
    let input = match (as_message_list(input), instructions) {
        (Json::Array(mut messages), Some(instructions)) => {
            messages.insert(0, serde_json::json!({"role": "system", "content": instructions}));
            Json::Array(messages)
        }
        (input, _) => input,
    };
    span.set_model_content(input, reply);
}

/// Returns a plain text as a list with one user message.
fn as_message_list(input: Json) -> Json {
    match input {
        Json::String(text) if !text.is_empty() => serde_json::json!([{"role": "user", "content": text}]),
        other => other,
    }
}
