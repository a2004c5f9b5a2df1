//! Trouble on demand, the simulator's own API, limits and conditional requests.

use crate::lab::{self, Lab, refusal};
use gradus_github_sim::{FaultEffect, RequestMethod, SimulatedFault, SimulatedRequest};
use serde_json::{Value, json};

fn fault(operation: &str, after: u32, effect: FaultEffect) -> SimulatedFault {
    SimulatedFault { method: None, path: None, operation: Some(operation.to_owned()), after, times: 1, effect }
}

/// The answer is lost, the issue is there: who does not look before trying again makes it twice.
#[test]
fn a_lost_answer_is_carried_out() {
    let mut lab = Lab::new("w1");
    lab.world.add_fault(fault("issues/create", 0, FaultEffect::LostAnswer { status: 502 }));
    assert_eq!(lab.post("/repos/octo/demo/issues", json!({"title": "t"})).status, 502);
    assert_eq!(lab.read("/repos/octo/demo/issues").as_array().unwrap().len(), 1);
    assert_eq!(lab.post("/repos/octo/demo/issues", json!({"title": "t"})).status, 201, "once only");
}

/// Someone else is faster: the sha that was read is no longer right, and the other change must not get lost.
#[test]
fn a_commit_by_someone_else_comes_between() {
    let mut lab = Lab::new("w1");
    let effect = json!({"operation": "repos/create-or-update-file-contents", "effect": {"commit": {
        "repository": "octo/demo", "branch": "main", "author": "mona", "message": "docs: one more line",
        "files": {"README.md": "# Demo\n\nchanged by mona\n"}}}});
    assert_eq!(lab.send(RequestMethod::Post, "/_gradus/faults", Some(effect)).status, 200);
    let sha = lab.read("/repos/octo/demo/contents/README.md")["sha"].clone();
    let body = json!({"message": "m", "content": "aGk=", "sha": sha});
    let (status, message) = refusal(&lab.put("/repos/octo/demo/contents/README.md", body.clone()));
    assert_eq!((status, message), (409, format!("README.md does not match {}", sha.as_str().unwrap())));
    assert_eq!(lab.put("/repos/octo/demo/contents/README.md", body).status, 409, "the file stays changed");
    let now = lab.read("/repos/octo/demo/contents/README.md")["sha"].clone();
    assert_ne!(now, sha);
    assert_eq!(
        lab.put("/repos/octo/demo/contents/README.md", json!({"message": "m", "content": "aGk=", "sha": now})).status,
        200
    );
    assert_eq!(lab.read("/repos/octo/demo/commits")[1]["author"]["login"], "mona");
}

#[test]
fn the_secondary_limit_comes_after_some_calls() {
    let mut lab = Lab::new("w4");
    lab.world.add_fault(fault("issues/add-labels", 5, FaultEffect::SecondaryLimit { retry_after_s: 60 }));
    let statuses: Vec<u16> = (1..=7)
        .map(|number| lab.post(&format!("/repos/octo/atlas/issues/{number}/labels"), json!(["stale"])).status)
        .collect();
    assert_eq!(statuses, [200, 200, 200, 200, 200, 403, 200]);
    lab.world.add_fault(fault("issues/get", 0, FaultEffect::SecondaryLimit { retry_after_s: 7 }));
    let response = lab.get("/repos/octo/atlas/issues/1");
    assert_eq!(response.header("retry-after"), Some("7"));
    assert!(refusal(&response).1.starts_with("You have exceeded a secondary rate limit."));
}

#[test]
fn other_trouble() {
    let mut lab = Lab::new("w2");
    lab.world.add_fault(fault("pulls/get", 0, FaultEffect::Latency { ms: 250 }));
    assert_eq!(lab.get("/repos/octo/demo/pulls/22").delay_ms, 250);
    assert_eq!(lab.get("/repos/octo/demo/pulls/22").delay_ms, 0);
    let message = "Base branch was modified. Review and try the merge again.".to_owned();
    let effect = FaultEffect::Answer { status: 405, message: message.clone(), retry_after_s: None };
    lab.world.add_fault(fault("pulls/merge", 0, effect));
    assert_eq!(refusal(&lab.put("/repos/octo/demo/pulls/23/merge", json!({}))), (405, message));
    assert_eq!(lab.put("/repos/octo/demo/pulls/23/merge", json!({})).status, 200);
    assert_eq!(lab.world.counters().faults, 2);
}

