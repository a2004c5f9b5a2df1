//! Effects of versions that share no task: two independent samples of tasks.

use crate::distributions::{student_quantile, student_two_sided};
use crate::interval::{ConfidenceInterval, ScoreCluster, degrees_of_freedom};

use super::comparison_test::ComparisonTest;
use super::dimension::EffectScale;
use super::estimate::{EffectEstimate, IntervalShape};
use super::samples::{VersionSample, mean_over_tasks};

/// Significance level of the interval that is inverted into a p-value.
const ALPHA: f64 = 0.05;

/// Mean over tasks of the per-task means, with its squared standard error.
struct VersionMean {
    mean: f64,
    variance: f64,
    tasks: f64,
}

impl VersionMean {
    fn from_sample(sample: &VersionSample) -> VersionMean {
        let mean = mean_over_tasks(sample.tasks.iter(), sample.unit);
        let tasks = sample.tasks.len() as f64;
        let squares: f64 = sample.tasks.iter().map(|task| (task.mean - mean).powi(2)).sum();
        VersionMean { mean, variance: if tasks > 1.0 { squares / (tasks - 1.0) / tasks } else { 0.0 }, tasks }
    }
}

/// Means over tasks of both versions.
pub(super) fn unpaired_means(first: &VersionSample, second: &VersionSample) -> (f64, f64) {
    (VersionMean::from_sample(first).mean, VersionMean::from_sample(second).mean)
}

/// The effect; both versions must have a task.
pub(super) fn estimate_unpaired(first: &VersionSample, second: &VersionSample, scale: EffectScale) -> EffectEstimate {
    let (a, b) = (VersionMean::from_sample(first), VersionMean::from_sample(second));
    let tasks = a.tasks.min(b.tasks);
    let raw = if (b.mean - a.mean).abs() <= f64::EPSILON * a.mean.max(b.mean) { 0.0 } else { b.mean - a.mean };
    // Derivatives of the effect with respect to the two means.
    let (value, by_first, by_second) = match scale {
        EffectScale::Share => (raw, 1.0, 1.0),
        EffectScale::Relative if a.mean + b.mean == 0.0 => (0.0, 0.0, 0.0),
        EffectScale::Relative => {
            let total = a.mean + b.mean;
            (raw / (total / 2.0), 4.0 * b.mean / (total * total), 4.0 * a.mean / (total * total))
        }
    };
    let parts = [by_first * by_first * a.variance, by_second * by_second * b.variance];
    let variance = parts[0] + parts[1];
    let clusters = |sample: &VersionSample| -> Vec<ScoreCluster> {
        sample.tasks.iter().map(|task| ScoreCluster { count: 1.0, sum: task.mean }).collect()
    };
    let (shape, freedom) = if scale == EffectScale::Share {
        let (first, second) = (clusters(first), clusters(second));
        let freedom = degrees_of_freedom(&first, 0.0, 1.0).min(degrees_of_freedom(&second, 0.0, 1.0));
        (IntervalShape::Newcombe { first, second }, freedom)
    } else if tasks < 2.0 {
        (IntervalShape::Unknown, 1.0)
    } else if variance <= 1e-20 {
        (IntervalShape::Sparse { jump: 0.0 }, tasks - 1.0)
    } else {
        // Welch and Satterthwaite.
        let weights = parts[0] * parts[0] / (a.tasks - 1.0) + parts[1] * parts[1] / (b.tasks - 1.0);
        (IntervalShape::Student, variance * variance / weights)
    };
    let estimate = EffectEstimate {
        value,
        // Replaced below. With p = 0, `interval` does not widen the interval to contain 0.
        p_value: 0.0,
        test: ComparisonTest::UnpairedStudent,
        tasks,
        variance: variance * tasks,
        trial_variance: None,
        trials: 1.0,
        freedom,
        max_effect: scale.max_effect(),
        shape,
    };
    let p_value = p_value_from_interval(value, estimate.interval(ALPHA), freedom);
    EffectEstimate { p_value, ..estimate }
}

/// Inverts the interval: its half width towards 0 is one quantile, which gives the t statistic of the value.
fn p_value_from_interval(value: f64, interval: ConfidenceInterval, freedom: f64) -> f64 {
    let towards_zero = if value > 0.0 { value - interval.low } else { interval.high - value };
    if value == 0.0 || towards_zero <= 0.0 {
        return 1.0;
    }
    student_two_sided(student_quantile(ALPHA, freedom) * value.abs() / towards_zero, freedom)
}
