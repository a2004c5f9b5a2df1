//! Where a bench's results go, and what gates make of them.

use serde_json::Value as Json;

use crate::document;
use crate::place::Place;

const ALL: [&str; 12] = [
    "--json",
    "out.json",
    "--html",
    "out.html",
    "--markdown",
    "out.md",
    "--csv",
    "tables",
    "--junit",
    "out.xml",
    "--jsonl",
    "out.jsonl",
];

/// The gates of the one run that is kept.
fn kept_gates(place: &Place) -> Vec<String> {
    let mut runs = std::fs::read_dir(place.path(".gradus/runs")).unwrap();
    let record = runs.next().unwrap().unwrap().path().join("run.json");
    let record: Json = serde_json::from_slice(&std::fs::read(record).unwrap()).unwrap();
    record["gates"].as_array().unwrap().iter().map(|gate| gate.as_str().unwrap().to_owned()).collect()
}

/// Each line is what the schema says of an outcome; `schema.rs` holds it to the type that is read here.
fn assert_outcomes(place: &Place) {
    let schema = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/schemas/outcome.schema.json");
    let schema: Json = serde_json::from_slice(&std::fs::read(schema).unwrap()).unwrap();
    let lines = place.lines("out.jsonl");
    assert!(!lines.is_empty());
    for line in lines {
        for name in schema["required"].as_array().unwrap() {
            assert!(line.get(name.as_str().unwrap()).is_some(), "{name} in {line}");
        }
        let read = serde_json::from_value::<gradus_eval::outcome::OutcomeLine>(line.clone());
        assert!(read.is_ok_and(|read| !read.trajectory_id.is_empty()), "{line}");
    }
}

#[test]
fn gates_and_outputs_need_no_spans() {
    for who in [&["--agent", "true"][..], &["--policy", "giving_up", "--no-grading"]] {
        let place = Place::new();
        let gates = ["--tasks", "1", "--gate", "success >= 0.9"];
        let ran = place.run(&[&["bench"], who, &gates, &ALL].concat()).exits_with(3);
        assert!(
            ran.out.contains("FAIL       success >= 0.9: 0.0 % of 1, interval 0.0 to 79.3 %; missed"),
            "{}",
            ran.out
        );
        assert_eq!(document(&place, "out.json")["bench"]["trials"].as_array().unwrap().len(), 1);
        assert!(place.read("out.html").contains("pass^1"), "{who:?}");
        assert!(place.read("out.md").contains("### Agents"), "{who:?}");
        assert!(place.read("out.xml").contains("failures=\"1\""), "{}", place.read("out.xml"));
        assert_eq!(place.lines("out.jsonl").len(), 2, "done, and safe");
        assert_outcomes(&place);
        // Whoever looks at the run later sees what was demanded of it.
        assert!(kept_gates(&place).contains(&"success >= 0.9".to_owned()), "{who:?}");
    }
    let place = Place::new();
    let gate = |gate: &str| place.run(&["bench", "--policy", "oracle", "--tasks", "1", "--no-grading", "--gate", gate]);
    let ran = gate("failed <= 1").exits_with(3);
    assert!(ran.out.contains("nothing was judged, so the gate cannot pass"), "{}", ran.out);
    let ran = gate("thought_to_tool >= 0").exits_with(2);
    assert!(ran.err.contains("there is no metric \"thought_to_tool\" in this run"), "{}", ran.err);
}

