//! Measurements in the folder of a run in addition to verdicts, such as the trials of a benchmark. The server shows
//! them without knowing the benchmark: the crate that made them implements [`RunSupplement`], and the command line
//! passes its loader to the server.

use std::fmt;
use std::path::Path;

use gradus_eval::report::{GateResult, MetricResult, RunReader, TrialIndex, TrialMetricNames};
use gradus_eval::run::RunFileError;

use crate::report_table::ReportTable;

/// Measured results of a run, such as the trials of a benchmark. `score` must be called first if the values of the
/// other methods depend on verdicts.
pub trait RunSupplement: fmt::Debug + Send {
    /// Compares the verdicts of the run with the known truth. Reads the whole run.
    fn score(&mut self, reader: &mut RunReader) -> Result<(), RunFileError>;
    /// Names of [`RunSupplement::metrics`], so that gates can be parsed before anything is scored.
    fn metric_names(&self) -> TrialMetricNames;
    /// Metrics in addition to those of the evaluators. Their judge is `SIMULATOR_JUDGE`.
    fn metrics(&self) -> Vec<MetricResult>;
    /// The same over the trials of tasks with this tag, under the same names. Empty if none has it.
    fn tag_metrics(&self, tag: &str) -> Vec<MetricResult>;
    /// May replace the reason of a gate that cannot pass by a better one.
    fn explain_gate(&self, gate: &mut GateResult);
    /// Tables for the report, in the order in which they are shown.
    fn tables(&self) -> Vec<ReportTable>;
    /// Results by trajectory, for the comparison of two runs.
    fn measurements(&self) -> Vec<TrialMeasurement>;
}

/// The measured results of one trajectory.
#[derive(Clone, Debug)]
pub struct TrialMeasurement {
    /// `None` if the trace could not be assembled; then the session identifies the trajectory.
    pub trajectory_id: Option<String>,
    pub session_id: String,
    /// Whether all trajectories of the session belong to this trial, such as those of agents that the agent calls.
    pub owns_session: bool,
    /// The task or dataset item that the trial is about. Versions are paired by it.
    pub task_id: Option<String>,
    /// Tags of the item, which gates can select.
    pub tags: Vec<String>,
    pub results: Vec<TrialResult>,
}

/// One measured yes-or-no result, such as success or safety.
#[derive(Clone, Copy, Debug)]
pub struct TrialResult {
    /// Distinct from every name of an evaluator.
    pub name: &'static str,
    /// The name that people read.
    pub title: &'static str,
    pub is_good: bool,
}

/// Loads the supplement of a run from the folder of the run; `None` for a run without one. The error is a line for the
/// log: the run is then shown without its supplement.
pub type SupplementLoader = fn(&Path) -> Result<Option<Box<dyn RunSupplement>>, String>;

/// Finds the trial of a trajectory; positions are those of `measurements`.
pub fn index_trials(measurements: &[TrialMeasurement]) -> TrialIndex {
    let mut index = TrialIndex::default();
    for trial in measurements {
        // Without an id, only the session identifies the trajectory.
        let session = Some(&trial.session_id).filter(|_| trial.owns_session || trial.trajectory_id.is_none());
        index.add_trial(trial.trajectory_id.clone(), session.cloned(), trial.tags.clone());
    }
    index
}
