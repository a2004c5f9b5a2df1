//! Several judges, and one judge several times: who decides, what it costs, and what is kept.

use std::collections::HashMap;
use std::process::Stdio;
use std::sync::Mutex;
use std::time::Duration;

use gradus_test_endpoint::{Answer, Endpoint, Incoming};
use serde_json::Value as Json;

use crate::lab::{Lab, case, case_of, endpoint, eval, kind_endpoint, step};

const PANEL: [&str; 6] = ["--judge", "gpt-4o", "--judge", "gpt-4o-mini", "--judge", "gpt-4.1"];

/// `eval` with three judges.
fn panel<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let mut arguments = eval(&PANEL);
    arguments.extend(more);
    arguments
}

/// The model that a request names.
pub(crate) fn model_of(incoming: &Incoming<'_>) -> String {
    let body: Json = serde_json::from_slice(incoming.body).unwrap();
    body["model"].as_str().unwrap().to_owned()
}

fn label(is_right: bool) -> &'static str {
    if is_right { "correct" } else { "incorrect" }
}

/// `gpt-4o` finds every fourth case wrong, `gpt-4o-mini` every second, `gpt-4.1` none.
fn split_endpoint() -> Endpoint {
    endpoint(|incoming| {
        let case = case_of(incoming);
        incoming.verdict(label(match model_of(incoming).as_str() {
            "gpt-4o" => !case.is_multiple_of(4),
            "gpt-4o-mini" => !case.is_multiple_of(2),
            _ => true,
        }))
    })
}

fn summary(lab: &Lab) -> Json {
    serde_json::from_str::<Json>(&lab.read("summary.json")).unwrap()["summary"].clone()
}

#[test]
fn the_most_votes_decide_and_every_vote_is_kept() {
    let lab = Lab::with_cases(40);
    let endpoint = split_endpoint();
    let outputs = ["--json", "summary.json", "--markdown", "report.md", "--html", "report.html"];
    let ran = lab.run_at(&endpoint, &panel(&outputs)).exits_with(0);
    assert_eq!(endpoint.received(), 120);
    assert!(ran.out.contains("Thought to tool accuracy:         75.00 %  (30 of 40"), "{}", ran.out);
    let lines = lab.lines("out.jsonl");
    assert!(lines.iter().all(|line| line["judge"] == "panel(openai:gpt-4o, openai:gpt-4o-mini, openai:gpt-4.1)"));
    let of_case = |number: usize| {
        let id = format!("case-{number}");
        lines.iter().find(|line| line["trajectory_id"] == id.as_str()).unwrap()
    };
    // All three against none, two against one, one against two.
    let expected = [(1, "correct", 3, 0.0), (2, "correct", 2, 1.0 / 3.0), (4, "incorrect", 2, 1.0 / 3.0)];
    for (number, label, votes, disagreement) in expected {
        let line = of_case(number);
        assert_eq!((&line["label"], &line["vote_count"]), (&Json::from(label), &Json::from(votes)), "{line}");
        assert_eq!(line["disagreement"], disagreement);
        assert_eq!((&line["calls"], &line["tokens"]["prompt"]), (&Json::from(3), &Json::from(1_200)));
    }
    let votes = of_case(2)["votes"].as_array().unwrap();
    let given: Vec<_> = votes.iter().map(|vote| (vote["judge"].as_str().unwrap(), &vote["label"])).collect();
    let (right, wrong) = (Json::from("correct"), Json::from("incorrect"));
    assert_eq!(given, [("openai:gpt-4o", &right), ("openai:gpt-4o-mini", &wrong), ("openai:gpt-4.1", &right)]);
    // 400 tokens in and 40 out, each at the price of its model.
    let costs: Vec<f64> = votes.iter().map(|vote| vote["cost_usd"].as_f64().unwrap()).collect();
    assert!((costs[0] - 0.0014).abs() < 1e-9 && (costs[1] - 0.000_084).abs() < 1e-9, "{costs:?}");
    assert!((of_case(2)["cost_usd"].as_f64().unwrap() - costs.iter().sum::<f64>()).abs() < 1e-9);
    let panel = summary(&lab)["panel"].clone();
    let judges = panel["judges"].as_array().unwrap();
    assert_eq!(
        (&judges[1]["votes"], &judges[1]["decided"], &judges[1]["agreeing"]),
        (&40.into(), &40.into(), &30.into())
    );
    let agreement = &panel["evaluators"][0];
    assert_eq!((&agreement["questions"], &agreement["unanimous"]), (&Json::from(40), &Json::from(20)));
    // Of 120 pairs of judges, 40 differ: two in each question that is not unanimous.
    assert!((agreement["judges_differ"].as_f64().unwrap() - 1.0 / 3.0).abs() < 1e-9, "{agreement}");
    assert_eq!(agreement["flip_rate"], Json::Null);
    assert_eq!(panel["disputed"].as_array().unwrap().len(), 20);
    for text in [ran.out, lab.read("report.md"), lab.read("report.html")] {
        assert!(text.contains("Agreement of votes") && text.contains("Disputed questions"), "{text}");
    }
}

