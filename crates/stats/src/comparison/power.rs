//! Computes the smallest difference that could have been found, and the number of tasks or trials that would decide.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::changed_share::max_unseen_share;
use crate::distributions::{normal_quantile, student_quantile};
use crate::significance::mcnemar_mid_p;

use super::estimate::{EffectEstimate, IntervalShape};

/// Probability of finding a difference of the detectable size.
const POWER: f64 = 0.8;

/// Maximum number of recommended trials per task, as a multiple of the present ones.
const MAX_TRIAL_FACTOR: f64 = 50.0;

/// Minimum number of tasks for advice on trials. With fewer, the variance between tasks is too uncertain: its upper
/// bound is more than twice the estimate.
const MIN_TRIAL_ADVICE_TASKS: f64 = 20.0;

/// Maximum number of recommended tasks, as a multiple of the present ones: the variance of a few tasks says little
/// about that of thousands. Up to `MIN_TASK_LIMIT` tasks are recommended in any case.
const MAX_TASK_FACTOR: f64 = 50.0;
const MIN_TASK_LIMIT: u64 = 1_000;

/// What an inconclusive comparison could have found, and what would decide it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DecisionPlan {
    /// The smallest true effect that is found with about 80 % power at this size. `None` with a single task.
    pub detectable_effect: Option<f64>,
    /// Tasks in all that would decide: enough to find an effect of the smallest size that matters with 80 % power, to
    /// show that there is none with the same power, and to decide if the effect is exactly the one observed. `None`
    /// with a single task, and if it is more than `beyond_tasks`.
    pub needed_tasks: Option<u64>,
    /// Set if more tasks than this would be needed: an extrapolation that far from the present ones is no advice.
    pub beyond_tasks: Option<u64>,
    /// `needed_tasks` less those that were compared.
    pub more_tasks: Option<u64>,
    /// Tasks beyond those that were compared that would show with 80 % power that there is a difference, if it is as large
    /// as the one observed. Set if that is more than matters and takes fewer tasks than `more_tasks`.
    #[serde(default)]
    pub more_tasks_if_as_seen: Option<u64>,
    pub trials: TrialAdvice,
}

/// Whether more trials of the same tasks can decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum TrialAdvice {
    /// A version repeated no task, or the versions share none, so nothing shows how much trials vary.
    Unknown,
    /// Tasks differ too much from each other: only more tasks can decide.
    CannotDecide,
    /// More trials would decide if tasks differ as little as it seems, but there are too few tasks to know.
    Uncertain,
    /// So many trials of each task and version would decide.
    Decide { trials_per_task: u64 },
}

impl DecisionPlan {
    /// `bound` is the smallest effect that matters. `shares` are the means of both versions, if they are shares.
    pub(super) fn from_estimate(
        estimate: &EffectEstimate,
        bound: f64,
        alpha: f64,
        shares: Option<(f64, f64)>,
    ) -> DecisionPlan {
        if matches!(estimate.shape, IntervalShape::Unknown) || estimate.tasks < 2.0 {
            let trials = TrialAdvice::CannotDecide;
            return DecisionPlan {
                detectable_effect: None,
                needed_tasks: None,
                beyond_tasks: None,
                more_tasks: None,
                more_tasks_if_as_seen: None,
                trials,
            };
        }
        let interval = estimate.interval(alpha);
        let half = 0.5 * (interval.high - interval.low);
        let found = (student_quantile(alpha, estimate.freedom) + one_sided_quantile(POWER)) * estimate.standard_error();
        let found = shares.map_or(found, |shares| widen_for_shares(found, shares));
        // The variance of few tasks that deviate, or that all deviate alike, is estimated badly; the interval knows that.
        let is_independent = matches!(estimate.shape, IntervalShape::Newcombe { .. });
        let detectable = found.max(half);
        let by_width = if is_independent { (estimate.tasks * (half / bound).powi(2)).ceil() as u64 } else { 0 };
        let needed = count_needed_tasks(estimate, bound, alpha).max(by_width);
        let needed = needed.max(estimate.tasks as u64 + 1);
        let most = MIN_TASK_LIMIT.max((MAX_TASK_FACTOR * estimate.tasks) as u64);
        let advised = Some(needed).filter(|needed| *needed <= most);
        let if_as_seen =
            count_tasks_for_observed_effect(estimate, bound, alpha).filter(|tasks| *tasks < needed.min(most));
        DecisionPlan {
            detectable_effect: Some(detectable.min(estimate.max_effect)),
            needed_tasks: advised,
            beyond_tasks: advised.is_none().then_some(most),
            more_tasks: advised.map(|needed| needed - estimate.tasks as u64),
            more_tasks_if_as_seen: if_as_seen.map(|tasks| tasks - estimate.tasks as u64),
            trials: advise_trials(estimate, bound, alpha),
        }
    }
}

