//! The judge without a model.

use crate::lab::{Lab, fixture};

#[test]
fn finds_the_tool_that_does_not_exist_in_a_real_trace() {
    let lab = Lab::new();
    let source = fixture("llamaindex-react/s24_unknown_tool");
    let ran = lab.run(&["eval", &source, "--judge", "offline", "--jsonl", "out.jsonl"]).exits_with(0);
    let lines = lab.lines("out.jsonl");
    let labels = |evaluator: &str| {
        let of_it = lines.iter().filter(|line| line["evaluator"] == evaluator);
        of_it.map(|line| line["label"].as_str().unwrap_or("-").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(labels("outcome"), ["answered"]);
    assert_eq!(labels("thought_to_tool"), ["incorrect", "correct", "-"]);
    assert_eq!(labels("call_validity"), ["incorrect", "correct"]);
    let abstained =
        |line: &&serde_json::Value| line["evaluator"] == "query_to_thought" && line["outcome"] == "abstained";
    assert_eq!(lines.iter().filter(abstained).count(), 3, "words alone prove nothing");
    let rules: Vec<&str> = lines.iter().filter_map(|line| line["rule"].as_str()).collect();
    assert!(rules.contains(&"call.unknown_tool") && rules.contains(&"thought.unknown_tool"), "{rules:?}");
    assert!(lines.iter().all(|line| line["judge"] == "offline" || line["judge"] == "rules"));
    assert!(ran.out.contains("judge offline (rules, not a model)"), "{}", ran.out);
}

#[test]
fn says_the_same_every_time() {
    let lab = Lab::new();
    let source = fixture("");
    let mut runs = (0..2).map(|_| {
        lab.run(&["eval", &source, "--judge", "offline", "--fresh", "--jsonl", "out.jsonl"]).exits_with(0);
        let lines = lab.lines("out.jsonl").into_iter().map(|mut line| {
            line["run_id"] = "".into();
            line.to_string()
        });
        lines.collect::<Vec<_>>()
    });
    let (first, second) = (runs.next().unwrap(), runs.next().unwrap());
    assert!(first.len() > 500, "{}", first.len());
    assert!(first == second);
}
