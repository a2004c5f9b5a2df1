//! A run with its verdicts and labels.

use gradus_core::trajectory::Trajectory;
use gradus_eval::outcome::OutcomeLine;

/// A run with its verdicts and labels.
#[derive(Debug)]
pub struct ArchivedRun {
    pub trajectory: Trajectory,
    pub verdicts: Vec<ArchivedVerdict>,
    pub labels: Vec<RunLabel>,
    /// Where it was found, for people: `evaluation 20261117-0210`, `live traffic`.
    pub origin: String,
}

/// A verdict, and whether it is below the best label of its evaluator.
#[derive(Clone, Debug)]
pub struct ArchivedVerdict {
    pub line: OutcomeLine,
    pub is_wrong: bool,
}

/// A label on a step or a run that did not come from the judge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunLabel {
    pub step_index: Option<u32>,
    pub evaluator: String,
    pub label: String,
    pub labeller: String,
    pub explanation: Option<String>,
}
