//! The decisions of the agent as a state machine: events go in ([`AgentEvent`]), actions come out ([`AgentAction`]). No
//! I/O and no clock. The same state and event always give the same next state, and every run ends within its limits.

mod notices;
mod objections;

use std::collections::VecDeque;
use std::time::Duration;

use gradus_llm::{
    CallError, ChatReply, ChatRequest, ChatToolCall, ChatToolDefinition, ModelCallFailure, PromptMessage,
};
use serde_json::Value;

use super::reply::{self, ReplyIntent, ReplyToolCall};
use super::run_step::AgentRunEnd;
use super::state::{AgentPhase, AgentRunSettings, AgentState, AgentToolCall, CallStage, ToolCallMode};
use super::{arguments, context, prompt};
use crate::plural::format_count;
use crate::tools::{AgentTool, CallObservation, ToolEffect, ToolSet};

/// What to do next. [`AgentStateMachine::next_action`] can be called repeatedly without a change.
#[derive(Clone, Debug, PartialEq)]
pub enum AgentAction {
    /// There is no request.
    Rest,
    /// Ask the model ([`AgentStateMachine::chat_request`]).
    Ask,
    /// Ask for approval of a destructive call.
    Confirm(AgentToolCall),
    Call(AgentToolCall),
    /// Do not make the call; the model gets this observation instead.
    Decline(AgentToolCall, CallObservation),
    /// Wait for a rate limit, then make the call again.
    Wait(AgentToolCall, Duration),
    Finish {
        end: AgentRunEnd,
        answer: Option<String>,
    },
}

/// What happened. An event that does not fit the state is refused with [`InvalidTransition`].
#[derive(Clone, Debug)]
pub enum AgentEvent {
    /// A new request of the user.
    Request(String),
    /// Continue a request that ended at a limit or with an error.
    GoOn,
    Replied(Result<ChatReply, ModelCallFailure>),
    /// The approval, or the reason of the refusal, which the model reads.
    Confirmed(Result<(), String>),
    /// The call is about to be sent. Recorded before it is, so that a restart knows that it may have happened.
    Begun,
    Returned(CallObservation),
    Waited,
}

/// The event does not fit the state, which is unchanged.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("this cannot happen now")]
pub struct InvalidTransition;

/// Maximum number of waits for rate limits per call.
const MAX_CALL_WAITS: u32 = 3;
/// Maximum number of calls of one reply that are made. Further ones get an observation that says so.
const MAX_CALLS_PER_REPLY: usize = 32;
/// Maximum length of tool names and call ids that model providers accept.
const MAX_TOOL_NAME_CHARS: usize = 64;
/// Maximum number of times a conversation is shortened because the endpoint refused it as too long.
const MAX_SHORTENINGS: u32 = 6;

/// The settings and tools of a run with the state of its session.
pub struct AgentStateMachine<'t> {
    settings: AgentRunSettings,
    tool_set: &'t dyn ToolSet,
    /// Tools that the settings allow; a read-only session has no others.
    offered: Vec<AgentTool>,
    /// Tool definitions for native calls; empty in text mode, where they are part of the prompt.
    definitions: Vec<ChatToolDefinition>,
    system: String,
    /// Bytes of every request that cannot be shortened: prompt and tool definitions. `schemas` is the part of the
    /// definitions.
    fixed: usize,
    schemas: usize,
    /// Bytes of messages that the endpoint accepts, learnt from a refusal. Not part of the session, since it may
    /// continue with another endpoint.
    learned_message_bytes: Option<usize>,
    state: AgentState,
}

impl std::fmt::Debug for AgentStateMachine<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AgentStateMachine").field("state", &self.state).finish_non_exhaustive()
    }
}

