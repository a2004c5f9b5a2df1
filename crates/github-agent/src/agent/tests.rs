//! The agent with a model and tools that are played: each way in which models and tools misbehave, and any order of
//! anything.

mod bad_cases;
mod driven;
mod random;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use gradus_llm::{
    CallError, ChatReply, ChatToolCall, ChatToolDefinition, FinishReason, ModelCallFailure, PromptMessage,
};
use serde_json::{Value, json};

use super::{AgentAction, AgentEvent, AgentRunSettings, AgentState, AgentStateMachine, ToolCallMode};
use crate::tools::{AgentTool, BoxFuture, CallObservation, ToolEffect, ToolSet};

/// Tools that give what they are told to, and remember what they were asked for.
pub(super) struct Played {
    tools: Vec<AgentTool>,
    answers: Mutex<Vec<CallObservation>>,
    called: Mutex<Vec<(String, Value)>>,
}

impl Played {
    /// Answers are given in order; when there are no more, `{"ok":true}`.
    pub(super) fn new(answers: Vec<CallObservation>) -> Played {
        let tool = |name: &str, effect| AgentTool {
            definition: ChatToolDefinition {
                name: Arc::from(name),
                description: Arc::from("Does something."),
                parameters: Arc::new(json!({"type": "object"})),
            },
            effect,
        };
        let tools = vec![
            tool("read_file", ToolEffect::Read),
            tool("list_issues", ToolEffect::Read),
            tool("open_issue", ToolEffect::Write),
            tool("delete_repo", ToolEffect::Destructive),
        ];
        Played { tools, answers: Mutex::new(answers), called: Mutex::default() }
    }

    pub(super) fn called(&self) -> Vec<String> {
        self.called.lock().unwrap().iter().map(|(name, _)| name.clone()).collect()
    }
}

impl ToolSet for Played {
    fn tools(&self) -> &[AgentTool] {
        &self.tools
    }

    fn call<'c>(&'c self, name: &'c str, arguments: &'c Value) -> BoxFuture<'c, CallObservation> {
        self.called.lock().unwrap().push((name.to_owned(), arguments.clone()));
        let mut answers = self.answers.lock().unwrap();
        let answer = if answers.is_empty() { fine("{\"ok\":true}") } else { answers.remove(0) };
        Box::pin(std::future::ready(answer))
    }
}

pub(super) fn fine(text: &str) -> CallObservation {
    CallObservation { text: text.to_owned(), is_error: false, retry_after: None }
}

pub(super) fn limited(seconds: u64) -> CallObservation {
    let retry_after = Some(Duration::from_secs(seconds));
    CallObservation { text: "{\"error\":\"secondary rate limit\"}".to_owned(), is_error: true, retry_after }
}

pub(super) fn said(text: &str) -> AgentEvent {
    AgentEvent::Replied(Ok(ChatReply {
        text: text.to_owned(),
        calls: Vec::new(),
        usage: None,
        stop: FinishReason::Done,
    }))
}

pub(super) fn calls(text: &str, calls: &[(&str, &str, &str)]) -> ChatReply {
    let calls = calls.iter().map(|(id, name, arguments)| ChatToolCall {
        id: (*id).to_owned(),
        name: (*name).to_owned(),
        arguments: (*arguments).to_owned(),
    });
    ChatReply { text: text.to_owned(), calls: calls.collect(), usage: None, stop: FinishReason::Done }
}

pub(super) fn wants(text: &str, wanted: &[(&str, &str, &str)]) -> AgentEvent {
    AgentEvent::Replied(Ok(calls(text, wanted)))
}

pub(super) fn too_long() -> AgentEvent {
    AgentEvent::Replied(Err(ModelCallFailure {
        error: CallError::TooLong("8192 tokens".to_owned().into()),
        attempts: 1,
    }))
}

/// A machine with a request.
pub(super) fn asked<'t>(tools: &'t Played, form: ToolCallMode, settings: AgentRunSettings) -> AgentStateMachine<'t> {
    let mut machine = AgentStateMachine::new(settings, tools, AgentState::new("s", form));
    machine.handle(AgentEvent::Request("Do it.".to_owned())).unwrap();
    assert_eq!(machine.next_action(), AgentAction::Ask);
    machine
}

/// The newest message that is not the model's.
pub(super) fn told(machine: &AgentStateMachine<'_>) -> String {
    let last = machine.state().messages.iter().rfind(|message| !matches!(message, PromptMessage::Assistant { .. }));
    match last {
        Some(PromptMessage::User { text } | PromptMessage::Tool { text, .. }) => text.clone(),
        _ => String::new(),
    }
}

/// Lets declined calls be declined.
pub(super) fn decline(machine: &mut AgentStateMachine<'_>) -> CallObservation {
    match machine.next_action() {
        AgentAction::Decline(_, observation) => {
            machine.handle(AgentEvent::Returned(observation.clone())).unwrap();
            observation
        }
        other => panic!("not declined but {other:?}"),
    }
}
