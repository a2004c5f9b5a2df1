//! Small requests that would become large: what records have in common is not copied for each of them, and what is counted
//! is counted wherever it stands. The server outlives them, grades everybody else, and stays below its memory limit.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message as _;
use serde_json::json;

use crate::lab::{Lab, Reply, Server, eventually};
use crate::spans::{VISIT_OUTCOME_COUNT, Visit, attributes, export, span, trace_id};

const MAX_MEMORY_MIB: f64 = 512.0;

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn send(server: &Server, path: &str, body: &[u8]) -> Reply {
    let request = server.request("POST", path).header("content-type", "application/x-protobuf");
    request.header("content-encoding", "gzip").body(&gzip(body)).send()
}

fn send_spans(server: &Server, spans: Vec<Span>) {
    let reply = send(server, "/v1/traces", &export("amplified", spans));
    assert_eq!(reply.status, 200, "{}", reply.text());
}

/// Each in a scope of its own below one resource.
fn scopes_of_one_resource(attribute: (&str, &str), spans: Vec<Span>) -> Vec<u8> {
    let attributes = attributes(&[("openinference.project.name", "amplified"), attribute]);
    let scope_spans = spans.into_iter().map(|span| ScopeSpans { spans: vec![span], ..ScopeSpans::default() }).collect();
    let resource = Some(Resource { attributes, ..Resource::default() });
    let resource_spans = vec![ResourceSpans { resource, scope_spans, ..ResourceSpans::default() }];
    ExportTraceServiceRequest { resource_spans }.encode_to_vec()
}

/// Others are graded, nothing is quarantined, and memory stays below the limit.
fn check(server: &Server) {
    server.export(&export("good", Visit::new(1_000_000).spans()));
    eventually("everything is assembled", || (server.metric("gradus_traces_due")? == 0.0).then_some(()));
    assert_eq!(server.metric("gradus_traces_quarantined"), Some(0.0), "{}", server.log());
    assert_eq!(server.trace(&trace_id(1_000_000))["outcomes"].as_array().unwrap().len(), VISIT_OUTCOME_COUNT);
    let peak = server.peak_memory_mib();
    assert!(peak < MAX_MEMORY_MIB, "{peak} MiB");
}

/// What the OpenTelemetry collector sends at once by default.
#[test]
fn a_batch_of_many_small_traces_is_no_attack() {
    const BATCH: u128 = 8_192;
    let lab = Lab::new();
    let server = lab.serve();
    send_spans(&server, (1..=BATCH).map(|number| span(number, number as u64, "call")).collect());
    assert_eq!(server.json("/api/v1/projects")["items"][0]["traces"], json!(BATCH as u64));
}

#[test]
fn a_resource_is_stored_once_for_all_scopes_of_a_trace() {
    let lab = Lab::new();
    let server = lab.serve();
    let large = "a".repeat(300_000);
    let one_trace = (1..=6_000).map(|id| span(1, id, "s")).collect();
    let reply = send(&server, "/v1/traces", &scopes_of_one_resource(("k", &large), one_trace));
    assert_eq!(reply.status, 200, "{}", reply.text());
    let many_traces = (1..=1_500).map(|id| span(100 + u128::from(id), id, "s")).collect();
    let reply = send(&server, "/v1/traces", &scopes_of_one_resource(("k", &large), many_traces));
    assert_eq!(reply.status, 400, "{}", reply.text());
    assert!(reply.text().contains("send fewer traces in a request"), "{}", reply.text());
    // The same as JSON, which is brought into the other form first.
    let resource = json!({"attributes": [{"key": "k", "value": {"stringValue": large}}]});
    let scope = |id: u64| {
        let (trace, span) = (trace_id(2), format!("{id:016x}"));
        json!({"scope": {"name": id.to_string()}, "spans": [{"traceId": trace, "spanId": span, "name": "s"}]})
    };
    let scopes: Vec<_> = (1..=6_000).map(scope).collect();
    let request = json!({"resourceSpans": [{"resource": resource, "scopeSpans": scopes}]});
    let reply = server.request("POST", "/v1/traces").json(&request).send();
    assert_eq!(reply.status, 200, "{}", reply.text());
    check(&server);
}

