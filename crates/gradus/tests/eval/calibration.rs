//! `gradus judge calibrate`: labels of a run, and what they do to numbers and gates.

use std::io::Write as _;
use std::process::Stdio;

use gradus_test_endpoint::Endpoint;
use serde_json::{Value as Json, json};

use crate::lab::{Lab, Ran, case_of, endpoint};

/// 200 cases, every other one right; a judge that calls 40 % of the wrong ones right, as small models do.
fn lenient_world() -> (Lab, Endpoint) {
    let lab = Lab::with_cases(200);
    let judge = endpoint(|incoming| {
        let number = case_of(incoming);
        let says_right = is_right(number) || number % 10 < 4;
        incoming.verdict(if says_right { "correct" } else { "incorrect" })
    });
    lab.run_at(&judge, &["eval", "cases.jsonl", "--evaluators", "thought_to_tool", "--name", "first"]).exits_with(0);
    (lab, judge)
}

pub(crate) fn is_right(number: usize) -> bool {
    number.is_multiple_of(2)
}

fn truth(id: &str) -> &'static str {
    let number: usize = id.trim_start_matches("case-").parse().unwrap();
    if is_right(number) { "correct" } else { "incorrect" }
}

/// Fills in the labels of a file that `--write-cases` has written.
pub(crate) fn label_cases(lab: &Lab, file: &str) {
    let mut text = String::new();
    for mut line in lab.lines(file) {
        assert!(line.get("judge_label").is_none() && line["label"].is_null(), "the judge's verdict is hidden");
        line["label"] = truth(line["trajectory_id"].as_str().unwrap()).into();
        line["labeller"] = "ann".into();
        text.push_str(&(line.to_string() + "\n"));
    }
    lab.write(file, &text);
}

pub(crate) fn calibrate(lab: &Lab, arguments: &[&str]) -> Ran {
    let mut all = vec!["judge", "calibrate", "first", "-e", "thought_to_tool"];
    all.extend(arguments);
    lab.run(&all)
}

pub(crate) fn metric(lab: &Lab, file: &str) -> Json {
    let document: Json = serde_json::from_str(&lab.read(file)).unwrap();
    let metrics = document["summary"]["metrics"].as_array().unwrap();
    metrics.iter().find(|metric| metric["name"] == "thought_to_tool").unwrap().clone()
}

