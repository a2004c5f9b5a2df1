//! A model server that still loads its model is waited for, and nothing is lost or counted by it.

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gradus_test_endpoint::{Answer, Endpoint};

use crate::lab::{Lab, Ran, endpoint, eval};

/// As llama.cpp's server says it.
fn loading() -> Answer {
    Answer::status(503, r#"{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}"#)
}

/// Loads until it is told that it is done.
fn loading_endpoint() -> (Endpoint, Arc<AtomicBool>) {
    let is_done = Arc::new(AtomicBool::new(false));
    let shared = Arc::clone(&is_done);
    let endpoint =
        endpoint(move |incoming| if shared.load(Ordering::Relaxed) { incoming.verdict("correct") } else { loading() });
    (endpoint, is_done)
}

fn wait_for(endpoint: &Endpoint, requests: u64) {
    while endpoint.received() < requests {
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_model_that_is_loaded_is_waited_for() {
    let lab = Lab::with_cases(60);
    let (endpoint, is_done) = loading_endpoint();
    // With no retries and as many calls as there are questions: what the server refuses counts for neither.
    let arguments = eval(&["--retries", "0", "--max-calls", "60", "--concurrency", "20"]);
    let mut command = lab.command_at(&endpoint, &arguments);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Every question was refused once, and the server was asked again.
    wait_for(&endpoint, 21);
    is_done.store(true, Ordering::Relaxed);
    let ran = Ran::from_output(child.wait_with_output().unwrap()).exits_with(0);
    assert!(ran.err.contains("waiting for the model server to load its model ("), "{}", ran.err);
    assert!(ran.out.contains("(60 of 60"), "{}", ran.out);
    let lines = lab.lines("out.jsonl");
    assert!(lines.iter().all(|line| line["outcome"] == "scored" && line["calls"] == 1), "{lines:?}");
}

#[test]
fn waiting_has_an_end_and_leaves_the_questions_open() {
    let lab = Lab::with_cases(60);
    let (endpoint, is_done) = loading_endpoint();
    let ran = lab.run_at(&endpoint, &eval(&["--load-wait", "1", "--concurrency", "4"])).exits_with(1);
    assert!(ran.err.contains("still loading its model after") && ran.err.contains("--load-wait"), "{}", ran.err);
    is_done.store(true, Ordering::Relaxed);
    let ran = lab.run_at(&endpoint, &eval(&["--load-wait", "1"])).exits_with(0);
    assert!(ran.err.contains("taking up run") && ran.out.contains("(60 of 60"), "{}\n{}", ran.err, ran.out);
    assert!(lab.lines("out.jsonl").iter().all(|line| line["outcome"] == "scored"));
}

#[test]
fn ctrl_c_ends_the_waiting_at_once() {
    let lab = Lab::with_cases(60);
    let (endpoint, _) = loading_endpoint();
    let mut command = lab.command_at(&endpoint, &eval(&["--concurrency", "4"]));
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for(&endpoint, 5);
    let pid = child.id().to_string();
    assert!(std::process::Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    Ran::from_output(child.wait_with_output().unwrap()).exits_with(130);
}

/// A 503 that says something else is a failure like any other.
#[test]
fn other_failures_are_not_waited_for() {
    let lab = Lab::with_cases(3);
    let endpoint = endpoint(|_| Answer::status(503, r#"{"error":{"message":"error loading model: out of memory"}}"#));
    let ran = lab.run_at(&endpoint, &eval(&["--retries", "0"])).exits_with(1);
    assert!(ran.err.contains("out of memory"), "{}", ran.err);
    assert_eq!(endpoint.received(), 3);
}
