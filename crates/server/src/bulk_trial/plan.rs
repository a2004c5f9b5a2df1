//! The plan and the state of a trial on many cases, in the form of its files.

use serde::{Deserialize, Serialize};

/// Everything that decides what a trial asks. Written once.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct BulkTrialPlan {
    pub(crate) id: String,
    /// Name of the rubric, which is also that of its evaluator.
    pub(crate) rubric: String,
    /// The text that is tried.
    pub(crate) text: String,
    pub(crate) rubric_hash: String,
    /// The hash of the server's own rubric when the trial was planned.
    pub(crate) present_hash: String,
    pub(crate) project: String,
    /// The grading rule whose judge is asked and whose daily budget is charged.
    pub(crate) rule: String,
    pub(crate) judge: String,
    pub(crate) selection: BulkTrialSelection,
    pub(crate) limits: BulkTrialLimits,
    pub(crate) estimate: BulkTrialEstimate,
    pub(crate) cases: Vec<BulkTrialCase>,
    /// Cases beyond the maximum, which are not asked.
    pub(crate) left_out: u64,
    pub(crate) created_ns: i64,
    /// Name of the key that planned it; empty without keys.
    pub(crate) author: String,
}

/// Which cases are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum BulkTrialSelection {
    /// The latest traces of the project.
    Latest { traces: usize },
    /// What people have labelled for this rubric.
    Labelled,
}

impl Default for BulkTrialSelection {
    fn default() -> BulkTrialSelection {
        BulkTrialSelection::Latest { traces: 0 }
    }
}

/// Limits over the whole trial, also if it is continued after a restart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct BulkTrialLimits {
    /// Requests to the model, retries included.
    pub(crate) max_calls: u64,
    /// `None` if the price of the model is not known.
    pub(crate) max_cost_usd: Option<f64>,
}

/// The estimated questions and cost of the trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct BulkTrialEstimate {
    pub(crate) questions: u64,
    /// Answered by an earlier trial or by live grading.
    pub(crate) cached: u64,
    pub(crate) to_ask: u64,
    /// `None` if the price is not known.
    pub(crate) cost_usd: Option<f64>,
}

/// A step or a whole trajectory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BulkTrialCase {
    /// 32 hexadecimal digits.
    pub(crate) trace_id: String,
    pub(crate) trajectory_id: String,
    /// `None` for the trajectory as a whole.
    pub(crate) step: Option<u32>,
    /// The verdict of the server's own rubric when the trial was planned.
    pub(crate) present: Option<PresentVerdict>,
}

/// A stored verdict that the trial is compared with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PresentVerdict {
    pub(crate) label: String,
    pub(crate) judge: String,
    /// Differs from [`BulkTrialPlan::present_hash`] if the rubric was changed since.
    pub(crate) rubric_hash: String,
}

/// The progress of a trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum BulkTrialStatus {
    #[default]
    Planned,
    /// If no task runs the trial, the server was restarted.
    Running,
    Finished,
    Stopped,
}

/// `state.json`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BulkTrialState {
    pub(crate) status: BulkTrialStatus,
    /// Why it stopped, as a sentence for people; empty otherwise.
    pub(crate) reason: String,
}

impl BulkTrialState {
    pub(crate) fn new(status: BulkTrialStatus, reason: impl Into<String>) -> BulkTrialState {
        BulkTrialState { status, reason: reason.into() }
    }
}
