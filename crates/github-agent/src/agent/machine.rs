//! The agent's mind without a body: what came to pass goes in (`Event`), what is to be done comes out (`Action`). No I/O,
//! no clock: a state and an event always give the same next state, and every run ends.

mod notices;
mod objections;

use std::collections::VecDeque;
use std::time::Duration;

use gradus_llm::{CallError, Chat, ChatReply, Failure, Message, ToolCall, ToolDefinition};
use serde_json::Value;

use super::reply::{self, Intent, Wanted};
use super::run_step::RunEnd;
use super::state::{Call, Form, Phase, Settings, Stage, State};
use super::{arguments, context, prompt};
use crate::plural::counted;
use crate::tools::{Effect, Observation, Tool, ToolBox};

/// What is to be done next. Asking again changes nothing.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Nothing was asked for.
    Rest,
    /// Ask the model (`Machine::chat`).
    Ask,
    /// Ask somebody whether this may be done.
    Confirm(Call),
    Call(Call),
    /// This call is not made; the model sees this instead.
    Decline(Call, Observation),
    /// Leave the service alone for this long; then the call is made again.
    Wait(Call, Duration),
    Finish {
        end: RunEnd,
        answer: Option<String>,
    },
}

/// What came to pass.
#[derive(Clone, Debug)]
pub enum Event {
    /// The user wants something.
    Request(String),
    /// Go on with a request that ended without an answer.
    GoOn,
    Replied(Result<ChatReply, Failure>),
    /// Somebody was asked about the call; the reason, if they did not agree.
    Confirmed(Result<(), String>),
    /// The call is on its way.
    Begun,
    Returned(Observation),
    Waited,
}

/// An event for which it is not the time. Nothing changed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("this cannot happen now")]
pub struct OutOfOrder;

/// So often one call is made again after a rate limit.
const MAX_WAITS: u32 = 3;
/// So many calls of one reply are made: more are no plan.
const MAX_AT_ONCE: usize = 32;
/// What providers take for a name and for an id.
const MAX_NAME: usize = 64;
/// So often a conversation is made shorter because an endpoint refused it.
const MAX_SHORTENINGS: u32 = 6;

pub struct Machine<'t> {
    settings: Settings,
    toolbox: &'t dyn ToolBox,
    offered: Vec<Tool>,
    /// What is offered natively.
    definitions: Vec<ToolDefinition>,
    system: String,
    /// What the constant part takes of the model's context, and the tools' schemas of that.
    fixed: usize,
    schemas: usize,
    /// How long the messages should be, once an endpoint has said that it was too much. The next one may take more, so no
    /// session remembers it.
    learned_room: Option<usize>,
    state: State,
}

impl std::fmt::Debug for Machine<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Machine").field("state", &self.state).finish_non_exhaustive()
    }
}

impl<'t> Machine<'t> {
    /// Takes up a state. What was on its way when it was put down is not known to have happened, so only reads are
    /// done again.
    pub fn new(settings: Settings, toolbox: &'t dyn ToolBox, mut state: State) -> Machine<'t> {
        let settings = Settings { form: state.form, ..settings };
        let offered: Vec<Tool> = toolbox
            .tools()
            .iter()
            .filter(|tool| !settings.read_only || tool.effect == Effect::Read)
            .cloned()
            .collect();
        let definitions: Vec<ToolDefinition> = match settings.form {
            Form::Native => offered.iter().map(|tool| tool.definition.clone()).collect(),
            Form::Text => Vec::new(),
        };
        let system = prompt::system(&settings, &offered);
        let schemas = offered.iter().map(|tool| context::size_of_tool(&tool.definition)).sum();
        // In the text form they stand in the prompt.
        let fixed = system.len() + if definitions.is_empty() { 0 } else { schemas };
        if state.requests.is_empty() && !state.messages.is_empty() {
            // A session from before it was noted where requests begin.
            state.requests.push(0);
        }
        if let Phase::Calling { calls, stage } = &mut state.phase {
            match (calls.front(), &stage) {
                (None, _) => state.phase = Phase::Asking,
                (Some(call), Stage::Begun) => {
                    let is_read = toolbox.effect_of(&call.name, &call.arguments) == Effect::Read;
                    *stage = if is_read { Stage::Ready } else { Stage::Unknown };
                }
                _ => {}
            }
        }
        Machine { settings, toolbox, offered, definitions, system, fixed, schemas, learned_room: None, state }
    }

    pub fn state(&self) -> &State {
        &self.state
    }

    /// All that may be called.
    pub fn tools(&self) -> &[Tool] {
        &self.offered
    }

    /// What the model is to be asked.
    pub fn chat(&self) -> Chat<'_> {
        Chat {
            system: &self.system,
            messages: &self.state.messages,
            tools: &self.definitions,
            stop: if self.settings.form == Form::Text { &prompt::STOP } else { &[] },
            max_tokens: self.settings.max_tokens,
            temperature: self.settings.temperature,
        }
    }

