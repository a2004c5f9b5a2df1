//! Versions compared, baselines, and gates on runs that ended early.

use serde_json::Value as Json;

use crate::lab::{Lab, case, endpoint, eval, kind_endpoint, step};

/// Forty tasks, each run by a version; `is_repeated` says which runs call their tool twice, the second time wrongly.
fn write_version(lab: &Lab, file: &str, version: &str, trials: usize, is_repeated: impl Fn(usize) -> bool) {
    let mut lines = String::new();
    for number in 0..40 {
        for trial in 0..trials {
            let mut run = case(number);
            run["trajectory_id"] = format!("{version}-{number}-{trial}").into();
            run["agent_version"] = version.into();
            run["start"] = "2026-11-17T10:00:00Z".into();
            run["end"] = format!("2026-11-17T10:00:00.{:09}Z", 1_234_567 + 1_001 * number).into();
            if is_repeated(number) {
                let mut again = step(2, "I will read it again.", number);
                again["arguments"] = serde_json::json!({"file": number});
                run["steps"].as_array_mut().unwrap().push(again);
            }
            lines.push_str(&(run.to_string() + "\n"));
        }
    }
    lab.write(file, &lines);
}

fn judge(lab: &Lab, file: &str, more: &[&str], code: i32) -> String {
    let ran = lab.run(&[&["eval", file, "--judge", "offline"][..], more].concat()).exits_with(code);
    ran.out + &ran.err
}

fn dimension<'j>(comparison: &'j Json, name: &str) -> &'j Json {
    let found = comparison["report"]["pairs"][0]["dimensions"].as_array().unwrap();
    found.iter().find(|known| known["dimension"] == name).unwrap_or_else(|| panic!("no {name} in {found:?}"))
}

#[test]
fn a_planted_fault_is_worse_and_the_rest_is_not() {
    let lab = Lab::new();
    write_version(&lab, "v1.jsonl", "1.0", 2, |_| false);
    write_version(&lab, "v2.jsonl", "2.0", 2, |number| number % 2 == 0);
    judge(&lab, "v1.jsonl", &["--name", "one", "--tag", "team=search"], 0);
    judge(&lab, "v2.jsonl", &["--name", "two"], 0);
    let ran = lab.run(&["compare", "one", "two", "--json", "c.json", "--markdown", "c.md", "--html", "c.html"]);
    let ran = ran.exits_with(0);
    assert!(ran.out.contains("agent version 1.0") && ran.out.contains("WORSE"), "{}", ran.out);
    assert!(ran.out.contains("read_file → read_file ✗ → answer"), "both runs are shown: {}", ran.out);
    assert!(ran.out.contains("What goes wrong"), "{}", ran.out);
    let comparison: Json = serde_json::from_str(&lab.read("c.json")).unwrap();
    let schema: Json = serde_json::from_str(include_str!("../../../../docs/schemas/comparison.schema.json")).unwrap();
    for required in schema["required"].as_array().unwrap() {
        assert!(comparison.get(required.as_str().unwrap()).is_some(), "{required}");
    }
    assert_eq!(dimension(&comparison, "call_validity")["verdict"], "worse");
    assert_eq!(dimension(&comparison, "steps")["verdict"], "worse");
    for name in ["outcome", "unflagged.thought_to_tool", "unflagged.query_to_thought"] {
        assert_eq!(dimension(&comparison, name)["effect"], 0.0, "{name}");
        assert_ne!(dimension(&comparison, name)["verdict"], "worse", "{name}");
    }
    assert_eq!(comparison["failure_groups"][0]["runs"], serde_json::json!([0, 40]));
    assert!(lab.read("c.md").contains("❌ WORSE") && lab.read("c.html").contains("WORSE"));
    lab.run(&["compare", "one", "two", "--fail-on", "regression"]).exits_with(3);
    let junit = ["report", "two", "--baseline", "one", "--fail-on", "regression", "--junit", "j.xml"];
    lab.run(&junit).exits_with(3);
    assert!(lab.read("j.xml").contains("classname=\"gradus.regressions\""), "{}", lab.read("j.xml"));
    assert!(lab.read("j.xml").contains("type=\"worse\""), "{}", lab.read("j.xml"));
    let back = lab.run(&["compare", "two", "one", "--fail-on", "regression"]).exits_with(0);
    assert!(back.out.contains("BETTER") && !back.out.contains("WORSE"), "{}", back.out);
    let runs = lab.run(&["runs", "--tag", "team=search", "--json"]).exits_with(0);
    let runs: Json = serde_json::from_str(&runs.out).unwrap();
    assert_eq!((runs.as_array().unwrap().len(), &runs[0]["name"]), (1, &Json::from("one")));
    let listed = lab.run(&["runs"]).exits_with(0).out;
    assert!(listed.contains("one") && listed.contains("two") && listed.contains("Over time"), "{listed}");
}