impl<'t> AgentStateMachine<'t> {
    /// Resumes a state. A call that was under way when the process stopped may have happened: a read is repeated, a
    /// write is reported to the model as unknown.
    pub fn new(settings: AgentRunSettings, tool_set: &'t dyn ToolSet, mut state: AgentState) -> AgentStateMachine<'t> {
        let settings = AgentRunSettings { form: state.form, ..settings };
        let offered: Vec<AgentTool> = tool_set
            .tools()
            .iter()
            .filter(|tool| !settings.read_only || tool.effect == ToolEffect::Read)
            .cloned()
            .collect();
        let definitions: Vec<ChatToolDefinition> = match settings.form {
            ToolCallMode::Native => offered.iter().map(|tool| tool.definition.clone()).collect(),
            ToolCallMode::Text => Vec::new(),
        };
        let system = prompt::build_system_prompt(&settings, &offered);
        let schemas = offered.iter().map(|tool| context::size_of_tool(&tool.definition)).sum();
        // In text mode they are part of the prompt.
        let fixed = system.len() + if definitions.is_empty() { 0 } else { schemas };
        // A session file of a version that did not record where requests begin.
        if state.requests.is_empty() && !state.messages.is_empty() {
            // A session of a version that did not record where requests begin.
            state.requests.push(0);
        }
        if let AgentPhase::Calling { calls, stage } = &mut state.phase {
            match (calls.front(), &stage) {
                (None, _) => state.phase = AgentPhase::Asking,
                (Some(call), CallStage::Begun) => {
                    let is_read = tool_set.classify_effect(&call.name, &call.arguments) == ToolEffect::Read;
                    *stage = if is_read { CallStage::Ready } else { CallStage::Unknown };
                }
                _ => {}
            }
        }
        AgentStateMachine {
            settings,
            tool_set,
            offered,
            definitions,
            system,
            fixed,
            schemas,
            learned_message_bytes: None,
            state,
        }
    }

    /// Returns the state for storing. Only [`AgentStateMachine::handle`] changes it.
    pub fn state(&self) -> &AgentState {
        &self.state
    }

    /// Returns the tools that may be called.
    pub fn tools(&self) -> &[AgentTool] {
        &self.offered
    }

    /// Builds the request for the next [`AgentAction::Ask`].
    pub fn chat_request(&self) -> ChatRequest<'_> {
        ChatRequest {
            system: &self.system,
            messages: &self.state.messages,
            tools: &self.definitions,
            stop: if self.settings.form == ToolCallMode::Text { &prompt::STOP_SEQUENCES } else { &[] },
            max_tokens: self.settings.max_tokens,
            temperature: self.settings.temperature,
        }
    }

    /// Returns what to do next in this state.
    pub fn next_action(&self) -> AgentAction {
        match &self.state.phase {
            AgentPhase::Idle => AgentAction::Rest,
            AgentPhase::Asking => AgentAction::Ask,
            AgentPhase::Done { end, answer } => AgentAction::Finish { end: end.clone(), answer: answer.clone() },
            AgentPhase::Calling { calls, stage } => match (calls.front(), stage) {
                (None, _) => AgentAction::Ask,
                (Some(call), CallStage::Waiting(time)) => AgentAction::Wait(call.clone(), *time),
                // Objections and approval were settled before the call began.
                (Some(call), CallStage::Begun) => AgentAction::Call(call.clone()),
                (Some(call), _) => match self.find_objection(call, stage) {
                    Some(observation) => AgentAction::Decline(call.clone(), observation),
                    None if self.must_confirm(call) => AgentAction::Confirm(call.clone()),
                    None => AgentAction::Call(call.clone()),
                },
            },
        }
    }

    /// Whether the call may change something, so that the session must be stored before it is made.
    pub fn is_write_call(&self, call: &AgentToolCall) -> bool {
        self.tool_set.classify_effect(&call.name, &call.arguments) != ToolEffect::Read
    }

