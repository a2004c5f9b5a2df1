//! The result of extraction: one user request with its ordered steps. This is also the line format of `gradus traces
//! --format jsonl`, so field names are a promise to the tools that are built on it. Doc comments of these types are the
//! descriptions in `docs/schemas`; other remarks are plain comments.

use gradus_react::react_text::TextDefect;
use std::borrow::Cow;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::raw_json::RawJson;
use crate::short_text::cut_text;

/// One user request: the query, what the agent did about it, and the answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Trajectory {
    /// Stable for the same spans, whatever order they came in.
    pub trajectory_id: String,
    pub trace_ids: Vec<String>,
    /// The conversation that this request is a turn of.
    pub session_id: Option<String>,
    /// Position in the conversation, from 1; null when the trace does not tell.
    pub turn_index: Option<u32>,
    /// The turn before this one, if it is a trajectory of the same source.
    pub previous_trajectory_id: Option<String>,
    pub project: Option<String>,
    pub agent: Option<String>,
    pub agent_version: Option<String>,
    pub model: Option<String>,
    /// The standing instructions to the agent. Shared by the turns of a conversation.
    pub system_prompt: Option<Arc<str>>,
    pub query: Option<String>,
    /// What the agent thought before it gave its final answer.
    pub final_thought: Option<String>,
    pub final_answer: Option<String>,
    /// The answer that the dataset item of this trial expects, if it has one. No trace records it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference_answer: Option<String>,
    pub steps: Vec<TrajectoryStep>,
    /// The tools on offer, as the agent saw them; shared by the runs that offer the same.
    pub tools: Arc<[ToolDefinition]>,
    pub tokens: TokenUsage,
    /// The tokens by model, where the calls name more than one; else they are those of `model`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub model_usage: Vec<ModelUsage>,
    pub cost_usd: Option<f64>,
    pub defects: Vec<ExtractionDefect>,
    /// The trajectory whose agent called or handed over to this one.
    pub parent_trajectory_id: Option<String>,
    /// The step of the parent that this trajectory belongs to.
    pub parent_step_index: Option<u32>,
    /// The model calls that made the final answer.
    pub answer_span_ids: Vec<String>,
    /// The span that stands for the whole request.
    pub root_span_id: Option<String>,
    pub start: Option<String>,
    pub end: Option<String>,
    /// True when the run ended in an error instead of an answer.
    pub is_error: bool,
    /// What the source itself says about the run or its steps: rewards, labels of people, scores of other tools.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub annotations: Vec<RecordedAnnotation>,
    // The conversation before this turn, oldest first. Not part of the line format: lines are linked by
    // `previous_trajectory_id`, so that a long conversation is not repeated in each of them.
    #[serde(skip)]
    pub earlier_turns: Vec<Arc<EarlierTurn>>,
}

impl Trajectory {
    /// The number after the last step, if a thought before the final answer is recorded. Verdicts on that thought carry
    /// it as their step number: it is one more row of reasoning, after which no tool was called.
    pub fn final_thought_index(&self) -> Option<u32> {
        self.final_thought.as_deref().filter(|thought| !thought.trim().is_empty())?;
        Some(self.steps.last().map_or(0, |step| step.index).saturating_add(1))
    }
}

/// One earlier turn of a conversation: what the agent could still know of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EarlierTurn {
    pub query: Option<String>,
    pub calls: Vec<EarlierCall>,
    pub answer: Option<String>,
}

/// One tool call of an earlier turn.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EarlierCall {
    pub tool: String,
    /// As the model wrote them, otherwise as JSON.
    pub arguments: Option<String>,
    pub observation: Option<String>,
    pub is_error: bool,
}

impl EarlierTurn {
    /// Turns that a trajectory refers to at most: the latest ones.
    pub const MAX_TURNS: usize = 64;
    /// Maximum bytes of each text.
    const MAX_TEXT_BYTES: usize = 64 * 1024;