#[test]
fn identical_behaviour_is_never_worse_whatever_the_number_of_trials() {
    let lab = Lab::new();
    // A third of the steps of some runs is wrong: shares that floating-point means do not represent.
    write_version(&lab, "v1.jsonl", "1.0", 5, |number| number % 3 == 0);
    write_version(&lab, "v2.jsonl", "2.0", 20, |number| number % 3 == 0);
    judge(&lab, "v1.jsonl", &["--name", "five", "--save-baseline", "five.baseline"], 0);
    let out =
        judge(&lab, "v2.jsonl", &["--name", "twenty", "--baseline", "five.baseline", "--fail-on", "regression"], 0);
    assert!(!out.contains("WORSE") && !out.contains("BETTER") && !out.contains("-0.0"), "{out}");
    assert!(out.contains("The number of trials differs"), "{out}");
}

#[test]
fn baselines_are_stable_text_without_content() {
    let lab = Lab::new();
    write_version(&lab, "v1.jsonl", "1.0", 2, |_| false);
    judge(&lab, "v1.jsonl", &["--save-baseline", "a.baseline"], 0);
    judge(&lab, "v1.jsonl", &["--save-baseline", "b.baseline", "--fresh"], 0);
    let lines = |file: &str| lab.read(file).lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(lines("a.baseline"), lines("b.baseline"));
    assert_eq!(lines("a.baseline").iter().filter(|line| line.starts_with("{\"request\":")).count(), 40);
    assert!(!lab.read("a.baseline").contains("demo repository"));
    // A run is the same as its baseline, in every dimension.
    let id = lab.run(&["runs", "--json"]).exits_with(0).out;
    let id: Json = serde_json::from_str(&id).unwrap();
    let same = lab.run(&["compare", "b.baseline", id[0]["run_id"].as_str().unwrap()]).exits_with(0).out;
    assert!(!same.contains("WORSE") && !same.contains("BETTER") && !same.contains("Tasks that got"), "{same}");
    // A part of a baseline would hide what its other part shows.
    for (kept, lines) in [(0, 1), (38, lab.read("a.baseline").lines().count() - 2)] {
        let part: Vec<String> = lab.read("a.baseline").lines().take(lines).map(str::to_owned).collect();
        lab.write("part.baseline", &(part.join("\n") + "\n"));
        let ran = lab.run(&["compare", "part.baseline", "a.baseline", "--fail-on", "regression"]).exits_with(2);
        assert!(ran.err.contains(&format!("it has {kept} of its 40 tasks")), "{}", ran.err);
    }
    let beyond = lab.read("a.baseline").replacen(
        "\"metric\":\"outcome\",\"value\":1.0",
        "\"metric\":\"outcome\",\"value\":-7.5",
        1,
    );
    lab.write("beyond.baseline", &beyond);
    let ran = lab.run(&["compare", "beyond.baseline", "a.baseline"]).exits_with(2);
    assert!(ran.err.contains("is a share, and -7.5 is none"), "{}", ran.err);
    judge(&lab, "v1.jsonl", &["--save-baseline", "c.baseline", "--baseline-content"], 0);
    assert!(lab.read("c.baseline").contains("demo repository"));
    // Gates relative to it.
    judge(&lab, "v1.jsonl", &["--baseline", "a.baseline", "--gate", "steps <= baseline + 0.5"], 0);
    judge(&lab, "v1.jsonl", &["--baseline", "a.baseline", "--gate", "steps <= baseline - 0.5"], 3);
    let out = judge(&lab, "v1.jsonl", &["--gate", "steps <= baseline"], 2);
    assert!(out.contains("hint: add --baseline FILE"), "{out}");
}

