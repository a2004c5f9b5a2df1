//! The quality of a judge on labelled cases: the confusion matrix and the rates derived from it.
//!
//! Rates are weighted by the inverse of the probability that a case was labelled. Their intervals are Wilson's with
//! the effective number of cases. Cases of one run are alike, so they count as fewer.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::agreement::{ChanceModel, WeightedPair, correct_for_chance};
use crate::distributions::normal_quantile;
use crate::interval::wilson_interval;

use super::design_effect::{LabelledShare, case_weight, labelled_share};
use super::labelled::{CorrectionRefusal, LabelledCase, LabelledRun, check_input};
use super::rogan_gladen::{ACCEPTING_SCORE, measure_judge_rates};

/// A figure of the judge with its interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JudgeMeasure {
    pub value: f64,
    pub lower: f64,
    pub upper: f64,
    /// Number of labelled cases in it.
    pub cases: usize,
}

/// Numbers of labelled cases, each counted once whatever its weight. A truth of at least 0.5 is right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ConfusionCounts {
    pub accepted_right: usize,
    pub accepted_wrong: usize,
    pub rejected_right: usize,
    pub rejected_wrong: usize,
    /// Labelled cases without a verdict. They are in no rate.
    pub could_not_judge_right: usize,
    pub could_not_judge_wrong: usize,
}

/// Measures of a judge that accepts or rejects, from labelled cases. A measure without cases is `None`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JudgeMeasures {
    pub confusion: ConfusionCounts,
    pub labelled_runs: usize,
    /// Share of right cases that the judge accepts.
    pub true_positive_rate: Option<JudgeMeasure>,
    /// Share of wrong cases that the judge rejects.
    pub true_negative_rate: Option<JudgeMeasure>,
    /// Share of right cases among accepted ones. Depends on the base rate.
    pub precision: Option<JudgeMeasure>,
    pub accuracy: Option<JudgeMeasure>,
    /// Share of right cases among all.
    pub base_rate: Option<JudgeMeasure>,
    /// Cohen's kappa. Also `None` if the judge or the truth has a single label.
    pub kappa: Option<JudgeMeasure>,
    /// Gwet's AC1. Also `None` if all cases are right and accepted, or wrong and rejected.
    pub ac1: Option<JudgeMeasure>,
}

/// Labelled cases that the judge could not judge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnjudgedCases {
    pub right: usize,
    pub wrong: usize,
}

/// Measures a judge on labelled cases. A score of at least 0.5 of a stratum accepts the case.
pub fn measure_judge(
    labelled: &[LabelledRun],
    strata_scores: &[f64],
    unjudged: UnjudgedCases,
    confidence: f64,
) -> Result<JudgeMeasures, CorrectionRefusal> {
    check_input(&[], labelled, strata_scores, confidence)?;
    let alpha = 1.0 - confidence;
    let is_accepted = |case: &LabelledCase| strata_scores[case.stratum] >= ACCEPTING_SCORE;
    let as_share = |is_true: bool| f64::from(u8::from(is_true));
    let mut confusion = ConfusionCounts {
        could_not_judge_right: unjudged.right,
        could_not_judge_wrong: unjudged.wrong,
        ..ConfusionCounts::default()
    };
    let mut pairs = Vec::new();
    for (cluster, run) in (0..).zip(labelled) {
        for case in &run.cases {
            let (is_accepted, is_right) = (is_accepted(case), case.truth >= 0.5);
            *match (is_accepted, is_right) {
                (true, true) => &mut confusion.accepted_right,
                (true, false) => &mut confusion.accepted_wrong,
                (false, true) => &mut confusion.rejected_right,
                (false, false) => &mut confusion.rejected_wrong,
            } += 1;
            let (judge, person) = (usize::from(is_accepted), usize::from(is_right));
            pairs.push(WeightedPair { judge, person, weight: case_weight(case), cluster });
        }
    }
    let measure_share = |share: Option<LabelledShare>| share.map(|share| JudgeMeasure::from_share(&share, alpha));
    let [positive, negative] = measure_judge_rates(labelled, strata_scores, alpha);
    let agrees = |case: &LabelledCase| if is_accepted(case) { case.truth } else { 1.0 - case.truth };
    let is_varied = |label: fn(&WeightedPair) -> usize| pairs.windows(2).any(|two| label(&two[0]) != label(&two[1]));
    let beyond_chance = |model, is_defined: bool| {
        let found = correct_for_chance(&pairs, 2, model, alpha).filter(|_| is_defined);
        found.map(|(value, interval)| JudgeMeasure {
            value,
            lower: interval.low,
            upper: interval.high,
            cases: pairs.len(),
        })
    };
    let (judge_varies, truth_varies) = (is_varied(|pair| pair.judge), is_varied(|pair| pair.person));
    let is_one_cell = pairs.windows(2).all(|two| (two[0].judge, two[0].person) == (two[1].judge, two[1].person));
    Ok(JudgeMeasures {
        confusion,
        labelled_runs: labelled.iter().filter(|run| !run.cases.is_empty()).count(),
        true_positive_rate: measure_share(positive),
        true_negative_rate: measure_share(negative),
        precision: measure_share(labelled_share(labelled, alpha, |case| (as_share(is_accepted(case)), case.truth))),
        accuracy: measure_share(labelled_share(labelled, alpha, |case| (1.0, agrees(case)))),
        base_rate: measure_share(labelled_share(labelled, alpha, |case| (1.0, case.truth))),
        kappa: beyond_chance(ChanceModel::Cohen, judge_varies && truth_varies),
        ac1: beyond_chance(ChanceModel::Gwet, !is_one_cell || confusion.accepted_wrong + confusion.rejected_right > 0),
    })
}

impl JudgeMeasure {
    fn from_share(sample: &LabelledShare, alpha: f64) -> JudgeMeasure {
        let interval = wilson_interval(sample.share, sample.count, normal_quantile(alpha));
        JudgeMeasure { value: sample.share, lower: interval.low, upper: interval.high, cases: sample.cases }
    }
}