    /// Bytes of all texts of the turn.
    pub fn text_bytes(&self) -> usize {
        let len = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let call = |call: &EarlierCall| call.tool.len() + len(&call.arguments) + len(&call.observation);
        len(&self.query) + self.calls.iter().map(call).sum::<usize>() + len(&self.answer)
    }

    /// The turn as later turns see it. Long texts are cut.
    pub fn from_trajectory(trajectory: &Trajectory) -> EarlierTurn {
        let cut = |text: &str| cut_text(text, Self::MAX_TEXT_BYTES).into_owned();
        let call = |step: &TrajectoryStep| EarlierCall {
            tool: step.tool.clone(),
            arguments: step.arguments_text().map(|text| cut(&text)),
            observation: step.observation.as_deref().map(cut),
            is_error: step.is_error,
        };
        EarlierTurn {
            query: trajectory.query.as_deref().map(cut),
            calls: trajectory.steps.iter().map(call).collect(),
            answer: trajectory.final_answer.as_deref().map(cut),
        }
    }
}

/// One tool call: why, what, and what came back.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Step")]
pub struct TrajectoryStep {
    /// Counts from 1.
    pub index: u32,
    /// What the agent said before it acted. Calls made in one reply share their thought.
    pub thought: Option<String>,
    pub tool: String,
    pub tool_call_id: Option<String>,
    /// The arguments as JSON; null when they are missing or malformed.
    pub arguments: Option<Json>,
    /// The arguments as the model wrote them.
    pub arguments_raw: Option<String>,
    pub observation: Option<String>,
    pub is_error: bool,
    /// True when the user or a policy refused to let the call run.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_denied: bool,
    /// True when the model asked for this call in the same reply as the step before.
    pub parallel_with_previous: bool,
    /// True when the agent's context was compacted after the step before, or, for the first step of a turn, in an
    /// earlier turn: it may no longer know earlier results.
    #[serde(default, skip_serializing_if = "is_false")]
    pub after_compaction: bool,
    /// The agent that took this step, where the spans tell: a hand-over changes it.
    pub agent: Option<String>,
    /// The spans that hold this step: the model call first, then the tool's.
    pub span_ids: Vec<String>,
    /// The trace of the first of these spans, where a trajectory is made of several traces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
    pub start: Option<String>,
    pub end: Option<String>,
    /// Tokens of the model call that asked for this step; zero for calls that share a reply with the step before.
    pub tokens: TokenUsage,
}