#[test]
fn gates_can_be_relative_to_every_number_of_a_baseline() {
    let lab = Lab::new();
    write_version(&lab, "v1.jsonl", "1.0", 1, |_| false);
    write_version(&lab, "v2.jsonl", "2.0", 1, |number| number % 4 == 0);
    let evaluators = ["-e", "core,call_validity"];
    judge(&lab, "v1.jsonl", &[&evaluators[..], &["--save-baseline", "v1.baseline", "--name", "one"]].concat(), 0);
    // The file and the run have the same numbers.
    for baseline in ["v1.baseline", "one"] {
        let gate = |gate: &str, code: i32| {
            let more = ["--baseline", baseline, "--gate", gate, "--allow-mismatch"];
            judge(&lab, "v2.jsonl", &[&evaluators[..], &more].concat(), code)
        };
        for passing in [
            "outcome.answered >= baseline",
            "outcome.crashed <= baseline",
            "call_validity{tool=read_file} >= baseline - 0.5",
            "failed <= baseline",
            "steps <= baseline + 25%",
        ] {
            gate(passing, 0);
        }
        let out = gate("call_validity{tool=read_file} >= baseline - 0.02", 3);
        assert!(out.contains("the bar is 98.0 %"), "{out}");
        // Ten of forty runs have two steps instead of one: 1.25 after 1.
        let out = gate("steps <= baseline + 20%", 3);
        assert!(out.contains("the bar is 1.2000"), "{out}");
        let out = gate("call_validity{tool=delete_file} >= baseline", 2);
        assert!(out.contains("the baseline has no number for call_validity{tool=delete_file}"), "{out}");
        let out = gate("cost <= baseline", 2);
        assert!(out.contains("depends on what was judged before"), "{out}");
    }
    // A baseline of the first format has the means of its runs.
    let old: Vec<String> =
        lab.read("v1.baseline").lines().filter(|line| !line.starts_with("{\"metric\":")).map(str::to_owned).collect();
    lab.write("old.baseline", &old.join("\n").replacen("\"gradus_baseline\":2", "\"gradus_baseline\":1", 1));
    let with_old = |gate: &str, code: i32| {
        let more = ["--baseline", "old.baseline", "--gate", gate];
        judge(&lab, "v2.jsonl", &[&evaluators[..], &more].concat(), code)
    };
    with_old("steps <= baseline + 25%", 0);
    let out = with_old("outcome.crashed <= baseline", 2);
    assert!(out.contains("the baseline has no number for outcome.crashed; it has outcome"), "{out}");
}

#[test]
fn what_cannot_be_decided_is_refused_before_anything_is_judged() {
    let lab = Lab::with_cases(4);
    judge(&lab, "cases.jsonl", &["--name", "rules", "--save-baseline", "rules.baseline"], 0);
    let endpoint = kind_endpoint();
    for (words, why) in [
        (vec!["--baseline", "rules.baseline"], "judged by offline and by"),
        (vec!["--baseline", "rules", "--fail-on", "regression"], "judged by offline and by"),
        (vec!["--baseline", "rules.baseline", "--allow-mismatch", "--min-effect", "2"], "min_effect is 2"),
        (vec!["--baseline", "rules.baseline", "--allow-mismatch", "--min-effect", "0"], "min_effect is 0"),
        (vec!["--gate", "thought_to_tool{tag=x} >= 0.5"], "this run has no tags"),
        (vec!["--gate", "steps{tool=read_file} >= 0.5"], "about whole runs"),
        (vec!["--gate", "thought_to_tool >= 85"], "0.85 or 85%"),
        (vec!["--gate", "steps <= 10%"], "percent of what?"),
        (vec!["--gate", "thought_to_tool >= -0.5"], "a share is never below 0"),
        (vec!["--name", ""], "--name <NAME>"),
    ] {
        let ran = lab.run_at(&endpoint, &eval(&words)).exits_with(2);
        assert!(ran.err.contains(why), "{words:?}: {}", ran.err);
    }
    assert_eq!(endpoint.received(), 0, "nothing was asked");
    // Of three versions the second and the third differ, and the first has nothing to differ from.
    lab.run_at(&endpoint, &eval(&["--name", "model", "-e", "thought_to_tool"])).exits_with(0);
    judge(&lab, "cases.jsonl", &["--name", "ending", "-e", "outcome"], 0);
    let ran = lab.run(&["compare", "ending", "rules", "model"]).exits_with(2);
    assert!(ran.err.contains("rules and model cannot be compared"), "{}", ran.err);
}

