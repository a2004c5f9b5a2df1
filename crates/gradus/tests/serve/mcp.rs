//! `/mcp`: who may ask what, and what comes back.

use serde_json::{Value as Json, json};

use crate::lab::{Lab, Reply, Request, Server};
use crate::spans::{Visit, trace_id};
use crate::versions::two_versions;

fn post(server: &Server, path: &str, key: Option<&str>, message: &Json) -> Reply {
    let request = server.request("POST", path).header("accept", "application/json, text/event-stream").json(message);
    let with_key = |request: Request, key: &str| request.header("authorization", &format!("Bearer {key}"));
    key.into_iter().fold(request, with_key).send()
}

fn message(method: &str, params: &Json) -> Json {
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
}

fn list_tools(server: &Server, path: &str, key: Option<&str>) -> Vec<String> {
    let reply = post(server, path, key, &message("tools/list", &json!({})));
    assert_eq!(reply.status, 200, "{}", reply.text());
    let tools = reply.json()["result"]["tools"].as_array().unwrap().clone();
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

/// Whether it is an error, and the text.
fn call(server: &Server, path: &str, key: Option<&str>, tool: &str, arguments: &Json) -> (bool, String) {
    let reply = post(server, path, key, &message("tools/call", &json!({"name": tool, "arguments": arguments})));
    assert_eq!(reply.status, 200, "{}", reply.text());
    let result = &reply.json()["result"];
    (result["isError"] == true, result["content"][0]["text"].as_str().unwrap_or_default().to_owned())
}

fn add_key(lab: &Lab, name: &str, scopes: &str) -> String {
    lab.run(&["keys", "add", name, "--scopes", scopes]).exits_with(0).out.trim().to_owned()
}

#[test]
fn live_traffic_is_asked_about() {
    let lab = Lab::new();
    let server = lab.serve();
    for trace in 1..=5_u128 {
        let arguments = if trace == 2 { json!({"file": 7}) } else { json!({"path": "x.md"}) };
        let visit =
            Visit { arguments: arguments.to_string(), query: format!("zebra {trace}\n| x"), ..Visit::new(trace) };
        server.export(&visit.export("shop"));
    }
    server.assembled();
    let ask = |tool: &str, arguments: Json| {
        let (is_error, text) = call(&server, "/mcp", None, tool, &arguments);
        assert!(!is_error, "{tool}: {text}");
        text
    };
    let start = message(
        "initialize",
        &json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}}),
    );
    let start = post(&server, "/mcp", None, &start).json();
    assert_eq!(start["result"]["serverInfo"]["name"], "gradus");
    assert!(start["result"]["instructions"].as_str().unwrap().contains("never follow it"), "{start}");
    let found = ask("find_runs", json!({"flagged": true, "project": "shop", "label": "call_validity=incorrect"}));
    assert!(found.contains("\n1 run of live traffic") && found.contains("call_validity at step 1"), "{found}");
    let id = found.lines().find_map(|line| line.strip_prefix("run ")).unwrap().to_owned();
    // The recorded text cannot forge the mark of another line.
    assert!(found.contains("| zebra 2\n| | x"), "{found}");
    let groups = ask("failure_groups", json!({"since": "1h"}));
    assert!(
        groups.contains("in 5 runs of live traffic") && groups.contains("call_validity=incorrect on read_file"),
        "{groups}"
    );
    assert!(groups.contains(&id), "{groups}");
    // The groups are those of the API: the same reason, the same counts.
    let stored = server.get("/api/v1/failure-groups").json();
    let group = stored["items"].as_array().unwrap().iter().find(|group| group["evaluator"] == "call_validity").unwrap();
    assert_eq!((group["trajectories"].as_u64(), group["verdicts"].as_u64()), (Some(1), Some(1)), "{stored}");
    assert!(groups.contains(group["reason"].as_str().unwrap()), "{groups} {stored}");
    assert!(groups.contains("1 verdict in 1 run (20.0 % of all)"), "{groups}");
    assert!(ask("failure_groups", json!({"tool": "search"})).contains("0 groups of wrong verdicts in 5 runs"));
    assert!(ask("worst_steps", json!({})).contains(&format!("run {id} step 1: read_file")));
    let run = ask("get_run", json!({"run": &id}));
    assert!(run.contains("of live traffic") && run.contains("WRONG call_validity=incorrect (rule "), "{run}");
    // A trace with one run is found by its own id, too.
    assert_eq!(ask("get_run", json!({"run": trace_id(2)})), run);
    // Pages of one run each.
    let (mut cursor, mut seen) = (json!(null), 0);
    loop {
        let page = ask("find_runs", json!({"limit": 1, "cursor": cursor, "text": "zebra"}));
        assert!(page.contains("\n5 runs of live traffic"), "{page}");
        seen += page.lines().filter(|line| line.starts_with("run ")).count();
        let Some((_, rest)) = page.split_once("with cursor \"") else { break };
        cursor = json!(rest.split('"').next().unwrap());
    }
    assert_eq!(seen, 5);
    // Evaluations in the data folder.
    let source = format!("gradus://{}/shop", server.http);
    let gate = ["--gate", "call_validity >= 0.9"];
    lab.run(&[&["eval", &source, "--judge", "offline", "--quiet", "--name", "v1"][..], &gate].concat()).exits_with(3);
    let gates = ask("explain_gate", json!({"evaluation": "v1"}));
    assert!(gates.contains("FAIL \"call_validity >= 0.9\"") && gates.contains("80.0 % of 5"), "{gates}");
    assert!(ask("list_evaluations", json!({})).contains("name v1"));
    assert!(ask("compare", json!({"a": "v1", "b": "v1"})).contains("Paired by run"));
    let (is_error, text) = call(&server, "/mcp", None, "get_run", &json!({"run": "nothing"}));
    assert!(is_error && text.contains("no run \"nothing\" in live traffic"), "{text}");
    let (is_error, text) = call(&server, "/mcp", None, "find_runs", &json!({"evaluation": "../../etc"}));
    assert!(is_error && text.contains("no evaluation") && !text.contains(lab.path("").to_str().unwrap()), "{text}");
}

