//! What an agent did in one run on the simulator, as verifiers, rules and replays read it.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::simulator::Exchange;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    pub task: String,
    /// From 0.
    pub trial: u32,
    pub request: String,
    pub steps: Vec<Step>,
    /// The final message.
    pub answer: Option<String>,
    pub end: End,
    /// All requests to the simulator, in order.
    pub exchanges: Vec<Exchange>,
}

/// One tool call with the thought before it. For an agent that is known by its requests only, one request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Step {
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
pub enum End {
    #[default]
    Answered,
    StepLimit,
    /// The model, its endpoint or the program failed.
    Failed(String),
}
