//! `gradus export`: other formats give back the same steps, and training data is honest.

use serde_json::{Value as Json, json};

use std::path::Path;

use crate::lab::{Lab, Ran, case, kind_endpoint, step};

/// Three runs of one request: a right call, a wrong one, and a wrong one that the agent corrects.
fn sibling_lab() -> Lab {
    let lab = Lab::new();
    let run = |id: &str, calls: &[(Json, bool)]| {
        let mut run = case(1);
        run["trajectory_id"] = json!(id);
        let steps = calls.iter().enumerate().map(|(at, (arguments, is_error))| {
            let mut one = step(at + 1, "I will read file 1.md in the demo repository.", 1);
            one["arguments"] = arguments.clone();
            one["is_error"] = json!(is_error);
            if *is_error {
                one["observation"] = json!("missing required parameter: path");
            }
            one
        });
        run["steps"] = steps.collect();
        run
    };
    let (right, wrong) = ((json!({"path": "1.md"}), false), (json!({"file": "1.md"}), true));
    let runs = [
        run("right", std::slice::from_ref(&right)),
        run("wrong", std::slice::from_ref(&wrong)),
        run("corrected", &[wrong.clone(), right.clone()]),
    ];
    lab.write("runs.jsonl", &runs.map(|run| run.to_string() + "\n").concat());
    lab
}

fn judged_lab() -> Lab {
    let lab = sibling_lab();
    lab.run(&["eval", "runs.jsonl", "--judge", "offline", "--evaluators", "call_validity", "--quiet"]).exits_with(0);
    lab
}

fn export(lab: &Lab, format: &str, more: &[&str]) -> Ran {
    // Rules prove faults. Naming them says that what they accept counts as right.
    let mut arguments = vec!["export", "--format", format, "--out", "out.jsonl", "--evaluators", "call_validity"];
    arguments.extend(more);
    lab.run(&arguments)
}

#[test]
fn pairs_have_the_same_prompt_and_say_how_they_were_made() {
    let lab = judged_lab();
    let ran = export(&lab, "dpo", &[]).exits_with(0);
    assert!(ran.err.contains("1 by correction") && ran.err.contains("by sibling"), "{}", ran.err);
    let rows = lab.lines("out.jsonl");
    let call = |side: &Json| side[0]["tool_calls"][0]["function"]["arguments"].clone();
    for row in &rows {
        assert_eq!((call(&row["chosen"]), call(&row["rejected"])), (json!({"path": "1.md"}), json!({"file": "1.md"})));
        let roles: Vec<_> = row["prompt"].as_array().unwrap().iter().map(|message| message["role"].clone()).collect();
        assert_eq!(roles, ["user"]);
        let tools: Json = serde_json::from_str(row["tools"].as_str().unwrap()).unwrap();
        assert_eq!(tools[0]["function"]["name"], "read_file");
    }
    let corrected = rows.iter().find(|row| row["made_by"] == "correction").unwrap();
    // The thought behind a correction speaks of the failure, which is not in the prompt.
    assert_eq!((&corrected["chosen"][0]["content"], &corrected["rejected"][0]["content"]), (&json!(""), &json!("")));
    let manifest: Json = serde_json::from_str(&lab.read("out.jsonl.manifest.json")).unwrap();
    assert_eq!(manifest["rows"], json!(rows.len()));
    assert_eq!(manifest["verdicts"][0]["evaluator"], "call_validity");
    assert_eq!(manifest["verdicts"][0]["expected_noise_of_good"], Json::Null, "nobody calibrated it");
}

#[test]
fn the_shape_of_openai_has_lists_and_texts() {
    let lab = judged_lab();
    export(&lab, "dpo", &["--shape", "openai"]).exits_with(0);
    let row = &lab.lines("out.jsonl")[0];
    assert_eq!(row["input"]["tools"][0]["function"]["name"], "read_file");
    let arguments = &row["preferred_output"][0]["tool_calls"][0]["function"]["arguments"];
    assert_eq!(arguments, "{\"path\":\"1.md\"}");
    assert!(row["non_preferred_output"][0]["tool_calls"].is_array());
}