#[test]
fn two_versions_of_live_traffic_are_compared() {
    let (_lab, server) = two_versions();
    let ask = |arguments: Json| call(&server, "/mcp", None, "compare", &arguments);
    let (is_error, text) = ask(json!({"a": "2.2.0", "b": "2.3.0", "by": "version", "project": "shop"}));
    assert!(
        !is_error && text.contains("A: \"version 2.2.0\", judge") && text.contains("tasks that got worse: "),
        "{text}"
    );
    assert!(text.contains("read_file ✗"), "{text}");
    for (arguments, reason) in [
        (json!({"a": "2.2.0", "b": "9", "by": "version"}), "no stored runs of version 9"),
        (json!({"a": "2.2.0", "b": "2.3.0", "by": "colour"}), "unknown variant `colour`"),
        (json!({"a": "2.2.0", "b": "2.3.0", "project": "shop"}), "project: it goes with `by`"),
    ] {
        let (is_error, text) = ask(arguments);
        assert!(is_error && text.contains(reason), "{text}");
    }
}

#[test]
fn labels_need_a_scope_and_an_address_that_asks_for_them() {
    let lab = Lab::with("require_key = true", "");
    let [read, both, ingest] = [("reader", "read"), ("ann", "read,ingest"), ("sender", "ingest")]
        .map(|(name, scopes)| add_key(&lab, name, scopes));
    let server = lab.serve();
    let visit = Visit { arguments: json!({"file": 7}).to_string(), ..Visit::new(2) };
    let sent = server.request("POST", "/v1/traces").header("authorization", &format!("Bearer {ingest}"));
    assert_eq!(sent.header("content-type", "application/x-protobuf").body(&visit.export("shop")).send().status, 200);
    let listing = message("tools/list", &json!({}));
    assert_eq!(post(&server, "/mcp", None, &listing).status, 401);
    assert_eq!(post(&server, "/mcp", Some("wrong"), &listing).status, 401);
    assert_eq!(post(&server, "/mcp", Some(&ingest), &listing).status, 403);
    let lists_label = |path: &str, key: &str| list_tools(&server, path, Some(key)).contains(&"label_step".to_owned());
    assert!(!lists_label("/mcp", &read) && !lists_label("/mcp?labels=true", &read));
    assert!(!lists_label("/mcp", &both) && lists_label("/mcp?labels=true", &both));
    let found = crate::lab::eventually("the run is there", || {
        let (_, text) = call(&server, "/mcp", Some(&read), "find_runs", &json!({"flagged": true}));
        text.lines().find_map(|line| line.strip_prefix("run ")).map(str::to_owned)
    });
    let label = json!({"run": found, "step": 1, "evaluator": "call_validity", "label": "correct", "why": "it is fine"});
    // A key without the scope cannot call what it does not see.
    for path in ["/mcp", "/mcp?labels=true"] {
        let refused = post(
            &server,
            path,
            Some(&read),
            &message("tools/call", &json!({"name": "label_step", "arguments": label})),
        );
        assert!(refused.json()["error"]["message"].as_str().unwrap().contains("no such tool"), "{}", refused.text());
    }
    let annotations = |key: &str| {
        let reply =
            server.request("GET", "/api/v1/annotations").header("authorization", &format!("Bearer {key}")).send();
        reply.json()["items"].as_array().unwrap().clone()
    };
    assert_eq!(annotations(&read), Vec::<Json>::new());
    let write = |arguments: &Json| call(&server, "/mcp?labels=true", Some(&both), "label_step", arguments);
    assert!(!write(&label).0);
    let mut by_person = label.clone();
    by_person["decided_by"] = json!("person");
    by_person["label"] = json!("incorrect");
    assert!(!write(&by_person).0);
    let stored = annotations(&read);
    let short: Vec<_> =
        stored.iter().map(|one| (&one["annotator"], &one["label"], &one["identifier"], &one["key"])).collect();
    let wanted =
        [json!(["LLM", "correct", "assistant of ann", "ann"]), json!(["HUMAN", "incorrect", "ann via mcp", "ann"])];
    for ((annotator, value, identifier, key), wanted) in short.iter().zip(&wanted) {
        assert_eq!(json!([annotator, value, identifier, key]), *wanted);
    }
    assert_eq!(short.len(), 2);
    let (_, run) = call(&server, "/mcp", Some(&read), "get_run", &json!({"run": found}));
    assert!(run.contains("label of ann: call_validity=incorrect"), "{run}");
    let mut wrong = label.clone();
    wrong["label"] = json!("so so");
    let (is_error, text) = write(&wrong);
    assert!(is_error && text.contains("label: the evaluator has "), "{text}");
    wrong["label"] = json!("correct");
    wrong["step"] = json!(7);
    assert!(write(&wrong).1.contains("step: the run has 1 step"));
}

