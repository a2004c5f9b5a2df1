//! What is written to Phoenix, on which spans, and what is said of what could not be.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use gradus_test_endpoint::{Answer, Incoming};
use serde_json::{Value as Json, json};

use crate::lab::{FOUR_EVALUATORS, Lab, Phoenix, Ran, span_id, traces_of};

/// Annotation names of the evaluators that judge whole trajectories.
const TRAJECTORY_NAMES: [&str; 4] = ["Error recovery", "Outcome", "Sequence optimality", "Task completion"];

fn grade(lab: &Lab, phoenix: &Phoenix, more: &[&str]) -> Ran {
    let source = phoenix.source();
    let arguments = ["eval", &source, "--judge", "offline", "--jsonl", "out.jsonl", "--log-to-phoenix"];
    lab.run(&[arguments.as_slice(), more].concat())
}

fn outcomes(lab: &Lab) -> Vec<Json> {
    let text = std::fs::read_to_string(lab.path("out.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn every_outcome_is_on_the_right_span_and_twice_is_the_same() {
    let (lab, phoenix) = (Lab::with_abstentions(), Phoenix::start(traces_of(60)));
    // The whole default set: five evaluators of steps and four of trajectories.
    grade(&lab, &phoenix, &[]).exits_with(0).says("gradus: 540 annotations are in Phoenix at http://127.0.0.1:");
    let first = phoenix.annotations();
    let outcomes = outcomes(&lab);
    assert_eq!((outcomes.len(), first.len()), (540, 540));
    for outcome in &outcomes {
        let trace = outcome["trajectory_id"].as_str().unwrap();
        let number = usize::from_str_radix(trace, 16).unwrap() - 0xabc0_0000;
        let (name, place) = match outcome["evaluator"].as_str().unwrap() {
            "thought_to_tool" => ("Thought to tool", 1),
            "query_to_thought" => ("Query to thought", 1),
            "request_to_tool" => ("Request to tool", 1),
            "call_validity" => ("Call validity", 1),
            "argument_provenance" => ("Argument provenance", 1),
            "sequence_optimality" => ("Sequence optimality", 0),
            "task_completion" => ("Task completion", 0),
            "outcome" => ("Outcome", 0),
            "error_recovery" => ("Error recovery", 0),
            other => panic!("{other} is not in the default set"),
        };
        let row = &first[&(name.to_owned(), span_id(number, place), "gradus".to_owned())];
        let wanted = match outcome["outcome"].as_str().unwrap() {
            "scored" => {
                assert!(outcome["label"].is_string() && outcome["score"].is_number(), "{outcome}");
                json!({"label": outcome["label"], "score": outcome["score"], "explanation": outcome["explanation"]})
            }
            _ => json!({"label": null, "score": null, "explanation": outcome["reason"]}),
        };
        assert!(wanted["explanation"].is_string(), "{outcome}");
        assert_eq!((&row["result"], &row["annotator_kind"]), (&wanted, &"CODE".into()));
        let told = &row["metadata"];
        for key in ["evaluator", "judge", "rubric_hash", "run_id", "trajectory_id", "outcome"] {
            assert_eq!(told[key], outcome[key], "{key}");
        }
        assert_eq!(told["step"], outcome["step_index"]);
    }
    // Every kind of outcome that rules can have is among them.
    for (name, kind, label) in [
        ("Outcome", "scored", json!("answered")),
        ("Query to thought", "abstained", Json::Null),
        ("Error recovery", "not_applicable", Json::Null),
    ] {
        let rows: Vec<&Json> = first.values().filter(|row| row["name"] == name).collect();
        let is_as_wanted = |row: &&Json| row["metadata"]["outcome"] == kind && row["result"]["label"] == label;
        assert!(rows.len() == 60 && rows.iter().all(is_as_wanted), "{name}: {rows:?}");
    }
    // 540 of them, a hundred at a time.
    assert_eq!(phoenix.asked("POST /v1/span_annotations?sync=true"), 6);
    grade(&lab, &phoenix, &[]).exits_with(0);
    let second = phoenix.annotations();
    assert!(first.keys().eq(second.keys()));
    assert!(first.iter().all(|(key, row)| second[key]["result"] == row["result"]));
}

#[test]
fn abstentions_are_not_written_unless_asked_for() {
    let (lab, phoenix) = (Lab::new(), Phoenix::start(traces_of(3)));
    grade(&lab, &phoenix, &[]).exits_with(0);
    let written = phoenix.annotations();
    let outcomes = outcomes(&lab);
    let abstained = outcomes.iter().filter(|outcome| outcome["outcome"] == "abstained").count();
    assert!(abstained > 0 && written.len() == outcomes.len() - abstained, "{} of {}", written.len(), outcomes.len());
    assert!(written.values().all(|row| row["metadata"]["outcome"] != "abstained"));
}

#[test]
fn names_and_targets_can_be_chosen() {
    let (lab, phoenix) = (Lab::new(), Phoenix::start(traces_of(1)));
    let settings = "[phoenix]\ntrajectory_target = \"trace\"\nabstentions = true\n[phoenix.names]\nthought_to_tool = \"Right tool\"\n";
    lab.write("gradus.toml", settings);
    grade(&lab, &phoenix, &[]).exits_with(0);
    let found: Vec<(String, String)> =
        phoenix.annotations().into_keys().map(|(name, target, _)| (name, target)).collect();
    let pair = |name: &str, target: String| (name.to_owned(), target);
    assert!(found.contains(&pair("Right tool", span_id(0, 1))));
    let trace_id = format!("{:032x}", 0xabc0_0000_u32);
    let on_trace: Vec<&str> =
        found.iter().filter(|(_, target)| *target == trace_id).map(|(name, _)| name.as_str()).collect();
    assert_eq!(on_trace, TRAJECTORY_NAMES, "{found:?}");
    for (wrong, says) in [
        ("[phoenix.names]\nthought_to_tol = \"x\"\n", "there is no such evaluation"),
        ("[phoenix.names]\nthought_to_tool = \"Call validity\"\n", "are both called"),
        ("[phoenix]\ntrajectory_target = \"root\"\n", "gradus.toml, line 2"),
        ("[phoenix]\nurl = \"http://elsewhere\"\n", "unknown field `url`"),
    ] {
        lab.write("gradus.toml", wrong);
        grade(&lab, &phoenix, &["--fresh"]).exits_with(2).says(says);
    }
}

#[test]
fn spans_that_phoenix_does_not_have_are_told_one_by_one() {
    // Two ways of refusing: with the ids, and without them.
    for tells_which in [true, false] {
        let phoenix = Phoenix::with_fault(traces_of(30), move |incoming| {
            if tells_which || !incoming.what().starts_with("POST") {
                return None;
            }
            incoming.contains(&span_id(7, 1)).then(|| Answer::status(404, "some of these do not exist"))
        });
        if tells_which {
            forget_span(&phoenix, &span_id(7, 1));
        }
        let lab = Lab::with_abstentions();
        lab.write("spans.json", &json!({"data": traces_of(30)}).to_string());
        let origin = phoenix.origin();
        let arguments = [
            "eval",
            "spans.json",
            "--judge",
            "offline",
            "--jsonl",
            "out.jsonl",
            "--log-to-phoenix",
            "--phoenix",
            &origin,
        ];
        let ran = lab.run(&[arguments.as_slice(), &FOUR_EVALUATORS].concat()).exits_with(5);
        let ran = ran.says("gradus: 117 annotations are in Phoenix");
        let ran = ran.says(&format!("span {}: Phoenix does not have it", span_id(7, 1)));
        ran.says("gradus: 3 outcomes could not be written, all listed in ");
        let unwritten = lab.of_run("unwritten_phoenix.jsonl");
        let names: Vec<&str> = unwritten.iter().map(|line| line["evaluator"].as_str().unwrap()).collect();
        assert_eq!(names.len(), 3, "{unwritten:?}");
        assert!(unwritten.iter().all(|line| line["step_index"] == 1 && line["to"] == "phoenix"));
        assert_eq!(phoenix.annotations().len(), 117);
        // Later they are there, and a report writes them.
        if tells_which {
            phoenix.stored.lock().unwrap().spans = traces_of(30);
            lab.run(&["report", "--log-to-phoenix", "--phoenix", &origin]).exits_with(0);
            assert_eq!((phoenix.annotations().len(), lab.of_run("unwritten_phoenix.jsonl").len()), (120, 0));
        }
    }
}

fn forget_span(phoenix: &Phoenix, id: &str) {
    phoenix.stored.lock().unwrap().spans.retain(|span| span["context"]["span_id"] != id);
}

fn posts(incoming: &Incoming<'_>) -> bool {
    incoming.what().starts_with("POST")
}

#[test]
fn a_phoenix_that_fails_while_it_is_written_to_costs_no_verdict() {
    for (answer, says) in [
        (Answer::status(401, "Invalid token"), "Phoenix wants a key"),
        (Answer::status(403, "no"), "writing annotations needs one that may"),
        (Answer::status(404, "Not Found"), "Phoenix 20.26.1 has no /v1/span_annotations"),
        (Answer::status(422, "name: too long"), "Phoenix refused the request (422: name: too long)"),
        (Answer::status(503, "busy"), "Phoenix fails (503: busy)"),
        (Answer::Reset, "the connection broke off"),
    ] {
        let phoenix = Phoenix::with_fault(traces_of(3), move |incoming| posts(incoming).then(|| answer.clone()));
        let lab = Lab::with_abstentions();
        let ran = grade(&lab, &phoenix, &FOUR_EVALUATORS).exits_with(5).says(says);
        let ran = ran.says("gradus: 0 annotations are in Phoenix");
        ran.says("gradus: 12 outcomes could not be written, all listed in ").says("writes them again");
        assert_eq!((outcomes(&lab).len(), lab.of_run("unwritten_phoenix.jsonl").len()), (12, 12));
    }
}

#[test]
fn only_what_phoenix_names_as_stored_counts() {
    // Any server says 200.
    for answer in [Answer::ok("{}".to_owned()), Answer::ok("ok".to_owned()), Answer::ok("[]".to_owned())] {
        let phoenix = Phoenix::with_fault(traces_of(3), move |incoming| posts(incoming).then(|| answer.clone()));
        let lab = Lab::with_abstentions();
        let ran = grade(&lab, &phoenix, &FOUR_EVALUATORS).exits_with(5).says("it answers, but not as Phoenix does");
        ran.says("gradus: 0 annotations are in Phoenix").says("gradus: 12 outcomes could not be written");
    }
    // One row is left out of the answer, whatever it is sent with.
    let phoenix = Phoenix::with_fault(traces_of(3), |incoming| {
        let left_out = posts(incoming) && incoming.contains(&span_id(1, 0));
        let rows = String::from_utf8_lossy(incoming.body).matches("\"annotator_kind\"").count();
        let stored = vec![json!({"id": "A"}); rows.saturating_sub(1)];
        left_out.then(|| Answer::ok(json!({"data": stored}).to_string()))
    });
    let lab = Lab::with_abstentions();
    let ran = grade(&lab, &phoenix, &FOUR_EVALUATORS).exits_with(5).says("gradus: 11 annotations are in Phoenix");
    ran.says(&format!("span {}: Phoenix does not say that it has stored it", span_id(1, 0)));
    assert_eq!((phoenix.annotations().len(), lab.of_run("unwritten_phoenix.jsonl").len()), (11, 1));
}

#[test]
fn a_refusal_that_is_not_about_spans_is_not_blamed_on_them() {
    let server = gradus_test_endpoint::Endpoint::start(std::sync::Arc::new(|incoming: &Incoming<'_>| {
        match incoming.what().starts_with("POST") {
            true => Answer::status(404, "no such application"),
            false => Answer::ok(json!({"data": [], "next_cursor": null}).to_string()),
        }
    }));
    let (lab, server) = (Lab::new(), server.unwrap());
    lab.write("spans.json", &json!({"data": traces_of(3)}).to_string());
    let origin = server.origin();
    let arguments = ["eval", "spans.json", "--judge", "offline", "--log-to-phoenix", "--phoenix", &origin];
    let ran = lab.run(&arguments).exits_with(5).says("not as Phoenix does (no such application)");
    assert!(!ran.err.contains("does not have it"), "{}", ran.err);
    // Of a Phoenix, with words that are not known: they are told.
    let phoenix =
        Phoenix::with_fault(traces_of(3), |incoming| posts(incoming).then(|| Answer::status(404, "gone fishing")));
    grade(&Lab::new(), &phoenix, &[]).exits_with(5).says("Phoenix refused the request (404: gone fishing)");
}

#[test]
fn what_is_missing_can_be_written_by_the_command_that_is_told() {
    let phoenix = Phoenix::with_fault(traces_of(1), |incoming| posts(incoming).then(|| Answer::status(503, "busy")));
    let lab = Lab::new();
    let ran = grade(&lab, &phoenix, &["--state-dir", "kept here"]).exits_with(5);
    let command = ran.err.split('`').nth(1).unwrap();
    let wanted = format!(" --state-dir 'kept here' --log-to-phoenix --phoenix {}", phoenix.origin());
    assert!(command.starts_with("gradus report 2") && command.ends_with(&wanted), "{command}");
}

#[test]
fn a_write_that_is_interrupted_says_what_is_left() {
    for signal in ["-INT", "-TERM"] {
        let phoenix = Phoenix::with_fault(traces_of(3), |incoming| {
            posts(incoming).then(|| Answer::status(200, "{}").after(Duration::from_secs(60)))
        });
        let lab = Lab::new();
        lab.write("gradus.toml", "[phoenix]\nabstentions = true\n");
        let source = phoenix.source();
        let arguments = ["eval", &source, "--judge", "offline", "--log-to-phoenix"];
        let mut command = lab.command(&[arguments.as_slice(), &FOUR_EVALUATORS].concat());
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let end = Instant::now() + Duration::from_secs(30);
        while phoenix.asked("POST") == 0 && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
        Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(130), "{said}");
        assert!(said.contains("gradus: 12 outcomes could not be written"), "{said}");
        assert!(lab.of_run("unwritten_phoenix.jsonl").iter().all(|line| line["reason"] == "interrupted"));
    }
}

