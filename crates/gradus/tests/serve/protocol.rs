//! OTLP as it is specified, over HTTP and gRPC: what is taken, what is refused, and how that is said.

use std::io::Write as _;

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceResponse;
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use prost::Message;
use serde_json::{Value as Json, json};

use crate::lab::{LOGS_SERVICE, Lab, Reply, Request, Server, TRACE_SERVICE, eventually, frame, grpc};
use crate::spans::{Visit, export, log, now_ns, request, span, trace_id};

type Headers<'h> = &'h [(&'h str, &'h str)];

/// `google.rpc.Status`.
#[derive(Clone, PartialEq, Message)]
struct RpcStatus {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 3).unwrap()
}

fn post(server: &Server) -> Request {
    server.request("POST", "/v1/traces").header("content-type", "application/x-protobuf")
}

fn post_json(server: &Server) -> Request {
    server.request("POST", "/v1/traces").header("content-type", "application/json")
}

fn success(reply: &Reply) -> ExportTraceServiceResponse {
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(reply.header("content-type"), Some("application/x-protobuf"));
    ExportTraceServiceResponse::decode(reply.body.as_slice()).unwrap()
}

/// One span as OTLP has it in JSON.
fn json_span(trace: &str, id: &str) -> Json {
    let now = now_ns();
    json!({"resourceSpans": [{"resource": {"attributes": [
        {"key": "openinference.project.name", "value": {"stringValue": "p"}}]},
        "scopeSpans": [{"spans": [{"traceId": trace, "spanId": id, "name": "json", "kind": 1,
            "startTimeUnixNano": (now - 5).to_string(), "endTimeUnixNano": now.to_string(),
            "attributes": [{"key": "n", "value": {"intValue": "7"}}]}]}]}]})
}

#[test]
fn spans_come_in_every_form() {
    let lab = Lab::new();
    let server = lab.serve();
    let one = |id: u64| export("p", vec![span(1, id, "protobuf")]);
    let json = |id: &str| json_span(&trace_id(1), id).to_string().into_bytes();
    let taken = [
        post(&server).body(&one(1)),
        post(&server).header("content-encoding", "identity").body(&one(2)),
        post(&server).header("content-encoding", "gzip").body(&gzip(&one(3))),
        post(&server).header("content-encoding", "zstd").body(&zstd(&one(4))),
        post(&server).chunked().body(&one(5)),
        post(&server).chunked().header("content-encoding", "gzip").body(&gzip(&one(6))),
    ];
    for request in taken {
        assert_eq!(success(&request.send()), ExportTraceServiceResponse::default());
    }
    let taken = [
        post_json(&server).body(&json("0000000000000011")),
        post_json(&server).header("content-encoding", "gzip").body(&gzip(&json("0000000000000012"))),
        post_json(&server).header("content-encoding", "zstd").chunked().body(&zstd(&json("0000000000000013"))),
        // Lower and upper case, and with the character set said.
        server
            .request("POST", "/v1/traces")
            .header("content-type", "application/json; charset=utf-8")
            .body(&json("00000000000000AB")),
    ];
    for request in taken {
        let reply = request.send();
        assert_eq!((reply.status, reply.header("content-type")), (200, Some("application/json")));
        assert_eq!(reply.json(), json!({}), "nothing is partial about it");
    }
    let mut ids: Vec<String> =
        server.spans("p").iter().map(|span| span["span_id"].as_str().unwrap().to_owned()).collect();
    ids.sort();
    let wanted = [1, 2, 3, 4, 5, 6, 0x11, 0x12, 0x13, 0xab].map(|id: u64| format!("{id:016x}"));
    assert_eq!(ids, wanted);
    let spans = server.spans("p");
    let json = spans.iter().find(|span| span["span_id"] == "0000000000000011").unwrap();
    assert_eq!((&json["name"], &json["attributes"]["n"]), (&json!("json"), &json!(7)));
}

