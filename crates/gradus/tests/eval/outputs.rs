//! Every form of the results, and the gates.

use serde_json::Value as Json;

use crate::lab::{Lab, case, endpoint, eval};

/// Twelve right, four wrong, and content that attacks whoever shows it.
fn lab() -> Lab {
    let lab = Lab::new();
    let mut lines = String::new();
    for number in 0..16 {
        let mut trajectory = case(number);
        trajectory["query"] = "=HYPERLINK(\"http://evil\")<script>alert(1)</script> & | `x` \u{1b}[31m \u{202e}".into();
        trajectory["steps"][0]["tool"] = "@tool]]>".into();
        lines.push_str(&(trajectory.to_string() + "\n"));
    }
    lab.write("cases.jsonl", &lines);
    let endpoint =
        endpoint(|incoming| incoming.verdict(if incoming.number % 4 == 0 { "incorrect" } else { "correct" }));
    lab.run_at(&endpoint, &eval(&["--concurrency", "1"])).exits_with(0);
    lab
}

#[test]
fn report_makes_all_of_them_again() {
    let lab = lab();
    let first = lab.read("out.jsonl");
    let outputs = [
        "--csv",
        "csv",
        "--json",
        "s.json",
        "--jsonl",
        "o.jsonl",
        "--junit",
        "j.xml",
        "--markdown",
        "m.md",
        "--html",
        "p.html",
    ];
    let ran = lab.run(&[&["report"][..], &outputs].concat()).exits_with(0);
    assert!(ran.out.contains("Thought to tool accuracy:         75.00 %  (12 of 16"), "{}", ran.out);
    assert_eq!(lab.read("o.jsonl"), first);
    let summary: Json = serde_json::from_str(&lab.read("s.json")).unwrap();
    assert_eq!(summary["summary"]["metrics"][0]["numerator"], 12.0);
    let junit = lab.read("j.xml");
    assert!(junit.contains("tests=\"16\" skipped=\"4\" failures=\"0\""), "without a gate nothing fails: {junit}");
    assert!(!junit.contains('\u{1b}') && !junit.contains("<script>"));
    let markdown = lab.read("m.md");
    assert!(markdown.contains("| Thought to tool | 75.00 % |"), "{markdown}");
    assert!(!markdown.contains("<script") && !markdown.contains("](http"));
    let page = lab.read("p.html");
    assert!(page.contains("75.0") && !page.contains("<script"));
    for name in ["steps", "thought_to_tool", "combined"] {
        let table = lab.read(&format!("csv/{name}.csv"));
        assert_eq!(table.lines().count(), 17, "{name}");
        let mut reader = csv::Reader::from_reader(table.as_bytes());
        for record in reader.records() {
            let record = record.unwrap();
            assert!(record.iter().all(|cell| !cell.starts_with(['=', '+', '@', '\t', '\r'])), "{record:?}");
        }
    }
    for text in [ran.out.as_str(), &first] {
        assert!(!text.contains('\u{1b}') && !text.contains('\u{202e}'));
    }
    lab.run(&["report", "nothing"]).exits_with(2);
    let list = lab.run(&["report", "--list"]).exits_with(0);
    assert!(list.err.contains("--list is now `gradus runs`"), "{}", list.err);
    assert_eq!(list.out.lines().filter(|line| line.contains("finished")).count(), 1, "{}", list.out);
}

