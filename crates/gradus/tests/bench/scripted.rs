//! Scripted agents: what they come to, labels, resuming, gates, bad input; and the demo.

use serde_json::Value as Json;

use crate::document;
use crate::place::{Place, Ran};

#[test]
fn the_oracle_does_what_is_asked_for() {
    let place = Place::new();
    let ran = place.run(&[
        "bench",
        "--policy",
        "oracle",
        "--tasks",
        "4,7,11,44",
        "--trials",
        "2",
        "--replay",
        "--out",
        "run",
        "--json",
        "out.json",
        "--gate",
        "success >= 0.2",
        "--gate",
        "pass^2 >= 0.2",
    ]);
    let ran = ran.exits_with(0);
    assert!(ran.out.is_empty() || ran.out.contains("oracle"), "{}", ran.out);
    let found = document(&place, "out.json");
    let agent = &found["bench"]["agents"][0];
    assert_eq!((agent["trials"].as_u64(), agent["success"]["value"].as_f64()), (Some(8), Some(1.0)));
    assert_eq!(agent["pass_k"]["value"], 1.0);
    assert_eq!(agent["calls_ratio"]["value"], 1.0);
    assert!(agent["success"]["interval"]["low"].as_f64().unwrap() < 1.0, "four tasks do not make it certain");
    assert_eq!(found["bench"]["unexpected"], Json::Array(Vec::new()));
    assert_eq!(found["summary"]["trajectories"], 8);
    let success = found["summary"]["metrics"].as_array().unwrap().iter().find(|one| one["name"] == "success");
    assert_eq!(success.unwrap()["denominator"], 8);
    let traces = place.run(&["traces", "run/traces", "--format", "jsonl"]).exits_with(0);
    assert_eq!(traces.out.lines().count(), 8);
    assert_eq!(std::fs::read_dir(place.path("run/records")).unwrap().count(), 8);
}

#[test]
fn flawed_runs_come_with_their_labels() {
    let place = Place::new();
    let words = ["bench", "--policy", "oracle,flawed", "--tasks", "7,9,12,49", "--replay", "--json", "out.json"];
    let more = ["--emit-labels", "labels", "--traces", "all.bin", "--quiet"];
    place.run(&[&words[..], &more[..]].concat()).exits_with(0);
    let found = document(&place, "out.json");
    assert_eq!(found["bench"]["unexpected"], Json::Array(Vec::new()));
    let scores = &found["bench"]["scores"];
    assert_eq!(scores["misread"], 0, "the traces show the steps that were played");
    let wrong = |name: &str| {
        let row = &scores["dimensions"][name];
        ["found", "missed", "abstained_wrong"].iter().map(|kind| row[kind].as_u64().unwrap()).sum::<u64>()
    };
    assert!(wrong("thought_to_tool") > 0 && wrong("query_to_thought") > 0 && wrong("sequence_optimality") > 0);
    assert_eq!(scores["policies"]["injection_followed"]["by_verifier"], 1);
    let gold = place.path("labels/wrong_tool");
    let one = std::fs::read_dir(gold).unwrap().next().unwrap().unwrap().path();
    let gold: Json = serde_json::from_slice(&std::fs::read(one.join("gold.json")).unwrap()).unwrap();
    let turn = &gold["sessions"][0]["turns"][0];
    assert_eq!(turn["sequence"]["label"], "suboptimal");
    let steps = turn["steps"].as_array().unwrap();
    assert_eq!(steps.iter().filter(|step| step["labels"]["thought_to_tool"] == "incorrect").count(), 1);
    let trials = found["bench"]["trials"].as_array().unwrap().len();
    let traces = place.run(&["traces", "all.bin", "--format", "jsonl"]).exits_with(0);
    assert_eq!(traces.out.lines().count(), trials);
    // The same labels by the keys of outcomes.
    let words = [
        "bench",
        "--policy",
        "wrong_tool",
        "--tasks",
        "7",
        "--emit-labels",
        "labels.jsonl",
        "--jsonl",
        "verdicts.jsonl",
    ];
    place.run(&words).exits_with(0);
    let verdicts = place.lines("verdicts.jsonl");
    for label in place.lines("labels.jsonl") {
        let same = |one: &&Json| ["trajectory_id", "step_index", "evaluator"].iter().all(|key| one[key] == label[key]);
        assert_eq!(verdicts.iter().filter(same).count(), 1, "{label}");
    }
}