#[test]
fn differences_name_what_was_touched_and_nothing_else() {
    let mut lab = Lab::new("w2");
    lab.send(RequestMethod::Put, "/_gradus/snapshots/before", None);
    lab.post("/repos/octo/demo/issues/5/comments", json!({"body": "Could you attach logs?"}));
    lab.patch("/repos/octo/demo/issues/7", json!({"state": "closed", "state_reason": "not_planned"}));
    lab.patch("/repos/octo/demo/labels/bug", json!({"new_name": "defect"}));
    let told = lab.get("/_gradus/diff?from=before&to=now").json();
    let shown: Vec<(String, String)> = told
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["path"].as_str().unwrap().to_owned(), one["what"].as_str().unwrap().to_owned()))
        .filter(|(path, _)| !path.contains("/comments/"))
        .collect();
    let of =
        |what: &str| shown.iter().filter(|(_, one)| one == what).map(|(path, _)| path.as_str()).collect::<Vec<_>>();
    assert_eq!(of("added"), ["repos/octo/demo/labels/defect"]);
    assert_eq!(of("removed"), ["repos/octo/demo/labels/bug"]);
    assert!(of("changed").contains(&"repos/octo/demo/issues/7"), "{told}");
    assert_eq!(
        told.as_array().unwrap().iter().filter(|one| one["path"].as_str().unwrap().contains("/comments/")).count(),
        1
    );
    lab.send(RequestMethod::Post, "/_gradus/snapshots/before/restore", None);
    assert_eq!(lab.get("/_gradus/diff").json(), json!([]));
    assert_eq!(lab.get("/_gradus/diff?from=nothing").status, 404);
}

#[test]
fn what_is_not_simulated_is_said_and_counted() {
    let mut lab = Lab::new("w0");
    let response = lab.post("/repos/octo/demo/hooks", json!({}));
    assert_eq!(response.status, 501);
    assert_eq!(response.json()["simulator"], "unrouted");
    lab.get("/emojis");
    lab.get("/emojis");
    let counters = lab.get("/_gradus/counters").json();
    assert_eq!(counters["unrouted"], json!({"POST /repos/octo/demo/hooks": 1, "GET /emojis": 2}));
    assert_eq!(counters["requests"], 3, "its own API does not count");
}

/// Paths of GitHub's own that stand where a name could be.
#[test]
fn what_is_not_simulated_is_not_taken_for_a_name() {
    let mut lab = Lab::new("w2");
    let sha = lab.read("/repos/octo/demo/branches/main")["commit"]["sha"].as_str().unwrap().to_owned();
    let mut paths: Vec<String> = ["check-runs", "check-suites", "comments", "branches-where-head"]
        .iter()
        .flat_map(|what| [&*sha, "main", "heads/main"].map(|name| format!("commits/{name}/{what}")))
        .collect();
    paths.extend(["issues/events", "pulls/comments", "branches/main/protection/enforce_admins"].map(str::to_owned));
    let mut targets: Vec<String> =
        paths.into_iter().flat_map(|path| ["", "/api/v3"].map(|v| format!("{v}/repos/octo/demo/{path}"))).collect();
    targets.extend(["/gists/public", "/gists/starred"].map(str::to_owned));
    for target in &targets {
        let response = lab.get(target);
        assert_eq!(response.status, 501, "{target}: {}", String::from_utf8_lossy(&response.body));
        assert_eq!(response.json()["simulator"], "unrouted", "{target}");
    }
    let counted: u64 = lab.get("/_gradus/counters").json()["unrouted"]
        .as_object()
        .unwrap()
        .values()
        .map(|count| count.as_u64().unwrap())
        .sum();
    assert_eq!(counted, targets.len() as u64);
    // Branches with such names, and with slashes in them.
    for name in ["comments", "status", "a/b", "protection"] {
        let body = json!({"ref": format!("refs/heads/{name}"), "sha": sha});
        assert_eq!(lab.post("/repos/octo/demo/git/refs", body).status, 201, "{name}");
        assert_eq!(lab.read(&format!("/repos/octo/demo/commits/{name}"))["sha"], sha.as_str());
        assert_eq!(lab.read(&format!("/repos/octo/demo/commits/{name}/status"))["sha"], sha.as_str());
        assert_eq!(lab.read(&format!("/repos/octo/demo/branches/{name}"))["name"], name);
    }
    for name in ["heads/main", "heads/a/b"] {
        assert_eq!(lab.read(&format!("/repos/octo/demo/commits/{name}"))["sha"], sha.as_str());
    }
}