    /// Applies an event. Returns the problem of a reply that could not be used and that the model is asked to correct.
    pub fn handle(&mut self, event: AgentEvent) -> Result<Option<String>, InvalidTransition> {
        let problem = match (event, &mut self.state.phase) {
            (AgentEvent::Request(text), AgentPhase::Idle | AgentPhase::Done { .. }) => {
                self.reset_counters();
                self.state.requests.push(self.state.messages.len());
                self.state.messages.push(PromptMessage::User { text: text.clone() });
                self.state.request = Some(text);
                self.advance_to_model();
                None
            }
            (
                AgentEvent::GoOn,
                AgentPhase::Done {
                    end: AgentRunEnd::StepLimit | AgentRunEnd::CallLimit | AgentRunEnd::Failed(_), ..
                },
            ) => {
                self.reset_counters();
                self.advance_to_model();
                None
            }
            (AgentEvent::Replied(Ok(reply)), AgentPhase::Asking) => self.handle_reply(reply),
            (AgentEvent::Replied(Err(failure)), AgentPhase::Asking) => {
                self.handle_failure(&failure);
                None
            }
            (AgentEvent::Confirmed(answer), AgentPhase::Calling { calls, stage: stage @ CallStage::Ready }) => {
                let call = calls.front_mut().ok_or(InvalidTransition)?;
                call.approved = Some(answer.is_ok());
                if let Err(reason) = answer {
                    *stage = CallStage::Refused(reason);
                }
                None
            }
            (AgentEvent::Begun, AgentPhase::Calling { stage: stage @ (CallStage::Ready | CallStage::Begun), .. }) => {
                *stage = CallStage::Begun;
                None
            }
            (AgentEvent::Waited, AgentPhase::Calling { stage: stage @ CallStage::Waiting(_), .. }) => {
                *stage = CallStage::Ready;
                None
            }
            (AgentEvent::Returned(observation), AgentPhase::Calling { stage, .. })
                if !matches!(stage, CallStage::Waiting(_)) =>
            {
                self.handle_observation(observation);
                None
            }
            _ => return Err(InvalidTransition),
        };
        Ok(problem)
    }

    /// Resets the counters of limits, which apply per request.
    fn reset_counters(&mut self) {
        let state = &mut self.state;
        (state.replies, state.calls, state.malformed, state.shortenings) = (0, 0, 0, 0);
        state.waited = Duration::ZERO;
        state.recent.clear();
    }

    /// Interprets a reply: calls, an answer, a refusal, or something unusable. Too many unusable replies in a row end
    /// the run.
    fn handle_reply(&mut self, reply: ChatReply) -> Option<String> {
        self.state.replies += 1;
        if let Some(usage) = reply.usage {
            self.state.usage += usage;
        }
        // Includes withheld tools: naming one is a call, which is then declined with a reason.
        let is_tool = |name: &str| {
            self.tool_set.tools().iter().any(|tool| *tool.definition.name == *name)
                || self.tool_set.withheld_reason(name).is_some()
        };
        match reply::interpret_reply(self.settings.form, &reply, self.settings.max_tokens, is_tool) {
            ReplyIntent::Calls { thought, text, calls, has_more, is_written } => {
                self.state.malformed = 0;
                self.enqueue_calls(thought.as_deref(), text, calls, is_written);
                if has_more {
                    self.note_more();
                }
                None
            }
            ReplyIntent::Answer { text, answer } => {
                self.state.messages.push(PromptMessage::Assistant { text, calls: Vec::new() });
                self.finish(AgentRunEnd::Answered, Some(answer));
                None
            }
            ReplyIntent::Refused(text) => {
                self.state.messages.push(PromptMessage::Assistant { text: text.clone(), calls: Vec::new() });
                let reason = if text.is_empty() { String::new() } else { format!(": {text}") };
                self.finish(AgentRunEnd::Failed(format!("the model refuses{reason}")), None);
                None
            }
            ReplyIntent::Problem(problem) => {
                self.state.malformed += 1;
                self.state.messages.push(PromptMessage::Assistant { text: reply.text, calls: Vec::new() });
                let text = prompt::format_correction(self.settings.form, &problem);
                self.state.messages.push(PromptMessage::User { text });
                if self.state.malformed >= self.settings.max_malformed {
                    let times = self.state.malformed;
                    let reason = format!("the model's reply could not be used {times} times in a row: {problem}");
                    self.finish(AgentRunEnd::Failed(reason), None);
                } else {
                    self.advance_to_model();
                }
                Some(problem)
            }
        }
    }

