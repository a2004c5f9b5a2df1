//! The list of sessions, as a page and over the API.

use serde_json::{Value as Json, json};

use crate::lab::{Lab, Server};
use crate::pages::page;
use crate::spans::{SECOND_NS, Visit, attributes, export, now_ns, trace_id};

/// Three sessions, one of them with a name that means harm; `talk` has two runs, the second of which calls its tool with
/// arguments that it cannot take. One run has no session.
fn conversations() -> (Lab, Server) {
    let lab = Lab::new();
    let server = lab.serve();
    let all = [("p", "talk"), ("p", "<script>1</script>"), ("p", ""), ("q", "talk"), ("p", "talk")];
    for (at, (project, session)) in all.into_iter().enumerate() {
        let arguments = if at == 4 { json!({"file": 1}) } else { json!({"path": "a.md"}) };
        let visit = Visit {
            query: format!("Show me file {at} of the demo repository"),
            arguments: arguments.to_string(),
            start_ns: now_ns() - (100 - at as u64) * SECOND_NS,
            ..Visit::new(at as u128 + 1)
        };
        let mut spans = visit.spans();
        for span in spans.iter_mut().filter(|_| !session.is_empty()) {
            span.attributes.extend(attributes(&[("session.id", session)]));
        }
        server.export(&export(project, spans));
    }
    server.assembled();
    (lab, server)
}

#[test]
fn sessions_are_listed_over_the_api_page_by_page() {
    let (_lab, server) = conversations();
    let mut path = "/api/v1/sessions?limit=1".to_owned();
    let mut listed: Vec<Json> = Vec::new();
    loop {
        let answer = server.json(&path);
        listed.extend(answer["items"].as_array().unwrap().iter().cloned());
        let Some(cursor) = answer["next_cursor"].as_str() else { break };
        path = format!("/api/v1/sessions?limit=1&cursor={}", cursor.replace('<', "%3C").replace('>', "%3E"));
    }
    let names: Vec<_> = listed.iter().map(|one| (&one["project"], &one["session_id"])).collect();
    let (p, q, talk) = (json!("p"), json!("q"), json!("talk"));
    assert_eq!(names, [(&p, &talk), (&q, &talk), (&p, &json!("<script>1</script>"))]);
    let first = &listed[0];
    assert_eq!((&first["trajectories"], &first["is_cut"]), (&json!(2), &json!(false)));
    assert_eq!(first["query"], "Show me file 0 of the demo repository");
    assert_eq!(first["outcomes"], json!([{"label": "answered", "trajectories": 2, "is_wrong": false}]));
    assert!(first["flagged"].as_i64().unwrap() >= 1, "{first}");
    // Their trajectories name them in the list of traces.
    let traces = server.json("/api/v1/traces?project=q");
    assert_eq!(traces["items"][0]["trajectories"][0]["session_id"], "talk");
    for bad in ["limit=0", "limit=201", "cursor=x", "from=soon", "colour=red"] {
        assert_eq!(server.get(&format!("/api/v1/sessions?{bad}")).status, 400, "{bad}");
    }
}

#[test]
fn the_page_of_sessions_is_narrowed_by_its_address() {
    let (_lab, server) = conversations();
    let all = page(&server, "/sessions");
    assert!(
        all.contains("/sessions/talk?project=q") && all.contains("/sessions/%3Cscript%3E1%3C%2Fscript%3E"),
        "{all}"
    );
    assert!(!all.contains("<script>1"), "{all}");
    let narrowed = page(&server, "/sessions?project=q");
    assert!(narrowed.contains("/sessions/talk?project=q") && !narrowed.contains("/sessions/talk?project=p"));
    assert!(page(&server, "/sessions?to=2020-01-01").contains("No session matches the filter."));
    assert!(page(&server, "/sessions?from=soon").contains("role=\"alert\""));
    assert_eq!(server.request("GET", "/sessions?cursor=x").header("accept", "text/html").send().status, 400);
    // Lists lead to sessions.
    assert!(page(&server, "/traces?project=q").contains("/sessions/talk?project=q"));
}

#[test]
fn a_server_without_sessions_says_how_runs_get_one() {
    let lab = Lab::new();
    let server = lab.serve();
    assert!(page(&server, "/sessions").contains("gen_ai.conversation.id"));
}

#[test]
fn a_run_is_linked_to_the_turn_before_it_in_its_session_also_after_a_restart() {
    let lab = Lab::new();
    let send = |server: &Server, at: u64| {
        let visit = Visit {
            query: format!("Question {at}"),
            start_ns: now_ns() - (100 - 10 * at) * SECOND_NS,
            ..Visit::new(u128::from(at) + 1)
        };
        let mut spans = visit.spans();
        spans.iter_mut().for_each(|span| span.attributes.extend(attributes(&[("session.id", "talk")])));
        server.export(&export("p", spans));
        server.assembled();
    };
    let turn = |server: &Server, at: u64| {
        let mut trace = server.json(&format!("/api/v1/traces/{}", trace_id(u128::from(at) + 1)));
        trace["trajectories"][0].take()
    };
    let server = lab.serve();
    send(&server, 0);
    send(&server, 1);
    let (first, second) = (turn(&server, 0), turn(&server, 1));
    assert_eq!(first["previous_trajectory_id"], Json::Null, "{first}");
    assert_eq!(second["previous_trajectory_id"], first["trajectory_id"], "{second}");
    assert_eq!(second["turn_index"], 2, "{second}");
    server.stop();
    let server = lab.serve();
    send(&server, 2);
    let third = turn(&server, 2);
    assert_eq!(third["previous_trajectory_id"], second["trajectory_id"], "{third}");
    assert_eq!(third["turn_index"], 3, "{third}");
}
