//! Rubrics that are tried on many cases: the plan, its limits, what changed, cancelling and restarts.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gradus_test_endpoint::{Endpoint, Incoming};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use crate::lab::{Lab, Server, eventually, json_lines};
use crate::pages::{page, post};
use crate::spans::{Visit, trace_id};

const VISITS: u128 = 12;
/// What is added to the rubric. The judge heeds it.
const STRICT: &str = "And be strict.";
/// Longer than any test waits.
const NEVER: Duration = Duration::from_secs(3_600);

/// A judge, and what it was asked.
struct Judge {
    endpoint: Endpoint,
    /// Questions with the changed rubric.
    asked: Arc<AtomicUsize>,
    /// Bodies of those that were answered.
    answered: Arc<Mutex<HashSet<Vec<u8>>>>,
    /// Whether the third and later of them are not answered.
    is_stuck: Arc<AtomicBool>,
}

/// Finds every third file wrong if it is told to be strict, and else nothing.
fn start_judge() -> Judge {
    let asked = Arc::new(AtomicUsize::new(0));
    let answered = Arc::new(Mutex::new(HashSet::new()));
    let is_stuck = Arc::new(AtomicBool::new(false));
    let (count, known, stuck) = (Arc::clone(&asked), Arc::clone(&answered), Arc::clone(&is_stuck));
    let endpoint = Endpoint::start(Arc::new(move |incoming: &Incoming<'_>| {
        if !incoming.contains(STRICT) {
            return incoming.verdict("correct");
        }
        let number = count.fetch_add(1, Ordering::Relaxed);
        let text = String::from_utf8_lossy(incoming.body);
        let at = text.rfind("I will read file ").unwrap() + "I will read file ".len();
        let file: u32 = text[at..].split('.').next().unwrap().parse().unwrap();
        let answer = incoming.verdict(if file.is_multiple_of(3) { "incorrect" } else { "correct" });
        if stuck.load(Ordering::Relaxed) && number >= 2 {
            return answer.after(NEVER);
        }
        known.lock().unwrap().insert(incoming.body.to_vec());
        answer
    }))
    .unwrap();
    Judge { endpoint, asked, answered, is_stuck }
}

/// A server with graded traces.
fn start(judge: &Judge, more: &str) -> (Lab, Server) {
    let rule = format!(
        "[[rule]]\nproject = \"shop\"\njudge = \"gpt-4o\"\nevaluators = [\"thought_to_tool\"]\nbase_url = \"{}\"\n{more}\n\
         [[rule]]\nname = \"rest\"\n",
        judge.endpoint.url()
    );
    let lab = Lab::with("", &rule);
    let server = lab.serve();
    for trace in 1..=VISITS {
        server.export(&Visit::new(trace).export("shop"));
    }
    eventually("all are graded", || {
        let metrics = server.json("/api/v1/metrics?evaluator=thought_to_tool");
        let counted = metrics["items"].as_array()?.iter().filter_map(|item| item["scored"].as_u64()).sum::<u64>();
        (counted == VISITS as u64).then_some(())
    });
    (lab, server)
}

/// The text of the rubric as the page has it, made strict.
fn strict_text(server: &Server) -> String {
    let text = page(server, "/rubrics/thought_to_tool");
    let source = text.split("<textarea").nth(1).unwrap().split_once('>').unwrap().1.split("</textarea").next().unwrap();
    let source = source.replace("&#34;", "\"").replace("&#39;", "'").replace("&#60;", "<").replace("&#62;", ">");
    format!("{}\n\n{STRICT}\n", source.replace("&#38;", "&").trim_end())
}

/// Sends the form; where it leads to.
fn plan(server: &Server, fields: &str) -> String {
    let text = utf8_percent_encode(&strict_text(server), NON_ALPHANUMERIC).to_string();
    let body = format!("text={text}&bulk_project=shop&{fields}");
    let reply = post(server, "/rubrics/thought_to_tool/trials", &body);
    assert_eq!(reply.status, 303, "{}", reply.text());
    reply.header("location").unwrap().split('#').next().unwrap().to_owned()
}

/// Presses a button of a trial; the page that follows.
fn press(server: &Server, trial: &str, what: &str) -> String {
    let reply = post(server, trial, &format!("what={what}"));
    assert_eq!(reply.status, 303, "{}", reply.text());
    page(server, reply.header("location").unwrap())
}

fn wait_for(server: &Server, trial: &str, words: &str) -> String {
    eventually(words, || Some(page(server, trial)).filter(|text| text.contains(words)))
}