#[test]
fn a_lenient_judge_is_corrected_and_gates_decide_by_the_corrected_number() {
    let (lab, judge) = lenient_world();
    for sampling in ["uniform", "stratified"] {
        let cases = &format!("{sampling}.jsonl");
        let write = ["--sampling", sampling, "--cases", "80", "--write-cases", cases];
        calibrate(&lab, &write).exits_with(0);
        label_cases(&lab, cases);
        let again = calibrate(&lab, &write).exits_with(2);
        assert!(again.err.contains(&format!("{sampling}.jsonl: it exists, and may hold labels")), "{}", again.err);
        let ran = calibrate(&lab, &["--labels", cases]).exits_with(0);
        for part in ["openai:gpt-4o on thought_to_tool: 80 labelled cases of 80 trajectories", "Labelled by ann (80)"] {
            assert!(ran.out.contains(part), "{part:?} in\n{}", ran.out);
        }
        let file: Json = serde_json::from_str(&lab.read("calibration.json")).unwrap();
        let found = &file["calibrations"][0];
        assert_eq!(found["population"]["sampling"], sampling);
        assert_eq!(found["measures"]["true_positive_rate"]["value"], 1.0);
        let rate = &found["measures"]["true_negative_rate"];
        assert!(
            rate["interval"]["low"].as_f64() < Some(0.6) && rate["interval"]["high"].as_f64() > Some(0.6),
            "{rate}"
        );
        // The run that the labels are from: the judge says 70 %, half is right.
        let report = ["report", "first", "--calibration", "calibration.json", "--json", "out.json"];
        let ran = lab.run(&report).exits_with(0);
        let metric = metric(&lab, "out.json");
        let corrected = &metric["calibration"];
        assert_eq!(corrected["estimator"], "post_stratified", "{corrected}");
        let interval = &corrected["interval"];
        assert!(interval["low"].as_f64() < Some(0.5) && interval["high"].as_f64() > Some(0.5), "{corrected}");
        assert!(metric["interval"]["low"].as_f64() > Some(0.6), "the judge itself excludes the truth: {metric}");
        assert!(ran.out.contains("corrected ") && ran.out.contains("(post-stratified, 80 labels of 80 trajectories)"));
    }
    let gate = |more: &[&str]| {
        let mut all = vec!["report", "first", "--gate", "thought_to_tool >= 0.65"];
        all.extend(more);
        lab.run(&all)
    };
    let ran = gate(&[]).exits_with(0);
    assert!(ran.out.contains("(uncalibrated)"), "{}", ran.out);
    let ran = gate(&["--calibration", "calibration.json"]).exits_with(3);
    assert!(ran.out.contains("(corrected; the judge says 70.0 %)"), "{}", ran.out);
    // A second run of the same judge on other trajectories: only the judge's rates can be used.
    let lines: Vec<Json> = lab.lines("cases.jsonl").into_iter().take(120).collect();
    let renamed = lines.into_iter().map(|mut line| {
        let id = line["trajectory_id"].as_str().unwrap().replace("case-", "other-");
        line["trajectory_id"] = id.into();
        line.to_string() + "\n"
    });
    lab.write("other.jsonl", &renamed.collect::<String>());
    let eval = ["eval", "other.jsonl", "--evaluators", "thought_to_tool", "--json", "out.json"];
    let ran = lab.run_at(&judge, &[&eval[..], &["--calibration", "calibration.json"]].concat()).exits_with(0);
    assert!(ran.out.contains("(Rogan-Gladen, 80 labels"), "{}", ran.out);
    let corrected = &metric(&lab, "out.json")["calibration"];
    let interval = &corrected["interval"];
    assert!(interval["low"].as_f64() < Some(0.5) && interval["high"].as_f64() > Some(0.5), "{corrected}");
}

#[test]
fn a_run_keeps_its_calibration_and_comparisons_show_both_numbers() {
    let (lab, judge) = lenient_world();
    calibrate(&lab, &["--cases", "80", "--write-cases", "cases-to-label.jsonl"]).exits_with(0);
    label_cases(&lab, "cases-to-label.jsonl");
    calibrate(&lab, &["--labels", "cases-to-label.jsonl"]).exits_with(0);
    let eval = ["eval", "cases.jsonl", "--evaluators", "thought_to_tool", "--name", "second"];
    lab.run_at(&judge, &[&eval[..], &["--calibration", "calibration.json"]].concat()).exits_with(0);
    // The file may change or go: the run has its own.
    std::fs::remove_file(lab.path("calibration.json")).unwrap();
    let ran = lab.run(&["report", "second", "--json", "out.json", "--gate", "thought_to_tool >= 0.65"]).exits_with(3);
    assert!(ran.out.contains("(post-stratified, 80 labels of 80 trajectories)"), "{}", ran.out);
    assert_eq!(metric(&lab, "out.json")["calibration"]["status"], "corrected");
    let outputs = ["--json", "compared.json", "--markdown", "compared.md", "--html", "compared.html"];
    let ran = lab.run(&[&["compare", "first", "second"], &outputs[..]].concat()).exits_with(0);
    for text in [&ran.out, &lab.read("compared.md"), &lab.read("compared.html")] {
        assert!(
            text.contains("Corrected for errors of the judge") && text.contains("(post-stratified, 80 labels"),
            "{text}"
        );
        assert!(text.contains("70.0 %") && text.contains("uncalibrated"), "{text}");
    }
    let compared: Json = serde_json::from_str(&lab.read("compared.json")).unwrap();
    let [first, second] = &compared["calibrations"].as_array().unwrap()[..] else { panic!("{compared}") };
    assert_eq!((&first["version"], &first["calibration"]["status"]), (&json!("A"), &json!("uncalibrated")));
    assert_eq!((&second["version"], &second["calibration"]["status"]), (&json!("B"), &json!("corrected")));
    assert_eq!(second["raw"], 0.7);
    let ran = lab.run(&["compare", "first", "first"]).exits_with(0);
    assert!(ran.out.contains("note: Uncalibrated: "), "{}", ran.out);
    // A baseline has the corrected number, too.
    lab.run(&["report", "second", "--save-baseline", "second.baseline"]).exits_with(0);
    let ran = lab.run(&["compare", "second.baseline", "second"]).exits_with(0);
    assert_eq!(ran.out.matches("(post-stratified, 80 labels").count(), 2, "{}", ran.out);
    // A broken file is named by the command, and marks the numbers elsewhere.
    let id = compared["versions"][1]["run_id"].as_str().unwrap();
    lab.write(&format!(".gradus/runs/{id}/calibration.json"), "{}");
    let ran = lab.run(&["report", "second"]).exits_with(2);
    assert!(ran.err.contains("calibration.json: no calibration"), "{}", ran.err);
    let ran = lab.run(&["compare", "first", "second"]).exits_with(0);
    assert!(ran.out.contains("uncalibrated: the calibration.json of the run cannot be read"), "{}", ran.out);
}

