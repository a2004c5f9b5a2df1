//! Spans in JSON forms other than OTLP: Phoenix's listing, and dumps that nest children inside their parents.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Map, Value as Json};

use crate::path_budget::PathBudget;
use crate::phoenix_attributes;
use crate::span::{
    AttributeList, AttributeValue, Span, SpanEvent, SpanId, SpanResource, SpanStatus, StatusCode, TraceId,
};

/// Whether an object is a span of Phoenix's REST listing.
pub fn is_phoenix_span(object: &Map<String, Json>) -> bool {
    object.get("context").is_some_and(|context| context.get("span_id").is_some())
}

/// Whether an object is a span of a nested dump.
pub fn is_nested_span(object: &Map<String, Json>) -> bool {
    object.contains_key("span_id") && (object.contains_key("span_attributes") || object.contains_key("child_spans"))
}

/// Reads a span of Phoenix's REST listing, and restores the attributes that Phoenix changed.
pub fn read_phoenix_span(object: &Map<String, Json>) -> Span<'static> {
    let context = &object["context"];
    let mut attributes = read_attributes(object, "attributes");
    // Phoenix keeps the kind beside the attributes.
    if let Some(kind) = read_text_field(object, "span_kind").filter(|kind| *kind != "UNKNOWN")
        && attributes.get("openinference.span.kind").is_none()
    {
        attributes.0.push((Cow::Borrowed("openinference.span.kind"), AttributeValue::Str(Cow::Owned(kind.to_owned()))));
    }
    phoenix_attributes::restore_phoenix_attributes(&mut attributes);
    Span {
        trace_id: TraceId::parse(context.get("trace_id").and_then(Json::as_str).unwrap_or_default()),
        span_id: SpanId::parse(context.get("span_id").and_then(Json::as_str).unwrap_or_default()),
        parent_id: read_text_field(object, "parent_id").map(SpanId::parse).and_then(SpanId::non_zero),
        name: Cow::Owned(read_text_field(object, "name").unwrap_or_default().to_owned()),
        start_ns: read_time_ns(object, "start_time"),
        end_ns: read_time_ns(object, "end_time"),
        status: read_span_status(object),
        attributes,
        events: read_span_events(object),
        scope: Cow::Borrowed(""),
        resource: Arc::default(),
    }
}

/// Reads a span of a nested dump and all spans below it, depth first. Iterative: the nesting can be as deep as JSON
/// allows.
pub fn read_nested_spans(object: &Map<String, Json>) -> Vec<Span<'static>> {
    let mut spans: Vec<Span<'static>> = Vec::new();
    let mut waiting = vec![(object, None)];
    while let Some((object, parent)) = waiting.pop() {
        let mut span = read_nested_span(object, parent);
        // Children need not repeat the trace id of their root.
        if span.trace_id == TraceId::default()
            && let Some(root) = spans.first()
        {
            let root: &Span<'_> = root;
            span.trace_id = root.trace_id;
        }
        // Reversed, because the stack returns the last one first.
        if let Some(Json::Array(children)) = object.get("child_spans") {
            waiting.extend(children.iter().rev().filter_map(Json::as_object).map(|child| (child, Some(span.span_id))));
        }
        spans.push(span);
    }
    spans
}

/// One span of a nested dump. `parent` is used if the span does not name its parent itself.
fn read_nested_span(object: &Map<String, Json>, parent: Option<SpanId>) -> Span<'static> {
    let start_ns = read_time_ns(object, "timestamp").max(read_time_ns(object, "start_time"));
    let duration = read_text_field(object, "duration").and_then(|text| text.parse::<jiff::SignedDuration>().ok());
    let end_ns = duration.map_or_else(
        || read_time_ns(object, "end_time"),
        |duration| start_ns.saturating_add(duration.as_nanos().max(0) as u64),
    );
    Span {
        trace_id: TraceId::parse(read_text_field(object, "trace_id").unwrap_or_default()),
        span_id: SpanId::parse(read_text_field(object, "span_id").unwrap_or_default()),
        parent_id: read_text_field(object, "parent_span_id").map(SpanId::parse).and_then(SpanId::non_zero).or(parent),
        name: Cow::Owned(
            read_text_field(object, "span_name").or(read_text_field(object, "name")).unwrap_or_default().to_owned(),
        ),
        start_ns,
        end_ns,
        status: read_span_status(object),
        attributes: read_attributes(object, "span_attributes"),
        events: read_span_events(object),
        scope: Cow::Owned(read_text_field(object, "scope_name").unwrap_or_default().to_owned()),
        resource: Arc::new(SpanResource { attributes: read_attributes(object, "resource_attributes") }),
    }
}

