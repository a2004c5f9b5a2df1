//! Measures alerts on streams of scores and writes `benches/results/score_monitor.json`: how often a healthy stream
//! raises an alarm, and how many runs it takes to notice a regression. Run from the root of the repository:
//! `cargo run --release -p gradus-stats --example simulate_monitor`.

#[path = "../tests/simulation/mod.rs"]
mod simulation;

use fastrand::Rng;
use serde_json::{Value, json};
use simulation::streams::{ALL_METHODS, AlertMethod, SimulatedStream, first_alarm};

const ROUNDS: u32 = 1_000;
const BAR: f64 = 0.85;
const SEED: u64 = 80_000;

fn main() -> std::io::Result<()> {
    let mut random = Rng::with_seed(SEED);
    let results = json!({
        "command": "cargo run --release -p gradus-stats --example simulate_monitor",
        "seed": SEED, "alpha": 0.05, "bar": BAR, "rounds": ROUNDS,
        "window": "the last 100 runs, at least 30; the alert looks after every run",
        "false_alarms": measure_false_alarms(&mut random),
        "delays": measure_delays(&mut random),
    });
    std::fs::write("benches/results/score_monitor.json", format!("{results:#}\n"))
}

/// Streams that stay healthy: at the bar, and above it.
fn measure_false_alarms(random: &mut Rng) -> Vec<Value> {
    let mut results = Vec::new();
    for (healthy_share, healthy_runs) in [(BAR, 1_000), (BAR, 10_000), (0.87, 1_000), (0.9, 1_000), (0.9, 10_000)] {
        for max_steps in [1, 10] {
            let stream = SimulatedStream { healthy_share, healthy_runs, broken_share: 0.0, broken_runs: 0, max_steps };
            let alarms = |method: AlertMethod| {
                let rounds = (0..ROUNDS).filter(|_| first_alarm(random, method, &stream, BAR).is_some());
                (format!("{method:?}"), json!(rounds.count() as f64 / f64::from(ROUNDS)))
            };
            let alarms: serde_json::Map<String, Value> = ALL_METHODS.into_iter().map(alarms).collect();
            results.push(json!({
                "share": healthy_share, "runs": healthy_runs, "max_steps": max_steps, "share_with_alarm": alarms,
            }));
        }
    }
    results
}

/// Runs from the regression to the alarm. Rounds with a false alarm before are left out.
fn measure_delays(random: &mut Rng) -> Vec<Value> {
    let mut results = Vec::new();
    for healthy_runs in [0, 1_000, 10_000] {
        for broken_share in [0.8, 0.75, 0.65] {
            for max_steps in [1, 10] {
                let stream =
                    SimulatedStream { healthy_share: 0.93, healthy_runs, broken_share, broken_runs: 10_000, max_steps };
                let mut found = Vec::new();
                let mut false_alarms = 0;
                for _ in 0..ROUNDS / 5 {
                    match first_alarm(random, AlertMethod::Monitor, &stream, BAR) {
                        Some(run) if run <= healthy_runs => false_alarms += 1,
                        Some(run) => found.push(run - healthy_runs),
                        None => found.push(usize::MAX),
                    }
                }
                found.sort_unstable();
                let quantile = |share: f64| {
                    let delay = found[(share * (found.len() - 1) as f64) as usize];
                    (delay != usize::MAX).then_some(delay)
                };
                results.push(json!({
                    "healthy_runs": healthy_runs, "broken_share": broken_share, "max_steps": max_steps,
                    "rounds": ROUNDS / 5, "false_alarms": false_alarms,
                    "median_delay": quantile(0.5), "delay_of_nine_in_ten": quantile(0.9),
                }));
            }
        }
    }
    results
}