    pub fn action(&self) -> Action {
        match &self.state.phase {
            Phase::Idle => Action::Rest,
            Phase::Asking => Action::Ask,
            Phase::Done { end, answer } => Action::Finish { end: end.clone(), answer: answer.clone() },
            Phase::Calling { calls, stage } => match (calls.front(), stage) {
                (None, _) => Action::Ask,
                (Some(call), Stage::Waiting(time)) => Action::Wait(call.clone(), *time),
                (Some(call), Stage::Begun) => Action::Call(call.clone()),
                (Some(call), _) => match self.objection(call, stage) {
                    Some(observation) => Action::Decline(call.clone(), observation),
                    None if self.must_confirm(call) => Action::Confirm(call.clone()),
                    None => Action::Call(call.clone()),
                },
            },
        }
    }

    /// Whether the call that is next changes something.
    pub fn writes(&self, call: &Call) -> bool {
        self.toolbox.effect_of(&call.name, &call.arguments) != Effect::Read
    }

    /// Takes in what came to pass. Returns what was wrong with a reply that had to be corrected.
    pub fn handle(&mut self, event: Event) -> Result<Option<String>, OutOfOrder> {
        let problem = match (event, &mut self.state.phase) {
            (Event::Request(text), Phase::Idle | Phase::Done { .. }) => {
                self.begin();
                self.state.requests.push(self.state.messages.len());
                self.state.messages.push(Message::User { text: text.clone() });
                self.state.request = Some(text);
                self.ask();
                None
            }
            (
                Event::GoOn,
                Phase::Done { end: RunEnd::StepLimit | RunEnd::CallLimit | RunEnd::Failed(_), .. },
            ) => {
                self.begin();
                self.ask();
                None
            }
            (Event::Replied(Ok(reply)), Phase::Asking) => self.replied(reply),
            (Event::Replied(Err(failure)), Phase::Asking) => {
                self.failed(&failure);
                None
            }
            (Event::Confirmed(answer), Phase::Calling { calls, stage: stage @ Stage::Ready }) => {
                let call = calls.front_mut().ok_or(OutOfOrder)?;
                call.approved = Some(answer.is_ok());
                if let Err(reason) = answer {
                    *stage = Stage::Refused(reason);
                }
                None
            }
            (Event::Begun, Phase::Calling { stage: stage @ (Stage::Ready | Stage::Begun), .. }) => {
                *stage = Stage::Begun;
                None
            }
            (Event::Waited, Phase::Calling { stage: stage @ Stage::Waiting(_), .. }) => {
                *stage = Stage::Ready;
                None
            }
            (Event::Returned(observation), Phase::Calling { stage, .. })
                if !matches!(stage, Stage::Waiting(_)) =>
            {
                self.returned(observation);
                None
            }
            _ => return Err(OutOfOrder),
        };
        Ok(problem)
    }

    fn begin(&mut self) {
        let state = &mut self.state;
        (state.replies, state.calls, state.malformed, state.shortenings) = (0, 0, 0, 0);
        state.waited = Duration::ZERO;
        state.recent.clear();
    }

