//! What our own extractor makes of the agent's traces is what the agent did, exactly.

use serde_json::{Value as Json, json};

use crate::lab::{Lab, Receiver, Reply, answer, call, eventually, model};
use crate::place::Ran;

const REQUEST: &str = "Open an issue about the crash, if there is none.";

/// Reads, a tool that is not there, something that is not found, a write; one reply with two calls if `several`.
fn script(several: bool) -> Vec<Reply> {
    let demo = |more: Json| {
        let mut arguments = json!({"owner": "octo", "repo": "demo"});
        arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        arguments
    };
    let mut script = vec![
        call("I look at what is open.", "list_issues", demo(json!({"state": "open", "labels": ["bug"]}))),
        call("I have a look at the code.", "readFile", demo(json!({"path": "src/app.py"}))),
        call("The name was wrong.", "read_file", demo(json!({"path": "src/app.py"}))),
        call("There may be notes.", "read_file", demo(json!({"path": "NOTES.md"}))),
        call(
            "Nobody has reported it: I do.",
            "open_issue",
            demo(json!({"title": "Crash", "body": "A \"quoted\"\nbody."})),
        ),
    ];
    if several {
        let calls = vec![("get_repo", demo(json!({}))), ("list_labels", demo(json!({}))), ("get_me", json!({}))];
        script.push(Reply { thought: "Three looks at once.", calls });
    }
    script.push(answer("I opened it. It is the only one."));
    script
}

/// What the agent says it did.
fn report(ran: &Ran) -> Json {
    serde_json::from_str(&ran.out).unwrap()
}

/// The trajectory that was read from a source equals what the agent reports.
fn assert_same(report: &Json, trajectory: &Json, several: bool) {
    assert_eq!(trajectory["query"], REQUEST);
    assert_eq!(trajectory["final_answer"], report["answer"]);
    assert_eq!(trajectory["session_id"], report["session"]);
    assert_eq!((&trajectory["model"], &trajectory["project"]), (&json!("scripted"), &json!("shop")));
    assert_eq!(trajectory["defects"], json!([]), "{trajectory:#}");
    assert_eq!(trajectory["is_error"], false);
    let offers = |name: &str| trajectory["tools"].as_array().unwrap().iter().any(|tool| tool["name"] == name);
    assert!(offers("open_issue") && !offers("readFile"), "what the model made up is not on offer");
    let replies = report["replies"].as_u64().unwrap();
    assert_eq!(trajectory["tokens"], json!({"prompt": 100 * replies, "completion": 10 * replies}));
    let (did, read) = (report["steps"].as_array().unwrap(), trajectory["steps"].as_array().unwrap());
    assert_eq!(did.len(), if several { 8 } else { 5 });
    assert_eq!(did.len(), read.len(), "{trajectory:#}");
    for (did, read) in did.iter().zip(read) {
        for part in ["thought", "tool", "arguments", "observation", "is_error"] {
            assert_eq!(did[part], read[part], "{part} of {}", did["tool"]);
        }
    }
    let errors: Vec<bool> = did.iter().map(|step| step["is_error"].as_bool().unwrap()).collect();
    assert_eq!(errors[..5], [false, true, false, true, false]);
    let together: Vec<bool> = read.iter().map(|step| step["parallel_with_previous"].as_bool().unwrap()).collect();
    assert_eq!(together.iter().filter(|together| **together).count(), if several { 2 } else { 0 });
}

fn through_a_server(form: &str, several: bool) {
    let lab = Lab::new("w2");
    let receiver = Receiver::start(&lab);
    let model = model(script(several));
    let otlp = format!("http://{}", receiver.address);
    let ran =
        lab.ask(&model, &[REQUEST, "--react", form, "--otlp", &otlp, "--project", "shop", "--json"]).exits_with(0);
    assert_eq!(lab.issues_called("Crash"), 1);
    let source = format!("gradus://{}/shop", receiver.address);
    let trajectory = eventually("the trace is there", || {
        let read = lab.run(&["traces", &source, "--format", "jsonl"]);
        serde_json::from_str::<Json>(read.out.lines().next()?).ok()
    });
    assert_same(&report(&ran), &trajectory, several);
}