impl TrajectoryStep {
    /// The arguments as the model wrote them, otherwise as JSON. `None` if the call had none.
    pub fn arguments_text(&self) -> Option<Cow<'_, str>> {
        match (&self.arguments_raw, &self.arguments) {
            (Some(raw), _) => Some(Cow::Borrowed(raw)),
            (None, Some(json)) => Some(Cow::Owned(json.to_string())),
            (None, None) => None,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolDefinition {
    pub name: String,
    pub description: Option<String>,
    /// JSON Schema of the arguments.
    pub schema: Option<RawJson>,
}

// Sums of what the model calls report. Calls without a report count as zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Tokens")]
pub struct TokenUsage {
    pub prompt: u64,
    /// Tokens of reasoning included.
    pub completion: u64,
    /// Of the prompt's tokens, those that the provider had cached.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cached_prompt: u64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

fn is_false(flag: &bool) -> bool {
    !flag
}

/// The detail of [`DefectKind::RunFailed`] where no error was recorded. With traces, the recorded error follows it behind a
/// colon; other records have the error alone.
pub const RUN_FAILED: &str = "the run ended in an error";

/// A score or a label that the source recorded about the run or one of its steps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RecordedAnnotation {
    /// What it is about, as the source calls it: `reward`, `success`, the name of a feedback or a score.
    pub name: String,
    /// The step that it is about; null for the whole run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_index: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explanation: Option<String>,
    /// Who said so: `human`, `code` or `model`, where the source tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotator: Option<String>,
}

/// Tokens of the calls of one model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ModelUsage {
    /// Null for calls that name no model.
    pub model: Option<String>,
    pub tokens: TokenUsage,
}

/// Saturating, because a trace can state any number.
impl std::ops::AddAssign for TokenUsage {
    fn add_assign(&mut self, other: TokenUsage) {
        self.prompt = self.prompt.saturating_add(other.prompt);
        self.completion = self.completion.saturating_add(other.completion);
        self.cached_prompt = self.cached_prompt.saturating_add(other.cached_prompt);
    }
}

impl TokenUsage {
    /// Both together. Saturating, because a trace can state any number.
    pub fn total(self) -> u64 {
        self.prompt.saturating_add(self.completion)
    }
}

/// Something missing or malformed that extraction met: never silent, never fatal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Defect")]
pub struct ExtractionDefect {
    pub kind: DefectKind,
    pub detail: String,
    pub span_id: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DefectKind {
    /// A record of the source could not be read.
    UnreadableRecord,
    /// The last record of a session is cut off, because the session is being written.
    UnfinishedRecord,
    /// A span names a parent that is not there.
    OrphanSpan,
    /// The same span came twice with different content; the later one counts.
    ConflictingSpan,
    /// A log record names a span that is not there.
    OrphanLog,
    /// A model call carries no messages.
    ModelCallWithoutContent,
    /// The last model call carries a request and no reply: nobody knows what it answered.
    MissingReply,
    /// A model call that belongs to no step: planning, summaries, a tool's own call.
    ModelCallOutsideSteps,
    /// A tool's span that answers no call: framework bookkeeping, hand-overs, a tool inside a tool.
    ToolRunOutsideSteps,
    /// Arguments that are no JSON.
    MalformedArguments,
    /// Readable arguments with text behind them.
    TextAfterArguments,
    /// A ReAct reply with neither an action nor an answer.
    MissingAction,
    /// A tool call or an action input without the name of a tool.
    MissingToolName,
    /// An action that was written as text and never ran: the agent calls its tools in another way. The text is the
    /// answer.
    ActionNeverRan,
    /// A tool name that no tool can have.
    UnusualToolName,
    /// A tool call without any reasoning before it.
    MissingThought,
    /// A reply with more calls than an agent makes; the rest is left out.
    TooManyCalls,
    /// More than is read of one trace: spans, steps, texts that many steps share, arguments as JSON.
    TooLarge,
    /// A tool call whose result is nowhere.
    MissingObservation,
    /// The model wrote an observation itself.
    SelfWrittenObservation,
    /// The user's request is nowhere.
    MissingQuery,
    /// The turn before this one is named and is nowhere, or the session continues a conversation that is not recorded.
    MissingTurn,
    /// A chat of several agents that records no tool calls: there are no steps to grade.
    ChatWithoutToolCalls,
    /// A file whose trajectories have no steps: chats without tools, or a format that is not read in full.
    FileWithoutSteps,
    /// No final answer.
    MissingAnswer,
    /// The run ended in an error.
    RunFailed,
}

impl From<TextDefect> for DefectKind {
    fn from(defect: TextDefect) -> DefectKind {
        match defect {
            TextDefect::TextAfterArguments => DefectKind::TextAfterArguments,
            TextDefect::MalformedArguments => DefectKind::MalformedArguments,
            TextDefect::MissingToolName => DefectKind::MissingToolName,
            TextDefect::UnusualToolName => DefectKind::UnusualToolName,
        }
    }
}

impl DefectKind {
    /// The name in the line format.
    pub fn name(self) -> String {
        serde_json::to_value(self).ok().and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default()
    }
}

impl ExtractionDefect {
    /// Maximum bytes of a detail. It quotes recorded text, and a trace can have as many defects as spans.
    const MAX_DETAIL_BYTES: usize = 480;

    /// A defect with its detail cut to `MAX_DETAIL_BYTES`. The detail may quote hostile text; it is escaped when it is
    /// printed.
    pub fn new(kind: DefectKind, detail: impl AsRef<str>, span_id: Option<crate::span::SpanId>) -> Self {
        let detail = cut_text(detail.as_ref(), Self::MAX_DETAIL_BYTES).into_owned();
        ExtractionDefect { kind, detail, span_id: span_id.map(|id| id.to_string()) }
    }
}
