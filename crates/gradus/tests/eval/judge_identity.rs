//! Whose verdicts a calibration is about: the model that was asked, how, and the one that answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gradus_test_endpoint::Endpoint;
use serde_json::Value as Json;

use crate::calibration::{calibrate, is_right, label_cases};
use crate::lab::{Lab, case_of, endpoint};
use crate::panels::counting_endpoint;

const EVAL: [&str; 4] = ["eval", "cases.jsonl", "--evaluators", "thought_to_tool"];

fn eval<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&EVAL[..], more].concat()
}

/// A judge that is right, calibrated on 40 labels. The provider replaces the model when the flag is set.
fn calibrated_world() -> (Lab, Endpoint, Arc<AtomicBool>) {
    let lab = Lab::with_cases(200);
    let is_replaced = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&is_replaced);
    let judge = endpoint(move |incoming| {
        let label = if is_right(case_of(incoming)) { "correct" } else { "incorrect" };
        let model = if flag.load(Ordering::SeqCst) { "gpt-4o-2026-11-01" } else { "gpt-4o-2026-05-01" };
        incoming.verdict(label).answered_by(model)
    });
    lab.run_at(&judge, &eval(&["--name", "first", "--jsonl", "out.jsonl"])).exits_with(0);
    calibrate(&lab, &["--cases", "40", "--write-cases", "labels.jsonl"]).exits_with(0);
    label_cases(&lab, "labels.jsonl");
    let ran = calibrate(&lab, &["--labels", "labels.jsonl"]).exits_with(0);
    assert!(ran.out.contains("Answered by gpt-4o-2026-05-01 (openai:gpt-4o)"), "{}", ran.out);
    (lab, judge, is_replaced)
}

fn calibrated_judge(lab: &Lab) -> Json {
    let file: Json = serde_json::from_str(&lab.read("calibration.json")).unwrap();
    file["calibrations"][0].clone()
}

#[test]
fn a_calibration_names_the_model_as_asked_and_as_answered() {
    let (lab, _judge, _) = calibrated_world();
    assert!(lab.lines("out.jsonl").iter().all(|line| line["answered_by"] == "gpt-4o-2026-05-01"));
    let found = calibrated_judge(&lab);
    assert_eq!(found["judge"]["name"], "openai:gpt-4o");
    assert!(found["judge"].get("panel").is_none(), "{found}");
    let model = &found["judge"]["models"][0];
    for (field, expected) in [
        ("judge", Json::from("openai:gpt-4o")),
        ("provider", "openai".into()),
        ("model", "gpt-4o".into()),
        ("answered_by", vec!["gpt-4o-2026-05-01"].into()),
        ("temperature", 0.0.into()),
        ("max_tokens", 1024.into()),
        ("structured", true.into()),
        ("logprobs", false.into()),
    ] {
        assert_eq!(model[field], expected, "{field}");
    }
    assert!(model["endpoint"].as_str().unwrap().starts_with("http://127.0.0.1:"), "{model}");
    assert_eq!(found["measures"]["flip_rate"]["value"], Json::Null, "nothing was asked twice");
}

#[test]
fn a_model_that_the_provider_replaced_is_another_judge() {
    let (lab, judge, is_replaced) = calibrated_world();
    let gate = eval(&["--calibration", "calibration.json", "--gate", "thought_to_tool >= 0.1"]);
    lab.run_at(&judge, &gate).exits_with(0);
    is_replaced.store(true, Ordering::SeqCst);
    // Answers in the cache are those of the model that gave them.
    lab.run_at(&judge, &gate).exits_with(0);
    let fresh = [&gate[..], &["--fresh", "--name", "second"]].concat();
    let ran = lab.run_at(&judge, &fresh).exits_with(2);
    let reason = "openai:gpt-4o was answered by gpt-4o-2026-05-01 when it was calibrated, and by gpt-4o-2026-11-01 in \
                  this run";
    assert!(ran.err.contains(reason) && ran.err.contains("hint: calibrate again"), "{}", ran.err);
    // What was judged is kept, and can be reported without the gate.
    let asked = judge.received();
    let report = ["report", "second", "--calibration", "calibration.json"];
    let ran = lab.run(&report).exits_with(0);
    assert!(ran.out.contains("uncalibrated: openai:gpt-4o was answered by"), "{}", ran.out);
    let gate = ["--gate", "thought_to_tool >= 0.1"];
    lab.run(&[&report[..], &gate].concat()).exits_with(2);
    lab.run(&[&report[..], &gate, &["--uncalibrated"]].concat()).exits_with(0);
    assert_eq!(judge.received(), asked);
}