#[test]
fn what_cannot_be_compared_is_refused_with_the_reason() {
    let lab = Lab::with_cases(8);
    judge(&lab, "cases.jsonl", &["--name", "rules", "--save-baseline", "rules.baseline"], 0);
    lab.run_at(&kind_endpoint(), &eval(&["--name", "model"])).exits_with(0);
    let ran = lab.run(&["compare", "rules", "model"]).exits_with(2);
    assert!(ran.err.contains("thought_to_tool: judged by offline and by"), "{}", ran.err);
    let ran = lab.run(&["compare", "rules", "model", "--allow-mismatch"]).exits_with(0);
    assert!(ran.out.contains("Not judged in the same way: A and B: thought_to_tool"), "{}", ran.out);
    let ran = lab.run(&["compare", "rules.baseline?version=2", "rules"]).exits_with(2);
    assert!(ran.err.contains("a baseline does not tell its runs apart"), "{}", ran.err);
    let refuse = |text: &str, what: &str| {
        lab.write("broken.baseline", text);
        let ran = lab.run(&["compare", "broken.baseline", "rules"]).exits_with(2);
        assert!(ran.err.contains(what) && ran.err.contains("broken.baseline"), "{}", ran.err);
    };
    let whole = lab.read("rules.baseline");
    let lines: Vec<&str> = whole.lines().collect();
    refuse("{}\n", "not a known trace format");
    refuse(&whole.replacen("\"gradus_baseline\":2", "\"gradus_baseline\":9", 1), "it has the format 9");
    refuse(&whole.replacen("\"gradus_baseline\":2", "\"gradus_baseline\":0", 1), "it has the format 0");
    refuse(&format!("{}\n{{\"request\":\n", lines[0]), "line 2");
    let task = lines.iter().find(|line| line.starts_with("{\"request\":")).unwrap();
    refuse(&format!("{}\n{task}\n{task}\n", lines[0]), "the task is there twice");
    refuse(&format!("{}\n{}\n{}\n", lines[0], lines[1], lines[1]), "the metric is there twice");
    refuse(&format!("{}\n{}\n", lines[0], task.replacen("\"scores\":[", "\"scores\":[null,", 1)), "line 2");
    refuse(&format!("{}\n{}\n", lines[0], task.replacen("[1.0,1]", "[7.0,1]", 1)), "outside of its scale, 0 to 1");
    refuse(&format!("{}\n{}\n", lines[0], task.replacen("[1.0,1]", "[0.0,0]", 1)), "counts nothing");
    // Some editors put a mark at the beginning.
    lab.write("marked.baseline", &format!("\u{feff}{whole}"));
    lab.run(&["compare", "marked.baseline", "rules"]).exits_with(0);
    let ran = lab.run(&["compare", "rules", "nothing"]).exits_with(2);
    assert!(ran.err.contains("there is no such baseline file, run id or run name"), "{}", ran.err);
    // Without a common task the result says so before any number.
    write_version(&lab, "other.jsonl", "9", 1, |_| false);
    let other = lab.read("other.jsonl").replace("demo repository", "other repository");
    lab.write("other.jsonl", &other);
    judge(&lab, "other.jsonl", &["--name", "other"], 0);
    let ran = lab.run(&["compare", "rules", "other"]).exits_with(0);
    assert!(ran.out.contains("share no task") && ran.out.contains("not paired"), "{}", ran.out);
}

#[test]
fn gates_of_the_settings_file_do_not_concern_a_comparison_of_sources() {
    let lab = Lab::new();
    write_version(&lab, "v1.jsonl", "1.0", 1, |_| false);
    write_version(&lab, "v2.jsonl", "2.0", 1, |_| false);
    lab.write("gradus.toml", "[eval]\ngates = [\"steps <= baseline\", \"task_completion >= 0.9\", \"steps <= 0.1\"]\n");
    let ran = lab.run(&["compare", "v1.jsonl", "v2.jsonl"]).exits_with(0);
    assert!(ran.out.contains("agent version 2.0"), "{}", ran.out);
}

