//! Rows as the store hands them out and takes them.

use gradus_core::span::TraceId;

/// A trajectory as it is stored.
#[derive(Clone, Debug, Default)]
pub struct TrajectoryRecord {
    pub trajectory_id: String,
    /// The trace it begins in.
    pub trace_id: TraceId,
    pub start_ns: i64,
    pub end_ns: i64,
    pub agent: String,
    pub version: String,
    pub model: String,
    /// The conversation it belongs to; empty when it belongs to none.
    pub session: String,
    /// The beginning of the query.
    pub query: String,
    pub steps: u32,
    pub is_error: bool,
    pub tokens: u64,
    pub cost_usd: Option<f64>,
    /// The names of the tools it calls, each once.
    pub tools: Vec<String>,
    /// The trajectory without tool definitions.
    pub json: Vec<u8>,
    /// What it is found by.
    pub words: String,
    /// What rules said of it.
    pub outcomes: Vec<OutcomeRecord>,
    /// The rule whose model has still to judge it.
    pub ungraded_by: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordedKind {
    Scored = 0,
    NotApplicable = 1,
    Failed = 2,
}

/// A verdict as it is stored.
#[derive(Clone, Debug)]
pub struct OutcomeRecord {
    pub evaluator: String,
    /// `None` for the whole trajectory.
    pub step: Option<u32>,
    pub kind: RecordedKind,
    pub label: Option<String>,
    pub score: Option<f64>,
    /// Below the best that its evaluator gives.
    pub is_wrong: bool,
    /// The tool that the step calls; empty for the whole trajectory.
    pub tool: String,
    pub run: String,
    /// The outcome's line of JSON.
    pub line: String,
}

/// What traces can be filtered by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FacetKind {
    Agent = 0,
    Model = 1,
    Tool = 2,
    /// A label that was given, with and without the evaluator's name.
    Label = 3,
    Evaluator = 4,
    Error = 5,
    Version = 6,
    /// An evaluator that found something below its best.
    Wrong = 7,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockSignal {
    Spans = 0,
    Logs = 1,
}