#[test]
fn labels_in_the_terminal_are_blind_and_can_be_continued() {
    let (lab, _judge) = lenient_world();
    let label = |labeller: &str, input: &str| {
        let arguments =
            ["judge", "calibrate", "first", "-e", "thought_to_tool", "--cases", "30", "--labeller", labeller];
        let mut child = lab.command(&arguments);
        let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        Ran::from_output(child.wait_with_output().unwrap())
    };
    let ran = label("ann", "1\n1\nb\n2\ns\n").exits_with(0);
    assert!(ran.out.contains("Case 1 of 30") && ran.out.contains("1 correct   2 incorrect"), "{}", ran.out);
    // The verdict comes after the decision, never before.
    let first_verdict = ran.out.find("The judge ").unwrap();
    assert!(ran.out.find("> ").unwrap() < first_verdict, "{}", ran.out);
    assert!(ran.err.contains("3 of 30 cases are labelled; the same command goes on from there"), "{}", ran.err);
    assert!(ran.out.contains("uncalibrated: cannot correct a share: 2 labelled runs, 20 are needed"), "{}", ran.out);
    let ran = label("ann", &"1\n".repeat(27)).exits_with(0);
    assert!(ran.out.contains("Case 4 of 30") && !ran.out.contains("Case 3 of 30"), "{}", ran.out);
    assert!(ran.out.contains("29 labelled cases of 29 trajectories"), "{}", ran.out);
    // A second person sees the same cases from the beginning.
    let ran = label("bob", "1\nq\n").exits_with(0);
    assert!(ran.out.contains("Case 1 of 30") && ran.out.contains("ann (30), bob (1)"), "{}", ran.out);
}

#[test]
fn a_calibration_of_something_else_is_refused_by_gates() {
    let (lab, judge) = lenient_world();
    calibrate(&lab, &["--cases", "40", "--write-cases", "cases-to-label.jsonl"]).exits_with(0);
    label_cases(&lab, "cases-to-label.jsonl");
    calibrate(&lab, &["--labels", "cases-to-label.jsonl"]).exits_with(0);
    let eval = |more: &[&str]| {
        let mut all =
            vec!["eval", "cases.jsonl", "--evaluators", "thought_to_tool", "--calibration", "calibration.json"];
        all.extend(more);
        lab.run_at(&judge, &all)
    };
    let gate = ["--gate", "thought_to_tool >= 0.1"];
    let other = [&gate[..], &["--judge", "another"]].concat();
    let asked = judge.received();
    let ran = eval(&other).exits_with(2);
    assert!(
        ran.err.contains("the calibration of thought_to_tool does not apply: it is of the judge openai:gpt-4o"),
        "{}",
        ran.err
    );
    assert_eq!(judge.received(), asked, "refused before anything is asked");
    let ran = eval(&[&other[..], &["--uncalibrated"]].concat()).exits_with(0);
    assert!(ran.out.contains("(uncalibrated)"), "{}", ran.out);
    let ran = eval(&["--judge", "another"]).exits_with(0);
    assert!(ran.out.contains("uncalibrated: it is of the judge openai:gpt-4o, not openai:another"), "{}", ran.out);
    let mut file: Json = serde_json::from_str(&lab.read("calibration.json")).unwrap();
    file["calibrations"][0]["expires"] = "2020-01-01T00:00:00Z".into();
    lab.write("calibration.json", &file.to_string());
    let ran = eval(&gate).exits_with(2);
    assert!(ran.err.contains("it expired at 2020-01-01T00:00:00Z"), "{}", ran.err);
    file["schema"] = "gradus.calibration/2".into();
    lab.write("calibration.json", &file.to_string());
    let ran = eval(&[]).exits_with(2);
    assert!(ran.err.contains("schema \"gradus.calibration/2\" is not known"), "{}", ran.err);
    let ran = lab
        .run(&[
            "eval",
            "cases.jsonl",
            "--judge",
            "offline",
            "--stop-early",
            "--calibration",
            "x",
            "--gate",
            "outcome >= 0.5",
        ])
        .exits_with(2);
    assert!(ran.err.contains("--stop-early and --calibration exclude each other"), "{}", ran.err);
}