/// The normal quantile that is exceeded with probability 1 - `power`.
fn one_sided_quantile(power: f64) -> f64 {
    normal_quantile(2.0 * (1.0 - power))
}

/// Returns the smallest detectable effect if shares vary more when it is real. A share near 1 varies little, and a
/// share that dropped from there varies more: its variance is at most in proportion to `p (1 - p)`. `found` is the
/// effect by the variance at hand, and `shares` are the means of both versions.
fn widen_for_shares(found: f64, (first, second): (f64, f64)) -> f64 {
    const STEPS: usize = 50;
    let spread = |share: f64| share * (1.0 - share);
    let present = spread(first) + spread(second);
    // The same for swapped versions.
    let middle = 0.5 * (first + second);
    if present <= 0.0 {
        return found;
    }
    let mut effect = found;
    // Grows to a fixed point, since the spread is bounded.
    for _ in 0..STEPS {
        let farthest = 0.5_f64.clamp((middle - effect).max(0.0), (middle + effect).min(1.0));
        effect = found * ((spread(middle) + spread(farthest)) / present).max(1.0).sqrt();
    }
    effect
}

/// The number of standard errors that an effect of the smallest size that matters must have. A difference of that size
/// is found with 80 % power, and no difference is shown to be none with 80 % power: both ends of the interval must then
/// be inside, each with 90 %. `freedom` is that of the variance at hand: quantiles of Student's distribution keep the
/// power on average over pilots, some of which estimate too small a variance (Julious and Owen 2006).
fn required_standard_errors(alpha: f64, freedom: f64) -> f64 {
    student_quantile(alpha, freedom) + student_quantile(1.0 - POWER, freedom)
}

fn count_needed_tasks(estimate: &EffectEstimate, bound: f64, alpha: f64) -> u64 {
    // At the observed effect the interval must end before 0 or before the bound, whichever is farther.
    let reach = estimate.value.abs().max(bound - estimate.value.abs());
    let needed = required_standard_errors(alpha, estimate.freedom);
    let is_enough = |tasks: f64| {
        let error = (estimate.variance / tasks).sqrt();
        let is_sparse_enough = !estimate.is_sparse() || max_unseen_share(tasks, alpha) <= bound;
        is_sparse_enough
            && needed * error <= bound
            && student_quantile(alpha, tasks - 1.0) * error <= reach
            && (estimate.value.abs() <= bound || can_be_significant(estimate, tasks, alpha))
    };
    find_smallest_count(is_enough)
}

/// Tasks in all that find a difference of the observed size with 80 % power; `None` if it is too small to matter.
fn count_tasks_for_observed_effect(estimate: &EffectEstimate, bound: f64, alpha: f64) -> Option<u64> {
    if estimate.value.abs() <= bound || matches!(estimate.shape, IntervalShape::Newcombe { .. }) {
        return None;
    }
    let freedom = estimate.freedom;
    let deviations = student_quantile(alpha, freedom) + student_quantile(2.0 * (1.0 - POWER), freedom);
    let is_enough = |tasks: f64| {
        deviations * (estimate.variance / tasks).sqrt() <= estimate.value.abs()
            && can_be_significant(estimate, tasks, alpha)
    };
    Some(find_smallest_count(is_enough).max(estimate.tasks as u64 + 1))
}

/// Whether the test can be significant for this many tasks that differ as the present ones do. Tests of few tasks
/// cannot, however large the difference is: all signs of five tasks are equal by chance in one of 16 cases.
fn can_be_significant(estimate: &EffectEstimate, tasks: f64, alpha: f64) -> bool {
    match &estimate.shape {
        IntervalShape::Changed(counts) => {
            let scale = |count: u64| (count as f64 * tasks / counts.all as f64).round() as u64;
            mcnemar_mid_p(scale(counts.better), scale(counts.worse)) < alpha
        }
        _ => 0.5_f64.powf(tasks - 1.0) < alpha,
    }
}

/// Returns the smallest number of tasks, from 2 on, that satisfies `is_enough`.
fn find_smallest_count(is_enough: impl Fn(f64) -> bool) -> u64 {
    let mut high = 2_u64;
    while !is_enough(high as f64) && high < 1 << 40 {
        high *= 2;
    }
    let mut low = high / 2;
    while low + 1 < high {
        let middle = u64::midpoint(low, high);
        if is_enough(middle as f64) { high = middle } else { low = middle }
    }
    high
}

