//! The agent with a model and tools that are played: each way in which models and tools misbehave, and any order of
//! anything.

mod bad_cases;
mod driven;
mod random;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use gradus_llm::{CallError, ChatReply, Failure, Message, Stop, ToolCall, ToolDefinition};
use serde_json::{Value, json};

use super::{Action, Event, Form, Machine, Settings, State};
use crate::tools::{BoxFuture, Effect, Observation, Tool, ToolBox};

/// Tools that give what they are told to, and remember what they were asked for.
pub(super) struct Played {
    tools: Vec<Tool>,
    answers: Mutex<Vec<Observation>>,
    called: Mutex<Vec<(String, Value)>>,
}

impl Played {
    /// Answers are given in order; when there are no more, `{"ok":true}`.
    pub(super) fn new(answers: Vec<Observation>) -> Played {
        let tool = |name: &str, effect| Tool {
            definition: ToolDefinition {
                name: Arc::from(name),
                description: Arc::from("Does something."),
                parameters: Arc::new(json!({"type": "object"})),
            },
            effect,
        };
        let tools = vec![
            tool("read_file", Effect::Read),
            tool("list_issues", Effect::Read),
            tool("open_issue", Effect::Write),
            tool("delete_repo", Effect::Destructive),
        ];
        Played { tools, answers: Mutex::new(answers), called: Mutex::default() }
    }

    pub(super) fn called(&self) -> Vec<String> {
        self.called.lock().unwrap().iter().map(|(name, _)| name.clone()).collect()
    }
}

impl ToolBox for Played {
    fn tools(&self) -> &[Tool] {
        &self.tools
    }

    fn call<'c>(&'c self, name: &'c str, arguments: &'c Value) -> BoxFuture<'c, Observation> {
        self.called.lock().unwrap().push((name.to_owned(), arguments.clone()));
        let mut answers = self.answers.lock().unwrap();
        let answer = if answers.is_empty() { fine("{\"ok\":true}") } else { answers.remove(0) };
        Box::pin(std::future::ready(answer))
    }
}

pub(super) fn fine(text: &str) -> Observation {
    Observation { text: text.to_owned(), is_error: false, retry_after: None }
}

pub(super) fn limited(seconds: u64) -> Observation {
    let retry_after = Some(Duration::from_secs(seconds));
    Observation { text: "{\"error\":\"secondary rate limit\"}".to_owned(), is_error: true, retry_after }
}

pub(super) fn said(text: &str) -> Event {
    Event::Replied(Ok(ChatReply { text: text.to_owned(), calls: Vec::new(), usage: None, stop: Stop::Done }))
}

pub(super) fn calls(text: &str, calls: &[(&str, &str, &str)]) -> ChatReply {
    let calls = calls.iter().map(|(id, name, arguments)| ToolCall {
        id: (*id).to_owned(),
        name: (*name).to_owned(),
        arguments: (*arguments).to_owned(),
    });
    ChatReply { text: text.to_owned(), calls: calls.collect(), usage: None, stop: Stop::Done }
}

pub(super) fn wants(text: &str, wanted: &[(&str, &str, &str)]) -> Event {
    Event::Replied(Ok(calls(text, wanted)))
}

pub(super) fn too_long() -> Event {
    Event::Replied(Err(Failure { error: CallError::TooLong("8192 tokens".to_owned()), attempts: 1 }))
}

/// A machine with a request.
pub(super) fn asked<'t>(tools: &'t Played, form: Form, settings: Settings) -> Machine<'t> {
    let mut machine = Machine::new(settings, tools, State::new("s", form));
    machine.handle(Event::Request("Do it.".to_owned())).unwrap();
    assert_eq!(machine.action(), Action::Ask);
    machine
}

/// The newest message that is not the model's.
pub(super) fn told(machine: &Machine<'_>) -> String {
    let last = machine.state().messages.iter().rfind(|message| !matches!(message, Message::Assistant { .. }));
    match last {
        Some(Message::User { text } | Message::Tool { text, .. }) => text.clone(),
        _ => String::new(),
    }
}

/// Lets declined calls be declined.
pub(super) fn decline(machine: &mut Machine<'_>) -> Observation {
    match machine.action() {
        Action::Decline(_, observation) => {
            machine.handle(Event::Returned(observation.clone())).unwrap();
            observation
        }
        other => panic!("not declined but {other:?}"),
    }
}
