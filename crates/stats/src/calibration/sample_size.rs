//! Computes the number of labels that an interval of a given width needs.

use thiserror::Error;

use crate::distributions::normal_quantile;

use super::correction::correct_share;
use super::labelled::{CorrectionRefusal, JudgedRun, LabelOrigin, LabelledRun, check_input};
use super::post_stratification::StratifiedSample;
use super::rogan_gladen::measure_judge_rates;

/// Minimum number of labels of each stratum: without any, nothing is known about it.
const MIN_STRATUM_LABELS: u64 = 2;

/// The numbers of labels to collect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelPlan {
    pub total: u64,
    /// By label of the judge.
    pub per_stratum: Vec<u64>,
}

/// Estimates from the present labels, for planning further ones.
#[derive(Clone, Debug, PartialEq)]
pub struct LabelOutlook {
    /// Share of each label of the judge in the population.
    pub stratum_shares: Vec<f64>,
    /// Estimated share of right cases by label of the judge (with one right and one wrong case added).
    pub right_shares: Vec<f64>,
    /// Number of labels that count as one independent label.
    pub design_effect: f64,
    /// The rates of the judge with one right and one wrong case added; `None` without labels of the class.
    pub true_positive_rate: Option<f64>,
    pub true_negative_rate: Option<f64>,
    pub judged_cases: u64,
    pub labelled_cases: u64,
    /// Half width of the interval from the present labels; `None` if they give none.
    pub reached_half_width: Option<f64>,
}

impl LabelOutlook {
    /// Returns the estimated half width if all judged cases were labelled.
    pub fn min_half_width(&self) -> Option<f64> {
        let part = self.labelled_cases as f64 / self.judged_cases.max(1) as f64;
        self.reached_half_width.map(|reached| reached * part.sqrt().min(1.0))
    }
}

#[derive(Clone, Debug, Error, PartialEq)]
pub enum SampleSizeError {
    #[error("cannot plan labels: {name} is {value}\nhint: {hint}")]
    InvalidNumber { name: &'static str, value: f64, hint: &'static str },
    #[error("cannot plan labels: {shares} shares of labels and {right_shares} shares of right cases")]
    UnequalLengths { shares: usize, right_shares: usize },
}

/// Returns the number of labels, by label of the judge, for a corrected share within `half_width`. More uncertain
/// labels get more (Neyman allocation).
pub fn labels_needed(
    half_width: f64,
    confidence: f64,
    stratum_shares: &[f64],
    right_shares: &[f64],
    design_effect: f64,
) -> Result<LabelPlan, SampleSizeError> {
    if stratum_shares.len() != right_shares.len() {
        let (shares, right_shares) = (stratum_shares.len(), right_shares.len());
        return Err(SampleSizeError::UnequalLengths { shares, right_shares });
    }
    let per_unit = labels_per_variance(half_width, confidence, design_effect)?;
    for share in stratum_shares.iter().chain(right_shares) {
        check_number("a share", *share, (0.0..=1.0).contains(share), "shares are from 0 to 1")?;
    }
    let all: f64 = stratum_shares.iter().sum();
    check_number("the sum of the shares", all, (all - 1.0).abs() < 1e-6, "it must be 1")?;
    let spreads: Vec<f64> =
        stratum_shares.iter().zip(right_shares).map(|(share, right)| share * (right * (1.0 - right)).sqrt()).collect();
    let sum: f64 = spreads.iter().sum();
    let plan_stratum = |(share, spread): (&f64, &f64)| {
        let min = if *share > 0.0 { MIN_STRATUM_LABELS } else { 0 };
        ((per_unit * sum * spread).ceil() as u64).max(min)
    };
    let per_stratum: Vec<u64> = stratum_shares.iter().zip(&spreads).map(plan_stratum).collect();
    Ok(LabelPlan { total: per_stratum.iter().sum(), per_stratum })
}

