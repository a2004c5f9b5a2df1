//! The archive of graded runs that the tools query: a folder of evaluations, or a server's store.

use std::collections::{BTreeMap, BTreeSet};

use gradus_eval::report::{FailureGroup, GateResult};
use gradus_eval::run::{RunFileError, RunManifest};
use gradus_report::compare::VersionComparison;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::archived_run::ArchivedRun;
use crate::run_filter::RunFilter;

/// Graded runs of agents and their evaluations. All methods block and may read many files.
pub trait RunArchive: Send + Sync {
    /// Lists evaluations, latest first. `skip` and `limit` select a page.
    fn list_evaluations(&self, skip: usize, limit: usize) -> Result<EvaluationList, ArchiveError>;

    /// Returns a page of the matching runs. `cursor` is a [`FoundRun::cursor_after`] or
    /// [`FoundRunPage::next_cursor`].
    fn find_runs(&self, filter: &RunFilter, cursor: Option<&str>, limit: usize) -> Result<FoundRunPage, ArchiveError>;

    /// Loads a run by its id, from one evaluation or from the default scope of the archive.
    fn load_run(&self, evaluation: Option<&str>, id: &str) -> Result<ArchivedRun, ArchiveError>;

    /// Calls `take` with every matching run that has a wrong verdict. Other runs are only counted.
    fn visit_flagged(
        &self,
        filter: &RunFilter,
        take: &mut dyn FnMut(&ArchivedRun),
    ) -> Result<FlaggedScope, ArchiveError>;

    /// Returns the failure groups of the matching runs, largest first, if the archive stores them. `None` if they
    /// must be computed from the runs.
    fn load_failure_groups(&self, _filter: &RunFilter) -> Result<Option<StoredFailureGroups>, ArchiveError> {
        Ok(None)
    }

    /// Compares two evaluations over the same tasks. `first` is the old version, `second` the new one.
    fn compare_evaluations(&self, first: &str, second: &str) -> Result<VersionComparison, ArchiveError>;

    /// Compares two versions, models or agents by their live traffic, the old one first. Only a server has live
    /// traffic.
    fn compare_traffic(
        &self,
        _by: TrafficName,
        _names: [&str; 2],
        _project: Option<&str>,
    ) -> Result<VersionComparison, ArchiveError> {
        let reason = "only a server has live traffic; leave it out to compare evaluations".to_owned();
        Err(ArchiveError::BadArgument { argument: "by", reason })
    }

    /// Checks the gates of an evaluation, or only `gate` if it is given. `baseline` is the evaluation that relative
    /// gates compare with.
    fn check_gates(
        &self,
        evaluation: Option<&str>,
        gate: Option<&str>,
        baseline: Option<&str>,
    ) -> Result<GateReport, ArchiveError>;

    /// Stores a label. It replaces an earlier one of the same labeller. Returns where it was stored.
    fn store_label(&self, label: &NewRunLabel) -> Result<String, ArchiveError>;
}

/// What live traffic is compared by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TrafficName {
    Version,
    Model,
    Agent,
}

/// A page of evaluations.
#[derive(Debug, Default)]
pub struct EvaluationList {
    /// The scope of the tools if no evaluation is named.
    pub default_scope: String,
    pub entries: Vec<EvaluationEntry>,
    pub total: usize,
    pub skipped: SkippedEvaluations,
}

/// Evaluations of a page that are not listed because their files cannot be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SkippedEvaluations(pub usize);

/// One evaluation: runs of an agent that were judged together by `gradus eval`, `bench` or `experiment`.
#[derive(Debug)]
pub struct EvaluationEntry {
    pub manifest: RunManifest,
    /// `finished`, `stopped`, `running` or `cut off`.
    pub state: &'static str,
    /// `None` if the evaluation is too large to be read for a list.
    pub scores: Option<EvaluationScores>,
}

/// Means of an evaluation by the name of the metric.
#[derive(Debug)]
pub struct EvaluationScores {
    pub run_count: usize,
    pub metrics: BTreeMap<String, f64>,
    /// Names of metrics that are shares from 0 to 1.
    pub shares: BTreeSet<String>,
}

