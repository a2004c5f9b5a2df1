//! The JSON API: every filter, every page, every wrong question.

use serde_json::{Value as Json, json};

use crate::lab::{Lab, Server};
use crate::spans::{SECOND_NS, Visit, now_ns, trace_id};

fn ids(server: &Server, query: &str) -> Vec<u64> {
    let page = server.json(&format!("/api/v1/traces?{query}"));
    let mut found: Vec<u64> = page["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|trace| u64::from_str_radix(trace["trace_id"].as_str().unwrap(), 16).unwrap())
        .collect();
    found.sort_unstable();
    found
}

fn time(ns: u64) -> String {
    jiff::Timestamp::from_nanosecond(i128::from(ns)).unwrap().to_string()
}

#[test]
fn traces_are_found_by_what_they_are() {
    let lab = Lab::new();
    let server = lab.serve();
    let now = now_ns();
    let hour = 3600 * SECOND_NS;
    let base = Visit { start_ns: now - hour, ..Visit::new(1) };
    server.export(&base.export("p"));
    server.export(&Visit { agent: "clerk".to_owned(), ..Visit::new(2) }.export("p"));
    server.export(&Visit { model: "small".to_owned(), ..Visit::new(3) }.export("p"));
    server.export(&Visit { tool: "delete_file".to_owned(), ..Visit::new(4) }.export("p"));
    server.export(&Visit { is_error: true, ..Visit::new(5) }.export("p"));
    server.export(&Visit { arguments: json!({"file": 7}).to_string(), ..Visit::new(6) }.export("q"));
    server.export(&Visit { query: "Where are the zebra's stripes?".to_owned(), ..Visit::new(7) }.export("q"));
    server.assembled();
    assert_eq!(ids(&server, ""), [1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(ids(&server, "project=q"), [6, 7]);
    assert_eq!(ids(&server, "project=none"), [0; 0]);
    assert_eq!(ids(&server, "agent=clerk"), [2]);
    assert_eq!(ids(&server, "model=small"), [3]);
    assert_eq!(ids(&server, "tool=delete_file"), [4]);
    assert_eq!(ids(&server, "error=true"), [5]);
    assert_eq!(ids(&server, "error=false&project=p"), [1, 2, 3, 4]);
    assert_eq!(ids(&server, "q=zebra%20stripes"), [7]);
    assert_eq!(ids(&server, "q=%22%20OR%20*%20NEAR("), [0; 0], "what is searched for is words, not a language");
    assert_eq!(ids(&server, &format!("to={}", time(now - hour / 2))), [1]);
    assert_eq!(ids(&server, &format!("from={}&project=q", time(now - hour / 2))), [6, 7]);
    let invalid = ids(&server, "score=call_validity%3C0.5");
    assert!(invalid.contains(&6) && !invalid.contains(&1), "{invalid:?}");
    assert!(ids(&server, "score=call_validity%3E=0.9").contains(&1));
    let trace = server.trace(&trace_id(6));
    let outcomes = trace["outcomes"].as_array().unwrap();
    let label = outcomes.iter().find(|outcome| outcome["evaluator"] == "call_validity").unwrap()["label"].clone();
    let label = label.as_str().unwrap();
    // Every outcome leads to its spans.
    let call = outcomes.iter().find(|outcome| outcome["evaluator"] == "call_validity").unwrap();
    assert_eq!(call["trace_id"], trace_id(6));
    assert!(!call["span_ids"].as_array().unwrap().is_empty(), "{call}");
    assert!(ids(&server, &format!("label=call_validity={label}")).contains(&6));
    assert!(ids(&server, &format!("label={label}")).contains(&6));
    assert_eq!(ids(&server, "where=span_kind%20==%20'TOOL'%20and%20name%20==%20'delete_file'"), [4]);
    assert_eq!(ids(&server, "where=status_code%20==%20'ERROR'&project=q"), [0; 0]);
    assert_eq!(ids(&server, "project=p&agent=librarian&model=gpt-4o&tool=read_file&error=false"), [1]);
    let summary = &server.json("/api/v1/traces?q=zebra")["items"][0];
    assert_eq!((&summary["has_root"], &summary["spans"], &summary["project"]), (&json!(true), &json!(3), &json!("q")));
    assert_eq!(summary["trajectories"][0]["query"], "Where are the zebra's stripes?");
    assert!(!summary["trajectories"][0]["scores"].as_array().unwrap().is_empty());
}

#[test]
fn pages_follow_each_other_without_gaps() {
    let lab = Lab::new();
    let server = lab.serve();
    let now = now_ns();
    for number in 1..=25_u64 {
        // Some of them begin at the same moment.
        let start_ns = now - (number / 3) * SECOND_NS - 100 * SECOND_NS;
        server.export(&Visit { start_ns, ..Visit::new(u128::from(number)) }.export("p"));
    }
    server.assembled();
    for filter in ["", "&project=p", "&tool=read_file", "&q=demo", "&error=false", "&agent=librarian"] {
        let (mut seen, mut cursor, mut starts) = (Vec::new(), String::new(), Vec::new());
        loop {
            let page = server.json(&format!("/api/v1/traces?limit=4{filter}{cursor}"));
            let items = page["items"].as_array().unwrap();
            assert!(items.len() <= 4);
            seen.extend(items.iter().map(|trace| trace["trace_id"].as_str().unwrap().to_owned()));
            starts
                .extend(items.iter().map(|trace| trace["start"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap()));
            match page["next_cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
        }
        // What is found by words comes in order of arrival.
        let is_newest_first = starts.is_sorted_by(|a, b| a >= b);
        assert!(is_newest_first || filter.starts_with("&q"), "newest first: {filter}");
        let all = seen.len();
        seen.sort();
        seen.dedup();
        assert_eq!((all, seen.len()), (25, 25), "{filter}");
    }
}

#[test]
fn wrong_questions_are_told_in_one_line() {
    let lab = Lab::new();
    let server = lab.serve();
    server.export(&Visit::new(1).export("p"));
    for path in [
        "traces?limit=0",
        "traces?limit=501",
        "traces?limit=many",
        "traces?cursor=xyz",
        "traces?from=yesterday",
        "traces?to=2026-13-01T00:00:00Z",
        "traces?score=good",
        "traces?score=a%3Cb",
        "traces?error=perhaps",
        "traces?projet=p",
        "traces?sort=colour",
        "traces?where=span_kind%20==",
        "traces?sort=steps&where=span_kind%20==%20'TOOL'",
        "traces?sort=steps&cursor=xyz",
        "metrics?by=color",
        "metrics?by=time&period=7s",
        "metrics?by=time&period=soon",
        "metrics?from=1",
        "alerts?limit=0",
        "annotations?limit=5000",
        "annotations?cursor=a",
        "projects/p/spans?king=LLM",
    ] {
        let reply = server.get(&format!("/api/v1/{path}"));
        assert_eq!(reply.status, 400, "{path}: {}", reply.text());
        assert!(!reply.error().is_empty(), "{path}");
    }
    for path in [
        "traces/1",
        "traces/zz",
        "traces/00000000000000000000000000000009",
        "projects/none/spans",
        "projects/none/otlp",
        "runs/none",
        "runs/..%2f..%2fetc",
        "nothing",
    ] {
        let reply = server.get(&format!("/api/v1/{path}"));
        assert_eq!(reply.status, 404, "{path}: {}", reply.text());
        assert!(!reply.error().is_empty(), "{path}");
    }
}

fn annotate(server: &Server, items: &Json) -> crate::lab::Reply {
    server.request("POST", "/api/v1/annotations").json(&json!({"items": items})).send()
}

#[test]
fn people_can_say_what_they_think() {
    let lab = Lab::new();
    let server = lab.serve();
    server.export(&Visit::new(1).export("p"));
    server.export(&Visit::new(2).export("q"));
    server.assembled();
    let trace = trace_id(1);
    let trajectory = server.trace(&trace)["trajectories"][0]["trajectory_id"].as_str().unwrap().to_owned();
    let targets = [
        format!("trace:{trace}"),
        format!("span:{:016x}", 1 << 8 | 2),
        format!("trajectory:{trajectory}"),
        format!("trajectory:{trajectory}#1"),
    ];
    let items: Vec<Json> = targets
        .iter()
        .map(|target| json!({"target": target, "name": "thought_to_tool", "label": "correct", "score": 1.0, "author": "ann"}))
        .collect();
    let reply = annotate(&server, &json!(items));
    assert_eq!(reply.status, 200, "{}", reply.text());
    let ids = reply.json()["ids"].clone();
    assert_eq!(ids.as_array().unwrap().len(), 4);
    // The same again takes the place of the first; another name does not.
    let again = json!([{"target": targets[0], "name": "thought_to_tool", "label": "incorrect", "annotator": "CODE",
        "identifier": "ann", "explanation": "looked again", "metadata": {"ticket": 7}}]);
    assert_eq!(annotate(&server, &again).json()["ids"][0], ids[0]);
    // Nor does what somebody else says.
    let bob = json!([{"target": targets[2], "name": "thought_to_tool", "label": "incorrect", "author": "bob"}]);
    let of_bob = annotate(&server, &bob).json()["ids"][0].clone();
    assert!(!ids.as_array().unwrap().contains(&of_bob));
    assert_eq!(server.request("DELETE", &format!("/api/v1/annotations/{of_bob}")).send().status, 204);
    annotate(&server, &json!([{"target": targets[0], "name": "tone", "score": 0.5}]));
    let of_other = json!([{"target": format!("trace:{}", trace_id(2)), "name": "tone", "score": 0.1}]);
    assert_eq!(annotate(&server, &of_other).status, 200);
    let listed =
        |query: &str| server.json(&format!("/api/v1/annotations?{query}"))["items"].as_array().unwrap().clone();
    assert_eq!(listed("").len(), 6);
    assert_eq!((listed("project=p").len(), listed("project=q").len()), (5, 1));
    assert_eq!(listed("name=tone").len(), 2);
    let of_trace = listed(&format!("target=trace:{trace}"));
    assert_eq!((of_trace.len(), &of_trace[0]["label"]), (2, &json!("incorrect")));
    assert_eq!((&of_trace[0]["metadata"]["ticket"], &of_trace[0]["annotator"]), (&json!(7), &json!("CODE")));
    assert_eq!(server.trace(&trace)["annotations"].as_array().unwrap().len(), 5);
    let first = server.json("/api/v1/annotations?limit=4");
    let rest = server.json(&format!("/api/v1/annotations?limit=4&cursor={}", first["next_cursor"]));
    assert_eq!((rest["items"].as_array().unwrap().len(), &rest["next_cursor"]), (2, &Json::Null));
    let path = format!("/api/v1/annotations/{}", ids[1]);
    assert_eq!(server.request("DELETE", &path).send().status, 204);
    assert_eq!(server.request("DELETE", &path).send().status, 404);
    assert_eq!(server.request("DELETE", "/api/v1/annotations/x").send().status, 404);
    let good = json!({"target": targets[0], "name": "n", "label": "l"});
    let wrong = |change: &str, value: Json| {
        let mut item = good.clone();
        item[change] = value;
        // All of them are kept, or none.
        annotate(&server, &json!([good, item]))
    };
    for (change, value, status) in [
        ("target", json!("page:1"), 400),
        ("target", json!("trace:xyz"), 400),
        ("target", json!("trajectory:x#y"), 400),
        ("target", json!(format!("trace:{}", trace_id(99))), 404),
        ("target", json!("span:00000000000000ff"), 404),
        ("target", json!("trajectory:none"), 404),
        ("name", json!(" "), 400),
        ("annotator", json!("CAT"), 400),
        ("label", Json::Null, 400),
        ("scor", json!(1), 400),
        ("score", json!("high"), 400),
    ] {
        let reply = wrong(change, value.clone());
        assert_eq!(reply.status, status, "{change} = {value}: {}", reply.text());
        assert!(!reply.error().is_empty());
    }
    assert_eq!(listed("").len(), 5);
    let reply = server.request("POST", "/api/v1/annotations").json(&json!([])).send();
    assert_eq!(reply.status, 400);
    // They last.
    server.kill();
    let server = lab.serve();
    assert_eq!(server.json("/api/v1/annotations")["items"].as_array().unwrap().len(), 5);
}

#[test]
fn metrics_add_up() {
    let lab = Lab::new();
    let server = lab.serve();
    let now = now_ns();
    let day = 86_400 * SECOND_NS;
    for number in 1..=6 {
        let mut visit = Visit::new(number);
        visit.start_ns = if number <= 2 { now - day } else { now - 60 * SECOND_NS };
        if number.is_multiple_of(2) {
            visit.agent = "clerk".to_owned();
        }
        if number == 6 {
            visit.arguments = json!({"file": 7}).to_string();
        }
        server.export(&visit.export("p"));
    }
    server.assembled();
    let points = |query: &str| {
        let metrics = server.json(&format!("/api/v1/metrics?evaluator=call_validity&{query}"));
        metrics["items"].as_array().unwrap().clone()
    };
    let all = points("project=p");
    assert_eq!((all.len(), &all[0]["scored"], &all[0]["trajectories"]), (1, &json!(6), &json!(6)));
    assert!((all[0]["mean"].as_f64().unwrap() - 5.0 / 6.0).abs() < 1e-9, "{all:?}");
    assert_eq!(all[0]["group"], Json::Null);
    let by_agent = points("by=agent");
    let groups: Vec<(&str, i64)> =
        by_agent.iter().map(|point| (point["group"].as_str().unwrap(), point["scored"].as_i64().unwrap())).collect();
    assert_eq!(groups, [("clerk", 3), ("librarian", 3)]);
    let by_tool = points("by=tool");
    assert_eq!((by_tool.len(), &by_tool[0]["group"]), (1, &json!("read_file")));
    let by_time = points("by=time&period=1h");
    assert_eq!(by_time.len(), 2, "{by_time:?}");
    assert_eq!((&by_time[0]["scored"], &by_time[1]["scored"]), (&json!(2), &json!(4)));
    assert!(by_time[0]["group"].as_str() < by_time[1]["group"].as_str());
    assert_eq!(points("agent=clerk")[0]["scored"], 3);
    assert_eq!(points(&format!("from={}", time(now - day / 2)))[0]["scored"], 4);
    assert_eq!(points(&format!("to={}", time(now - day / 2)))[0]["scored"], 2);
    assert!(points("project=none").is_empty());
    assert!(points("by=model").iter().all(|point| point["group"] == "gpt-4o"));
}

#[test]
fn runs_and_rubrics_are_listed() {
    let lab = Lab::with("", "[[rule]]\nname = \"all\"\n");
    let server = lab.serve();
    let folder = crate::lab::fixture("llamaindex-react/s07_error_recovery").display().to_string();
    lab.run(&["eval", &folder, "--judge", "offline"]).exits_with(0);
    let runs = server.json("/api/v1/runs");
    let items = runs["items"].as_array().unwrap();
    assert_eq!((items.len(), &items[0]["run_id"], &items[0]["is_live"]), (2, &json!("live-all"), &json!(true)));
    assert_eq!((&items[1]["state"], &items[1]["judge"]), (&json!("finished"), &json!("offline")));
    let id = items[1]["run_id"].as_str().unwrap();
    let run = server.json(&format!("/api/v1/runs/{id}"));
    assert_eq!(run["run"]["run_id"].as_str().or(run["run_id"].as_str()), Some(id), "{run}");
    assert_eq!(server.get("/api/v1/runs/live-all").status, 404);
    let rubrics = server.json("/api/v1/rubrics");
    let names: Vec<&str> =
        rubrics["items"].as_array().unwrap().iter().map(|rubric| rubric["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"thought_to_tool") && names.contains(&"sequence_optimality"), "{names:?}");
    assert_eq!(server.json("/api/v1/rules")["items"][0]["name"], "all");
}