#[test]
fn each_judge_has_its_own_answers_in_the_cache() {
    let lab = Lab::with_cases(10);
    let endpoint = split_endpoint();
    lab.run_at(&endpoint, &eval(&["--judge", "gpt-4o"])).exits_with(0);
    assert_eq!(endpoint.received(), 10);
    lab.run_at(&endpoint, &panel(&[])).exits_with(0);
    assert_eq!(endpoint.received(), 30, "gpt-4o has answered before");
    let cached: Vec<bool> = lab.lines("out.jsonl")[0]["votes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|vote| vote["cached"].as_bool().unwrap())
        .collect();
    assert_eq!(cached, [true, false, false]);
    let ran = lab.run_at(&endpoint, &panel(&[])).exits_with(0);
    assert_eq!(endpoint.received(), 30);
    assert!(ran.out.contains("$0.0000; 0 calls") && ran.out.contains("10 verdicts from the cache"), "{}", ran.out);
    // Any of them alone, too.
    lab.run_at(&endpoint, &eval(&["--judge", "gpt-4.1"])).exits_with(0);
    assert_eq!(endpoint.received(), 30);
    assert!(lab.lines("out.jsonl").iter().all(|line| line.get("votes").is_none() && line["cached"] == true));
}

#[test]
fn an_even_panel_that_is_tied_cannot_judge() {
    let lab = Lab::with_cases(8);
    let endpoint = split_endpoint();
    let two = ["--judge", "gpt-4o-mini", "--judge", "gpt-4.1", "--json", "summary.json"];
    let ran = lab.run_at(&endpoint, &eval(&two)).exits_with(0);
    let lines = lab.lines("out.jsonl");
    let tied: Vec<&Json> = lines.iter().filter(|line| line["outcome"] == "abstained").collect();
    assert_eq!(tied.len(), 4);
    for line in tied {
        assert_eq!(line["reason"], "the votes are tied: 1 correct, 1 incorrect");
        assert_eq!((&line["label"], &line["score"], &line["disagreement"]), (&Json::Null, &Json::Null, &0.5.into()));
    }
    assert!(ran.out.contains("(4 of 4"), "{}", ran.out);
    assert_eq!(summary(&lab)["panel"]["evaluators"][0]["tied"], 4);
    // A tie is an outcome: it is not asked again.
    lab.run_at(&endpoint, &eval(&two)).exits_with(0);
    assert_eq!(endpoint.received(), 16);
}

#[test]
fn a_scale_is_the_mean_of_the_votes() {
    let lab = Lab::with_cases(2);
    let rubric = "+++\nname = \"clarity\"\napplies_to = \"step\"\n[labels]\nclear = 5\nfair = 3\nunclear = 1\n+++\n\
                  Is this clear, fair or unclear? {thought}";
    lab.write("clarity.md", rubric);
    let endpoint = endpoint(|incoming| {
        incoming.verdict(match (model_of(incoming).as_str(), case_of(incoming)) {
            ("gpt-4o-mini", _) => "fair",
            ("gpt-4.1", 1) => "unclear",
            _ => "clear",
        })
    });
    let mut arguments = vec!["eval", "cases.jsonl", "--jsonl", "out.jsonl", "--rubrics", "clarity.md"];
    arguments.extend(["--evaluators", "clarity", "--json", "summary.json"]);
    arguments.extend(PANEL);
    lab.run_at(&endpoint, &arguments).exits_with(0);
    let lines = lab.lines("out.jsonl");
    assert_eq!((&lines[0]["label"], lines[0]["score"].as_f64().unwrap()), (&Json::from("clear"), 13.0 / 3.0));
    assert_eq!((&lines[1]["label"], &lines[1]["score"]), (&Json::from("fair"), &Json::from(3.0)));
    assert!((summary(&lab)["metrics"][0]["value"].as_f64().unwrap() - 11.0 / 3.0).abs() < 1e-9);
}

/// Answers the same request differently each time it comes.
pub(crate) fn counting_endpoint(script: impl Fn(&Incoming<'_>, u32) -> Answer + Send + Sync + 'static) -> Endpoint {
    let seen: Mutex<HashMap<u64, u32>> = Mutex::default();
    endpoint(move |incoming| {
        let time = {
            let mut seen = seen.lock().unwrap();
            let time = seen.entry(incoming.digest()).or_default();
            *time += 1;
            *time - 1
        };
        script(incoming, time)
    })
}

#[test]
fn repeats_show_how_often_a_judge_changes_its_mind() {
    let lab = Lab::with_cases(40);
    // Sure of three cases in four; of the others it changes its mind the last time.
    let endpoint = counting_endpoint(|incoming, time| {
        assert!(incoming.contains("\"temperature\":0.7"), "repeats are not asked at temperature 0");
        let case = case_of(incoming);
        incoming.verdict(label(if case.is_multiple_of(4) { time < 2 } else { !case.is_multiple_of(5) }))
    });
    let arguments = eval(&["--repeats", "3", "--json", "summary.json"]);
    let ran = lab.run_at(&endpoint, &arguments).exits_with(0);
    assert_eq!(endpoint.received(), 120);
    let lines = lab.lines("out.jsonl");
    assert!(lines.iter().all(|line| line["judge"] == "panel(openai:gpt-4o x3)"));
    assert!(lines.iter().all(|line| line["votes"].as_array().unwrap().len() == 3));
    let of_four = lines.iter().filter(|line| line["vote_count"] == 2).count();
    assert_eq!(of_four, 10);
    let agreement = summary(&lab)["panel"]["evaluators"][0].clone();
    // Two of three pairs differ in ten of forty questions.
    assert!((agreement["flip_rate"].as_f64().unwrap() - 20.0 / 120.0).abs() < 1e-9, "{agreement}");
    assert!(agreement["flip_interval"]["high"].as_f64().unwrap() > 20.0 / 120.0);
    assert_eq!(agreement["judges_differ"], Json::Null);
    let variance = &agreement["variance"];
    // Ten questions of three votes with a variance of 1/3 each, of forty.
    assert!((variance["judge"].as_f64().unwrap() - 1.0 / 12.0).abs() < 1e-9, "{variance}");
    let mean = |part: &str| variance[part].as_f64().unwrap();
    assert!((mean("mean_judge") - 1.0 / 36.0 / 40.0).abs() < 1e-12, "{variance}");
    let share = mean("mean_judge") / (mean("mean_judge") + mean("mean_agent"));
    assert!(share > 0.0 && share < 1.0 && ran.out.contains(&format!("{:.1} %", share * 100.0)), "{}", ran.out);
    // More repeats add to those that there are.
    lab.run_at(&endpoint, &eval(&["--repeats", "5"])).exits_with(0);
    assert_eq!(endpoint.received(), 200);
    // The first answer is not the one at temperature 0 that a single judge would give.
    let kind = kind_endpoint();
    lab.run_at(&kind, &eval(&["--base-url", &kind.url()])).exits_with(0);
    assert_eq!(kind.received(), 40);
}

#[test]
fn a_panel_decides_without_a_judge_that_is_down() {
    let lab = Lab::with_cases(30);
    let endpoint = endpoint(|incoming| match model_of(incoming).as_str() {
        "gpt-4.1" => Answer::status(404, "{\"error\":{\"message\":\"The model `gpt-4.1` does not exist\"}}"),
        _ => incoming.verdict("correct"),
    });
    let ran = lab.run_at(&endpoint, &panel(&["--json", "summary.json", "--concurrency", "6"])).exits_with(0);
    let lines = lab.lines("out.jsonl");
    assert!(lines.iter().all(|line| line["label"] == "correct" && line["vote_count"] == 2), "{}", lines[0]);
    let missing = &lines[0]["votes"][2];
    assert!(missing["label"].is_null() && missing["reason"].as_str().unwrap().contains("does not exist"), "{missing}");
    // It is not asked again and again.
    assert!(endpoint.received() <= 60 + 6, "{}", endpoint.received());
    assert_eq!(summary(&lab)["panel"]["judges"][2]["missing"], 30);
    assert!(ran.out.contains("Missing votes: openai:gpt-4.1:"), "{}", ran.out);
}

#[test]
fn a_panel_without_a_majority_stops() {
    let lab = Lab::with_cases(30);
    let endpoint = endpoint(|incoming| match model_of(incoming).as_str() {
        "gpt-4o" => incoming.verdict("correct"),
        _ => Answer::status(401, "{\"error\":{\"message\":\"Incorrect API key provided\"}}"),
    });
    let ran = lab.run_at(&endpoint, &panel(&["--concurrency", "3"])).exits_with(2);
    assert!(ran.err.contains("refused the key"), "{}", ran.err);
    assert!(lab.lines("out.jsonl").iter().all(|line| line["outcome"] != "scored"));
    // Of two judges, both are needed.
    let two = ["--judge", "gpt-4o", "--judge", "gpt-4.1"];
    lab.run_at(&endpoint, &eval(&two)).exits_with(2);
}

/// Requests that fail now and then cost a vote, and a question only if too few are left.
#[test]
fn single_votes_may_fail() {
    let lab = Lab::with_cases(20);
    let endpoint = endpoint(|incoming| {
        let (model, case) = (model_of(incoming), case_of(incoming));
        let is_failing = (model == "gpt-4.1" && case < 10) || (model == "gpt-4o-mini" && case < 5);
        if is_failing { Answer::status(500, "{}") } else { incoming.verdict("correct") }
    });
    lab.run_at(&endpoint, &panel(&["--retries", "0"])).exits_with(0);
    let lines = lab.lines("out.jsonl");
    let count = |outcome: &str| lines.iter().filter(|line| line["outcome"] == outcome).count();
    assert_eq!((count("failed"), count("scored")), (5, 15));
    let failed = lines.iter().find(|line| line["outcome"] == "failed").unwrap();
    assert!(
        failed["reason"].as_str().unwrap().starts_with("2 of 3 votes are missing: openai:gpt-4o-mini:"),
        "{failed}"
    );
    assert_eq!(failed["vote_count"], Json::Null);
}

#[test]
fn identical_questions_share_their_votes() {
    let lab = Lab::new();
    let mut lines = String::new();
    for number in 0..25 {
        let mut trajectory = case(number);
        if number < 20 {
            trajectory["query"] = "the same".into();
            trajectory["steps"] = serde_json::json!([step(1, "I will read file 7.md, as before.", 7)]);
        }
        lines.push_str(&(trajectory.to_string() + "\n"));
    }
    lab.write("cases.jsonl", &lines);
    let endpoint = endpoint(|incoming| incoming.verdict("correct").after(Duration::from_millis(50)));
    let ran = lab.run_at(&endpoint, &panel(&["--repeats", "2", "--concurrency", "500"])).exits_with(0);
    assert_eq!(endpoint.received(), 6 * 6);
    let lines = lab.lines("out.jsonl");
    assert_eq!(lines.len(), 25);
    assert!(lines.iter().all(|line| line["vote_count"] == 6));
    assert!(ran.out.contains("36 calls"), "{}", ran.out);
}

#[test]
fn limits_hold_for_all_judges_together() {
    let lab = Lab::with_cases(50);
    let endpoint = kind_endpoint();
    let ran = lab.run_at(&endpoint, &panel(&["--max-calls", "7", "--json", "summary.json"])).exits_with(0);
    assert_eq!(endpoint.received(), 7);
    assert!(ran.err.contains("the limit of 7 calls is reached"), "{}", ran.err);
    // Two questions have all votes; the seventh vote was paid for and is counted.
    let lines = lab.lines("out.jsonl");
    assert_eq!(lines.iter().filter(|line| line["outcome"] == "scored").count(), 2, "{lines:?}");
    assert_eq!(summary(&lab)["cost"]["calls"], 7);
    let open = lines.iter().find(|line| line["outcome"] == "failed").unwrap();
    assert_eq!(open["reason"], "the run stopped before all votes were there");
    // The rest is asked when the run goes on, and nothing twice.
    let ran = lab.run_at(&endpoint, &panel(&["--json", "summary.json"])).exits_with(0);
    assert!(ran.err.contains("taking up run"), "{}", ran.err);
    assert_eq!(endpoint.received(), 150);
    assert_eq!(summary(&lab)["cost"]["calls"], 150, "what the first part cost is not forgotten");
    assert!(lab.lines("out.jsonl").iter().all(|line| line["outcome"] == "scored"));
}

#[test]
fn dollars_of_all_judges_are_never_overdrawn() {
    let lab = Lab::with_cases(200);
    let endpoint = kind_endpoint();
    let limited = panel(&["--max-cost", "0.09", "--json", "summary.json"]);
    let ran = lab.run_at(&endpoint, &limited).exits_with(0);
    assert!(ran.err.contains("and go over the limit of $0.09"), "{}", ran.err);
    let spent = summary(&lab)["cost"]["usd"].as_f64().unwrap();
    assert!(spent > 0.03 && spent <= 0.09, "{spent}");
    assert_eq!(summary(&lab)["cost"]["calls"], endpoint.received());
    let before = endpoint.received();
    lab.run_at(&endpoint, &limited).exits_with(0);
    assert!(endpoint.received() <= before + 1, "taking the run up does not give it the money again");
    let unpriced = lab.run_at(&endpoint, &eval(&["--judge", "gpt-4o", "--judge", "mine", "--max-cost", "1"]));
    assert!(unpriced.exits_with(2).err.contains("the price of \"mine\" is not known"));
}

#[test]
fn a_dry_run_counts_judges_and_repeats() {
    let lab = Lab::with_cases(50);
    let endpoint = kind_endpoint();
    let dry = |more: &[&str]| lab.run_at(&endpoint, &panel(more)).exits_with(0).out;
    let text = dry(&["--dry-run", "--repeats", "2"]);
    assert!(text.contains("3 judges x 2 repeats = 6 votes for each question"), "{text}");
    assert!(text.contains("thought_to_tool                  50        0      300"), "{text}");
    assert_eq!(endpoint.received(), 0);
    lab.run_at(&endpoint, &panel(&["--repeats", "2"])).exits_with(0);
    let text = dry(&["--dry-run", "--repeats", "3"]);
    assert!(text.contains("thought_to_tool                  50      300      150"), "{text}");
    // Each judge at its own price: gpt-4o costs as much alone as the difference.
    let dollars = |arguments: &[&str]| -> f64 {
        let text = lab.run_at(&endpoint, arguments).exits_with(0).out;
        let at = text.find("About $").unwrap() + "About $".len();
        text[at..].split(',').next().unwrap().parse().unwrap()
    };
    let dry = |judges: &[&'static str]| {
        let mut arguments = eval(&["--dry-run", "--fresh"]);
        judges.iter().for_each(|judge| arguments.extend(["--judge", judge]));
        dollars(&arguments)
    };
    let (both, one, other) = (dry(&["gpt-4o", "gpt-4o-mini"]), dry(&["gpt-4o"]), dry(&["gpt-4o-mini"]));
    assert!((both - one - other).abs() < 2e-4 && one > 5.0 * other, "{both} {one} {other}");
}

const KILLS: usize = 12;
const IN_FLIGHT: usize = 30;

/// Votes survive in the cache, whatever moment the process dies at.
#[test]
fn a_panel_that_is_killed_asks_for_no_vote_twice() {
    let lab = Lab::with_cases(1_000);
    let endpoint =
        endpoint(|incoming| incoming.verdict("correct").after(Duration::from_millis(20 + incoming.digest() % 20)));
    let in_flight = IN_FLIGHT.to_string();
    let arguments = panel(&["--concurrency", &in_flight, "--json", "summary.json"]);
    let mut random = fastrand::Rng::with_seed(5);
    for _ in 0..KILLS {
        let mut child =
            lab.command_at(&endpoint, &arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let before = endpoint.received();
        // At a random moment after the run has asked something.
        let asked = random.u64(1..150);
        while endpoint.received() < before + asked {
            std::thread::sleep(Duration::from_millis(1));
        }
        child.kill().unwrap();
        assert!(!child.wait().unwrap().success());
    }
    let ran = lab.run_at(&endpoint, &arguments).exits_with(0);
    assert!(ran.err.contains("taking up run"), "{}", ran.err);
    let lines = lab.lines("out.jsonl");
    assert_eq!(lines.len(), 1_000);
    assert!(lines.iter().all(|line| line["vote_count"] == 3));
    let lost = endpoint.received() - 3_000;
    println!("{KILLS} kills: {lost} of 3000 votes were asked for twice");
    assert!(lost <= (KILLS * IN_FLIGHT) as u64, "{lost}");
    let before = endpoint.received();
    lab.run_at(&endpoint, &arguments).exits_with(0);
    assert_eq!(endpoint.received(), before);
    // A cache that is lost comes back from the votes in the log of a run that was cut off.
    let (_, runs) = (lab.path(".gradus"), lab.path(".gradus/runs"));
    for run in std::fs::read_dir(runs).unwrap() {
        let path = run.unwrap().path().join("run.json");
        let text = std::fs::read_to_string(&path).unwrap().replace("\"finished\"", "\"running\"");
        std::fs::write(path, text).unwrap();
    }
    std::fs::remove_file(lab.path(".gradus/cache/verdicts.jsonl")).unwrap();
    lab.run_at(&endpoint, &eval(&["--judge", "gpt-4.1"])).exits_with(0);
    assert_eq!(endpoint.received(), before);
}

#[test]
fn gates_stop_early_with_a_panel() {
    let lab = Lab::with_cases(400);
    let endpoint = split_endpoint();
    let gate = ["--gate", "thought_to_tool >= 0.3", "--stop-early"];
    let ran = lab.run_at(&endpoint, &panel(&gate)).exits_with(0);
    assert!(ran.out.contains("decided after") && ran.out.contains("of 400 runs"), "{}", ran.out);
    let judged = lab.lines("out.jsonl");
    assert!(judged.len() < 200 && judged.iter().all(|line| line["votes"].as_array().unwrap().len() == 3));
}

#[test]
fn raw_responses_of_every_judge_are_kept() {
    let lab = Lab::with_cases(2);
    let endpoint = split_endpoint();
    lab.run_at(&endpoint, &panel(&[])).exits_with(0);
    let ran = lab.run(&["report", "--raw-responses"]).exits_with(0);
    for judge in ["openai:gpt-4o", "openai:gpt-4o-mini", "openai:gpt-4.1"] {
        assert_eq!(ran.out.matches(&format!("by {judge}, answer 1:")).count(), 2, "{}", ran.out);
    }
    let (_, responses) = ran.out.split_once("Responses of the judge").unwrap();
    assert_eq!(responses.matches("The call does what the thought sets out to do").count(), 6, "{}", ran.out);
}

#[test]
fn one_judge_that_is_asked_once_leaves_no_trace_of_panels() {
    let lab = Lab::with_cases(3);
    lab.run_at(&kind_endpoint(), &eval(&["--json", "summary.json"])).exits_with(0);
    let summary = summary(&lab);
    assert!(summary.get("panel").is_none());
    for line in lab.lines("out.jsonl") {
        for field in ["votes", "vote_count", "disagreement", "escalated", "first_label"] {
            assert!(line.get(field).is_none(), "{field}");
        }
    }
    let run = std::fs::read_dir(lab.path(".gradus/runs")).unwrap().next().unwrap().unwrap().path();
    assert!(!std::fs::read_to_string(run.join("run.json")).unwrap().contains("\"panel\""));
    assert!(std::fs::read_to_string(run.join("outcomes.jsonl")).unwrap().starts_with("{\"k\":\""));
}

#[test]
fn judges_that_make_no_panel_are_refused() {
    let lab = Lab::with_cases(3);
    let endpoint = kind_endpoint();
    let refused = |more: &[&str], parts: &[&str]| {
        let ran = lab.run_at(&endpoint, &eval(more)).exits_with(2);
        assert!(parts.iter().all(|part| ran.err.contains(part)), "{more:?}: {}", ran.err);
    };
    refused(&["--judge", "gpt-4o", "--judge", "openai:gpt-4o"], &["openai:gpt-4o is given twice", "hint: --repeats 2"]);
    refused(&["--judge", "gpt-4o", "--judge", "offline"], &["rules cannot vote with models", "hint: leave it out"]);
    refused(&["--repeats", "0"], &["--repeats: give a number from 1 to 9"]);
    refused(&["--repeats", "10"], &["--repeats: give a number from 1 to 9"]);
    let many = [&PANEL[..], &["--repeats", "4"]].concat();
    refused(&many, &["3 judges x 4 repeats are 12 votes on each question, more than 9", "hint: name fewer judges"]);
    refused(&["--judge", "offline", "--repeats", "3"], &["always gives the same answer"]);
    let two = ["--judge", "gpt-4o", "--judge", "anthropic:claude-x", "--base-url", "http://127.0.0.1:9/v1"];
    let mut command = lab.command_at(&endpoint, &eval(&two));
    command.env("ANTHROPIC_API_KEY", "sk-ant");
    let ran = crate::lab::Ran::from_output(command.output().unwrap()).exits_with(2);
    assert!(ran.err.contains("the judges have several providers"), "{}", ran.err);
    assert_eq!(endpoint.received(), 0);
}
