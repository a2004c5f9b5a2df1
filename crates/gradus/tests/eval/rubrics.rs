//! A user's own rubrics.

use crate::lab::{Lab, case, endpoint, eval, kind_endpoint};

/// As it would be written for Phoenix: data in the middle, labels in quotes, braces that are no variables.
const FOR_PHOENIX: &str = r#"You are comparing a tool call to a question.
    [BEGIN DATA]
    ************
    [Question]: {original_question}
    ************
    [Tool Called]: {tool_call} {action_input}
    [END DATA]
Your response must be a single word, either "polite" or "rude".
A call looks like this: {"name": "x", "arguments": {}}

Example response:
EXPLANATION: ...
LABEL: polite
"#;

fn rubric(name: &str, labels: &str, prompt: &str) -> String {
    format!("+++\nname = \"{name}\"\napplies_to = \"step\"\n\n[labels]\n{labels}\n+++\n{prompt}")
}

#[test]
fn a_template_written_for_phoenix_works_unchanged() {
    let lab = Lab::with_cases(4);
    lab.write("mine/manners.md", &rubric("manners", "polite = 1\nrude = 0", FOR_PHOENIX));
    let endpoint = endpoint(|incoming| {
        let number = incoming.number;
        incoming.verdict(if number == 0 { "rude" } else { "polite" })
    });
    let arguments = ["eval", "cases.jsonl", "--rubrics", "mine", "-e", "manners", "--jsonl", "out.jsonl"];
    let ran = lab.run_at(&endpoint, &[&arguments[..], &["--concurrency", "1"]].concat()).exits_with(0);
    assert!(ran.out.contains("manners accuracy:                 75.00 %  (3 of 4"), "{}", ran.out);
    assert_eq!(lab.lines("out.jsonl")[0]["label"], "rude");
    let ran = lab.run(&[&arguments[..], &["--judge", "offline"]].concat()).exits_with(2);
    assert!(ran.err.contains("the offline judge has no rules for \"manners\""), "{}", ran.err);
}

#[test]
fn list_show_and_check() {
    let lab = Lab::new();
    lab.write("mine/manners.md", &rubric("manners", "polite = 1\nrude = 0", FOR_PHOENIX));
    let ran = lab.run(&["rubrics", "list", "--rubrics", "mine"]).exits_with(0);
    for name in ["query_to_thought", "thought_to_tool", "sequence_optimality", "call_validity", "manners"] {
        assert!(ran.out.contains(name), "{name}: {}", ran.out);
    }
    let shown = lab.run(&["rubrics", "show", "sequence_optimality"]).exits_with(0).out;
    // What is shown is a rubric again.
    lab.write("copy/sequence_optimality.md", &shown);
    let ran = lab.run(&["rubrics", "check", "copy", "mine"]).exits_with(0);
    assert!(
        ran.out.contains("sequence_optimality: sound; of a trajectory, optimal = 1, suboptimal = 0"),
        "{}",
        ran.out
    );
    lab.run(&["rubrics", "show", "nothing"]).exits_with(2);
}

#[test]
fn a_rubric_that_would_lose_its_verdicts_is_refused() {
    let lab = Lab::with_cases(1);
    for (labels, prompt, expected) in [
        ("correct = 1\nincorrect = 0", FOR_PHOENIX, "asks for the label \"polite\", which is not declared"),
        (
            "polite = 1\nrude = 0",
            "{original_question} Is {answer} \"polite\" or \"rude\"?",
            "line 1 of the prompt uses `{answer}`",
        ),
        ("polite = 1\nrude = 0", "{thought}: polite?", "never mentions the label \"rude\""),
        ("polite = 1", "{thought}: polite?", "at least two labels"),
    ] {
        let path = lab.write("bad/bad.md", &rubric("bad", labels, prompt));
        let check = lab.run(&["rubrics", "check", path.to_str().unwrap()]).exits_with(2);
        assert!(check.err.contains(expected) && check.err.lines().count() == 1, "{}", check.err);
        let ran = lab.run_at(&kind_endpoint(), &eval(&["--rubrics", "bad"])).exits_with(2);
        assert!(ran.err.contains("bad.md: ") && ran.err.contains(expected), "{}", ran.err);
    }
}

#[test]
fn a_users_rubric_replaces_the_built_in_one() {
    let lab = Lab::with_cases(1);
    let prompt = "My own words: {thought} {tool_call}. Is it correct or incorrect?";
    lab.write("mine/own.md", &rubric("thought_to_tool", "correct = 1\nincorrect = 0", prompt));
    let endpoint =
        endpoint(|incoming| incoming.verdict(if incoming.contains("My own words") { "correct" } else { "incorrect" }));
    lab.run_at(&endpoint, &eval(&["--rubrics", "mine"])).exits_with(0);
    assert_eq!(lab.lines("out.jsonl")[0]["label"], "correct");
}

#[test]
fn a_reference_answer_reaches_the_judge() {
    let lab = Lab::new();
    let mut known = case(1);
    known["reference_answer"] = "It was shipped on 3 May.".into();
    lab.write("cases.jsonl", &format!("{known}\n{}\n", case(2)));
    let endpoint = endpoint(|incoming| {
        let is_known = incoming.contains("It was shipped on 3 May.");
        assert!(is_known != incoming.contains("(none is known)"));
        incoming.verdict(if is_known { "complete" } else { "incomplete" })
    });
    let words = ["eval", "cases.jsonl", "-e", "task_completion", "--judge", "gpt-4o", "--jsonl", "-"];
    let ran = lab.run_at(&endpoint, &words).exits_with(0);
    let labels: Vec<serde_json::Value> =
        ran.out.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["label"].clone()).collect();
    assert_eq!(labels, ["complete", "incomplete"]);
}
