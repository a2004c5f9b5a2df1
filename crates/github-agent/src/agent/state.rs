//! The state of a session: everything that is needed to interrupt and resume it.

use std::collections::VecDeque;
use std::time::Duration;

use gradus_llm::{CompletionUsage, PromptMessage};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::run_step::AgentRunEnd;

/// How the model expresses tool calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolCallMode {
    /// ReAct text: Thought, Action, Action Input, Observation.
    Text,
    /// Tool calls of the chat completion API.
    #[default]
    Native,
}

/// Limits and permissions of a run.
#[derive(Clone, Copy, Debug)]
pub struct AgentRunSettings {
    pub form: ToolCallMode,
    /// Maximum number of model replies per request.
    pub max_steps: u32,
    /// Maximum number of tool calls per request.
    pub max_calls: u32,
    /// Maximum number of tokens of one reply.
    pub max_tokens: u32,
    pub temperature: Option<f64>,
    /// Context size of the model in tokens, including the reply.
    pub context_tokens: usize,
    /// Whether only tools that change nothing are offered and called.
    pub read_only: bool,
    /// Whether destructive calls need approval.
    pub confirm_destructive: bool,
    /// Maximum total time per request for waiting on rate limits.
    pub longest_wait: Duration,
    /// Maximum number of unusable replies in a row before the run fails.
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

/// A tool call that the model requested.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentToolCall {
    /// Unique in the session.
    pub id: String,
    pub name: String,
    /// A JSON object, or the raw text if it is none.
    pub arguments: Value,
    /// Why `arguments` is no object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Text of the model before the call; calls of one reply share it.
    pub thought: Option<String>,
    /// Whether approval was granted; none if it was not requested.
    #[serde(default)]
    pub approved: Option<bool>,
    /// Number of waits for rate limits so far.
    #[serde(default)]
    pub waits: u32,
    /// Whether the call is beyond the limit of calls per reply, so that it is not made.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_surplus: bool,
    /// Whether the call was written as text, so that its result is returned as text.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_written: bool,
    /// Whether the reply had further calls after this one, which were dropped.
    #[serde(default, alias = "is_first_of_several", skip_serializing_if = "std::ops::Not::not")]
    pub has_more_behind: bool,
}

/// Serialised as the session file. New fields need defaults, or a new format version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentState {
    pub(super) version: u32,
    /// Session id in traces.
    pub session: String,
    pub form: ToolCallMode,
    /// The conversation without system prompt and tools, which are rebuilt from settings.
    pub messages: Vec<PromptMessage>,
    /// Index of the first message of each request.
    #[serde(default)]
    pub(super) requests: Vec<usize>,
    /// Requests that were removed from the beginning to save context.
    #[serde(default)]
    pub(super) dropped: u32,
    /// The last request.
    pub request: Option<String>,
    /// Tokens over all requests of the session.
    pub usage: CompletionUsage,
    pub(super) phase: AgentPhase,
    /// Counters of the current request, as are the next four.
    pub(super) replies: u32,
    pub(super) calls: u32,
    pub(super) malformed: u32,
    pub(super) shortenings: u32,
    pub(super) waited: Duration,
    /// The highest number of a call id that the agent assigned in this session.
    pub(super) ids: u64,
    /// Hashes of the latest calls and their results, to detect loops.
    pub(super) recent: VecDeque<(u64, u64)>,
}

/// Version of the session file format.
pub(super) const SESSION_FORMAT_VERSION: u32 = 1;

/// Where a session is in its loop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum AgentPhase {
    /// There was no request yet.
    Idle,
    /// The model is to be asked.
    Asking,
    /// Queue of the calls of one reply; `stage` is that of the first.
    Calling {
        calls: VecDeque<AgentToolCall>,
        stage: CallStage,
    },
    Done {
        end: AgentRunEnd,
        answer: Option<String>,
    },
}

/// Progress of the first call in the queue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum CallStage {
    Ready,
    /// Approval was refused, for this reason.
    Refused(String),
    /// Sent, or about to be.
    Begun,
    /// It was under way when the process stopped.
    Unknown,
    Waiting(Duration),
}

impl AgentState {
    pub fn new(session: &str, form: ToolCallMode) -> AgentState {
        AgentState {
            version: SESSION_FORMAT_VERSION,
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

    /// Whether a request has not ended yet.
    pub fn is_under_way(&self) -> bool {
        matches!(self.phase, AgentPhase::Asking | AgentPhase::Calling { .. })
    }

    /// Returns how the last request ended, and the answer.
    pub fn run_outcome(&self) -> Option<(&AgentRunEnd, Option<&str>)> {
        match &self.phase {
            AgentPhase::Done { end, answer } => Some((end, answer.as_deref())),
            _ => None,
        }
    }

    /// Returns the number of tool calls of the last request.
    pub fn tool_call_count(&self) -> u32 {
        self.calls
    }

    /// Returns the number of model replies to the last request.
    pub fn reply_count(&self) -> u32 {
        self.replies
    }
}
