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

/// A task as both versions meet it.
#[derive(Clone, Copy, Debug)]
struct SimulatedTask {
    /// Probability of success, by version.
    probabilities: [f64; 2],
    /// Mean number of steps, about.
    length: f64,
}

fn draw_tasks(random: &mut Rng, count: usize, change: SimulatedChange) -> Vec<SimulatedTask> {
    let draw = |_| {
        let ease = 0.42 + 0.5 * random.f64();
        let length = 2.0 + 8.0 * random.f64();
        let drop = change.drop + change.drop_spread * (2.0 * random.f64() - 1.0);
        let is_broken = change.broken.is_some_and(|share| random.f64() < share);
        let probabilities = match change.broken {
            None => [ease, ease - drop],
            Some(_) => [1.0, f64::from(u8::from(!is_broken))],
        };
        SimulatedTask { probabilities, length }
    };
    (0..count).map(draw).collect()
}

pub(crate) fn simulate_comparison(
    random: &mut Rng,
    design: SimulatedDesign,
    change: SimulatedChange,
    settings: &ComparisonSettings,
) -> ComparisonReport {
    let tasks = draw_tasks(random, design.tasks, change);
    compare_on_tasks(random, &tasks, design.trials, change, settings)
}

fn compare_on_tasks(
    random: &mut Rng,
    tasks: &[SimulatedTask],
    trials: [usize; 2],
    change: SimulatedChange,
    settings: &ComparisonSettings,
) -> ComparisonReport {
    let mut samples = ComparisonSamples::new(simulated_dimensions(), vec!["first".to_owned(), "second".to_owned()]);
    for (at, task) in tasks.iter().enumerate() {
        let name = format!("task {at}");
        for (version, trials) in trials.into_iter().enumerate() {
            for _ in 0..trials {
                let factor = if version == 1 { change.cost_factor } else { 1.0 };
                let run = simulate_run(random, task.probabilities[version], task.length, factor);
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
    pub(crate) inconclusive: u32,
    /// Pilots that recommended a number of tasks.
    pub(crate) planned: u32,
    /// Comparisons over that many new tasks that came out as worse.
    pub(crate) found: u32,
    /// Sum of the recommended numbers of tasks.
    pub(crate) tasks: u64,
    /// Pilots that recommended more trials of the same tasks as an alternative.
    pub(crate) trials_planned: u32,
    /// Comparisons with that many trials that came out as worse: of the tasks of the pilot, and of as many new ones.
    pub(crate) same_tasks_found: u32,
    pub(crate) new_tasks_found: u32,
    /// Sum of the recommended numbers of trials.
    pub(crate) trials: u64,
    /// Comparisons that came out as worse where more trials are run if they are recommended, and more tasks otherwise.
    pub(crate) advised_found: u32,
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
        let pilot_tasks = draw_tasks(&mut random, pilot.tasks, change);
        let report = compare_on_tasks(&mut random, &pilot_tasks, pilot.trials, change, &settings);
        let Some(plan) = report.pairs[0].dimensions[0].plan else { continue };
        result.inconclusive += 1;
        let mut is_worse = |tasks: &[SimulatedTask], trials: [usize; 2]| {
            let found = compare_on_tasks(&mut random, tasks, trials, change, &settings);
            u32::from(found.pairs[0].dimensions[0].verdict == ComparisonVerdict::Worse)
        };
        let mut task_random = Rng::with_seed(seed ^ u64::from(result.inconclusive) << 32);
        let mut advised_found = 0;
        if let Some(tasks) = plan.needed_tasks {
            result.planned += 1;
            result.tasks += tasks;
            advised_found = is_worse(&draw_tasks(&mut task_random, tasks as usize, change), pilot.trials);
            result.found += advised_found;
        }
        if let TrialAdvice::Decide { trials_per_task } = plan.trials {
            result.trials_planned += 1;
            result.trials += trials_per_task;
            let trials = [trials_per_task as usize; 2];
            advised_found = is_worse(&pilot_tasks, trials);
            result.same_tasks_found += advised_found;
            result.new_tasks_found += is_worse(&draw_tasks(&mut task_random, pilot.tasks, change), trials);
        }
        result.advised_found += advised_found;
    }
    result
}
