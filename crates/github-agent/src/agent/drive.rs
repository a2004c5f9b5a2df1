//! Carries out what the machine decides: asks the model, calls tools, waits, asks for approval, notifies observers, and
//! stores the session after everything that must not be forgotten.

use std::time::Duration;

use super::machine::{AgentAction, AgentEvent, AgentStateMachine};
use super::model::ChatModel;
use super::observer::{AgentObserver, ObserverEvent};
use super::run_step::AgentRunEnd;
use super::session::{AgentSessionStore, SessionError};
use super::state::AgentToolCall;
use crate::tools::{BoxFuture, CallObservation, ToolSet};

/// Lets time pass. The benchmark advances the simulated clock instead of waiting.
pub trait AgentClock: Send + Sync {
    fn sleep(&self, time: Duration) -> BoxFuture<'_, ()>;
}

/// Waits in real time.
#[derive(Clone, Copy, Debug)]
pub struct RealClock;

impl AgentClock for RealClock {
    fn sleep(&self, time: Duration) -> BoxFuture<'_, ()> {
        Box::pin(tokio::time::sleep(time))
    }
}

/// The answer to a request for approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallApproval {
    Approved,
    /// The reason is passed to the model.
    Refused(String),
}

/// Asks someone before a destructive call.
pub trait CallConfirmer: Send + Sync {
    fn confirm<'c>(&'c self, call: &'c AgentToolCall) -> BoxFuture<'c, CallApproval>;
}

/// Refuses everything, for runs without a user.
#[derive(Clone, Copy, Debug)]
pub struct RefusingConfirmer;

impl CallConfirmer for RefusingConfirmer {
    fn confirm<'c>(&'c self, _call: &'c AgentToolCall) -> BoxFuture<'c, CallApproval> {
        let reason = "this takes something away, and there is nobody here who could allow it".to_owned();
        Box::pin(std::future::ready(CallApproval::Refused(reason)))
    }
}

/// All outside dependencies of an agent.
pub struct AgentDriver<'d> {
    pub model: &'d dyn ChatModel,
    pub tools: &'d dyn ToolSet,
    pub clock: &'d dyn AgentClock,
    pub confirm: &'d dyn CallConfirmer,
    /// Notified in order, before the next action starts.
    pub observers: Vec<&'d mut dyn AgentObserver>,
    /// Stores the session; none for runs that need not be resumed.
    pub session_store: Option<&'d mut dyn AgentSessionStore>,
}

impl std::fmt::Debug for AgentDriver<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AgentDriver").field("model", &self.model.name()).finish_non_exhaustive()
    }
}