    /// Adds the calls of a reply to the conversation and to the queue. Arguments that are no JSON object stay as text
    /// with the problem, so that the model can correct them.
    fn enqueue_calls(&mut self, thought: Option<&str>, text: String, wanted: Vec<ReplyToolCall>, is_written: bool) {
        let mut calls = VecDeque::with_capacity(wanted.len());
        let mut said = Vec::new();
        for (at, wanted) in wanted.into_iter().enumerate() {
            let id = self.unique_call_id(wanted.id, &calls);
            let (arguments, problem) = match arguments::parse_tool_arguments(&wanted.arguments) {
                Ok(object) => (object, None),
                Err(problem) => (Value::String(wanted.arguments.clone()), Some(problem)),
            };
            calls.push_back(AgentToolCall {
                id: id.clone(),
                name: wanted.name.clone(),
                arguments,
                problem,
                thought: thought.map(str::to_owned),
                approved: None,
                waits: 0,
                is_surplus: at >= MAX_CALLS_PER_REPLY,
                is_written,
                has_more_behind: false,
            });
            said.push(ChatToolCall { id, name: sanitize_call_name(&wanted.name), arguments: wanted.arguments });
        }
        // Calls written as text are part of the text already; repeating them as native calls would need matching tool
        // messages.
        let said = if is_written { Vec::new() } else { said };
        self.state.messages.push(PromptMessage::Assistant { text, calls: said });
        self.state.phase = AgentPhase::Calling { calls, stage: CallStage::Ready };
    }

    /// Marks that the reply had more calls than were taken. A note to the model says so.
    fn note_more(&mut self) {
        if let AgentPhase::Calling { calls, .. } = &mut self.state.phase
            && let Some(last) = calls.back_mut()
        {
            last.has_more_behind = true;
        }
    }

    /// Returns an id that is unique in the session. Some endpoints omit ids or number them from 0 in every reply, and
    /// some refuse ids that other providers made.
    fn unique_call_id(&mut self, id: String, beside: &VecDeque<AgentToolCall>) -> String {
        let is_taken = |id: &str| {
            beside.iter().any(|call| call.id == id)
                || self.state.messages.iter().any(|message| match message {
                    PromptMessage::Assistant { calls, .. } => calls.iter().any(|call| call.id == id),
                    _ => false,
                })
        };
        let is_plain = !id.is_empty() && id.len() <= MAX_TOOL_NAME_CHARS && id.chars().all(is_plain);
        if is_plain && !is_taken(&id) {
            return id;
        }
        let mut number = self.state.ids + 1;
        while is_taken(&format!("call_{number}")) {
            number += 1;
        }
        self.state.ids = number;
        format!("call_{number}")
    }

    /// Shortens a conversation that is too long and repeats the request; any other failure ends the run. Retries
    /// belong to the client.
    fn handle_failure(&mut self, failure: &ModelCallFailure) {
        if let CallError::TooLong(_) = failure.error {
            let used = context::sum_message_sizes(&self.state);
            // A quarter less in total. If most of the request cannot be shortened, half of the messages is the limit
            // for one attempt.
            let wanted = ((self.fixed + used) / 4 * 3).saturating_sub(self.fixed).max(used / 2);
            self.state.shortenings += 1;
            if self.state.shortenings <= MAX_SHORTENINGS {
                context::fit_conversation(&mut self.state, wanted);
                let left = context::sum_message_sizes(&self.state);
                // The shortest possible conversation is sent as well, but not twice.
                if left < used {
                    self.learned_message_bytes = Some(left.max(wanted));
                    return self.advance_to_model();
                }
            }
            return self.finish(AgentRunEnd::Failed(format!("{failure}; {}", self.describe_tool_share())), None);
        }
        self.finish(AgentRunEnd::Failed(failure.to_string()), None);
    }

