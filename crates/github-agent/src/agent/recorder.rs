//! Keeps what an agent does in one run.

use super::observer::{AgentObserver, ObserverEvent};
use super::run_step::{AgentRunEnd, RunStep};

/// One request and what came of it.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedRun {
    pub request: String,
    pub steps: Vec<RunStep>,
    /// The final message.
    pub answer: Option<String>,
    pub end: AgentRunEnd,
}

/// Records one request.
pub struct AgentRunRecorder<'r> {
    /// How many exchanges there have been so far.
    exchanges: Box<dyn Fn() -> usize + Send + 'r>,
    request: String,
    steps: Vec<RunStep>,
    /// When the call that is under way began.
    began: usize,
    end: AgentRunEnd,
    answer: Option<String>,
}

impl std::fmt::Debug for AgentRunRecorder<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AgentRunRecorder").field("steps", &self.steps).field("end", &self.end).finish_non_exhaustive()
    }
}

impl<'r> AgentRunRecorder<'r> {
    /// `exchanges` says how many requests the simulator has answered (`World::exchanges`).
    pub fn new(exchanges: impl Fn() -> usize + Send + 'r) -> AgentRunRecorder<'r> {
        AgentRunRecorder {
            exchanges: Box::new(exchanges),
            request: String::new(),
            steps: Vec::new(),
            began: 0,
            end: AgentRunEnd::Failed("it did not end".to_owned()),
            answer: None,
        }
    }

    pub fn steps(&self) -> &[RunStep] {
        &self.steps
    }

    pub fn into_run(self) -> RecordedRun {
        RecordedRun { request: self.request, steps: self.steps, answer: self.answer, end: self.end }
    }
}

impl AgentObserver for AgentRunRecorder<'_> {
    fn see(&mut self, seen: &ObserverEvent<'_>) {
        match seen {
            ObserverEvent::Begun { request, .. } => self.request = (*request).to_owned(),
            ObserverEvent::Called { .. } => self.began = (self.exchanges)(),
            ObserverEvent::Returned { call, observation } => self.steps.push(RunStep {
                thought: call.thought.clone(),
                tool: call.name.clone(),
                arguments: call.arguments.clone(),
                observation: observation.text.clone(),
                is_error: observation.is_error,
                exchanges: self.began..(self.exchanges)(),
                approved: call.approved,
            }),
            ObserverEvent::Finished { end, answer } => {
                self.end = (*end).clone();
                self.answer = answer.map(str::to_owned);
            }
            _ => {}
        }
    }
}
