//! Comparison of two or more versions of an agent over tasks.
//!
//! For each dimension the effect is the mean over tasks of the difference between the versions; a task is a cluster,
//! whatever the number of its trials and steps. Tasks that both versions ran are paired.
//!
//! - The p-value is McNemar's mid-p value where each task has one binary result per version, otherwise that of a
//!   sign-flip permutation over tasks. Versions without a common task are compared as independent samples.
//! - All tests of all pairs and dimensions are one family: p-values are corrected by Holm's method, and the interval
//!   that decides is Bonferroni's: all of them hold together with probability 1 - alpha.
//! - The verdict follows from that interval alone; see [`ComparisonVerdict`].
//!
//! Swapping two versions mirrors every result exactly, and the order in which values were added does not matter.

mod comparison_test;
mod dimension;
mod estimate;
mod paired;
mod power;
mod result;
mod samples;
mod sign_flip;
#[cfg(test)]
mod tests;
mod unpaired;
mod variance_parts;

pub use comparison_test::ComparisonTest;
pub use dimension::{ComparedDimension, DimensionPreference, EffectScale, relative_change};
pub use power::{DecisionPlan, TrialAdvice};
pub use result::{ComparisonReport, ComparisonVerdict, DimensionComparison, TaskCounts, VersionPairComparison};
pub use samples::{ComparisonError, ComparisonSamples};

use crate::significance::holm_correction;
use estimate::EffectEstimate;
use paired::SharedTasks;
use samples::VersionSample;
use unpaired::{estimate_unpaired, unpaired_means};

/// Levels and sizes of a comparison.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ComparisonSettings {
    /// Probability that any verdict of the whole report is wrong, at most.
    pub alpha: f64,
    /// Differences up to this size are the same: percentage points of shares, percent of amounts.
    pub min_effect: f64,
    /// Permutations that a test draws, from 19,999 to 199,999. Fewer take less time and bound p-values from below: 19,999
    /// are enough for a thousand tests.
    pub max_draws: u32,
}

impl Default for ComparisonSettings {
    fn default() -> ComparisonSettings {
        ComparisonSettings { alpha: 0.05, min_effect: 0.05, max_draws: sign_flip::MAX_DRAWS }
    }
}

/// A pair of versions on one dimension, before the correction for multiple tests.
struct ComparedCell {
    dimension: usize,
    estimate: EffectEstimate,
    means: (f64, f64),
    counts: TaskCounts,
    is_paired: bool,
}

/// Compares every pair of versions on every dimension.
pub fn compare_versions(
    samples: &ComparisonSamples,
    settings: &ComparisonSettings,
) -> Result<ComparisonReport, ComparisonError> {
    settings.check()?;
    let own_effects = samples.dimensions().iter().filter_map(|dimension| dimension.min_effect);
    own_effects.into_iter().try_for_each(|effect| check_range("min_effect", effect, 1.0))?;
    let sides = samples.summarize();
    let versions = samples.versions();
    let mut pairs: Vec<(usize, usize, Vec<ComparedCell>)> = Vec::new();
    for first in 0..versions.len() {
        for second in first + 1..versions.len() {
            let cells = samples.dimensions().iter().enumerate().filter_map(|(dimension, compared)| {
                let (first, second) = (&sides[dimension][first], &sides[dimension][second]);
                compare_cell(dimension, compared.scale, settings.max_draws, first, second)
            });
            pairs.push((first, second, cells.collect()));
        }
    }
    let p_values: Vec<f64> = pairs.iter().flat_map(|(.., cells)| cells).map(|cell| cell.estimate.p_value).collect();
    let adjusted_alpha = settings.alpha / p_values.len().max(1) as f64;
    let mut corrected = holm_correction(&p_values).into_iter();
    let report = |(first, second, cells): (usize, usize, Vec<ComparedCell>)| {
        let is_missing = |dimension: &usize| !cells.iter().any(|cell| cell.dimension == *dimension);
        let names = samples.dimensions().iter().map(|dimension| &dimension.name);
        VersionPairComparison {
            first: versions[first].clone(),
            second: versions[second].clone(),
            missing: names.enumerate().filter(|(at, _)| is_missing(at)).map(|(_, name)| name.clone()).collect(),
            dimensions: cells
                .iter()
                .zip(corrected.by_ref())
                .map(|(cell, adjusted_p_value)| {
                    let compared = &samples.dimensions()[cell.dimension];
                    build_dimension_comparison(compared, cell, settings, adjusted_alpha, adjusted_p_value)
                })
                .collect(),
        }
    };
    Ok(ComparisonReport {
        alpha: settings.alpha,
        test_count: p_values.len(),
        adjusted_alpha,
        pairs: pairs.into_iter().map(report).collect(),
    })
}

