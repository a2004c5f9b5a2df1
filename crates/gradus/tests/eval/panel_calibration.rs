//! A panel as one judge: calibrated by its votes, with its disagreements labelled first.

use gradus_test_endpoint::Endpoint;
use serde_json::Value as Json;

use crate::calibration::{calibrate, label_cases, metric};
use crate::lab::{Lab, case_of, endpoint};
use crate::panels::model_of;

const PANEL: [&str; 6] = ["--judge", "gpt-4o", "--judge", "gpt-4o-mini", "--judge", "gpt-4.1"];

/// Votes for `correct` of gpt-4o, gpt-4o-mini and gpt-4.1, by the last digit of the case. Even cases are right, and all
/// agree on them. Of the odd ones, two get the most votes wrongly: here the number of votes says more than the label.
const VOTES: [[bool; 3]; 10] = [
    [true, true, true],
    [true, false, true],
    [true, true, true],
    [false, true, true],
    [true, true, true],
    [false, false, true],
    [true, true, true],
    [false, false, false],
    [true, true, true],
    [false, false, false],
];

fn judged_world() -> (Lab, Endpoint) {
    let lab = Lab::with_cases(200);
    let judges = endpoint(|incoming| {
        let model = model_of(incoming);
        let judge = ["gpt-4o", "gpt-4o-mini", "gpt-4.1"].iter().position(|name| **name == *model).unwrap();
        let label = if VOTES[case_of(incoming) % 10][judge] { "correct" } else { "incorrect" };
        incoming.verdict(label).answered_by(&format!("{model}-2026"))
    });
    let eval = ["eval", "cases.jsonl", "--evaluators", "thought_to_tool", "--name", "first"];
    lab.run_at(&judges, &[&eval[..], &PANEL].concat()).exits_with(0);
    (lab, judges)
}

/// Whether the votes on a case differ.
fn is_disputed(case: &Json) -> bool {
    let number: usize = case["trajectory_id"].as_str().unwrap().trim_start_matches("case-").parse().unwrap();
    matches!(number % 10, 1 | 3 | 5)
}

fn width(metric: &Json) -> f64 {
    let interval = &metric["calibration"]["interval"];
    interval["high"].as_f64().unwrap() - interval["low"].as_f64().unwrap()
}

