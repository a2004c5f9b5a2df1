//! `gradus dataset`.

use serde_json::Value as Json;

use crate::place::Place;
use crate::spans::agent_trace;

const CAPTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/captures/langgraph-react");

fn write_traces(place: &Place) {
    for (at, (request, tools, answer)) in [
        ("Refund order 7", &["find_order", "refund"][..], Some("Refunded.")),
        ("Where is order 8?", &["find_order"], Some("Shipped.")),
        ("where is  order 8", &[], None),
    ]
    .into_iter()
    .enumerate()
    {
        let trace = agent_trace(&format!("{:032x}", at + 1), "", request, tools, answer, &[("session.id", "s")]);
        place.write(&format!("traces/{at}.json"), &trace.to_string());
    }
}

fn requests(lines: &[Json]) -> Vec<&str> {
    lines.iter().map(|line| line["request"].as_str().or(line["messages"][0]["content"].as_str()).unwrap()).collect()
}

#[test]
fn traces_become_a_dataset() {
    let place = Place::new();
    write_traces(&place);
    let ran = place.run(&["dataset", "create", "items.jsonl", "traces/"]).exits_with(0);
    assert!(ran.err.contains("3 items written to items.jsonl"), "{}", ran.err);
    let lines = place.lines("items.jsonl");
    assert!(lines.iter().all(|line| line.get("expected_tools").is_none() && line.get("reference").is_none()));
    assert!(
        lines.iter().all(|line| line["tags"].as_array().unwrap().iter().any(|tag| tag == "session:s")),
        "{lines:?}"
    );
    place.run(&["dataset", "check", "items.jsonl"]).exits_with(0);
    // What exists is not replaced without a word.
    let ran = place.run(&["dataset", "create", "items.jsonl", "traces/"]).exits_with(2);
    assert!(ran.err.contains("the file exists; hint: --overwrite"), "{}", ran.err);
    let ran = place.run(&["dataset", "create", "items.jsonl", "traces/", "--append"]).exits_with(0);
    assert!(ran.err.contains("3 trajectories already in the dataset"), "{}", ran.err);
    assert_eq!(place.lines("items.jsonl").len(), 3);
}

#[test]
fn expectations_are_recorded_on_demand() {
    let place = Place::new();
    write_traces(&place);
    let words =
        ["dataset", "create", "-", "traces/", "--expect-tools=exact", "--expect-answer", "--where", "tool = refund"];
    let ran = place.run(&words).exits_with(0);
    let item: Json = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(item["expected_tools"], serde_json::json!({"mode": "exact", "tools": ["find_order", "refund"]}));
    assert_eq!(item["reference"], "Refunded.");
    assert!(ran.err.contains("2 trajectories not what --where asks for"), "{}", ran.err);
}

#[test]
fn conditions_choose_trajectories() {
    let place = Place::new();
    write_traces(&place);
    for (conditions, expected) in [
        (&["text ~ order 8"][..], 2),
        (&["status = unanswered"], 1),
        (&["tool != find_order"], 1),
        (&["tool = find_order", "text ~ refund"], 1),
        (&["span_kind == 'TOOL' and name == 'one'"], 2),
        (&["span_kind == 'TOOL'", "tool = refund"], 1),
    ] {
        let options: Vec<&str> = conditions.iter().flat_map(|condition| ["--where", condition]).collect();
        let ran = place.run(&[&["dataset", "create", "-", "traces/"], &options[..]].concat()).exits_with(0);
        assert_eq!(ran.out.lines().count(), expected, "{conditions:?}: {}", ran.err);
    }
    let ran = place.run(&["dataset", "create", "-", "traces/", "--where", "tool = nothing"]).exits_with(4);
    assert!(ran.err.contains("no items"), "{}", ran.err);
    let ran = place.run(&["dataset", "create", "-", "traces/", "--where", "status = fine"]).exits_with(2);
    assert!(ran.err.contains("hint: answered, unanswered or error"), "{}", ran.err);
}

#[test]
fn verdicts_of_a_run_choose_trajectories() {
    let place = Place::new();
    let words =
        ["eval", CAPTURE, "--judge", "offline", "--evaluators", "outcome,call_validity", "--jsonl", "out.jsonl"];
    place.run(&words).exits_with(0);
    let verdicts = place.lines("out.jsonl");
    let scored: Vec<&Json> = verdicts.iter().filter(|line| line["evaluator"] == "outcome").collect();
    let label = scored.iter().find_map(|line| line["label"].as_str()).expect("a label");
    let expected = scored.iter().filter(|line| line["label"] == label).count();
    let condition = format!("outcome = {label}");
    let ran = place.run(&["dataset", "create", "-", "--run", "latest", "--where", &condition]).exits_with(0);
    let found: Vec<Json> = ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(!found.is_empty() && found.len() <= expected, "{label}: {} of {expected}; {}", found.len(), ran.err);
    let is_labelled =
        |item: &Json| scored.iter().any(|line| line["trajectory_id"] == item["id"] && line["label"] == label);
    assert!(found.iter().all(is_labelled), "{label}");
    let ran = place.run(&["dataset", "create", "-", "--run", "latest", "--where", "outcom = x"]).exits_with(2);
    assert!(ran.err.contains("hint: it has outcome, call_validity"), "{}", ran.err);
    let ran = place.run(&["dataset", "create", "-", "--run", "1999"]).exits_with(2);
    assert!(ran.err.contains("there is no such run; hint: `gradus runs`"), "{}", ran.err);
}

