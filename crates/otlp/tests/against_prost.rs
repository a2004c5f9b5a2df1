//! Our protobuf reader and writer against `prost` with the official types, on random messages.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod messages;

use std::sync::Arc;

use gradus_core::span::{AttributeValue, Span, SpanResource, StatusCode};
use gradus_otlp::{
    MessageFraming, RecordLimits, TelemetrySignal, decode_log, decode_span, encode_span, looks_like_export,
    read_export, stream_export,
};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1 as common;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use opentelemetry_proto::tonic::trace::v1 as trace;
use proptest::prelude::*;
use prost::Message;

use messages::{key_value, span};

fn request(spans: Vec<trace::Span>) -> ExportTraceServiceRequest {
    let scope = common::InstrumentationScope { name: "scope".to_owned(), ..Default::default() };
    let scope_spans = vec![trace::ScopeSpans { scope: Some(scope), spans, ..Default::default() }];
    let resource = opentelemetry_proto::tonic::resource::v1::Resource::default();
    ExportTraceServiceRequest {
        resource_spans: vec![trace::ResourceSpans { resource: Some(resource), scope_spans, ..Default::default() }],
    }
}

fn assert_same_value(ours: &AttributeValue<'_>, theirs: &common::AnyValue) {
    match (ours, &theirs.value) {
        (AttributeValue::Null, None) => {}
        (AttributeValue::Str(a), Some(Any::StringValue(b))) => assert_eq!(a, b),
        (AttributeValue::Bool(a), Some(Any::BoolValue(b))) => assert_eq!(a, b),
        (AttributeValue::Int(a), Some(Any::IntValue(b))) => assert_eq!(a, b),
        (AttributeValue::Double(a), Some(Any::DoubleValue(b))) => assert_eq!(a, b),
        (AttributeValue::Bytes(a), Some(Any::BytesValue(b))) => assert_eq!(a.as_ref(), b.as_slice()),
        (AttributeValue::Array(a), Some(Any::ArrayValue(b))) => {
            assert_eq!(a.len(), b.values.len());
            a.iter().zip(&b.values).for_each(|(a, b)| assert_same_value(a, b));
        }
        (AttributeValue::Map(a), Some(Any::KvlistValue(b))) => {
            assert_eq!(a.len(), b.values.len());
            for ((key, a), b) in a.iter().zip(&b.values) {
                assert_eq!(*key, b.key);
                assert_same_value(a, &b.value.clone().unwrap_or_default());
            }
        }
        other => panic!("{other:?}"),
    }
}

