//! Texts changed in the bytes against texts changed through `prost`, on random messages.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod messages;

use gradus_otlp::{RecordLimits, TelemetrySignal, TextKind, WireError, rewrite_resource_texts, rewrite_texts};
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, KeyValue};
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::Span;
use proptest::prelude::*;
use prost::Message;

use messages::{attributes, key_value, log, span};

type Change<'c> = &'c mut dyn FnMut(&str) -> Option<String>;

fn change_text(text: &mut String, change: Change<'_>) {
    if let Some(changed) = change(text) {
        *text = changed;
    }
}

fn change_value(value: &mut AnyValue, change: Change<'_>) {
    match &mut value.value {
        Some(Any::StringValue(text)) => change_text(text, change),
        Some(Any::BytesValue(bytes)) => {
            if let Ok(mut text) = String::from_utf8(bytes.clone()) {
                change_text(&mut text, change);
                *bytes = text.into_bytes();
            }
        }
        Some(Any::ArrayValue(array)) => array.values.iter_mut().for_each(|value| change_value(value, change)),
        Some(Any::KvlistValue(map)) => change_pairs(&mut map.values, change),
        _ => {}
    }
}

fn change_pairs(pairs: &mut [KeyValue], change: Change<'_>) {
    pairs.iter_mut().filter_map(|pair| pair.value.as_mut()).for_each(|value| change_value(value, change));
}

fn change_span(span: &mut Span, change: Change<'_>) {
    change_text(&mut span.name, change);
    change_text(&mut span.trace_state, change);
    change_pairs(&mut span.attributes, change);
    for event in &mut span.events {
        change_text(&mut event.name, change);
        change_pairs(&mut event.attributes, change);
    }
    for link in &mut span.links {
        change_text(&mut link.trace_state, change);
        change_pairs(&mut link.attributes, change);
    }
    if let Some(status) = &mut span.status {
        change_text(&mut status.message, change);
    }
}

fn change_log(log: &mut LogRecord, change: Change<'_>) {
    change_text(&mut log.severity_text, change);
    change_text(&mut log.event_name, change);
    if let Some(body) = &mut log.body {
        change_value(body, change);
    }
    change_pairs(&mut log.attributes, change);
}

/// Makes some texts longer, some shorter and some empty, and leaves some; lengths change over the one-byte border.
fn edit(text: &str) -> Option<String> {
    match text.chars().count() % 5 {
        0 => None,
        1 => Some(String::new()),
        2 => Some(text.repeat(80)),
        3 => Some(text.to_owned()),
        _ => Some(text.chars().rev().collect()),
    }
}

/// Changes only what is a text.
fn rewrite(bytes: &[u8], signal: TelemetrySignal, change: Change<'_>) -> Result<Option<Vec<u8>>, WireError> {
    let mut change = |kind, text: &str| if kind == TextKind::Text { change(text) } else { None };
    rewrite_texts(bytes, signal, &RecordLimits::default(), &mut change)
}

fn rewritten(bytes: &[u8], signal: TelemetrySignal, change: Change<'_>) -> Vec<u8> {
    rewrite(bytes, signal, change).unwrap().unwrap_or_else(|| bytes.to_vec())
}

/// A field that no message has.
fn unknown_field() -> Vec<u8> {
    let mut bytes = Vec::new();
    prost::encoding::string::encode(901, &"kept".to_owned(), &mut bytes);
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn spans_change_as_through_prost(span in span()) {
        let bytes = span.encode_to_vec();
        let mut wanted = span;
        change_span(&mut wanted, &mut edit);
        prop_assert_eq!(Span::decode(rewritten(&bytes, TelemetrySignal::Span, &mut edit).as_slice()).unwrap(), wanted);
    }

    #[test]
    fn logs_change_as_through_prost(log in log()) {
        let bytes = log.encode_to_vec();
        let mut wanted = log;
        change_log(&mut wanted, &mut edit);
        prop_assert_eq!(LogRecord::decode(rewritten(&bytes, TelemetrySignal::Log, &mut edit).as_slice()).unwrap(), wanted);
    }

    #[test]
    fn resources_change_as_through_prost(attributes in attributes()) {
        let mut resource = Resource { attributes, ..Default::default() };
        let bytes = resource.encode_to_vec();
        change_pairs(&mut resource.attributes, &mut edit);
        let mut change = |kind, text: &str| if kind == TextKind::Text { edit(text) } else { None };
        let found = rewrite_resource_texts(&bytes, &RecordLimits::default(), &mut change).unwrap().unwrap_or(bytes);
        prop_assert_eq!(Resource::decode(found.as_slice()).unwrap(), resource);
    }

    #[test]
    fn without_a_change_there_is_no_copy(span in span(), log in log()) {
        let limits = RecordLimits::default();
        for (bytes, signal) in [(span.encode_to_vec(), TelemetrySignal::Span), (log.encode_to_vec(), TelemetrySignal::Log)] {
            prop_assert_eq!(rewrite_texts(&bytes, signal, &limits, &mut |_, _| None), Ok(None));
            prop_assert_eq!(rewrite_texts(&bytes, signal, &limits, &mut |_, text| Some(text.to_owned())), Ok(None));
        }
    }

    #[test]
    fn all_other_bytes_are_kept(span in span()) {
        // Before, after, and within what changes.
        let mut bytes = unknown_field();
        let mut pair = key_value("k".to_owned(), AnyValue { value: Some(Any::StringValue("ab".to_owned())) }).encode_to_vec();
        pair.extend(unknown_field());
        prost::encoding::bytes::encode(9, &pair, &mut bytes);
        bytes.extend(span.encode_to_vec());
        bytes.extend(unknown_field());
        let there = rewritten(&bytes, TelemetrySignal::Span, &mut |text| (text == "ab").then(|| "x".repeat(200)));
        let back = rewritten(&there, TelemetrySignal::Span, &mut |text| (text.len() == 200).then(|| "ab".to_owned()));
        prop_assert_ne!(&there, &bytes);
        prop_assert_eq!(back, bytes);
    }

    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        for signal in [TelemetrySignal::Span, TelemetrySignal::Log] {
            let _ = rewrite_texts(&bytes, signal, &RecordLimits::default(), &mut |_, text| edit(text));
        }
        let _ = rewrite_resource_texts(&bytes, &RecordLimits::default(), &mut |_, text| edit(text));
    }
}