#[test]
fn a_panel_is_calibrated_by_its_votes() {
    let (lab, judges) = judged_world();
    calibrate(&lab, &["--cases", "80", "--write-cases", "labels.jsonl"]).exits_with(0);
    let drawn = lab.lines("labels.jsonl");
    assert!(drawn.iter().all(|case| case["draw"]["sampling"] == "active"), "{}", drawn[0]);
    // 60 of 200 cases are disputed; most of the 80 that are drawn.
    let disputed = drawn.iter().filter(|case| is_disputed(case)).count();
    assert!(disputed >= 50, "{disputed}");
    label_cases(&lab, "labels.jsonl");
    let ran = calibrate(&lab, &["--labels", "labels.jsonl"]).exits_with(0);
    for part in ["3 of 3 votes correct:", "2 of 3 votes correct:", "Answered by gpt-4o-2026 (openai:gpt-4o); "] {
        assert!(ran.out.contains(part), "{part:?} in\n{}", ran.out);
    }
    let mut file: Json = serde_json::from_str(&lab.read("calibration.json")).unwrap();
    let found = &file["calibrations"][0];
    let judge = &found["judge"];
    assert_eq!(judge["name"], "panel(openai:gpt-4o, openai:gpt-4o-mini, openai:gpt-4.1)");
    assert_eq!((&judge["panel"]["rule"], &judge["panel"]["repeats"]), (&"most_votes".into(), &1.into()));
    assert_eq!(judge["panel"]["judges"].as_array().unwrap().len(), 3);
    assert_eq!(judge["models"][2]["answered_by"][0], "gpt-4.1-2026");
    // The probability of each case is stored: disputed ones are nearly certain, others stand for many.
    for case in found["cases"].as_array().unwrap() {
        let probability = case["probability"].as_f64().unwrap();
        assert!(if is_disputed(case) { probability > 0.9 } else { probability < 0.2 }, "{case}");
        assert!(case["votes"]["right"].as_u64() <= case["votes"]["answered"].as_u64(), "{case}");
    }
    let strata = found["measures"]["by_votes"].as_array().unwrap();
    let of_three = |right: u64| strata.iter().find(|stratum| stratum["votes"]["right"] == right).unwrap();
    assert_eq!(of_three(1)["right"], 0, "one vote for it is always wrong");
    assert_eq!(strata.iter().map(|stratum| stratum["cases"].as_u64().unwrap()).sum::<u64>(), 80);
    // The panel says 70 %, half is right.
    let report = ["report", "first", "--calibration", "calibration.json", "--json", "out.json"];
    lab.run(&report).exits_with(0);
    let by_votes = metric(&lab, "out.json");
    let corrected = &by_votes["calibration"];
    assert_eq!(corrected["estimator"], "post_stratified", "{corrected}");
    let interval = &corrected["interval"];
    assert!(interval["low"].as_f64() < Some(0.5) && interval["high"].as_f64() > Some(0.5), "{corrected}");
    assert!(interval["high"].as_f64() < Some(0.7), "the panel's own share is excluded: {corrected}");
    // By label, two of three votes would count as much as three of three.
    for case in file["calibrations"][0]["cases"].as_array_mut().unwrap() {
        case.as_object_mut().unwrap().remove("votes");
    }
    lab.write("calibration.json", &file.to_string());
    lab.run(&report).exits_with(0);
    let by_label = metric(&lab, "out.json");
    assert!(width(&by_label) > 1.1 * width(&by_votes), "{by_label} {by_votes}");
    // It is of these three judges, and of no others.
    let gate = ["--calibration", "calibration.json", "--gate", "thought_to_tool >= 0.1"];
    let eval = ["eval", "cases.jsonl", "--evaluators", "thought_to_tool"];
    lab.run_at(&judges, &[&eval[..], &PANEL, &gate].concat()).exits_with(0);
    for judges_of_other in [&PANEL[..4], &[&PANEL[..], &["--repeats", "2"]].concat()] {
        let asked = judges.received();
        let ran = lab.run_at(&judges, &[&eval[..], judges_of_other, &gate].concat()).exits_with(2);
        assert!(ran.err.contains("does not apply: it is of the judge panel(openai:gpt-4o, "), "{}", ran.err);
        assert_eq!(judges.received(), asked, "refused before anything is asked");
    }
}

/// Where members fail, the votes that are there decide, and the calibration counts them.
#[test]
fn missing_votes_are_part_of_the_calibration() {
    let lab = Lab::with_cases(60);
    let judges = endpoint(|incoming| {
        let case = case_of(incoming);
        if model_of(incoming) == "gpt-4.1" && case.is_multiple_of(3) {
            return gradus_test_endpoint::Answer::status(500, "{}");
        }
        incoming.verdict(if case.is_multiple_of(2) { "correct" } else { "incorrect" })
    });
    let eval = ["eval", "cases.jsonl", "--evaluators", "thought_to_tool", "--name", "first", "--retries", "0"];
    lab.run_at(&judges, &[&eval[..], &PANEL, &["--jsonl", "out.jsonl"]].concat()).exits_with(0);
    let lines = lab.lines("out.jsonl");
    assert_eq!(lines.iter().filter(|line| line["vote_count"] == 2).count(), 20);
    calibrate(&lab, &["--cases", "60", "--write-cases", "labels.jsonl"]).exits_with(0);
    label_cases(&lab, "labels.jsonl");
    calibrate(&lab, &["--labels", "labels.jsonl"]).exits_with(0);
    let file: Json = serde_json::from_str(&lab.read("calibration.json")).unwrap();
    let strata = file["calibrations"][0]["measures"]["by_votes"].as_array().unwrap();
    let of_two: u64 = strata
        .iter()
        .filter(|stratum| stratum["votes"]["answered"] == 2)
        .map(|stratum| stratum["cases"].as_u64().unwrap())
        .sum();
    assert_eq!(of_two, 20, "{strata:?}");
    lab.run(&["report", "first", "--calibration", "calibration.json", "--json", "out.json"]).exits_with(0);
    assert_eq!(metric(&lab, "out.json")["calibration"]["status"], "corrected");
}
