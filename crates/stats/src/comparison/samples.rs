//! The values that are compared, and their exact sums.
//!
//! Values are summed as integers: multiples of 2^-60 of the largest value (rounded up to a power of two). So sums do
//! not depend on the order of values, means of 5 and of 20 equal trials are equal, and swapping two versions negates
//! every difference exactly. A share such as 1/3 is rounded when it becomes a floating-point number, by less than
//! 2^-53. Differences of means within 2^-50 are therefore rounding and count as 0.

use std::collections::HashMap;

use thiserror::Error;

use super::dimension::ComparedDimension;

/// Bits after the binary point of the sums.
const FRACTION_BITS: i32 = 60;

/// Differences of means up to this many units are rounding errors of the values.
const ROUNDING_UNITS: i128 = 1 << 10;

/// A value or a setting that cannot be compared.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum ComparisonError {
    #[error(
        "cannot compare a value: {dimension}, task {task}: {value} is out of range\nhint: shares are from 0 to 1, amounts are finite and not negative"
    )]
    ValueOutOfRange { dimension: String, task: String, value: f64 },
    #[error("cannot compare a value: {what} {index} is unknown\nhint: there are {count}")]
    UnknownIndex { what: &'static str, index: usize, count: usize },
    #[error("cannot compare versions: {name} is {value}\nhint: it must be between 0 and {max}, both excluded")]
    SettingOutOfRange { name: &'static str, value: f64, max: f64 },
}

/// All values of all versions.
#[derive(Clone, Debug)]
pub struct ComparisonSamples {
    dimensions: Vec<ComparedDimension>,
    versions: Vec<String>,
    task_names: Vec<String>,
    task_index: HashMap<String, usize>,
    /// By dimension, then by version: task and value of each run.
    values: Vec<Vec<Vec<(usize, f64)>>>,
}

/// The runs of one version on one task.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct TaskSample {
    /// Position of the task in the order of names.
    pub(super) task: usize,
    pub(super) runs: i128,
    /// Sum of the values in units.
    pub(super) total: i128,
    pub(super) mean: f64,
    /// Sum of the squared deviations from the mean, for the variance within tasks.
    pub(super) squares: f64,
    pub(super) is_binary: bool,
}

/// One dimension of one version, sorted by task.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct VersionSample {
    pub(super) tasks: Vec<TaskSample>,
    /// What one unit of `total` is worth.
    pub(super) unit: f64,
}

impl ComparisonSamples {
    pub fn new(dimensions: Vec<ComparedDimension>, versions: Vec<String>) -> ComparisonSamples {
        let values = vec![vec![Vec::new(); versions.len()]; dimensions.len()];
        ComparisonSamples { dimensions, versions, task_names: Vec::new(), task_index: HashMap::new(), values }
    }

    /// Adds the value of one run of a version. Several values of the same task are trials of it.
    pub fn add_value(
        &mut self,
        version: usize,
        dimension: usize,
        task: &str,
        value: f64,
    ) -> Result<(), ComparisonError> {
        let unknown = |what, index, count| ComparisonError::UnknownIndex { what, index, count };
        let compared = self.dimensions.get(dimension);
        let compared = compared.ok_or_else(|| unknown("dimension", dimension, self.dimensions.len()))?;
        if version >= self.versions.len() {
            return Err(unknown("version", version, self.versions.len()));
        }
        if !compared.scale.contains(value) {
            let (dimension, task) = (compared.name.clone(), task.to_owned());
            return Err(ComparisonError::ValueOutOfRange { dimension, task, value });
        }
        let index = match self.task_index.get(task) {
            Some(index) => *index,
            None => {
                self.task_names.push(task.to_owned());
                self.task_index.insert(task.to_owned(), self.task_names.len() - 1);
                self.task_names.len() - 1
            }
        };
        self.values[dimension][version].push((index, value));
        Ok(())
    }

    pub(super) fn dimensions(&self) -> &[ComparedDimension] {
        &self.dimensions
    }

    pub(super) fn versions(&self) -> &[String] {
        &self.versions
    }

    /// The samples of each version on each dimension, in an order that does not depend on the order of `add_value`.
    pub(super) fn summarize(&self) -> Vec<Vec<VersionSample>> {
        let mut order: Vec<usize> = (0..self.task_names.len()).collect();
        order.sort_unstable_by_key(|task| &self.task_names[*task]);
        let mut ranks = vec![0; order.len()];
        for (rank, task) in order.into_iter().enumerate() {
            ranks[task] = rank;
        }
        let summarize_dimension = |versions: &Vec<Vec<(usize, f64)>>| {
            let largest = versions.iter().flatten().fold(1e-300_f64, |largest, (_, value)| largest.max(*value));
            let unit = (largest.log2().ceil() as i32 - FRACTION_BITS).max(f64::MIN_EXP);
            let unit = 2.0_f64.powi(unit);
            versions.iter().map(|runs| summarize_version(runs, &ranks, unit)).collect()
        };
        self.values.iter().map(summarize_dimension).collect()
    }
}

