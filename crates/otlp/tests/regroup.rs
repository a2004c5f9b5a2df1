//! A request that was taken apart by trace holds what it held before.

use gradus_otlp::{RecordLimits, TelemetrySignal, regroup_export};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message;

fn span(trace: u8, span: u8, name: &str) -> Span {
    Span {
        trace_id: vec![trace; 16],
        span_id: vec![span; 8],
        name: name.to_owned(),
        start_time_unix_nano: u64::from(span),
        end_time_unix_nano: 100,
        trace_state: "vendor=1".to_owned(),
        ..Span::default()
    }
}

fn request() -> ExportTraceServiceRequest {
    let scope = |name: &str, spans| ScopeSpans {
        scope: Some(InstrumentationScope { name: name.to_owned(), version: "2".to_owned(), ..Default::default() }),
        spans,
        schema_url: "https://schema/scope".to_owned(),
    };
    let resource = |scopes| ResourceSpans {
        resource: Some(Resource { dropped_attributes_count: 7, ..Resource::default() }),
        scope_spans: scopes,
        schema_url: "https://schema/resource".to_owned(),
    };
    ExportTraceServiceRequest {
        resource_spans: vec![
            resource(vec![
                scope("a", vec![span(1, 1, "one"), span(2, 2, "two"), span(1, 3, &"long ".repeat(100))]),
                scope("b", vec![span(1, 4, "four")]),
            ]),
            resource(vec![scope("c", vec![span(2, 5, "five"), span(0, 6, "no trace"), span(3, 0, "no id")])]),
        ],
    }
}

#[test]
fn every_record_is_in_the_part_of_its_trace_with_all_that_is_said_of_it() {
    let request = request();
    let bytes = request.encode_to_vec();
    let regrouped = regroup_export(&bytes, TelemetrySignal::Span, &RecordLimits::default()).expect("a request");
    assert_eq!(regrouped.rejected.count, 2);
    assert_eq!(regrouped.rejected.reason.as_deref(), Some("a span without a trace id"));
    let mut found = Vec::new();
    for part in &regrouped.parts {
        let mut bytes = Vec::new();
        regrouped.write(part, &mut bytes);
        let message = ExportTraceServiceRequest::decode(bytes.as_slice()).expect("a request again");
        for resource in message.resource_spans {
            assert_eq!(resource.schema_url, "https://schema/resource");
            assert_eq!(resource.resource.expect("kept").dropped_attributes_count, 7);
            for scope in resource.scope_spans {
                assert_eq!(scope.schema_url, "https://schema/scope");
                let name = scope.scope.expect("kept").name;
                for span in scope.spans {
                    assert_eq!(span.trace_id, part.trace_id.0.to_be_bytes());
                    found.push((name.clone(), span));
                }
            }
        }
    }
    let mut sent: Vec<(String, Span)> = request
        .resource_spans
        .into_iter()
        .flat_map(|resource| resource.scope_spans)
        .flat_map(|scope| {
            let name = scope.scope.expect("set").name;
            scope.spans.into_iter().map(move |span| (name.clone(), span))
        })
        .filter(|(_, span)| span.trace_id != [0; 16] && span.span_id != [0; 8])
        .collect();
    let key = |(_, span): &(String, Span)| span.span_id.clone();
    sent.sort_by_key(key);
    found.sort_by_key(key);
    assert_eq!(found, sent);
}

#[test]
fn rubbish_is_refused() {
    assert!(regroup_export(b"\x0a\xffrubbish", TelemetrySignal::Span, &RecordLimits::default()).is_err());
    let nothing =
        regroup_export(b"", TelemetrySignal::Span, &RecordLimits::default()).expect("an empty request is a request");
    assert!(nothing.parts.is_empty());
}