fn label_case(server: &Server, trace: u128, label: &str) {
    let id = server.trace(&trace_id(trace))["trajectories"][0]["trajectory_id"].as_str().unwrap().to_owned();
    let fields = format!("trajectory={id}&step=1&evaluator=thought_to_tool&label={label}&author=ann&back=/");
    let reply = post(server, "/labels", &fields);
    assert_eq!(reply.status, 303, "{}", reply.text());
}

#[test]
fn a_changed_rubric_is_compared_with_the_present_one_and_with_people() {
    let judge = start_judge();
    let (lab, server) = start(&judge, "");
    for (trace, label) in [(3, "incorrect"), (6, "incorrect"), (4, "correct"), (5, "incorrect")] {
        label_case(&server, trace, label);
    }
    let trial = plan(&server, "cases=latest&traces=50&max_calls=100&max_usd=1.50");
    let planned = page(&server, &trial);
    assert!(
        planned.contains("12 questions to ask, about $") && planned.contains("stops at 100 calls and $1.50"),
        "{planned}"
    );
    assert!(planned.contains("Run the trial") && !planned.contains("Agreement with people"), "{planned}");
    assert_eq!(judge.asked.load(Ordering::Relaxed), 0, "a plan asks nobody");
    press(&server, &trial, "run");
    let done = wait_for(&server, &trial, "<b>12 of 12</b> finished");
    assert_eq!(judge.asked.load(Ordering::Relaxed), 12);
    assert!(done.contains("<b>4 of 12</b> verdicts changed"), "{done}");
    assert!(done.contains("Of 4 labels, 2 agree now and did not before; 0 agree no longer."), "{done}");
    assert!(done.contains("1 of 4") && done.contains("3 of 4"), "{done}");
    assert!(done.contains("12 of 100 calls") && done.contains(" of $1.50"), "{done}");
    assert!(done.contains(&format!("/traces/{}", trace_id(3))), "{done}");
    // What it cost is the rule's.
    let spend: i64 = lab.sql().query_row("SELECT sum(calls) FROM spend", [], |row| row.get(0)).unwrap();
    assert_eq!(spend, 24);
    // Live verdicts are as they were.
    assert!(page(&server, "/rubrics/thought_to_tool").contains("Trials on many cases"));
    let trace = server.json(&format!("/api/v1/traces/{}", trace_id(3)));
    let outcomes = trace["outcomes"].as_array().unwrap();
    assert!(outcomes.iter().all(|outcome| outcome["label"] != "incorrect"), "{outcomes:?}");
    // Downloads: each case, and the rubric as a file.
    let lines = json_lines(&server.get(&format!("{trial}/results")).body);
    assert_eq!(lines.len(), 12);
    let of_file: &Value = lines.iter().find(|line| line["trace_id"] == json!(trace_id(6))).unwrap();
    assert_eq!((&of_file["label"], &of_file["present_label"]), (&json!("incorrect"), &json!("correct")));
    assert_eq!(of_file["human_labels"], json!(["incorrect"]));
    let csv = server.get(&format!("{trial}/results?format=csv")).text();
    assert!(csv.starts_with("project,trace_id,trajectory_id,") && csv.lines().count() == 13, "{csv}");
    assert_eq!(server.get(&format!("{trial}/results?format=xml")).status, 400);
    let file = server.get(&format!("{trial}/rubric"));
    assert_eq!(file.header("content-disposition"), Some("attachment; filename=thought_to_tool.md"));
    lab.write("tried.md", &file.text());
    lab.run(&["rubrics", "check", "tried.md"]).exits_with(0);
    // The same on what people labelled: answered before, so it costs nothing.
    let labelled = plan(&server, "cases=labelled&max_calls=100&max_usd=1");
    assert!(
        page(&server, &labelled).contains("0 questions to ask (4 answered before, free)"),
        "{}",
        page(&server, &labelled)
    );
    press(&server, &labelled, "run");
    wait_for(&server, &labelled, "<b>4 of 4</b> finished");
    assert_eq!(judge.asked.load(Ordering::Relaxed), 12);
    // Nothing else is an id.
    for path in ["/rubrics/thought_to_tool/trials/..%2f..", "/rubrics/sequence_optimality/trials/x"] {
        assert_eq!(server.get(path).status, 404, "{path}");
    }
    // The address has the name of the rubric percent-encoded.
    let id = trial.rsplit('/').next().unwrap();
    let of_another = format!("/rubrics/sequence_optimality/trials/{id}");
    assert_eq!(server.get(&of_another).status, 404);
}

