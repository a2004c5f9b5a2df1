//! What requests and unread responses may hold: whatever is sent, however it is compressed, and whether or not the answer
//! is read, memory stays bounded and others are served.

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::json;

use crate::connections::connect_from;
use crate::http2::{GO_AWAY, Http2};
use crate::lab::{Lab, Reply, Request, Server, eventually};
use crate::spans::{attributes, export, span, trace_id};

/// Peak memory of the process in MiB that no test here may reach; the promise is 512.
const MAX_PEAK_MIB: f64 = 400.0;

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// A list of many small values, as text of so many bytes.
fn dense(unit: &str, bytes: usize) -> String {
    format!("[{}{unit}]", format!("{unit},").repeat(bytes / (unit.len() + 1)))
}

fn post_gzip(server: &Server, path: &str, body: &str) -> u16 {
    let request = server.request("POST", path).header("content-type", "application/json");
    request.header("content-encoding", "gzip").body(&gzip(body.as_bytes())).send().status
}

/// Every route that takes JSON, with a dense value in each place that takes any value.
fn routes_with(value: &str) -> Vec<(&'static str, String)> {
    let span = |fields: &str| {
        format!(
            r#"{{"data":[{{"name":"n","span_kind":"LLM","status_code":"OK","context":{{"trace_id":"{}","span_id":"00000000000000aa"}},"start_time":"2026-11-15T08:00:00Z","end_time":"2026-11-15T08:00:01Z",{fields}}}]}}"#,
            trace_id(7)
        )
    };
    let annotation = format!(
        r#"{{"data":[{{"name":"n","annotator_kind":"LLM","span_id":"aa","trace_id":"aa","session_id":"aa","document_position":1,"metadata":{{"a":{value}}}}}]}}"#
    );
    let otlp = |fields: &str| {
        format!(
            r#"{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{{"traceId":"{}","spanId":"00000000000000ab","name":"n",{fields}}}]}}]}}]}}"#,
            trace_id(8)
        )
    };
    vec![
        ("/v1/projects/x/spans", span(&format!(r#""attributes":{{"a":{value}}}"#))),
        ("/v1/projects/x/spans", span(&format!(r#""events":{value}"#))),
        ("/v1/projects/x/spans", format!(r#"{{"data":{value}}}"#)),
        ("/v1/span_annotations", annotation.clone()),
        ("/v1/trace_annotations", annotation.clone()),
        ("/v1/session_annotations", annotation.clone()),
        ("/v1/document_annotations", annotation),
        ("/v1/span_annotations", format!(r#"{{"data":{value}}}"#)),
        ("/v1/span_notes", format!(r#"{{"data":{{"span_id":"aa","note":"n","x":{value}}}}}"#)),
        ("/v1/spans", format!(r#"{{"queries":[{{"select":{{"a":{value}}}}}]}}"#)),
        ("/v1/projects", format!(r#"{{"name":"n","description":"d","x":{value}}}"#)),
        ("/v1/traces", otlp(&format!(r#""kind":{value}"#))),
        ("/v1/traces", otlp(&format!(r#""events":{value}"#))),
        ("/v1/traces", otlp(&format!(r#""links":{value}"#))),
        ("/v1/traces", otlp(&format!(r#""status":{{"code":{value}}}"#))),
        ("/v1/traces", otlp(&format!(r#""attributes":[{{"key":"a","value":{{"arrayValue":{{"values":{value}}}}}}}]"#))),
        ("/v1/traces", format!(r#"{{"resourceSpans":[{{"resource":{{"attributes":{value}}}}}]}}"#)),
        (
            "/v1/logs",
            format!(
                r#"{{"resourceLogs":[{{"scopeLogs":[{{"logRecords":[{{"body":{{"arrayValue":{{"values":{value}}}}}}}]}}]}}]}}"#
            ),
        ),
    ]
}

#[test]
fn dense_json_is_refused_before_it_is_parsed() {
    let lab = Lab::new();
    let server = lab.serve();
    for (unit, bytes) in [("[0]", 8 << 20), ("{\"\":0}", 8 << 20), ("{}", 1 << 20), ("0", 1 << 20)] {
        for (path, body) in routes_with(&dense(unit, bytes)) {
            let status = post_gzip(&server, path, &body);
            let is_answered = matches!(status, 200 | 202 | 400 | 404 | 409 | 413 | 422);
            assert!(is_answered, "{path} with {unit}: {status}");
        }
    }
    let peak = server.peak_memory_mib();
    assert!(peak < MAX_PEAK_MIB, "{peak} MiB");
    server.export(&export("p", vec![span(1, 1, "fine")]));
    assert_eq!(server.metric("gradus_request_memory_bytes").map(|bytes| bytes < 1e5), Some(true));
}

#[test]
fn many_dense_requests_at_once_share_one_budget() {
    let lab = Lab::new();
    let server = lab.serve();
    let routes = routes_with(&dense("[0]", 4 << 20));
    let bodies: Vec<(&str, Vec<u8>)> = routes.iter().map(|(path, body)| (*path, gzip(body.as_bytes()))).collect();
    std::thread::scope(|scope| {
        for sender in 0..12 {
            let (server, bodies) = (&server, &bodies);
            scope.spawn(move || {
                for (path, body) in bodies.iter().cycle().skip(sender).take(6) {
                    let request = server.request("POST", path).header("content-type", "application/json");
                    let reply = request.header("content-encoding", "gzip").body(body).send();
                    let is_answered = matches!(reply.status, 200 | 202 | 400 | 404 | 409 | 413 | 422 | 429 | 503);
                    assert!(is_answered, "{path}: {} {}", reply.status, reply.text());
                }
            });
        }
    });
    let peak = server.peak_memory_mib();
    assert!(peak < MAX_PEAK_MIB, "{peak} MiB");
    server.export(&export("p", vec![span(1, 1, "fine")]));
}

/// Each value gets its whole path as its name: a long name around many values would be written as often as there are any.
#[test]
fn long_names_around_many_values_are_not_multiplied() {
    let lab = Lab::new();
    let server = lab.serve();
    let entries: Vec<String> = (0..20_000).map(|number| format!("\"k{number}\":0")).collect();
    let attributes = format!(r#"{{"{}":{{{}}}}}"#, "n".repeat(1 << 20), entries.join(","));
    let body = format!(
        r#"{{"data":[{{"name":"n","span_kind":"LLM","status_code":"OK","context":{{"trace_id":"{}","span_id":"00000000000000aa"}},"start_time":"2026-11-15T08:00:00Z","end_time":"2026-11-15T08:00:01Z","attributes":{attributes}}}]}}"#,
        trace_id(7)
    );
    assert_eq!(post_gzip(&server, "/v1/projects/x/spans", &body), 413);
    let peak = server.peak_memory_mib();
    assert!(peak < MAX_PEAK_MIB, "{peak} MiB");
}

#[test]
fn large_requests_of_a_normal_shape_are_taken() {
    let lab = Lab::new();
    let server = lab.serve();
    let text = "lorem ipsum ".repeat(80);
    let phoenix: Vec<serde_json::Value> = (0..4000u64)
        .map(|number| {
            json!({"name": "n", "span_kind": "LLM", "status_code": "OK",
                   "context": {"trace_id": trace_id(u128::from(number) + 1), "span_id": format!("{:016x}", number + 1)},
                   "start_time": "2026-11-15T08:00:00Z", "end_time": "2026-11-15T08:00:01Z",
                   "attributes": {"input.value": text, "llm": {"model_name": "m", "token_count": {"total": 7}}}})
        })
        .collect();
    assert_eq!(post_gzip(&server, "/v1/projects/x/spans", &json!({"data": phoenix}).to_string()), 202);
    let spans: Vec<serde_json::Value> = (0..8000u64)
        .map(|number| {
            json!({"traceId": trace_id(u128::from(number) + 90_000), "spanId": format!("{:016x}", number + 90_000),
                   "name": "n", "startTimeUnixNano": "1", "endTimeUnixNano": "2",
                   "attributes": [{"key": "input.value", "value": {"stringValue": text}}, {"key": "n", "value": {"intValue": "7"}}]})
        })
        .collect();
    let otlp = json!({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]});
    assert_eq!(post_gzip(&server, "/v1/traces", &otlp.to_string()), 200);
    let peak = server.peak_memory_mib();
    assert!(peak < MAX_PEAK_MIB, "{peak} MiB");
}

#[test]
fn announced_lengths_reserve_nothing() {
    let lab = Lab::new();
    let server = lab.serve();
    let announced = server
        .request("POST", "/v1/traces")
        .header("content-type", "application/x-protobuf")
        .header("content-length", "20971520");
    let held: Vec<TcpStream> = (0..200).map(|_| announced.begin(0)).collect();
    for number in 1..=50 {
        server.export(&export("p", vec![span(number, 1, "fine")]));
    }
    assert_eq!(server.get("/readyz").status, 200);
    let bytes = server.metric("gradus_request_memory_bytes").unwrap();
    assert!(bytes < 3e6, "{bytes}");
    drop(held);
    let over = server.request("POST", "/v1/traces").header("content-type", "application/x-protobuf");
    assert_eq!(over.header("content-length", "20971521").send().status, 413);
}

/// A project whose spans are an answer of some megabytes.
fn store_large_project(server: &Server) -> String {
    let text: String = (0..200_000u64).map(|n| char::from(b'a' + (n * n % 26) as u8)).collect();
    for id in 1..=45 {
        let mut one = span(id, 1, "large");
        one.attributes = attributes(&[("input.value", &text)]);
        server.export(&export("p", vec![one]));
    }
    let path = "/v1/projects/p/spans?limit=1000".to_owned();
    let length = server.get(&path).body.len();
    assert!(length > 6 << 20, "{length}");
    path
}

fn stalled(server: &Server) -> f64 {
    server.metric("gradus_connections_closed_total{reason=\"stalled\"}").unwrap()
}

#[test]
fn readers_that_do_not_read_are_dropped() {
    let lab = Lab::with("stall_timeout_s = 0.5", "");
    let server = lab.serve();
    let path = store_large_project(&server);
    let request = server.request("GET", &path);
    let sleeping: Vec<TcpStream> = (0..24).map(|_| request.begin(0)).collect();
    // What is small, or read, is answered meanwhile.
    server.export(&export("p", vec![span(99, 1, "meanwhile")]));
    assert_eq!(server.get("/healthz").status, 200);
    eventually("stalled readers are dropped", || (stalled(&server) >= 10.0).then_some(()));
    eventually("nobody holds anything", || {
        let nothing = server.metric("gradus_response_file_bytes")? == 0.0
            && server.metric("gradus_response_memory_bytes")? < 1e5
            && server.metric("gradus_connections_open")? < 5.0;
        nothing.then_some(())
    });
    let peak = server.peak_memory_mib();
    assert!(peak < MAX_PEAK_MIB, "{peak} MiB");
    assert!(server.get(&path).body.len() > 6 << 20);
    drop(sleeping);
}

#[test]
fn streams_whose_window_stays_closed_are_reset() {
    let lab = Lab::with("stall_timeout_s = 0.5", "");
    let server = lab.serve();
    let path = store_large_project(&server);
    let mut connections: Vec<Http2> = (0..2).map(|_| Http2::connect(server.grpc, Some(0))).collect();
    for connection in &mut connections {
        for stream in 0..256 {
            connection.get(2 * stream + 1, &path);
        }
    }
    server.export(&export("p", vec![span(99, 1, "meanwhile")]));
    eventually("stalled streams are reset", || (server.metric("gradus_streams_stalled_total")? >= 10.0).then_some(()));
    eventually("nobody holds anything", || {
        let nothing =
            server.metric("gradus_response_file_bytes")? == 0.0 && server.metric("gradus_response_memory_bytes")? < 1e5;
        nothing.then_some(())
    });
    let peak = server.peak_memory_mib();
    assert!(peak < MAX_PEAK_MIB, "{peak} MiB");
}

/// A window that lets one byte through: all of a short response is with the connection then, and its stream is done.
#[test]
fn a_connection_that_takes_a_byte_at_a_time_is_closed() {
    let lab = Lab::with("stall_timeout_s = 0.3", "");
    let server = lab.serve();
    let mut connection = Http2::connect(server.http, Some(1));
    connection.get(1, "/healthz");
    eventually("it is closed", || (stalled(&server) >= 1.0).then_some(()));
}

#[test]
fn one_address_does_not_take_the_memory_of_all() {
    let lab = Lab::with("body_timeout_s = 60", "");
    let server = lab.serve();
    let body = vec![0; 19 << 20];
    let large = server.request("POST", "/v1/traces").header("content-type", "application/x-protobuf").body(&body);
    let held: Vec<TcpStream> = (0..4)
        .map(|_| {
            let request = large.clone();
            let stream = TcpStream::connect(server.http).unwrap();
            let mut writer = stream.try_clone().unwrap();
            std::thread::spawn(move || {
                let head = request.head();
                let _ = writer.write_all(head.as_bytes());
                let _ = writer.write_all(&vec![0; 18 << 20]);
            });
            stream
        })
        .collect();
    eventually("much is held", || (server.metric("gradus_request_memory_bytes")? > 60e6).then_some(()));
    // Others, and the same address with little, are served.
    for number in 1..=20 {
        let source: SocketAddr = ([127, 0, 0, 2], 0).into();
        let reply = large.clone().body(&export("p", vec![span(number, 1, "fine")])).send_from(source);
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
    assert_eq!(server.get("/readyz").status, 200);
    drop(held);
    let peak = server.peak_memory_mib();
    assert!(peak < MAX_PEAK_MIB, "{peak} MiB");
}

fn source(last: u8) -> SocketAddr {
    ([127, 0, 0, last], 0).into()
}

/// A line of `/metrics`, asked for from another address than the tests' own.
fn metric_from(server: &Server, last: u8, line: &str) -> Option<f64> {
    let text = server.request("GET", "/metrics").send_from(source(last)).text();
    let found = text.lines().find_map(|found| found.strip_prefix(line)?.strip_prefix(' '))?;
    found.trim().parse().ok()
}

/// A response that nobody reads holds what its stream holds, however short it is.
#[test]
fn streams_that_nobody_reads_are_counted_and_their_connections_closed() {
    let lab = Lab::with("max_request_mb = 1\nmax_memory_mb = 4", "");
    let server = lab.serve();
    let mut connections: Vec<Http2> = (0..8).map(|_| Http2::connect(server.http, Some(0))).collect();
    for connection in &mut connections {
        for stream in 0..100 {
            connection.get(2 * stream + 1, "/healthz");
        }
    }
    let metric = |line: &str| metric_from(&server, 2, line);
    eventually("streams are counted", || (metric("gradus_request_memory_bytes")? > 2e6).then_some(()));
    let closed = "gradus_connections_closed_total{reason=\"memory\"}";
    eventually("connections are closed", || (metric(closed)? >= 1.0).then_some(()));
    eventually("the client is notified", || {
        let mut frames =
            connections.iter_mut().filter_map(|connection| connection.frames_until_closed(Duration::from_millis(50)));
        frames.any(|frames| frames.contains(&GO_AWAY)).then_some(())
    });
    eventually("nobody holds anything", || (metric("gradus_request_memory_bytes")? < 1e5).then_some(()));
    assert_eq!(server.get("/healthz").status, 200);
}

#[test]
fn header_lists_are_bounded() {
    let lab = Lab::new();
    let server = lab.serve();
    let with_headers = |count: usize| {
        let request = server.request("GET", "/healthz");
        (0..count).fold(request, |request, number| request.header(&format!("x-{number}"), &"v".repeat(300)))
    };
    assert_eq!(with_headers(20).send().status, 200);
    assert_eq!(with_headers(60).send().status, 431);
}

/// Sends the head and the first bytes of a body from another address, and keeps the connection.
fn begin_from(server: &Server, last: u8, announced: usize, sent: usize) -> TcpStream {
    let request = Request::new(server.http, "POST", "/v1/traces")
        .header("content-type", "application/x-protobuf")
        .header("content-length", &announced.to_string());
    let stream = connect_from(source(last), server.http);
    let mut writer = stream.try_clone().unwrap();
    std::thread::spawn(move || {
        let _ = writer.write_all(request.head().as_bytes());
        let _ = writer.write_all(&vec![0; sent]);
    });
    stream
}

/// Slow bodies hold all memory, that for small clients too: the slowest large one goes, and who sends little is served.
#[test]
fn a_slow_large_body_is_cut_off_for_small_senders() {
    const KB: usize = 1 << 10;
    let lab = Lab::with("max_request_mb = 4\nmax_memory_mb = 16\nbody_timeout_s = 600", "");
    let server = lab.serve();
    let large: Vec<TcpStream> =
        [(1, 4096), (1, 4096), (2, 3500)].map(|(last, kb)| begin_from(&server, last, kb * KB, (kb - 100) * KB)).into();
    eventually("large bodies are held", || {
        (metric_from(&server, 200, "gradus_request_memory_bytes")? > 11_600.0 * 1024.0).then_some(())
    });
    let medium = [(3, 900), (4, 900), (5, 900), (6, 700)];
    let _medium = medium.map(|(last, kb)| begin_from(&server, last, kb * KB, (kb - 10) * KB));
    // More than the last part has memory for.
    let _small: Vec<TcpStream> = (20..80).map(|last| begin_from(&server, last, 50 * KB, 49 * KB)).collect();
    eventually("a body is cut off", || server.log().contains("aborted a slow large request").then_some(()));
    for number in 1..=5 {
        let request = server.request("POST", "/v1/traces").header("content-type", "application/x-protobuf");
        let reply = request.body(&export("p", vec![span(number, 1, "fine")])).send_from(source(100));
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
    let mut large = large.into_iter();
    let refused = eventually("its sender is answered", || {
        let stream = large.next().expect("one of them is answered");
        stream.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        Reply::read(stream)
    });
    assert_eq!(refused.status, 408, "{}", refused.text());
}

#[test]
fn gzip_bombs_stay_within_the_budget() {
    let lab = Lab::new();
    let server = lab.serve();
    let bomb = gzip(&vec![b' '; 200 << 20]);
    std::thread::scope(|scope| {
        for path in ["/v1/traces", "/v1/projects/x/spans", "/v1/evaluations", "/v1/spans"] {
            let (server, bomb) = (&server, &bomb);
            scope.spawn(move || {
                let kind = match path {
                    "/v1/evaluations" => "application/x-pandas-arrow",
                    "/v1/traces" => "application/x-protobuf",
                    _ => "application/json",
                };
                let request = server.request("POST", path).header("content-type", kind);
                let reply = request.header("content-encoding", "gzip").body(bomb).send();
                assert!(matches!(reply.status, 413 | 429 | 503), "{path}: {}", reply.status);
            });
        }
    });
    let peak = server.peak_memory_mib();
    assert!(peak < MAX_PEAK_MIB, "{peak} MiB");
}