#[test]
fn gates_of_a_run_that_ended_early_are_not_decided() {
    let lab = Lab::with_cases(16);
    let endpoint = kind_endpoint();
    let gate = ["--gate", "thought_to_tool >= 0.5", "--max-calls", "4", "--concurrency", "1"];
    let more = ["--junit", "j.xml", "--save-baseline", "part.baseline"];
    let ran = lab.run_at(&endpoint, &eval(&[&gate[..], &more].concat())).exits_with(6);
    assert!(ran.err.contains("baseline not written: the run ended early"), "{}", ran.err);
    assert!(!lab.path("part.baseline").exists(), "a part of a run is no baseline");
    assert!(ran.out.contains("INCOMPLETE") && ran.out.contains("not decided"), "{}", ran.out);
    assert!(lab.read("j.xml").contains("type=\"incomplete\""));
    lab.run(&["report", "--gate", "thought_to_tool >= 0.5"]).exits_with(6);
    lab.run(&["report", "--gate", "thought_to_tool >= 0.5", "--allow-partial"]).exits_with(0);
    // Neither does a comparison decide.
    lab.run_at(&endpoint, &eval(&["--name", "whole", "--fresh"])).exits_with(0);
    lab.run_at(&endpoint, &eval(&["--name", "part", "--fresh", "--max-calls", "4", "--concurrency", "1"]))
        .exits_with(0);
    let decide = ["compare", "whole", "part", "--fail-on", "regression"];
    let ran = lab.run(&decide).exits_with(6);
    assert!(ran.err.contains("hint: finish its run, or add --allow-partial"), "{}", ran.err);
    lab.run(&[&decide[..], &["--allow-partial"]].concat()).exits_with(0);
    lab.run(&["compare", "whole", "part"]).exits_with(0);
    // Nor does a run against a part of one.
    let against = ["--fresh", "--baseline", "part", "--fail-on", "regression"];
    lab.run_at(&endpoint, &eval(&against)).exits_with(6);
}

