//! What a run may cost, and how it is told beforehand.

use std::time::Duration;

use crate::lab::{Lab, endpoint, eval, kind_endpoint};

#[test]
fn a_dry_run_asks_nothing_and_estimates() {
    let lab = Lab::with_cases(50);
    let endpoint = kind_endpoint();
    let ran = lab.run_at(&endpoint, &["eval", "cases.jsonl", "--dry-run"]).exits_with(0);
    assert_eq!(endpoint.received(), 0);
    assert!(!lab.path(".gradus").exists(), "nothing is left behind");
    assert!(ran.out.contains("thought_to_tool                  50        0       50"), "{}", ran.out);
    assert!(ran.out.contains("About $"), "{}", ran.out);
    lab.run_at(&endpoint, &eval(&[])).exits_with(0);
    let ran = lab.run_at(&endpoint, &["eval", "cases.jsonl", "--dry-run"]).exits_with(0);
    assert!(ran.out.contains("thought_to_tool                  50       50        0"), "{}", ran.out);
    let unknown = lab.run_at(&endpoint, &["eval", "cases.jsonl", "--dry-run", "--judge", "mine"]).exits_with(0);
    assert!(unknown.out.contains("The price of \"mine\" is not known"), "{}", unknown.out);
}

#[test]
fn calls_and_dollars_are_never_overdrawn() {
    let lab = Lab::with_cases(100);
    let endpoint = kind_endpoint();
    let ran = lab.run_at(&endpoint, &eval(&["--max-calls", "7"])).exits_with(0);
    assert_eq!(endpoint.received(), 7);
    assert!(ran.err.contains("the limit of 7 calls is reached"), "{}", ran.err);
    assert!(ran.out.contains("This run is incomplete"), "{}", ran.out);
    // A call is $0.0014, and asked three times with long answers it could be about $0.04.
    let ran = lab.run_at(&endpoint, &eval(&["--max-cost", "0.08"])).exits_with(0);
    assert!(ran.err.contains("and go over the limit of $0.08"), "{}", ran.err);
    let spent: f64 = lab.lines("out.jsonl").iter().filter_map(|line| line["cost_usd"].as_f64()).sum();
    assert!(spent > 0.03 && spent <= 0.08, "{spent}");
    // Taking the run up does not give it the money again.
    let before = endpoint.received();
    lab.run_at(&endpoint, &eval(&["--max-cost", "0.08"])).exits_with(0);
    assert!(endpoint.received() <= before + 1, "{}", endpoint.received());
    let ran = lab.run_at(&endpoint, &eval(&["--max-cost", "1", "--judge", "mine"])).exits_with(2);
    assert!(ran.err.contains("the price of \"mine\" is not known"), "{}", ran.err);
}

#[test]
fn a_run_stops_when_its_time_is_over() {
    let lab = Lab::with_cases(5_000);
    let endpoint = endpoint(|incoming| incoming.verdict("correct").after(Duration::from_millis(30)));
    let ran = lab.run_at(&endpoint, &eval(&["--max-time", "0.7", "--concurrency", "10"])).exits_with(0);
    assert!(ran.err.contains("stopped: the limit of"), "{}", ran.err);
    let judged = lab.lines("out.jsonl").len();
    assert!(judged > 20 && judged < 2_000, "{judged}");
    assert!(endpoint.most_in_flight() <= 10);
}

#[test]
fn prices_come_from_a_file() {
    let lab = Lab::with_cases(10);
    lab.write("prices.toml", "[\"mine\"]\ninput = 1000\noutput = 0\n");
    let endpoint = kind_endpoint();
    let ran = lab.run_at(&endpoint, &eval(&["--judge", "mine", "--prices", "prices.toml"])).exits_with(0);
    assert!(ran.out.contains("Judge cost  $4.0000"), "{}", ran.out);
    let ran = lab.run_at(&endpoint, &eval(&["--judge", "other"])).exits_with(0);
    assert!(ran.out.contains("Judge cost  price not known"), "{}", ran.out);
    lab.write("prices.toml", "[\"mine\"]\ninput = -1\noutput = 0\n");
    let ran = lab.run_at(&endpoint, &eval(&["--judge", "mine", "--prices", "prices.toml"])).exits_with(2);
    assert!(ran.err.contains("prices.toml: the price of \"mine\" is no amount of dollars"), "{}", ran.err);
}

#[test]
fn a_sample_is_the_same_each_time_and_grows_by_adding() {
    let lab = Lab::with_cases(200);
    let ids = |size: &str, seed: &str| {
        lab.run(&eval(&["--judge", "offline", "--sample", size, "--seed", seed])).exits_with(0);
        let lines = lab.lines("out.jsonl");
        lines.iter().map(|line| line["trajectory_id"].to_string()).collect::<Vec<_>>()
    };
    let ten = ids("10", "1");
    assert_eq!((ten.len(), &ids("10", "1")), (10, &ten));
    assert_ne!(ids("10", "2"), ten);
    let twenty = ids("20", "1");
    assert!(ten.iter().all(|id| twenty.contains(id)));
}

/// More connections than a process may have files open, unless it asks.
#[test]
fn thousands_of_calls_can_be_in_flight() {
    let lab = Lab::with_cases(6_000);
    let endpoint = endpoint(|incoming| incoming.verdict("correct").after(Duration::from_secs(2)));
    let script = "ulimit -Sn 256; exec \"$0\" \"$@\"";
    let mut command = std::process::Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_gradus")]).args(eval(&["--concurrency", "2000"]));
    command.current_dir(lab.path("")).env("OPENAI_BASE_URL", endpoint.url()).env("OPENAI_API_KEY", "k");
    assert!(command.output().unwrap().status.success());
    assert_eq!(lab.lines("out.jsonl").len(), 6_000);
    assert!(endpoint.most_in_flight() > 1_000, "{}", endpoint.most_in_flight());
}