#[test]
fn gates_of_the_run_are_shown_again_and_decide_nothing() {
    let lab = Lab::with_cases(4);
    let endpoint = endpoint(|incoming| incoming.verdict("incorrect"));
    lab.run_at(&endpoint, &eval(&["--gate", "thought_to_tool >= 0.9", "--gate", "failed <= 0.5"])).exits_with(3);
    let ran = lab.run(&["report", "--html", "p.html", "--junit", "j.xml", "--json", "s.json"]).exits_with(0);
    assert!(ran.out.contains("FAIL") && ran.out.contains("thought_to_tool >= 0.9"), "{}", ran.out);
    assert!(lab.read("p.html").contains("id=\"gates\""));
    let document: Json = serde_json::from_str(&lab.read("s.json")).unwrap();
    assert_eq!(document["gates"].as_array().map(Vec::len), Some(2));
    assert!(lab.read("j.xml").contains("failures=\"0\""), "{}", lab.read("j.xml"));
    // Those that are given take their place, and decide.
    let ran = lab.run(&["report", "--gate", "failed <= 0.5"]).exits_with(0);
    assert!(!ran.out.contains("thought_to_tool >= 0.9"), "{}", ran.out);
    lab.run(&["report", "--gate", "thought_to_tool >= 0.9"]).exits_with(3);
}

#[test]
fn standard_output_is_for_one_reader() {
    let lab = lab();
    let ran = lab.run(&["report", "--jsonl", "-"]).exits_with(0);
    assert_eq!(ran.out, lab.read("out.jsonl"));
    let ran = lab.run(&["report", "--json", "-"]).exits_with(0);
    assert!(serde_json::from_str::<Json>(&ran.out).is_ok());
}

