//! Rows as the store takes and returns them.

use std::collections::BTreeMap;

use gradus_core::span::TraceId;
use gradus_core::text_signature::TextSignature;

/// A trajectory with everything that is stored of it.
#[derive(Clone, Debug, Default)]
pub struct TrajectoryRecord {
    pub trajectory_id: String,
    /// The trace in which it begins.
    pub trace_id: TraceId,
    /// Times in nanoseconds since the Unix epoch, by the clock of the sender.
    pub start_ns: i64,
    pub end_ns: i64,
    /// Names are empty if they are not known.
    pub agent: String,
    pub version: String,
    pub model: String,
    /// The session; empty if there is none.
    pub session: String,
    /// The beginning of the query, for lists.
    pub query: String,
    pub steps: u32,
    pub is_error: bool,
    pub tokens: u64,
    pub cost_usd: Option<f64>,
    /// Names of the tools that it calls, each once.
    pub tools: Vec<String>,
    /// The trajectory as JSON, without tool definitions.
    pub json: Vec<u8>,
    /// Text for the full-text search.
    pub words: String,
    /// Outcomes of rules, which need no model.
    pub outcomes: Vec<OutcomeRecord>,
    /// The grading rule whose model has yet to judge it.
    pub ungraded_by: Option<String>,
}

/// The kind of an outcome. The values are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordedKind {
    Scored = 0,
    NotApplicable = 1,
    Failed = 2,
    Abstained = 3,
}

/// An outcome as it is stored.
#[derive(Clone, Debug)]
pub struct OutcomeRecord {
    pub evaluator: String,
    /// `None` for the trajectory as a whole.
    pub step: Option<u32>,
    pub kind: RecordedKind,
    pub label: Option<String>,
    pub score: Option<f64>,
    /// Below the best score of its evaluator.
    pub is_wrong: bool,
    /// The tool that the step calls; empty for the trajectory as a whole.
    pub tool: String,
    pub run: String,
    /// The line of JSON of the outcome.
    pub line: String,
    /// Why it is wrong; `None` if it is not.
    pub failure_group: Option<FailureGroupKey>,
}

impl OutcomeRecord {
    /// A wrong outcome of which nothing but its group is known.
    pub(crate) fn wrong_with_group(group: FailureGroupKey) -> OutcomeRecord {
        OutcomeRecord {
            evaluator: group.evaluator.clone(),
            step: None,
            kind: RecordedKind::Scored,
            label: None,
            score: None,
            is_wrong: true,
            tool: String::new(),
            run: String::new(),
            line: String::new(),
            failure_group: Some(group),
        }
    }
}

/// What a failure group is about.
#[derive(Clone, Debug, Default)]
pub struct FailureGroupKey {
    /// Equal for the same evaluator, tool, rule, label and reason.
    pub key: String,
    pub evaluator: String,
    /// Empty for verdicts on whole trajectories.
    pub tool: String,
    /// Empty if a model decided.
    pub rule: String,
    pub label: String,
    pub reason: String,
    /// Of a model's reason, to find the same reason in other words; else empty.
    pub signature: TextSignature,
}

/// Kinds of values by which traces are filtered. The values are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FacetKind {
    Agent = 0,
    Model = 1,
    Tool = 2,
    /// A label, with and without the name of its evaluator.
    Label = 3,
    Evaluator = 4,
    Error = 5,
    Version = 6,
    /// An evaluator that gave a score below its best.
    Wrong = 7,
    /// The key of a failure group.
    FailureGroup = 8,
}

/// Which OTLP request a block is. The values are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockSignal {
    Spans = 0,
    Logs = 1,
}

/// The last outcome to each question, in the order of the primary key.
pub(crate) fn latest_outcomes(outcomes: &[OutcomeRecord]) -> impl Iterator<Item = &OutcomeRecord> {
    let mut latest: BTreeMap<(&str, u32), &OutcomeRecord> = BTreeMap::new();
    for outcome in outcomes {
        latest.insert((&outcome.evaluator, outcome.step.unwrap_or(0)), outcome);
    }
    latest.into_values()
}
