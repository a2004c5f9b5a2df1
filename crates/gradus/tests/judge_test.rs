//! `gradus judge test` as a user meets it: judges of known quality behind a real endpoint, and bad input.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

#[allow(dead_code, reason = "not all of it is used here")]
mod place;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gradus_test_endpoint::{Answer, Endpoint, Incoming};
use place::{Place, Ran};
use serde_json::{Value as Json, json};

/// Right runs of an agent that closes tickets.
fn right_run(number: usize) -> Json {
    let (project, ticket) = (format!("unit-{}", 300 + number), 5_000 + 7 * number);
    let step = |index: usize, thought: String, tool: &str, arguments: Json, observation: String| {
        json!({
            "index": index, "thought": thought, "tool": tool, "tool_call_id": null, "arguments": arguments,
            "arguments_raw": null, "observation": observation, "is_error": false, "parallel_with_previous": false,
            "agent": null, "span_ids": [], "start": null, "end": null, "tokens": {"prompt": 0, "completion": 0},
        })
    };
    let tool = |name: &str, required: &[&str]| {
        let properties: BTreeMap<&str, Json> = required.iter().map(|name| (*name, json!({}))).collect();
        json!({"name": name, "description": format!("Tool {name}."),
            "schema": {"type": "object", "properties": properties, "required": required}})
    };
    json!({
        "trajectory_id": format!("run-{number}"), "trace_ids": [], "session_id": null, "project": null,
        "agent": null, "agent_version": null, "model": null,
        "query": format!("Close the ticket of {project} about the door."),
        "final_answer": format!("Ticket {ticket} of {project} is closed."),
        "final_thought": null,
        "steps": [
            step(1, format!("I search the tickets of {project} for the door."), "search_tickets",
                json!({"project": project, "words": "door"}), format!("[{{\"ticket\": {ticket}, \"title\": \"door\"}}]")),
            step(2, format!("It is {ticket}. I close ticket {ticket} of {project}."), "close_ticket",
                json!({"project": project, "ticket": ticket}), "{\"state\": \"closed\"}".to_owned()),
        ],
        "tools": [tool("search_tickets", &["project", "words"]), tool("close_ticket", &["project", "ticket"]),
            tool("list_holidays", &["project"]), tool("read_manual", &["project"])],
        "tokens": {"prompt": 0, "completion": 0}, "cost_usd": null, "defects": [],
        "parent_trajectory_id": null, "parent_step_index": null, "answer_span_ids": [], "root_span_id": null,
        "start": null, "end": null, "is_error": false,
    })
}

fn place_with_runs(count: usize) -> Place {
    let place = Place::new();
    let lines: Vec<String> = (0..count).map(|number| right_run(number).to_string() + "\n").collect();
    place.write("right.jsonl", &lines.concat());
    place
}

const OWN_RUNS: [&str; 5] = ["judge", "test", "--no-bench", "--right", "right.jsonl"];
/// One question for each case, which is about one call.
const ONE_RUBRIC: [&str; 4] = ["--rubric", "thought_to_tool", "--flaw", "corrupted_argument"];

fn with<'a>(parts: &[&[&'a str]]) -> Vec<&'a str> {
    parts.concat()
}

fn run_at(place: &Place, endpoint: &Endpoint, arguments: &[&str]) -> Ran {
    let mut command = place.command(arguments);
    command.env("OPENAI_BASE_URL", endpoint.url()).env("OPENAI_API_KEY", "sk-test");
    Ran::from_output(command.output().unwrap())
}

