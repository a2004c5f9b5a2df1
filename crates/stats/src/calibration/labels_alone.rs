//! The share of right cases from the labels of people, without the judge.

use crate::interval::ConfidenceInterval;

use super::beta_sum::{BetaNormalSum, WeightedBeta};
use super::design_effect::{LabelledShare, labelled_share};
use super::labelled::LabelledRun;

/// Number of prior cases on the side of a bound; the other side has one. With one on both sides the Beta prior pulls
/// both bounds towards one half: at a true share of 0.98 and 20 labels the upper bound is too low in a quarter of all
/// samples. With none the bounds are those of Clopper and Pearson, which are wider than they need to be. Found by
/// simulation (`examples/simulate_calibration.rs`).
pub(super) const NEAR_PRIOR: f64 = 0.5;

/// Computes bounds from a posterior that depends on the prior: the number of right and of wrong prior cases.
pub(super) fn posterior_bounds(
    estimate: f64,
    alpha: f64,
    posterior: impl Fn((f64, f64)) -> BetaNormalSum,
) -> ConfidenceInterval {
    let low = posterior((NEAR_PRIOR, 1.0)).lower_quantile(0.5 * alpha);
    let high = posterior((1.0, NEAR_PRIOR)).upper_quantile(0.5 * alpha);
    ConfidenceInterval { low: low.clamp(0.0, estimate), high: high.clamp(estimate, 1.0) }
}

/// The interval of a share among labelled cases.
pub(super) fn labelled_share_interval(sample: &LabelledShare, alpha: f64) -> ConfidenceInterval {
    let LabelledShare { share, count, .. } = *sample;
    posterior_bounds(share, alpha, |(right, wrong)| BetaNormalSum {
        terms: vec![WeightedBeta { weight: 1.0, a: share * count + right, b: (1.0 - share) * count + wrong }],
        normal_variance: 0.0,
    })
}

/// The estimate and its interval. `None` without labels.
pub(super) fn estimate_from_labels(labelled: &[LabelledRun], alpha: f64) -> Option<(f64, ConfidenceInterval)> {
    let sample = labelled_share(labelled, alpha, |case| (1.0, case.truth))?;
    Some((sample.share, labelled_share_interval(&sample, alpha)))
}
