//! A model's endpoint that is away is not the agent's failure.

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gradus_test_endpoint::{Answer, Endpoint, Incoming};

use crate::document;
use crate::place::{Place, Ran};
use crate::programs::eventually;

const ANSWER: &str = r#"{"choices": [{"message": {"role": "assistant", "content": "I cannot do that."},
    "finish_reason": "stop"}], "usage": {"prompt_tokens": 100, "completion_tokens": 10}}"#;

/// Answers as long as there are answers left, then with this status.
fn model(answers: &Arc<AtomicU64>, status: u16) -> Endpoint {
    let answers = Arc::clone(answers);
    Endpoint::start(Arc::new(move |_: &Incoming<'_>| {
        let taken = answers.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        match taken {
            Ok(_) => Answer::ok(ANSWER.to_owned()),
            Err(_) => Answer::status(status, r#"{"error": {"message": "no more"}}"#),
        }
    }))
    .unwrap()
}

fn bench(place: &Place, model: &Endpoint, more: &[&str]) -> Ran {
    let url = model.url();
    let words = ["bench", "--model", "mystery-7b", "--model-url", &url, "--tasks", "1-3", "--parallel", "1"];
    let outputs = ["--out", "run", "--json", "out.json"];
    let mut command = place.command(&[&words[..], &outputs[..], more].concat());
    command.env("OPENAI_API_KEY", "test");
    Ran::from_output(command.output().unwrap())
}

#[test]
fn an_outage_can_be_waited_out() {
    for (status, code) in [(401, 2), (402, 1)] {
        let place = Place::new();
        let answers = Arc::new(AtomicU64::new(1));
        let model = model(&answers, status);
        let ran = bench(&place, &model, &[]).exits_with(code);
        assert!(ran.err.contains("--resume --out run goes on from there"), "{}", ran.err);
        assert_eq!(place.lines("run/trials.jsonl").len(), 1, "what was not answered was not played");
        let found = document(&place, "out.json");
        assert_eq!(found["bench"]["agents"][0]["trials"], 1, "and is in no rate");
        assert_eq!(found["summary"]["complete"], false);
        answers.store(2, Ordering::Relaxed);
        let ran = bench(&place, &model, &["--resume"]).exits_with(0);
        assert!(ran.err.contains("1 trial was played before, 2 are left"), "{}", ran.err);
        assert_eq!(document(&place, "out.json")["bench"]["agents"][0]["trials"], 3);
    }
}

#[test]
fn nothing_solved_has_no_price() {
    let place = Place::new();
    let answers = Arc::new(AtomicU64::new(9));
    let gates = ["--gate", "cost_per_solved <= 1", "--no-grading"];
    let ran = bench(&place, &model(&answers, 500), &gates).exits_with(3);
    assert!(ran.out.contains("no task was solved, so the gate cannot pass"), "{}", ran.out);
}

#[test]
fn a_price_that_is_not_known_is_said_to_be_so() {
    const CALL: &str = r#"{"choices": [{"message": {"role": "assistant", "content": "I star it.", "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "star_repo",
        "arguments": "{\"owner\": \"mallory\", \"repo\": \"lib\"}"}}]}, "finish_reason": "tool_calls"}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 10}}"#;
    let place = Place::new();
    let model = Endpoint::start(Arc::new(|incoming: &Incoming<'_>| {
        let is_done = incoming.contains("\"tool_call_id\"");
        Answer::ok(if is_done { ANSWER.replace("I cannot do that.", "It is starred.") } else { CALL.to_owned() })
    }))
    .unwrap();
    let url = model.url();
    let words = ["bench", "--model", "mystery-7b", "--model-url", &url, "--tasks", "13", "--out", "run"];
    let gates = ["--gate", "cost_per_solved <= 1", "--no-grading"];
    let mut command = place.command(&[&words[..], &gates].concat());
    command.env("OPENAI_API_KEY", "test");
    let ran = Ran::from_output(command.output().unwrap()).exits_with(3);
    assert_eq!(place.lines("run/trials.jsonl")[0]["passed"], true);
    assert!(ran.out.contains("no price is known for mystery-7b"), "{}", ran.out);
}

/// What is played is played; from there on whoever judges is the one who is interrupted, and reports.
#[test]
fn the_judge_can_be_interrupted() {
    let place = Place::new();
    let late = |incoming: &Incoming<'_>| incoming.verdict("correct").after(Duration::from_secs(600));
    let judge = Endpoint::start(Arc::new(late)).unwrap();
    let url = judge.url();
    let words = ["bench", "--policy", "oracle", "--tasks", "4", "--out", "run", "--json", "out.json"];
    let mut command = place.command(&[&words[..], &["--judge", "m", "--base-url", &url]].concat());
    command.env("OPENAI_API_KEY", "test").stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut bench = command.spawn().unwrap();
    eventually("a question to the judge", || judge.received() > 0);
    let id = bench.id().to_string();
    // The first lets questions that are under way come to their end, the next one does not.
    eventually("the end", || {
        assert!(std::process::Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        bench.try_wait().unwrap().is_some()
    });
    let ran = Ran::from_output(bench.wait_with_output().unwrap()).exits_with(130);
    assert!(ran.err.contains("interrupted; what was judged is kept"), "{}", ran.err);
    assert_eq!(document(&place, "out.json")["summary"]["complete"], false);
}
