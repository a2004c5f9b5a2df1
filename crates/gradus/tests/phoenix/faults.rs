//! One clear line for everything that can be wrong, and another try where that helps.

use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use gradus_test_endpoint::{Answer, Endpoint};

use crate::lab::{Lab, Phoenix, Ran, traces_of};

fn read_from(phoenix: &Phoenix) -> Ran {
    let lab = Lab::new();
    let ran = lab.run(&["traces", &phoenix.source(), "--format", "jsonl"]);
    assert!(ran.err.lines().count() <= 1, "{}", ran.err);
    ran
}

/// A Phoenix whose lists of spans always get this answer.
fn answering(answer: Answer) -> Phoenix {
    Phoenix::with_fault(traces_of(2), move |incoming| incoming.what().contains("/spans?").then(|| answer.clone()))
}

#[test]
fn every_refusal_is_one_line_that_says_what_to_do() {
    let html = Answer::ok("<!doctype html>".to_owned()).with_header("content-type", "text/html; charset=utf-8");
    for (answer, says) in [
        (Answer::status(401, "Invalid token"), "Phoenix wants a key: set PHOENIX_API_KEY"),
        (Answer::status(403, "Forbidden"), "this key may not do that (Forbidden); reading spans needs one that may"),
        (Answer::status(404, r#"{"detail":"Not Found"}"#), "Phoenix 20.26.1 has no /v1/projects/P1/spans"),
        (Answer::status(404, "Project with ID P1 not found"), "Phoenix refused the request (404: Project with ID P1"),
        (Answer::status(405, "Method Not Allowed"), "Phoenix 20.26.1 has no /v1/projects/P1/spans"),
        (Answer::status(429, "slow down"), "Phoenix wants fewer requests (429: slow down); try again later"),
        (Answer::status(422, "Invalid cursor"), "Phoenix refused the request (422: Invalid cursor)"),
        (Answer::status(500, "Internal Server Error"), "Phoenix fails (500: Internal Server Error)"),
        (Answer::status(503, "busy\u{1b}[2J\nnow"), "Phoenix fails (503: busy\\u{1b}[2J now)"),
        (Answer::status(307, "").with_header("location", "https://elsewhere/"), "sends us on to https://elsewhere/"),
        (html, "Phoenix 20.26.1 has no /v1/projects/P1/spans"),
        (Answer::ok("[1]".to_owned()), "not as Phoenix does ([1])"),
        (Answer::ok(r#"{"data":[{"name""#.to_owned()), "not as Phoenix does"),
        (Answer::Truncated, "the connection broke off"),
        (Answer::Reset, "the connection broke off"),
        (Answer::Closed, "the connection broke off"),
        (Answer::SlowLoris.after(Duration::from_secs(5)), "did not answer within 1 s"),
    ] {
        let ran = read_from(&answering(answer)).exits_with(2).says(says);
        assert_eq!(ran.out, "");
    }
}

#[test]
fn nobody_there_and_somebody_else_there() {
    let lab = Lab::new();
    // A port that was free a moment ago.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let ran = lab.run(&["traces", &format!("phoenix://{free}/shop")]).exits_with(2);
    ran.says("nothing answers there").says("is Phoenix running, and is this its HTTP port (6006, not 4317)?");
    let other = Endpoint::start(std::sync::Arc::new(|_: &_| Answer::ok("{\"items\":[]}".to_owned()))).unwrap();
    let ran = lab.run(&["traces", &other.origin().replace("http", "phoenix")]).exits_with(2);
    ran.says("it answers, but not as Phoenix does");
}

/// Answers every connection as a gRPC server does, which begins with its own settings.
fn grpc_server() -> std::net::SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let _ = stream.unwrap().write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]);
        }
    });
    address
}

#[test]
fn a_port_for_grpc_and_wrong_variables_are_told_as_what_they_are() {
    let lab = Lab::new();
    let ran = lab.run(&["traces", &format!("phoenix://{}/shop", grpc_server())]).exits_with(2);
    ran.says("what answers there is no HTTP").says("Phoenix's HTTP port is 6006, and 4317 is for gRPC");
    let phoenix = Phoenix::start(traces_of(1));
    for (name, value, says) in [
        ("PHOENIX_API_KEY", "k\nsecret", "PHOENIX_API_KEY: it holds characters that no key has"),
        ("PHOENIX_CLIENT_HEADERS", "secret", "PHOENIX_CLIENT_HEADERS: a header is written as name=value"),
    ] {
        let ran = lab.run_with(&[(name, value)], &["traces", &phoenix.source()]).exits_with(2).says(says);
        assert!(ran.err.lines().count() == 1 && !ran.err.contains("secret"), "{}", ran.err);
    }
    assert_eq!(phoenix.asked("GET"), 0);
}

#[test]
fn what_passes_is_waited_for() {
    for fault in [
        Answer::status(503, "busy"),
        Answer::status(500, "oh"),
        Answer::status(429, "slow down").with_header("retry-after-ms", "20"),
        Answer::Reset,
        Answer::Truncated,
    ] {
        let failures = AtomicUsize::new(0);
        let phoenix = Phoenix::with_fault(traces_of(2), move |incoming| {
            let is_first = incoming.what().contains("/spans?") && failures.fetch_add(1, Ordering::Relaxed) < 2;
            is_first.then(|| fault.clone())
        });
        let lab = Lab::new();
        lab.write("gradus.toml", "[phoenix]\nretry_s = 20\n");
        let ran = lab.run(&["traces", &phoenix.source(), "--format", "jsonl"]).exits_with(0);
        assert_eq!((ran.lines().len(), ran.err.as_str()), (2, ""));
        assert_eq!(phoenix.asked("GET /v1/projects/P1/spans"), 3);
    }
}

#[test]
fn pages_with_nonsense_in_them_are_told_and_the_rest_is_read() {
    let mut spans = traces_of(2);
    spans.insert(3, serde_json::json!({"context": "none of this is a span"}));
    spans.push(serde_json::json!({"context": {"span_id": "ff", "trace_id": []}, "attributes": 5, "events": {}}));
    let phoenix = Phoenix::with_fault(Vec::new(), move |incoming| {
        let body = serde_json::json!({"data": spans, "next_cursor": null}).to_string();
        incoming.what().contains("/spans?").then(|| Answer::ok(body))
    });
    let ran = Lab::new().run(&["traces", &phoenix.source(), "--format", "jsonl"]).exits_with(0);
    let ran = ran.says("1 elements of a page are no spans");
    assert_eq!(ran.lines().len(), 2);
}
