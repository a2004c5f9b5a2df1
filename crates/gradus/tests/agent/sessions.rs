//! Sessions that are broken off and taken up again.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;
use std::time::Duration;

use gradus_github_sim::{FaultEffect, SimulatedFault};
use gradus_test_endpoint::Answer;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value as Json, json};

use crate::lab::{Lab, Reply, answer, call, eventually, model, model_with};
use crate::place::Ran;

fn script() -> Vec<Reply> {
    vec![
        call("I look.", "get_repo", json!({"owner": "octo", "repo": "demo"})),
        call("I open it.", "open_issue", json!({"owner": "octo", "repo": "demo", "title": "Crash"})),
        answer("Done."),
    ]
}

#[test]
fn killed_during_a_write_it_goes_on_and_does_not_repeat_it() {
    let lab = Lab::new("w1");
    let slow: SimulatedFault =
        serde_json::from_value(json!({"operation": "issues/create", "effect": {"latency": {"ms": 3000}}})).unwrap();
    assert!(matches!(slow.effect, FaultEffect::Latency { .. }));
    lab.github.world().lock().unwrap().add_fault(slow);
    let model = model(script());
    let arguments = ["Open an issue.", "--session", "s.json"];
    let mut child = lab.agent(&model, &arguments).stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    eventually("the issue is there", || (lab.issues_called("Crash") == 1).then_some(()));
    child.kill().unwrap();
    child.wait().unwrap();
    // The same command again.
    let ran = lab.ask(&model, &arguments).exits_with(0);
    assert!(ran.err.contains("scripted goes on with: Open an issue."), "{}", ran.err);
    assert!(ran.err.contains("it is not known whether this call was carried out"), "{}", ran.err);
    assert_eq!(ran.out, "Done.\n");
    assert_eq!(lab.issues_called("Crash"), 1);
}

#[test]
fn interrupted_it_leaves_a_session_that_goes_on() {
    let lab = Lab::new("w1");
    let model = model_with(script(), |incoming| {
        // Slow to think after its first call.
        (incoming.number == 1).then(|| Answer::status(500, "").after(Duration::from_secs(30)))
    });
    let arguments = ["Open an issue.", "--session", "s.json", "--trace-file", "t.bin"];
    let child = lab.agent(&model, &arguments).stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    eventually("the model is asked again", || (model.received() == 2).then_some(()));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let ran = Ran::from_output(child.wait_with_output().unwrap()).exits_with(130);
    assert!(ran.err.contains("interrupted; `gradus agent --session s.json` goes on"), "{}", ran.err);
    let session: Json = serde_json::from_str(&lab.read("s.json")).unwrap();
    assert_eq!(session["messages"].as_array().unwrap().len(), 3);
    // Also without the request.
    let ran = lab.ask(&model, &["--session", "s.json", "--quiet"]).exits_with(0);
    assert_eq!(ran.out, "Done.\n");
    assert_eq!(lab.issues_called("Crash"), 1);
    // The trace of the first part is whole, and says how it ended.
    let read = lab.run(&["traces", "t.bin", "--format", "jsonl"]).exits_with(0);
    let trajectory: Json = serde_json::from_str(read.out.lines().next().unwrap()).unwrap();
    assert_eq!(trajectory["is_error"], true, "{trajectory:#}");
    assert_eq!(trajectory["steps"].as_array().unwrap().len(), 1, "{trajectory:#}");
    // Answered is answered.
    lab.ask(&model, &["--session", "s.json"]).exits_with(4);
}

#[test]
fn a_session_file_is_for_its_user_only() {
    let lab = Lab::new("w0");
    lab.ask(&model(vec![answer("Hello.")]), &["Hi", "--session", "s.json", "--trace-file", "t.bin"]).exits_with(0);
    for file in ["s.json", "s.json.lock", "t.bin"] {
        let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(lab.path(file)).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
    assert!(!lab.read("s.json").contains(crate::lab::TOKEN));
}

#[test]
fn a_request_that_is_answered_is_said_to_be_done_once_more() {
    let lab = Lab::new("w0");
    let model = model(vec![answer("Hello."), answer("Hello again.")]);
    let ran = lab.ask(&model, &["Hi", "--session", "s.json", "--quiet"]).exits_with(0);
    assert_eq!(ran.err, "");
    let ran = lab.ask(&model, &["Hi", "--session", "s.json", "--quiet"]).exits_with(0);
    assert_eq!(ran.out, "Hello again.\n");
    assert!(ran.err.contains("was answered in the session before; it is done once more"), "{}", ran.err);
}

#[test]
fn killed_in_a_conversation_it_leaves_the_trace_of_what_was_answered() {
    let lab = Lab::new("w0");
    let model = model(vec![answer("Hello."), answer("Never.")]);
    let arguments = ["--chat", "--trace-file", "t.bin", "--quiet"];
    let mut child = lab.agent(&model, &arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"Hi\n").unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "Hello.\n");
    child.kill().unwrap();
    child.wait().unwrap();
    let read = lab.run(&["traces", "t.bin", "--format", "jsonl"]).exits_with(0);
    let trajectory: Json = serde_json::from_str(read.out.lines().next().unwrap()).unwrap();
    assert_eq!(trajectory["final_answer"], "Hello.", "{trajectory:#}");
}