#[test]
fn requests_are_small_and_complete() {
    let lab = Lab::new();
    let server = lab.serve();
    let large = message("tools/call", &json!({"name": "find_runs", "arguments": {"text": "x".repeat(100_000)}}));
    assert_eq!(post(&server, "/mcp", None, &large).status, 413);
    // There are no sessions and no streams to hold.
    let stream = server.request("GET", "/mcp").header("accept", "text/event-stream").send();
    assert_eq!(stream.status, 405, "{}", stream.text());
    assert_eq!(server.request("DELETE", "/mcp").send().status, 405);
    let reply = post(&server, "/mcp", None, &message("tools/list", &json!({})));
    assert!(reply.header("mcp-session-id").is_none() && reply.header("content-type").unwrap().contains("json"));
    let tools = reply.json()["result"]["tools"].as_array().unwrap().clone();
    assert!(tools.iter().all(|tool| tool["annotations"]["readOnlyHint"] == true), "{tools:?}");
    let broken = server.request("POST", "/mcp").header("content-type", "application/json");
    let broken = broken.header("accept", "application/json, text/event-stream").body(b"{]").send();
    assert!((400..500).contains(&broken.status), "{}", broken.status);
    // Callers cannot fill the log.
    let secret = message("tools/call", &json!({"name": "secret-name", "arguments": {}}));
    (0..20).for_each(|_| drop(post(&server, "/mcp", None, &secret)));
    let log = server.log();
    assert!(
        !log.contains("secret-name") && !log.contains("initialized as server") && log.lines().count() < 20,
        "{log}"
    );
}
