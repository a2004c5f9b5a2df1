//! A model's endpoint that is away is not the agent's failure.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gradus_test_endpoint::{Answer, Endpoint, Incoming};

use crate::document;
use crate::place::{Place, Ran};

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
    Ran::of(command.output().unwrap())
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
        assert!(ran.err.contains("1 trials were played before, 2 are left"), "{}", ran.err);
        assert_eq!(document(&place, "out.json")["bench"]["agents"][0]["trials"], 3);
    }
}

#[test]
fn a_price_that_is_not_known_is_said_to_be_so() {
    let place = Place::new();
    let answers = Arc::new(AtomicU64::new(9));
    let gates = ["--gate", "cost_per_solved <= 1", "--no-grading"];
    let ran = bench(&place, &model(&answers, 500), &gates).exits_with(3);
    assert!(ran.out.contains("no task was solved, so the gate cannot pass"), "{}", ran.out);
}
