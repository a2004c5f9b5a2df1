//! Experiments of which only a part is there: interrupted ones, those without grading, and those judged in part.

use std::fs::File;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::document;
use crate::place::{Place, Ran};
use rustix::process::{Pid, Signal, kill_process};

const AGENT: &str = "touch started\nuntil [ -e go ]; do sleep 0.05; done\necho \"I refunded $GRADUS_ITEM_ID\"\n";

fn write_dataset(place: &Place) {
    let item = |id| format!("{{\"id\": \"{id}\", \"request\": \"Refund {id}.\", \"answer_contains\": \"refunded\"}}\n");
    place.write("items.jsonl", &["a", "b", "c"].map(item).concat());
    place.write("agent.sh", AGENT);
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Presses Ctrl-C in the first of three trials, and lets that one finish.
fn interrupt_first_trial(place: &Place, words: &[&str]) -> Ran {
    let _ = std::fs::remove_file(place.path("started"));
    let _ = std::fs::remove_file(place.path("go"));
    let said = File::create(place.path("said")).unwrap();
    let child = place.command(words).stdout(Stdio::piped()).stderr(said).spawn().unwrap();
    wait_until("no trial starts", || place.path("started").exists());
    kill_process(Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap(), Signal::INT).unwrap();
    wait_until("the interrupt is not heard", || place.read("said").contains("finishing the trials"));
    place.write("go", "");
    let ran = Ran::from_output(child.wait_with_output().unwrap());
    Ran { err: place.read("said"), ..ran }
}

const WORDS: [&str; 7] = ["experiment", "items.jsonl", "--agent", "bash agent.sh", "--jobs", "1", "--quiet"];

#[test]
fn an_interrupt_lets_running_trials_finish() {
    let place = Place::new();
    write_dataset(&place);
    let words = [&WORDS[..], &["--out", "out"]].concat();
    let ran = interrupt_first_trial(&place, &words).exits_with(130);
    assert!(ran.err.contains("the same command continues from there"), "{}", ran.err);
    assert_eq!(place.lines("out/trials.jsonl").len(), 1, "what was finished is reported");
    let ran = place.run(&words).exits_with(0);
    assert!(ran.err.contains("1 trial is done, 2 left"), "{}", ran.err);
}

#[test]
fn an_interrupted_experiment_is_compared_and_decides_nothing() {
    let place = Place::new();
    write_dataset(&place);
    place.write("go", "");
    place.run(&[&WORDS[..], &["--save-baseline", "main.baseline"]].concat()).exits_with(0);
    let compared = ["--baseline", "main.baseline", "--fail-on", "regression"];
    let outputs = ["--json", "out.json", "--junit", "out.xml", "--name", "cut"];
    let ran = interrupt_first_trial(&place, &[&WORDS[..], &compared, &outputs].concat()).exits_with(6);
    assert!(ran.out.contains("Compared with the baseline") && ran.out.contains("B ended early"), "{}", ran.out);
    assert!(place.read("out.xml").contains("testsuite"));
    let dimensions = &document(&place, "out.json")["comparison"]["report"]["pairs"][0]["dimensions"];
    let pass = dimensions.as_array().unwrap().iter().find(|one| one["dimension"] == "experiment: pass").unwrap();
    assert_eq!(pass["tasks"]["shared"], 1, "{pass}");
    let compare = ["compare", "main.baseline", "cut", "--fail-on", "regression"];
    place.run(&compare).exits_with(6);
    place.run(&[&compare[..], &["--allow-partial"]].concat()).exits_with(0);
    // A gate is not decided by a part, and no baseline is made of it.
    let gate = ["--fresh", "--gate", "pass >= 0.5", "--save-baseline", "part.baseline"];
    let ran = interrupt_first_trial(&place, &[&WORDS[..], &gate].concat()).exits_with(6);
    assert!(ran.out.contains("INCOMPLETE") && ran.err.contains("the run ended early"), "{}{}", ran.out, ran.err);
    assert!(!place.path("part.baseline").exists());
}

/// A job whose tracing broke must not pass: what an agent without spans called is unknown.
#[test]
fn unknown_tool_calls_pass_no_gate() {
    let place = Place::new();
    let checks = "\"answer_contains\": \"refunded\", \"must_not_call\": [\"delete_order\"]";
    place.write("items.jsonl", &format!("{{\"id\": \"a\", \"request\": \"Refund a.\", {checks}}}\n"));
    place.write("agent.sh", "echo 'I refunded it.'\n");
    let gate = ["--gate", "pass >= 0.9", "--jsonl", "out.jsonl", "--csv", "tables"];
    let ran = place.run(&[&WORDS[..], &gate].concat()).exits_with(3);
    assert!(ran.out.contains("the agent sent no spans"), "{}", ran.out);
    assert!(!ran.out.contains("Failed trials"), "{}", ran.out);
    assert!(place.read("out.jsonl").contains("\"evaluator\":\"pass\",\"outcome\":\"abstained\""));
    assert!(place.read("tables/trials.csv").contains("a,0,,answered"), "{}", place.read("tables/trials.csv"));
    // A check that failed decides all the same.
    place.write("agent.sh", "echo 'I do not know.'\n");
    let ran = place.run(&[&WORDS[..], &["--fresh", "--gate", "pass >= 0.9"]].concat()).exits_with(3);
    assert!(ran.out.contains("Failed trials"), "{}", ran.out);
}

#[test]
fn checks_alone_are_compared() {
    let place = Place::new();
    write_dataset(&place);
    place.write("go", "");
    let checked = [&WORDS[..], &["--no-grading", "--fresh"]].concat();
    place.run(&[&checked[..], &["--save-baseline", "main.baseline"]].concat()).exits_with(0);
    place.write("agent.sh", "echo 'I do not know'\n");
    let more = ["--baseline", "main.baseline", "--gate", "pass >= baseline", "--json", "out.json"];
    place.run(&[&checked[..], &more].concat()).exits_with(3);
    let found = document(&place, "out.json");
    let dimensions = found["comparison"]["report"]["pairs"][0]["dimensions"].as_array().unwrap();
    assert_eq!(dimensions.len(), 1, "nothing is known of steps and tokens: {dimensions:?}");
    assert_eq!((dimensions[0]["first_mean"].as_f64(), dimensions[0]["second_mean"].as_f64()), (Some(1.0), Some(0.0)));
}

#[test]
fn grading_stops_when_its_gates_are_decided() {
    let place = Place::new();
    write_dataset(&place);
    place.write("agent.sh", "echo 'I refunded it.'\n");
    let words =
        [&WORDS[..], &["--trials", "40", "--evaluators", "outcome", "--stop-early", "--json", "out.json"]].concat();
    let ran = place.run(&[&words[..], &["--gate", "outcome >= 0.5"]].concat()).exits_with(0);
    assert!(ran.out.contains("of 120 runs"), "{}", ran.out);
    assert_eq!(document(&place, "out.json")["summary"]["complete"], false);
    let ran = place.run(&[&words[..], &["--gate", "pass >= 0.5"]].concat()).exits_with(2);
    assert!(ran.err.contains("is not about the verdicts of an evaluator"), "{}", ran.err);
}

/// What would be found only after hours of trials is refused before them.
#[test]
fn refused_experiments_run_nothing_and_write_nothing() {
    let place = Place::new();
    write_dataset(&place);
    place.write("agent.sh", "touch started\n");
    let refused = |words: &[&str], reason: &str| {
        let ran = place.run(&[&WORDS[..], &["--json", "out.json"], words].concat()).exits_with(2);
        assert!(ran.err.contains(reason), "{}", ran.err);
        assert!(!place.path("started").exists() && !place.path("out.json").exists(), "{words:?}");
    };
    refused(&["--save-baseline", "nowhere/main.baseline"], "nowhere/main.baseline: cannot be written");
    refused(&["--save-baseline", "out.json"], "two outputs would be written there");
    refused(&["--baseline", "no_such"], "there is no such baseline file, run id or run name");
}