/// Whether more trials of the same tasks decide, for every variance between tasks that is compatible with the pilot.
fn advise_trials(estimate: &EffectEstimate, bound: f64, alpha: f64) -> TrialAdvice {
    let Some(parts) = &estimate.trial_variance else { return TrialAdvice::Unknown };
    if estimate.is_sparse() || parts.present <= 0.0 {
        return TrialAdvice::CannotDecide;
    }
    let wanted = estimate.tasks * (bound / required_standard_errors(alpha, estimate.freedom)).powi(2);
    let between_tasks = estimate.variance - parts.present;
    if between_tasks >= wanted {
        return TrialAdvice::CannotDecide;
    }
    if estimate.tasks < MIN_TRIAL_ADVICE_TASKS {
        return TrialAdvice::Uncertain;
    }
    let is_enough = |trials: u64| parts.upper_variance(estimate.variance, estimate.freedom, trials as f64) <= wanted;
    let fewest = estimate.trials.floor() as u64 + 1;
    let most = (MAX_TRIAL_FACTOR * estimate.trials) as u64;
    if !is_enough(most) {
        return TrialAdvice::Uncertain;
    }
    let (mut low, mut high) = (fewest - 1, most);
    while low + 1 < high {
        let middle = u64::midpoint(low, high);
        if is_enough(middle) { high = middle } else { low = middle }
    }
    TrialAdvice::Decide { trials_per_task: high }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::comparison_test::ComparisonTest;

    const TASKS: usize = 40;
    const TRIALS: usize = 5;
    const ALPHA: f64 = 0.01;

    /// Mean and variance of the differences of tasks whose trials are right with these probabilities.
    fn simulate_differences(random: &mut fastrand::Rng, first: f64, second: f64) -> (f64, f64) {
        let mut share = |right: f64| (0..TRIALS).filter(|_| random.f64() < right).count() as f64 / TRIALS as f64;
        let differences: Vec<f64> = (0..TASKS).map(|_| share(second) - share(first)).collect();
        let mean = differences.iter().sum::<f64>() / TASKS as f64;
        let squares: f64 = differences.iter().map(|difference| (difference - mean).powi(2)).sum();
        (mean, squares / (TASKS - 1) as f64)
    }

    /// A pilot near 0.9 finds no difference, and says what it could have seen. The variance of a pilot is an estimate, so
    /// about 80 % of such changes are found, averaged over pilots; with the variance before the drop only 60 %.
    #[test]
    fn a_drop_of_the_detectable_size_is_found_as_often_as_promised() {
        const PILOTS: usize = 2_000;
        let mut random = fastrand::Rng::with_seed(19);
        let (mut found, mut found_before) = (0, 0);
        for _ in 0..PILOTS {
            let (value, variance) = simulate_differences(&mut random, 0.9, 0.9);
            let estimate = EffectEstimate {
                value,
                p_value: 1.0,
                test: ComparisonTest::SignFlipSampled,
                tasks: TASKS as f64,
                variance,
                trial_variance: None,
                trials: TRIALS as f64,
                freedom: (TASKS - 1) as f64,
                max_effect: 1.0,
                shape: IntervalShape::Student,
            };
            let mut is_found = |shares| {
                let plan = DecisionPlan::from_estimate(&estimate, 0.05, ALPHA, shares);
                let drop = plan.detectable_effect.expect("several tasks");
                let (mean, variance) = simulate_differences(&mut random, 0.9, 0.9 - drop);
                mean < -student_quantile(ALPHA, (TASKS - 1) as f64) * (variance / TASKS as f64).sqrt()
            };
            found += usize::from(is_found(Some((0.9, 0.9))));
            found_before += usize::from(is_found(None));
        }
        assert!(found as f64 >= 0.75 * PILOTS as f64, "{found} of {PILOTS}");
        assert!((found_before as f64) < 0.65 * PILOTS as f64, "{found_before} of {PILOTS}");
    }

    #[test]
    fn shares_that_cannot_vary_more_keep_the_effect() {
        assert_eq!(widen_for_shares(0.1, (0.5, 0.5)), 0.1);
        assert_eq!(widen_for_shares(0.1, (1.0, 1.0)), 0.1);
        assert_eq!(widen_for_shares(0.1, (0.1, 0.2)), widen_for_shares(0.1, (0.9, 0.8)));
    }
}
