//! The effective number of labelled cases: unequal sampling weights, and runs whose cases are alike.

use crate::distributions::{normal_quantile, student_quantile};

use super::labelled::{LabelledCase, LabelledRun};

/// Number of pseudo-runs with identical cases that the estimated design effect is averaged with. If few runs deviate
/// from the mean, the estimate alone is too small too often: one wrong step in 50 runs would look like independent
/// steps. Found by simulation (`examples/simulate_calibration.rs`).
const ALIKE_RUNS: f64 = 1.5;

/// Returns the weight of a case: the inverse of its sampling probability (Hajek).
pub(super) fn case_weight(case: &LabelledCase) -> f64 {
    1.0 / case.probability
}

/// The influence of one run on an estimate.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct RunInfluence {
    /// How much the run changes the estimate.
    pub(super) deviation: f64,
    /// The weight of the run in the estimate. The weights of all runs add up to 1.
    pub(super) exposure: f64,
}

/// Variances of an estimate if all cases were independent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct IndependentVariance {
    pub(super) estimate: f64,
    /// The same if each case had the variance 1.
    pub(super) unit: f64,
}

/// Returns how many independent cases one case counts as, at most 1: the inverse of the design effect, reduced so
/// that a normal quantile gives the width that Student's quantile for the number of runs would.
pub(super) fn effective_part(
    influences: impl Iterator<Item = RunInfluence>,
    independent: IndependentVariance,
    alpha: f64,
) -> f64 {
    let (mut squares, mut fourth_powers, mut exposures) = (0.0, 0.0, 0.0);
    for RunInfluence { deviation, exposure } in influences {
        squares += deviation * deviation;
        fourth_powers += deviation.powi(4);
        exposures += exposure * exposure;
    }
    // The effective number of runs (Kish).
    let groups = 1.0 / exposures;
    // The design effect if all cases of a run were identical: each run counts once.
    let alike = exposures / independent.unit;
    let is_visible = groups > 1.5 && independent.estimate > 1e-12 * independent.unit && fourth_powers > 0.0;
    let design_effect = if is_visible {
        let observed = (groups / (groups - 1.0) * squares / independent.estimate).max(1.0);
        // The number of runs behind the observed variance.
        let deviating = squares * squares / fourth_powers;
        (observed * deviating + alike * ALIKE_RUNS) / (deviating + ALIKE_RUNS)
    } else {
        alike
    };
    let freedom = (groups - 1.0).max(1.0);
    (normal_quantile(alpha) / student_quantile(alpha, freedom)).powi(2) / design_effect.max(1.0)
}

/// A share among labelled cases, and the effective number of independent cases.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LabelledShare {
    pub(super) share: f64,
    pub(super) count: f64,
    /// Number of cases in the share, whatever their weight.
    pub(super) cases: usize,
}

/// Sums of one run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct RunTotals {
    /// Sum of the weights, of their squares, and of the weights of cases that count.
    pub(super) weight: f64,
    pub(super) squares: f64,
    pub(super) counted: f64,
    /// Cases with a weight.
    pub(super) cases: usize,
}

/// A share among the cases of all runs. `None` without cases.
pub(super) fn clustered_share(runs: &[RunTotals], alpha: f64) -> Option<LabelledShare> {
    let sum = |part: fn(&RunTotals) -> f64| runs.iter().map(part).sum::<f64>();
    let weight = sum(|run| run.weight);
    if weight <= 0.0 {
        return None;
    }
    let cases = runs.iter().map(|run| run.cases).sum();
    let share = (sum(|run| run.counted) / weight).clamp(0.0, 1.0);
    // Kish: this many cases with equal weights have the same variance.
    let equal_cases = weight * weight / sum(|run| run.squares);
    if runs.iter().all(|run| run.cases <= 1) {
        return Some(LabelledShare { share, count: equal_cases, cases });
    }
    let influences = runs.iter().map(|run| RunInfluence {
        deviation: (run.counted - share * run.weight) / weight,
        exposure: run.weight / weight,
    });
    let independent = IndependentVariance { estimate: share * (1.0 - share) / equal_cases, unit: 1.0 / equal_cases };
    Some(LabelledShare { share, count: equal_cases * effective_part(influences, independent, alpha), cases })
}

/// Returns a share among some labelled cases of each run. `measure` returns the part of a case that belongs to the
/// denominator and, of that, the part that counts, both from 0 to 1.
pub(super) fn labelled_share(
    labelled: &[LabelledRun],
    alpha: f64,
    measure: impl Fn(&LabelledCase) -> (f64, f64),
) -> Option<LabelledShare> {
    let add = |mut totals: RunTotals, case: &LabelledCase| {
        let (part, value) = measure(case);
        let weight = case_weight(case) * part;
        totals.weight += weight;
        totals.squares += weight * weight;
        totals.counted += weight * value;
        totals.cases += usize::from(weight > 0.0);
        totals
    };
    let totals = labelled.iter().map(|run| run.cases.iter().fold(RunTotals::default(), add));
    clustered_share(&totals.collect::<Vec<_>>(), alpha)
}
