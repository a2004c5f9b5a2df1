//! Zipkin spans, version 2: `{"traceId", "id", "parentId", "timestamp", "duration", "localEndpoint", "tags"}`. All tags
//! are texts; the dialects read counts from texts.

use std::borrow::Cow;

use gradus_core::span::{AttributeList, AttributeValue, SpanEvent};
use serde_json::{Map, Value as Json};

use super::jaeger::set_otel_fields;
use super::span_record::{SpanRecord, span_id_from_text, text_under, trace_id_from_text};
use crate::import_sink::{ImportError, ImportSink};

/// Whether an object is a span of Zipkin.
pub(crate) fn matches_span(object: &Map<String, Json>) -> bool {
    let is_hex = |key: &str| {
        let id = object.get(key).and_then(Json::as_str).unwrap_or_default();
        matches!(id.len(), 16 | 32) && id.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let marks = ["localEndpoint", "remoteEndpoint", "annotations", "duration", "parentId"];
    is_hex("traceId")
        && is_hex("id")
        && object.get("tags").is_some_and(Json::is_object)
        && object.get("timestamp").is_some_and(Json::is_number)
        && marks.iter().filter(|key| object.contains_key(**key)).count() >= 2
}

/// Reads a span.
#[expect(clippy::needless_pass_by_value, reason = "the signature of all readers")]
pub(crate) fn read_span(object: Map<String, Json>, sink: &mut dyn ImportSink) -> Result<(), ImportError> {
    let trace = trace_id_from_text(text_under(&object, &["traceId"]).unwrap_or_default());
    let id = text_under(&object, &["id"]).and_then(span_id_from_text);
    let id = id.ok_or_else(|| ImportError::new("a Zipkin span without an id"))?;
    let mut span = SpanRecord::new(trace, id, text_under(&object, &["name"]).unwrap_or_default());
    span.set_parent(text_under(&object, &["parentId"]).and_then(span_id_from_text));
    // Microseconds, always.
    let micros = |key: &str| object.get(key).and_then(Json::as_u64).unwrap_or_default();
    let start_ns = micros("timestamp").saturating_mul(1_000);
    span.set_time_range_ns(start_ns, start_ns.saturating_add(micros("duration").saturating_mul(1_000)));
    span.set_project(object.get("localEndpoint").and_then(|endpoint| endpoint.get("serviceName")?.as_str()));
    let tags = object.get("tags").and_then(Json::as_object).into_iter().flatten();
    let tags = tags.map(|(key, value)| (Cow::Owned(key.clone()), AttributeValue::from_json(value.clone())));
    let tags = AttributeList(tags.collect());
    set_otel_fields(&tags, &mut span);
    for (key, value) in tags.0 {
        span.push_attribute(key, value);
    }
    for annotation in object.get("annotations").and_then(Json::as_array).into_iter().flatten() {
        span.add_event(read_annotation(annotation));
    }
    span.add_to(sink);
    Ok(())
}

/// Reads an annotation, which is an event. OpenTelemetry's exporters write its attributes after its name:
/// `{"name":{...}}`, `"name":{...}` or `name: {...}`.
fn read_annotation(annotation: &Json) -> SpanEvent<'static> {
    let text = annotation.get("value").and_then(Json::as_str).unwrap_or_default();
    let text = text.strip_prefix('{').and_then(|text| text.strip_suffix('}')).unwrap_or(text);
    let (name, attributes) = match text.find('{') {
        Some(begin) => (text[..begin].trim_end_matches([':', ' ']), serde_json::from_str::<Json>(&text[begin..]).ok()),
        None => (text, None),
    };
    let attributes = attributes.as_ref().and_then(Json::as_object).into_iter().flatten();
    let attributes = attributes.map(|(key, value)| (Cow::Owned(key.clone()), AttributeValue::from_json(value.clone())));
    SpanEvent {
        name: Cow::Owned(name.trim_matches('"').to_owned()),
        time_ns: annotation.get("timestamp").and_then(Json::as_u64).unwrap_or_default().saturating_mul(1_000),
        attributes: AttributeList(attributes.collect()),
        body: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn annotations_of_opentelemetry_have_attributes() {
        let event = read_annotation(&json!({"timestamp": 1, "value": "\"exception\":{\"exception.message\":\"no\"}"}));
        assert_eq!(event.name, "exception");
        assert_eq!(event.attributes.get_text("exception.message"), Some("no"));
        let event = read_annotation(&json!({"value": "{\"exception\": {\"exception.message\": \"no\"}}"}));
        assert_eq!((event.name.as_ref(), event.attributes.0.len()), ("exception", 1));
        assert_eq!(read_annotation(&json!({"value": "cs"})).name, "cs");
        assert_eq!(read_annotation(&json!({"value": "{"})).name, "");
    }
}