#[test]
fn only_what_phoenix_refuses_is_left_out() {
    let phoenix = Phoenix::with_fault(traces_of(30), |incoming| {
        let is_bad = posts(incoming) && incoming.contains(&span_id(11, 0));
        is_bad.then(|| Answer::status(422, "explanation: not a text"))
    });
    let lab = Lab::with_abstentions();
    grade(&lab, &phoenix, &FOUR_EVALUATORS).exits_with(5).says("422: explanation: not a text");
    assert_eq!((phoenix.annotations().len(), lab.of_run("unwritten_phoenix.jsonl").len()), (119, 1));
}

#[test]
fn a_phoenix_that_is_not_there_is_found_out_before_anything_is_judged() {
    let lab = Lab::new();
    lab.write("spans.json", &json!({"data": traces_of(1)}).to_string());
    let arguments = ["eval", "spans.json", "--judge", "offline", "--log-to-phoenix"];
    lab.run(&arguments).exits_with(2).says("Name it with --phoenix URL or PHOENIX_COLLECTOR_ENDPOINT");
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let nobody = format!("http://{free}");
    lab.run(&[arguments.as_slice(), &["--phoenix", &nobody]].concat()).exits_with(2).says("nothing answers there");
    assert!(!lab.path(".gradus/runs").exists());
    // Outcomes of a message list are about no span.
    let phoenix = Phoenix::start(Vec::new());
    lab.write("chat.json", r#"[{"role":"user","content":"How many?"},{"role":"assistant","content":"I look.","tool_calls":[{"id":"c","type":"function","function":{"name":"count","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c","content":"3"},{"role":"assistant","content":"3"}]"#);
    let origin = phoenix.origin();
    let ran = lab.run(&["eval", "chat.json", "--judge", "offline", "--log-to-phoenix", "--phoenix", &origin]);
    ran.exits_with(5).says("it is about no span: its source has none");
}

#[test]
fn a_failed_gate_says_more_than_a_failed_write() {
    let phoenix = Phoenix::with_fault(traces_of(3), |incoming| posts(incoming).then(|| Answer::status(503, "busy")));
    // Nothing says what the tool takes, so this cannot be told.
    let gate = ["--gate", "call_validity >= 0.5", "--strict"];
    grade(&Lab::new(), &phoenix, &gate).exits_with(3).says("Phoenix fails (503: busy)");
}

#[test]
fn a_run_from_elsewhere_cannot_send_for_the_key() {
    let (lab, phoenix) = (Lab::new(), Phoenix::start(traces_of(1)));
    grade(&lab, &phoenix, &[]).exits_with(0);
    let runs = lab.path(".gradus/runs");
    let file = runs.read_dir().unwrap().next().unwrap().unwrap().path().join("run.json");
    let record = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, record.replace("phoenix://127.0.0.1", "phoenix://evil.example")).unwrap();
    let key = [("PHOENIX_API_KEY", "k-secret")];
    let ran = lab.run_with(&key, &["report", "--log-to-phoenix"]).exits_with(2);
    ran.says("say --phoenix http://evil.example");
    let origin = phoenix.origin();
    lab.run_with(&key, &["report", "--log-to-phoenix", "--phoenix", &origin]).exits_with(0);
}
