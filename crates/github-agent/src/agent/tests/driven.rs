//! The driver with played parts: what it does, what it tells, what it keeps.

use std::sync::Mutex;
use std::time::Duration;

use gradus_llm::{ChatReply, ChatRequest};

use super::super::run_step::AgentRunEnd;
use super::super::{
    AgentClock, AgentDriver, AgentObserver, AgentRunRecorder, AgentSessionStore, CallApproval, CallConfirmer,
    ChatModel, ObserverEvent, RefusingConfirmer, SessionError, SessionFile,
};
use super::*;

/// Says what it is told to, in order.
struct Actor(Mutex<Vec<ChatReply>>);

impl Actor {
    fn new(replies: &[ChatReply]) -> Actor {
        Actor(Mutex::new(replies.to_vec()))
    }
}

impl ChatModel for Actor {
    fn name(&self) -> &str {
        "actor"
    }

    fn ask<'a>(&'a self, _chat: &'a ChatRequest<'a>) -> BoxFuture<'a, Result<ChatReply, ModelCallFailure>> {
        let reply = self.0.lock().unwrap().remove(0);
        Box::pin(std::future::ready(Ok(reply)))
    }
}

#[derive(Default)]
struct Timeless(Mutex<Vec<Duration>>);

impl AgentClock for Timeless {
    fn sleep(&self, time: Duration) -> BoxFuture<'_, ()> {
        self.0.lock().unwrap().push(time);
        Box::pin(std::future::ready(()))
    }
}

struct Agrees;

impl CallConfirmer for Agrees {
    fn confirm<'c>(&'c self, _call: &'c super::super::AgentToolCall) -> BoxFuture<'c, CallApproval> {
        Box::pin(std::future::ready(CallApproval::Approved))
    }
}

#[derive(Default)]
struct Log(Vec<String>);

impl AgentObserver for Log {
    fn on_event(&mut self, event: &ObserverEvent<'_>) {
        let text = format!("{event:?}");
        self.0.push(text.split([' ', '{']).next().unwrap_or_default().to_owned());
    }
}

