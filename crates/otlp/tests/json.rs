//! OTLP's JSON in the specification's form and in those that senders really use.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use gradus_core::span::{AttributeValue, Span, StatusCode};
use gradus_otlp::{JsonRecord, LogEvent, read_export_json};
use serde_json::{Value as Json, json};

fn read(document: &Json) -> (Vec<Span<'static>>, Vec<LogEvent<'static>>) {
    let (mut spans, mut logs) = (Vec::new(), Vec::new());
    let text = document.to_string();
    let mut deserializer = serde_json::Deserializer::from_str(&text);
    read_export_json(&mut deserializer, &mut |record| match record {
        JsonRecord::Span(span, _) => spans.push(*span),
        JsonRecord::Log(log, ..) => logs.push(*log),
        JsonRecord::Bad(reason) => panic!("{reason}"),
    })
    .unwrap();
    (spans, logs)
}

fn assert_the_span(document: &Json) {
    let (spans, _) = read(document);
    let [span] = spans.as_slice() else { panic!("{spans:?}") };
    assert_eq!(span.trace_id.to_string(), "0102030405060708090a0b0c0d0e0f10");
    assert_eq!(span.span_id.to_string(), "1112131415161718");
    assert_eq!((span.start_ns, span.end_ns), (1_700_000_000_000_000_001, 1_700_000_000_000_000_002));
    assert_eq!(span.attributes.get("n"), Some(&AttributeValue::Int(42)));
    assert_eq!(span.attributes.get_text("s"), Some("text"));
    assert_eq!(
        span.attributes.get("list"),
        Some(&AttributeValue::Array(vec![AttributeValue::Bool(true), AttributeValue::Null]))
    );
    assert_eq!(span.status.code, StatusCode::Error);
    assert_eq!(span.scope, "the-scope");
    assert_eq!(span.resource.project(), Some("the-service"));
}

#[test]
fn the_specification() {
    assert_the_span(&json!({"resourceSpans": [{
        "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "the-service"}}]},
        "scopeSpans": [{"scope": {"name": "the-scope"}, "spans": [{
            "traceId": "0102030405060708090a0b0c0d0e0f10", "spanId": "1112131415161718", "parentSpanId": "",
            "name": "op", "kind": 1,
            "startTimeUnixNano": "1700000000000000001", "endTimeUnixNano": "1700000000000000002",
            "attributes": [
                {"key": "n", "value": {"intValue": "42"}},
                {"key": "s", "value": {"stringValue": "text"}},
                {"key": "list", "value": {"arrayValue": {"values": [{"boolValue": true}, {}]}}},
            ],
            "status": {"code": 2, "message": "no"},
        }]}],
    }]}));
}

#[test]
fn snake_case_base64_ids_and_plain_numbers() {
    assert_the_span(&json!({"resource_spans": [{
        // The scopes before the resource.
        "scope_spans": [{"scope": {"name": "the-scope"}, "spans": [{
            "trace_id": "AQIDBAUGBwgJCgsMDQ4PEA==", "span_id": "ERITFBUWFxg=",
            "name": "op", "kind": "SPAN_KIND_INTERNAL",
            "start_time_unix_nano": 1_700_000_000_000_000_001u64, "end_time_unix_nano": 1_700_000_000_000_000_002u64,
            "attributes": [
                {"key": "n", "value": {"int_value": 42}},
                {"key": "s", "value": {"string_value": "text"}},
                {"key": "list", "value": {"array_value": {"values": [{"bool_value": true}, {}]}}},
            ],
            "status": {"code": "STATUS_CODE_ERROR"},
        }]}],
        "resource": {"attributes": [{"key": "service.name", "value": {"string_value": "the-service"}}]},
    }]}));
}

#[test]
fn log_records() {
    let (_, logs) = read(&json!({"resourceLogs": [{"scopeLogs": [{"logRecords": [{
        "timeUnixNano": "7", "traceId": "0102030405060708090a0b0c0d0e0f10", "spanId": "1112131415161718",
        "body": {"kvlistValue": {"values": [{"key": "content", "value": {"stringValue": "hi"}}]}},
        "attributes": [{"key": "event.name", "value": {"stringValue": "gen_ai.user.message"}}],
    }]}]}]}));
    assert_eq!(logs[0].event.name, "gen_ai.user.message");
    assert_eq!(logs[0].event.body.as_ref().unwrap().to_json(), json!({"content": "hi"}));
}

fn reasons(document: &Json) -> (usize, Vec<String>) {
    let (mut spans, mut reasons) = (0, Vec::new());
    let text = document.to_string();
    read_export_json(&mut serde_json::Deserializer::from_str(&text), &mut |record| match record {
        JsonRecord::Bad(reason) => reasons.push(reason),
        _ => spans += 1,
    })
    .unwrap();
    (spans, reasons)
}

#[test]
fn a_flood_of_attributes_is_refused_by_a_named_limit() {
    let attributes: Vec<Json> = (0..70_000).map(|n| json!({"key": n.to_string(), "value": {"intValue": n}})).collect();
    let document =
        json!({"resourceSpans": [{"scopeSpans": [{"spans": [{"attributes": attributes}, {"name": "good"}]}]}]});
    let (spans, reasons) = reasons(&document);
    assert_eq!((spans, reasons.len()), (1, 1));
    assert!(reasons[0].contains("limit 65536"), "{reasons:?}");
}

#[test]
fn one_bad_span_spoils_no_other() {
    let good = json!({"name": "good", "startTimeUnixNano": 1.7e18, "attributes": null, "status": null, "events": null});
    let spans = json!([good, {"startTimeUnixNano": "soon"}, {"attributes": 7}, "text", good]);
    let document = json!({"resourceSpans": [{"scopeSpans": [{"scope": null, "spans": spans}, {"spans": null}]}]});
    let (spans, reasons) = reasons(&document);
    assert_eq!((spans, reasons.len()), (2, 3), "{reasons:?}");
}
