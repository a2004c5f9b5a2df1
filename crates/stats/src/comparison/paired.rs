//! Effects over the tasks that both versions ran.

use crate::changed_share::ChangedCounts;
use crate::significance::mcnemar_mid_p;

use super::comparison_test::ComparisonTest;
use super::dimension::EffectScale;
use super::estimate::{EffectEstimate, IntervalShape, is_rare};
use super::samples::{TaskSample, VersionSample, mean_difference, mean_over_tasks, mean_units};
use super::sign_flip::sign_flip_test;
use super::variance_parts::TrialVariance;

/// The tasks that both versions ran, in the order of their names.
#[derive(Debug)]
pub(super) struct SharedTasks {
    pub(super) pairs: Vec<(TaskSample, TaskSample)>,
    /// Differences of the means, in units.
    pub(super) differences: Vec<i128>,
    pub(super) unit: f64,
}

impl SharedTasks {
    pub(super) fn from_versions(first: &VersionSample, second: &VersionSample) -> SharedTasks {
        let mut pairs = Vec::new();
        let mut rest = second.tasks.iter().peekable();
        for task in &first.tasks {
            while rest.next_if(|other| other.task < task.task).is_some() {}
            pairs.extend(rest.next_if(|other| other.task == task.task).map(|other| (*task, *other)));
        }
        let differences = pairs.iter().map(|(first, second)| mean_difference(first, second)).collect();
        SharedTasks { pairs, differences, unit: first.unit }
    }

    /// Means over tasks of the first and the second version.
    pub(super) fn means(&self) -> (f64, f64) {
        (
            mean_over_tasks(self.pairs.iter().map(|(first, _)| first), self.unit),
            mean_over_tasks(self.pairs.iter().map(|(_, second)| second), self.unit),
        )
    }

    /// The effect; there must be a shared task.
    pub(super) fn estimate_effect(&self, scale: EffectScale, max_draws: u32) -> EffectEstimate {
        let tasks = self.pairs.len() as f64;
        let difference = mean_units(&self.differences) * self.unit;
        let divisor = match scale {
            EffectScale::Share => 1.0,
            EffectScale::Relative => match self.means() {
                // Both versions used nothing: the difference is 0, whatever it is divided by.
                (first, second) if first + second == 0.0 => 1.0,
                (first, second) => f64::midpoint(first, second),
            },
        };
        let value = difference / divisor;
        // The linearized ratio: the deviation of each task from the common effect.
        let residual = |((first, second), difference): (&(TaskSample, TaskSample), &i128)| {
            let expected = match scale {
                EffectScale::Share => value,
                EffectScale::Relative => value * f64::midpoint(first.mean, second.mean) / divisor,
            };
            *difference as f64 * self.unit / divisor - expected
        };
        let squares: f64 = self.pairs.iter().zip(&self.differences).map(|task| residual(task).powi(2)).sum();
        let variance = if tasks > 1.0 { squares / (tasks - 1.0) } else { 0.0 };
        let (p_value, test) = self.test_difference(scale, max_draws);
        let estimate = EffectEstimate {
            value,
            p_value,
            test,
            tasks,
            variance,
            trial_variance: self.trial_variance(divisor),
            trials: self.mean_trials(),
            freedom: tasks - 1.0,
            max_effect: scale.max_effect(),
            shape: IntervalShape::Student,
        };
        if self.pairs.len() == 1 {
            return EffectEstimate { shape: IntervalShape::Unknown, ..estimate };
        }
        if test == ComparisonTest::McnemarMidP {
            return EffectEstimate { shape: IntervalShape::Changed(self.changed_counts()), ..estimate };
        }
        let (deviating, jump) = self.deviating_tasks();
        if !is_rare(deviating, self.pairs.len() as u64) && variance > 1e-20 {
            return estimate;
        }
        let shape = IntervalShape::Sparse { jump: jump / divisor };
        // If all tasks changed alike, the variance is that of a sample with one unchanged task more.
        let variance = if variance > 1e-20 { variance } else { value * value / (tasks + 1.0) };
        EffectEstimate { variance, shape, ..estimate }
    }

    fn test_difference(&self, scale: EffectScale, max_draws: u32) -> (f64, ComparisonTest) {
        let is_single = |task: &TaskSample| task.runs == 1 && task.is_binary;
        let is_binary = scale == EffectScale::Share && self.pairs.iter().all(|(a, b)| is_single(a) && is_single(b));
        if is_binary {
            let ChangedCounts { better, worse, .. } = self.changed_counts();
            return (mcnemar_mid_p(better, worse), ComparisonTest::McnemarMidP);
        }
        sign_flip_test(&self.differences, max_draws)
    }

    /// Tasks whose value rose ("better" here, whatever is preferred) and fell.
    pub(super) fn changed_counts(&self) -> ChangedCounts {
        ChangedCounts {
            better: self.differences.iter().filter(|difference| **difference > 0).count() as u64,
            worse: self.differences.iter().filter(|difference| **difference < 0).count() as u64,
            all: self.differences.len() as u64,
        }
    }

    /// Returns the number of tasks that differ from the most frequent difference, and the largest deviation.
    fn deviating_tasks(&self) -> (u64, f64) {
        // Rounded, since equal differences of different denominators can be apart by one unit.
        let mut sorted: Vec<i64> = self.differences.iter().map(|d| (*d as f64 / 1_048_576.0).round() as i64).collect();
        sorted.sort_unstable();
        let runs = || sorted.chunk_by(|a, b| a == b);
        let frequency = runs().map(<[i64]>::len).max().unwrap_or(0);
        // The farthest of several that are equally frequent, so that swapping the versions changes nothing.
        let common = runs().filter(|run| run.len() == frequency).map(|run| run[0]);
        let (lowest, highest) = (sorted.first().copied().unwrap_or(0), sorted.last().copied().unwrap_or(0));
        let jump = common.map(|common| (highest - common).max(common - lowest)).max().unwrap_or(0);
        ((sorted.len() - frequency) as u64, jump as f64 * 1_048_576.0 * self.unit)
    }

    fn mean_trials(&self) -> f64 {
        let runs: i128 = self.pairs.iter().map(|(first, second)| first.runs + second.runs).sum();
        runs as f64 / (2.0 * self.pairs.len() as f64)
    }

    /// The variance that a task's difference has because its trials vary: the within-task part of the law of total
    /// variance. The variance of one trial is pooled over tasks, for each version.
    fn trial_variance(&self, divisor: f64) -> Option<TrialVariance> {
        let side = |pick: fn(&(TaskSample, TaskSample)) -> &TaskSample| {
            let freedom: i128 = self.pairs.iter().map(|pair| pick(pair).runs - 1).sum();
            let squares: f64 = self.pairs.iter().map(|pair| pick(pair).squares).sum();
            let inverse: f64 = self.pairs.iter().map(|pair| 1.0 / pick(pair).runs as f64).sum();
            let of_single_trial = squares / freedom as f64 / (divisor * divisor);
            (freedom > 0).then(|| TrialVariance {
                of_single_trial,
                present: of_single_trial * inverse / self.pairs.len() as f64,
                freedom: freedom as f64,
            })
        };
        Some(side(|pair| &pair.0)?.add(&side(|pair| &pair.1)?))
    }
}