fn summarize_version(runs: &[(usize, f64)], ranks: &[usize], unit: f64) -> VersionSample {
    let mut runs: Vec<(usize, f64)> = runs.iter().map(|(task, value)| (ranks[*task], *value)).collect();
    // Also by value, so that the sums of squares do not depend on the order of runs.
    runs.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let summarize_task = |runs: &[(usize, f64)]| {
        let total: i128 = runs.iter().map(|(_, value)| to_units(*value, unit)).sum();
        let mean = total as f64 / runs.len() as f64 * unit;
        TaskSample {
            task: runs[0].0,
            runs: runs.len() as i128,
            total,
            mean,
            squares: runs.iter().map(|(_, value)| (value - mean).powi(2)).sum(),
            is_binary: runs.iter().all(|(_, value)| [0.0, 1.0].contains(value)),
        }
    };
    VersionSample { tasks: runs.chunk_by(|a, b| a.0 == b.0).map(summarize_task).collect(), unit }
}

fn to_units(value: f64, unit: f64) -> i128 {
    (value / unit).round() as i128
}

/// The difference of two means of a task in units, second minus first; 0 within rounding.
pub(super) fn mean_difference(first: &TaskSample, second: &TaskSample) -> i128 {
    let numerator = second.total * first.runs - first.total * second.runs;
    let denominator = first.runs * second.runs;
    if numerator.abs() <= denominator * ROUNDING_UNITS {
        return 0;
    }
    // Half of the denominator in the direction of the sign rounds to nearest, and alike in both directions.
    (numerator + numerator.signum() * (denominator / 2)) / denominator
}

/// The mean of differences in units, 0 within rounding.
pub(super) fn mean_units(differences: &[i128]) -> f64 {
    let (total, count) = (differences.iter().sum::<i128>(), differences.len() as i128);
    if total.abs() <= count * ROUNDING_UNITS { 0.0 } else { total as f64 / count as f64 }
}

/// The mean of the means of tasks.
pub(super) fn mean_over_tasks<'s>(tasks: impl Iterator<Item = &'s TaskSample>, unit: f64) -> f64 {
    let means: Vec<i128> = tasks.map(|task| (task.total + task.runs / 2) / task.runs).collect();
    if means.is_empty() { 0.0 } else { means.iter().sum::<i128>() as f64 / means.len() as f64 * unit }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_means_of_unequal_trials_are_equal() {
        let mut samples = ComparisonSamples::new(
            vec![ComparedDimension::score("score"), ComparedDimension::amount("cost")],
            vec!["a".to_owned(), "b".to_owned()],
        );
        let shares = [1.0 / 3.0, 2.0 / 7.0, 1.0, 0.1, 5.0 / 6.0];
        let costs = [0.000_31, 0.1, 12.0, 0.2, 7.3];
        for (share, cost) in shares.into_iter().zip(costs) {
            samples.add_value(0, 0, "t", share).unwrap();
            samples.add_value(0, 1, "t", cost).unwrap();
            for _ in 0..4 {
                samples.add_value(1, 0, "t", share).unwrap();
                samples.add_value(1, 1, "t", cost).unwrap();
            }
        }
        // Equal as rational numbers, not as floating-point numbers.
        for (third, half) in [(1.0 / 3.0, 0.5), (2.0 / 3.0, 0.5)] {
            samples.add_value(0, 0, "u", third).unwrap();
            samples.add_value(1, 0, "u", half).unwrap();
        }
        for dimension in samples.summarize() {
            for (first, second) in dimension[0].tasks.iter().zip(&dimension[1].tasks) {
                assert_eq!(mean_difference(first, second), 0, "{first:?} {second:?}");
            }
        }
        // One wrong step in ten thousand is no rounding.
        samples.add_value(0, 0, "v", 1.0).unwrap();
        samples.add_value(1, 0, "v", 0.9999).unwrap();
        let found = samples.summarize();
        let difference = mean_difference(&found[0][0].tasks[2], &found[0][1].tasks[2]);
        assert!((difference as f64 * found[0][0].unit + 0.0001).abs() < 1e-15);
    }

    #[test]
    fn values_off_the_scale_are_refused() {
        let mut samples = ComparisonSamples::new(
            vec![ComparedDimension::score("score"), ComparedDimension::amount("cost")],
            vec!["a".to_owned()],
        );
        for (dimension, value) in [(0, 1.5), (0, -0.1), (0, f64::NAN), (1, -1.0), (1, f64::INFINITY), (1, f64::NAN)] {
            let error = samples.add_value(0, dimension, "t", value).unwrap_err();
            assert!(matches!(error, ComparisonError::ValueOutOfRange { .. }), "{error}");
        }
        assert!(samples.add_value(0, 2, "t", 1.0).is_err() && samples.add_value(1, 0, "t", 1.0).is_err());
    }
}