#[test]
fn supervised_rows_leave_out_what_was_found_wrong() {
    let lab = judged_lab();
    let ran = export(&lab, "sft", &[]).exits_with(0);
    assert!(ran.err.contains("has a bad verdict (2)"), "{}", ran.err);
    let rows = lab.lines("out.jsonl");
    assert_eq!(rows.len(), 1);
    let roles: Vec<_> = rows[0]["messages"].as_array().unwrap().iter().map(|message| message["role"].clone()).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "assistant"]);
}

#[test]
fn labels_and_rewards_follow_the_verdicts() {
    let lab = judged_lab();
    export(&lab, "kto", &[]).exits_with(0);
    let labels: Vec<_> = lab.lines("out.jsonl").iter().map(|row| row["label"].as_bool().unwrap()).collect();
    assert_eq!(labels, [true, false, true], "the wrong call of the third run is the same row as that of the second");
    export(&lab, "stepwise", &[]).exits_with(0);
    let rows = lab.lines("out.jsonl");
    assert_eq!(rows[2]["labels"], json!([false, true]));
    export(&lab, "step-rewards", &[]).exits_with(0);
    let rows = lab.lines("out.jsonl");
    let rewards: Vec<_> = rows[2]["evaluation_result"]["step_outputs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["base_reward"].clone())
        .collect();
    assert_eq!(rewards, [json!(0.0), json!(1.0)]);
}

#[test]
fn nothing_is_made_up_where_there_are_no_verdicts_or_no_pairs() {
    let lab = sibling_lab();
    let ran = lab.run(&["export", "runs.jsonl", "--format", "dpo", "--out", "out.jsonl"]).exits_with(2);
    assert!(ran.err.contains("is made of verdicts"), "{}", ran.err);
    assert!(!lab.path("out.jsonl").exists());
    let lab = Lab::with_cases(2);
    lab.run(&["eval", "cases.jsonl", "--judge", "offline", "--quiet"]).exits_with(0);
    let ran = export(&lab, "dpo", &[]).exits_with(4);
    assert!(ran.err.contains("no row of dpo can be made"), "{}", ran.err);
    let ran = lab.run(&["export", "--format", "sft"]).exits_with(4);
    assert!(ran.err.contains("rules prove only faults"), "{}", ran.err);
    let ran = lab.run(&["export", "cases.jsonl", "--format", "messages", "--out", "cases.jsonl"]).exits_with(2);
    assert!(ran.err.contains("is the source"), "{}", ran.err);
    let ran = lab.run(&["export", "cases.jsonl", "--format", "messages", "--out", "none/x.jsonl"]).exits_with(2);
    assert_eq!(ran.err, "gradus: none/x.jsonl: cannot be written: no such folder\n");
    let ran = export(&lab, "kto", &["--min-precision", "0.9"]).exits_with(2);
    assert!(ran.err.contains("has no calibration"), "{}", ran.err);
    let ran = lab.run(&["export", "nosuchrun", "--format", "sft"]).exits_with(2);
    assert!(ran.err.contains("no such file, source or run"), "{}", ran.err);
}

/// What every format can hold of a step.
fn steps_of(lab: &Lab, source: &str) -> Vec<Json> {
    let ran = lab.run(&["traces", source, "--format", "jsonl"]).exits_with(0);
    let line = |line: &str| {
        let run: Json = serde_json::from_str(line).unwrap();
        let step = |step: &Json| {
            json!([step["thought"], step["tool"], step["arguments"], step["observation"], step["is_error"]])
        };
        json!([
            run["query"],
            run["final_answer"],
            run["steps"].as_array().unwrap().iter().map(step).collect::<Vec<_>>()
        ])
    };
    let mut lines: Vec<Json> = ran.out.lines().map(line).collect();
    lines.sort_by_key(Json::to_string);
    lines
}

#[test]
fn every_interchange_format_gives_back_the_same_steps() {
    let lab = sibling_lab();
    let expected = steps_of(&lab, "runs.jsonl");
    for format in ["jsonl", "atif", "otlp", "messages"] {
        lab.run(&["export", "runs.jsonl", "--format", format, "--out", "again.jsonl"]).exits_with(0);
        let mut found = steps_of(&lab, "again.jsonl");
        let mut expected = expected.clone();
        if format == "messages" {
            // A message list has no place for the status of a result.
            for run in found.iter_mut().chain(&mut expected) {
                run[2].as_array_mut().unwrap().iter_mut().for_each(|step| step[4] = Json::Null);
            }
        }
        assert_eq!(found, expected, "{format}");
    }
}

/// What is in the tables is looked at by DuckDB and pandas, among the peers.
#[test]
#[cfg(feature = "parquet")]
fn parquet_is_a_folder_of_tables_and_a_secret_stops_all_of_them() {
    let lab = judged_lab();
    lab.run(&["export", "--format", "parquet"]).exits_with(2);
    lab.run(&["export", "--format", "parquet", "--out", "runs.jsonl"]).exits_with(2);
    lab.run(&["export", "--format", "parquet", "--out", "new/tables"]).exits_with(0);
    let names = |folder: &str| -> Vec<String> {
        let entries = std::fs::read_dir(lab.path(folder)).unwrap();
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    let tables = ["manifest.json", "steps.parquet", "trajectories.parquet", "verdicts.parquet"];
    assert_eq!(names("new/tables"), tables);
    // The name of the tool is the value of a secret, which the tripwire knows.
    let mut command = lab.command(&["export", "--format", "parquet", "--scrub", "--out", "scrubbed"]);
    command.env("SERVICE_PASSWORD", "read_file");
    let ran = Ran::from_output(command.output().unwrap());
    assert_eq!(ran.code, Some(5), "{}", ran.err);
    assert_eq!(names("scrubbed"), [""; 0]);
}

#[test]
fn sessions_are_sent_only_with_consent() {
    let lab = Lab::new();
    let endpoint = kind_endpoint();
    let session = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/imports/claude-code");
    let first = std::fs::read_dir(&session).unwrap().map(|entry| entry.unwrap().path());
    let file = first.filter(|path| path.extension().is_some_and(|end| end == "jsonl")).min().unwrap();
    // A session that comes after many other files is found, too.
    for number in 0..40 {
        lab.write(&format!("mixed/a{number:02}.json"), "{}");
    }
    lab.write("mixed/z.jsonl", &std::fs::read_to_string(&file).unwrap());
    let ran = lab.run_at(&endpoint, &["eval", "mixed", "--quiet"]).exits_with(0);
    assert!(ran.err.contains("judging with `offline`"), "{}", ran.err);
    let ran = lab.run_at(&endpoint, &["eval", "mixed", "--judge", "openai:any", "--quiet"]).exits_with(2);
    assert!(ran.err.contains("nothing was sent"), "{}", ran.err);
    let mut command = lab.command_at(&endpoint, &["eval", "-", "--judge", "openai:any", "--quiet"]);
    command.stdin(std::fs::File::open(&file).unwrap());
    let ran = Ran::from_output(command.output().unwrap());
    assert!(ran.err.contains("nothing was sent") && ran.code == Some(2), "{}", ran.err);
    assert_eq!(endpoint.received(), 0);
}

#[test]
fn a_row_on_a_terminal_controls_nothing() {
    let lab = Lab::new();
    let mut run = case(1);
    run["query"] = json!("\u{9b}31m red \u{202e}txt");
    lab.write("run.jsonl", &run.to_string());
    let ran = lab.run(&["export", "run.jsonl", "--format", "messages"]).exits_with(0);
    assert!(!ran.out.contains(['\u{9b}', '\u{202e}']), "{}", ran.out);
    let row: Json = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(row["messages"][0]["content"], run["query"]);
}
