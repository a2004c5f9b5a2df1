//! Agents that are missing, hang, fork, print too much or die: each gives one clear line, and the experiment goes on.

use std::time::{Duration, Instant};

use serde_json::Value as Json;

use crate::place::{Place, Ran};

fn experiment(place: &Place, agent: &str, words: &[&str]) -> Ran {
    place.write("items.jsonl", "{\"id\": \"a\", \"request\": \"r\"}\n");
    place.run(&[&["experiment", "items.jsonl", "--agent", agent, "--out", "out", "--no-grading"], words].concat())
}

fn only_trial(place: &Place) -> Json {
    place.lines("out/trials.jsonl").remove(0)
}

fn wait_until_gone(pid: &str) {
    let begun = Instant::now();
    // A process that was killed and not yet reaped has no command line.
    let is_alive = || std::fs::read(format!("/proc/{}/cmdline", pid.trim())).is_ok_and(|text| !text.is_empty());
    while is_alive() {
        assert!(begun.elapsed() < Duration::from_secs(30), "{pid} is still alive");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_missing_agent_stops_the_experiment() {
    let place = Place::new();
    let ran = experiment(&place, "no-such-agent --fast", &[]).exits_with(2);
    let lines: Vec<&str> = ran.err.lines().collect();
    assert_eq!(lines.len(), 1, "{}", ran.err);
    assert!(
        lines[0].starts_with("gradus: agent not found: no-such-agent --fast: it ended with exit status: 127: "),
        "{}",
        ran.err
    );
    assert!(lines[0].contains("; hint: the command runs with `sh -c` in this folder"), "{}", ran.err);
    // What did not run is not in the journal: with the agent there, the same command works.
    place.write("no-such-agent", "echo here\n");
    std::fs::rename(place.path("no-such-agent"), place.path("agent.sh")).unwrap();
    place
        .run(&["experiment", "items.jsonl", "--agent", "bash agent.sh", "--out", "other", "--no-grading"])
        .exits_with(0);
}

#[test]
fn an_agent_that_hangs_is_ended() {
    let place = Place::new();
    let ran = experiment(&place, "echo $$ >agent.pid; trap '' TERM; sleep 600; sleep 600", &["--agent-timeout", "0.5"]);
    let ran = ran.exits_with(0);
    let trial = only_trial(&place);
    assert_eq!((&trial["end"], &trial["passed"]), (&Json::from("timed_out"), &Json::Bool(false)), "{trial}");
    assert_eq!(trial["failure"], "it took longer than 0.5 s");
    assert!(ran.out.contains("the agent failed: it took longer than 0.5 s"), "{}", ran.out);
    wait_until_gone(&place.read("agent.pid"));
}

#[test]
fn a_child_that_holds_the_pipe_does_not_hold_up_the_experiment() {
    let place = Place::new();
    experiment(&place, "sleep 600 & echo $! >child.pid; echo done", &["--agent-timeout", "300"]).exits_with(0);
    let trial = only_trial(&place);
    assert_eq!((&trial["end"], &trial["answer"]), (&Json::from("answered"), &Json::from("done")), "{trial}");
    wait_until_gone(&place.read("child.pid"));
}

#[test]
fn a_gigabyte_of_output_is_bounded() {
    let place = Place::new();
    experiment(&place, "head -c 1000000000 /dev/zero | tr '\\0' x", &[]).exits_with(0);
    let trial = only_trial(&place);
    assert_eq!((&trial["end"], &trial["answer"]), (&Json::from("answer_too_long"), &Json::Null), "{trial}");
    assert_eq!(trial["failure"], "its answer is longer than 1024 KiB");
    let size = std::fs::metadata(place.path("out/.journal.jsonl")).unwrap().len();
    assert!(size < 10_000, "{size}");
}

#[test]
fn an_agent_that_prints_without_end_is_ended_at_the_limit() {
    let place = Place::new();
    // Its time is far longer than the test may take.
    experiment(&place, "echo $$ >agent.pid; yes", &["--agent-timeout", "100000"]).exits_with(0);
    let trial = only_trial(&place);
    assert_eq!((&trial["end"], &trial["answer"]), (&Json::from("answer_too_long"), &Json::Null), "{trial}");
    wait_until_gone(&place.read("agent.pid"));
}

#[test]
fn an_agent_that_dies_by_a_signal_has_failed() {
    let place = Place::new();
    experiment(&place, "echo half; echo 'no luck' >&2; kill -9 $$", &[]).exits_with(0);
    let trial = only_trial(&place);
    assert_eq!(trial["end"], "signalled", "{trial}");
    assert_eq!(trial["failure"], "it ended with signal: 9 (SIGKILL): no luck");
    experiment(&place, "exit 3", &["--fresh"]).exits_with(0);
    assert_eq!(only_trial(&place)["failure"], "it ended with exit status: 3");
}

#[test]
fn a_request_that_is_longer_than_a_variable_is_on_standard_input() {
    let place = Place::new();
    let request = "x".repeat(300_000);
    place.write("items.jsonl", &format!("{{\"id\": \"a\", \"request\": \"{request}\"}}\n"));
    let words =
        ["experiment", "items.jsonl", "--agent", "wc -c; echo ${GRADUS_REQUEST:-none}", "--out", "out", "--no-grading"];
    place.run(&words).exits_with(0);
    assert_eq!(only_trial(&place)["answer"], "300000\nnone");
}

#[test]
fn bad_options_are_one_line() {
    let place = Place::new();
    for (words, expected) in [
        (&["--trials", "0"][..], "option refused: --trials: give at least 1"),
        (&["--jobs", "0"], "option refused: --jobs: give at least 1"),
        (&["--agent-timeout", "0"], "option refused: --agent-timeout: give a number of seconds above 0"),
        (&["--pass-env", "A B"], "option refused: --pass-env \"A B\": not the name of a variable; hint:"),
        (&["--item-tag", "x"], "no items: x: no item of the dataset has such a tag; hint:"),
        (&["--setup", " "], "option refused: --setup: it is empty; hint:"),
    ] {
        let ran = experiment(&place, "true", words).exits_with(2);
        assert!(ran.err.contains(expected) && ran.err.lines().count() == 1, "{}", ran.err);
        assert!(!place.path("out").exists(), "nothing is written: {words:?}");
    }
    let ran = experiment(&place, " ", &[]).exits_with(2);
    assert!(ran.err.contains("option refused: --agent: it is empty"), "{}", ran.err);
    let ran = place.run(&["experiment", "no.jsonl", "--agent", "true"]).exits_with(2);
    assert!(ran.err.contains("dataset not readable: no.jsonl: "), "{}", ran.err);
}

#[test]
fn a_baseline_of_a_later_format_is_refused_before_any_trial() {
    let place = Place::new();
    place.write("items.jsonl", "{\"id\": \"a\", \"request\": \"Wait.\"}\n");
    place.write("base.jsonl", "{\"gradus_baseline\": 99}\n");
    let ran = place.run(&["experiment", "items.jsonl", "--agent", "touch ran", "--baseline", "base.jsonl"]);
    let ran = ran.exits_with(2);
    assert!(ran.err.contains("it has the format 99") && ran.err.contains("hint: update Gradus"), "{}", ran.err);
    assert!(!place.path("ran").exists());
}

#[test]
fn what_a_dying_agent_said_is_no_answer_of_the_run() {
    for agent in ["echo partial; kill -9 $$", "echo partial; exit 3"] {
        let place = Place::new();
        place.write("items.jsonl", "{\"id\": \"a\", \"request\": \"r\"}\n");
        let gates = ["--gate", "outcome >= 0.9"];
        let words = ["experiment", "items.jsonl", "--agent", agent, "--out", "out", "--judge", "offline"];
        let ran = place.run(&[&words[..], &gates].concat()).exits_with(3);
        assert!(ran.out.contains("1 crashed"), "{agent}: {}", ran.out);
        assert_eq!(only_trial(&place)["answer"], "partial", "{agent}");
    }
}
