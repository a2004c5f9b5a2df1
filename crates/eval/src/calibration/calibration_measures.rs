//! How good a judge is, as it stands in a calibration. Doc comments of the types become descriptions in
//! `docs/schemas/calibration.schema.json`.

use std::collections::BTreeMap;

use gradus_stats::calibration::JudgeMeasure;
use gradus_stats::interval::ConfidenceInterval;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::verdict_strata::VoteSplit;

/// Level of the intervals, as everywhere.
pub(super) const CONFIDENCE: f64 = 0.95;

/// How good the judge is. Right means the rubric's best label, wrong any other.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CalibrationMeasures {
    pub cases: u64,
    pub trajectories: u64,
    /// Cases by the judge's label, then by the true one.
    pub confusion: BTreeMap<String, BTreeMap<String, u64>>,
    /// Of the cases that are right, the share that the judge calls right.
    pub true_positive_rate: MeasuredShare,
    /// Of the cases that are wrong, the share that the judge calls wrong.
    pub true_negative_rate: MeasuredShare,
    /// Of the cases that the judge calls right, the share that is right.
    pub precision: MeasuredShare,
    /// The share of cases with the same label.
    pub agreement: MeasuredShare,
    /// Cohen's kappa.
    pub kappa: MeasuredShare,
    /// Gwet's AC1, which does not collapse if nearly all cases have one label.
    pub ac1: MeasuredShare,
    /// The share of cases that are right.
    pub base_rate: MeasuredShare,
    /// How often two answers of one model to the same question differ; `value` is null without repeats.
    pub flip_rate: MeasuredShare,
    /// How often each split of a panel's votes is right. Absent where one judge is asked once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by_votes: Vec<VoteStratum>,
    /// Cases that the judge could not judge, by the true label.
    pub could_not_judge: BTreeMap<String, u64>,
    /// Cases on which labellers disagreed without a majority; not in `cases`.
    pub disputed: u64,
}

/// The labelled cases with the same votes of a panel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VoteStratum {
    pub votes: VoteSplit,
    pub cases: u64,
    /// Cases whose truth is the best label of the rubric.
    pub right: u64,
}

/// A share with its 95 % interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MeasuredShare {
    /// Null without cases.
    pub value: Option<f64>,
    pub interval: Option<ConfidenceInterval>,
    /// How many cases it is about.
    pub count: u64,
}

impl From<Option<JudgeMeasure>> for MeasuredShare {
    fn from(measure: Option<JudgeMeasure>) -> MeasuredShare {
        measure.map_or_else(MeasuredShare::default, |found| MeasuredShare {
            value: Some(found.value),
            interval: Some(ConfidenceInterval { low: found.lower, high: found.upper }),
            count: found.cases as u64,
        })
    }
}
