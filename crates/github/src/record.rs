//! What an agent did in one run on the simulator, as verifiers, rules and replays read it.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::simulator::{Exchange, Fault};

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
    /// Who it was: a policy, a model, or a command.
    #[serde(default)]
    pub agent: String,
    /// What went wrong on purpose beside what the task's world has of that.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<Fault>,
    /// Whether it was a program of others: its tools are not ours, whatever they are called, and which of them made which
    /// request is not known.
    #[serde(default)]
    pub is_foreign: bool,
}

impl RunRecord {
    /// How many calls it made. What a program says of its steps is not taken for less than the requests it made.
    pub fn calls(&self) -> usize {
        let requests = if self.is_foreign { self.exchanges.len() } else { 0 };
        self.steps.len().max(requests)
    }

    /// The same run with a step for each request.
    pub fn by_requests(&self) -> RunRecord {
        let steps = self.exchanges.iter().enumerate().map(|(at, exchange)| Step::of_request(at, exchange));
        RunRecord { steps: steps.collect(), ..self.clone() }
    }
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

impl Step {
    /// `at` is its place among the run's exchanges.
    pub fn of_request(at: usize, exchange: &Exchange) -> Step {
        let mut arguments = Map::new();
        match exchange.names() {
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
        Step {
            thought: None,
            tool: exchange.operation.clone().unwrap_or_else(unnamed),
            arguments: Value::Object(arguments),
            observation: exchange.answer.clone(),
            is_error: exchange.status >= 400,
            exchanges: at..at + 1,
            approved: None,
        }
    }
}

/// How a run ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    #[default]
    Answered,
    /// As many replies as were allowed.
    StepLimit,
    /// As many tool calls as were allowed.
    CallLimit,
    /// The model, its endpoint or the program failed.
    Failed(String),
}
