//! The correction of Rogan and Gladen (1978) with the calibration-aware interval of Lee et al. (2025).
//!
//! The judge accepts `p` of the population. If it accepts `q1` of right cases and rejects `q0` of wrong ones, the share
//! of right cases is `(p + q0 - 1) / (q0 + q1 - 1)`. The rates may come from other cases, in any mixture of right and
//! wrong.

use crate::distributions::normal_quantile;
use crate::interval::ConfidenceInterval;

use super::design_effect::{LabelledShare, RunTotals, clustered_share, labelled_share};
use super::labelled::{CorrectionRefusal, JudgedRun, LabelledRun};

/// The judge accepts a case whose label has at least this score.
pub(super) const ACCEPTING_SCORE: f64 = 0.5;

/// Rates of a judge and the numbers of independent cases that they come from. The numbers may be fractional (effective
/// sample sizes).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RoganGladenCounts {
    /// Share of the population that the judge accepts.
    pub accepted_share: f64,
    pub population: f64,
    /// Share of right cases that the judge accepts.
    pub true_positive_rate: f64,
    pub right_cases: f64,
    /// Share of wrong cases that the judge rejects.
    pub true_negative_rate: f64,
    pub wrong_cases: f64,
}

/// The estimate, between 0 and 1. `None` where the judge is no better than chance.
pub fn rogan_gladen_estimate(counts: &RoganGladenCounts) -> Option<f64> {
    let informedness = counts.true_negative_rate + counts.true_positive_rate - 1.0;
    let estimate = (counts.accepted_share + counts.true_negative_rate - 1.0) / informedness;
    (informedness > 1e-12).then(|| estimate.clamp(0.0, 1.0))
}

/// The calibration-aware interval at the two-sided level `alpha`. `None` where the judge is no better than chance.
pub fn rogan_gladen_interval(counts: &RoganGladenCounts, alpha: f64) -> Option<ConfidenceInterval> {
    let z = normal_quantile(alpha);
    let add = |share: f64, count: f64, extra: f64| ((share * count + 0.5 * extra) / (count + extra), count + extra);
    let (accepted, population) = add(counts.accepted_share, counts.population, z * z);
    let (negative, wrong_cases) = add(counts.true_negative_rate, counts.wrong_cases, 2.0);
    let (positive, right_cases) = add(counts.true_positive_rate, counts.right_cases, 2.0);
    let informedness = negative + positive - 1.0;
    if informedness <= 1e-12 {
        return None;
    }
    let negative_variance = negative * (1.0 - negative) / wrong_cases;
    let positive_variance = positive * (1.0 - positive) / right_cases;
    let centre = (accepted + negative - 1.0) / informedness;
    let shift = 2.0 * z * z * (centre * positive_variance - (1.0 - centre) * negative_variance);
    let variance = accepted * (1.0 - accepted) / population
        + (1.0 - centre).powi(2) * negative_variance
        + centre.powi(2) * positive_variance;
    let half = z * variance.sqrt() / informedness;
    let clip = |bound: f64| bound.clamp(0.0, 1.0);
    Some(ConfidenceInterval { low: clip(centre + shift - half), high: clip(centre + shift + half) })
}

/// Bounds of all shares that the rates do not contradict (Fieller): shares for which the accepted share is within its
/// error of what the rates predict. `None` where every share is possible, since the judge may be no better than chance.
fn fieller_interval(counts: &RoganGladenCounts, alpha: f64) -> Option<ConfidenceInterval> {
    let z = normal_quantile(alpha);
    let smooth = |share: f64, count: f64| {
        let smoothed = (share * count + 1.0) / (count + 2.0);
        (smoothed, z * z * smoothed * (1.0 - smoothed) / (count + 2.0))
    };
    let (accepted, accepted_variance) = smooth(counts.accepted_share, counts.population);
    let (positive, positive_variance) = smooth(counts.true_positive_rate, counts.right_cases);
    let (negative, negative_variance) = smooth(counts.true_negative_rate, counts.wrong_cases);
    // The bounds solve `square x² - 2 linear x + constant = 0`.
    let (excess, informedness) = (accepted + negative - 1.0, positive + negative - 1.0);
    let square = informedness * informedness - positive_variance - negative_variance;
    let linear = excess * informedness - negative_variance;
    let constant = excess * excess - accepted_variance - negative_variance;
    let root = linear * linear - square * constant;
    if informedness <= 0.0 || square <= 0.0 || root < 0.0 {
        return None;
    }
    let bound = |root: f64| ((linear + root) / square).clamp(0.0, 1.0);
    Some(ConfidenceInterval { low: bound(-root.sqrt()), high: bound(root.sqrt()) })
}