/// A page of runs.
#[derive(Debug, Default)]
pub struct FoundRunPage {
    /// What was searched, for people.
    pub scope: String,
    pub runs: Vec<FoundRun>,
    /// Number of matching runs on all pages.
    pub total: u64,
    /// Whether there are more matching runs than were counted.
    pub is_total_partial: bool,
    /// Where the next page begins; `None` at the end. A page can be empty and still have a next one.
    pub next_cursor: Option<String>,
}

/// A run in a list.
#[derive(Debug, Default)]
pub struct FoundRun {
    pub run_id: String,
    pub start: Option<String>,
    pub project: Option<String>,
    pub agent: Option<String>,
    pub agent_version: Option<String>,
    pub model: Option<String>,
    pub query: Option<String>,
    pub step_count: u64,
    /// Whether it ended in an error instead of an answer.
    pub is_error: bool,
    pub flags: Vec<RunFlag>,
    /// Cursor of the page that begins after this run.
    pub cursor_after: String,
}

/// Wrong verdicts of one evaluator on a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunFlag {
    pub evaluator: String,
    /// The label of the whole run, or of the first wrong step.
    pub label: Option<String>,
    pub count: u64,
    /// `None` if only the whole run is wrong.
    pub first_step: Option<u32>,
}

/// Who chose a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabelSource {
    Person,
    Assistant,
}

/// A label to store.
#[derive(Clone, Debug)]
pub struct NewRunLabel {
    pub evaluation: Option<String>,
    pub run_id: String,
    /// `None` for the whole run.
    pub step_index: Option<u32>,
    pub evaluator: String,
    pub label: String,
    pub explanation: Option<String>,
    pub source: LabelSource,
}

/// The scope that [`RunArchive::visit_flagged`] covered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlaggedScope {
    /// For people.
    pub description: String,
    /// All runs, with and without wrong verdicts.
    pub run_count: u64,
    /// Whether there are more runs than were visited.
    pub is_partial: bool,
}

/// Failure groups with the scope that their shares refer to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StoredFailureGroups {
    pub scope: FlaggedScope,
    pub groups: Vec<FailureGroup>,
}

/// Results of gates, with the failure groups of the evaluation.
#[derive(Debug)]
pub struct GateReport {
    pub manifest: RunManifest,
    pub results: Vec<GateResult>,
    pub failure_groups: Vec<FailureGroup>,
    /// Metrics that a gate can be about, with their values in words.
    pub metrics: Vec<(String, String)>,
}

/// Why an archive cannot answer. Each message is one line for the assistant, which can correct its arguments with it.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    #[error("no evaluations here; hint: `gradus eval SOURCE --judge offline` makes one")]
    NoEvaluations,
    #[error("no evaluation {name:?}; hint: list_evaluations lists them")]
    UnknownEvaluation { name: String },
    #[error("{count} evaluations begin with {name:?}; hint: give more of the id")]
    AmbiguousEvaluation { name: String, count: usize },
    #[error("no run {id:?} in {place}; hint: find_runs lists runs with their ids")]
    UnknownRun { id: String, place: String },
    #[error("{count} runs begin with {id:?}; hint: give the whole id")]
    AmbiguousRun { id: String, count: usize },
    #[error("trace {id:?} has {count} runs; hint: give one of {known}")]
    SeveralRuns { id: String, count: usize, known: String },
    #[error("{argument}: {reason}")]
    BadArgument { argument: &'static str, reason: String },
    #[error("these evaluations cannot be compared: {reason}")]
    NotComparable { reason: String },
    #[error("labels are not allowed here")]
    LabelsNotAllowed,
    #[error("the label was not stored: {reason}")]
    LabelNotStored { reason: String },
    /// The server refused: overloaded, out of time, or shutting down.
    #[error("{reason}")]
    Refused { reason: String },
    #[error("the request was stopped; hint: narrow it with `since`, `tool` or `limit`")]
    Stopped,
    #[error("an evaluation cannot be read: {0}")]
    File(#[from] RunFileError),
}