fn assert_same_span(ours: &Span<'_>, theirs: &trace::Span) {
    assert_eq!(ours.trace_id.0.to_be_bytes().as_slice(), theirs.trace_id);
    assert_eq!(ours.span_id.0.to_be_bytes().as_slice(), theirs.span_id);
    let parent = ours.parent_id.map(|id| id.0.to_be_bytes().to_vec()).unwrap_or_default();
    assert!(parent == theirs.parent_span_id || theirs.parent_span_id.iter().all(|byte| *byte == 0));
    assert_eq!(
        (ours.name.as_ref(), ours.start_ns, ours.end_ns),
        (theirs.name.as_str(), theirs.start_time_unix_nano, theirs.end_time_unix_nano)
    );
    assert_eq!(ours.attributes.0.len(), theirs.attributes.len());
    for ((key, ours), theirs) in ours.attributes.0.iter().zip(&theirs.attributes) {
        assert_eq!(*key, theirs.key);
        assert_same_value(ours, &theirs.value.clone().unwrap_or_default());
    }
    assert_eq!(ours.events.len(), theirs.events.len());
    let status = theirs.status.clone().unwrap_or_default();
    assert_eq!(ours.status.message, status.message);
    assert_eq!(ours.status.code == StatusCode::Error, status.code == 2);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn spans_are_read_as_prost_reads_them(spans in prop::collection::vec(span(), 0..4)) {
        let bytes = request(spans.clone()).encode_to_vec();
        let limits = RecordLimits::default();
        let mut at = 0;
        read_export(&bytes, &limits, &mut |record| {
            assert_eq!(record.signal, TelemetrySignal::Span);
            let span = decode_span(record.body, &record.scope.resource, &record.scope.name, &limits)?;
            assert_eq!(span.scope, "scope");
            assert_same_span(&span, &spans[at]);
            at += 1;
            Ok(())
        }).unwrap();
        prop_assert_eq!(at, spans.len());
    }

    #[test]
    fn what_we_write_prost_reads(span in span()) {
        let bytes = span.encode_to_vec();
        let (resource, limits) = (Arc::new(SpanResource::default()), RecordLimits::default());
        let ours = decode_span(&bytes, &resource, "", &limits).unwrap();
        let mut written = Vec::new();
        encode_span(&ours, &mut written);
        assert_same_span(&ours, &trace::Span::decode(written.as_slice()).unwrap());
        prop_assert_eq!(decode_span(&written, &resource, "", &limits).unwrap(), ours);
    }

    #[test]
    fn streams_give_the_same_records(sizes in prop::collection::vec(0usize..3, 1..4), spans in prop::collection::vec(span(), 9), limit in 1usize..4000) {
        let requests: Vec<_> = sizes.iter().map(|size| request(spans[..*size].to_vec())).collect();
        let single: Vec<u8> = requests.iter().flat_map(Message::encode_to_vec).collect();
        let delimited: Vec<u8> = requests.iter().flat_map(Message::encode_length_delimited_to_vec).collect();
        let wanted: usize = sizes.iter().sum();
        // A low limit makes the reader walk messages level by level; records above it are refused, not lost silently.
        for limits in [RecordLimits::default(), RecordLimits { record_bytes: limit, ..RecordLimits::default() }] {
            for (framing, bytes) in [(MessageFraming::Single, &single), (MessageFraming::Delimited, &delimited)] {
                let (mut found, mut refused) = (0, 0);
                let read = stream_export(&mut bytes.as_slice(), framing, &limits, &mut |record| {
                    match record {
                        Ok(record) => {
                            assert!(record.body.len() <= limits.record_bytes);
                            found += 1;
                        }
                        Err(_) => refused += 1,
                    }
                    Ok(())
                });
                // Only a resource or a scope's name that is too large ends a stream: nothing below it can be placed.
                prop_assert!(found + refused == wanted || read.is_err(), "{found} and {refused} of {wanted}: {read:?}");
                prop_assert!(refused == 0 && read.is_ok() || limits.record_bytes == limit);
            }
        }
    }

    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let limits = RecordLimits::default();
        let _ = read_export(&bytes, &limits, &mut |_| Ok(()));
        let _ = decode_span(&bytes, &Arc::default(), "", &limits);
        let _ = decode_log(&bytes, &limits);
        let _ = looks_like_export(&bytes, true);
        let _ = stream_export(&mut bytes.as_slice(), MessageFraming::Single, &limits, &mut |_| Ok(()));
        let _ = stream_export(&mut bytes.as_slice(), MessageFraming::Delimited, &limits, &mut |_| Ok(()));
    }
}

#[test]
fn messages_are_recognised_by_their_structure() {
    let span = trace::Span { trace_id: vec![1; 16], span_id: vec![2; 8], name: "x".repeat(300), ..Default::default() };
    let bytes = request(vec![span]).encode_to_vec();
    assert_eq!(looks_like_export(&bytes, true), Some(MessageFraming::Single));
    assert_eq!(looks_like_export(&bytes[..40], false), Some(MessageFraming::Single));
    let delimited = request(vec![]).encode_length_delimited_to_vec();
    assert_eq!(looks_like_export(&delimited, true), Some(MessageFraming::Delimited));
    for other in [b"\nThought: text".as_slice(), b"", b"\x0a\x03abc", b"{}", b"\x08\x01"] {
        assert_eq!(looks_like_export(other, true), None, "{other:?}");
    }
}

#[test]
fn log_records_are_told_from_spans() {
    let log = LogRecord {
        time_unix_nano: 5,
        trace_id: vec![1; 16],
        span_id: vec![2; 8],
        event_name: "gen_ai.choice".to_owned(),
        ..Default::default()
    };
    let bytes = log.encode_to_vec();
    assert_eq!(gradus_otlp::detect_signal(&bytes), TelemetrySignal::Log);
    let read = decode_log(&bytes, &RecordLimits::default()).unwrap();
    assert_eq!((read.event.name.as_ref(), read.event.time_ns), ("gen_ai.choice", 5));
}

#[test]
fn limits_are_named() {
    let limits = RecordLimits { attributes: 3, nesting: 2, ..RecordLimits::default() };
    let many = trace::Span {
        attributes: vec![key_value("k".to_owned(), common::AnyValue::default()); 4],
        ..Default::default()
    };
    let error = decode_span(&many.encode_to_vec(), &Arc::default(), "", &limits).unwrap_err();
    assert!(error.to_string().contains("limit 3"), "{error}");
    let limits = RecordLimits { attributes: 30, ..limits };
    let mut deep = common::AnyValue { value: Some(Any::IntValue(1)) };
    for _ in 0..4 {
        deep = common::AnyValue { value: Some(Any::ArrayValue(common::ArrayValue { values: vec![deep] })) };
    }
    let deep = trace::Span { attributes: vec![key_value("k".to_owned(), deep)], ..Default::default() };
    let error = decode_span(&deep.encode_to_vec(), &Arc::default(), "", &limits).unwrap_err();
    assert!(error.to_string().contains("limit 2"), "{error}");
}
