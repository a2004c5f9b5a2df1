//! Corrects a share with the estimator that fits the labels.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::interval::ConfidenceInterval;

use super::labelled::{CorrectionRefusal, JudgedRun, LabelOrigin, LabelledRun, check_input};
use super::labels_alone::estimate_from_labels;
use super::post_stratification::post_stratify;
use super::rogan_gladen::correct_by_rates;

/// Minimum number of labelled runs for a corrected share. With fewer, intervals are too narrow too often.
pub const MIN_LABELLED_RUNS: usize = 20;

/// How a share was corrected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ShareEstimator {
    PostStratified,
    RoganGladen,
    LabelsAlone,
}

/// The estimated true share of right cases.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CorrectedShare {
    pub estimate: f64,
    pub lower: f64,
    pub upper: f64,
    pub estimator: ShareEstimator,
    pub labelled_cases: usize,
    pub labelled_runs: usize,
}

/// Estimates the share of right cases in a judged population.
///
/// `strata_scores[g]` is the judge's own score of stratum `g`, from 0 to 1; a score of at least 0.5 accepts the case.
/// Runs without labelled cases are ignored.
pub fn correct_share(
    population: &[JudgedRun],
    labelled: &[LabelledRun],
    strata_scores: &[f64],
    origin: LabelOrigin,
    confidence: f64,
) -> Result<CorrectedShare, CorrectionRefusal> {
    check_input(population, labelled, strata_scores, confidence)?;
    let labelled_runs = count_labelled_runs(labelled)?;
    if population.iter().flat_map(|run| &run.stratum_counts).all(|count| *count == 0) {
        return Err(CorrectionRefusal::EmptyPopulation);
    }
    let alpha = 1.0 - confidence;
    let (estimator, estimate) = match origin {
        LabelOrigin::OtherPopulation => {
            (ShareEstimator::RoganGladen, correct_by_rates(population, labelled, strata_scores, alpha)?)
        }
        LabelOrigin::SamePopulation => {
            let stratified = post_stratify(population, labelled, strata_scores, alpha);
            let alone = estimate_from_labels(labelled, alpha).ok_or(CorrectionRefusal::NoLabels)?;
            // Each label of the judge has a prior, so an uninformative judge widens the interval. The choice depends
            // on the widths alone; simulated coverage is that of the two estimators.
            if stratified.1.width() <= alone.1.width() {
                (ShareEstimator::PostStratified, stratified)
            } else {
                (ShareEstimator::LabelsAlone, alone)
            }
        }
    };
    Ok(CorrectedShare::new(estimate, estimator, labelled, labelled_runs))
}

/// Estimates the share of right cases from the labels alone, which must be a random sample.
pub fn share_from_labels(labelled: &[LabelledRun], confidence: f64) -> Result<CorrectedShare, CorrectionRefusal> {
    let stratum_count = labelled.iter().flat_map(|run| &run.cases).map(|case| case.stratum + 1).max().unwrap_or(0);
    check_input(&[], labelled, &vec![0.0; stratum_count], confidence)?;
    let labelled_runs = count_labelled_runs(labelled)?;
    let estimate = estimate_from_labels(labelled, 1.0 - confidence).ok_or(CorrectionRefusal::NoLabels)?;
    Ok(CorrectedShare::new(estimate, ShareEstimator::LabelsAlone, labelled, labelled_runs))
}

impl CorrectedShare {
    fn new(
        (estimate, interval): (f64, ConfidenceInterval),
        estimator: ShareEstimator,
        labelled: &[LabelledRun],
        labelled_runs: usize,
    ) -> CorrectedShare {
        let labelled_cases = labelled.iter().map(|run| run.cases.len()).sum();
        let (lower, upper) = (interval.low, interval.high);
        CorrectedShare { estimate, lower, upper, estimator, labelled_cases, labelled_runs }
    }
}

/// Returns the number of runs with labels, or an error if there are too few.
fn count_labelled_runs(labelled: &[LabelledRun]) -> Result<usize, CorrectionRefusal> {
    match labelled.iter().filter(|run| !run.cases.is_empty()).count() {
        0 => Err(CorrectionRefusal::NoLabels),
        found if found < MIN_LABELLED_RUNS => Err(CorrectionRefusal::TooFewRuns { found, needed: MIN_LABELLED_RUNS }),
        found => Ok(found),
    }
}