    fn replied(&mut self, reply: ChatReply) -> Option<String> {
        self.state.replies += 1;
        if let Some(usage) = reply.usage {
            self.state.usage += usage;
        }
        let is_tool = |name: &str| {
            self.toolbox.tools().iter().any(|tool| *tool.definition.name == *name)
                || self.toolbox.kept_back(name).is_some()
        };
        match reply::read(self.settings.form, &reply, self.settings.max_tokens, is_tool) {
            Intent::Calls { thought, text, calls, has_more, is_written } => {
                self.state.malformed = 0;
                self.plan(thought.as_deref(), text, calls, is_written);
                if has_more {
                    self.note_more();
                }
                None
            }
            Intent::Answer { text, answer } => {
                self.state.messages.push(Message::Assistant { text, calls: Vec::new() });
                self.finish(RunEnd::Answered, Some(answer));
                None
            }
            Intent::Refused(text) => {
                self.state.messages.push(Message::Assistant { text: text.clone(), calls: Vec::new() });
                let reason = if text.is_empty() { String::new() } else { format!(": {text}") };
                self.finish(RunEnd::Failed(format!("the model refuses{reason}")), None);
                None
            }
            Intent::Problem(problem) => {
                self.state.malformed += 1;
                self.state.messages.push(Message::Assistant { text: reply.text, calls: Vec::new() });
                let text = prompt::correction(self.settings.form, &problem);
                self.state.messages.push(Message::User { text });
                if self.state.malformed >= self.settings.max_malformed {
                    let times = self.state.malformed;
                    let reason =
                        format!("the model's reply could not be used {times} times in a row: {problem}");
                    self.finish(RunEnd::Failed(reason), None);
                } else {
                    self.ask();
                }
                Some(problem)
            }
        }
    }

    /// Puts the calls of a reply in line.
    fn plan(&mut self, thought: Option<&str>, text: String, wanted: Vec<Wanted>, is_written: bool) {
        let mut calls = VecDeque::with_capacity(wanted.len());
        let mut said = Vec::new();
        for (at, wanted) in wanted.into_iter().enumerate() {
            let id = self.unique(wanted.id, &calls);
            let (arguments, problem) = match arguments::read(&wanted.arguments) {
                Ok(object) => (object, None),
                Err(problem) => (Value::String(wanted.arguments.clone()), Some(problem)),
            };
            calls.push_back(Call {
                id: id.clone(),
                name: wanted.name.clone(),
                arguments,
                problem,
                thought: thought.map(str::to_owned),
                approved: None,
                waits: 0,
                is_surplus: at >= MAX_AT_ONCE,
                is_written,
                has_more_behind: false,
            });
            said.push(ToolCall { id, name: plain_name(&wanted.name), arguments: wanted.arguments });
        }
        let said = if is_written { Vec::new() } else { said };
        self.state.messages.push(Message::Assistant { text, calls: said });
        self.state.phase = Phase::Calling { calls, stage: Stage::Ready };
    }

    /// More stood behind the last call of the reply.
    fn note_more(&mut self) {
        if let Phase::Calling { calls, .. } = &mut self.state.phase
            && let Some(last) = calls.back_mut()
        {
            last.has_more_behind = true;
        }
    }

