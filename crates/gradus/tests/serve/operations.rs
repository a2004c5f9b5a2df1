//! What an operator needs: metrics, health, new settings, a doctor, and care for the store.

use std::collections::BTreeSet;

use rustix::process::Signal;
use serde_json::Value as Json;

use crate::lab::{Lab, eventually};
use crate::spans::{SECOND_NS, Visit, now_ns, trace_id};

#[test]
fn metrics_can_be_read_by_prometheus() {
    let lab = Lab::new();
    let server = lab.serve();
    server.export(&Visit::new(1).export("p"));
    assert_eq!(server.post_traces(b"\xff").status, 400);
    server.assembled();
    let reply = server.get("/metrics");
    assert!(reply.header("content-type").unwrap().starts_with("application/openmetrics-text"));
    let text = reply.text();
    assert!(text.ends_with("# EOF\n"));
    let mut names = BTreeSet::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').unwrap();
        value.parse::<f64>().unwrap_or_else(|_| panic!("{line}"));
        assert!(name.starts_with("gradus_"), "{line}");
        assert!(names.insert(name.to_owned()), "twice: {line}");
    }
    let metric = |line: &str| server.metric(line);
    // A request is counted after its response was handed over.
    for status in [200, 400] {
        let name = format!(r#"gradus_ingest_requests_total{{signal="span",transport="http",status="{status}"}}"#);
        eventually("one request", || metric(&name).filter(|count| *count == 1.0));
    }
    assert_eq!(metric(r#"gradus_ingest_records_total{signal="span",result="new"}"#), Some(3.0));
    // And a trajectory after it was stored.
    eventually("one trajectory", || metric("gradus_trajectories_assembled_total").filter(|count| *count == 1.0));
    assert!(metric("gradus_store_commits").unwrap() > 0.0);
    for name in ["store_queue_bytes", "store_used_bytes", "traces_due", "trajectories_ungraded", "uptime_seconds"] {
        assert!(metric(&format!("gradus_{name}")).is_some(), "{name}");
    }
    assert_eq!(server.json("/healthz")["status"], "ok");
    assert_eq!(server.json("/readyz")["is_ready"], true);
}

#[test]
fn the_description_names_what_there_is() {
    let lab = Lab::new();
    let server = lab.serve();
    let description = server.json("/openapi.json");
    assert!(description["openapi"].as_str().unwrap().starts_with("3."));
    let paths: BTreeSet<&str> = description["paths"].as_object().unwrap().keys().map(String::as_str).collect();
    let wanted = BTreeSet::from([
        "/api/v1/alerts",
        "/api/v1/annotations",
        "/api/v1/annotations/{id}",
        "/api/v1/metrics",
        "/api/v1/projects",
        "/api/v1/projects/{project}/otlp",
        "/api/v1/projects/{project}/spans",
        "/api/v1/alert-rules",
        "/api/v1/alert-rules/export",
        "/api/v1/alert-rules/{name}",
        "/api/v1/alert-rules/{name}/mute",
        "/api/v1/alert-rules/{name}/test",
        "/api/v1/demo",
        "/api/v1/start",
        "/api/v1/failure-groups",
        "/api/v1/failure-groups/{key}",
        "/api/v1/failure-groups/{key}/dataset",
        "/api/v1/quarantine",
        "/api/v1/quarantine/retry",
        "/api/v1/quarantine/{trace_id}/retry",
        "/api/v1/rubrics",
        "/api/v1/rules",
        "/api/v1/compare",
        "/api/v1/compare/steps",
        "/api/v1/runs",
        "/api/v1/runs/{run_id}",
        "/api/v1/sessions",
        "/api/v1/sessions/{session_id}",
        "/api/v1/settle",
        "/api/v1/traces",
        "/api/v1/traces/{trace_id}",
        "/api/v1/versions",
        "/healthz",
        "/metrics",
        "/readyz",
    ]);
    assert_eq!(paths, wanted);
    // Every reference leads somewhere.
    let mut references = Vec::new();
    collect_references(&description, &mut references);
    assert!(!references.is_empty());
    for reference in references {
        let pointer = reference.strip_prefix('#').unwrap_or_else(|| panic!("{reference}"));
        assert!(description.pointer(pointer).is_some(), "{reference}");
    }
    // What can be asked for without an argument is answered.
    let can_be_read = |path: &&&str| description["paths"][**path].get("get").is_some();
    let needs_arguments = |path: &&&str| path.contains('{') || path.starts_with("/api/v1/compare");
    for path in paths.iter().filter(|path| !needs_arguments(path)).filter(can_be_read) {
        assert_eq!(server.get(path).status, 200, "{path}");
    }
}

fn collect_references(value: &Json, out: &mut Vec<String>) {
    match value {
        Json::Object(entries) => {
            for (key, value) in entries {
                match value.as_str() {
                    Some(text) if key == "$ref" => out.push(text.to_owned()),
                    _ => collect_references(value, out),
                }
            }
        }
        Json::Array(items) => items.iter().for_each(|item| collect_references(item, out)),
        _ => {}
    }
}

#[test]
fn settings_are_read_again() {
    let lab = Lab::with("", "[[rule]]\nname = \"first\"\nevaluators = [\"call_validity\"]\n");
    let server = lab.serve();
    let rules = || server.json("/api/v1/rules")["items"].as_array().unwrap().clone();
    assert_eq!(rules()[0]["name"], "first");
    lab.configure("", "[[rule]]\nname = \"second\"\nevaluators = [\"thought_to_tool\"]\n[[rule]]\nname = \"third\"\n");
    server.signal(Signal::HUP);
    eventually("the new rules count", || (rules().len() == 2).then_some(()));
    server.export(&Visit::new(1).export("p"));
    server.assembled();
    let outcomes = server.trace(&trace_id(1))["outcomes"].as_array().unwrap().clone();
    assert!(!outcomes.is_empty());
    assert!(outcomes.iter().all(|outcome| outcome["evaluator"] == "thought_to_tool"), "{outcomes:?}");
    for wrong in ["[[rule]]\nname = 7", "[[rule]]\nsample = 3.0", "[[alert]]\nname = \"a\"\nwhen = \"x\"", "[serve"] {
        let before = server.log().matches("keeping the previous settings").count();
        lab.configure("", wrong);
        server.signal(Signal::HUP);
        eventually("logged", || (server.log().matches("keeping the previous settings").count() > before).then_some(()));
        assert_eq!(rules()[0]["name"], "second");
    }
    // Redaction takes effect without a restart, too.
    lab.configure("redact = [{ name = \"x\", pattern = \"TOPSECRET\" }]", "");
    server.signal(Signal::HUP);
    eventually("the default rule counts", || (rules()[0]["name"] == "default").then_some(()));
    server.export(&Visit { query: "TOPSECRET".to_owned(), ..Visit::new(2) }.export("p"));
    assert!(!server.get("/api/v1/projects/p/spans").text().contains("TOPSECRET"));
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn the_doctor_says_what_is_wrong() {
    let free = ["--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"];
    let doctor = |lab: &Lab, arguments: &[&str]| {
        let mut all = vec!["doctor"];
        all.extend(arguments);
        lab.run(&all)
    };
    let lab = Lab::new();
    let ran = doctor(&lab, &free).exits_with(0);
    assert!(ran.out.lines().all(|line| line.starts_with("ok  ") || line.starts_with("warn")), "{}", ran.out);
    let server = lab.serve();
    let (http, grpc) = (server.http.to_string(), server.grpc.to_string());
    // One that answers there already is one of us, and that is fine; somebody else is not.
    let ran = doctor(&lab, &["--http", &http, "--grpc", &grpc]).exits_with(0);
    assert!(ran.out.contains(&format!("a gradus server answers on {http}")), "{}", ran.out);
    let taken = [(); 2].map(|()| std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    let [http, grpc] = taken.each_ref().map(|listener| listener.local_addr().unwrap().to_string());
    let ran = doctor(&lab, &["--http", &http, "--grpc", &grpc]).exits_with(2);
    let failed = |out: &str| out.lines().filter(|line| line.starts_with("FAIL")).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(failed(&ran.out).len(), 2, "{}", ran.out);
    assert!(ran.out.contains("--http") && ran.out.contains("--grpc"), "{}", ran.out);
    drop(server);
    let ran = doctor(&lab, &["--http", "0.0.0.0:0", "--grpc", "127.0.0.1:0"]).exits_with(2);
    assert!(ran.out.contains("gradus keys add"), "{}", ran.out);
    let endpoint =
        gradus_test_endpoint::Endpoint::start(std::sync::Arc::new(|incoming: &gradus_test_endpoint::Incoming<'_>| {
            incoming.verdict("correct")
        }))
        .unwrap();
    let rule = |url: &str| format!("[[rule]]\njudge = \"gpt-4o\"\nbase_url = \"{url}\"");
    lab.configure("", &rule(&endpoint.url()));
    let ran = doctor(&lab, &free).exits_with(0);
    assert!(ran.out.contains("openai:gpt-4o answers"), "{}", ran.out);
    lab.configure("", &rule("http://127.0.0.1:9/v1"));
    let ran = doctor(&lab, &free).exits_with(2);
    assert!(failed(&ran.out)[0].contains("judge"), "{}", ran.out);
    lab.write("gradus.toml", "[serve]\nhtttp = \"x\"\n");
    let ran = doctor(&lab, &free).exits_with(2);
    assert!(failed(&ran.out)[0].contains("line 2"), "{}", ran.out);
    // A server with the same settings says the same.
    assert_eq!(lab.serve_in_vain(&[]).code, Some(2));
    lab.configure("", "");
    lab.write("no-store/gradus.db", &"no database ".repeat(1000));
    let ran = doctor(&lab, &["--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--data", "no-store"]).exits_with(2);
    assert!(failed(&ran.out)[0].contains("store"), "{}", ran.out);
}

#[test]
fn a_store_can_be_taken_elsewhere() {
    let lab = Lab::new();
    let server = lab.serve();
    for number in 1..=30 {
        server.export(&Visit { is_error: number % 7 == 0, ..Visit::new(number) }.export("p"));
    }
    server.assembled();
    let note =
        serde_json::json!({"items": [{"target": format!("trace:{}", trace_id(3)), "name": "n", "label": "good"}]});
    assert_eq!(server.request("POST", "/api/v1/annotations").json(&note).send().status, 200);
    lab.run(&["keys", "add", "k"]).exits_with(0);
    let seen = |server: &crate::lab::Server| {
        let mut spans = server.spans("p");
        spans.sort_by_key(|span| span["span_id"].as_str().unwrap().to_owned());
        let mut trace = server.trace(&trace_id(3));
        trace["trace"]["bytes"] = Json::Null;
        (
            spans,
            trace,
            server.json("/api/v1/metrics?by=agent"),
            server.json("/api/v1/annotations"),
            server.json("/api/v1/traces?q=demo&limit=500")["items"].as_array().unwrap().len(),
        )
    };
    let before = seen(&server);
    // Reading does not disturb a server that runs.
    lab.run(&["store", "export", "all.zst"]).exits_with(0);
    lab.run(&["store", "backup", "copy.db"]).exits_with(0);
    lab.run(&["store", "backup", "copy.db"]).exits_with(2);
    lab.run(&["store", "check"]).exits_with(0);
    for arguments in [vec!["store", "compact"], vec!["store", "import", "all.zst"]] {
        let ran = lab.run(&arguments).exits_with(2);
        assert!(ran.err.contains("another gradus is using"), "{}", ran.err);
    }
    server.stop();
    // An import needs an empty store.
    lab.run(&["store", "import", "all.zst"]).exits_with(2);
    lab.run(&["store", "compact"]).exits_with(0);
    lab.run(&["store", "check"]).exits_with(0);
    let imported = lab.run(&["store", "import", "all.zst", "--data", "imported"]).exits_with(0);
    assert!(imported.out.contains("30 traces"), "{}", imported.out);
    std::fs::create_dir(lab.path("restored")).unwrap();
    std::fs::rename(lab.path("copy.db"), lab.path("restored/gradus.db")).unwrap();
    for folder in [".gradus", "imported", "restored"] {
        lab.run(&["store", "check", "--data", folder]).exits_with(0);
        let server = lab.serve_with(&["--data", folder]);
        assert_eq!(seen(&server), before, "{folder}");
    }
    assert_eq!(lab.run(&["keys", "list", "--data", "imported"]).exits_with(0).out, "", "keys stay where they are");
    for arguments in [
        vec!["store", "check", "--data", "nowhere"],
        vec!["store", "export", "x", "--data", "nowhere"],
        vec!["store", "compact", "--data", "nowhere"],
        vec!["store", "import", "nothing.zst", "--data", "new"],
        vec!["store", "import", "gradus.toml", "--data", "new"],
    ] {
        let ran = lab.run(&arguments).exits_with(2);
        assert!(ran.err.lines().count() == 1 && !ran.err.contains("panicked"), "{arguments:?}: {}", ran.err);
    }
}

#[test]
fn what_is_too_old_goes() {
    let lab = Lab::new();
    let server = lab.serve();
    let day = 86_400 * SECOND_NS;
    for number in 1..=120 {
        let start_ns = if number <= 100 { now_ns() - 10 * day } else { now_ns() - 60 * SECOND_NS };
        server.export(&Visit { start_ns, ..Visit::new(number) }.export("p"));
    }
    server.assembled();
    server.stop();
    lab.configure("", "[serve.retention]\nmax_age = \"7d\"");
    // What they say about time makes them no older: they have to be here for as long.
    let older = "UPDATE trace SET first_arrived_ns = first_arrived_ns - ? WHERE no <= 100";
    assert_eq!(lab.sql().execute(older, [10 * day as i64]).unwrap(), 100);
    let server = lab.serve();
    eventually("the old ones are gone", || (server.json("/api/v1/projects")["items"][0]["traces"] == 20).then_some(()));
    assert_eq!(server.spans("p").len(), 60);
    assert_eq!(server.get(&format!("/api/v1/traces/{}", trace_id(1))).status, 404);
    assert_eq!(server.trace(&trace_id(120))["trajectories"].as_array().unwrap().len(), 1);
    assert_eq!(server.json("/api/v1/traces?q=demo&limit=500")["items"].as_array().unwrap().len(), 20);
    // Sums are kept longer than what they are made of.
    assert_eq!(server.json("/api/v1/metrics?evaluator=call_validity")["items"][0]["scored"], 120);
    server.stop();
    lab.run(&["store", "check"]).exits_with(0);
}
