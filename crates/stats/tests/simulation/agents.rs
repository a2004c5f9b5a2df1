//! Agents that run tasks several times, and comparisons of them.
//!
//! Each task has a difficulty that both versions meet. Each run has a mood that all its dimensions share, so dimensions
//! are correlated; the number of steps varies from run to run, and amounts have long tails.

use fastrand::Rng;
use gradus_stats::comparison::{
    ComparedDimension, ComparisonReport, ComparisonSamples, ComparisonSettings, ComparisonVerdict, DimensionComparison,
    TrialAdvice, compare_versions,
};

/// Sizes of a simulated comparison.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SimulatedDesign {
    pub(crate) tasks: usize,
    /// Trials of each task, by version.
    pub(crate) trials: [usize; 2],
}

/// How the second version differs from the first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SimulatedChange {
    /// Mean of what is taken from the probability of success, and of right steps.
    pub(crate) drop: f64,
    /// How much the drop varies from task to task, to both sides.
    pub(crate) drop_spread: f64,
    /// Share of tasks that always fail in the second version; the others never fail in either.
    pub(crate) broken: Option<f64>,
    /// Factor of the cost.
    pub(crate) cost_factor: f64,
}

pub(crate) const NO_CHANGE: SimulatedChange =
    SimulatedChange { drop: 0.0, drop_spread: 0.0, broken: None, cost_factor: 1.0 };

/// Success, two shares of steps, steps and cost.
pub(crate) fn simulated_dimensions() -> Vec<ComparedDimension> {
    vec![
        ComparedDimension::score("success"),
        ComparedDimension::score("thought_to_tool"),
        ComparedDimension::score("query_to_thought"),
        ComparedDimension::amount("steps"),
        ComparedDimension::amount("cost"),
    ]
}

pub(crate) fn simulate_comparison(
    random: &mut Rng,
    design: SimulatedDesign,
    change: SimulatedChange,
    settings: &ComparisonSettings,
) -> ComparisonReport {
    let mut samples = ComparisonSamples::new(simulated_dimensions(), vec!["first".to_owned(), "second".to_owned()]);
    for task in 0..design.tasks {
        let name = format!("task {task}");
        let ease = 0.42 + 0.5 * random.f64();
        let length = 2.0 + 8.0 * random.f64();
        let drop = change.drop + change.drop_spread * (2.0 * random.f64() - 1.0);
        let is_broken = change.broken.is_some_and(|share| random.f64() < share);
        for (version, trials) in design.trials.into_iter().enumerate() {
            let probability = match (change.broken, version) {
                (None, 0) => ease,
                (None, _) => ease - drop,
                (Some(_), _) => f64::from(u8::from(version == 0 || !is_broken)),
            };
            for _ in 0..trials {
                let factor = if version == 1 { change.cost_factor } else { 1.0 };
                let run = simulate_run(random, probability, length, factor);
                for (dimension, value) in run.into_iter().enumerate() {
                    samples.add_value(version, dimension, &name, value).expect("simulated values are on the scale");
                }
            }
        }
    }
    compare_versions(&samples, settings).expect("the settings are good")
}

/// One run: the values of all dimensions.
fn simulate_run(random: &mut Rng, probability: f64, length: f64, cost_factor: f64) -> [f64; 5] {
    // Uniform, so that the mean probability is the one that was asked for.
    let mood = (random.f64() - 0.5) * 2.0 * probability.min(1.0 - probability);
    let own = probability + mood;
    let steps = 1 + (length * (0.5 + random.f64())) as u32;
    let mut right_share =
        || f64::from((0..steps).map(|_| u32::from(random.f64() < own)).sum::<u32>()) / f64::from(steps);
    let shares = [right_share(), right_share()];
    let success = f64::from(u8::from(random.f64() < own));
    let cost = f64::from(steps) * 0.003 * (0.6 * normal(random)).exp() * cost_factor;
    [success, shares[0], shares[1], f64::from(steps), cost]
}

fn normal(random: &mut Rng) -> f64 {
    (-2.0 * (1.0 - random.f64()).ln()).sqrt() * (std::f64::consts::TAU * random.f64()).cos()
}

/// How often versions that are the same agent come out as better or worse in any dimension.
pub(crate) fn false_alarms(seed: u64, rounds: u32, design: SimulatedDesign) -> u32 {
    let mut random = Rng::with_seed(seed);
    let is_alarm = |report: ComparisonReport| report.pairs[0].dimensions.iter().any(is_decided_difference);
    let settings = ComparisonSettings::default();
    (0..rounds).filter(|_| is_alarm(simulate_comparison(&mut random, design, NO_CHANGE, &settings))).count() as u32
}

fn is_decided_difference(found: &DimensionComparison) -> bool {
    matches!(found.verdict, ComparisonVerdict::Better | ComparisonVerdict::Worse)
}

/// How often the interval of each dimension alone contains the true effect, of which there are as many as dimensions.
pub(crate) fn coverage(
    seed: u64,
    rounds: u32,
    design: SimulatedDesign,
    change: SimulatedChange,
    truth: [Option<f64>; 5],
) -> [u32; 5] {
    let mut random = Rng::with_seed(seed);
    let mut covered = [0; 5];
    for _ in 0..rounds {
        let report = simulate_comparison(&mut random, design, change, &ComparisonSettings::default());
        for ((count, truth), found) in covered.iter_mut().zip(truth).zip(&report.pairs[0].dimensions) {
            let interval = found.interval;
            *count += u32::from(truth.is_some_and(|truth| interval.low <= truth && truth <= interval.high));
        }
    }
    covered
}

/// A drop, compared at the size that a pilot comparison recommends.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PlannedResult {
    /// Pilots that were inconclusive and recommended a size.
    pub(crate) planned: u32,
    /// Comparisons at the recommended size that came out as worse.
    pub(crate) found: u32,
    /// Sum of the recommended numbers of tasks.
    pub(crate) tasks: u64,
    /// Pilots that recommended more trials of the same tasks instead.
    pub(crate) trials_planned: u32,
    pub(crate) trials_found: u32,
}

pub(crate) fn detect_at_recommended_size(
    seed: u64,
    rounds: u32,
    pilot: SimulatedDesign,
    change: SimulatedChange,
    min_effect: f64,
) -> PlannedResult {
    let mut random = Rng::with_seed(seed);
    let settings = ComparisonSettings { min_effect, ..ComparisonSettings::default() };
    let mut result = PlannedResult::default();
    for _ in 0..rounds {
        let report = simulate_comparison(&mut random, pilot, change, &settings);
        let Some(plan) = report.pairs[0].dimensions[0].plan else { continue };
        let is_worse = |random: &mut Rng, design: SimulatedDesign| {
            let found = simulate_comparison(random, design, change, &settings);
            u32::from(found.pairs[0].dimensions[0].verdict == ComparisonVerdict::Worse)
        };
        let tasks = plan.needed_tasks.expect("there is more than one task");
        result.planned += 1;
        result.tasks += tasks;
        result.found += is_worse(&mut random, SimulatedDesign { tasks: tasks as usize, ..pilot });
        if let TrialAdvice::Decide { trials_per_task } = plan.trials {
            result.trials_planned += 1;
            let trials = [trials_per_task as usize; 2];
            result.trials_found += is_worse(&mut random, SimulatedDesign { trials, ..pilot });
        }
    }
    result
}
