//! Does what the machine decides: asks the model, calls tools, waits, asks somebody, tells those who look on, and has
//! the state kept whenever something happened that must not be forgotten.

use std::time::Duration;

use super::machine::{Action, Event, Machine};
use super::model::Model;
use super::observer::{Observer, Seen};
use super::run_step::RunEnd;
use super::session::{Keeper, SessionError};
use super::state::Call;
use crate::tools::{BoxFuture, Observation, ToolBox};

/// Lets time pass. On a simulated GitHub its clock can be moved on instead.
pub trait Clock: Send + Sync {
    fn sleep(&self, time: Duration) -> BoxFuture<'_, ()>;
}

#[derive(Clone, Copy, Debug)]
pub struct RealClock;

impl Clock for RealClock {
    fn sleep(&self, time: Duration) -> BoxFuture<'_, ()> {
        Box::pin(tokio::time::sleep(time))
    }
}

/// Whether a call may be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Approval {
    Approved,
    /// With a reason for the model.
    Refused(String),
}

/// Who is asked before something is destroyed.
pub trait Confirm: Send + Sync {
    fn confirm<'c>(&'c self, call: &'c Call) -> BoxFuture<'c, Approval>;
}

/// There is nobody to ask.
#[derive(Clone, Copy, Debug)]
pub struct Nobody;

impl Confirm for Nobody {
    fn confirm<'c>(&'c self, _call: &'c Call) -> BoxFuture<'c, Approval> {
        let reason = "this takes something away, and there is nobody here who could allow it".to_owned();
        Box::pin(std::future::ready(Approval::Refused(reason)))
    }
}

/// All that an agent needs of the world.
pub struct Driver<'d> {
    pub model: &'d dyn Model,
    pub tools: &'d dyn ToolBox,
    pub clock: &'d dyn Clock,
    pub confirm: &'d dyn Confirm,
    pub observers: Vec<&'d mut dyn Observer>,
    pub keeper: Option<&'d mut dyn Keeper>,
}

impl std::fmt::Debug for Driver<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver").field("model", &self.model.name()).finish_non_exhaustive()
    }
}

impl Driver<'_> {
    /// Works on one request until it ends.
    pub async fn request(
        &mut self,
        machine: &mut Machine<'_>,
        request: &str,
    ) -> Result<(RunEnd, Option<String>), SessionError> {
        // A machine that is still at work goes on with that.
        let _ = machine.handle(Event::Request(request.to_owned()));
        self.keep(machine)?;
        self.run(machine, false).await
    }

    /// Goes on with a request that was put down, or that ended without an answer.
    pub async fn go_on(
        &mut self,
        machine: &mut Machine<'_>,
    ) -> Result<(RunEnd, Option<String>), SessionError> {
        // Nothing to do for a request that is still under way.
        let _ = machine.handle(Event::GoOn);
        self.run(machine, true).await
    }

    /// Tells those who look on that the run was stopped from outside.
    pub fn interrupted(&mut self) {
        self.tell(&Seen::Finished { end: &RunEnd::Failed("interrupted".to_owned()), answer: None });
    }

    async fn run(
        &mut self,
        machine: &mut Machine<'_>,
        goes_on: bool,
    ) -> Result<(RunEnd, Option<String>), SessionError> {
        let model = self.model;
        self.tell(&Seen::Begun {
            session: &machine.state().session,
            request: machine.state().request.as_deref().unwrap_or_default(),
            model: model.name(),
            goes_on,
        });
        // The call that those who look on have seen begin.
        let mut open: Option<String> = None;
        loop {
            match machine.action() {
                Action::Rest => return Ok((RunEnd::Failed("nothing was asked for".to_owned()), None)),
                Action::Finish { end, answer } => {
                    self.keep(machine)?;
                    self.tell(&Seen::Finished { end: &end, answer: answer.as_deref() });
                    return Ok((end, answer));
                }
                Action::Ask => self.ask(machine).await?,
                Action::Confirm(mut call) => {
                    self.tell(&Seen::Confirms { call: &call });
                    let approval = self.confirm.confirm(&call).await;
                    call.approved = Some(approval == Approval::Approved);
                    self.tell(&Seen::Confirmed { call: &call });
                    let answer = match approval {
                        Approval::Approved => Ok(()),
                        Approval::Refused(reason) => Err(reason),
                    };
                    let _ = machine.handle(Event::Confirmed(answer));
                }
                Action::Decline(call, observation) => {
                    self.called(machine, &call, &mut open);
                    self.returned(machine, &call, &observation, &mut open)?;
                }
                Action::Call(call) => {
                    self.called(machine, &call, &mut open);
                    let _ = machine.handle(Event::Begun);
                    if machine.writes(&call) {
                        self.keep(machine)?;
                    }
                    let observation = self.tools.call(&call.name, &call.arguments).await;
                    self.returned(machine, &call, &observation, &mut open)?;
                }
                Action::Wait(call, time) => {
                    self.tell(&Seen::Waits { call: &call, time });
                    self.clock.sleep(time).await;
                    let _ = machine.handle(Event::Waited);
                }
            }
        }
    }

    async fn ask(&mut self, machine: &mut Machine<'_>) -> Result<(), SessionError> {
        let model = self.model;
        let reply = {
            let chat = machine.chat();
            self.tell(&Seen::Asked { chat: &chat, tools: machine.tools() });
            model.ask(&chat).await
        };
        self.tell(&Seen::Replied { reply: &reply });
        if let Ok(Some(problem)) = machine.handle(Event::Replied(reply)) {
            self.tell(&Seen::Corrected { problem: &problem });
        }
        self.keep(machine)
    }

    fn called(&mut self, machine: &Machine<'_>, call: &Call, open: &mut Option<String>) {
        if open.as_deref() != Some(&call.id) {
            *open = Some(call.id.clone());
            let tool = machine.tools().iter().find(|tool| *tool.definition.name == *call.name);
            self.tell(&Seen::Called { call, tool });
        }
    }

    fn returned(
        &mut self,
        machine: &mut Machine<'_>,
        call: &Call,
        observation: &Observation,
        open: &mut Option<String>,
    ) -> Result<(), SessionError> {
        let _ = machine.handle(Event::Returned(observation.clone()));
        // Where the service wants to be left alone, the call is not over yet.
        if !matches!(machine.action(), Action::Wait(..)) {
            *open = None;
            self.tell(&Seen::Returned { call, observation });
        }
        self.keep(machine)
    }

    fn tell(&mut self, seen: &Seen<'_>) {
        for observer in &mut self.observers {
            observer.see(seen);
        }
    }

    fn keep(&mut self, machine: &Machine<'_>) -> Result<(), SessionError> {
        match &mut self.keeper {
            Some(keeper) => keeper.keep(machine.state()),
            None => Ok(()),
        }
    }
}