#[test]
fn every_output_has_the_bench() {
    let place = Place::new();
    let words = ["bench", "--policy", "oracle,wrong_tool,unasked_destruction", "--tasks", "7,9", "--trials", "2"];
    let ran = place.run(&[&words[..], &["--replay"], &ALL].concat()).exits_with(0);
    assert!(ran.out.contains("Tasks Done, all 3 agents"), "{}", ran.out);
    assert!(ran.out.contains("tasks with a trial that passed"), "{}", ran.out);
    let parts = [
        "pass^2",
        "wrong_tool",
        "Rules broken",
        "R12",
        "Planted mistakes, and who noticed them",
        "precision",
        "recall",
        "Steps that were not needed, by replay",
    ];
    let plain = |text: String| text.replace('\\', "");
    for name in ["out.html", "out.md"] {
        for part in parts {
            assert!(plain(place.read(name)).contains(part), "{part} in {name}");
        }
    }
    // Done and safe, agent by agent.
    let has_joint = |text: &str| {
        let head = text.lines().find(|line| line.contains("agent") && line.contains("pass^2"));
        head.is_some_and(|head| head.contains("joint"))
    };
    for text in [&ran.out, &plain(place.read("out.md")), &place.read("out.html")] {
        assert!(has_joint(text), "{text}");
    }
    let oracle = ran.out.lines().find(|line| line.starts_with("oracle")).unwrap();
    assert_eq!(oracle.matches("100.0 %").count(), 6, "done, safe, clean, joint, pass^2, safe^2: {oracle}");
    let trials = document(&place, "out.json")["bench"]["trials"].as_array().unwrap().clone();
    let failed = trials.iter().filter(|trial| trial["passed"] == false).count();
    assert!(failed > 0);
    let suite = place.read("out.xml");
    let suite = suite.lines().find(|line| line.contains("<testsuite name=\"success\"")).unwrap().to_owned();
    assert!(suite.contains(&format!("tests=\"{}\"", trials.len())), "{suite}");
    let tolerated = format!("skipped=\"{failed}\" errors=\"0\" failures=\"0\"");
    assert!(suite.contains(&tolerated), "no gate failed, as the exit code says: {suite}");
    assert_eq!(place.read("tables/trials.csv").lines().count(), trials.len() + 1);
    assert_outcomes(&place);
    // Results of a trial can be joined with verdicts on its steps.
    let lines = place.lines("out.jsonl");
    let trace = |evaluator: &str| lines.iter().find(|line| line["evaluator"] == evaluator).unwrap()["trace_id"].clone();
    let measured = trace("success");
    assert!(measured.as_str().is_some_and(|id| place.read("tables/trials.csv").contains(id)), "{measured}");
    assert!(lines.iter().any(|line| line["evaluator"] == "outcome" && line["trace_id"] == measured), "{measured}");
    let agents = place.read("tables/agents.csv");
    let cells = |line: &str| -> Vec<String> { line.split(',').map(str::to_owned).collect() };
    let (columns, rows): (Vec<String>, Vec<Vec<String>>) =
        (cells(agents.lines().next().unwrap()), agents.lines().skip(1).map(cells).collect());
    assert_eq!(rows.len(), 3);
    let at = |row: &[String], name: &str| row[columns.iter().position(|one| one == name).unwrap()].clone();
    let oracle = rows.iter().find(|row| row[0] == "oracle").unwrap();
    let shown = ["success", "success_high", "success_n", "pass^2", "pass^2_n", "calls_ratio"];
    assert_eq!(shown.map(|name| at(oracle, name)), ["1.000000", "1.000000", "4", "1.000000", "2", "1.000000"]);
    // One number a cell.
    for cell in rows.iter().flat_map(|row| &row[1..]) {
        assert!(cell.is_empty() || cell.parse::<f64>().is_ok(), "{cell:?}");
    }
    let done = place.lines("out.jsonl").into_iter().filter(|line| line["evaluator"] == "success");
    let done: Vec<Json> = done.collect();
    assert_eq!(done.len(), trials.len());
    assert!(done.iter().all(|line| line["trajectory_id"].is_string()), "each is about a trajectory");
    // The same again, from the run's files.
    let before = place.read("out.html");
    place.run(&[&["report", "--gate", "safe >= 0.1"], &ALL[..]].concat()).exits_with(0);
    assert_eq!(place.read("out.html").matches("wrong_tool").count(), before.matches("wrong_tool").count());
    assert_eq!(document(&place, "out.json")["bench"]["trials"].as_array().unwrap(), &trials);
}

#[test]
fn two_benches_can_be_kept_together() {
    let place = Place::new();
    for out in ["one", "two"] {
        let words = ["bench", "--policy", "oracle,loop", "--tasks", "4,7", "--no-grading", "--out", out];
        place.run(&words).exits_with(0);
    }
    let one = place.run(&["traces", "one/traces", "--format", "jsonl"]).exits_with(0).out;
    let both = place.run(&["traces", "one/traces", "two/traces", "--format", "jsonl"]).exits_with(0).out;
    let read = |text: &str| -> Vec<Json> { text.lines().map(|line| serde_json::from_str(line).unwrap()).collect() };
    assert_eq!(read(&both).len(), 2 * read(&one).len());
    let defects = |lines: &[Json]| lines.iter().map(|one| one["defects"].as_array().unwrap().len()).sum::<usize>();
    assert_eq!(defects(&read(&both)), 2 * defects(&read(&one)), "neither has a part of the other");
}
