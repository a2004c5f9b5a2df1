//! What an agent did, as those who look at its runs keep it.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One tool call with the thought before it. For an agent that is known by its requests only, one request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunStep {
    pub thought: Option<String>,
    pub tool: String,
    pub arguments: Value,
    pub observation: String,
    pub is_error: bool,
    /// Which of the run's exchanges this call made.
    pub exchanges: Range<usize>,
    /// Whether a person or a hook was asked, and agreed; none if nobody was asked.
    pub approved: Option<bool>,
}

/// How a run ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentRunEnd {
    #[default]
    Answered,
    /// As many replies as were allowed.
    StepLimit,
    /// As many tool calls as were allowed.
    CallLimit,
    /// The model, its endpoint or the program failed.
    Failed(String),
}
