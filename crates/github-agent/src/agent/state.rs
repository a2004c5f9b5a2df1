//! All that a session has to remember, so that it can be put down and taken up again.

use std::collections::VecDeque;
use std::time::Duration;

use gradus_llm::{CompletionUsage, PromptMessage};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::run_step::AgentRunEnd;

/// How the model says what it wants to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolCallMode {
    /// Thought, Action, Action Input and Observation, as text.
    Text,
    /// The endpoint's own tool calls.
    #[default]
    Native,
}

/// What an agent may do, and how much of it.
#[derive(Clone, Copy, Debug)]
pub struct AgentRunSettings {
    pub form: ToolCallMode,
    /// Replies of the model for one request.
    pub max_steps: u32,
    /// Tool calls for one request.
    pub max_calls: u32,
    /// Length of one reply.
    pub max_tokens: u32,
    pub temperature: Option<f64>,
    /// What the model can take in at once, its reply included.
    pub context_tokens: usize,
    /// Only tools that change nothing.
    pub read_only: bool,
    /// Whether somebody is asked before something is destroyed.
    pub confirm_destructive: bool,
    /// How long one request may spend waiting for rate limits.
    pub longest_wait: Duration,
    /// Replies in a row that cannot be read before the run is given up.
    pub max_malformed: u32,
}

impl Default for AgentRunSettings {
    fn default() -> AgentRunSettings {
        AgentRunSettings {
            form: ToolCallMode::Native,
            max_steps: 30,
            max_calls: 100,
            max_tokens: 4096,
            temperature: Some(0.0),
            context_tokens: 100_000,
            read_only: false,
            confirm_destructive: true,
            longest_wait: Duration::from_secs(15 * 60),
            max_malformed: 3,
        }
    }
}

/// A tool call that the model asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentToolCall {
    /// Unique in the session.
    pub id: String,
    pub name: String,
    /// An object; where the model wrote something else, its text.
    pub arguments: Value,
    /// Why `arguments` is no object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// What the model said before it; calls of one reply share it.
    pub thought: Option<String>,
    /// Whether somebody was asked, and agreed.
    #[serde(default)]
    pub approved: Option<bool>,
    /// How often a rate limit was waited for.
    #[serde(default)]
    pub waits: u32,
    /// One of too many in its reply: it is not made.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_surplus: bool,
    /// Written as text, so that the model gets what comes back as text.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_written: bool,
    /// More stood behind it in the reply, and was left out.
    #[serde(default, alias = "is_first_of_several", skip_serializing_if = "std::ops::Not::not")]
    pub has_more_behind: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentState {
    pub(super) version: u32,
    /// As traces call the session.
    pub session: String,
    pub form: ToolCallMode,
    /// What the model sees, but for what is the same in every question.
    pub messages: Vec<PromptMessage>,
    /// Where each request begins in them.
    #[serde(default)]
    pub(super) requests: Vec<usize>,
    /// How many requests before those were left out to save room.
    #[serde(default)]
    pub(super) dropped: u32,
    /// The last request.
    pub request: Option<String>,
    pub usage: CompletionUsage,
    pub(super) phase: AgentPhase,
    /// Of the last request, as are the following.
    pub(super) replies: u32,
    pub(super) calls: u32,
    pub(super) malformed: u32,
    pub(super) shortenings: u32,
    pub(super) waited: Duration,
    /// Of the session: calls that have an id of ours.
    pub(super) ids: u64,
    /// What was called last and what came back, shortened to what tells them apart.
    pub(super) recent: VecDeque<(u64, u64)>,
}

pub(super) const VERSION: u32 = 1;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum AgentPhase {
    /// Nothing was asked for yet.
    Idle,
    /// The model is to be asked.
    Asking,
    /// Calls of a reply, the one at the front first.
    Calling {
        calls: VecDeque<AgentToolCall>,
        stage: CallStage,
    },
    Done {
        end: AgentRunEnd,
        answer: Option<String>,
    },
}

/// How far the first call is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum CallStage {
    Ready,
    /// Somebody was asked and did not agree, for this reason.
    Refused(String),
    /// It is on its way.
    Begun,
    /// It was on its way when the program was stopped.
    Unknown,
    Waiting(Duration),
}

impl AgentState {
    pub fn new(session: &str, form: ToolCallMode) -> AgentState {
        AgentState {
            version: VERSION,
            session: session.to_owned(),
            form,
            messages: Vec::new(),
            requests: Vec::new(),
            dropped: 0,
            request: None,
            usage: CompletionUsage::default(),
            phase: AgentPhase::Idle,
            replies: 0,
            calls: 0,
            malformed: 0,
            shortenings: 0,
            waited: Duration::ZERO,
            ids: 0,
            recent: VecDeque::new(),
        }
    }

    /// Whether a request was made and has neither an answer nor another end.
    pub fn is_under_way(&self) -> bool {
        matches!(self.phase, AgentPhase::Asking | AgentPhase::Calling { .. })
    }

    /// How the last request ended, and what the answer was.
    pub fn run_outcome(&self) -> Option<(&AgentRunEnd, Option<&str>)> {
        match &self.phase {
            AgentPhase::Done { end, answer } => Some((end, answer.as_deref())),
            _ => None,
        }
    }

    /// Tool calls of the last request.
    pub fn tool_call_count(&self) -> u32 {
        self.calls
    }

    /// Replies of the model to the last request.
    pub fn reply_count(&self) -> u32 {
        self.replies
    }
}