    /// Describes how much of the context the tool definitions take, as a hint for the user.
    fn describe_tool_share(&self) -> String {
        format!(
            "the schemas of {} take about {} tokens of it and cannot be shortened: --tools offers fewer",
            format_count(self.offered.len(), "tool", "tools"),
            self.schemas / context::MIN_BYTES_PER_TOKEN
        )
    }

    /// Returns the bytes of messages that fit into the context in addition to the constant part and the reply.
    fn message_budget_bytes(&self) -> usize {
        let tokens = self.settings.context_tokens.saturating_sub(self.settings.max_tokens as usize);
        tokens.saturating_mul(context::MIN_BYTES_PER_TOKEN).saturating_sub(self.fixed)
    }

    /// Adds a result to the conversation. A rate limit is waited for instead, within the limits on waits. Marks that
    /// imitate notes of the agent are removed from the text.
    fn handle_observation(&mut self, observation: CallObservation) {
        let AgentPhase::Calling { calls, stage } = &mut self.state.phase else { return };
        let Some(call) = calls.front_mut() else { return self.advance_to_model() };
        if let Some(time) = observation.retry_after
            && observation.is_error
            && call.waits < MAX_CALL_WAITS
            && self.state.waited.saturating_add(time) <= self.settings.longest_wait
        {
            call.waits += 1;
            self.state.waited += time;
            *stage = CallStage::Waiting(time);
            return;
        }
        let Some(call) = calls.pop_front() else { return };
        *stage = CallStage::Ready;
        let is_last = calls.is_empty();
        self.state.calls += u32::from(!call.is_surplus);
        let mut text = context::escape_note_marks(observation.text);
        for notice in self.collect_notices(&call, &text, is_last) {
            text.push_str("\n\n");
            text.push_str(context::NOTE_PREFIX);
            text.push_str(&notice);
            text.push(']');
        }
        self.state.messages.push(match self.settings.form {
            ToolCallMode::Native if !call.is_written => {
                let name = sanitize_call_name(&call.name);
                PromptMessage::Tool { call_id: call.id, name, text, is_error: observation.is_error }
            }
            _ => PromptMessage::User { text: format!("{} {text}", prompt::OBSERVATION_PREFIX) },
        });
        if is_last {
            self.advance_to_model();
        }
    }

    /// Goes on to the next model call, or ends the run at a limit or if the conversation does not fit.
    fn advance_to_model(&mut self) {
        if self.state.replies >= self.settings.max_steps {
            return self.finish(AgentRunEnd::StepLimit, None);
        }
        if self.state.calls >= self.settings.max_calls {
            return self.finish(AgentRunEnd::CallLimit, None);
        }
        let room = self.message_budget_bytes();
        // What an endpoint refused is only a hint at what it accepts; the shortest conversation is still tried.
        let aim = self.learned_message_bytes.map_or(room, |learned| learned.min(room));
        if room > 0
            && (context::fit_conversation(&mut self.state, aim) || context::sum_message_sizes(&self.state) <= room)
        {
            self.state.phase = AgentPhase::Asking;
            return;
        }
        let (all, reply) = (self.settings.context_tokens, self.settings.max_tokens);
        let reason = format!(
            "the conversation does not fit into the model's context, even shortened ({all} tokens, {reply} of them for a reply); {}",
            self.describe_tool_share()
        );
        self.finish(AgentRunEnd::Failed(reason), None);
    }

    fn finish(&mut self, end: AgentRunEnd, answer: Option<String>) {
        self.state.phase = AgentPhase::Done { end, answer };
    }
}

/// Converts a tool name to one that providers accept. A conversation with another name would be refused in every
/// later request. What the model wrote is in the observation.
fn sanitize_call_name(name: &str) -> String {
    let plain = |c: char| if is_plain(c) { c } else { '_' };
    let name: String = name.chars().take(MAX_TOOL_NAME_CHARS).map(plain).collect();
    if name.is_empty() { "unnamed".to_owned() } else { name }
}

fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-')
}