/// Attributes with these names are values, and are not flattened however they are nested.
const UNFLATTENED_KEYS: [&str; 8] = [
    "json_schema",
    "parameters",
    "arguments",
    "metadata",
    "value",
    "invocation_parameters",
    "variables",
    "definitions",
];

/// Reads the attributes in a field, flattened. None if it is missing or not an object.
fn read_attributes(object: &Map<String, Json>, key: &str) -> AttributeList<'static> {
    let mut attributes = AttributeList::default();
    if let Some(Json::Object(recorded)) = object.get(key) {
        flatten_attributes("", recorded, &mut PathBudget::default(), &mut attributes);
    }
    attributes
}

/// Flattens nested attributes into dotted keys with indices, the form in which instrumentations recorded them.
fn flatten_attributes(
    prefix: &str,
    object: &Map<String, Json>,
    budget: &mut PathBudget,
    out: &mut AttributeList<'static>,
) {
    for (key, value) in object {
        let path = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        flatten_json_value(path, value, budget, out);
    }
}

/// Flattens one value. Lists of plain values stay lists, as OpenInference records them; lists of objects get indices.
fn flatten_json_value(path: String, value: &Json, budget: &mut PathBudget, out: &mut AttributeList<'static>) {
    let is_leaf = path.rsplit('.').next().is_some_and(|last| UNFLATTENED_KEYS.contains(&last));
    match value {
        Json::Object(object) if !is_leaf && budget.try_open_path(&path, object.len()) => {
            flatten_attributes(&path, object, budget, out);
        }
        Json::Array(items)
            if items.iter().any(Json::is_object) && !is_leaf && budget.try_open_path(&path, items.len()) =>
        {
            for (index, item) in items.iter().enumerate() {
                flatten_json_value(format!("{path}.{index}"), item, budget, out);
            }
        }
        other => out.0.push((Cow::Owned(path), AttributeValue::from_json(other.clone()))),
    }
}

/// Events under either naming: `name` and `attributes`, or `event_name` and `event_attributes`.
fn read_span_events(object: &Map<String, Json>) -> Vec<SpanEvent<'static>> {
    let Some(Json::Array(events)) = object.get("events") else { return Vec::new() };
    let events = events.iter().filter_map(Json::as_object).map(|event| {
        let key = if event.contains_key("attributes") { "attributes" } else { "event_attributes" };
        let name =
            read_text_field(event, "name").or(read_text_field(event, "event_name")).unwrap_or_default().to_owned();
        SpanEvent {
            name: Cow::Owned(name),
            time_ns: read_time_ns(event, "timestamp"),
            attributes: read_attributes(event, key),
            body: None,
        }
    });
    events.collect()
}

/// The status code is a text in both formats, in either case.
fn read_span_status(object: &Map<String, Json>) -> SpanStatus<'static> {
    let code = match read_text_field(object, "status_code").unwrap_or_default().to_ascii_uppercase().as_str() {
        "OK" => StatusCode::Ok,
        "ERROR" => StatusCode::Error,
        _ => StatusCode::Unset,
    };
    SpanStatus { code, message: Cow::Owned(read_text_field(object, "status_message").unwrap_or_default().to_owned()) }
}

/// Nanoseconds since the Unix epoch; 0 if the time is missing or cannot be read. Without a time zone, UTC is meant.
fn read_time_ns(object: &Map<String, Json>, key: &str) -> u64 {
    let Some(text) = read_text_field(object, key) else { return 0 };
    let parsed = text.parse::<jiff::Timestamp>().or_else(|_| format!("{text}Z").parse());
    parsed.map_or(0, |time| u64::try_from(time.as_nanosecond()).unwrap_or_default())
}

/// A text that is not empty.
fn read_text_field<'j>(object: &'j Map<String, Json>, key: &str) -> Option<&'j str> {
    object.get(key).and_then(Json::as_str).filter(|text| !text.is_empty())
}