#[test]
fn a_calibration_has_the_flip_rate_of_repeats() {
    let lab = Lab::with_cases(60);
    // Of every third case it changes its mind once in three answers.
    let judge = counting_endpoint(|incoming, time| {
        let case = case_of(incoming);
        let is_flipped = case.is_multiple_of(3) && time == 1;
        incoming.verdict(if is_right(case) != is_flipped { "correct" } else { "incorrect" })
    });
    lab.run_at(&judge, &eval(&["--name", "first", "--repeats", "3"])).exits_with(0);
    calibrate(&lab, &["--cases", "40", "--write-cases", "labels.jsonl"]).exits_with(0);
    label_cases(&lab, "labels.jsonl");
    let ran = calibrate(&lab, &["--labels", "labels.jsonl"]).exits_with(0);
    assert!(ran.out.contains("Changes its mind (flip rate):"), "{}", ran.out);
    let found = calibrated_judge(&lab);
    let rate = &found["measures"]["flip_rate"];
    // Two of three pairs of answers differ, in a third of the cases.
    assert!((rate["value"].as_f64().unwrap() - 2.0 / 9.0).abs() < 1e-9 && rate["count"] == 60, "{rate}");
    assert!(rate["interval"]["low"].as_f64() < Some(2.0 / 9.0) && rate["interval"]["high"].as_f64() > Some(2.0 / 9.0));
    assert_eq!(
        (&found["judge"]["panel"]["repeats"], &found["judge"]["models"][0]["temperature"]),
        (&3.into(), &0.7.into())
    );
}

#[test]
fn the_settings_file_can_name_the_calibration() {
    let (lab, judge, _) = calibrated_world();
    let ran = lab.run_at(&judge, &eval(&["--uncalibrated"])).exits_with(2);
    assert!(ran.err.contains("--uncalibrated: no calibration is given"), "{}", ran.err);
    lab.write("gradus.toml", "[eval]\ncalibration = \"calibration.json\"\n");
    let ran = lab.run_at(&judge, &eval(&[])).exits_with(0);
    assert!(ran.out.contains("corrected ") && ran.out.contains("40 labels of 40 trajectories"), "{}", ran.out);
    assert!(lab.run(&["report", "first"]).exits_with(0).out.contains("corrected "));
    let gate = ["--judge", "another", "--gate", "thought_to_tool >= 0.1"];
    let ran = lab.run_at(&judge, &eval(&gate)).exits_with(2);
    assert!(ran.err.contains("it is of the judge openai:gpt-4o, not openai:another"), "{}", ran.err);
    lab.run_at(&judge, &eval(&[&gate[..], &["--uncalibrated"]].concat())).exits_with(0);
    let ran = lab.run_at(&judge, &eval(&["--gate", "thought_to_tool >= 0.1", "--stop-early"])).exits_with(2);
    assert!(ran.err.contains("--stop-early and --calibration exclude each other"), "{}", ran.err);
    // The option wins over the file.
    let ran = lab.run_at(&judge, &eval(&["--calibration", "gone.json"])).exits_with(2);
    assert!(ran.err.contains("gone.json"), "{}", ran.err);
}
