//! A cheap judge first, and a better one where it is unsure.

use gradus_test_endpoint::{Answer, Endpoint, Incoming};
use serde_json::{Value as Json, json};

use crate::lab::{Lab, case_of, endpoint, eval, kind_endpoint};
use crate::panels::{counting_endpoint, model_of};

const CASCADE: [&str; 4] = ["--judge", "gpt-4o-mini", "--escalate-to", "gpt-4o"];

fn cascade<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let mut arguments = eval(&CASCADE);
    arguments.extend(["--json", "summary.json"]);
    arguments.extend(more);
    arguments
}

/// The cheap judge changes its mind on every fifth case, and is sure and wrong on every tenth after it. The other one is
/// always right: every fifth case is incorrect, the others are correct.
fn two_judges() -> Endpoint {
    counting_endpoint(|incoming, time| {
        let case = case_of(incoming);
        let truth = if case.is_multiple_of(5) { "incorrect" } else { "correct" };
        incoming.verdict(match model_of(incoming).as_str() {
            "gpt-4o" => truth,
            _ if case.is_multiple_of(5) && time == 0 => "incorrect",
            _ if case % 10 == 1 => "incorrect",
            _ => "correct",
        })
    })
}

fn escalation(lab: &Lab) -> Json {
    serde_json::from_str::<Json>(&lab.read("summary.json")).unwrap()["summary"]["panel"]["escalation"].clone()
}

#[test]
fn the_better_judge_decides_what_the_first_is_unsure_of() {
    let lab = Lab::with_cases(100);
    let endpoint = two_judges();
    let ran = lab.run_at(&endpoint, &cascade(&["--audit", "0"])).exits_with(0);
    // Three answers of the cheap one for each question, one of the other for every fifth.
    assert_eq!(endpoint.received(), 300 + 20);
    let lines = lab.lines("out.jsonl");
    assert!(lines.iter().all(|line| line["judge"] == "cascade(openai:gpt-4o-mini, openai:gpt-4o)"));
    let escalated: Vec<&Json> = lines.iter().filter(|line| line.get("escalated").is_some()).collect();
    assert_eq!(escalated.len(), 20);
    for line in escalated {
        assert_eq!((&line["escalated"], &line["first_label"]), (&"unsure".into(), &"correct".into()), "{line}");
        assert_eq!((&line["label"], line["votes"].as_array().unwrap().len()), (&"incorrect".into(), 4));
        assert_eq!(line["votes"][3]["judge"], "openai:gpt-4o");
        assert!(line.get("vote_count").is_none());
    }
    let found = escalation(&lab);
    let counts = ["questions", "unsure", "overturned", "audited", "questions_saved"].map(|name| found[name].as_u64());
    assert_eq!(counts, [100, 20, 20, 0, 80].map(Some));
    assert_eq!(found["audited_error"], Json::Null);
    // 100 questions at $0.0014 against 300 at $0.000084 and 20 at $0.0014.
    assert!((found["usd_saved"].as_f64().unwrap() - (0.14 - 0.0252 - 0.028)).abs() < 1e-9, "{found}");
    assert!(ran.out.contains("Escalation") && ran.out.contains("$0.0868"), "{}", ran.out);
    // Nothing is asked twice.
    lab.run_at(&endpoint, &cascade(&["--audit", "0"])).exits_with(0);
    assert_eq!(endpoint.received(), 320);
}