#[test]
fn nothing_is_a_request_too() {
    let lab = Lab::new();
    let server = lab.serve();
    assert_eq!(success(&post(&server).send()), ExportTraceServiceResponse::default());
    let empty = ExportTraceServiceRequest { resource_spans: vec![Default::default()] }.encode_to_vec();
    assert_eq!(success(&post(&server).body(&empty).send()), ExportTraceServiceResponse::default());
    for body in ["{}", r#"{"resourceSpans":[]}"#] {
        assert_eq!(post_json(&server).body(body.as_bytes()).send().json(), json!({}));
    }
    assert_eq!(server.post_logs(&[]).status, 200);
    assert_eq!(server.json("/api/v1/projects")["items"], json!([]));
}

#[test]
fn refused_spans_are_counted_and_the_others_kept() {
    let lab = Lab::new();
    let server = lab.serve();
    let mut spans: Vec<_> = (1..=6).map(|id| span(1, id, "s")).collect();
    spans[0].trace_id = vec![0; 16];
    spans[1].span_id = vec![0; 8];
    spans[2].trace_id = vec![1; 15];
    spans[3].span_id = Vec::new();
    let partial = success(&post(&server).body(&export("p", spans)).send()).partial_success.unwrap();
    assert_eq!(partial.rejected_spans, 4);
    assert!(!partial.error_message.is_empty() && !partial.error_message.contains('\n'), "{partial:?}");
    assert_eq!(server.spans("p").len(), 2);
    // The same in JSON.
    for (trace, id) in [
        (trace_id(0), "0000000000000021".to_owned()),
        (trace_id(1), "0000000000000000".to_owned()),
        (String::new(), "0000000000000021".to_owned()),
        (trace_id(1), String::new()),
    ] {
        let mut both = json_span(&trace, &id);
        let good = json_span(&trace_id(1), "0000000000000022")["resourceSpans"][0].clone();
        both["resourceSpans"].as_array_mut().unwrap().push(good);
        let reply = post_json(&server).body(both.to_string().as_bytes()).send();
        assert_eq!(reply.status, 200, "{trace} {id}: {}", reply.text());
        let partial = &reply.json()["partialSuccess"];
        // 64-bit numbers are texts in OTLP's JSON.
        assert_eq!(partial["rejectedSpans"], "1", "{trace} {id}: {partial}");
        assert!(partial["errorMessage"].as_str().is_some_and(|reason| !reason.is_empty()), "{partial}");
    }
    assert_eq!(server.spans("p").len(), 3);
    assert_eq!(server.metric(r#"gradus_ingest_records_total{signal="span",result="rejected"}"#), Some(8.0));
}

#[test]
fn a_bad_body_is_told_in_the_senders_own_encoding() {
    let lab = Lab::new();
    let server = lab.serve();
    let good = export("p", vec![span(1, 1, "s")]);
    let bad: [(Request, u16); 6] = [
        (post(&server).body(b"\xff\xff\xff"), 400),
        (post(&server).body(&good[..good.len() - 3]), 400),
        (post(&server).header("content-encoding", "gzip").body(&good), 400),
        (post(&server).header("content-encoding", "zstd").body(&zstd(&good)[..20]), 400),
        (post(&server).header("content-encoding", "br").body(&good), 415),
        (post(&server).header("content-length", "40000000"), 413),
    ];
    for (request, wanted) in bad {
        let reply = request.send();
        assert_eq!((reply.status, reply.header("content-type")), (wanted, Some("application/x-protobuf")));
        let status = RpcStatus::decode(reply.body.as_slice()).unwrap();
        assert!(status.code != 0 && !status.message.is_empty() && !status.message.contains('\n'), "{status:?}");
        assert_eq!(reply.header("retry-after"), None, "it will not get better");
    }
    let bad: [(Request, u16); 6] = [
        (post_json(&server).body(b"{"), 400),
        (post_json(&server).body(b"[]"), 400),
        (post_json(&server).body(b""), 400),
        (post_json(&server).body(br#"{"resourceSpans": 7}"#), 400),
        (post_json(&server).header("content-encoding", "deflate").body(b"{}"), 415),
        (post_json(&server).header("content-length", "40000000"), 413),
    ];
    for (number, (request, wanted)) in bad.into_iter().enumerate() {
        let reply = request.send();
        assert_eq!(
            (reply.status, reply.header("content-type")),
            (wanted, Some("application/json")),
            "{number}: {}",
            reply.text()
        );
        let status = reply.json();
        assert!(status["code"].as_i64().is_some_and(|code| code != 0), "{status}");
        assert!(status["message"].as_str().is_some_and(|message| !message.is_empty()), "{status}");
    }
    let reply = server.request("POST", "/v1/traces").header("content-type", "text/plain").body(&good).send();
    assert_eq!(reply.status, 415);
    assert_eq!(server.request("POST", "/v1/traces").body(&good).send().status, 415);
    assert_eq!(server.spans("p").len(), 0);
}

#[test]
fn what_is_too_large_is_refused_packed_or_not() {
    let lab = Lab::with("max_request_mb = 1\nmax_memory_mb = 16", "");
    let server = lab.serve();
    let mut large = span(1, 1, "s");
    large.attributes = crate::spans::attributes(&[("text", &"a".repeat(1 << 20))]);
    let large = export("p", vec![large]);
    // A bomb: a thousand times smaller than what it unpacks to.
    let bomb = gzip(&vec![0; 100 << 20]);
    assert!(bomb.len() < 200_000);
    for request in [
        post(&server).body(&large),
        post(&server).chunked().body(&large),
        post(&server).header("content-encoding", "gzip").body(&gzip(&large)),
        post(&server).header("content-encoding", "zstd").body(&zstd(&large)),
        post(&server).header("content-encoding", "gzip").body(&bomb),
        post(&server).header("content-encoding", "zstd").body(&zstd(&vec![0; 100 << 20])),
    ] {
        // Who still sends when the answer comes may see the connection's end first.
        let Some(reply) = request.try_send() else { continue };
        assert_eq!(reply.status, 413, "{}", reply.text());
        let status = RpcStatus::decode(reply.body.as_slice()).unwrap();
        assert!(status.message.contains("max_request_mb"), "{status:?}");
    }
    let reply = grpc(server.grpc, TRACE_SERVICE, &[("grpc-encoding", "gzip")], frame(true, &bomb));
    assert_eq!(reply.status(), 8, "{reply:?}");
    // It has taken no harm, and holds nothing back.
    server.export(&export("p", vec![span(1, 2, "s")]));
    assert_eq!(server.spans("p").len(), 1);
    // Whoever asks for it holds a little itself.
    let held = server.metric("gradus_request_memory_bytes");
    assert!(held.is_some_and(|bytes| bytes < 16384.0), "{held:?}");
}

#[test]
fn other_addresses_and_methods_are_told_in_json() {
    let lab = Lab::new();
    let server = lab.serve();
    for path in ["/nothing", "/v1/metrics", "/v1/traces/", "/api/v1/none", "/../../etc/passwd", "/%2e%2e/etc"] {
        let reply = server.get(path);
        assert_eq!((reply.status, reply.header("content-type")), (404, Some("application/json")), "{path}");
        assert!(!reply.error().is_empty());
    }
    for (method, path) in [("GET", "/v1/traces"), ("PUT", "/v1/logs"), ("DELETE", "/api/v1/traces")] {
        let reply = server.request(method, path).send();
        assert_eq!(reply.status, 405, "{method} {path}");
        assert!(reply.header("allow").is_some(), "{method} {path}");
        assert!(!reply.error().is_empty());
    }
}

#[test]
fn grpc_takes_what_http_takes() {
    let lab = Lab::new();
    let server = lab.serve();
    let one = |id: u64| export("p", vec![span(1, id, "s")]);
    let calls: [(Headers<'_>, Vec<u8>); 5] = [
        (&[], frame(false, &one(1))),
        (&[("content-type", "application/grpc+proto")], frame(false, &one(2))),
        (&[("grpc-encoding", "gzip")], frame(true, &gzip(&one(3)))),
        (&[("grpc-encoding", "zstd")], frame(true, &zstd(&one(4)))),
        // A sender may say how it packs and not do it.
        (&[("grpc-encoding", "gzip")], frame(false, &one(5))),
    ];
    for (headers, body) in calls {
        let reply = grpc(server.grpc, TRACE_SERVICE, headers, body);
        assert_eq!((reply.http_status, reply.status()), (200, 0), "{reply:?}");
        assert!(reply.trailers.is_some(), "the status comes behind the message");
        assert_eq!(reply.headers["content-type"], "application/grpc");
        assert_eq!(reply.body, frame(false, &[]));
    }
    let mut spans = vec![span(1, 6, "s"), span(1, 7, "s")];
    spans[0].span_id = vec![0; 8];
    let reply = grpc(server.grpc, TRACE_SERVICE, &[], frame(false, &export("p", spans)));
    let partial = ExportTraceServiceResponse::decode(&reply.body[5..]).unwrap().partial_success.unwrap();
    assert_eq!((reply.status(), partial.rejected_spans), (0, 1));
    // Both protocols are spoken on both ports.
    assert_eq!(grpc(server.http, TRACE_SERVICE, &[], frame(false, &one(8))).status(), 0);
    let http = Request::new(server.grpc, "POST", "/v1/traces").header("content-type", "application/x-protobuf");
    assert_eq!(http.body(&one(9)).send().status, 200);
    assert_eq!(server.spans("p").len(), 8);
    let reply = grpc(server.grpc, LOGS_SERVICE, &[], frame(false, &log("p", 1, 1, "e", "said")));
    assert_eq!(reply.status(), 0, "{reply:?}");
    assert_eq!(ExportLogsServiceResponse::decode(&reply.body[5..]).unwrap(), Default::default());
}

#[test]
fn grpc_errors_have_their_own_numbers() {
    let lab = Lab::new();
    let server = lab.serve();
    let good = export("p", vec![span(1, 1, "s")]);
    let mut cut = frame(false, &good);
    cut.truncate(30);
    let calls: [(Headers<'_>, Vec<u8>, u32); 7] = [
        (&[], frame(false, b"\xff\xff\xff"), 3),
        (&[], Vec::new(), 3),
        (&[], cut, 3),
        (&[], frame(true, &gzip(&good)), 3),
        (&[("grpc-encoding", "gzip")], frame(true, &good), 3),
        (&[("grpc-encoding", "snappy")], frame(true, &good), 12),
        (&[("content-type", "application/grpc+json")], frame(false, &good), 12),
    ];
    for (number, (headers, body, wanted)) in calls.into_iter().enumerate() {
        let reply = grpc(server.grpc, TRACE_SERVICE, headers, body);
        assert_eq!((reply.http_status, reply.status()), (200, wanted), "{number}: {reply:?}");
        assert!(!reply.message().is_empty(), "{number}");
    }
    // A service that is not there is unimplemented, as every gRPC client expects.
    let path = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export";
    let reply = grpc(server.grpc, path, &[], frame(false, &[]));
    assert_eq!((reply.http_status, reply.status()), (200, 12), "{reply:?}");
    assert_eq!(server.spans("p").len(), 0);
}

#[test]
fn log_records_go_to_the_span_they_name() {
    let lab = Lab::new();
    let server = lab.serve();
    let visit = Visit::new(77);
    let id = 77 << 8 | 2;
    // Before its span, and after it.
    let first = log("p", 77, id, "gen_ai.user.message", "hello");
    assert_eq!(server.post_logs(&first).status, 200);
    server.export(&visit.export("p"));
    assert_eq!(server.post_logs(&log("p", 77, id, "gen_ai.choice", "bye")).status, 200);
    server.assembled();
    let trace = server.trace(&trace_id(77));
    assert_eq!(trace["trace"]["spans"], 3);
    assert_eq!(trace["trajectories"].as_array().unwrap().len(), 1);
    // What goes out again is what came in.
    let bytes = server.get("/api/v1/projects/p/otlp").body;
    let holds = |text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(holds("hello") && holds("bye"));
    // Log records that belong to no trace are refused, and counted.
    let reply = server.post_logs(&log("p", 0, 0, "e", "of nobody"));
    assert_eq!(reply.status, 200, "{}", reply.text());
    let partial = ExportLogsServiceResponse::decode(reply.body.as_slice()).unwrap().partial_success.unwrap();
    assert_eq!(partial.rejected_log_records, 1);
    let json = json!({"resourceLogs": [{"scopeLogs": [{"logRecords": [{"timeUnixNano": "5",
        "traceId": trace_id(77), "spanId": format!("{id:016x}"), "body": {"stringValue": "third"}}]}]}]});
    let reply = server.request("POST", "/v1/logs").json(&json).send();
    assert_eq!((reply.status, reply.json()), (200, json!({})));
}

#[test]
fn a_project_is_named_by_header_or_resource() {
    let lab = Lab::new();
    let server = lab.serve();
    let reply = post(&server).header("x-project-name", "of header").body(&Visit::new(1).export("of resource"));
    assert_eq!(reply.send().status, 200);
    server.export(&Visit::new(2).export("of resource"));
    let mut plain = request("x", Visit::new(3).spans());
    plain.resource_spans[0].resource.as_mut().unwrap().attributes =
        crate::spans::attributes(&[("service.name", "of service")]);
    server.export(&plain.encode_to_vec());
    plain = request("x", Visit::new(4).spans());
    plain.resource_spans[0].resource = None;
    server.export(&plain.encode_to_vec());
    let call = grpc(
        server.grpc,
        TRACE_SERVICE,
        &[("x-project-name", "of header")],
        frame(false, &Visit::new(5).export("of resource")),
    );
    assert_eq!(call.status(), 0);
    server.assembled();
    let projects = server.json("/api/v1/projects");
    let found: Vec<(&str, i64)> = projects["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|project| (project["name"].as_str().unwrap(), project["traces"].as_i64().unwrap()))
        .collect();
    assert_eq!(found, [("default", 1), ("of header", 2), ("of resource", 1), ("of service", 1)]);
    assert_eq!(server.trace(&trace_id(1))["trajectories"][0]["project"], "of header");
}

/// Memory is bounded: whoever comes when it is full is told when to come again, and nobody who was taken is dropped.
#[test]
fn full_memory_is_told_with_a_time_to_come_again() {
    let lab = Lab::with("max_request_mb = 4\nmax_memory_mb = 16\nmax_memory_per_address_mb = 0", "");
    let server = lab.serve();
    let mut large = span(1, 1, "s");
    let noise: String = (0..3 << 20).map(|_| fastrand::alphanumeric()).collect();
    large.attributes = crate::spans::attributes(&[("text", &noise)]);
    let large = export("p", vec![large]);
    // Three senders that do not come to an end.
    let slow: Vec<_> = (0..3).map(|_| post(&server).body(&large).begin(large.len() - 1)).collect();
    let refused = eventually("the memory is full", || {
        let reply = post(&server).body(&large).send();
        (reply.status != 200).then_some(reply)
    });
    assert!(matches!(refused.status, 429 | 503), "{}", refused.text());
    assert!(refused.header("retry-after").unwrap().parse::<u32>().unwrap() >= 1);
    let status = RpcStatus::decode(refused.body.as_slice()).unwrap();
    assert!(status.message.contains("later"), "{status:?}");
    let reply = grpc(server.grpc, TRACE_SERVICE, &[], frame(false, &large));
    assert_eq!(reply.status(), 14, "{reply:?}");
    assert!(reply.headers.contains_key("grpc-status-details-bin"), "it says when to come again");
    // Others are not in its way: the server answers, and small requests find room.
    assert_eq!(server.get("/healthz").status, 200);
    server.export(&export("p", vec![span(2, 2, "s")]));
    // Those that go away give their room back.
    drop(slow);
    eventually("there is room", || (server.post_traces(&large).status == 200).then_some(()));
}
