//! Steps and ends of runs, as records and benchmarks store them.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One tool call with the thought before it. For an external program, one request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunStep {
    pub thought: Option<String>,
    /// The name as the model wrote it, also if no such tool exists.
    pub tool: String,
    pub arguments: Value,
    /// The observation that the model got, without notes of the agent.
    pub observation: String,
    pub is_error: bool,
    /// Range in the recorded requests of the run.
    pub exchanges: Range<usize>,
    /// The result of a request for approval; none if there was none.
    pub approved: Option<bool>,
}

/// How a run ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentRunEnd {
    #[default]
    Answered,
    /// The limit on model replies.
    StepLimit,
    /// The limit on tool calls.
    CallLimit,
    /// The model, its endpoint or the program failed.
    Failed(String),
}