#[test]
fn an_audit_measures_what_the_first_judge_gets_wrong() {
    let lab = Lab::with_cases(400);
    let endpoint = two_judges();
    lab.run_at(&endpoint, &cascade(&["--audit", "0.5", "--seed", "3"])).exits_with(0);
    let found = escalation(&lab);
    let [unsure, audited, errors] = ["unsure", "audited", "audit_errors"].map(|name| found[name].as_u64().unwrap());
    assert_eq!(unsure, 80);
    // Half of the 320 that it was sure of. 40 of those are wrong: one in eight.
    assert!((130..=190).contains(&audited), "{audited}");
    let error = found["audited_error"].as_f64().unwrap();
    assert!((error - errors as f64 / audited as f64).abs() < 1e-12);
    let (low, high) = (found["audited_interval"]["low"].as_f64(), found["audited_interval"]["high"].as_f64());
    assert!(low.unwrap() < 0.125 && high.unwrap() > 0.125, "{found}");
    let lines = lab.lines("out.jsonl");
    let audits: Vec<&Json> = lines.iter().filter(|line| line["escalated"] == "audit").collect();
    assert_eq!(audits.len() as u64, audited);
    let ids = |lines: &[Json]| -> Vec<String> {
        lines.iter().filter(|line| line["escalated"] == "audit").map(|line| line["trajectory_id"].to_string()).collect()
    };
    // The same questions with the same seed, others with another.
    let before = endpoint.received();
    let again = cascade(&["--audit", "0.5", "--seed", "3"]);
    lab.run_at(&endpoint, &again).exits_with(0);
    assert_eq!((ids(&lab.lines("out.jsonl")), endpoint.received()), (ids(&lines), before));
    lab.run_at(&endpoint, &cascade(&["--audit", "0.5", "--seed", "4"])).exits_with(0);
    assert_ne!(ids(&lab.lines("out.jsonl")), ids(&lines));
}

/// The probability of a label is part of a cached answer: with it, one answer is enough.
#[test]
fn probabilities_replace_repeats() {
    let lab = Lab::with_cases(20);
    let endpoint = kind_endpoint();
    lab.run_at(&endpoint, &eval(&["--judge", "gpt-4o-mini", "--temperature", "0.7"])).exits_with(0);
    let cache = lab.read(".gradus/cache/verdicts.jsonl");
    let with_probability = |(number, line): (usize, &str)| {
        let probability = if number < 6 { "0.6" } else { "0.97" };
        format!("{},\"label_probability\":{probability}}}\n", line.strip_suffix('}').unwrap())
    };
    lab.write(".gradus/cache/verdicts.jsonl", &cache.lines().enumerate().map(with_probability).collect::<String>());
    lab.run_at(&endpoint, &cascade(&["--audit", "0"])).exits_with(0);
    assert_eq!(endpoint.received(), 20 + 6, "one answer of the first judge, and one of the other where it is unsure");
    assert_eq!(escalation(&lab)["unsure"], 6);
    let lines = lab.lines("out.jsonl");
    assert!(lines.iter().all(|line| line["votes"][0]["label_probability"].as_f64().is_some()));
    lab.run_at(&endpoint, &cascade(&["--audit", "0", "--escalate-below", "0.5"])).exits_with(0);
    assert_eq!(escalation(&lab)["unsure"], 0);
}

/// A verdict with the log-probabilities of its tokens: the label has this probability, and the other label the rest.
fn sure_verdict(label: &str, probability: f64) -> Answer {
    let other = if label == "correct" { "incorrect" } else { "correct" };
    let parts = ["{\"explanation\":\"It fits.\",\"label\":\"", label, "\"}"];
    let token = |text: &str, share: f64| json!({"token": text, "bytes": null, "logprob": share.ln()});
    let mut tokens = [token(parts[0], 1.0), token(label, probability), token(parts[2], 1.0)];
    tokens[1]["top_logprobs"] = json!([token(label, probability), token(other, 1.0 - probability)]);
    let message = json!({"role": "assistant", "content": parts.concat()});
    let choice = json!({"index": 0, "message": message, "finish_reason": "stop", "logprobs": {"content": tokens}});
    let usage = json!({"prompt_tokens": 400, "completion_tokens": 40});
    Answer::ok(json!({"model": "gpt-4o-mini-2026", "choices": [choice], "usage": usage}).to_string())
}

fn asks_for_logprobs(incoming: &Incoming<'_>) -> bool {
    incoming.contains("\"logprobs\":true")
}

