//! Connections: how many there may be, how long they may be silent, and who is served when there are too many.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rustix::process::{Resource, getrlimit, setrlimit};

use crate::http2::{GO_AWAY, Http2};
use crate::lab::{Lab, Reply, Request, Server, eventually};
use crate::spans::{attributes, export, span};

const PATIENCE: Duration = Duration::from_secs(60);

fn add_key(lab: &Lab) -> String {
    lab.run(&["keys", "add", "sender", "--scopes", "admin"]).exits_with(0).out.trim().to_owned()
}

/// A connection from another address of this machine.
pub(crate) fn connect_from(source: SocketAddr, to: SocketAddr) -> TcpStream {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let stream = runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(source).unwrap();
        socket.connect(to).await.unwrap().into_std().unwrap()
    });
    stream.set_nonblocking(false).unwrap();
    stream
}

fn allow_files(count: u64) {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = Some(limit.maximum.map_or(count, |most| most.min(count)));
    setrlimit(Resource::Nofile, limit).unwrap();
}

#[test]
fn silent_connections_do_not_shut_out_anybody() {
    allow_files(8000);
    let lab = Lab::with("require_key = true\nheader_timeout_s = 60", "");
    let key = add_key(&lab);
    let server = lab.serve();
    let mut silent = Vec::new();
    for number in 0..2100 {
        silent.push(Http2::connect(if number % 2 == 0 { server.http } else { server.grpc }, None));
    }
    let bearer = format!("Bearer {key}");
    for number in 1..=10 {
        assert_eq!(server.get("/healthz").status, 200);
        let request = server.request("POST", "/v1/traces").header("content-type", "application/x-protobuf");
        let request = request.header("authorization", &bearer).body(&export("p", vec![span(number, 1, "fine")]));
        assert_eq!(request.send().status, 200);
        assert_eq!(request.send_from(([127, 0, 0, 2], 0).into()).status, 200);
    }
    let metrics = server.request("GET", "/metrics").header("authorization", &bearer).send().text();
    let number = |line: &str| -> f64 {
        let found = metrics.lines().find_map(|found| found.strip_prefix(line)).unwrap();
        found.trim().parse().unwrap()
    };
    assert!(number("gradus_connections_closed_total{reason=\"evicted\"}") >= 500.0, "{metrics}");
    assert!(number("gradus_connections_open") <= 1600.0, "{metrics}");
    assert!(server.log().contains("127.0.0.1") && server.log().contains("closed connections to admit new ones"));
    assert!(server.peak_memory_mib() < 200.0, "{}", server.peak_memory_mib());
}

#[test]
fn http2_connections_that_ask_nothing_are_closed() {
    let lab = Lab::with("header_timeout_s = 0.3\nidle_timeout_s = 0.6", "");
    let server = lab.serve();
    let mut silent = Http2::connect(server.http, None);
    let mut half = TcpStream::connect(server.http).unwrap();
    half.write_all(b"PRI * HT").unwrap();
    let mut idle = Http2::connect(server.grpc, None);
    idle.get(1, "/healthz");
    assert!(silent.frames_until_closed(PATIENCE).unwrap().contains(&GO_AWAY));
    assert!(idle.frames_until_closed(PATIENCE).unwrap().contains(&GO_AWAY));
    half.set_read_timeout(Some(PATIENCE)).unwrap();
    assert!(matches!(half.read(&mut [0; 10]), Ok(0) | Err(_)));
    let closed = |reason: &str| server.metric(&format!("gradus_connections_closed_total{{reason=\"{reason}\"}}"));
    assert!(closed("no_request").unwrap() >= 2.0 && closed("idle").unwrap() >= 1.0);
}

/// Connections that are busy with bodies which do not come.
fn occupy(server: &Server, count: usize, headers: &[(&str, &str)]) -> Vec<TcpStream> {
    let request = server.request("POST", "/v1/traces").header("content-type", "application/x-protobuf");
    let request = headers.iter().fold(request, |request, (name, value)| request.header(name, value));
    occupy_with(&request, server.http, ([127, 0, 0, 1], 0).into(), count)
}

fn occupy_with(request: &Request, to: SocketAddr, source: SocketAddr, count: usize) -> Vec<TcpStream> {
    let request = request.clone().header("expect", "100-continue").header("content-length", "1000");
    let busy = (0..count).map(|_| {
        let mut stream = connect_from(source, to);
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(request.head().as_bytes()).unwrap();
        // The server says so when it waits for the body.
        let mut line = [0; 12];
        stream.read_exact(&mut line).unwrap();
        assert_eq!(&line, b"HTTP/1.1 100");
        stream
    });
    busy.collect()
}