#[test]
fn labels_that_cannot_be_used_are_named() {
    let (lab, _judge) = lenient_world();
    let label = |id: &str, label: &str, author: &str| {
        json!({"trajectory_id": id, "step_index": 1, "evaluator": "thought_to_tool", "label": label, "author": author})
            .to_string()
            + "\n"
    };
    let refused = |text: &str| {
        lab.write("labels.jsonl", text);
        calibrate(&lab, &["--labels", "labels.jsonl"]).exits_with(2).err
    };
    assert!(
        refused(&label("nowhere", "correct", "ann")).contains("none of the 1 labels is about a verdict of this run")
    );
    let both = label("case-1", "correct", "ann") + &label("case-1", "incorrect", "ann");
    assert!(
        refused(&both)
            .contains("labels.jsonl:2: ann labels this case \"incorrect\", and \"correct\" at labels.jsonl:1")
    );
    assert!(
        refused(&label("case-1", "fine", "ann"))
            .contains("the rubric has no label \"fine\"; it has correct, incorrect")
    );
    assert!(refused("").contains("labels.jsonl: no labels"));
    // Three labels of one class: measured with wide intervals, and nothing is corrected.
    let three: String = (1..4).map(|number| label(&format!("case-{number}"), "correct", "ann")).collect();
    lab.write("labels.jsonl", &(three + &label("gone", "correct", "ann")));
    let ran = calibrate(&lab, &["--labels", "labels.jsonl"]).exits_with(0);
    assert!(ran.err.contains("1 labels are about cases that the run has no verdict on"), "{}", ran.err);
    for part in ["not drawn at random", "no such cases", "uncalibrated: cannot correct a share: 3 labelled runs"] {
        assert!(ran.out.contains(part), "{part:?} in\n{}", ran.out);
    }
    let gate = ["report", "first", "--calibration", "calibration.json", "--gate", "thought_to_tool >= 0.5"];
    let ran = lab.run(&gate).exits_with(2);
    assert!(ran.err.contains("does not apply: it cannot correct this run: cannot correct a share: 3"), "{}", ran.err);
    lab.run(&[&gate[..], &["--uncalibrated"]].concat()).exits_with(0);
    // Labels are work: fewer do not replace more.
    lab.write("labels.jsonl", &label("case-1", "correct", "ann"));
    let ran = calibrate(&lab, &["--labels", "labels.jsonl"]).exits_with(2);
    assert!(ran.err.contains("has 3 labelled cases, and this one 1"), "{}", ran.err);
    let ran = lab.run(&["judge", "calibrate", "first", "-e", "nothing"]).exits_with(2);
    assert!(ran.err.contains("--evaluator \"nothing\": the run has no such evaluator"), "{}", ran.err);
    let ran = lab.run(&["judge", "calibrate", "second", "-e", "nothing"]).exits_with(2);
    assert!(ran.err.contains("there is no run \"second\""), "{}", ran.err);
}