#[test]
fn a_trial_keeps_to_its_limits() {
    let judge = start_judge();
    let (_lab, server) = start(&judge, "");
    let trial = plan(&server, "cases=latest&traces=50&max_calls=3&max_usd=1");
    press(&server, &trial, "run");
    let stopped = wait_for(&server, &trial, "A limit was reached");
    assert!(stopped.contains("<b>3 of 12</b> stopped") && stopped.contains("3 of 3 calls"), "{stopped}");
    assert_eq!(judge.asked.load(Ordering::Relaxed), 3);
    let refused = press(&server, &trial, "run");
    assert!(refused.contains("The trial has made 3 of 3 calls"), "{refused}");
    // Less than one answer may cost.
    let trial = plan(&server, "cases=latest&traces=50&max_calls=100&max_usd=0.0001");
    press(&server, &trial, "run");
    wait_for(&server, &trial, "A limit was reached");
    assert_eq!(judge.asked.load(Ordering::Relaxed), 3);
    // What cannot be planned is said beside what was filled in.
    for (fields, words) in [
        ("cases=latest&traces=0&max_calls=5&max_usd=1", "Traces: give a number from 1 to 1,000."),
        ("cases=latest&traces=7&max_calls=5&max_usd=", "Give a limit in dollars"),
        ("cases=labelled&max_calls=5&max_usd=1", "Nobody has labelled verdicts of this rubric"),
    ] {
        let text = page(&server, &plan(&server, fields));
        assert!(
            text.contains(words)
                && text.contains(STRICT)
                && text.contains("name=\"max_calls\" inputmode=\"numeric\" value=\"5\""),
            "{text}"
        );
    }
    let reply = post(&server, "/rubrics/thought_to_tool/trials", "text=broken&bulk_project=shop&max_calls=1&traces=1");
    let text = page(&server, reply.header("location").unwrap().split('#').next().unwrap());
    assert!(text.contains("Invalid rubric") && text.contains(">broken</textarea>"), "{text}");
}

#[test]
fn a_trial_keeps_to_the_daily_budget_of_its_rule() {
    let judge = start_judge();
    let (lab, server) = start(&judge, "daily_budget_usd = 1.0");
    lab.sql().execute("UPDATE spend SET cost_usd = 1.0", []).unwrap();
    let trial = plan(&server, "cases=latest&traces=50&max_calls=100&max_usd=1");
    press(&server, &trial, "run");
    wait_for(&server, &trial, "A limit was reached");
    assert_eq!(judge.asked.load(Ordering::Relaxed), 0);
}

#[test]
fn a_trial_is_cancelled_and_continued_after_a_restart_without_asking_twice() {
    let judge = start_judge();
    let (lab, server) = start(&judge, "");
    judge.is_stuck.store(true, Ordering::Relaxed);
    let trial = plan(&server, "cases=latest&traces=50&max_calls=100&max_usd=1");
    press(&server, &trial, "run");
    let running = wait_for(&server, &trial, "<b>2 of 12</b> running");
    assert!(running.contains("value=\"cancel\"") && running.contains("data-progress="), "{running}");
    // One at a time.
    let other = plan(&server, "cases=latest&traces=1&max_calls=100&max_usd=1");
    assert!(press(&server, &other, "run").contains("Another trial is running"));
    press(&server, &trial, "cancel");
    let cancelled = wait_for(&server, &trial, "It was cancelled.");
    assert!(cancelled.contains("<b>2 of 12</b> stopped") && cancelled.contains(">Continue<"), "{cancelled}");
    assert!(press(&server, &trial, "cancel").contains("This trial does not run any more."));
    // It goes on, and the server dies.
    press(&server, &trial, "run");
    wait_for(&server, &trial, "<b>2 of 12</b> running");
    server.kill();
    let server = lab.serve();
    let interrupted = page(&server, &trial);
    assert!(interrupted.contains("interrupted") && interrupted.contains("The server was restarted."), "{interrupted}");
    let before = judge.answered.lock().unwrap().len();
    assert_eq!(before, 2);
    judge.is_stuck.store(false, Ordering::Relaxed);
    let asked = judge.asked.load(Ordering::Relaxed);
    press(&server, &trial, "run");
    wait_for(&server, &trial, "<b>12 of 12</b> finished");
    // Only what had no answer was asked again.
    assert_eq!(judge.asked.load(Ordering::Relaxed), asked + 10);
    assert!(press(&server, &trial, "run").contains("This trial is finished."));
}