#[test]
fn log_probabilities_show_doubt_in_one_answer() {
    let lab = Lab::with_cases(60);
    let endpoint = endpoint(|incoming| {
        let is_cheap = model_of(incoming) == "gpt-4o-mini";
        assert_eq!(asks_for_logprobs(incoming), is_cheap, "only the first judge must show its doubt");
        match case_of(incoming).is_multiple_of(4) {
            true if is_cheap => sure_verdict("correct", 0.6),
            true => incoming.verdict("incorrect"),
            false => sure_verdict("correct", 0.97),
        }
    });
    let ran = lab.run_at(&endpoint, &cascade(&["--audit", "0"])).exits_with(0);
    assert_eq!(endpoint.received(), 60 + 15, "one answer each, and one of the other judge where the first is unsure");
    let near = |value: &Json, expected: f64| value.as_f64().is_some_and(|found| (found - expected).abs() < 1e-9);
    for line in lab.lines("out.jsonl") {
        let votes = line["votes"].as_array().unwrap();
        if line["escalated"] == "unsure" {
            assert!(near(&votes[0]["label_probability"], 0.6) && votes.len() == 2, "{line}");
            assert_eq!((&line["label"], &line["first_label"]), (&"incorrect".into(), &"correct".into()));
            assert!(line.get("label_probability").is_none(), "the judge that decided gave none: {line}");
        } else {
            assert!(near(&line["label_probability"], 0.97) && votes.len() == 1, "{line}");
            assert_eq!(line["answered_by"], "gpt-4o-mini-2026");
        }
    }
    let found = escalation(&lab);
    let counts = ["questions", "unsure", "overturned", "questions_saved"].map(|name| found[name].as_u64());
    assert_eq!(counts, [60, 15, 15, 45].map(Some));
    assert!((found["usd_saved"].as_f64().unwrap() - (45.0 * 0.0014 - 60.0 * 0.000_084)).abs() < 1e-9, "{found}");
    assert!(ran.out.contains("Escalation"), "{}", ran.out);
    // A lower bar accepts the same answers, which are in the cache with their probabilities.
    lab.run_at(&endpoint, &cascade(&["--audit", "0", "--escalate-below", "0.5"])).exits_with(0);
    assert_eq!((endpoint.received(), &escalation(&lab)["unsure"]), (75, &0.into()));
    // The only judge of a run gets its probabilities from the cache, too.
    let alone = ["--judge", "gpt-4o-mini", "--temperature", "0.7"];
    lab.run_at(&endpoint, &eval(&alone)).exits_with(0);
    assert_eq!(endpoint.received(), 75);
    assert!(lab.lines("out.jsonl").iter().all(|line| line["label_probability"].as_f64().is_some()));
}

#[test]
fn repeats_show_doubt_where_an_endpoint_has_no_log_probabilities() {
    let lab = Lab::with_cases(20);
    let endpoint = counting_endpoint(|incoming, time| {
        if asks_for_logprobs(incoming) {
            let error = "{\"error\":{\"message\":\"'logprobs' is not supported with this model\"}}";
            return Answer::status(400, error);
        }
        let is_unsure = model_of(incoming) == "gpt-4o-mini" && case_of(incoming) < 5 && time == 1;
        incoming.verdict(if is_unsure { "incorrect" } else { "correct" })
    });
    lab.run_at(&endpoint, &cascade(&["--audit", "0", "--concurrency", "1"])).exits_with(0);
    assert_eq!(endpoint.received(), 1 + 60 + 5, "one refusal, three answers each, five escalations");
    assert_eq!(escalation(&lab)["unsure"], 5);
    assert!(lab.lines("out.jsonl").iter().all(|line| line.get("label_probability").is_none()));
}