#[test]
fn five_agents_are_compared_in_all_pairs() {
    let lab = Lab::new();
    for (number, name) in ["a", "b", "c", "d", "e"].into_iter().enumerate() {
        let file = format!("{name}.jsonl");
        write_version(&lab, &file, name, 1, |task| name == "e" && task % 2 == 0);
        let commit = |command: &mut std::process::Command| {
            let branch = if number < 2 { "main" } else { "trial" };
            command.env("GITHUB_HEAD_REF", branch).env("GITHUB_SHA", format!("{number}abcdef"));
        };
        let mut command = lab.command(&["eval", &file, "--judge", "offline", "--name", name]);
        commit(&mut command);
        assert!(command.output().unwrap().status.success());
    }
    let ran = lab.run(&["compare", "a", "b", "c", "d", "e", "--json", "five.json", "--fail-on", "regression"]);
    let out = ran.exits_with(3).out;
    assert!(out.contains("WORSE"), "{out}");
    let found: Json = serde_json::from_str(&lab.read("five.json")).unwrap();
    let pairs = found["report"]["pairs"].as_array().unwrap();
    assert_eq!(pairs.len(), 10);
    for pair in pairs {
        let dimensions = pair["dimensions"].as_array().unwrap();
        let validity = dimensions.iter().find(|one| one["dimension"] == "call_validity").unwrap();
        let expected = if pair["second"] == "E" { "worse" } else { "same" };
        let verdict = validity["verdict"].as_str().unwrap();
        assert!(verdict == expected || expected == "same" && verdict == "inconclusive", "{pair}");
    }
    // The runs of one branch, and some of their scores.
    let names = |more: &[&str]| -> Vec<String> {
        let out = lab.run(&[&["runs", "--json"][..], more].concat()).exits_with(0).out;
        let runs: Json = serde_json::from_str(&out).unwrap();
        runs.as_array().unwrap().iter().map(|run| run["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&["--branch", "main"]), ["b", "a"]);
    assert_eq!(names(&["--branch", "trial"]), ["e", "d", "c"]);
    lab.run(&["runs", "--branch", "none"]).exits_with(2);
    let out = lab.run(&["runs", "--branch", "main", "--metrics", "steps"]).exits_with(0).out;
    assert!(out.contains("steps") && !out.contains("outcome") && out.contains("1abcdef"), "{out}");
    let ran = lab.run(&["runs", "--metrics", "steps,nosuch"]).exits_with(2);
    assert!(ran.err.contains("\"nosuch\": no listed run has such a score"), "{}", ran.err);
}

#[test]
fn judging_stops_when_the_gate_is_decided() {
    let lab = Lab::with_cases(300);
    let endpoint =
        endpoint(|incoming| incoming.verdict(if incoming.number % 10 == 0 { "incorrect" } else { "correct" }));
    let early = eval(&["--stop-early", "--gate", "thought_to_tool >= 0.6", "--json", "s.json", "--seed", "7"]);
    let ran = lab.run_at(&endpoint, &early).exits_with(0);
    assert!(ran.out.contains("PASS") && ran.out.contains("of 300 runs"), "{}", ran.out);
    let summary: Json = serde_json::from_str(&lab.read("s.json")).unwrap();
    let judged = summary["summary"]["trajectories"].as_u64().unwrap();
    assert!((8..150).contains(&judged), "{judged}");
    // The printed number is that of what was judged. Intervals hold for a fixed number of runs.
    let gate = &summary["gates"][0];
    assert_eq!((&gate["count"], &gate["interval"]), (&judged.into(), &Json::Null), "{gate}");
    assert!(
        gate["explanation"].as_str().unwrap().starts_with(&format!("steps of {judged} runs; decided after")),
        "{gate}"
    );
    // It is no complete run, and says so wherever it is shown.
    assert_eq!(summary["summary"]["complete"], false);
    let runs: Json = serde_json::from_str(&lab.run(&["runs", "--json"]).exits_with(0).out).unwrap();
    assert_eq!(runs[0]["state"], "stopped");
    assert!(runs[0]["stopped_because"].as_str().unwrap().contains("of 300 runs"), "{runs}");
    let shown = lab.run(&["report"]).exits_with(0).out;
    assert!(shown.contains("every gate was decided after"), "{shown}");
    // Its own gate is shown as it was decided, also afterwards; others are not.
    assert!(shown.contains("PASS") && !shown.contains("INCOMPLETE"), "{shown}");
    lab.run(&["report", "--gate", "thought_to_tool >= 0.6"]).exits_with(0);
    lab.run(&["report", "--gate", "steps >= 0"]).exits_with(6);
    let ran = lab.run_at(&endpoint, &eval(&["--stop-early", "--gate", "thought_to_tool <= 0.3"])).exits_with(3);
    assert!(ran.out.contains("FAIL") && ran.out.contains("decided after"), "{}", ran.out);
    // Close to the bar either decision is accepted, and fewer runs are judged.
    let near = |more: &[&str]| {
        let words = eval(&["--stop-early", "--gate", "thought_to_tool >= 0.86", "--json", "near.json", "--seed", "7"]);
        lab.run_at(&endpoint, &[&words[..], &["--fresh"], more].concat());
        let summary: Json = serde_json::from_str(&lab.read("near.json")).unwrap();
        summary["summary"]["trajectories"].as_u64().unwrap()
    };
    let (exact, tolerant) = (near(&[]), near(&["--margin", "0.1"]));
    assert!(tolerant < exact, "{tolerant} of {exact}");
    let ran = lab.run_at(&endpoint, &eval(&["--stop-early"])).exits_with(2);
    assert!(ran.err.contains("--stop-early needs a gate"), "{}", ran.err);
    let ran = lab.run_at(&endpoint, &eval(&["--stop-early", "--gate", "cost <= 1"])).exits_with(2);
    assert!(ran.err.contains("is not about the verdicts of an evaluator"), "{}", ran.err);
}

/// A score that is gone cannot be worse: it is named, and with none left nothing is decided.
#[test]
fn scores_that_only_one_version_has_are_named() {
    let lab = Lab::with_cases(8);
    judge(&lab, "cases.jsonl", &["--name", "whole", "--save-baseline", "whole.baseline"], 0);
    let against = ["--baseline", "whole.baseline", "--fail-on", "regression"];
    let said = judge(&lab, "cases.jsonl", &[&["-e", "outcome"][..], &against].concat(), 0);
    assert!(said.contains("B has no value of ") && said.contains(": not compared."), "{said}");
    judge(&lab, "cases.jsonl", &["-e", "outcome", "--save-baseline", "outcome.baseline"], 0);
    let against = ["-e", "call_validity", "--baseline", "outcome.baseline", "--fail-on", "regression"];
    let said = judge(&lab, "cases.jsonl", &against, 2);
    assert!(said.contains("no score in common, so --fail-on could never fail"), "{said}");
    // The folder of an experiment has traces, and its results are elsewhere.
    std::fs::create_dir(lab.path("trials")).unwrap();
    lab.write("trials/trials.jsonl", "");
    let ran = lab.run(&["compare", "trials", "whole"]).exits_with(2);
    assert!(ran.err.contains("the folder of an experiment or a benchmark"), "{}", ran.err);
}
