//! What an agent did in one run on the simulator, as verifiers, rules and replays read it.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use gradus_github_agent::agent::{AgentRunEnd, RunStep};
use gradus_github_sim::{RecordedExchange, SimulatedFault};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TrialRecord {
    pub task: String,
    /// From 0.
    pub trial: u32,
    pub request: String,
    pub steps: Vec<RunStep>,
    /// The final message.
    pub answer: Option<String>,
    pub end: AgentRunEnd,
    /// All requests to the simulator, in order.
    pub exchanges: Vec<RecordedExchange>,
    /// Who it was: a policy, a model, or a command.
    #[serde(default)]
    pub agent: String,
    /// What went wrong on purpose beside what the task's world has of that.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<SimulatedFault>,
    /// Whether it was a program of others: its tools are not ours, whatever they are called, and which of them made which
    /// request is not known.
    #[serde(default)]
    pub is_foreign: bool,
}

impl TrialRecord {
    /// How many calls it made. What a program says of its steps is not taken for less than the requests it made.
    pub fn call_count(&self) -> usize {
        let requests = if self.is_foreign { self.exchanges.len() } else { 0 };
        self.steps.len().max(requests)
    }

    /// The same run with a step for each request.
    pub fn by_requests(&self) -> TrialRecord {
        let steps = self.exchanges.iter().enumerate().map(|(at, exchange)| request_step(at, exchange));
        TrialRecord { steps: steps.collect(), ..self.clone() }
    }
}

/// A request as a step; `at` is its position among the run's exchanges.
pub fn request_step(at: usize, exchange: &RecordedExchange) -> RunStep {
    let mut arguments = Map::new();
    match exchange.path_parameters() {
        // What an address has in every request of its kind is nothing that anybody chose.
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
