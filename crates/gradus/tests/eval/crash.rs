//! Whatever moment a run dies at: nothing that was judged is lost, and nothing is judged twice but what was in flight.

use std::collections::{HashMap, HashSet};
use std::process::Stdio;
use std::time::Duration;

use gradus_test_endpoint::Endpoint;
use serde_json::Value as Json;

use crate::lab::{Lab, Ran, endpoint, eval, kind_endpoint};

const CASES: usize = 5_000;
const KILLS: usize = 50;
const IN_FLIGHT: usize = 40;

#[test]
fn survives_being_killed_at_fifty_random_moments() {
    let lab = Lab::with_cases(CASES);
    // Slow enough that fifty kills fall into the run.
    let endpoint =
        endpoint(|incoming| incoming.verdict("correct").after(Duration::from_millis(20 + incoming.digest() % 20)));
    let in_flight = IN_FLIGHT.to_string();
    let arguments = eval(&["--concurrency", &in_flight]);
    let mut random = fastrand::Rng::with_seed(3);
    let (mut kills, mut lost) = (0, 0);
    while kills < KILLS {
        let mut command = lab.command_at(&endpoint, &arguments);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(random.u64(5..200)));
        // SIGKILL.
        child.kill().unwrap();
        let ended_before = child.wait().unwrap().success();
        assert!(!ended_before, "the run ended before {KILLS} kills");
        kills += 1;
        // What was asked and is not written down is what was in flight.
        let asked = received_when_quiet(&endpoint);
        let gone = asked - recorded(&lab) - lost;
        assert!(gone <= IN_FLIGHT, "{gone} of at most {IN_FLIGHT} in flight were lost by kill {kills}");
        lost += gone;
    }
    let ran = lab.run_at(&endpoint, &arguments).exits_with(0);
    assert!(ran.err.contains("taking up run"), "{}", ran.err);
    assert!(ran.out.contains(&format!("({CASES} of {CASES}")), "{}", ran.out);
    // Every case has exactly one verdict, in the output and in the run's own log.
    let ids: Vec<String> = lab.lines("out.jsonl").iter().map(|line| line["trajectory_id"].to_string()).collect();
    assert_eq!((ids.len(), ids.iter().collect::<HashSet<_>>().len()), (CASES, CASES));
    let mut verdicts: HashMap<String, usize> = HashMap::new();
    for line in log(&lab) {
        *verdicts.entry(line["trajectory_id"].to_string()).or_default() += 1;
    }
    assert_eq!(verdicts.len(), CASES);
    assert!(verdicts.values().all(|count| *count == 1));
    println!("{kills} kills: {} calls for {CASES} cases, {lost} in flight at the kills", endpoint.received());
    assert!(endpoint.received() as usize <= CASES + lost);
    // Another run finds every answer, also those that came just before a kill.
    let before = endpoint.received();
    let again = lab.run_at(&endpoint, &arguments).exits_with(0);
    assert!(!again.err.contains("taking up run"), "{}", again.err);
    assert_eq!(endpoint.received(), before, "answers that were paid for were asked for again");
}

