//! Records the steps of one run for verifiers, rules and replays.

use super::observer::{AgentObserver, ObserverEvent};
use super::run_step::{AgentRunEnd, RunStep};

/// One request with everything that followed.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedRun {
    pub request: String,
    pub steps: Vec<RunStep>,
    /// The final message.
    pub answer: Option<String>,
    pub end: AgentRunEnd,
}

/// An observer that collects steps.
pub struct AgentRunRecorder<'r> {
    /// Number of requests that the simulator has answered so far. It relates steps to requests.
    exchanges: Box<dyn Fn() -> usize + Send + 'r>,
    request: String,
    steps: Vec<RunStep>,
    /// That number when the current call started.
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
    /// Creates a recorder. `exchanges` returns the number of recorded requests of the world.
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

    /// Returns the steps so far, also of an unfinished run.
    pub fn steps(&self) -> &[RunStep] {
        &self.steps
    }

    pub fn into_run(self) -> RecordedRun {
        RecordedRun { request: self.request, steps: self.steps, answer: self.answer, end: self.end }
    }
}

impl AgentObserver for AgentRunRecorder<'_> {
    fn on_event(&mut self, event: &ObserverEvent<'_>) {
        match event {
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