fn run(
    replies: &[ChatReply],
    tools: &Played,
    confirm: &dyn CallConfirmer,
) -> (Vec<super::super::run_step::RunStep>, Vec<String>, Vec<Duration>, AgentRunEnd) {
    let model = Actor::new(replies);
    let clock = Timeless::default();
    let (mut log, mut recorder) = (Log::default(), AgentRunRecorder::new(|| tools.called().len()));
    let mut machine =
        AgentStateMachine::new(AgentRunSettings::default(), tools, AgentState::new("s", ToolCallMode::Native));
    let mut driver = AgentDriver {
        model: &model,
        tools,
        clock: &clock,
        confirm,
        observers: vec![&mut log, &mut recorder],
        session_store: None,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let (end, answer) = runtime.block_on(driver.run_request(&mut machine, "Do it.")).expect("a run");
    let record = recorder.into_run();
    assert_eq!((&record.end, &record.answer, record.request.as_str()), (&end, &answer, "Do it."));
    (record.steps, log.0, clock.0.into_inner().unwrap(), end)
}

#[test]
fn a_rate_limited_call_is_one_step_with_all_its_requests() {
    let tools = Played::new(vec![fine("[]"), limited(60), fine("{\"number\":1}")]);
    let replies = [
        calls("I look.", &[("a", "list_issues", "{}")]),
        calls("I open.", &[("b", "open_issue", "{\"title\":\"t\"}")]),
        calls("Done.", &[]),
    ];
    let (steps, log, slept, end) = run(&replies, &tools, &RefusingConfirmer);
    assert_eq!(end, AgentRunEnd::Answered);
    assert_eq!(slept, [Duration::from_secs(60)]);
    assert_eq!(tools.called(), ["list_issues", "open_issue", "open_issue"]);
    assert_eq!(steps.len(), 2);
    assert_eq!((steps[1].exchanges.clone(), steps[1].observation.as_str()), (1..3, "{\"number\":1}"));
    assert_eq!(steps[1].thought.as_deref(), Some("I open."));
    assert_eq!(
        log,
        [
            "Begun", "Asked", "Replied", "Called", "Returned", "Asked", "Replied", "Called", "Waits", "Returned",
            "Asked", "Replied", "Finished"
        ]
    );
}

#[test]
fn what_nobody_allows_is_not_done() {
    let replies = [calls("I delete.", &[("a", "delete_repo", "{}")]), calls("Not done.", &[])];
    let tools = Played::new(Vec::new());
    let (steps, ..) = run(&replies, &tools, &RefusingConfirmer);
    assert_eq!(tools.called(), [""; 0]);
    assert_eq!((steps[0].approved, steps[0].is_error), (Some(false), true));
    let (steps, log, ..) = run(&replies, &tools, &Agrees);
    assert_eq!(log[3..6], ["Confirms", "Confirmed", "Called"], "who looks on knows before somebody is asked");
    assert_eq!(tools.called(), ["delete_repo"]);
    assert_eq!((steps[0].approved, steps[0].is_error), (Some(true), false));
}

#[test]
fn a_step_that_was_declined_is_a_step() {
    let replies = [calls("t", &[("a", "no_such_tool", "{}"), ("b", "read_file", "oops")]), calls("Done.", &[])];
    let tools = Played::new(Vec::new());
    let (steps, ..) = run(&replies, &tools, &RefusingConfirmer);
    let steps_seen: Vec<_> = steps.iter().map(|step| (step.tool.as_str(), &step.arguments, step.is_error)).collect();
    assert_eq!(steps_seen, [("no_such_tool", &json!({}), true), ("read_file", &json!("oops"), true)]);
}

/// A program that is killed when something is kept for the n-th time.
struct Killed {
    file: SessionFile,
    left: usize,
}

impl AgentSessionStore for Killed {
    fn save_agent_state(&mut self, state: &AgentState) -> Result<(), SessionError> {
        if self.left == 0 {
            return Err(SessionError::Write { path: "x".into(), reason: std::io::ErrorKind::Interrupted.into() });
        }
        self.left -= 1;
        self.file.save_agent_state(state)
    }
}

#[test]
fn killed_at_any_moment_no_write_is_done_twice() {
    let replies = [
        calls("I look.", &[("a", "read_file", "{}")]),
        calls("I open two.", &[("b", "open_issue", "{\"n\":1}"), ("c", "open_issue", "{\"n\":2}")]),
        calls("Done.", &[]),
    ];
    let folder = tempfile::tempdir().expect("a folder");
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let mut finished = false;
    for kept in 1..30 {
        let path = folder.path().join(format!("{kept}.json"));
        let tools = Played::new(Vec::new());
        let state = AgentState::new("s", ToolCallMode::Native);
        let mut machine = AgentStateMachine::new(AgentRunSettings::default(), &tools, state);
        let (model, clock) = (Actor::new(&replies), Timeless::default());
        let mut session_store = Killed { file: SessionFile::open(&path).expect("nobody else has it"), left: kept };
        let mut driver = AgentDriver {
            model: &model,
            tools: &tools,
            clock: &clock,
            confirm: &RefusingConfirmer,
            observers: Vec::new(),
            session_store: Some(&mut session_store),
        };
        finished = runtime.block_on(driver.run_request(&mut machine, "Do it.")).is_ok();
        drop(driver);
        let held = SessionFile::open(&path).expect_err("two would make each write twice").to_string();
        assert!(held.contains("another gradus agent works on this session"), "{held}");
        drop(session_store);
        // The model is asked again where its reply was not kept.
        let state = SessionFile::open(&path).expect("nobody else has it").read().expect("a session").expect("a file");
        let mut machine = AgentStateMachine::new(AgentRunSettings::default(), &tools, state);
        let model = Actor::new(&replies[machine.state().reply_count() as usize..]);
        let mut driver = AgentDriver {
            model: &model,
            tools: &tools,
            clock: &clock,
            confirm: &RefusingConfirmer,
            observers: Vec::new(),
            session_store: None,
        };
        let (end, _) = runtime.block_on(driver.continue_request(&mut machine)).expect("a run");
        assert_eq!(end, AgentRunEnd::Answered);
        let writes = tools.called().iter().filter(|name| *name == "open_issue").count();
        assert!(writes <= 2, "kept {kept} times: {:?}", tools.called());
        let unknown = serde_json::to_string(machine.state()).unwrap().matches("not known whether").count();
        assert!(writes + unknown >= 2, "kept {kept} times: a write was forgotten");
        if finished {
            break;
        }
    }
    assert!(finished, "it was always killed");
}

#[test]
fn a_file_that_is_no_session_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("s.json");
    assert!(SessionFile::open(&path).expect("nobody else has it").read().expect("no file is fine").is_none());
    for (content, reason) in
        [("{\n\"a\": 1}", "no session"), ("[", "no session"), ("{\"version\": 9}", "another version")]
    {
        std::fs::write(&path, content).expect("written");
        let error = SessionFile::open(&path).expect("nobody else has it").read().expect_err(content).to_string();
        assert!(error.contains(reason) && !error.contains('\n'), "{error}");
    }
}