#[test]
fn labels_of_people_choose_trajectories() {
    let place = Place::new();
    write_traces(&place);
    let ran = place.run(&["dataset", "create", "-", "traces/"]).exits_with(0);
    let ids: Vec<String> = ran
        .out
        .lines()
        .map(|line| serde_json::from_str::<Json>(line).unwrap()["id"].as_str().unwrap().to_owned())
        .collect();
    let label = |id: &str, step: u32, label: &str| serde_json::json!({"trajectory_id": id, "step_index": step, "evaluator": "thought_to_tool", "label": label});
    place.write(
        "labels.jsonl",
        &[label(&ids[0], 0, "incorrect"), label(&ids[0], 1, "correct"), label(&ids[1], 0, "correct")]
            .map(|line| line.to_string())
            .join("\n"),
    );
    for (condition, expected) in [
        ("label = incorrect", 1),
        ("label = correct", 2),
        ("label.thought_to_tool = incorrect", 1),
        ("label != incorrect", 2),
    ] {
        let words = ["dataset", "create", "-", "traces/", "--labels", "labels.jsonl", "--where", condition];
        let ran = place.run(&words).exits_with(0);
        assert_eq!(ran.out.lines().count(), expected, "{condition}: {}", ran.err);
    }
    // Of annotations, the span says what they are about; labels of models are none.
    // The second call; only the first trace has one.
    let span = "00000000000000b1";
    let annotation = |kind: &str| serde_json::json!({"span_id": span, "name": "Tool choice", "annotator_kind": kind, "result": {"label": "bad"}});
    for (kind, code) in [("HUMAN", 0), ("LLM", 4)] {
        place.write("annotations.jsonl", &annotation(kind).to_string());
        let condition = "label.tool choice = bad";
        let words = ["dataset", "create", "-", "traces/", "--labels", "annotations.jsonl", "--where", condition];
        let ran = place.run(&words).exits_with(code);
        assert_eq!(ran.out.lines().count(), usize::from(code == 0), "{kind}: {}", ran.err);
    }
    place.write("others.jsonl", &label("another", 0, "incorrect").to_string());
    let words = ["dataset", "create", "-", "traces/", "--labels", "others.jsonl", "--where", "label = incorrect"];
    let ran = place.run(&words).exits_with(4);
    assert!(ran.err.contains("no label is about them; hint: labels are joined by trajectory_id"), "{}", ran.err);
    let ran = place.run(&["dataset", "create", "-", "traces/", "--where", "label = incorrect"]).exits_with(4);
    assert!(ran.err.contains("none has a label; hint: name a file of labels with --labels"), "{}", ran.err);
    let ran = place.run(&["dataset", "create", "-", "traces/", "--labels", "labels.jsonl"]).exits_with(2);
    assert!(ran.err.contains("no condition asks for them; hint: --where 'label = incorrect'"), "{}", ran.err);
    place.write("broken.jsonl", "{\"label\": \"incorrect\"}");
    let words = ["dataset", "create", "-", "traces/", "--labels", "broken.jsonl", "--where", "label = incorrect"];
    let ran = place.run(&words).exits_with(2);
    assert!(ran.err.contains("labels refused: broken.jsonl:1: no label: it has no trajectory_id"), "{}", ran.err);
}

#[test]
fn parts_stay_when_items_are_added() {
    let place = Place::new();
    let write = |count: usize| {
        let lines: Vec<String> =
            (0..count).map(|at| format!("{{\"id\": \"item-{at}\", \"request\": \"r{at}\"}}")).collect();
        place.write("items.jsonl", &lines.join("\n"));
    };
    let ids = |name: &str| -> Vec<String> {
        place.lines(name).iter().map(|line| line["id"].as_str().unwrap().to_owned()).collect()
    };
    write(60);
    place.run(&["dataset", "split", "items.jsonl"]).exits_with(0);
    let (train, test) = (ids("items.train.jsonl"), ids("items.test.jsonl"));
    assert_eq!(train.len() + test.len(), 60);
    assert!(!train.is_empty() && !test.is_empty());
    write(90);
    let ran = place.run(&["dataset", "split", "items.jsonl"]).exits_with(2);
    assert!(ran.err.contains("the file exists"), "{}", ran.err);
    place.run(&["dataset", "split", "items.jsonl", "--overwrite"]).exits_with(0);
    let is_there = |part: &[String], all: &[String]| part.iter().all(|id| all.contains(id));
    assert!(is_there(&train, &ids("items.train.jsonl")) && is_there(&test, &ids("items.test.jsonl")));
    let words = ["dataset", "split", "items.jsonl", "--part", "a=1", "--part", "a=2", "--out-dir", "parts"];
    place.run(&words).exits_with(2);
    place.run(&["dataset", "split", "items.jsonl", "--part", "a"]).exits_with(2);
}

