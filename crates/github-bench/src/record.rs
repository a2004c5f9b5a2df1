//! The record of one trial: what the agent did and which requests reached the simulator. Verifier, rules and replays
//! read records, never live agents, so that a finished benchmark can be assessed again.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use gradus_github_agent::agent::{AgentRunEnd, RunStep};
use gradus_github_sim::{RecordedExchange, SimulatedFault};

/// Stored as `records/<task>-<trial>.json`. Fields added later have defaults, so that older records can be read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TrialRecord {
    pub task: String,
    /// Number of the trial within its task, from 0.
    pub trial: u32,
    pub request: String,
    pub steps: Vec<RunStep>,
    /// The final message.
    pub answer: Option<String>,
    /// How the run ended. A run that did not end with an answer can still pass, except after an error.
    pub end: AgentRunEnd,
    /// All requests to the simulator with their responses, in order. Steps refer to ranges of it.
    pub exchanges: Vec<RecordedExchange>,
    /// Name of the policy, the model or the command.
    #[serde(default)]
    pub agent: String,
    /// Faults that were planted in addition to those of the task's world. A replay needs them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<SimulatedFault>,
    /// Whether an external program made the run. Its tools are unknown whatever they are called, and which step made
    /// which request is not known either, so that rules and replays work on requests instead of steps.
    #[serde(default)]
    pub is_foreign: bool,
}

impl TrialRecord {
    /// Returns the number of calls for detours and budgets. An external program reports its own steps, which may be
    /// fewer than the requests it made; the larger number counts.
    pub fn call_count(&self) -> usize {
        let requests = if self.is_foreign { self.exchanges.len() } else { 0 };
        self.steps.len().max(requests)
    }

    /// Returns the same run with one step per request, for external programs.
    pub fn with_steps_by_request(&self) -> TrialRecord {
        let steps = self.exchanges.iter().enumerate().map(|(at, exchange)| step_from_request(at, exchange));
        TrialRecord { steps: steps.collect(), ..self.clone() }
    }
}

/// Converts a request to a step. `at` is its index in [`TrialRecord::exchanges`]. Path parameters, query and body
/// become arguments.
pub fn step_from_request(at: usize, exchange: &RecordedExchange) -> RunStep {
    let mut arguments = Map::new();
    match exchange.path_parameters() {
        // Only the parameters: the agent did not choose the constant part of a path, which all requests of the
        // operation share.
        Some(names) => {
            arguments.extend(names.into_iter().map(|(name, value)| (name.to_owned(), value.into())));
        }
        None => {
            arguments.insert("path".to_owned(), exchange.path.clone().into());
        }
    }
    if !exchange.query.is_empty() {
        arguments.insert("query".to_owned(), exchange.query.clone().into());
    }
    if !exchange.body.is_empty() {
        let body = serde_json::from_str(&exchange.body).unwrap_or_else(|_| exchange.body.clone().into());
        arguments.insert("body".to_owned(), body);
    }
    let unnamed = || format!("{} {}", exchange.method, exchange.path);
    RunStep {
        thought: None,
        tool: exchange.operation.clone().unwrap_or_else(unnamed),
        arguments: Value::Object(arguments),
        observation: exchange.answer.clone(),
        is_error: exchange.status >= 400,
        exchanges: at..at + 1,
        approved: None,
    }
}
