//! Short forms of the simulations; `examples/` has the long ones.

mod simulation;

use fastrand::Rng;
use simulation::agents::{
    NO_CHANGE, SimulatedChange, SimulatedDesign, coverage, detect_at_recommended_size, false_alarms,
};
use simulation::gates::{SimulatedPopulation, simulate_gate};
use simulation::share;

#[test]
fn the_same_agent_twice_is_rarely_better_or_worse() {
    for (seed, trials) in [(1, [5, 5]), (2, [5, 20]), (3, [1, 1])] {
        let alarms = false_alarms(seed, 300, SimulatedDesign { tasks: 40, trials });
        assert!(share(alarms, 300) <= 0.07, "{trials:?}: {alarms}");
    }
}

#[test]
fn intervals_cover_the_true_effect() {
    let change = SimulatedChange { drop: 0.1, drop_spread: 0.3, cost_factor: 1.3, ..NO_CHANGE };
    let truth = [Some(-0.1), Some(-0.1), Some(-0.1), Some(0.0), Some(0.6 / 2.3)];
    for (seed, tasks, trials) in [(1, 8, [5, 5]), (2, 40, [5, 5]), (3, 40, [1, 1])] {
        let covered = coverage(seed, 300, SimulatedDesign { tasks, trials }, change, truth);
        for (dimension, covered) in covered.into_iter().enumerate() {
            let covered = share(covered, 300);
            assert!((0.91..=1.0).contains(&covered), "{tasks} tasks, dimension {dimension}: {covered}");
        }
    }
}

#[test]
fn intervals_cover_rare_failures() {
    for (seed, tasks, broken) in [(1, 10, 0.3), (2, 40, 0.03), (3, 40, 0.1), (4, 100, 0.2)] {
        for trials in [[1, 1], [3, 3]] {
            let change = SimulatedChange { broken: Some(broken), ..NO_CHANGE };
            let truth = [Some(-broken), None, None, None, None];
            let covered = coverage(seed, 200, SimulatedDesign { tasks, trials }, change, truth);
            assert!(share(covered[0], 200) >= 0.91, "{tasks} {broken} {trials:?}: {}", covered[0]);
        }
    }
}

#[test]
fn a_drop_is_found_at_the_recommended_size() {
    let even = SimulatedChange { drop: 0.1, ..NO_CHANGE };
    let uneven = SimulatedChange { drop_spread: 0.3, ..even };
    for (seed, tasks, trials, change) in [
        (5, 40, [5, 5], even),
        (6, 40, [5, 5], uneven),
        // Small pilots know their variance badly.
        (7, 8, [5, 5], uneven),
        (8, 100, [3, 3], uneven),
    ] {
        let found = detect_at_recommended_size(seed, 60, SimulatedDesign { tasks, trials }, change, 0.1);
        assert!(found.planned > 20 && share(found.advised_found, found.inconclusive) >= 0.75, "{tasks}: {found:?}");
    }
}

/// Where the drop differs so much between tasks that no number of trials of 40 tasks finds it in 80 %, pilots must not
/// recommend trials. Where trials do decide, they say so.
#[test]
fn trials_are_recommended_only_where_they_decide() {
    let even = SimulatedChange { drop: 0.1, ..NO_CHANGE };
    let uneven = SimulatedChange { drop_spread: 0.4, ..even };
    for seed in [11, 12] {
        let found = detect_at_recommended_size(seed, 150, SimulatedDesign { tasks: 40, trials: [5, 5] }, uneven, 0.1);
        assert!(found.inconclusive > 100 && share(found.trials_planned, found.inconclusive) <= 0.03, "{found:?}");
    }
    let found = detect_at_recommended_size(13, 100, SimulatedDesign { tasks: 100, trials: [3, 3] }, even, 0.1);
    assert!(found.trials_planned >= 20, "{found:?}");
    assert!(share(found.same_tasks_found, found.trials_planned) >= 0.8, "{found:?}");
    assert!(share(found.new_tasks_found, found.trials_planned) >= 0.8, "{found:?}");
}

#[test]
fn gates_are_rarely_wrong() {
    let mut random = Rng::with_seed(9);
    for kind in [
        SimulatedPopulation::Binary,
        SimulatedPopulation::BinarySkipped,
        SimulatedPopulation::Shares,
        SimulatedPopulation::ClusteredShares,
    ] {
        for bar in [0.5, 0.85] {
            // At the bar, just below it, and some way off.
            for distance in [0.0, -0.01, 0.05] {
                let found = simulate_gate(&mut random, 150, kind, 200, bar + distance, bar, 0.0);
                assert!(found.error_rate() <= 0.08, "{kind:?} {bar} {distance}: {found:?}");
            }
        }
    }
}

#[test]
fn gates_save_runs_away_from_the_bar() {
    let mut random = Rng::with_seed(10);
    for bar in [0.5, 0.7, 0.85] {
        for (distance, saving) in [(0.1, 5.0), (-0.1, 5.0), (0.15, 9.0), (-0.15, 9.0)] {
            let found = simulate_gate(&mut random, 100, SimulatedPopulation::Binary, 1_000, bar + distance, bar, 0.0);
            assert!(found.saving() >= saving, "{bar} {distance}: {} {found:?}", found.saving());
        }
    }
    let near = simulate_gate(&mut random, 100, SimulatedPopulation::Binary, 1_000, 0.8, 0.85, 0.03);
    let exact = simulate_gate(&mut random, 100, SimulatedPopulation::Binary, 1_000, 0.8, 0.85, 0.0);
    assert!(near.saving() > 1.5 * exact.saving(), "{near:?} {exact:?}");
}