#[test]
fn merged_items_are_reported() {
    let place = Place::new();
    let lines = r#"{"id": "a", "request": "Where is order 7?", "answer_contains": "shipped"}
{"id": "b", "request": "where is order 7", "tags": ["new"]}
{"id": "c", "request": "Refund order 7."}
"#;
    place.write("items.jsonl", lines);
    let ran = place.run(&["dataset", "dedupe", "items.jsonl", "--output", "less.jsonl"]).exits_with(0);
    assert!(
        ran.err.contains(r#"merged "b" into "a"; answer_contains of the removed item differed and is lost"#),
        "{}",
        ran.err
    );
    assert!(ran.err.contains("2 items kept, 1 item merged, written to less.jsonl"), "{}", ran.err);
    assert_eq!(requests(&place.lines("less.jsonl")), ["Where is order 7?", "Refund order 7."]);
    assert_eq!(place.read("items.jsonl"), lines);
    place.run(&["dataset", "dedupe", "items.jsonl", "--in-place"]).exits_with(0);
    assert_eq!(place.read("items.jsonl"), place.read("less.jsonl"));
}

#[test]
fn failure_groups_of_a_run_become_a_dataset() {
    let place = Place::new();
    write_traces(&place);
    let unanswered = agent_trace(&"9".repeat(32), "", "Cancel order 9", &["find_order"], None, &[]);
    place.write("traces/unanswered.json", &unanswered.to_string());
    let words = ["eval", "traces/", "--judge", "offline", "-e", "outcome", "--name", "nightly", "--json", "out.json"];
    place.run(&words).exits_with(0);
    let document: Json = serde_json::from_str(&place.read("out.json")).unwrap();
    let group = &document["summary"]["failure_groups"][0];
    let key = group["key"].as_str().unwrap();
    assert_eq!((&group["evaluator"], &group["label"]), (&Json::from("outcome"), &Json::from("no_answer")), "{group}");
    for wanted in [key, &key[..10], "outcome no_answer", "NO_ANSWER"] {
        let words = ["dataset", "create", "-", "--run", "nightly", "--failure-group", wanted];
        let ran = place.run(&words).exits_with(0);
        let item: Json = serde_json::from_str(&ran.out).unwrap();
        assert_eq!(requests(std::slice::from_ref(&item)), ["Cancel order 9"], "{wanted}");
        assert_eq!(item["metadata"]["failure_groups"], serde_json::json!([key]));
        assert!(ran.err.contains("3 trajectories without a wrong verdict in this failure group"), "{}", ran.err);
    }
    let none = ["dataset", "create", "-", "--run", "nightly", "--failure-group", "0000000000000000"];
    place.run(&none).exits_with(4);
    let ran = place.run(&["dataset", "create", "-", "--run", "weekly"]).exits_with(2);
    assert!(ran.err.contains("run not found: \"weekly\": there is no such run"), "{}", ran.err);
    place.run(&["dataset", "create", "-", "traces/", "--failure-group", key]).exits_with(2);
}

#[test]
fn every_bad_line_is_reported_and_good_ones_are_counted() {
    let place = Place::new();
    let lines = r#"{"id": "a", "request": "r", "tags": ["x"], "must_not_call": ["t"]}
{"id": "a", "request": "s"}
{"id": "b", "requst": "s"}
"#;
    place.write("items.jsonl", lines);
    let ran = place.run(&["dataset", "check", "items.jsonl"]).exits_with(2);
    assert!(ran.err.contains(r#"items.jsonl:2: the id "a" is already used in line 1"#), "{}", ran.err);
    assert!(ran.err.contains(r#"items.jsonl:3: unknown field "requst"; hint: did you mean "request"?"#), "{}", ran.err);
    assert!(ran.out.contains("items.jsonl: 1 item, 1 with checks, 2 lines refused"), "{}", ran.out);
    let ran = place.run(&["experiment", "items.jsonl", "--agent", "true"]).exits_with(2);
    assert!(ran.err.contains("dataset line refused: items.jsonl:2:"), "{}", ran.err);
    place.write("empty.jsonl", "\n");
    let ran = place.run(&["dataset", "check", "empty.jsonl"]).exits_with(2);
    assert_eq!(ran.out, "empty.jsonl: 0 items, 0 with checks\n");
    // A list of fields is no item, and neither is a file that is one JSON array.
    place.write("array.jsonl", "[\"a\", \"Refund order 7.\"]\n[\n{\"id\": \"b\", \"request\"\n");
    let ran = place.run(&["dataset", "check", "array.jsonl"]).exits_with(2);
    assert!(ran.err.contains("array.jsonl:1: an array, not an object; hint: write exactly one"), "{}", ran.err);
    assert!(ran.err.contains("array.jsonl:3: not JSON: EOF while parsing an object at column 21;"), "{}", ran.err);
    assert!(ran.out.contains("0 items, 0 with checks, 3 lines refused"), "{}", ran.out);
}