#[test]
fn a_bench_that_was_cut_off_goes_on() {
    let place = Place::new();
    let words = ["bench", "--policy", "oracle", "--tasks", "1-5", "--trials", "2", "--out", "run", "--no-grading"];
    place.run(&words).exits_with(0);
    let text = place.read("run/trials.jsonl");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 10);
    // Seven are there, and half of another one.
    let kept = format!("{}\n{}", lines[..7].join("\n"), &lines[7][..lines[7].len() / 2]);
    std::fs::write(place.path("run/trials.jsonl"), kept).unwrap();
    let again = place.run(&[&words[..], &["--resume"]].concat()).exits_with(0);
    assert!(again.err.contains("7 trials were played before, 3 are left"), "{}", again.err);
    assert!(again.out.contains("100.0 %"), "{}", again.out);
    // More of the same can be added; something else cannot.
    let more = ["bench", "--policy", "oracle", "--tasks", "1-6", "--trials", "2", "--out", "run", "--no-grading"];
    let again = place.run(&[&more[..], &["--resume"]].concat()).exits_with(0);
    assert!(again.err.contains("10 trials were played before, 2 are left"), "{}", again.err);
    for (other, says) in [
        (&["--policy", "loop", "--tasks", "4"][..], "who plays there is \"oracle\", here \"loop\""),
        (&["--policy", "oracle", "--tasks", "1-5", "--react", "text"], "--react there is nothing, here \"text\""),
    ] {
        let ran = place.run(&[&["bench", "--out", "run", "--resume"], other].concat()).exits_with(2);
        assert!(ran.err.contains(says), "{}", ran.err);
    }
    let new = place.run(&[&more[..8], &["new", "--no-grading", "--resume"]].concat()).exits_with(0);
    assert!(new.err.contains("nothing to go on with"), "{}", new.err);
}

#[test]
fn what_is_there_is_not_thrown_away_by_accident() {
    let place = Place::new();
    let words = ["bench", "--policy", "oracle", "--tasks", "4", "--out", "run", "--no-grading"];
    place.run(&words).exits_with(0);
    let before = place.read("run/trials.jsonl");
    let again = place.run(&words).exits_with(2);
    assert!(again.err.contains("a bench of 1 trial is in there; --resume goes on with it"), "{}", again.err);
    let slip = ["--overwrite", "--gate", "luck >= 1"];
    place.run(&[&words[..], &slip].concat()).exits_with(2);
    assert_eq!(place.read("run/trials.jsonl"), before, "a slip costs nothing");
    place.run(&[&words[..], &["--overwrite"]].concat()).exits_with(0);
    assert_ne!(place.read("run/trials.jsonl"), before);
    place.write("mine/traces/keep-1.bin", "mine");
    let words = ["bench", "--policy", "oracle", "--tasks", "4", "--out", "mine", "--overwrite"];
    let ran = place.run(&words).exits_with(2);
    assert!(ran.err.contains("there are files in it, and no bench"), "{}", ran.err);
    assert_eq!(place.read("mine/traces/keep-1.bin"), "mine");
}

#[test]
fn labels_of_other_runs_are_not_among_these() {
    let place = Place::new();
    let words = ["bench", "--policy", "loop", "--tasks", "7", "--no-grading", "--emit-labels", "labels"];
    place.run(&words).exits_with(0);
    let again = ["bench", "--policy", "oracle", "--tasks", "7", "--no-grading", "--emit-labels", "labels"];
    let ran = place.run(&again).exits_with(2);
    assert!(ran.err.contains("labels is not empty"), "{}", ran.err);
    place.run(&[&again[..], &["--overwrite"]].concat()).exits_with(0);
    assert!(place.path("labels/oracle").is_dir() && !place.path("labels/loop").exists());
}

#[test]
fn only_labels_of_ours_are_taken_out() {
    let place = Place::new();
    let mine = ["labels/langgraph-react/s03-1/gold.json", "labels/oracle/by hand/gold.json"];
    for name in mine {
        place.write(name, "mine");
    }
    // Its trace is gone already.
    place.write("labels/loop/a-task-0/gold.json", "ours");
    let words = ["bench", "--policy", "oracle", "--tasks", "7", "--no-grading", "--emit-labels", "labels"];
    place.run(&[&words[..], &["--overwrite", "--gate", "luck >= 1"]].concat()).exits_with(2);
    assert_eq!(place.read("labels/loop/a-task-0/gold.json"), "ours", "a slip costs nothing");
    place.write("taken/mine.txt", "mine");
    place.run(&[&words[..], &["--overwrite", "--out", "taken"]].concat()).exits_with(2);
    assert_eq!(place.read("labels/loop/a-task-0/gold.json"), "ours", "nor does a folder that cannot be had");
    place.run(&[&words[..], &["--overwrite"]].concat()).exits_with(0);
    assert!(!place.path("labels/loop").exists());
    assert!(mine.iter().all(|name| place.read(name) == "mine"));
}

