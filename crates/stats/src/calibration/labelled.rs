//! Labels of people on some cases, and verdicts of the judge on the whole population.

use thiserror::Error;

/// One labelled case: the judge's label and the true one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LabelledCase {
    /// The judge's answer: the index of its label, or the number of votes of a panel.
    pub stratum: usize,
    /// The truth as a score from 0 (wrong) to 1 (right).
    pub truth: f64,
    /// Probability that the case was chosen for labelling. Only ratios matter; 1.0 for uniform sampling.
    pub probability: f64,
}

/// The labelled cases of one run: a cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LabelledRun {
    pub cases: Vec<LabelledCase>,
}

/// One run of the judged population: the number of its cases by label of the judge.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JudgedRun {
    pub stratum_counts: Vec<u32>,
}

/// Where labelled cases come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabelOrigin {
    /// A random sample of the judged population, with known probabilities.
    SamePopulation,
    /// Other cases with the same error rates of the judge: a balanced set, planted flaws, another project.
    OtherPopulation,
}

/// Why there is no corrected share.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum CorrectionRefusal {
    #[error("cannot correct a share: no case is labelled\nhint: label cases first, see `gradus judge calibrate`")]
    NoLabels,
    #[error("cannot correct a share: {found} labelled runs, {needed} are needed\nhint: label {} more", .needed - .found)]
    TooFewRuns { found: usize, needed: usize },
    #[error("cannot correct a share: the judge labelled no case\nhint: judge the population first")]
    EmptyPopulation,
    #[error(
        "cannot correct a share: all {labelled_cases} labels say {}\nhint: labels of another population must have right and wrong cases",
        if *.is_right { "right" } else { "wrong" }
    )]
    OneClassOnly { is_right: bool, labelled_cases: usize },
    #[error(
        "cannot correct a share: the judge is no better than chance: it accepts {:.0} % of right and rejects {:.0} % of wrong cases\nhint: label cases of this population, or use another judge",
        100.0 * .true_positive_rate, 100.0 * .true_negative_rate
    )]
    UninformativeJudge { true_positive_rate: f64, true_negative_rate: f64 },
    #[error("cannot correct a share: stratum {stratum} is unknown\nhint: there are {count}")]
    UnknownStratum { stratum: usize, count: usize },
    #[error("cannot correct a share: {name} is {value}\nhint: {hint}")]
    InvalidNumber { name: &'static str, value: f64, hint: &'static str },
}

/// Checks all input, so that the estimators can rely on it.
pub(super) fn check_input(
    population: &[JudgedRun],
    labelled: &[LabelledRun],
    strata_scores: &[f64],
    confidence: f64,
) -> Result<(), CorrectionRefusal> {
    let invalid = |name, value, hint| Err(CorrectionRefusal::InvalidNumber { name, value, hint });
    let count = strata_scores.len();
    if !(confidence > 0.0 && confidence < 1.0) {
        return invalid("the confidence", confidence, "it must be between 0 and 1, both excluded");
    }
    if let Some(score) = strata_scores.iter().find(|score| !(0.0..=1.0).contains(*score)) {
        return invalid("the score of a stratum", *score, "scores are from 0 to 1");
    }
    for run in population {
        if let Some(stratum) = run.stratum_counts.iter().rposition(|cases| *cases > 0).filter(|last| *last >= count) {
            return Err(CorrectionRefusal::UnknownStratum { stratum, count });
        }
    }
    for case in labelled.iter().flat_map(|run| &run.cases) {
        if case.stratum >= count {
            return Err(CorrectionRefusal::UnknownStratum { stratum: case.stratum, count });
        }
        if !(0.0..=1.0).contains(&case.truth) {
            return invalid("the truth of a case", case.truth, "it is a score from 0 to 1");
        }
        if !(case.probability > 0.0 && case.probability.is_finite()) {
            return invalid("an inclusion probability", case.probability, "it must be positive and finite");
        }
    }
    Ok(())
}