/// Three traces with 1.2 million values each, more than are assembled together: in log records, in spans, in resources.
#[test]
fn values_are_counted_in_log_records_spans_and_resources() {
    // Assembled when all of it is there: what is expensive rests before it is assembled again.
    let lab = Lab::new();
    lab.write("gradus.toml", "[serve]\nquiet_s = 5\ngive_up_s = 5\n");
    let server = lab.serve();
    let empty = |count: usize| vec![KeyValue::default(); count];
    let agent = |trace: u128| Span {
        attributes: attributes(&[("openinference.span.kind", "AGENT"), ("input.value", "do it")]),
        ..span(trace, 1, "agent")
    };
    send_spans(&server, vec![agent(1), agent(2), agent(3)]);
    let record = |id: u64| LogRecord {
        trace_id: 1u128.to_be_bytes().to_vec(),
        span_id: 1u64.to_be_bytes().to_vec(),
        time_unix_nano: id,
        attributes: empty(60_000),
        ..LogRecord::default()
    };
    let scope_logs = vec![ScopeLogs { log_records: (1..=20).map(record).collect(), ..ScopeLogs::default() }];
    let resource_logs = vec![ResourceLogs { scope_logs, ..ResourceLogs::default() }];
    let body = ExportLogsServiceRequest { resource_logs }.encode_to_vec();
    assert_eq!(send(&server, "/v1/logs", &body).status, 200);
    let below = |trace: u128, id: u64| Span { parent_span_id: 1u64.to_be_bytes().to_vec(), ..span(trace, id, "s") };
    send_spans(&server, (2..=21).map(|id| Span { attributes: empty(60_000), ..below(2, id) }).collect());
    let of_resource = |id: u64| {
        let resource = Some(Resource { attributes: empty(60_000 + id as usize), ..Resource::default() });
        let scope_spans = vec![ScopeSpans { spans: vec![below(3, id)], ..ScopeSpans::default() }];
        ResourceSpans { resource, scope_spans, ..ResourceSpans::default() }
    };
    for id in 2..=21 {
        let body = ExportTraceServiceRequest { resource_spans: vec![of_resource(id)] }.encode_to_vec();
        assert_eq!(send(&server, "/v1/traces", &body).status, 200);
    }
    check(&server);
    for trace in 1..=3 {
        let shown = server.trace(&trace_id(trace));
        let defects = shown["trajectories"][0]["defects"].as_array().unwrap();
        assert!(defects.iter().any(|defect| defect["kind"] == "too_large"), "{trace}: {defects:?}");
    }
    // Phoenix's clients see what came first.
    assert_eq!(server.get("/v1/projects/amplified/spans?limit=1").status, 200);
    check(&server);
}

#[test]
fn names_that_many_have_in_common_are_not_copied_for_each() {
    let lab = Lab::new();
    let server = lab.serve();
    let tool = |trace: u128, id: u64, parent: u64, name: &str| Span {
        parent_span_id: if parent > 0 { parent.to_be_bytes().to_vec() } else { Vec::new() },
        attributes: attributes(&[("openinference.span.kind", "TOOL")]),
        ..span(trace, id, name)
    };
    let version = "1".repeat(3_500_000);
    let roots = (1..=2_900).map(|id| tool(1, id, 0, "t")).collect();
    let reply = send(&server, "/v1/traces", &scopes_of_one_resource(("service.version", &version), roots));
    assert_eq!(reply.status, 200, "{}", reply.text());
    let long = "x ".repeat(1_500_000);
    let mut below_one = vec![tool(2, 1, 0, &long)];
    below_one.extend((2..=2_900).map(|id| tool(2, id, 1, "")));
    send_spans(&server, below_one);
    check(&server);
}

#[test]
fn texts_within_texts_and_lists_of_parts_end_somewhere() {
    let lab = Lab::new();
    let server = lab.serve();
    let mut nested = "x".to_owned();
    for _ in 0..900 {
        nested = format!("\"{}\"", nested.replace('\\', "\\u005c").replace('"', "\\u0022"));
    }
    for (trace, key) in [(1, "output.value"), (2, "input.value")] {
        let mut one = span(trace, 1, "t");
        one.attributes = attributes(&[("openinference.span.kind", "TOOL"), ("tool.name", "t"), (key, &nested)]);
        send_spans(&server, vec![one]);
    }
    let parts = r#"{"type":"text","content":"a"},"#.repeat(500_000);
    let messages = format!(r#"[{{"role":"user","parts":[{}]}}]"#, parts.trim_end_matches(','));
    for id in 1..=3 {
        let mut one = span(3, id, "chat");
        one.attributes = attributes(&[("gen_ai.operation.name", "chat"), ("gen_ai.input.messages", &messages)]);
        send_spans(&server, vec![one]);
    }
    check(&server);
}

#[test]
fn an_answer_that_is_longer_than_what_it_tells_of_goes_through_a_file() {
    let lab = Lab::new();
    let server = lab.serve();
    let control = "\u{1}".repeat(1_500_000);
    for id in 1..=3 {
        let mut one = span(1, id, "t");
        one.attributes =
            attributes(&[("openinference.span.kind", "TOOL"), ("tool.name", "t"), ("output.value", &control)]);
        send_spans(&server, vec![one]);
    }
    check(&server);
    let trace = format!("/api/v1/traces/{}", trace_id(1));
    for path in [&*trace, "/api/v1/projects/amplified/spans", "/v1/projects/amplified/spans?limit=3"] {
        let reply = server.get(path);
        assert_eq!(reply.status, 200, "{path}");
        assert!(reply.body.len() > 6 * control.len(), "{path}: {}", reply.body.len());
    }
    check(&server);
}
