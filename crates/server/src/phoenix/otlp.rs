//! A span in Phoenix's JSON form of OTLP. Unlike OTLP/JSON, every field is present, names are in snake case, and
//! attributes are flattened.

use gradus_core::span::StatusCode;
use gradus_phoenix::span_view::{PhoenixSpan, nanos_to_micros};
use serde_json::{Map, Value, json};

/// Converts a span. Fields that Phoenix does not store are null.
pub(super) fn span_to_otlp_json(span: &PhoenixSpan<'_>) -> Value {
    let recorded = span.span();
    let mut attributes = vec![encode_otlp_attribute("openinference.span.kind", &Value::from(span.listed_kind()))];
    attributes.extend(span.flat_attributes().iter().map(|(key, value)| encode_otlp_attribute(key, value)));
    // Events with a body were log records, which Phoenix does not have.
    let events = recorded.events.iter().filter(|event| event.body.is_none()).zip(span.events());
    let events: Vec<Value> = events
        .map(|(event, listed)| {
            let attributes = listed["attributes"].as_object().map(encode_otlp_attributes).unwrap_or_default();
            json!({
                "attributes": attributes,
                "dropped_attributes_count": null,
                "name": event.name,
                "time_unix_nano": truncate_to_micros(event.time_ns),
            })
        })
        .collect();
    let code = match recorded.status.code {
        StatusCode::Unset => 0,
        StatusCode::Ok => 1,
        StatusCode::Error => 2,
    };
    let message = Some(&recorded.status.message).filter(|message| !message.is_empty());
    json!({
        "attributes": attributes,
        "dropped_attributes_count": null,
        "dropped_events_count": null,
        "dropped_links_count": null,
        "end_time_unix_nano": truncate_to_micros(recorded.end_ns),
        "events": if events.is_empty() { Value::Null } else { Value::from(events) },
        "flags": null,
        "kind": "SPAN_KIND_INTERNAL",
        "links": null,
        "name": recorded.name,
        "parent_span_id": recorded.parent_id.map(|id| id.to_string()),
        "span_id": recorded.span_id.to_string(),
        "start_time_unix_nano": truncate_to_micros(recorded.start_ns),
        "status": {"code": code, "message": message},
        "trace_id": recorded.trace_id.to_string(),
        "trace_state": null,
    })
}

/// Truncates to microseconds, as Phoenix stores them. Phoenix's rounding error of floating point is not imitated.
fn truncate_to_micros(ns: u64) -> i64 {
    nanos_to_micros(ns).saturating_mul(1000)
}

fn encode_otlp_attributes(attributes: &Map<String, Value>) -> Vec<Value> {
    attributes.iter().map(|(key, value)| encode_otlp_attribute(key, value)).collect()
}

fn encode_otlp_attribute(key: &str, value: &Value) -> Value {
    json!({"key": key, "value": encode_any_value(value)})
}

/// Encodes OTLP's `AnyValue` with all alternatives present. Objects cannot occur, since attributes are flattened.
fn encode_any_value(value: &Value) -> Value {
    let mut any = json!({
        "array_value": null, "bool_value": null, "bytes_value": null, "double_value": null, "int_value": null,
        "kvlist_value": null, "string_value": null,
    });
    match value {
        Value::Null | Value::Object(_) => {}
        Value::Bool(_) => any["bool_value"] = value.clone(),
        Value::Number(number) if number.is_f64() => any["double_value"] = value.clone(),
        Value::Number(_) => any["int_value"] = value.clone(),
        Value::String(_) => any["string_value"] = value.clone(),
        Value::Array(items) => {
            let items: Vec<Value> = items.iter().map(encode_any_value).collect();
            any["array_value"] = json!({"values": items});
        }
    }
    any
}
