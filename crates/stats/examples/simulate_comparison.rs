//! Measures comparisons of versions on simulated agents and writes `benches/results/comparison.json`: false alarms,
//! coverage, power at the recommended size, and time. Run from the root of the repository:
//! `cargo run -p gradus-stats --example simulate_comparison`.

#[path = "../tests/simulation/mod.rs"]
mod simulation;

use std::time::Instant;

use gradus_stats::comparison::{ComparedDimension, ComparisonSamples, ComparisonSettings, compare_versions};
use serde_json::{Value, json};
use simulation::agents::{
    NO_CHANGE, SimulatedChange, SimulatedDesign, coverage, detect_at_recommended_size, false_alarms,
    simulated_dimensions,
};
use simulation::share;

const ROUNDS: u32 = 1_000;
const COVERAGE_ROUNDS: u32 = 2_000;

fn main() -> std::io::Result<()> {
    let results = json!({
        "command": "cargo run -p gradus-stats --example simulate_comparison",
        "alpha": 0.05,
        "dimensions": simulated_dimensions().into_iter().map(|dimension| dimension.name).collect::<Vec<_>>(),
        "false_alarms": measure_false_alarms(),
        "coverage": measure_coverage(),
        "rare_failures": measure_rare_failures(),
        "recommended_size": measure_recommended_size(),
        "time": measure_time(),
    });
    std::fs::write("benches/results/comparison.json", format!("{results:#}\n"))
}

/// The same agent twice: better or worse in any of five correlated dimensions.
fn measure_false_alarms() -> Vec<Value> {
    let designs = [(40, [5, 5]), (40, [5, 20]), (40, [1, 1]), (5, [5, 5]), (10, [5, 5]), (200, [5, 5])];
    let measure = |(seed, (tasks, trials)): (u64, (usize, [usize; 2]))| {
        let alarms = false_alarms(seed, ROUNDS, SimulatedDesign { tasks, trials });
        json!({"seed": seed, "tasks": tasks, "trials": trials, "rounds": ROUNDS, "share": share(alarms, ROUNDS)})
    };
    (100..).zip(designs).map(measure).collect()
}

/// The interval of each dimension alone, where the second version is 10 points worse on average, differently by task,
/// and 30 % more expensive.
fn measure_coverage() -> Vec<Value> {
    let change = SimulatedChange { drop: 0.1, drop_spread: 0.3, cost_factor: 1.3, ..NO_CHANGE };
    let truth = [Some(-0.1), Some(-0.1), Some(-0.1), Some(0.0), Some(0.6 / 2.3)];
    let designs = [(5, [5, 5]), (10, [5, 5]), (20, [5, 5]), (40, [5, 5]), (40, [1, 1]), (40, [5, 20]), (200, [3, 3])];
    let measure = |(seed, (tasks, trials)): (u64, (usize, [usize; 2]))| {
        let covered = coverage(seed, COVERAGE_ROUNDS, SimulatedDesign { tasks, trials }, change, truth);
        let shares = covered.map(|covered| share(covered, COVERAGE_ROUNDS));
        json!({"seed": seed, "tasks": tasks, "trials": trials, "rounds": COVERAGE_ROUNDS, "shares": shares})
    };
    (200..).zip(designs).map(measure).collect()
}

/// A few tasks fail always in the second version, all others never fail.
fn measure_rare_failures() -> Vec<Value> {
    let designs = [
        (6, 0.5),
        (10, 0.3),
        (10, 0.6),
        (20, 0.05),
        (20, 0.4),
        (40, 0.02),
        (40, 0.05),
        (40, 0.1),
        (40, 0.3),
        (150, 0.01),
        (150, 0.05),
        (150, 0.2),
        (500, 0.01),
    ];
    let mut results = Vec::new();
    for (seed, (tasks, broken)) in (300..).zip(designs) {
        for trials in [[1, 1], [5, 5]] {
            let change = SimulatedChange { broken: Some(broken), ..NO_CHANGE };
            let truth = [Some(-broken), None, None, None, None];
            let [covered, ..] = coverage(seed, COVERAGE_ROUNDS, SimulatedDesign { tasks, trials }, change, truth);
            results.push(json!({
                "seed": seed, "tasks": tasks, "trials": trials, "broken": broken, "rounds": COVERAGE_ROUNDS,
                "share": share(covered, COVERAGE_ROUNDS),
            }));
        }
    }
    results
}

/// A 10-point drop: a pilot recommends a number of tasks or of trials, and the comparison at that size finds the drop.
fn measure_recommended_size() -> Vec<Value> {
    let drop = SimulatedChange { drop: 0.1, ..NO_CHANGE };
    let uneven = SimulatedChange { drop_spread: 0.3, ..drop };
    let designs = [
        (40, [5, 5], drop, 0.1),
        (40, [5, 5], uneven, 0.1),
        (40, [1, 1], drop, 0.1),
        (40, [5, 5], drop, 0.05),
        (10, [5, 5], uneven, 0.1),
        (20, [5, 5], SimulatedChange { drop_spread: 0.15, ..drop }, 0.1),
        (80, [5, 5], uneven, 0.1),
        (150, [2, 2], uneven, 0.1),
    ];
    let measure = |(seed, (tasks, trials, change, min_effect)): (u64, (usize, [usize; 2], SimulatedChange, f64))| {
        let pilot = SimulatedDesign { tasks, trials };
        let found = detect_at_recommended_size(seed, ROUNDS / 2, pilot, change, min_effect);
        let with_trials = |count: u32| (found.trials_planned > 0).then(|| share(count, found.trials_planned));
        json!({
            "seed": seed, "pilot_tasks": tasks, "pilot_trials": trials, "min_effect": min_effect,
            "drop": change.drop, "drop_spread": change.drop_spread,
            "inconclusive_pilots": found.inconclusive,
            "pilots_with_tasks": found.planned,
            "mean_recommended_tasks": (found.tasks as f64 / f64::from(found.planned)).round(),
            "found_share": share(found.found, found.planned),
            "pilots_with_trials": found.trials_planned,
            "found_share_with_trials": with_trials(found.same_tasks_found),
            "found_share_with_trials_of_new_tasks": with_trials(found.new_tasks_found),
            "found_share_as_advised": share(found.advised_found, found.inconclusive),
        })
    };
    (400..).zip(designs).map(measure).collect()
}

/// Two versions with 100,000 values each, one and five per task.
fn measure_time() -> Vec<Value> {
    let mut random = fastrand::Rng::with_seed(500);
    let measure = |trials: usize| {
        let names = vec!["first".to_owned(), "second".to_owned()];
        let values: Vec<f64> = (0..200_000).map(|_| f64::from(random.u8(0..=7)) / 7.0).collect();
        let start = Instant::now();
        let mut samples = ComparisonSamples::new(vec![ComparedDimension::score("score")], names);
        for (at, value) in values.into_iter().enumerate() {
            let task = format!("task {}", at / 2 / trials);
            samples.add_value(at % 2, 0, &task, value).expect("a share");
        }
        compare_versions(&samples, &ComparisonSettings::default()).expect("good settings");
        json!({"values": 200_000, "trials": trials, "milliseconds": start.elapsed().as_millis() as u64})
    };
    [1, 5, 100].into_iter().map(measure).collect()
}