/// Returns the number of labels for an outlook. [`labels_needed`] accounts neither for the prior of the estimator nor
/// for differences between runs. If the present interval is wider than it predicts, the number grows with the square
/// of the ratio.
pub fn plan_from_outlook(
    half_width: f64,
    confidence: f64,
    outlook: &LabelOutlook,
) -> Result<LabelPlan, SampleSizeError> {
    let LabelOutlook { stratum_shares, right_shares, design_effect, .. } = outlook;
    let plan = labels_needed(half_width, confidence, stratum_shares, right_shares, *design_effect)?;
    let Some(reached) = outlook.reached_half_width else { return Ok(plan) };
    let factor = outlook.labelled_cases as f64 * (reached / half_width).powi(2) / plan.total.max(1) as f64;
    if factor <= 1.0 {
        return Ok(plan);
    }
    let per_stratum: Vec<u64> = plan.per_stratum.iter().map(|count| (*count as f64 * factor).ceil() as u64).collect();
    Ok(LabelPlan { total: per_stratum.iter().sum(), per_stratum })
}

/// Returns the number of labelled cases of one class for a rate of the judge within `half_width`.
pub fn class_labels_needed(
    half_width: f64,
    confidence: f64,
    rate: f64,
    design_effect: f64,
) -> Result<u64, SampleSizeError> {
    check_number("the rate", rate, (0.0..=1.0).contains(&rate), "rates are from 0 to 1")?;
    let count = labels_per_variance(half_width, confidence, design_effect)? * rate * (1.0 - rate);
    Ok((count.ceil() as u64).max(MIN_STRATUM_LABELS))
}

/// Returns the number of labels with variance 1 that give the half width.
fn labels_per_variance(half_width: f64, confidence: f64, design_effect: f64) -> Result<f64, SampleSizeError> {
    check_number("the half width", half_width, half_width > 0.0 && half_width < 0.5, "it must be between 0 and 0.5")?;
    check_number("the confidence", confidence, confidence > 0.0 && confidence < 1.0, "it must be between 0 and 1")?;
    let is_finite = design_effect >= 1.0 && design_effect.is_finite();
    check_number("the design effect", design_effect, is_finite, "it must be at least 1")?;
    Ok((normal_quantile(1.0 - confidence) / half_width).powi(2) * design_effect)
}

fn check_number(name: &'static str, value: f64, is_valid: bool, hint: &'static str) -> Result<(), SampleSizeError> {
    if is_valid { Ok(()) } else { Err(SampleSizeError::InvalidNumber { name, value, hint }) }
}

/// Estimates shares, rates and the design effect from any number of labels.
pub fn outlook_from_labels(
    population: &[JudgedRun],
    labelled: &[LabelledRun],
    strata_scores: &[f64],
) -> Result<LabelOutlook, CorrectionRefusal> {
    const ALPHA: f64 = 0.05;
    check_input(population, labelled, strata_scores, 1.0 - ALPHA)?;
    if population.iter().flat_map(|run| &run.stratum_counts).all(|count| *count == 0) {
        return Err(CorrectionRefusal::EmptyPopulation);
    }
    let sample = StratifiedSample::new(population, labelled, (0..strata_scores.len()).collect());
    let corrected = correct_share(population, labelled, strata_scores, LabelOrigin::SamePopulation, 1.0 - ALPHA);
    let smooth = |share: f64, count: f64| (share * count + 1.0) / (count + 2.0);
    let [positive, negative] = measure_judge_rates(labelled, strata_scores, ALPHA)
        .map(|rate| rate.map(|rate| smooth(rate.share, rate.cases as f64)));
    Ok(LabelOutlook {
        stratum_shares: sample.population_shares(),
        right_shares: sample.smoothed_shares(),
        design_effect: 1.0 / sample.labelled_part(labelled, ALPHA),
        true_positive_rate: positive,
        true_negative_rate: negative,
        judged_cases: population.iter().flat_map(|run| &run.stratum_counts).map(|count| u64::from(*count)).sum(),
        labelled_cases: labelled.iter().map(|run| run.cases.len() as u64).sum(),
        reached_half_width: corrected.ok().map(|share| f64::midpoint(share.upper, -share.lower)),
    })
}