#[test]
fn text_that_is_not_utf_8_is_seen_as_decoded() {
    // A span whose name is "key=<0xff>".
    let bytes = [0x2a, 0x05, b'k', b'e', b'y', b'=', 0xff];
    let mut seen = Vec::new();
    let kept = rewrite_texts(&bytes, TelemetrySignal::Span, &RecordLimits::default(), &mut |_, text| {
        seen.push(text.to_owned());
        None
    });
    assert_eq!((kept, seen), (Ok(None), vec!["key=\u{fffd}".to_owned()]));
    assert_eq!(rewritten(&bytes, TelemetrySignal::Span, &mut |_| Some("x".to_owned())), [0x2a, 0x01, b'x']);
}

#[test]
fn keys_numbers_and_unknown_fields_are_told_apart() {
    let values =
        [Any::IntValue(123_456), Any::DoubleValue(1234.5), Any::IntValue(7), Any::BytesValue(vec![b'a', 0xff])];
    let attributes = values.into_iter().map(|value| key_value("k".to_owned(), AnyValue { value: Some(value) }));
    let span = Span { attributes: attributes.collect(), start_time_unix_nano: 9_999, kind: 3, ..Default::default() };
    let mut bytes = span.encode_to_vec();
    bytes.extend(unknown_field());
    prost::encoding::uint64::encode(902, &5_555, &mut bytes);
    let mut seen = Vec::new();
    let changed = rewrite_texts(&bytes, TelemetrySignal::Span, &RecordLimits::default(), &mut |kind, text| {
        seen.push((kind, text.to_owned()));
        (kind != TextKind::Key).then(|| "x".to_owned())
    });
    let expected = [
        (TextKind::Key, "k"),
        (TextKind::Number, "123456"),
        (TextKind::Key, "k"),
        (TextKind::Number, "1234.5"),
        (TextKind::Key, "k"),
        (TextKind::Key, "k"),
        (TextKind::Binary, "a\u{fffd}"),
        (TextKind::Unknown, "kept"),
        (TextKind::Unknown, "5555"),
    ];
    assert_eq!(seen, expected.map(|(kind, text)| (kind, text.to_owned())));
    let mut wanted = span;
    let text = || Some(Any::StringValue("x".to_owned()));
    let bytes = || Some(Any::BytesValue(b"x".to_vec()));
    for (index, value) in [(0, text()), (1, text()), (3, bytes())] {
        wanted.attributes[index].value = Some(AnyValue { value });
    }
    // The unknown fields are left out.
    assert_eq!(changed, Ok(Some(wanted.encode_to_vec())));
}

#[test]
fn limits_are_named() {
    let value = |value| AnyValue { value: Some(value) };
    let limits = RecordLimits { attributes: 3, nesting: 2, ..RecordLimits::default() };
    let refused = |attributes: Vec<KeyValue>, limits: &RecordLimits| {
        let span = Span { attributes, ..Default::default() };
        rewrite_texts(&span.encode_to_vec(), TelemetrySignal::Span, limits, &mut |_, _| None).unwrap_err().to_string()
    };
    let many = vec![key_value("k".to_owned(), AnyValue::default()); 4];
    assert!(refused(many, &limits).contains("limit 3"));
    let mut deep = value(Any::IntValue(1));
    for _ in 0..3 {
        deep = value(Any::ArrayValue(ArrayValue { values: vec![deep] }));
    }
    let limits = RecordLimits { attributes: 30, ..limits };
    assert!(refused(vec![key_value("k".to_owned(), deep)], &limits).contains("limit 2"));
}