impl AgentDriver<'_> {
    /// Processes one request to its end. Fails only if the session cannot be stored.
    pub async fn run_request(
        &mut self,
        machine: &mut AgentStateMachine<'_>,
        request: &str,
    ) -> Result<(AgentRunEnd, Option<String>), SessionError> {
        // A machine that has not finished its request continues with it.
        let _ = machine.handle(AgentEvent::Request(request.to_owned()));
        self.save_session(machine)?;
        self.run(machine, false).await
    }

    /// Continues a request that was interrupted or that ended without an answer.
    pub async fn continue_request(
        &mut self,
        machine: &mut AgentStateMachine<'_>,
    ) -> Result<(AgentRunEnd, Option<String>), SessionError> {
        // A request that has not ended needs no event.
        let _ = machine.handle(AgentEvent::GoOn);
        self.run(machine, true).await
    }

    /// Notifies observers that the run was stopped from outside, such as by Ctrl-C.
    pub fn notify_interrupted(&mut self) {
        self.notify_observers(&ObserverEvent::Finished {
            end: &AgentRunEnd::Failed("interrupted".to_owned()),
            answer: None,
        });
    }

    /// Loops: asks the machine for the next action, performs it, and reports the result as an event.
    async fn run(
        &mut self,
        machine: &mut AgentStateMachine<'_>,
        goes_on: bool,
    ) -> Result<(AgentRunEnd, Option<String>), SessionError> {
        let model = self.model;
        self.notify_observers(&ObserverEvent::Begun {
            session: &machine.state().session,
            request: machine.state().request.as_deref().unwrap_or_default(),
            model: model.name(),
            goes_on,
        });
        // Id of the call whose start the observers have seen.
        let mut open: Option<String> = None;
        loop {
            match machine.next_action() {
                AgentAction::Rest => {
                    return Ok((AgentRunEnd::Failed("nothing was asked for".to_owned()), None));
                }
                AgentAction::Finish { end, answer } => {
                    self.save_session(machine)?;
                    self.notify_observers(&ObserverEvent::Finished { end: &end, answer: answer.as_deref() });
                    return Ok((end, answer));
                }
                AgentAction::Ask => self.ask_model(machine).await?,
                AgentAction::Confirm(mut call) => {
                    self.notify_observers(&ObserverEvent::Confirms { call: &call });
                    let approval = self.confirm.confirm(&call).await;
                    call.approved = Some(approval == CallApproval::Approved);
                    self.notify_observers(&ObserverEvent::Confirmed { call: &call });
                    let answer = match approval {
                        CallApproval::Approved => Ok(()),
                        CallApproval::Refused(reason) => Err(reason),
                    };
                    let _ = machine.handle(AgentEvent::Confirmed(answer));
                }
                AgentAction::Decline(call, observation) => {
                    self.notify_call_started(machine, &call, &mut open);
                    self.handle_observation(machine, &call, &observation, &mut open)?;
                }
                AgentAction::Call(call) => {
                    self.notify_call_started(machine, &call, &mut open);
                    let _ = machine.handle(AgentEvent::Begun);
                    // Stored before a write is sent: after a crash the call counts as possibly made, and is not
                    // repeated.
                    if machine.is_write_call(&call) {
                        self.save_session(machine)?;
                    }
                    let observation = self.tools.call(&call.name, &call.arguments).await;
                    self.handle_observation(machine, &call, &observation, &mut open)?;
                }
                AgentAction::Wait(call, time) => {
                    self.notify_observers(&ObserverEvent::Waits { call: &call, time });
                    self.clock.sleep(time).await;
                    let _ = machine.handle(AgentEvent::Waited);
                }
            }
        }
    }

    /// Makes one model call. Observers see the request before and the reply after it.
    async fn ask_model(&mut self, machine: &mut AgentStateMachine<'_>) -> Result<(), SessionError> {
        let model = self.model;
        let reply = {
            let chat = machine.chat_request();
            self.notify_observers(&ObserverEvent::Asked { chat: &chat, tools: machine.tools() });
            model.ask(&chat).await
        };
        self.notify_observers(&ObserverEvent::Replied { reply: &reply });
        if let Ok(Some(problem)) = machine.handle(AgentEvent::Replied(reply)) {
            self.notify_observers(&ObserverEvent::Corrected { problem: &problem });
        }
        self.save_session(machine)
    }

    /// Notifies observers once per call, also if it is repeated after a rate limit.
    fn notify_call_started(
        &mut self,
        machine: &AgentStateMachine<'_>,
        call: &AgentToolCall,
        open: &mut Option<String>,
    ) {
        if open.as_deref() != Some(&call.id) {
            *open = Some(call.id.clone());
            let tool = machine.tools().iter().find(|tool| *tool.definition.name == *call.name);
            self.notify_observers(&ObserverEvent::Called { call, tool });
        }
    }

    /// Passes a result to the machine. Observers see it unless the call is going to be repeated.
    fn handle_observation(
        &mut self,
        machine: &mut AgentStateMachine<'_>,
        call: &AgentToolCall,
        observation: &CallObservation,
        open: &mut Option<String>,
    ) -> Result<(), SessionError> {
        let _ = machine.handle(AgentEvent::Returned(observation.clone()));
        // At a rate limit the call is not over yet.
        if !matches!(machine.next_action(), AgentAction::Wait(..)) {
            *open = None;
            self.notify_observers(&ObserverEvent::Returned { call, observation });
        }
        self.save_session(machine)
    }

    fn notify_observers(&mut self, seen: &ObserverEvent<'_>) {
        for observer in &mut self.observers {
            observer.on_event(seen);
        }
    }

    /// Stores the session. Does nothing without a store.
    fn save_session(&mut self, machine: &AgentStateMachine<'_>) -> Result<(), SessionError> {
        match &mut self.session_store {
            Some(session_store) => session_store.save_agent_state(machine.state()),
            None => Ok(()),
        }
    }
}
