//! Keeps what an agent does in one run.

use super::observer::{Observer, Seen};
use super::run_step::{RunEnd, RunStep};

/// One request and what came of it.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedRun {
    pub request: String,
    pub steps: Vec<RunStep>,
    /// The final message.
    pub answer: Option<String>,
    pub end: RunEnd,
}

/// Records one request.
pub struct Recorder<'r> {
    /// How many exchanges there have been so far.
    exchanges: Box<dyn Fn() -> usize + Send + 'r>,
    request: String,
    steps: Vec<RunStep>,
    /// When the call that is under way began.
    began: usize,
    end: RunEnd,
    answer: Option<String>,
}

impl std::fmt::Debug for Recorder<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorder").field("steps", &self.steps).field("end", &self.end).finish_non_exhaustive()
    }
}

impl<'r> Recorder<'r> {
    /// `exchanges` says how many requests the simulator has answered (`World::exchanges`).
    pub fn new(exchanges: impl Fn() -> usize + Send + 'r) -> Recorder<'r> {
        Recorder {
            exchanges: Box::new(exchanges),
            request: String::new(),
            steps: Vec::new(),
            began: 0,
            end: RunEnd::Failed("it did not end".to_owned()),
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

impl Observer for Recorder<'_> {
    fn see(&mut self, seen: &Seen<'_>) {
        match seen {
            Seen::Begun { request, .. } => self.request = (*request).to_owned(),
            Seen::Called { .. } => self.began = (self.exchanges)(),
            Seen::Returned { call, observation } => self.steps.push(RunStep {
                thought: call.thought.clone(),
                tool: call.name.clone(),
                arguments: call.arguments.clone(),
                observation: observation.text.clone(),
                is_error: observation.is_error,
                exchanges: self.began..(self.exchanges)(),
                approved: call.approved,
            }),
            Seen::Finished { end, answer } => {
                self.end = (*end).clone();
                self.answer = answer.map(str::to_owned);
            }
            _ => {}
        }
    }
}
