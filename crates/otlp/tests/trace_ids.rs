//! Other ids for traces, and everything else as it was.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod messages;

use gradus_otlp::change_trace_ids;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::trace::v1::span::Link;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message as _;

fn other(id: [u8; 16]) -> [u8; 16] {
    id.map(|byte| byte ^ 0xff)
}

fn spans(id: &[u8]) -> ExportTraceServiceRequest {
    let link = Link { trace_id: id.to_vec(), span_id: vec![3; 8], ..Link::default() };
    let span = |name: &str, links: Vec<Link>| Span {
        trace_id: id.to_vec(),
        span_id: vec![2; 8],
        name: name.to_owned(),
        links,
        ..Span::default()
    };
    let scopes =
        vec![ScopeSpans { spans: vec![span("one", Vec::new()), span("two", vec![link])], ..ScopeSpans::default() }];
    ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans { scope_spans: scopes, ..ResourceSpans::default() }],
    }
}

fn logs(id: &[u8]) -> ExportLogsServiceRequest {
    let record = LogRecord { time_unix_nano: 5, trace_id: id.to_vec(), span_id: vec![2; 8], ..LogRecord::default() };
    let scopes = vec![ScopeLogs { log_records: vec![record], ..ScopeLogs::default() }];
    ExportLogsServiceRequest { resource_logs: vec![ResourceLogs { scope_logs: scopes, ..ResourceLogs::default() }] }
}

#[test]
fn ids_of_spans_links_and_logs_change_and_nothing_else() {
    let mut both = [spans(&[7; 16]).encode_to_vec(), logs(&[7; 16]).encode_to_vec()].concat();
    change_trace_ids(&mut both, &other).unwrap();
    let wanted = other([7; 16]);
    assert_eq!(both, [spans(&wanted).encode_to_vec(), logs(&wanted).encode_to_vec()].concat());
}

#[test]
fn what_is_no_id_or_no_export_is_told_or_left() {
    let mut short = spans(&[7; 5]).encode_to_vec();
    change_trace_ids(&mut short, &other).unwrap();
    assert_eq!(short, spans(&[7; 5]).encode_to_vec());
    assert!(change_trace_ids(&mut [0x0a, 0x05, 0x01], &other).is_err());
}

proptest::proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(mut bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200)) {
        let length = bytes.len();
        let _ = change_trace_ids(&mut bytes, &other);
        proptest::prop_assert_eq!(bytes.len(), length);
    }

    #[test]
    fn changing_twice_is_changing_nothing(span in messages::span()) {
        let scopes = vec![ScopeSpans { spans: vec![span], ..ScopeSpans::default() }];
        let resources = vec![ResourceSpans { scope_spans: scopes, ..ResourceSpans::default() }];
        let mut bytes = ExportTraceServiceRequest { resource_spans: resources }.encode_to_vec();
        let before = bytes.clone();
        change_trace_ids(&mut bytes, &other).unwrap();
        change_trace_ids(&mut bytes, &other).unwrap();
        proptest::prop_assert_eq!(bytes, before);
    }
}