fn through_a_file(form: &str, several: bool) {
    let lab = Lab::new("w2");
    let model = model(script(several));
    let arguments = [REQUEST, "--react", form, "--trace-file", "t.bin", "--project", "shop", "--json"];
    let first = lab.ask(&model, &arguments).exits_with(0);
    let second = lab.ask(&model, &arguments).exits_with(0);
    let read = lab.run(&["traces", "t.bin", "--format", "jsonl"]).exits_with(0);
    let trajectories: Vec<Json> = read.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(trajectories.len(), 2, "one file takes the traces of many runs");
    for ran in [first, second] {
        let report = report(&ran);
        let trajectory = trajectories.iter().find(|trajectory| trajectory["session_id"] == report["session"]).unwrap();
        assert_same(&report, trajectory, several);
    }
    let graded = lab.run(&["eval", "t.bin", "--judge", "offline", "-e", "call_validity", "--jsonl", "g.jsonl"]);
    graded.exits_with(0);
    for outcome in lab.lines("g.jsonl") {
        let is_made_up = outcome["step_index"] == 2;
        assert_eq!(outcome["label"], if is_made_up { "incorrect" } else { "correct" }, "{outcome:#}");
        let why = outcome["explanation"].as_str().unwrap();
        assert_eq!(why.starts_with("\"readFile\" is no tool that the agent had"), is_made_up, "{why}");
    }
}

#[test]
fn native_calls_are_read_back_from_a_server_as_they_were_made() {
    through_a_server("native", true);
}

#[test]
fn text_actions_are_read_back_from_a_server_as_they_were_made() {
    through_a_server("text", false);
}

#[test]
fn native_calls_are_read_back_from_a_file_as_they_were_made() {
    through_a_file("native", true);
}

#[test]
fn text_actions_are_read_back_from_a_file_as_they_were_made() {
    through_a_file("text", false);
}

#[test]
fn a_conversation_is_one_session_of_several_trajectories() {
    let lab = Lab::new("w2");
    let model = model(vec![
        call("I look.", "get_me", json!({})),
        answer("You are octo."),
        call("I look again.", "list_my_repos", json!({})),
        answer("You have demo."),
    ]);
    lab.ask(&model, &["Who am I?", "--session", "s.json", "--trace-file", "t.bin"]).exits_with(0);
    lab.ask(&model, &["What do I have?", "--session", "s.json", "--trace-file", "t.bin"]).exits_with(0);
    let read = lab.run(&["traces", "t.bin", "--format", "jsonl"]).exits_with(0);
    let mut found: Vec<(String, String, usize)> = Vec::new();
    for line in read.out.lines() {
        let trajectory: Json = serde_json::from_str(line).unwrap();
        let text = |name: &str| trajectory[name].as_str().unwrap().to_owned();
        found.push((text("query"), text("final_answer"), trajectory["steps"].as_array().unwrap().len()));
        assert_eq!(trajectory["session_id"], found_session(&lab));
    }
    found.sort();
    assert_eq!(
        found,
        [
            ("What do I have?".to_owned(), "You have demo.".to_owned(), 1),
            ("Who am I?".to_owned(), "You are octo.".to_owned(), 1)
        ]
    );
}

fn found_session(lab: &Lab) -> Json {
    let session: Json = serde_json::from_str(&lab.read("s.json")).unwrap();
    session["session"].clone()
}

#[test]
fn a_receiver_that_is_away_is_told_of_and_the_answer_is_given() {
    let lab = Lab::new("w0");
    let model = model(vec![answer("Hello.")]);
    let ran = lab.ask(&model, &["Hi", "--otlp", "http://127.0.0.1:9", "--quiet"]).exits_with(5);
    assert_eq!(ran.out, "Hello.\n");
    assert!(ran.err.contains("the trace could not be sent to http://127.0.0.1:9"), "{}", ran.err);
    assert_eq!(ran.err.trim_end().lines().count(), 1, "{}", ran.err);
}