/// The log of a run and the cache are two files, and a machine that loses power may keep either.
#[test]
fn answers_come_back_from_the_log_when_the_cache_is_lost() {
    let lab = Lab::with_cases(300);
    let endpoint = endpoint(|incoming| incoming.verdict("correct").after(Duration::from_millis(10)));
    let arguments = eval(&["--concurrency", "4"]);
    let mut command = lab.command_at(&endpoint, &arguments);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while recorded(&lab) < 60 {
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    assert!(!child.wait().unwrap().success());
    let lost = received_when_quiet(&endpoint) - recorded(&lab);
    assert!(lost <= 4, "{lost}");
    std::fs::remove_file(lab.path(".gradus/cache/verdicts.jsonl")).unwrap();
    // Other questions, so another run: it asks only what nobody has answered.
    let other = lab.read("cases.jsonl") + &crate::lab::case(300).to_string() + "\n";
    lab.write("more.jsonl", &other);
    let more = ["eval", "more.jsonl", "--jsonl", "more.out", "-e", "thought_to_tool"];
    let ran = lab.run_at(&endpoint, &more).exits_with(0);
    assert!(!ran.err.contains("taking up run"), "{}", ran.err);
    assert_eq!(endpoint.received() as usize, 301 + lost);
    // The run that was cut off goes on, and needs nobody.
    let ran = lab.run_at(&endpoint, &arguments).exits_with(0);
    assert!(ran.err.contains("taking up run"), "{}", ran.err);
    assert_eq!(endpoint.received() as usize, 301 + lost);
    assert_eq!(lab.lines("out.jsonl").len(), 300);
}

/// Requests that were on the way when the sender died still come in.
fn received_when_quiet(endpoint: &Endpoint) -> usize {
    loop {
        let before = endpoint.received();
        std::thread::sleep(Duration::from_millis(20));
        if endpoint.received() == before {
            return before as usize;
        }
    }
}

/// The whole lines of the only run's log.
fn log(lab: &Lab) -> Vec<Json> {
    let folders = std::fs::read_dir(lab.path(".gradus/runs")).unwrap().map(|entry| entry.unwrap().path());
    // A folder without a manifest is of a process that was killed before its run began.
    let runs: Vec<_> = folders.filter(|folder| folder.join("run.json").exists()).collect();
    assert!(runs.len() <= 1, "one run, taken up again and again: {runs:?}");
    let Some(path) = runs.first().map(|folder| folder.join("outcomes.jsonl")) else { return Vec::new() };
    let text = std::fs::read(path).unwrap_or_default();
    text.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
}

fn recorded(lab: &Lab) -> usize {
    if lab.path(".gradus/runs").read_dir().is_ok_and(|mut runs| runs.next().is_some()) { log(lab).len() } else { 0 }
}

#[test]
fn ctrl_c_ends_in_a_report_of_what_there_is() {
    let lab = Lab::with_cases(2_000);
    let endpoint = endpoint(|incoming| incoming.verdict("correct").after(Duration::from_millis(40)));
    let mut command = lab.command_at(&endpoint, &eval(&["--concurrency", "20", "--json", "summary.json"]));
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while endpoint.received() < 200 {
        std::thread::sleep(Duration::from_millis(5));
    }
    let pid = child.id().to_string();
    assert!(std::process::Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let ran = Ran::from_output(child.wait_with_output().unwrap()).exits_with(130);
    assert!(ran.err.contains("the same command goes on from there"), "{}", ran.err);
    assert!(ran.out.contains("This run is incomplete: it was interrupted"), "{}", ran.out);
    let summary: Json = serde_json::from_str(&lab.read("summary.json")).unwrap();
    assert_eq!(summary["summary"]["complete"], false);
    let judged = lab.lines("out.jsonl").len();
    // What was in flight was waited for: every call is a verdict.
    assert_eq!(judged as u64, endpoint.received());
    lab.run_at(&endpoint, &eval(&["--concurrency", "200"])).exits_with(0);
    assert_eq!((lab.lines("out.jsonl").len(), endpoint.received()), (2_000, 2_000));
}

#[test]
fn two_runs_at_once_do_not_disturb_each_other() {
    let lab = Lab::with_cases(300);
    let endpoint = kind_endpoint();
    let mut children: Vec<_> = ["a.jsonl", "b.jsonl"]
        .iter()
        .map(|out| {
            let arguments = ["eval", "cases.jsonl", "--jsonl", out, "-e", "thought_to_tool"];
            lab.command_at(&endpoint, &arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
        })
        .collect();
    assert!(children.iter_mut().all(|child| child.wait().unwrap().success()));
    assert_eq!((lab.lines("a.jsonl").len(), lab.lines("b.jsonl").len()), (300, 300));
    let before = endpoint.received();
    lab.run_at(&endpoint, &eval(&[])).exits_with(0);
    assert_eq!(endpoint.received(), before, "the cache is whole");
}

/// A run that is cut off twice still shows what the first process judged; one whose source is gone is not thrown away.
#[test]
fn a_run_that_is_taken_up_forgets_nothing() {
    let lab = Lab::with_cases(200);
    let endpoint = kind_endpoint();
    lab.run_at(&endpoint, &eval(&["--max-calls", "150", "--concurrency", "1"])).exits_with(0);
    lab.run_at(&endpoint, &eval(&["--max-calls", "1", "--concurrency", "1"])).exits_with(0);
    assert_eq!(lab.lines("out.jsonl").len(), 151);
    std::fs::rename(lab.path("cases.jsonl"), lab.path("moved.jsonl")).unwrap();
    lab.run_at(&endpoint, &eval(&[])).exits_with(2);
    assert!(lab.run(&["report"]).exits_with(0).out.contains("(151 of 151"));
    std::fs::rename(lab.path("moved.jsonl"), lab.path("cases.jsonl")).unwrap();
    lab.run_at(&endpoint, &eval(&["--concurrency", "1"])).exits_with(0);
    assert_eq!((lab.lines("out.jsonl").len(), endpoint.received()), (200, 200));
}

/// A trajectory that has changed since is judged anew.
#[test]
fn a_trajectory_that_grew_is_judged_as_it_is_now() {
    let lab = Lab::with_cases(20);
    let endpoint = kind_endpoint();
    lab.run_at(&endpoint, &eval(&["--max-calls", "10", "--concurrency", "1"])).exits_with(0);
    let text =
        lab.read("cases.jsonl").replace("I will read file 0.md", "I have changed my mind and will read file 0.md");
    lab.write("cases.jsonl", &text);
    lab.run_at(&endpoint, &eval(&["--concurrency", "1"])).exits_with(0);
    assert_eq!((lab.lines("out.jsonl").len(), endpoint.received()), (20, 21));
}
