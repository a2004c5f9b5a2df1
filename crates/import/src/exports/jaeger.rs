//! Jaeger's JSON, as its API and its user interface write it: traces with spans, references and typed tags. The tags
//! are the attributes of OpenTelemetry; lists and maps among them are JSON text.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use gradus_core::span::{AttributeList, AttributeValue, SpanEvent, SpanResource, TraceId};
use serde_json::{Map, Value as Json};

use super::span_record::{SpanRecord, span_id_from_text, text_under, trace_id_from_text};
use crate::import_sink::{ImportError, ImportSink};

/// Whether an object is a trace: `{"traceID", "spans": [{"spanID", ...}], "processes"}`.
pub(crate) fn matches_trace(object: &Map<String, Json>) -> bool {
    let first = object.get("spans").and_then(Json::as_array).and_then(|spans| spans.first());
    first.and_then(Json::as_object).is_some_and(looks_like_span)
}

/// Whether an object is a span by itself, as stores of Jaeger have them.
pub(crate) fn matches_span(object: &Map<String, Json>) -> bool {
    object.contains_key("traceID") && looks_like_span(object)
}

/// Whether an object is a span, by names whose spelling is Jaeger's own.
fn looks_like_span(span: &Map<String, Json>) -> bool {
    let marks = ["references", "startTime", "processID", "process", "parentSpanID", "tags"];
    span.contains_key("spanID")
        && span.contains_key("operationName")
        && marks.iter().filter(|key| span.contains_key(**key)).count() >= 2
}

/// Reads a span by itself.
#[expect(clippy::needless_pass_by_value, reason = "the signature of all readers")]
pub(crate) fn read_span(object: Map<String, Json>, sink: &mut dyn ImportSink) -> Result<(), ImportError> {
    add_jaeger_span(&object, None, &HashMap::new(), sink);
    Ok(())
}

/// Whether an object is a response of the API: `{"data": [trace, ...]}`.
pub(crate) fn matches_trace_list(object: &Map<String, Json>) -> bool {
    let first = object.get("data").and_then(Json::as_array).and_then(|traces| traces.first());
    first.and_then(Json::as_object).is_some_and(matches_trace)
}

/// Reads a response of the API.
#[expect(clippy::needless_pass_by_value, reason = "the signature of all readers")]
pub(crate) fn read_trace_list(object: Map<String, Json>, sink: &mut dyn ImportSink) -> Result<(), ImportError> {
    for trace in object.get("data").and_then(Json::as_array).into_iter().flatten() {
        match trace.as_object() {
            Some(trace) if matches_trace(trace) => read_spans(trace, sink),
            _ => sink.report_bad_record("an element of `data` is no Jaeger trace"),
        }
    }
    Ok(())
}

/// Reads a trace.
#[expect(clippy::needless_pass_by_value, reason = "the signature of all readers")]
pub(crate) fn read_trace(object: Map<String, Json>, sink: &mut dyn ImportSink) -> Result<(), ImportError> {
    read_spans(&object, sink);
    Ok(())
}

fn read_spans(trace: &Map<String, Json>, sink: &mut dyn ImportSink) {
    let trace_id = text_under(trace, &["traceID"]).map(trace_id_from_text);
    let mut resources = HashMap::new();
    for (key, process) in trace.get("processes").and_then(Json::as_object).into_iter().flatten() {
        resources.insert(key.as_str(), Arc::new(read_process(process)));
    }
    for span in trace.get("spans").and_then(Json::as_array).into_iter().flatten() {
        match span.as_object() {
            Some(span) => add_jaeger_span(span, trace_id, &resources, sink),
            None => sink.report_bad_record("an element of `spans` is no span"),
        }
    }
}

/// Reads a process, which is the resource of its spans.
fn read_process(process: &Json) -> SpanResource {
    let mut attributes = read_tags(process.get("tags"));
    let service = process.get("serviceName").and_then(Json::as_str).unwrap_or_default().to_owned();
    attributes.0.insert(0, (Cow::Borrowed("service.name"), AttributeValue::Str(Cow::Owned(service))));
    SpanResource { attributes }
}