#[test]
fn slots_are_reserved_for_health_checks() {
    let lab = Lab::with("connections = 20\nmax_connections_per_address = 0", "");
    let server = lab.serve();
    let busy = occupy(&server, 16, &[]);
    let refused = server.post_traces(&export("p", vec![span(1, 1, "late")]));
    assert_eq!(refused.status, 503);
    assert_eq!(refused.header("retry-after"), Some("1"), "{}", refused.text());
    assert_eq!(server.get("/healthz").status, 200);
    // Nobody else is served.
    assert_eq!(server.get("/readyz").status, 503);
    drop(busy);
    eventually("there are slots again", || {
        (server.post_traces(&export("p", vec![span(1, 1, "late")])).status == 200).then_some(())
    });
}

#[test]
fn slots_are_reserved_for_requests_with_a_key() {
    let lab = Lab::with("connections = 20\nmax_connections_per_address = 0\nrequire_key = true", "");
    let key = format!("Bearer {}", add_key(&lab));
    let server = lab.serve();
    let _busy = occupy(&server, 16, &[("authorization", &key)]);
    for number in 1..=10 {
        let request = server.request("POST", "/v1/traces").header("content-type", "application/x-protobuf");
        let request = request.header("authorization", &key).body(&export("p", vec![span(number, 1, "fine")]));
        assert_eq!(request.send().status, 200);
    }
}

fn sign_in(server: &Server) -> Request {
    let origin = format!("http://{}", server.http);
    server
        .request("POST", "/sign-in")
        .header("content-type", "application/x-www-form-urlencoded")
        .header("origin", &origin)
}

/// Waits until a response has begun.
fn wait_for_headers(stream: &mut TcpStream) {
    const HEADERS: u8 = 1;
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut kind = None;
    while kind != Some(HEADERS) {
        let mut head = [0; 9];
        stream.read_exact(&mut head).unwrap();
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        stream.read_exact(&mut payload).unwrap();
        kind = Some(head[3]);
    }
}

/// Requests that anybody may send take all slots, from two addresses: senders with a key and health checks are served.
#[test]
fn busy_connections_without_a_key_do_not_shut_out_anybody() {
    let lab = Lab::with("connections = 40\nrequire_key = true", "");
    let key = format!("Bearer {}", add_key(&lab));
    let server = lab.serve();
    let _slow = [1, 2].map(|last| {
        let count = if last == 1 { 15 } else { 10 };
        occupy_with(&sign_in(&server), server.http, ([127, 0, 0, last], 0).into(), count)
    });
    let _unread: Vec<Http2> = (0..15)
        .map(|_| {
            let mut connection = Http2::connect(server.http, Some(0));
            connection.get(1, "/healthz");
            wait_for_headers(&mut connection.stream);
            connection
        })
        .collect();
    let other: SocketAddr = ([127, 0, 0, 3], 0).into();
    let metrics = || {
        let request = server.request("GET", "/metrics").header("authorization", &key);
        request.send_from(other).text()
    };
    for number in 1..=10 {
        assert_eq!(server.request("GET", "/healthz").send_from(other).status, 200);
        let request = server.request("POST", "/v1/traces").header("content-type", "application/x-protobuf");
        let request = request.header("authorization", &key).body(&export("p", vec![span(number, 1, "fine")]));
        assert_eq!(request.send_from(other).status, 200);
    }
    let metrics = metrics();
    assert!(!metrics.contains("closed_total{reason=\"evicted_busy\"} 0"), "{metrics}");
}

/// The time for a body is long; for a request that needs no key it is short.
#[test]
fn requests_that_need_no_key_have_little_time() {
    let lab = Lab::with("body_timeout_s = 600\nstall_timeout_s = 600", "");
    let server = lab.serve();
    let mut slow = sign_in(&server).header("content-length", "1000").begin(0);
    slow.write_all(b"key=").unwrap();
    assert_eq!(Reply::read(slow).unwrap().status, 408);
    let mut unread = Http2::connect(server.http, Some(0));
    unread.get(1, "/healthz");
    eventually("its stream is reset", || (server.metric("gradus_streams_stalled_total")? >= 1.0).then_some(()));
}

