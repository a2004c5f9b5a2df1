//! What goes wrong around a server: logs that cannot be written, files that vanish, settings that make no sense, senders
//! that nearly get it right.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Stdio;

use serde_json::json;

use crate::lab::{Lab, Request, eventually};
use crate::spans::{Visit, export, span};

/// Whoever reads the log may go away; the disk it is on may be full.
#[test]
fn a_log_that_cannot_be_written_stops_nothing() {
    let lab = Lab::new();
    let ports: Vec<u16> =
        (0..2).map(|_| std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()).collect();
    let (http, grpc) = (format!("127.0.0.1:{}", ports[0]), format!("127.0.0.1:{}", ports[1]));
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = lab.command(&["serve", "--http", &http, "--grpc", &grpc]);
    let mut child = command.stdout(Stdio::null()).stderr(full).spawn().unwrap();
    let health = Request::new(http.parse().unwrap(), "GET", "/healthz");
    eventually("it answers", || health.try_send().filter(|reply| reply.status == 200));
    let process = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(process, rustix::process::Signal::HUP).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert_eq!(health.send().status, 200);
    rustix::process::kill_process(process, rustix::process::Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_store_whose_file_is_gone_takes_nothing() {
    let lab = Lab::new();
    let server = lab.serve();
    server.export(&export("p", vec![span(1, 1, "first")]));
    for (number, name) in ["gradus.db", "gradus.db-wal", "gradus.db-shm"].into_iter().enumerate() {
        let (path, id) = (lab.path(&format!(".gradus/{name}")), 10 * (number as u64 + 1));
        std::fs::rename(&path, lab.path("away")).unwrap();
        // The very next request.
        let refused = server.post_traces(&export("p", vec![span(u128::from(id), id, "lost")]));
        assert_eq!(refused.status, 503);
        assert!(refused.text().contains("gone or was replaced"), "{}", refused.text());
        assert_eq!(server.get("/readyz").status, 503);
        std::fs::rename(lab.path("away"), &path).unwrap();
        eventually("it is there again", || (server.get("/readyz").status == 200).then_some(()));
        server.export(&export("p", vec![span(u128::from(id + 1), id + 1, "kept")]));
    }
    let names = server.spans("p");
    let kept = names.iter().filter(|span| span["name"] == "kept").count();
    assert_eq!((names.len(), kept), (4, 3));
}

#[test]
fn a_store_that_was_truncated_is_not_taken_for_a_new_one() {
    let lab = Lab::new();
    let server = lab.serve();
    server.export(&export("p", vec![span(1, 1, "first")]));
    server.stop();
    let path = lab.path(".gradus/gradus.db");
    let sound = std::fs::read(&path).unwrap();
    for bytes in [0, 60, 5_000] {
        std::fs::write(&path, &sound[..bytes]).unwrap();
        let ran = lab.serve_in_vain(&[]).exits_with(2);
        assert!(ran.err.contains("gradus.db") && ran.err.contains("truncated") || bytes == 60, "{}", ran.err);
        assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
        assert_eq!(std::fs::read(&path).unwrap(), &sound[..bytes]);
    }
    std::fs::write(&path, &sound).unwrap();
    assert_eq!(lab.serve().spans("p").len(), 1);
}

#[test]
fn an_export_takes_nobodys_place() {
    let lab = Lab::new();
    let server = lab.serve();
    server.export(&export("p", vec![span(1, 1, "first")]));
    lab.write("mine.txt", "mine");
    for name in [".gradus/gradus.db", "mine.txt"] {
        let ran = lab.run(&["store", "export", name]).exits_with(2);
        assert!(ran.err.contains("is there already"), "{}", ran.err);
    }
    assert_eq!(lab.read("mine.txt"), "mine");
    lab.run(&["store", "export", "all.jsonl.zst"]).exits_with(0);
    lab.run(&["store", "backup", "copy.db"]).exits_with(0);
    let rights = |name: &str| std::fs::metadata(lab.path(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!([rights("all.jsonl.zst"), rights("copy.db")], [0o600, 0o600]);
    assert_eq!(
        [rights(".gradus"), rights(".gradus/gradus.db"), rights(".gradus/gradus.db-wal")],
        [0o700, 0o600, 0o600]
    );
}

#[test]
fn looking_changes_nothing() {
    let lab = Lab::new();
    let ran = lab.run(&["doctor", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--data", "new/folder"]);
    assert!(ran.exits_with(0).out.contains("new/folder can be made"));
    assert!(!Path::new(&lab.path("new")).exists());
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    let lab = Lab::new();
    let cases = [
        ("connections = 0", "", "give 3 or more"),
        ("requests_per_second = 0", "", "above 0"),
        ("max_request_mb = 0", "", "above 0"),
        ("public_url = \"foo\"", "", "https://gradus.example"),
        ("cors_origins = [\"*\"]", "", "is no origin"),
        ("[serve.retention]\nmax_age = \"99999d\"", "", "at most"),
        ("", "[[rule]]\nevaluators = []", "evaluators = []"),
        ("", "[[rule]]\njudge = \"openai:gpt-4o\"\ndaily_budget_usd = 0.001", "one answer may cost"),
    ];
    for (serve, tables, wanted) in cases {
        lab.configure(serve, tables);
        let mut command = lab.command(&["serve", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"]);
        command.env("OPENAI_API_KEY", "sk-test");
        let ran = crate::lab::in_vain(command);
        assert_eq!(ran.code, Some(2), "{serve}{tables}: {}", ran.err);
        assert!(ran.err.contains(wanted) && ran.err.trim().lines().count() == 1, "{}", ran.err);
    }
    lab.configure("[serve.retention]\nmax_age = \"3650d\"", "");
    drop(lab.serve());
}

#[test]
fn a_sender_that_nearly_gets_it_right_is_told() {
    let lab = Lab::new();
    let server = lab.serve();
    let span_with = |trace: &str, id: &str, parent: &str| json!({"traceId": trace, "spanId": id, "parentSpanId": parent, "name": "n", "startTimeUnixNano": "1", "endTimeUnixNano": "2"});
    let (trace, id) = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331");
    let spans = json!([
        span_with(trace, id, ""),
        span_with("xyz", id, ""),
        span_with(trace, "b7ad", ""),
        span_with(trace, "b7ad6b7169203332", "zz"),
        span_with("0af76519-16cd-43dd-8448-eb211c80319c", id, ""),
    ]);
    let body = json!({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]});
    let reply = server.request("POST", "/v1/traces").json(&body).send();
    assert_eq!(reply.status, 200);
    let partial = &reply.json()["partialSuccess"];
    assert_eq!(partial["rejectedSpans"], "4", "{partial}");
    assert!(partial["errorMessage"].as_str().unwrap().contains("hexadecimal"), "{partial}");
    assert_eq!(server.spans("default").len(), 1);
    let packed = {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut encoder, &export("p", vec![span(7, 7, "packed")])).unwrap();
        encoder.finish().unwrap()
    };
    let reply = server.post_traces(&packed);
    assert_eq!(reply.status, 400);
    assert!(reply.text().contains("content-encoding: gzip"), "{}", reply.text());
    let request = server.request("POST", "/v1/traces").header("content-type", "application/x-protobuf");
    assert_eq!(request.header("content-encoding", "GZIP").body(&packed).send().status, 200);
    // The log says that somebody sends in vain, once.
    let refusals = server.log().lines().filter(|line| line.contains("request refused")).count();
    assert_eq!(refusals, 1, "{}", server.log());
}

#[test]
fn projects_have_names_that_can_be_asked_for() {
    let lab = Lab::new();
    let server = lab.serve();
    for (number, name) in [".", "..", "café / \"x\""].into_iter().enumerate() {
        let request = server.request("POST", "/v1/traces").header("content-type", "application/x-protobuf");
        let body = Visit::new(number as u128 + 1).export("from the resource");
        assert_eq!(request.header("x-project-name", name).body(&body).send().status, 200);
    }
    let projects = server.json("/api/v1/projects");
    let mut names: Vec<&str> =
        projects["items"].as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, ["café / \"x\"", "default"]);
    let source = format!("gradus://{}", server.http);
    let read = lab.run(&["traces", &source, "--format", "jsonl"]).exits_with(0);
    assert_eq!(read.out.lines().count(), 3);
}

#[test]
fn steps_that_are_not_there_cannot_be_annotated() {
    let lab = Lab::new();
    let server = lab.serve();
    server.export(&Visit::new(1).export("p"));
    server.assembled();
    let trace = server.trace(&crate::spans::trace_id(1));
    let id = trace["trajectories"][0]["trajectory_id"].as_str().unwrap();
    let steps = trace["trajectories"][0]["steps"].as_array().unwrap().len();
    let note = |step: usize| {
        let item = json!({"target": format!("trajectory:{id}#{step}"), "name": "n", "label": "l"});
        server.request("POST", "/api/v1/annotations").json(&json!({"items": [item]})).send()
    };
    assert_eq!((note(0).status, note(steps).status, note(steps + 1).status), (404, 200, 404));
    assert!(note(99).error().contains("no step 99"));
}