fn add_jaeger_span(
    record: &Map<String, Json>,
    trace_id: Option<TraceId>,
    resources: &HashMap<&str, Arc<SpanResource>>,
    sink: &mut dyn ImportSink,
) {
    let trace_id = text_under(record, &["traceID"]).map(trace_id_from_text).or(trace_id).unwrap_or_default();
    let Some(id) = text_under(record, &["spanID"]).and_then(span_id_from_text) else {
        return sink.report_bad_record("a Jaeger span without an id");
    };
    let mut span = SpanRecord::new(trace_id, id, text_under(record, &["operationName"]).unwrap_or_default());
    // Links to other traces are references as well.
    let references = record.get("references").and_then(Json::as_array).into_iter().flatten();
    let parent = references.into_iter().find(|reference| {
        let same_trace = reference.get("traceID").and_then(Json::as_str).map(trace_id_from_text);
        reference.get("refType").is_some_and(|kind| kind == "CHILD_OF") && same_trace.is_none_or(|id| id == trace_id)
    });
    let parent = parent.and_then(|reference| reference.get("spanID")?.as_str());
    let parent = parent.or_else(|| text_under(record, &["parentSpanID"]));
    span.set_parent(parent.and_then(span_id_from_text));
    // Microseconds, always.
    let micros = |key: &str| record.get(key).and_then(Json::as_u64).unwrap_or_default();
    let start_ns = micros("startTime").saturating_mul(1_000);
    span.set_time_range_ns(start_ns, start_ns.saturating_add(micros("duration").saturating_mul(1_000)));
    let attributes = read_tags(record.get("tags"));
    set_otel_fields(&attributes, &mut span);
    for (key, value) in attributes.0 {
        span.push_attribute(key, value);
    }
    for log in record.get("logs").and_then(Json::as_array).into_iter().flatten() {
        span.add_event(read_log(log));
    }
    if let Some(resource) = text_under(record, &["processID"]).and_then(|id| resources.get(id)) {
        span.set_resource(Arc::clone(resource));
    } else if let Some(process) = record.get("process").filter(|process| process.is_object()) {
        span.set_resource(Arc::new(read_process(process)));
    }
    span.add_to(sink);
}

/// Sets status and scope, which exporters to Jaeger and Zipkin write as attributes.
pub(super) fn set_otel_fields(attributes: &AttributeList<'_>, span: &mut SpanRecord) {
    let is_error = match attributes.get("otel.status_code") {
        Some(code) => code.as_str().is_some_and(|code| code.eq_ignore_ascii_case("error")),
        None => match attributes.get("error") {
            Some(AttributeValue::Bool(flag)) => *flag,
            // Zipkin's tag holds the message.
            Some(AttributeValue::Str(text)) => text != "false",
            _ => false,
        },
    };
    if is_error {
        let message = attributes.get_text("otel.status_description");
        let message = message.or_else(|| attributes.get_text("error").filter(|text| *text != "true"));
        span.set_error(message.unwrap_or_default());
    }
    let scope = attributes.get_text("otel.scope.name").or_else(|| attributes.get_text("otel.library.name"));
    span.set_scope(scope.unwrap_or_default());
}

/// Reads tags: `[{"key", "type", "value"}]`. The values have their types, except that very large integers are texts.
fn read_tags(tags: Option<&Json>) -> AttributeList<'static> {
    let tags = tags.and_then(Json::as_array).into_iter().flatten();
    let tags = tags.filter_map(|tag| {
        let key = tag.get("key")?.as_str()?.to_owned();
        let value = tag.get("value")?.clone();
        let value = match (tag.get("type").and_then(Json::as_str), &value) {
            (Some("int64"), Json::String(text)) => text.parse::<i64>().map_or(value.clone(), Json::from),
            (Some("bool"), Json::String(text)) => text.parse::<bool>().map_or(value.clone(), Json::from),
            (Some("float64"), Json::String(text)) => text.parse::<f64>().map_or(value.clone(), Json::from),
            _ => value,
        };
        Some((Cow::Owned(key), AttributeValue::from_json(value)))
    });
    AttributeList(tags.collect())
}

/// Reads a log, which is an event of the span. Its field `event` is the name.
fn read_log(log: &Json) -> SpanEvent<'static> {
    let attributes = read_tags(log.get("fields"));
    let name = attributes.get_text("event").or_else(|| attributes.get_text("name")).unwrap_or_default().to_owned();
    let time_ns = log.get("timestamp").and_then(Json::as_u64).unwrap_or_default().saturating_mul(1_000);
    SpanEvent { name: Cow::Owned(name), time_ns, attributes, body: None }
}
