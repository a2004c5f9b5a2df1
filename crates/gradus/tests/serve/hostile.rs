//! Senders and readers that mean no good, or sleep: what they cost is bounded, and others do not notice them.

use std::io::Write as _;
use std::net::TcpStream;
use std::time::Instant;

use flate2::Compression;
use flate2::write::GzEncoder;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, KeyValue, any_value};
use prost::Message as _;
use serde_json::json;

use crate::lab::{Lab, Reply, Server, eventually};
use crate::spans::{attributes, export, span};

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn field(number: u8, body: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    let mut length = body.len();
    while length >= 0x80 {
        out.push(length as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
    out.extend(body);
    out
}

fn post_packed(server: &Server, body: &[u8]) -> Reply {
    let request = server.request("POST", "/v1/traces").header("content-type", "application/x-protobuf");
    request.header("content-encoding", "gzip").body(&gzip(body)).send()
}

/// A request is a few kilobytes on the wire, twenty megabytes of nothing, and would be a gigabyte of lists.
#[test]
fn what_is_small_on_the_wire_stays_small_in_memory() {
    let lab = Lab::new();
    let server = lab.serve();
    let before = server.peak_memory_mib();
    let empty_scopes = field(1, &[0x12, 0x00].repeat(9_000_000));
    assert_eq!(post_packed(&server, &empty_scopes).status, 200);
    let attributes = field(1, &field(1, &[0x0a, 0x00].repeat(60_000)));
    let many_resources = attributes.repeat(150);
    let reply = post_packed(&server, &many_resources);
    assert!(matches!(reply.status, 400 | 503), "{}", reply.text());
    let tiny: Vec<u8> = (1..600_000u128)
        .flat_map(|trace| field(2, &[field(1, &trace.to_be_bytes()), field(2, &[1; 8])].concat()))
        .collect();
    let reply = post_packed(&server, &field(1, &field(2, &tiny)));
    assert!(matches!(reply.status, 400 | 503), "{}", reply.text());
    let grown = server.peak_memory_mib() - before;
    assert!(grown < 250.0, "{grown} MiB more");
    server.export(&export("p", vec![span(1, 1, "fine")]));
}

#[test]
fn a_span_over_a_limit_is_refused_alone() {
    for redact in ["", "[[serve.redact]]\nname = \"token\"\npattern = \"tok-[0-9]+\"\n"] {
        let lab = Lab::with("", redact);
        let server = lab.serve();
        let mut value = AnyValue { value: Some(any_value::Value::StringValue("x".to_owned())) };
        for _ in 0..70 {
            value = AnyValue { value: Some(any_value::Value::ArrayValue(ArrayValue { values: vec![value] })) };
        }
        let mut deep = span(2, 2, "deep");
        deep.attributes.push(KeyValue { key: "deep".to_owned(), value: Some(value), ..KeyValue::default() });
        let spans = vec![span(1, 1, "first"), deep, span(2, 3, "sibling"), span(3, 4, "last")];
        let reply = server.post_traces(&export("p", spans));
        assert_eq!(reply.status, 200, "{}", reply.text());
        let partial = ExportTraceServiceResponse::decode(&*reply.body).unwrap().partial_success.unwrap();
        assert_eq!(partial.rejected_spans, 1);
        assert!(partial.error_message.contains("64 levels"), "{}", partial.error_message);
        let names: Vec<String> =
            server.spans("p").iter().map(|span| span["name"].as_str().unwrap().to_owned()).collect();
        assert_eq!(names.len(), 3, "{names:?}");
    }
}

#[test]
fn who_says_nothing_does_not_keep_his_place() {
    let lab = Lab::with("connections = 6", "");
    let server = lab.serve();
    let silent: Vec<TcpStream> = (0..6).map(|_| TcpStream::connect(server.http).unwrap()).collect();
    let started = Instant::now();
    assert_eq!(server.get("/healthz").status, 200);
    println!("answered after {:?}", started.elapsed());
    drop(silent);
}

#[test]
fn sleeping_readers_leave_room_for_others() {
    let lab = Lab::new();
    let server = lab.serve();
    let text: String = (0..200_000u64).map(|n| char::from(b'a' + (n * n % 26) as u8)).collect();
    for id in 1..=60 {
        let mut one = span(id, 1, "large");
        one.attributes = attributes(&[("input.value", &text)]);
        server.export(&export("p", vec![one]));
    }
    let download = server.request("GET", "/api/v1/projects/p/spans");
    let sleeping: Vec<TcpStream> = (0..4).map(|_| download.begin(0)).collect();
    // They get what the sockets hold, and then sleep, until somebody else wants their place.
    eventually("others wait for them", || (server.metric("gradus_queries_waiting")? > 0.0).then_some(()));
    assert_eq!(server.request("GET", "/api/v1/projects/p/otlp").send().status, 200);
    assert_eq!(server.json("/api/v1/traces?limit=5")["items"].as_array().unwrap().len(), 5);
    server.export(&export("p", vec![span(99, 1, "meanwhile")]));
    drop(sleeping);
    eventually("the room is there again", || {
        (server.request("GET", "/api/v1/projects/p/otlp").send().status == 200).then_some(())
    });
}

#[test]
fn a_note_that_is_too_long_or_no_json_is_refused() {
    let lab = Lab::new();
    let server = lab.serve();
    let post = |kind: &str, body: &[u8]| {
        server.request("POST", "/api/v1/annotations").header("content-type", kind).body(body).send()
    };
    let long = json!({"items": [], "x": "x".repeat(3 << 20)}).to_string();
    assert_eq!(post("application/json", long.as_bytes()).status, 413);
    assert_eq!(post("text/plain", b"{\"items\": []}").status, 415);
    let reply = post("application/json", b"{\"items\": ");
    assert_eq!(reply.status, 400);
    assert!(reply.error().contains("EOF"), "{}", reply.text());
    assert_eq!(post("application/json", b"{\"items\": []}").status, 200);
}