impl ComparisonSettings {
    /// Refuses values that make no sense. Commands call it before hours of work, and [`compare_versions`] again.
    pub fn check(&self) -> Result<(), ComparisonError> {
        check_range("min_effect", self.min_effect, 1.0)?;
        // A level of a half or more is no confidence at all.
        check_range("alpha", self.alpha, 0.5)
    }
}

fn check_range(name: &'static str, value: f64, max: f64) -> Result<(), ComparisonError> {
    match value > 0.0 && value < max {
        true => Ok(()),
        false => Err(ComparisonError::SettingOutOfRange { name, value, max }),
    }
}

/// `None` if a version has no value.
fn compare_cell(
    dimension: usize,
    scale: EffectScale,
    max_draws: u32,
    first: &VersionSample,
    second: &VersionSample,
) -> Option<ComparedCell> {
    if first.tasks.is_empty() || second.tasks.is_empty() {
        return None;
    }
    let shared = SharedTasks::from_versions(first, second);
    let runs = |sample: &VersionSample| sample.tasks.iter().map(|task| task.runs as u64).sum();
    let changed = shared.changed_counts();
    let counts = TaskCounts {
        shared: shared.pairs.len() as u64,
        only_first: (first.tasks.len() - shared.pairs.len()) as u64,
        only_second: (second.tasks.len() - shared.pairs.len()) as u64,
        rose: changed.better,
        fell: changed.worse,
        first_runs: runs(first),
        second_runs: runs(second),
    };
    let is_paired = !shared.pairs.is_empty();
    let (estimate, means) = if is_paired {
        (shared.estimate_effect(scale, max_draws), shared.means())
    } else {
        (estimate_unpaired(first, second, scale), unpaired_means(first, second))
    };
    Some(ComparedCell { dimension, estimate, means, counts, is_paired })
}

fn build_dimension_comparison(
    compared: &ComparedDimension,
    cell: &ComparedCell,
    settings: &ComparisonSettings,
    adjusted_alpha: f64,
    adjusted_p_value: f64,
) -> DimensionComparison {
    let min_effect = compared.min_effect.unwrap_or(settings.min_effect);
    let bound = compared.scale.equivalence_bound(min_effect);
    let adjusted_interval = cell.estimate.interval(adjusted_alpha);
    let verdict = ComparisonVerdict::from_interval(adjusted_interval, bound, compared.preference);
    let is_open = verdict == ComparisonVerdict::Inconclusive;
    let shares = (compared.scale == EffectScale::Share).then_some(cell.means);
    DimensionComparison {
        dimension: compared.name.clone(),
        scale: compared.scale,
        preference: compared.preference,
        verdict,
        effect: cell.estimate.value,
        interval: cell.estimate.interval(settings.alpha),
        adjusted_interval,
        p_value: cell.estimate.p_value,
        adjusted_p_value,
        test: cell.estimate.test,
        is_paired: cell.is_paired,
        first_mean: cell.means.0,
        second_mean: cell.means.1,
        min_effect,
        equivalence_bound: bound,
        tasks: cell.counts,
        plan: is_open.then(|| DecisionPlan::from_estimate(&cell.estimate, bound, adjusted_alpha, shares)),
    }
}
