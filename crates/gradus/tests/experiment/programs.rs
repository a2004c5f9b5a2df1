//! Programs as agents: what they get, what is made of what they do, and how an experiment goes on.

use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use crate::place::{Place, Ran};
use crate::spans::{SEND, agent_trace};
use crate::{document, rate};

const ITEMS: &str = r#"{"id": "refund 7", "request": "Refund order 7.", "expected_tools": ["find_order", "refund"], "must_not_call": ["delete_order"], "answer_contains": "refunded", "tags": ["refund"]}
{"id": "status-8", "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}, {"role": "user", "content": "Where is order 8?"}], "expected_tools": {"mode": "exact", "tools": ["find_order"]}, "tags": ["status"]}
"#;

fn experiment(place: &Place, script: &str, words: &[&str]) -> Ran {
    place.write("items.jsonl", ITEMS);
    place.write("agent.sh", &format!("{SEND}{script}"));
    place.run(&[&["experiment", "items.jsonl", "--agent", "bash agent.sh", "--out", "out"], words].concat())
}

/// The same trace ids in every trial, as of a program with a fixed seed.
fn write_spans(place: &Place) {
    let id = "5".repeat(32);
    let refund = agent_trace(&id, "", "Refund order 7.", &["find_order", "refund"], Some("I refunded it."), &[]);
    let status = agent_trace(&id, "", "Where is order 8?", &["find_order", "find_order"], None, &[]);
    place.write("spans/refund 7.json", &refund.to_string());
    place.write("spans/status-8.json", &status.to_string());
}

#[test]
fn a_program_gets_the_item_and_a_collector() {
    let place = Place::new();
    let script = r#"read -r line
printf '%s|%s|%s|%s|%s|%s|%s' "$line" "$GRADUS_REQUEST" "$GRADUS_ITEM_ID" "$GRADUS_TRIAL" "$GRADUS_MESSAGES" "$OTEL_EXPORTER_OTLP_PROTOCOL" "$SECRET_KEY$PASSED_KEY"
echo "$OTEL_RESOURCE_ATTRIBUTES" >>attributes.txt
"#;
    place.write("items.jsonl", ITEMS);
    place.write("agent.sh", script);
    let words = [
        "experiment",
        "items.jsonl",
        "--agent",
        "bash agent.sh",
        "--out",
        "out",
        "--pass-env",
        "PASSED_*",
        "--no-grading",
    ];
    let mut command = place.command(&words);
    let output = command.env("SECRET_KEY", "secret").env("PASSED_KEY", "passed").output().unwrap();
    Ran::from_output(output).exits_with(0);
    let trials = place.lines("out/trials.jsonl");
    let answer = |at: usize| trials[at]["answer"].as_str().unwrap();
    let messages = r#"[{"role":"user","content":"Refund order 7."}]"#;
    assert_eq!(answer(0), format!("Refund order 7.|Refund order 7.|refund 7|0|{messages}|http/protobuf|passed"));
    assert!(
        answer(1)
            .starts_with("Where is order 8?|Where is order 8?|status-8|0|[{\"role\":\"user\",\"content\":\"Hi\"},")
    );
    let attributes = place.read("attributes.txt");
    assert!(attributes.contains("gradus.item.id=refund%207,gradus.trial=0"), "{attributes}");
}

#[test]
fn trials_are_checked_and_graded() {
    let place = Place::new();
    write_spans(&place);
    let script = "send \"spans/$GRADUS_ITEM_ID.json\"\necho 'It is on its way.'\n";
    let ran = experiment(
        &place,
        script,
        &["--trials", "2", "--json", "out.json", "--junit", "out.xml", "--markdown", "out.md"],
    );
    let ran = ran.exits_with(0);
    let found = document(&place, "out.json");
    assert_eq!(rate(&found, "pass"), (0.5, 4));
    assert_eq!(rate(&found, "answered"), (1.0, 4));
    assert_eq!(rate(&found, "expected_tools"), (0.5, 4));
    assert_eq!(rate(&found, "must_not_call"), (1.0, 2));
    assert_eq!(rate(&found, "answer_contains"), (1.0, 2));
    assert_eq!(rate(&found, "pass^2"), (0.5, 2));
    assert_eq!(rate(&found, "pass@2"), (0.5, 2));
    let tags: Vec<(&str, f64)> = found["experiment"]["by_tag"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tag| (tag["name"].as_str().unwrap(), tag["value"].as_f64().unwrap()))
        .collect();
    assert_eq!(tags, [("refund", 1.0), ("status", 0.0)]);
    assert_eq!(found["summary"]["trajectories"], 4, "each trial is graded, although all have the same trace id");
    let trials = place.lines("out/trials.jsonl");
    let keys: Vec<(&str, u64)> =
        trials.iter().map(|line| (line["item_id"].as_str().unwrap(), line["trial"].as_u64().unwrap())).collect();
    assert_eq!(keys, [("refund 7", 0), ("refund 7", 1), ("status-8", 0), ("status-8", 1)]);
    assert_eq!(trials[0]["answer"], "I refunded it.", "the trace has an answer");
    assert_eq!(trials[2]["answer"], "It is on its way.", "the trace has none");
    let reason = trials[2]["checks"][0]["reason"].as_str().unwrap();
    assert!(reason.starts_with("call 2 (find_order) is one too many;"), "{reason}");
    assert!(ran.out.contains("expected_tools") && ran.out.contains("is one too many"), "{}", ran.out);
    let junit = place.read("out.xml");
    assert!(junit.contains("name=\"status-8 trial 1\" classname=\"gradus.experiment\""), "{junit}");
    // Steps are named by item and trial, too, and not by what was asked.
    assert!(
        junit.contains("name=\"status-8 trial 1: step 2 find_order\" classname=\"gradus.call_validity\""),
        "{junit}"
    );
    assert!(!junit.contains("name=\"Where is order 8?"), "{junit}");
    assert!(place.read("out.md").contains("| pass | 50.0 %"), "{}", place.read("out.md"));
    // The folder is a source, and the report can be made again.
    let again = place.run(&["eval", "out", "--judge", "offline", "--json", "-"]).exits_with(0);
    let again: Json = serde_json::from_str(&again.out).unwrap();
    assert_eq!(again["summary"]["trajectories"], 4);
    let runs = place.run(&["runs", "--json"]).exits_with(0).out;
    let runs: Json = serde_json::from_str(&runs).unwrap();
    let first = runs[1]["run_id"].as_str().unwrap();
    let report = place.run(&["report", first, "--gate", "pass >= 0.1"]).exits_with(0);
    assert!(report.out.contains("expected_tools"), "{}", report.out);
}

#[test]
fn gates_are_about_checks() {
    let place = Place::new();
    write_spans(&place);
    let script = "send \"spans/$GRADUS_ITEM_ID.json\"\n";
    experiment(&place, script, &["--no-grading", "--gate", "pass >= 0.99"]).exits_with(3);
    experiment(&place, script, &["--no-grading", "--gate", "answered >= 0.1"]).exits_with(0);
    let ran = experiment(&place, script, &["--gate", "pass >= 85"]).exits_with(2);
    assert!(ran.err.contains("0.85 or 85%"), "{}", ran.err);
    let ran = experiment(&place, script, &["--gate", "passed >= 1"]).exits_with(2);
    assert!(ran.err.contains("passed"), "{}", ran.err);
}

#[test]
fn gates_can_select_a_tag_and_be_relative_to_it() {
    let place = Place::new();
    write_spans(&place);
    let script = "send \"spans/$GRADUS_ITEM_ID.json\"\n";
    let run = |words: &[&str], code: i32| experiment(&place, script, words).exits_with(code);
    run(&["--save-baseline", "one.baseline", "--name", "one"], 0);
    run(&["--gate", "pass{tag=refund} >= 1", "--gate", "steps{tag=refund} <= 2"], 0);
    run(&["--gate", "pass{tag=status} >= 0.1"], 3);
    run(&["--gate", "steps{tag=status} <= 1.5"], 3);
    for baseline in ["one.baseline", "one"] {
        let relative = |gate: &str, code: i32| run(&["--baseline", baseline, "--gate", gate], code);
        for gate in ["pass >= baseline", "pass{tag=refund} >= baseline - 2%", "steps{tag=status} <= baseline + 10%"] {
            relative(gate, 0);
        }
        let ran = relative("steps{tag=status} <= baseline - 10%", 3);
        assert!(ran.out.contains("the bar is 1.8000"), "{}", ran.out);
    }
    let ran = run(&["--gate", "pass{tag=refnud} >= 1"], 2);
    assert!(ran.err.contains("no item has the tag \"refnud\"; there are refund, status"), "{}", ran.err);
    let ran = run(&["--no-grading", "--gate", "thought_to_tool >= 0.5"], 2);
    assert!(ran.err.contains("there is no metric \"thought_to_tool\""), "{}", ran.err);
}

#[test]
fn an_agent_that_is_called_belongs_to_the_trial_of_its_caller() {
    let place = Place::new();
    // The second tool of the agent is another agent: it asks a model, which asks for one more tool.
    let id = "7".repeat(32);
    let mut outer = agent_trace(&id, "", "Refund order 7.", &["find_order", "refund"], Some("I refunded it."), &[]);
    let all = outer["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array_mut().unwrap();
    let reply = "llm.output_messages.0.message";
    let (name, arguments) = ("tool_calls.0.tool_call.function.name", "tool_calls.0.tool_call.function.arguments");
    let model = [
        ("openinference.span.kind".to_owned(), "LLM"),
        ("llm.input_messages.0.message.role".to_owned(), "user"),
        ("llm.input_messages.0.message.content".to_owned(), "Pay 12 back."),
        (format!("{reply}.role"), "assistant"),
        (format!("{reply}.{name}"), "pay"),
        (format!("{reply}.{arguments}"), "{}"),
    ];
    let mut model_call = all[2].clone();
    let attributes = model.iter().map(|(key, value)| json!({"key": key, "value": {"stringValue": value}}));
    model_call["attributes"] = attributes.collect();
    let mut inner_tool: Json = serde_json::from_str(&all[2].to_string().replace("\"refund\"", "\"pay\"")).unwrap();
    for (span, span_id) in [(&mut model_call, "00000000000000c0"), (&mut inner_tool, "00000000000000c1")] {
        (span["spanId"], span["parentSpanId"]) = (span_id.into(), "00000000000000b1".into());
    }
    all.extend([model_call, inner_tool]);
    place.write("spans/refund 7.json", &outer.to_string());
    place.write(
        "spans/status-8.json",
        &agent_trace(&id, "", "Where?", &["find_order"], Some("There."), &[]).to_string(),
    );
    let script = "send \"spans/$GRADUS_ITEM_ID.json\"\n";
    experiment(&place, script, &["--trials", "2", "--name", "one", "--save-baseline", "one.baseline"]).exits_with(0);
    let trajectories = place.lines("out/trajectories.jsonl");
    assert_eq!(trajectories.len(), 6, "the called agent has a trajectory of its own in both trials");
    assert!(trajectories.iter().any(|one| one["query"] == "Pay 12 back." && !one["parent_trajectory_id"].is_null()));
    let compared = place.run(&["compare", "one", "one.baseline", "--json", "-"]).exits_with(0);
    let compared: Json = serde_json::from_str(&compared.out).unwrap();
    let first = &compared["versions"][0];
    assert_eq!((&first["tasks"], &first["runs"]), (&Json::from(2), &Json::from(4)), "two items, two trials each");
    let runs = place.run(&["runs", "--json"]).exits_with(0).out;
    let runs: Json = serde_json::from_str(&runs).unwrap();
    // Three steps with the one of the called agent, and one.
    assert_eq!(runs[0]["metrics"]["steps"], 2.0, "{runs}");
    let gate = |gate: &str, code: i32| place.run(&["report", "one", "--gate", gate]).exits_with(code);
    gate("steps{tag=refund} <= 3", 0);
    gate("steps{tag=refund} >= 3", 0);
}

#[test]
fn without_spans_answers_are_checked() {
    let place = Place::new();
    let ran = experiment(&place, "echo 'I refunded order 7'\n", &["--json", "out.json"]).exits_with(0);
    let trials = place.lines("out/trials.jsonl");
    // The tool check of the first item could not be made, so nobody knows whether its trial is right.
    assert_eq!((&trials[0]["passed"], &trials[0]["has_spans"]), (&Json::Bool(false), &Json::Bool(false)));
    assert_eq!(trials[0]["checks"][0]["outcome"], "not_checked");
    let found = document(&place, "out.json");
    assert_eq!(rate(&found, "answer_contains"), (1.0, 1));
    assert_eq!(found["summary"]["trajectories"], 2, "request and answer are graded");
    // Standard output is taken by the document; the note goes with the results for people.
    assert!(!ran.out.is_empty());
    let ran = place.run(&["report"]).exits_with(0);
    assert!(ran.out.contains("2 trials sent no spans, so tool calls could not be checked"), "{}", ran.out);
}

#[test]
fn the_reference_of_an_item_goes_with_its_trajectory() {
    let place = Place::new();
    place.write("items.jsonl", "{\"id\": \"a\", \"request\": \"When?\", \"reference\": \"On 3 May.\"}\n");
    let words = ["experiment", "items.jsonl", "--agent", "echo on the 3rd", "--out", "out"];
    place.run(&words).exits_with(0);
    assert_eq!(place.lines("out/trajectories.jsonl")[0]["reference_answer"], "On 3 May.");
    let runs: Json = serde_json::from_str(&place.run(&["runs", "--json"]).exits_with(0).out).unwrap();
    let stored = format!(".gradus/runs/{}/trajectories.jsonl", runs[0]["run_id"].as_str().unwrap());
    assert_eq!(place.lines(&stored)[0]["reference_answer"], "On 3 May.", "it is read from the file again");
}

#[test]
fn expectations_may_change_without_another_trial() {
    let place = Place::new();
    let script = "echo run >>runs.txt\necho 'I refunded order 7'\n";
    experiment(&place, script, &["--no-grading"]).exits_with(0);
    assert_eq!(place.read("runs.txt").lines().count(), 2);
    place.write("items.jsonl", &ITEMS.replace("\"refunded\"", "\"something else\""));
    let words = ["experiment", "items.jsonl", "--agent", "bash agent.sh", "--out", "out", "--no-grading"];
    let ran = place.run(&words).exits_with(0);
    assert!(ran.err.contains("2 trials are done, 0 left"), "{}", ran.err);
    assert_eq!(place.read("runs.txt").lines().count(), 2);
    assert_eq!(place.lines("out/trials.jsonl")[0]["passed"], false);
    // More trials are added; another request or agent is another experiment.
    place.run(&[&words[..], &["--trials", "2"]].concat()).exits_with(0);
    assert_eq!(place.read("runs.txt").lines().count(), 4);
    place.write("items.jsonl", &ITEMS.replace("Refund order 7.", "Refund order 9."));
    let ran = place.run(&words).exits_with(2);
    assert!(ran.err.contains(r#"the request of item "refund 7" has changed"#), "{}", ran.err);
    place.run(&[&words[..], &["--fresh"]].concat()).exits_with(0);
    assert_eq!(place.read("runs.txt").lines().count(), 6);
}

#[test]
fn finished_trials_survive_kill_9() {
    let place = Place::new();
    let lines: Vec<String> = (0..6).map(|at| format!("{{\"id\": \"i{at}\", \"request\": \"r{at}\"}}")).collect();
    place.write("items.jsonl", &lines.join("\n"));
    // Later trials wait until a file is there, so that the kill hits a trial under way.
    place.write(
        "agent.sh",
        "echo $GRADUS_ITEM_ID >>runs.txt\nif [ $(wc -l <runs.txt) -gt 3 ]; then until [ -e go ]; do sleep 0.05; done; fi\necho ok\n",
    );
    let words =
        ["experiment", "items.jsonl", "--agent", "bash agent.sh", "--jobs", "1", "--no-grading", "--trials", "1"];
    let mut child = place.command(&words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let begun = Instant::now();
    let started = || std::fs::read_to_string(place.path("runs.txt")).unwrap_or_default().lines().count();
    while started() < 4 {
        assert!(begun.elapsed() < Duration::from_secs(60), "the fourth trial does not start");
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    place.write("go", "");
    let ran = place.run(&words).exits_with(0);
    assert!(ran.err.contains("3 trials are done, 3 left"), "{}", ran.err);
    let runs = place.read("runs.txt");
    let runs: Vec<&str> = runs.lines().collect();
    assert_eq!(runs, ["i0", "i1", "i2", "i3", "i3", "i4", "i5"], "only the trial that was cut off is run again");
    // A finished experiment is not continued: the same command begins another one.
    place.run(&words).exits_with(0);
    assert_eq!(place.read("runs.txt").lines().count(), 13);
    let folders = std::fs::read_dir(place.path(".gradus/experiments")).unwrap().count();
    assert_eq!(folders, 2);
}

#[test]
fn grading_that_failed_is_continued_without_trials() {
    let place = Place::new();
    place.write("items.jsonl", ITEMS);
    place.write("agent.sh", "echo run >>runs.txt\necho 'I refunded order 7'\n");
    let words = ["experiment", "items.jsonl", "--agent", "bash agent.sh"];
    // Nothing listens on port 1.
    let away = [
        "--judge",
        "openai:m",
        "--base-url",
        "http://127.0.0.1:1/v1",
        "--retries",
        "0",
        "--evaluators",
        "task_completion",
    ];
    place.run(&[&words[..], &away].concat()).exits_with(1);
    assert_eq!(place.read("runs.txt").lines().count(), 2);
    let ran = place.run(&words).exits_with(0);
    assert!(ran.err.contains("2 trials are done, 0 left"), "{}", ran.err);
    assert_eq!(place.read("runs.txt").lines().count(), 2);
}

#[test]
fn setup_and_teardown_stand_around_all_trials() {
    let place = Place::new();
    let setup = "echo setup >>order.txt; (sleep 600 & echo $! >background.pid)";
    let words = ["--setup", setup, "--teardown", "echo teardown >>order.txt", "--no-grading", "--jobs", "1"];
    experiment(&place, "kill -0 $(cat background.pid) && echo trial >>order.txt\n", &words).exits_with(0);
    assert_eq!(place.read("order.txt"), "setup\ntrial\ntrial\nteardown\n");
    let pid = place.read("background.pid");
    let begun = Instant::now();
    // A process that was killed and not yet reaped has no command line.
    let is_alive = || std::fs::read(format!("/proc/{}/cmdline", pid.trim())).is_ok_and(|text| !text.is_empty());
    while is_alive() {
        assert!(begun.elapsed() < Duration::from_secs(30), "what setup left behind is ended");
        std::thread::sleep(Duration::from_millis(20));
    }
    let setup = ["--setup", "echo no database >&2; exit 4", "--teardown", "touch torn_down"];
    let ran = experiment(&place, "true\n", &[&["--fresh", "--no-grading"], &setup[..]].concat());
    let ran = ran.exits_with(2);
    assert!(place.path("torn_down").exists(), "a setup that failed may have begun something");
    assert!(
        ran.err.contains("--setup failed: echo no database >&2; exit 4: it ended with exit status: 4: no database"),
        "{}",
        ran.err
    );
}

#[test]
fn an_experiment_in_use_or_of_others_is_not_touched() {
    let place = Place::new();
    place.write("out/mine.txt", "mine");
    let ran = experiment(&place, "true\n", &["--no-grading"]).exits_with(2);
    assert!(ran.err.contains("it has files and no experiment; hint:"), "{}", ran.err);
    assert_eq!(place.read("out/mine.txt"), "mine");
}