fn endpoint(script: impl Fn(&Incoming<'_>) -> Answer + Send + Sync + 'static) -> Endpoint {
    Endpoint::start(Arc::new(script)).unwrap()
}

/// A case as the endpoint recognises it: by the arguments of its call, as they stand in a request.
struct KnownCase {
    arguments: String,
    is_flawed: bool,
    /// Position among the cases of its kind.
    number: usize,
}

/// The cases of a test with these options.
fn known_cases(place: &Place, options: &[&str]) -> Vec<KnownCase> {
    place.run(&with(&[options, &["--judge", "offline", "--dry-run", "--write-cases", "cases.jsonl"]])).exits_with(0);
    let mut counts = [0, 0];
    let mut cases = Vec::new();
    for case in place.lines("cases.jsonl") {
        let step = case["step"].as_u64().unwrap() as usize;
        let arguments = case["trajectory"]["steps"][step - 1]["arguments"].to_string();
        let is_flawed = case["expected"] == "flawed";
        let number = counts[usize::from(is_flawed)];
        counts[usize::from(is_flawed)] += 1;
        let quoted = Json::String(arguments).to_string();
        cases.push(KnownCase { arguments: quoted.trim_matches('"').to_owned(), is_flawed, number });
    }
    cases
}

fn find_case<'c>(cases: &'c [KnownCase], incoming: &Incoming<'_>) -> &'c KnownCase {
    cases.iter().find(|case| incoming.contains(&case.arguments)).expect("a known case")
}

fn report(place: &Place) -> Json {
    serde_json::from_str(&place.read("report.json")).unwrap()
}

fn contains(share: &Json, value: f64) -> bool {
    share["interval"]["low"].as_f64().unwrap() <= value && value <= share["interval"]["high"].as_f64().unwrap()
}

#[test]
fn a_judge_of_known_quality_is_measured_and_asked_once() {
    let place = place_with_runs(40);
    let options = with(&[&OWN_RUNS, &ONE_RUBRIC, &["--cases", "60"]]);
    let cases = known_cases(&place, &options);
    assert_eq!(cases.len(), 60);
    // It misses every fifth flaw, and raises an alarm on every tenth original.
    let endpoint = endpoint(move |incoming| {
        let case = find_case(&cases, incoming);
        let is_flagged = if case.is_flawed { !case.number.is_multiple_of(5) } else { case.number.is_multiple_of(10) };
        incoming.verdict(if is_flagged { "incorrect" } else { "correct" })
    });
    let command = with(&[&options, &["--judge", "gpt-4o", "--json", "report.json", "--markdown", "report.md"]]);
    let shown = run_at(&place, &endpoint, &command).exits_with(0);
    let found = report(&place);
    assert_eq!((found["schema"].as_str(), found["cases"].as_u64()), (Some("gradus.judge-test/1"), Some(60)));
    let (judge, rubric) = (&found["judges"][0], &found["judges"][0]["rubrics"][0]);
    assert_eq!((rubric["detection"]["value"].as_f64(), rubric["detection"]["cases"].as_u64()), (Some(0.8), Some(30)));
    assert_eq!(rubric["false_alarms"]["value"].as_f64(), Some(0.1));
    assert!(contains(&rubric["detection"], 0.8) && contains(&rubric["false_alarms"], 0.1), "{rubric}");
    assert!(!contains(&rubric["detection"], 0.99), "{rubric}");
    assert_eq!((rubric["fitness"].as_str(), rubric["flips"].is_null()), (Some("undecided"), true));
    assert!(judge["cost_usd"].as_f64().unwrap() > 0.0 && judge["median_seconds"].as_f64().is_some(), "{judge}");
    assert!(judge["cost_per_question"]["value"].as_f64().is_some());
    assert_eq!((judge["calls"].as_u64(), endpoint.received()), (Some(60), 60));
    for text in ["thought_to_tool", "80 % (", "undecided", "corrupted_argument"] {
        assert!(shown.out.contains(text) && place.read("report.md").contains(text), "{text}: {}", shown.out);
    }
    // The same command again: all verdicts are there, and the figures are the same.
    run_at(&place, &endpoint, &command).exits_with(0);
    let again = report(&place);
    assert_eq!((again["judges"][0]["calls"].as_u64(), endpoint.received()), (Some(0), 60));
    assert_eq!(again["judges"][0]["rubrics"], found["judges"][0]["rubrics"]);
}

#[test]
fn repeats_measure_flips() {
    let place = place_with_runs(30);
    let options = with(&[&OWN_RUNS, &ONE_RUBRIC, &["--cases", "20"]]);
    let cases = known_cases(&place, &options);
    // Right at first. Asked again, every second case gets the other verdict.
    let seen = std::sync::Mutex::new(BTreeSet::new());
    let endpoint = endpoint(move |incoming| {
        let case = find_case(&cases, incoming);
        let is_first = seen.lock().unwrap().insert(case.arguments.clone());
        let flips = !is_first && case.number.is_multiple_of(2);
        incoming.verdict(if case.is_flawed != flips { "incorrect" } else { "correct" })
    });
    run_at(&place, &endpoint, &with(&[&options, &["--judge", "m", "--repeats", "2", "--json", "report.json"]]))
        .exits_with(0);
    let found = report(&place);
    let rubric = &found["judges"][0]["rubrics"][0];
    assert_eq!((rubric["flips"]["value"].as_f64(), rubric["fitness"].as_str()), (Some(0.5), Some("unfit")), "{rubric}");
    assert_eq!(endpoint.received(), 40);
    assert!(found["judges"][0]["cost_usd"].is_null(), "the price of the model is unknown");
}

#[test]
fn a_judge_with_one_label_is_unfit_and_three_cases_prove_nothing() {
    let place = place_with_runs(20);
    let endpoint = endpoint(|incoming| incoming.verdict("correct"));
    let judge = ["--judge", "gpt-4o", "--json", "report.json"];
    let command = with(&[&OWN_RUNS, &ONE_RUBRIC, &["--cases", "30"], &judge]);
    let shown = run_at(&place, &endpoint, &command).exits_with(0);
    assert!(shown.out.contains("one label only, \"correct\"") && shown.out.contains("not fit"), "{}", shown.out);
    run_at(&place, &endpoint, &with(&[&command, &["--require-fit"]])).exits_with(3);
    let few = with(&[&OWN_RUNS, &ONE_RUBRIC, &["--cases", "3"], &judge]);
    run_at(&place, &endpoint, &few).exits_with(0);
    let found = report(&place);
    let rubric = &found["judges"][0]["rubrics"][0];
    assert_eq!((found["cases"].as_u64(), rubric["fitness"].as_str()), (Some(3), Some("undecided")), "{rubric}");
    assert!(rubric["detection"]["interval"]["high"].as_f64().unwrap() > 0.6, "{rubric}");
}

#[test]
fn two_judges_are_compared_on_the_same_cases() {
    let place = place_with_runs(40);
    let options = with(&[&OWN_RUNS, &ONE_RUBRIC, &["--cases", "40"]]);
    let cases = known_cases(&place, &options);
    let endpoint = endpoint(move |incoming| {
        let is_right = incoming.contains("\"good-model\"") && find_case(&cases, incoming).is_flawed;
        incoming.verdict(if is_right { "incorrect" } else { "correct" })
    });
    let judges = ["--judge", "good-model", "--judge", "blind-model", "--json", "report.json"];
    let shown = run_at(&place, &endpoint, &with(&[&options, &judges])).exits_with(0);
    let found = report(&place);
    assert_eq!(found["judges"].as_array().unwrap().len(), 2);
    let pair = &found["comparison"]["pairs"][0];
    assert_eq!(pair["first"], "openai:good-model");
    let of = |name: &str| {
        let all = pair["dimensions"].as_array().unwrap();
        all.iter().find(|one| one["dimension"].as_str().unwrap().contains(name)).unwrap().clone()
    };
    let (detected, accepted) = (of("flaws detected"), of("originals accepted"));
    assert_eq!((detected["verdict"].as_str(), detected["test"].as_str()), (Some("worse"), Some("mcnemar_mid_p")));
    assert!(detected["adjusted_p_value"].as_f64().unwrap() < 0.001, "{detected}");
    assert_eq!((accepted["effect"].as_f64(), accepted["p_value"].as_f64()), (Some(0.0), Some(1.0)));
    assert!(shown.out.contains("Side by side") && shown.out.contains("McNemar mid-p"), "{}", shown.out);
    let twice = run_at(&place, &endpoint, &with(&[&options, &["--judge", "m", "--judge", "m"]])).exits_with(2);
    assert!(twice.err.contains("given twice"), "{}", twice.err);
}

#[test]
fn probes_find_a_judge_that_takes_the_first_label() {
    let place = place_with_runs(20);
    let endpoint = endpoint(|incoming| {
        let text = String::from_utf8_lossy(incoming.body);
        let is_first = |label: &str| text.contains(&format!("LABEL: {label} or "));
        incoming.verdict(if is_first("incorrect") { "incorrect" } else { "correct" })
    });
    let options = with(&[&OWN_RUNS, &ONE_RUBRIC, &["--cases", "20", "--judge", "gpt-4o", "--json", "report.json"]]);
    let shown = run_at(&place, &endpoint, &with(&[&options, &["--probes"]])).exits_with(0);
    let found = report(&place);
    let probes = found["judges"][0]["probes"].as_array().unwrap();
    let flips: BTreeMap<&str, f64> =
        probes.iter().map(|one| (one["probe"].as_str().unwrap(), one["flips"]["value"].as_f64().unwrap())).collect();
    let expected = ["field_order", "label_order", "model_name", "opaque_tools", "padding", "paraphrase", "tool_order"];
    assert!(flips.keys().copied().eq(expected), "{flips:?}");
    assert!(flips.iter().all(|(name, value)| *value == f64::from(u8::from(*name == "label_order"))), "{flips:?}");
    let order = probes.iter().find(|one| one["probe"] == "label_order").unwrap();
    assert_eq!((order["became_flagged"].as_u64(), order["became_accepted"].as_u64()), (Some(20), Some(0)));
    assert!(contains(&order["flips"], 1.0) && contains(&order["flips_on_originals"], 1.0));
    assert!(shown.out.contains("Bias probes") && shown.out.contains("--repeats 2"), "{}", shown.out);
    run_at(&place, &endpoint, &with(&[&options, &["--probes=padding,tool_order"]])).exits_with(0);
    assert_eq!(report(&place)["judges"][0]["probes"].as_array().unwrap().len(), 2);
    let unknown = run_at(&place, &endpoint, &with(&[&options, &["--probes=colour"]])).exits_with(2);
    assert!(unknown.err.contains("no such probe") && unknown.err.contains("label_order"), "{}", unknown.err);
}

#[test]
fn a_test_that_was_cut_off_goes_on() {
    let place = place_with_runs(20);
    let endpoint = endpoint(|incoming| incoming.verdict("correct"));
    let options = with(&[&OWN_RUNS, &ONE_RUBRIC, &["--cases", "20", "--judge", "gpt-4o", "--json", "report.json"]]);
    let cut = run_at(&place, &endpoint, &with(&[&options, &["--max-calls", "8"]])).exits_with(0);
    assert!(cut.err.contains("limit of 8 calls") && cut.out.contains("incomplete"), "{}\n{}", cut.out, cut.err);
    assert_eq!(endpoint.received(), 8);
    run_at(&place, &endpoint, &options).exits_with(0);
    assert_eq!(endpoint.received(), 20);
    assert_eq!(report(&place)["judges"][0]["rubrics"][0]["cases"].as_u64(), Some(20));
}

#[test]
fn bad_input_is_named() {
    let place = place_with_runs(4);
    place.write(
        "own.md",
        "+++\nname = \"polite\"\napplies_to = \"step\"\n[labels]\ngood = 1\nbad = 0\n+++\ngood or bad? {thought} {tool_call}\n",
    );
    let error = |arguments: &[&str], code: i32, texts: &[&str]| {
        let ran = place.run(&with(&[&["judge", "test"], arguments])).exits_with(code);
        let lines: Vec<&str> = ran.err.lines().filter(|line| line.starts_with("gradus: ")).collect();
        for text in texts {
            assert!(ran.err.contains(text), "{text}: {}", ran.err);
        }
        assert!(!lines.is_empty() && !ran.err.contains("panicked"), "{}", ran.err);
    };
    let offline = ["--judge", "offline"];
    error(&with(&[&offline, &["--rubric", "call_validity"]]), 2, &["\"call_validity\": no planted flaw fits it"]);
    error(&with(&[&offline, &["--rubric", "nonsense"]]), 2, &["there is no rubric \"nonsense\""]);
    error(&with(&[&offline, &["--rubric", "policy"]]), 2, &["no rules for \"policy\""]);
    error(&with(&[&offline, &["--flaw", "typo"]]), 2, &["there is no such flaw", "wrong_tool"]);
    error(
        &with(&[&offline, &["--rubric", "sequence_optimality", "--flaw", "wrong_tool"]]),
        2,
        &["\"sequence_optimality\" need not notice wrong_tool", "repeated_step"],
    );
    error(&with(&[&offline, &["--cases", "0"]]), 2, &["--cases: give at least 1"]);
    error(&with(&[&offline, &["--repeats", "0"]]), 2, &["--repeats: give at least 1"]);
    error(&with(&[&offline, &["--json", "-", "--markdown", "-"]]), 2, &["only one output"]);
    error(&with(&[&offline, &["--right", "missing.jsonl"]]), 2, &["missing.jsonl"]);
    let keyless = place.run(&with(&[&["judge", "test", "--judge", "gpt-4o"]])).exits_with(2);
    assert!(keyless.err.contains("OPENAI_API_KEY"), "{}", keyless.err);
    // A run without a call is nothing to plant a flaw into.
    let mut empty = right_run(0);
    empty["steps"] = json!([]);
    place.write("empty.jsonl", &(empty.to_string() + "\n"));
    let right = ["--no-bench", "--right", "empty.jsonl"];
    error(&with(&[&offline, &right]), 4, &["none of 1 trajectory can be used", "no tool call"]);
    // Nothing listens at port 9.
    let away = ["--judge", "m", "--base-url", "http://127.0.0.1:9/v1", "--retries", "0"];
    error(&with(&[&away, &OWN_RUNS[2..], &ONE_RUBRIC]), 1, &["cannot reach http://127.0.0.1:9"]);
    let own = ["--judge", "m", "--base-url", "http://127.0.0.1:9/v1", "--rubric", "own.md"];
    error(&own, 2, &["rubric \"polite\": no planted flaw fits it", "--flaw"]);
}

#[test]
fn a_rubric_of_ones_own_is_tested_with_named_flaws() {
    let place = place_with_runs(12);
    place.write(
        "own.md",
        "+++\nname = \"polite\"\napplies_to = \"step\"\n[labels]\ngood = 1\nbad = 0\n+++\ngood or bad? {thought} {tool_call} {action_input}\n",
    );
    let endpoint = endpoint(|incoming| incoming.verdict("bad"));
    let options =
        ["--rubric", "own.md", "--flaw", "wrong_tool", "--cases", "8", "--judge", "gpt-4o", "--json", "report.json"];
    run_at(&place, &endpoint, &with(&[&OWN_RUNS, &options])).exits_with(0);
    let rubric = &report(&place)["judges"][0]["rubrics"][0];
    assert_eq!((rubric["rubric"].as_str(), rubric["detection"]["value"].as_f64()), (Some("polite"), Some(1.0)));
    assert_eq!(rubric["false_alarms"]["value"].as_f64(), Some(1.0));
}

/// The benchmark's material: enough for every rubric, the same by seed, and shown before it is paid for.
#[test]
fn the_benchmark_gives_cases_for_every_rubric() {
    let place = Place::new();
    let plan = |rubric: &str, cases: &str, seed: &str, file: &str| {
        let options = ["--rubric", rubric, "--cases", cases, "--dry-run", "--seed", seed, "--write-cases", file];
        let mut command = place.command(&with(&[&["judge", "test", "--judge", "gpt-4o"], &options]));
        Ran::from_output(command.env("OPENAI_API_KEY", "sk-test").output().unwrap()).exits_with(0)
    };
    let shown = plan("all", "40", "1", "all.jsonl");
    assert!(shown.out.contains("520 cases") && shown.out.contains("440 calls, about $"), "{}", shown.out);
    assert!(!place.path(".gradus").exists(), "a dry run writes nothing");
    let mut counts: BTreeMap<String, [usize; 2]> = BTreeMap::new();
    let cases = place.lines("all.jsonl");
    for case in &cases {
        let is_flawed = case["expected"] == "flawed";
        counts.entry(case["evaluator"].as_str().unwrap().to_owned()).or_default()[usize::from(is_flawed)] += 1;
        assert_eq!(case["flaw"].is_null(), !is_flawed);
        assert!(!case.to_string().contains("127.0.0.1"), "addresses would make the same case another one each time");
    }
    assert_eq!(counts.len(), 13, "{counts:?}");
    assert!(counts.values().all(|[right, flawed]| (*right, *flawed) == (20, 20)), "{counts:?}");
    let forms: BTreeSet<&str> = cases.iter().map(|case| case["form"].as_str().unwrap()).collect();
    assert!(forms.into_iter().eq(["native", "react", "without_thoughts"]));
    let flaws: BTreeSet<&str> = cases.iter().filter_map(|case| case["flaw"].as_str()).collect();
    assert_eq!(flaws.len(), 15, "{flaws:?}");
    for (seed, file) in [("1", "one.jsonl"), ("1", "again.jsonl"), ("2", "other.jsonl")] {
        plan("request_to_tool", "8", seed, file);
    }
    assert!(place.read("one.jsonl") == place.read("again.jsonl"), "the same seed gives the same cases");
    assert!(place.read("one.jsonl") != place.read("other.jsonl"), "another seed gives others");
}

/// The offline judge runs without a key, and its figures are reported with their gaps.
#[test]
fn the_offline_judge_can_be_tested() {
    let place = Place::new();
    let options =
        ["--judge", "offline", "--rubric", "sequence_optimality", "--cases", "24", "--probes", "--json", "report.json"];
    let shown = place.run(&with(&[&["judge", "test"], &options])).exits_with(0);
    let found = report(&place);
    let rubric = &found["judges"][0]["rubrics"][0];
    assert_eq!((rubric["cases"].as_u64(), rubric["false_alarms"]["value"].as_f64()), (Some(24), Some(0.0)), "{rubric}");
    let repeated = rubric["flaws"].as_array().unwrap().iter().find(|one| one["flaw"] == "repeated_step").unwrap();
    assert_eq!(repeated["detection"]["value"].as_f64(), Some(1.0));
    // Rules do not read rubrics, so probes that change them are left out.
    let probes: BTreeSet<&str> =
        found["judges"][0]["probes"].as_array().unwrap().iter().map(|one| one["probe"].as_str().unwrap()).collect();
    assert!(!probes.contains("label_order") && probes.contains("tool_order"), "{probes:?}");
    assert!(shown.out.contains("0 calls"), "{}", shown.out);
}
