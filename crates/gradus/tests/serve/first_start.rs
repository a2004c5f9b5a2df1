//! First start: an empty server says how to send traces, and what arrived so far.

use serde_json::json;

use crate::lab::{Lab, Server, eventually};
use crate::spans::{SECOND_NS, Visit, now_ns};

fn page(server: &Server, host: Option<&str>) -> String {
    let mut request = server.request("GET", "/").header("accept", "text/html");
    if let Some(host) = host {
        request = request.header("host", host);
    }
    let reply = request.send();
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.text()
}

fn send_visit(server: &Server, number: u128) {
    let mut visit = Visit::new(number);
    visit.start_ns = now_ns() - 3 * SECOND_NS;
    server.export(&visit.export("shop <b>"));
}

#[test]
fn an_empty_server_waits_and_shows_its_own_address() {
    let lab = Lab::new();
    // Graded when the test asks for it.
    lab.write("gradus.toml", "[serve]\nquiet_s = 600\n");
    let server = lab.serve();
    let text = page(&server, Some(&format!("localhost:{}", server.http.port())));
    assert!(text.contains("data-stage=\"waiting\""), "{text}");
    let own = format!("http://localhost:{}/v1/traces", server.http.port());
    // In every snippet but that of the collector, which adds the path itself.
    assert!(text.matches(&own).count() >= 10, "{own}: {text}");
    assert_eq!(server.json("/api/v1/start")["stage"], "waiting");
    // It changes when spans arrive, and again when they are graded.
    send_visit(&server, 1);
    let status = server.json("/api/v1/start");
    assert_eq!((&status["stage"], &status["projects"]), (&json!("received"), &json!(["shop <b>"])));
    let part = server.get("/start/status").text();
    assert!(part.contains("data-stage=\"received\"") && !part.contains("<b>&") && !part.contains("shop <b>"), "{part}");
    assert_eq!(server.request("POST", "/api/v1/settle").send().status, 200);
    let status = server.json("/api/v1/start");
    assert_eq!((&status["stage"], &status["has_model_judge"]), (&json!("graded"), &json!(false)));
    assert!(!status["first_graded"]["abstained"].as_array().unwrap().is_empty(), "{status}");
    let part = server.get("/start/status").text();
    assert!(part.contains("Still missing: a model as judge"), "{part}");
    assert!(page(&server, None).contains("<h1>Overview</h1>"));
    assert!(server.get("/start").text().contains("Connect an agent"));
}

#[test]
fn a_project_that_no_rule_matches_is_named() {
    let lab = Lab::with("", "[[rule]]\nproject = \"other\"\n");
    let server = lab.serve();
    send_visit(&server, 1);
    server.assembled();
    let status = server.json("/api/v1/start");
    assert_eq!((&status["stage"], &status["unmatched_projects"]), (&json!("received"), &json!(["shop <b>"])));
    let part = server.get("/start/status").text();
    assert!(part.contains("No grading rule matches <bdi>shop &#60;b&#62;</bdi>"), "{part}");
}

#[test]
fn the_demo_is_loaded_by_keys_that_may_send_spans() {
    let lab = Lab::with("require_key = true", "");
    let key = |scope: &str| {
        let ran = lab.run(&["keys", "add", scope, "--scopes", scope]).exits_with(0);
        format!("Bearer {}", ran.out.trim())
    };
    let (read, ingest) = (key("read"), key("ingest"));
    let server = lab.serve();
    let load = |key: &str| server.request("POST", "/api/v1/demo").header("authorization", key).send().status;
    assert_eq!((load(&read), load(&ingest)), (403, 202));
    let status = || server.request("GET", "/api/v1/start").header("authorization", &read).send().json();
    let loaded = eventually("the demo is graded", || {
        let status = status();
        (status["demo"] == "loaded" && status["stage"] == "graded").then_some(status)
    });
    assert_eq!((&loaded["traces"], &loaded["projects"]), (&json!(130), &json!(["gradus-demo"])));
    // The snippets name a key.
    let text =
        server.request("GET", "/start").header("authorization", &read).header("accept", "text/html").send().text();
    assert!(text.contains("Bearer YOUR_KEY") && text.contains("does not have the scope ingest"), "{text}");
    assert_eq!(server.request("GET", "/start").send().status, 401);
}
