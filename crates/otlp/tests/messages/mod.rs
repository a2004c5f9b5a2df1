//! Random messages of the official types.

#![allow(dead_code, reason = "each test program uses some of them")]

use opentelemetry_proto::tonic::common::v1 as common;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use opentelemetry_proto::tonic::trace::v1 as trace;
use proptest::prelude::*;

pub(crate) fn any_value() -> impl Strategy<Value = common::AnyValue> {
    let leaf = prop_oneof![
        ".*".prop_map(Any::StringValue),
        any::<bool>().prop_map(Any::BoolValue),
        any::<i64>().prop_map(Any::IntValue),
        (-1e9f64..1e9).prop_map(Any::DoubleValue),
        prop::collection::vec(any::<u8>(), 0..20).prop_map(Any::BytesValue),
    ];
    let tree = leaf.prop_recursive(3, 12, 4, |inner| {
        let value = inner.prop_map(|value| common::AnyValue { value: Some(value) });
        prop_oneof![
            prop::collection::vec(value.clone(), 0..4)
                .prop_map(|values| Any::ArrayValue(common::ArrayValue { values })),
            prop::collection::vec(("[a-z.]{0,8}", value), 0..4).prop_map(|pairs| {
                let values = pairs.into_iter().map(|(key, value)| key_value(key, value)).collect();
                Any::KvlistValue(common::KeyValueList { values })
            }),
        ]
    });
    prop::option::of(tree).prop_map(|value| common::AnyValue { value })
}

pub(crate) fn key_value(key: String, value: common::AnyValue) -> common::KeyValue {
    common::KeyValue { key, value: Some(value), ..Default::default() }
}

pub(crate) fn attributes() -> impl Strategy<Value = Vec<common::KeyValue>> {
    prop::collection::vec(("[a-z._0-9]{0,20}", any_value()).prop_map(|(key, value)| key_value(key, value)), 0..6)
}

pub(crate) fn span() -> impl Strategy<Value = trace::Span> {
    let event = (any::<u64>(), ".{0,10}", attributes()).prop_map(|(time_unix_nano, name, attributes)| {
        trace::span::Event { time_unix_nano, name, attributes, ..Default::default() }
    });
    let link = (".{0,10}", attributes()).prop_map(|(trace_state, attributes)| trace::span::Link {
        trace_id: vec![7; 16],
        trace_state,
        attributes,
        ..Default::default()
    });
    let status = (".{0,10}", 0..3i32).prop_map(|(message, code)| trace::Status { message, code });
    let ids = (
        prop::collection::vec(any::<u8>(), 16),
        prop::collection::vec(any::<u8>(), 8),
        prop::option::of(prop::collection::vec(any::<u8>(), 8)),
    );
    let times = (any::<u64>(), any::<u64>());
    let texts = (".{0,20}", ".{0,9}");
    let events = prop::collection::vec(event, 0..3);
    let links = prop::collection::vec(link, 0..2);
    (ids, texts, times, attributes(), events, links, prop::option::of(status)).prop_map(
        |((trace_id, span_id, parent), (name, trace_state), (start, end), attributes, events, links, status)| {
            trace::Span {
                trace_id,
                span_id,
                parent_span_id: parent.unwrap_or_default(),
                name,
                trace_state,
                kind: 1,
                start_time_unix_nano: start,
                end_time_unix_nano: end,
                attributes,
                events,
                links,
                status,
                ..Default::default()
            }
        },
    )
}

pub(crate) fn log() -> impl Strategy<Value = LogRecord> {
    let texts = (".{0,10}", ".{0,10}");
    (any::<u64>(), texts, prop::option::of(any_value()), attributes()).prop_map(
        |(time_unix_nano, (severity_text, event_name), body, attributes)| LogRecord {
            time_unix_nano,
            severity_text,
            event_name,
            body,
            attributes,
            trace_id: vec![1; 16],
            span_id: vec![2; 8],
            ..Default::default()
        },
    )
}