#[test]
fn limits_are_told_and_kept_when_asked_to() {
    let mut lab = Lab::new("w1");
    let remaining = |lab: &mut Lab| lab.get("/repos/octo/demo").header("x-ratelimit-remaining").unwrap().to_owned();
    assert_eq!((remaining(&mut lab), remaining(&mut lab)), ("4999".to_owned(), "4998".to_owned()));
    for _ in 0..40 {
        assert_eq!(lab.get("/search/issues?q=x").status, 200, "nobody asked for limits");
    }
    lab.world.enforce_limits();
    for _ in 0..60 {
        lab.get("/search/issues?q=x");
    }
    let response = lab.get("/search/issues?q=x");
    assert_eq!((response.status, response.header("x-ratelimit-remaining")), (403, Some("0")));
    assert!(refusal(&response).1.starts_with("API rate limit exceeded for user ID "));
    lab.world.advance_clock(61);
    assert_eq!(lab.get("/search/issues?q=x").status, 200);
    assert_eq!(lab.read("/rate_limit")["resources"]["search"]["remaining"], 29);
}

#[test]
fn unchanged_things_are_not_sent_again() {
    let mut lab = Lab::new("w1");
    let first = lab.get("/repos/octo/demo");
    let tag = first.header("etag").unwrap().to_owned();
    let again = |lab: &mut Lab, name: &str, value: &str| {
        lab.world.handle(
            &SimulatedRequest::new(RequestMethod::Get, "/repos/octo/demo")
                .with_token(lab::OCTO)
                .with_header("host", "127.0.0.1:4100")
                .with_header(name, value),
        )
    };
    let second = again(&mut lab, "if-none-match", &tag);
    assert_eq!((second.status, second.body.len()), (304, 0));
    assert_eq!(second.header("x-ratelimit-remaining"), first.header("x-ratelimit-remaining"), "it is free");
    assert_eq!(again(&mut lab, "if-modified-since", first.header("last-modified").unwrap()).status, 304);
    lab.patch("/repos/octo/demo", json!({"description": "new"}));
    assert_eq!(again(&mut lab, "if-none-match", &tag).status, 200);
}

/// Addresses lead back to where the client came from, under the prefix it used.
#[test]
fn addresses_are_the_clients_own() {
    let mut lab = Lab::new("w1");
    let response = lab.world.handle(
        &SimulatedRequest::new(RequestMethod::Get, "/api/v3/repos/Octo/DEMO/issues?per_page=1")
            .with_header("host", "sim.test:8080"),
    );
    assert_eq!(response.status, 200);
    let repository = lab
        .world
        .handle(
            &SimulatedRequest::new(RequestMethod::Get, "/api/v3/repos/octo/demo").with_header("host", "sim.test:8080"),
        )
        .json();
    assert_eq!(repository["url"], "http://sim.test:8080/api/v3/repos/octo/demo");
    assert_eq!(repository["html_url"], "http://sim.test:8080/octo/demo");
    fn addresses(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::String(text) if text.starts_with("http") => found.push(text.clone()),
            Value::Array(items) => items.iter().for_each(|item| addresses(item, found)),
            Value::Object(fields) => fields.values().for_each(|item| addresses(item, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    addresses(&repository, &mut found);
    assert!(found.len() > 50 && found.iter().all(|one| one.starts_with("http://sim.test:8080/")), "{found:?}");
    let by_number = format!("/repositories/{}/issues", repository["id"]);
    assert_eq!(lab.get(&by_number).status, 200);
}

#[test]
fn forgotten_requests_do_not_end_the_recording() {
    let mut lab = Lab::new("w1");
    lab.world.start_recording_exchanges();
    lab.read("/repos/octo/demo/issues");
    assert_eq!(lab.send(RequestMethod::Delete, "/_gradus/requests", None).status, 200);
    assert!(lab.world.recorded_exchanges().is_empty());
    lab.read("/repos/octo/demo/issues");
    assert_eq!(lab.world.recorded_exchanges().len(), 1);
}