    /// An id that no other call of the session has: endpoints leave them out, and some count from 0 in every reply. One
    /// that would not be taken back is replaced as well.
    fn unique(&mut self, id: String, beside: &VecDeque<Call>) -> String {
        let is_taken = |id: &str| {
            beside.iter().any(|call| call.id == id)
                || self.state.messages.iter().any(|message| match message {
                    Message::Assistant { calls, .. } => calls.iter().any(|call| call.id == id),
                    _ => false,
                })
        };
        let is_plain = !id.is_empty() && id.len() <= MAX_NAME && id.chars().all(is_plain);
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

    fn failed(&mut self, failure: &Failure) {
        if let CallError::TooLong(_) = failure.error {
            let used = context::total(&self.state);
            // A quarter of all less. What cannot be shortened may be nearly all: half of the messages is enough at once.
            let wanted = ((self.fixed + used) / 4 * 3).saturating_sub(self.fixed).max(used / 2);
            self.state.shortenings += 1;
            if self.state.shortenings <= MAX_SHORTENINGS {
                context::fit(&mut self.state, wanted);
                let left = context::total(&self.state);
                // As short as it gets is asked as well, but not twice.
                if left < used {
                    self.learned_room = Some(left.max(wanted));
                    return self.ask();
                }
            }
            return self.finish(RunEnd::Failed(format!("{failure}; {}", self.share_of_tools())), None);
        }
        self.finish(RunEnd::Failed(failure.to_string()), None);
    }

    /// What the tools take of the context, and what helps.
    fn share_of_tools(&self) -> String {
        format!(
            "the schemas of {} take about {} tokens of it and cannot be shortened: --tools offers fewer",
            counted(self.offered.len(), "tool", "tools"),
            self.schemas / context::BYTES_OF_A_TOKEN
        )
    }

    /// How many bytes of messages may be sent: what is left beside what is the same in every question.
    fn room(&self) -> usize {
        let tokens = self.settings.context_tokens.saturating_sub(self.settings.max_tokens as usize);
        tokens.saturating_mul(context::BYTES_OF_A_TOKEN).saturating_sub(self.fixed)
    }

    fn returned(&mut self, observation: Observation) {
        let Phase::Calling { calls, stage } = &mut self.state.phase else { return };
        let Some(call) = calls.front_mut() else { return self.ask() };
        if let Some(time) = observation.retry_after
            && observation.is_error
            && call.waits < MAX_WAITS
            && self.state.waited.saturating_add(time) <= self.settings.longest_wait
        {
            call.waits += 1;
            self.state.waited += time;
            *stage = Stage::Waiting(time);
            return;
        }
        let Some(call) = calls.pop_front() else { return };
        *stage = Stage::Ready;
        let is_last = calls.is_empty();
        self.state.calls += u32::from(!call.is_surplus);
        let mut text = context::without_marks(observation.text);
        for notice in self.notices(&call, &text, is_last) {
            text.push_str("\n\n");
            text.push_str(context::MARK);
            text.push_str(&notice);
            text.push(']');
        }
        self.state.messages.push(match self.settings.form {
            Form::Native if !call.is_written => {
                let name = plain_name(&call.name);
                Message::Tool { call_id: call.id, name, text, is_error: observation.is_error }
            }
            _ => Message::User { text: format!("{} {text}", prompt::OBSERVATION) },
        });
        if is_last {
            self.ask();
        }
    }

    /// On to the model, if that is still possible.
    fn ask(&mut self) {
        if self.state.replies >= self.settings.max_steps {
            return self.finish(RunEnd::StepLimit, None);
        }
        if self.state.calls >= self.settings.max_calls {
            return self.finish(RunEnd::CallLimit, None);
        }
        let room = self.room();
        // Where nothing is left, nothing is lost in vain. What an endpoint did not take is only a guess at what it takes:
        // whether the shortest is still too long, it says itself.
        let aim = self.learned_room.map_or(room, |learned| learned.min(room));
        if room > 0 && (context::fit(&mut self.state, aim) || context::total(&self.state) <= room) {
            self.state.phase = Phase::Asking;
            return;
        }
        let (all, reply) = (self.settings.context_tokens, self.settings.max_tokens);
        let reason = format!(
            "the conversation does not fit into the model's context, even shortened ({all} tokens, {reply} of them for a reply); {}",
            self.share_of_tools()
        );
        self.finish(RunEnd::Failed(reason), None);
    }

    fn finish(&mut self, end: RunEnd, answer: Option<String>) {
        self.state.phase = Phase::Done { end, answer };
    }
}

/// What a conversation may hold as a tool's name: a name that a provider does not take would be refused in every question
/// from then on. What the model really wrote stands in what came back.
fn plain_name(name: &str) -> String {
    let plain = |c: char| if is_plain(c) { c } else { '_' };
    let name: String = name.chars().take(MAX_NAME).map(plain).collect();
    if name.is_empty() { "unnamed".to_owned() } else { name }
}

fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-')
}