/// Behind a trusted proxy each client has its own queue of queries.
#[test]
fn queries_take_turns_by_the_address_that_a_proxy_names() {
    let lab = Lab::with("trusted_proxies = [\"127.0.0.1\"]", "");
    let server = lab.serve();
    let text = "ab".repeat(50_000);
    for id in 1..=60u64 {
        let mut one = span(u128::from(id), id, "step");
        one.attributes = attributes(&[("input.value", &text)]);
        server.export(&export("p", vec![one]));
    }
    let filter: Vec<String> = (0..95).map(|n| format!("'z{n}' in input.value")).collect();
    let query = serde_json::json!({"queries": [{"filter": {"condition": filter.join(" or ")}}]});
    let greedy = server.request("POST", "/v1/spans?project_name=p").header("x-forwarded-for", "9.9.9.1");
    let greedy = greedy.json(&query);
    let _waiting: Vec<TcpStream> = (0..80).map(|_| greedy.begin(query.to_string().len())).collect();
    // As many as one caller may have.
    eventually("its queue is full", || (server.metric("gradus_queries_waiting")? >= 60.0).then_some(()));
    let ask =
        |forwarded: &str| server.request("GET", "/api/v1/projects").header("x-forwarded-for", forwarded).send().status;
    assert_eq!(ask("9.9.9.2"), 200);
    assert_eq!(ask("2001:db8::1"), 200);
}

#[test]
fn forwarded_addresses_count_only_from_proxies() {
    let ask = |server: &Server, source: &str, forwarded: &str| {
        let request = server.request("GET", "/api/v1/projects").header("x-forwarded-for", forwarded);
        let source: SocketAddr = format!("{source}:0").parse().unwrap();
        request.send_from(source).status
    };
    let lab = Lab::with("requests_per_second = 0.001", "");
    let server = lab.serve();
    assert_eq!(ask(&server, "127.0.0.3", "9.9.9.1"), 200);
    // Another name is not another client.
    assert_eq!(ask(&server, "127.0.0.3", "9.9.9.2"), 429);
    drop(server);
    let lab = Lab::with("requests_per_second = 0.001\ntrusted_proxies = [\"127.0.0.3\"]", "");
    let server = lab.serve();
    assert_eq!(ask(&server, "127.0.0.3", "9.9.9.1"), 200);
    assert_eq!(ask(&server, "127.0.0.3", "9.9.9.2"), 200);
    assert_eq!(ask(&server, "127.0.0.3", "8.8.8.8, 9.9.9.2"), 429);
    // From elsewhere nobody is believed.
    assert_eq!(ask(&server, "127.0.0.4", "9.9.9.3"), 200);
    assert_eq!(ask(&server, "127.0.0.4", "9.9.9.4"), 429);
}

#[test]
fn one_address_leaves_slots_to_others() {
    let lab = Lab::with("connections = 100\nmax_connections_per_address = 20", "");
    let server = lab.serve();
    let _busy = occupy(&server, 20, &[]);
    let own = server.post_traces(&export("p", vec![span(1, 1, "own")]));
    assert_eq!(own.status, 503);
    assert!(own.text().contains("too many connections"), "{}", own.text());
    let request = server.request("POST", "/v1/traces").header("content-type", "application/x-protobuf");
    let request = request.body(&export("p", vec![span(1, 1, "other")]));
    assert_eq!(request.send_from(([127, 0, 0, 2], 0).into()).status, 200);
    // Others are served.
    assert_eq!(server.get("/readyz").status, 200);
}

#[test]
fn wrong_limits_are_refused() {
    for (line, part) in [
        ("trusted_proxies = [\"proxy.example\"]", "trusted_proxies"),
        ("max_memory_per_address_mb = 1", "max_memory_per_address_mb"),
        ("stall_timeout_s = 0", "stall_timeout_s"),
        ("idle_timeout_s = -1", "idle_timeout_s"),
    ] {
        let ran = Lab::with(line, "").serve_in_vain(&[]);
        assert_eq!(ran.code, Some(2), "{line}: {}", ran.err);
        assert!(ran.err.contains(part), "{line}: {}", ran.err);
    }
}

#[test]
fn a_flood_of_frames_that_need_no_answer_is_ended() {
    let lab = Lab::new();
    let server = lab.serve();
    let mut client = Http2::connect(server.http, None);
    // Frames of priorities, which are answered by nothing.
    let priority = [0, 0, 5, 2, 0, 0, 0, 0, 1, 0, 0, 0, 0, 15].repeat(10_000);
    let mut sent = 0;
    while client.stream.write_all(&priority).is_ok() {
        sent += priority.len();
        assert!(sent < 256 << 20, "nobody ends it");
    }
    eventually("it is counted", || {
        (server.metric("gradus_connections_closed_total{reason=\"flood\"}")? == 1.0).then_some(())
    });
    assert_eq!(server.get("/healthz").status, 200);
}
