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
    assert!(ran.out.contains("Thought-to-Tool accuracy:         75.00 %  (12 of 16"), "{}", ran.out);
    assert_eq!(lab.read("o.jsonl"), first);
    let summary: Json = serde_json::from_str(&lab.read("s.json")).unwrap();
    assert_eq!(summary["summary"]["metrics"][0]["numerator"], 12.0);
    let junit = lab.read("j.xml");
    assert!(junit.contains("tests=\"16\" skipped=\"0\" failures=\"4\""), "{junit}");
    assert!(!junit.contains('\u{1b}') && !junit.contains("<script>"));
    let markdown = lab.read("m.md");
    assert!(markdown.contains("| Thought-to-Tool | 75.00 % |"), "{markdown}");
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
    assert_eq!(list.out.lines().count(), 1);
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
fn all_five_tables_of_a_full_run() {
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
            "call_validity.csv",
            "combined.csv",
            "query_to_thought.csv",
            "sequence_optimality.csv",
            "steps.csv",
            "thought_to_tool.csv"
        ]
    );
    assert!(lab.read("out/tables/combined.csv").lines().next().unwrap().ends_with("both_correct"));
}

#[test]
fn gates_pass_fail_or_cannot_tell() {
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
    let ran = gate(&["thought_to_tool >= 0.85"]).exits_with(0);
    assert!(ran.out.contains("INCONCLUSIVE") && ran.out.contains("more trajectories would tell"), "{}", ran.out);
    lab.run(&["report", "--gate", "thought_to_tool >= 0.85", "--strict"]).exits_with(3);
    gate(&["cost <= 0.001"]).exits_with(3);
    let ran = gate(&["combined >= 0"]).exits_with(3);
    assert!(ran.out.contains("nothing was judged, so the gate cannot pass"), "{}", ran.out);
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