#[test]
fn a_table_for_each_evaluator_and_two_for_all() {
    let lab = Lab::with_cases(3);
    lab.run(&["eval", "cases.jsonl", "--judge", "offline", "--csv", "out/tables"]).exits_with(0);
    let mut names: Vec<String> = std::fs::read_dir(lab.path("out/tables"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(
        names,
        [
            "argument_provenance.csv",
            "call_validity.csv",
            "combined.csv",
            "error_recovery.csv",
            "outcome.csv",
            "query_to_thought.csv",
            "request_to_tool.csv",
            "sequence_optimality.csv",
            "steps.csv",
            "task_completion.csv",
            "thought_to_tool.csv"
        ]
    );
    assert!(lab.read("out/tables/combined.csv").lines().next().unwrap().ends_with("both_correct,trace_id,span_ids"));
}

#[test]
fn the_estimate_decides_gates() {
    let lab = lab();
    let gate = |rules: &[&str]| {
        let mut arguments = vec!["report"];
        rules.iter().for_each(|rule| arguments.extend(["--gate", rule]));
        lab.run(&arguments)
    };
    // 12 of 16: between 50.5 and 89.8 %.
    let ran = gate(&["thought_to_tool >= 0.4", "failed <= 0.02", "cost <= 5"]).exits_with(0);
    assert_eq!(ran.out.matches("PASS").count(), 3, "{}", ran.out);
    let ran = gate(&["thought_to_tool >= 0.95"]).exits_with(3);
    assert!(ran.out.contains("FAIL"), "{}", ran.out);
    let ran = gate(&["thought_to_tool >= 0.85"]).exits_with(3);
    assert!(ran.out.contains("75.0 % of 16, interval 50.5 to 89.8 %; missed, but the interval"), "{}", ran.out);
    assert!(ran.out.contains("more runs would decide"), "{}", ran.out);
    let upper = ["report", "--gate", "thought_to_tool >= 0.85", "--gate-on", "upper"];
    lab.run(&upper).exits_with(0);
    let ran = lab.run(&["report", "--gate", "thought_to_tool >= 0.7", "--strict"]).exits_with(3);
    assert!(ran.err.contains("--strict is now --gate-on lower"), "{}", ran.err);
    gate(&["thought_to_tool >= 0.7", "steps <= 1", "thought_to_tool{tool=@tool]]>} >= 0.7"]).exits_with(0);
    gate(&["cost <= 0.001"]).exits_with(3);
    let ran = gate(&["combined >= 0"]).exits_with(2);
    assert!(ran.err.contains("\"combined\" needs the evaluators thought_to_tool, query_to_thought"), "{}", ran.err);
}

#[test]
fn junit_agrees_with_the_exit_code_and_has_stable_names() {
    let lab = lab();
    let junit = |more: &[&str], code| {
        lab.run(&[&["report", "--junit", "j.xml"][..], more].concat()).exits_with(code);
        lab.read("j.xml")
    };
    let passing = junit(&["--gate", "thought_to_tool >= 0.4"], 0);
    assert!(passing.contains("failures=\"0\" errors=\"0\""), "{passing}");
    let failing = junit(&["--gate", "thought_to_tool >= 0.95"], 3);
    assert_eq!(failing.matches("<failure").count(), 5, "the gate and four verdicts: {failing}");
    assert!(failing.contains("<testcase name=\"thought_to_tool &gt;= 0.95\" classname=\"gradus.gates\">"), "{failing}");
    assert_eq!(junit(&["--junit-failures", "verdicts"], 0).matches("<failure").count(), 4);
    let names: Vec<&str> =
        failing.lines().filter_map(|line| line.trim().strip_prefix("<testcase name=\"")?.split('"').next()).collect();
    assert!(names.iter().all(|name| !name.contains("case-")), "{names:?}");
    let unique: std::collections::BTreeSet<&&str> = names.iter().collect();
    assert_eq!(unique.len(), names.len(), "{names:?}");
    assert!(names[1].ends_with(": step 1 @tool]]&gt;") && names[2].contains(" (2): step 1"), "{names:?}");
}

#[test]
fn outcomes_can_be_joined_with_traces() {
    let lab = Lab::new();
    let mut trajectory = case(0);
    trajectory["trace_ids"] = serde_json::json!(["0af7651916cd43dd8448eb211c80319c"]);
    trajectory["root_span_id"] = "b7ad6b7169203331".into();
    trajectory["steps"][0]["span_ids"] = serde_json::json!(["00f067aa0ba902b7", "00f067aa0ba902b8"]);
    lab.write("cases.jsonl", &(trajectory.to_string() + "\n"));
    lab.run(&["eval", "cases.jsonl", "--judge", "offline", "--jsonl", "out.jsonl", "--csv", "csv"]).exits_with(0);
    for line in lab.read("out.jsonl").lines() {
        let outcome: Json = serde_json::from_str(line).unwrap();
        let spans = match outcome["step_index"].as_u64() {
            Some(_) => serde_json::json!(["00f067aa0ba902b7", "00f067aa0ba902b8"]),
            None => serde_json::json!(["b7ad6b7169203331"]),
        };
        assert_eq!((&outcome["trace_id"], &outcome["span_ids"]), (&trajectory["trace_ids"][0], &spans), "{line}");
    }
    for table in ["steps", "combined", "call_validity"] {
        let text = lab.read(&format!("csv/{table}.csv"));
        let row = text.lines().last().unwrap();
        assert!(row.ends_with(",0af7651916cd43dd8448eb211c80319c,00f067aa0ba902b7 00f067aa0ba902b8"), "{table}: {row}");
    }
}

#[test]
fn wrong_verdicts_are_grouped_by_reason() {
    let lab = Lab::new();
    let lines: Vec<String> = (0..6)
        .map(|number| {
            let mut trajectory = case(number);
            // The argument is missing in all but the last.
            if number < 5 {
                trajectory["steps"][0]["arguments"] = serde_json::json!({"file": format!("{number}.md")});
                trajectory["steps"][0]["observation"] = "Invalid arguments: path is required".into();
                trajectory["steps"][0]["is_error"] = true.into();
            }
            trajectory.to_string() + "\n"
        })
        .collect();
    lab.write("cases.jsonl", &lines.concat());
    let arguments = ["eval", "cases.jsonl", "--judge", "offline", "--json", "s.json", "--markdown", "m.md"];
    let ran = lab.run(&arguments).exits_with(0);
    let document: Json = serde_json::from_str(&lab.read("s.json")).unwrap();
    let groups = document["summary"]["failure_groups"].as_array().unwrap();
    let group = groups.iter().find(|group| group["evaluator"] == "call_validity").unwrap();
    assert_eq!((&group["count"], &group["tool"]), (&5.into(), &"read_file".into()), "{groups:?}");
    assert_eq!(group["rule"], "call.schema");
    assert_eq!(group["examples"].as_array().unwrap().len(), 3);
    let reason = group["reason"].as_str().unwrap();
    // Names are told apart, values are not.
    assert!(reason.contains("<text>") && reason.contains("`path` is missing"), "{reason}");
    let shown = reason.replace("<text>", "…");
    assert!(ran.out.contains("Failure groups") && ran.out.contains(&shown), "{}", ran.out);
    assert!(lab.read("m.md").contains("| failure group |"));
    // The same again from the files of the run.
    lab.run(&["report", "--json", "again.json"]).exits_with(0);
    let again: Json = serde_json::from_str(&lab.read("again.json")).unwrap();
    assert_eq!(again["summary"]["failure_groups"], document["summary"]["failure_groups"]);
}

#[test]
fn the_cost_of_the_agent_is_estimated_from_tokens() {
    let lab = Lab::new();
    let models = [("mine", 0.0), ("mine", 0.5), ("stranger", 0.0), ("stranger", 0.0)];
    let lines: Vec<String> = models
        .into_iter()
        .enumerate()
        .map(|(number, (model, recorded))| {
            let mut trajectory = case(number);
            trajectory["model"] = model.into();
            trajectory["tokens"] = serde_json::json!({"prompt": 1_000_000, "completion": 0, "cached_prompt": 500_000});
            if recorded > 0.0 {
                trajectory["cost_usd"] = recorded.into();
            }
            trajectory.to_string() + "\n"
        })
        .collect();
    lab.write("cases.jsonl", &lines.concat());
    lab.write("prices.toml", "[\"mine\"]\ninput = 2\noutput = 1\ncached_input = 1\n");
    let arguments = ["eval", "cases.jsonl", "--judge", "offline", "--prices", "prices.toml", "--json", "s.json"];
    let ran = lab.run(&arguments).exits_with(0);
    let text = "$2.00 (recorded for 1 run, estimated from tokens for 1; 2 runs with unknown price: stranger)";
    assert!(ran.out.contains(&format!("Agent cost  {text}")), "{}", ran.out);
    // The prices are those of the run.
    std::fs::remove_file(lab.path("prices.toml")).unwrap();
    assert!(lab.run(&["report"]).exits_with(0).out.contains(text));
    let document: Json = serde_json::from_str(&lab.read("s.json")).unwrap();
    assert_eq!(document["summary"]["agent_cost"]["usd"], 2.0);
    assert_eq!(document["summary"]["agent_cost"]["unpriced_models"][0]["model"], "stranger");
    // What gates, baselines and comparisons are given is the same: the mean over runs whose cost is known.
    let runs: Json = serde_json::from_str(&lab.run(&["runs", "--json"]).exits_with(0).out).unwrap();
    assert_eq!(runs[0]["metrics"]["agent_cost"], 1.0);
    let ran = lab.run(&["report", "--gate", "agent_cost <= 1"]).exits_with(6);
    assert!(ran.out.contains("not decided: 2 of 4 runs have no known price"), "{}", ran.out);
    lab.run(&["report", "--gate", "agent_cost <= 1", "--allow-partial"]).exits_with(0);
    lab.run(&["report", "--gate", "agent_cost < 1"]).exits_with(3);
}

#[test]
fn the_latest_run_has_a_name_of_its_own() {
    let lab = Lab::with_cases(2);
    lab.run(&["eval", "cases.jsonl", "--judge", "offline", "--name", "v1"]).exits_with(0);
    lab.run(&["report", "latest"]).exits_with(0);
    let ran = lab.run(&["compare", "latest", "v1"]).exits_with(0);
    assert!(ran.out.contains("A and B are the same run"), "{}", ran.out);
    let ran = lab.run(&["eval", "cases.jsonl", "--judge", "offline", "--name", "latest"]).exits_with(2);
    assert!(ran.err.contains("it is the name of the latest run"), "{}", ran.err);
}

#[test]
fn relative_gates_of_a_run_are_shown_with_a_baseline() {
    let lab = Lab::with_cases(2);
    let judge = ["eval", "cases.jsonl", "--judge", "offline", "--fresh"];
    lab.run(&[&judge[..], &["--save-baseline", "v1.baseline"]].concat()).exits_with(0);
    lab.run(&[&judge[..], &["--baseline", "v1.baseline", "--gate", "steps <= baseline"]].concat()).exits_with(0);
    let ran = lab.run(&["report", "--baseline", "v1.baseline"]).exits_with(0);
    assert!(ran.out.contains("PASS       steps <= baseline") && !ran.err.contains("cannot be shown"), "{}", ran.err);
    assert!(lab.run(&["report"]).exits_with(0).err.contains("there is no baseline"));
}

#[test]
fn raw_responses_are_kept_with_the_run_and_nowhere_else() {
    let lab = Lab::with_cases(3);
    // One answer is no verdict, one is far too long.
    let endpoint = endpoint(|incoming| {
        let content = match crate::lab::case_of(incoming) {
            0 => "I cannot \u{1b}[31mdecide".to_owned(),
            1 => format!("{}\nLABEL: correct", "reasoning ".repeat(2_000)),
            _ => "EXPLANATION: short\nLABEL: incorrect".to_owned(),
        };
        let message = serde_json::json!({"role": "assistant", "content": content});
        let reply = serde_json::json!({"choices": [{"message": message, "finish_reason": "stop"}]});
        gradus_test_endpoint::Answer::ok(reply.to_string())
    });
    lab.run_at(&endpoint, &eval(&["--ask-again", "0"])).exits_with(0);
    let ran = lab.run(&["report", "--raw-responses"]).exits_with(0);
    assert!(ran.out.contains("case-0 step 1 thought_to_tool: no verdict"), "{}", ran.out);
    assert!(ran.out.contains("I cannot") && !ran.out.contains('\u{1b}'), "{}", ran.out);
    assert!(ran.out.contains("bytes not stored]"), "{}", ran.out);
    assert!(ran.out.contains("  EXPLANATION: short\n  LABEL: incorrect"), "{}", ran.out);
    let cached = std::fs::metadata(lab.path(".gradus/cache/verdicts.jsonl")).unwrap().len();
    assert!(!lab.read("out.jsonl").contains("EXPLANATION: short"), "outcomes have what was parsed");
    assert!(cached < 60_000, "{cached}");
    lab.run(&["report", "--raw-responses", "--json", "-"]).exits_with(2);
    // A second run answers from the cache, and says so.
    lab.run_at(&endpoint, &eval(&["--ask-again", "0", "--state-dir", ".gradus"])).exits_with(0);
    let again = lab.run(&["report", "--raw-responses"]).exits_with(0);
    assert!(again.out.contains("no response: the verdict is from the cache of an earlier run"), "{}", again.out);
}

#[test]
fn no_colour_where_nobody_sees_it() {
    let lab = lab();
    assert!(!lab.run(&["report"]).out.contains('\u{1b}'));
    let forced = lab.command(&["report"]).env("CLICOLOR_FORCE", "1").output().unwrap();
    assert!(String::from_utf8(forced.stdout).unwrap().contains("\u{1b}[1m"));
    let refused = lab.command(&["report"]).env("CLICOLOR_FORCE", "1").env("NO_COLOR", "1").output().unwrap();
    assert!(!String::from_utf8(refused.stdout).unwrap().contains('\u{1b}'));
}
