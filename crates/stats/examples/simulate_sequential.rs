//! Measures sequential gates on simulated populations and writes `benches/results/sequential_gates.json`: errors in
//! every setting, and how many times fewer runs are judged. Run from the root of the repository:
//! `cargo run -p gradus-stats --example simulate_sequential`.

#[path = "../tests/simulation/mod.rs"]
mod simulation;

use fastrand::Rng;
use serde_json::{Value, json};
use simulation::gates::{SimulatedPopulation, simulate_gate};

const KINDS: [SimulatedPopulation; 4] = [
    SimulatedPopulation::Binary,
    SimulatedPopulation::BinarySkipped,
    SimulatedPopulation::Shares,
    SimulatedPopulation::ClusteredShares,
];
const BARS: [f64; 5] = [0.5, 0.7, 0.85, 0.9, 0.95];
const ROUNDS: u32 = 1_000;

fn main() -> std::io::Result<()> {
    let mut random = Rng::with_seed(600);
    let (errors, settings, highest) = measure_errors(&mut random);
    let results = json!({
        "command": "cargo run -p gradus-stats --example simulate_sequential",
        "seed": 600,
        "alpha": 0.05,
        "rounds": ROUNDS,
        "error_settings": settings,
        "highest_error": highest,
        "highest_errors": errors,
        "savings": measure_savings(&mut random, 0.0),
        "savings_with_margin": measure_savings(&mut random, 0.03),
    });
    std::fs::write("benches/results/sequential_gates.json", format!("{results:#}\n"))
}

/// True shares on both sides of the bar and at it. Returns the twenty settings with most errors, the number of settings
/// and the highest share of errors.
fn measure_errors(random: &mut Rng) -> (Vec<Value>, usize, f64) {
    let mut results = Vec::new();
    for kind in KINDS {
        for bar in BARS {
            for population in [100, 1_000, 5_000] {
                let step = 1.0 / population as f64;
                for distance in [0.0, -step, 2.0 * step, -0.01, 0.01, -0.03, 0.03, -0.1] {
                    let share = bar + distance;
                    let found = simulate_gate(random, ROUNDS, kind, population, share, bar, 0.0);
                    results.push((
                        found.error_rate(),
                        json!({
                            "values": format!("{kind:?}"), "bar": bar, "population": population,
                            "distance": (distance * 1e6).round() / 1e6, "error": found.error_rate(),
                        }),
                    ));
                }
            }
        }
    }
    results.sort_by(|a, b| b.0.total_cmp(&a.0));
    let (count, highest) = (results.len(), results[0].0);
    (results.into_iter().take(20).map(|(_, setting)| setting).collect(), count, highest)
}

fn measure_savings(random: &mut Rng, margin: f64) -> Vec<Value> {
    let mut results = Vec::new();
    for kind in [SimulatedPopulation::Binary, SimulatedPopulation::Shares, SimulatedPopulation::ClusteredShares] {
        for bar in BARS {
            for population in [300, 1_000, 5_000] {
                for distance in [-0.15, -0.1, -0.05, 0.05, 0.1, 0.15] {
                    let share = bar + distance;
                    if share > 1.0 || margin >= 1.0 - bar {
                        continue;
                    }
                    let found = simulate_gate(random, ROUNDS / 2, kind, population, share, bar, margin);
                    results.push(json!({
                        "values": format!("{kind:?}"), "bar": bar, "population": population, "distance": distance,
                        "margin": margin,
                        "mean_judged": (found.judged as f64 / f64::from(found.rounds)).round(),
                        "times_fewer": (found.saving() * 10.0).round() / 10.0,
                        "error": found.error_rate(),
                    }));
                }
            }
        }
    }
    results
}