/// The rates of the judge on labelled cases: of right cases accepted and of wrong ones rejected. `None` for a rate
/// without cases.
pub(super) fn measure_judge_rates(
    labelled: &[LabelledRun],
    strata_scores: &[f64],
    alpha: f64,
) -> [Option<LabelledShare>; 2] {
    let is_accepted = |stratum: usize| f64::from(u8::from(strata_scores[stratum] >= ACCEPTING_SCORE));
    [
        labelled_share(labelled, alpha, |case| (case.truth, is_accepted(case.stratum))),
        labelled_share(labelled, alpha, |case| (1.0 - case.truth, 1.0 - is_accepted(case.stratum))),
    ]
}

/// The estimate and its interval, with design effects of runs.
pub(super) fn correct_by_rates(
    population: &[JudgedRun],
    labelled: &[LabelledRun],
    strata_scores: &[f64],
    alpha: f64,
) -> Result<(f64, ConfidenceInterval), CorrectionRefusal> {
    let labelled_cases = labelled.iter().map(|run| run.cases.len()).sum();
    let (positive, negative) = match measure_judge_rates(labelled, strata_scores, alpha) {
        [Some(positive), Some(negative)] => (positive, negative),
        [positive, _] => {
            return Err(CorrectionRefusal::OneClassOnly { is_right: positive.is_some(), labelled_cases });
        }
    };
    let accepted = accepted_share(population, strata_scores, alpha).ok_or(CorrectionRefusal::EmptyPopulation)?;
    let counts = RoganGladenCounts {
        accepted_share: accepted.share,
        population: accepted.count,
        true_positive_rate: positive.share,
        right_cases: positive.count,
        true_negative_rate: negative.share,
        wrong_cases: negative.count,
    };
    let refusal = CorrectionRefusal::UninformativeJudge {
        true_positive_rate: positive.share,
        true_negative_rate: negative.share,
    };
    let estimate = rogan_gladen_estimate(&counts).ok_or_else(|| refusal.clone())?;
    let interval = rogan_gladen_interval(&counts, alpha).ok_or(refusal)?;
    // The published interval is linear in the errors of the rates, which is too short for a weak judge. Fieller's is
    // exact in this respect. A refusal instead of the whole range would leave samples in which the judge looks better
    // than it is.
    let exact = fieller_interval(&counts, alpha).unwrap_or(ConfidenceInterval { low: 0.0, high: 1.0 });
    let low = interval.low.min(exact.low).min(estimate);
    Ok((estimate, ConfidenceInterval { low, high: interval.high.max(exact.high).max(estimate) }))
}

/// The share of the population that the judge accepts.
fn accepted_share(population: &[JudgedRun], strata_scores: &[f64], alpha: f64) -> Option<LabelledShare> {
    let sum_run = |run: &JudgedRun| {
        let mut totals = RunTotals::default();
        for (count, score) in run.stratum_counts.iter().zip(strata_scores) {
            totals.weight += f64::from(*count);
            totals.counted += if *score >= ACCEPTING_SCORE { f64::from(*count) } else { 0.0 };
            totals.cases += *count as usize;
        }
        RunTotals { squares: totals.weight, ..totals }
    };
    clustered_share(&population.iter().map(sum_run).collect::<Vec<_>>(), alpha)
}