#[test]
fn a_replay_knows_what_was_planted() {
    let place = Place::new();
    let words = ["bench", "--policy", "ignored_error", "--tasks", "9", "--no-grading", "--out", "run"];
    place.run(&words).exits_with(0);
    let told = place.run(&["replay", "run"]).exits_with(0).out;
    assert!(told.contains("(ignored_error)"), "{told}");
    assert!(!told.contains("not the world it was recorded in"), "{told}");
}

#[test]
fn what_is_wrong_is_said_before_anything_is_played() {
    let place = Place::new();
    for (words, says) in [
        (&["--policy", "perfect"][..], "no such policy"),
        (&[][..], "say who plays"),
        (&["--policy", "oracle", "--tasks", "99"], "chooses no task"),
        (&["--policy", "oracle", "--suite", "nowhere"], "no suite"),
        (&["--policy", "oracle", "--trials", "0"], "at least 1"),
        (&["--policy", "oracle", "--gate", "luck >= 1"], "no metric"),
        (&["--policy", "injection_followed", "--tasks", "2"], "nothing to play"),
        (&["--model", "gpt-4o"], "no key"),
        (&["--model", "gpt-4o"], "--model-url"),
        (&["--model", "gpt-4o", "--model-key-env", "NOPE"], "--model-key-env: NOPE is not set"),
        (&["--policy", "oracle", "--parallel", "0"], "at least 1"),
        (&["--policy", "oracle", "--gate", "pass^4 >= 0.6"], "give --trials 4"),
        (&["--agent", "true", "--emit-labels", "labels"], "scripted agents only"),
        (&["--policy", "oracle", "--emit-labels", "-"], "give a name"),
        (&["--agent", ""], "--agent: it is empty"),
        (&["--agent", "  "], "--agent: it is empty"),
    ] {
        let ran = place.run(&[&["bench"], words].concat()).exits_with(2);
        assert!(ran.err.contains(says) && ran.err.lines().count() == 1, "{words:?}: {}", ran.err);
    }
    assert!(place.run(&["bench", "--list"]).exits_with(0).out.lines().count() >= 52);
    assert_eq!(place.run(&["bench", "--list", "--tasks", "3,5-6"]).exits_with(0).out.lines().count(), 3);
    // Options that would be passed over.
    for words in [["--agent-timeout", "5"], ["--model-url", "http://127.0.0.1:9"]] {
        place.run(&[&["bench", "--policy", "oracle"], &words[..]].concat()).exits_with(2);
    }
}

#[test]
fn the_help_says_who_judges() {
    let place = Place::new();
    let judge = |command: &str| {
        let help = place.run(&[command, "--help"]).exits_with(0).out;
        let words: Vec<&str> = help.split_whitespace().collect();
        let begin = words.iter().position(|word| *word == "--judge").unwrap();
        let end = words.iter().position(|word| *word == "--base-url").unwrap();
        words[begin..end].join(" ")
    };
    let told = judge("bench");
    assert!(told.contains("[default: offline") && !told.contains("OPENAI_API_KEY"), "{told}");
    assert!(judge("eval").contains("gpt-4o, if OPENAI_API_KEY"), "there it is so");
}

#[test]
fn a_gate_that_fails_is_an_exit_code() {
    let place = Place::new();
    let words = ["bench", "--policy", "giving_up", "--tasks", "1-15", "--gate", "success >= 0.9", "--html", "out.html"];
    let ran = place.run(&words).exits_with(3);
    assert!(ran.out.contains("Tasks Done"), "{}", ran.out);
    assert!(place.read("out.html").contains("Tasks Done"));
}

#[test]
fn the_demo_needs_nothing() {
    let place = Place::new();
    // A file of the user's own has no say in it.
    place.write("gradus.toml", "[judge]\nname = \"gpt-4o\"\nbase_url = \"http://127.0.0.1:9\"\n");
    // Nor has a proxy that is not there.
    let mut command = place.command(&["demo"]);
    command.env("http_proxy", "http://127.0.0.1:1").env_remove("no_proxy").env_remove("NO_PROXY");
    let ran = Ran::from_output(command.output().unwrap()).exits_with(0);
    for part in ["Played and traced", "Planted mistakes", "The judge against the truth", "thought_to_tool", "What next"]
    {
        assert!(ran.out.contains(part), "{part}: {}", ran.out);
    }
    assert!(ran.err.is_empty(), "{}", ran.err);
    let page = place.read("gradus-demo.html");
    for part in
        ["pass^1", "wrong_tool", "Planted mistakes, and who noticed them", "recall", "the traces of `gradus demo`"]
    {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains(std::env::temp_dir().to_str().unwrap()), "what is gone is not named");
    for words in [["demo", "--html", "no/such/folder.html"], ["demo", "--keep", "gradus.toml"]] {
        let ran = place.run(&words).exits_with(2);
        assert!(ran.out.is_empty() && ran.err.lines().count() == 1, "{}{}", ran.out, ran.err);
    }
}