#[test]
fn a_panel_that_disagrees_escalates() {
    let lab = Lab::with_cases(30);
    let endpoint = endpoint(|incoming| {
        let is_third = case_of(incoming).is_multiple_of(3);
        incoming.verdict(if model_of(incoming) == "gpt-4.1" && is_third { "incorrect" } else { "correct" })
    });
    let arguments = cascade(&["--judge", "gpt-4.1", "--audit", "0"]);
    lab.run_at(&endpoint, &arguments).exits_with(0);
    assert_eq!(endpoint.received(), 60 + 10);
    let lines = lab.lines("out.jsonl");
    assert_eq!(lines[0]["judge"], "cascade(panel(openai:gpt-4o-mini, openai:gpt-4.1), openai:gpt-4o)");
    let tied = lines.iter().find(|line| line["escalated"] == "unsure").unwrap();
    assert!(tied.get("first_label").is_none() && tied["label"] == "correct", "{tied}");
    assert_eq!(escalation(&lab)["overturned"], 0);
}

#[test]
fn a_better_judge_that_fails_leaves_only_sure_verdicts() {
    let lab = Lab::with_cases(40);
    let endpoint = counting_endpoint(|incoming, time| {
        if model_of(incoming) == "gpt-4o" {
            return Answer::status(500, "{}");
        }
        incoming.verdict(if case_of(incoming) < 4 && time == 0 { "incorrect" } else { "correct" })
    });
    lab.run_at(&endpoint, &cascade(&["--audit", "0.1", "--retries", "0"])).exits_with(0);
    let lines = lab.lines("out.jsonl");
    let failed: Vec<&Json> = lines.iter().filter(|line| line["outcome"] == "failed").collect();
    assert_eq!(failed.len(), 4);
    assert!(failed[0]["reason"].as_str().unwrap().contains("openai:gpt-4o:"), "{}", failed[0]);
    let audited: Vec<&Json> = lines.iter().filter(|line| line["votes"].as_array().unwrap().len() == 4).collect();
    assert!(audited.len() > 4, "some were drawn");
    assert!(audited.iter().all(|line| line["outcome"] == "failed" || line["escalated"].is_null()));
    assert_eq!(escalation(&lab)["audited"], 0);
}

#[test]
fn a_dry_run_shows_the_least_and_the_most() {
    let lab = Lab::with_cases(100);
    let endpoint = kind_endpoint();
    let ran = lab.run_at(&endpoint, &cascade(&["--dry-run", "--audit", "0.2"])).exits_with(0);
    assert!(ran.out.contains("1 judge x 3 repeats = 3 votes for each question"), "{}", ran.out);
    assert!(ran.out.contains("more if openai:gpt-4o has to decide every question."), "{}", ran.out);
    // Three answers each, and the audit, which is known beforehand.
    let row = ran.out.lines().find(|line| line.starts_with("thought_to_tool")).unwrap();
    let to_ask: u64 = row.split_whitespace().nth(3).unwrap().parse().unwrap();
    lab.run_at(&endpoint, &cascade(&["--audit", "0.2"])).exits_with(0);
    assert_eq!(endpoint.received(), to_ask);
    assert!(to_ask > 300 && to_ask < 340, "{to_ask}");
}

#[test]
fn escalations_without_sense_are_refused() {
    let lab = Lab::with_cases(3);
    let endpoint = kind_endpoint();
    let refused = |more: &[&str], part: &str| {
        let ran = lab.run_at(&endpoint, &eval(more)).exits_with(2);
        assert!(ran.err.contains(part), "{more:?}: {}", ran.err);
    };
    refused(
        &["--judge", "gpt-4o", "--escalate-to", "gpt-4o"],
        "--escalate-to openai:gpt-4o: it is the first judge, too",
    );
    refused(&["--judge", "gpt-4o", "--escalate-to", "offline"], "rules cannot decide what a model is unsure of");
    refused(&["--judge", "offline", "--escalate-to", "gpt-4o"], "the first judge is offline");
    refused(&["--judge", "a", "--escalate-to", "b", "--audit", "2"], "--audit: give a share from 0 to 1");
    refused(&["--judge", "a", "--escalate-to", "b", "--escalate-below", "1.5"], "--escalate-below: give a");
    refused(&["--judge", "a", "--audit", "0.1"], "--escalate-to");
    assert_eq!(endpoint.received(), 0);
}
