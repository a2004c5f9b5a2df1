//! Progress of a run.

use std::time::Duration;

use crate::outcome::{OutcomeKind, OutcomeLine};

/// A snapshot for progress bars. Counters only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RunProgress {
    pub trajectories: u64,
    /// Questions planned so far.
    pub planned: u64,
    /// Whether `planned` is the total: the source was read to its end.
    pub is_all_planned: bool,
    pub finished: u64,
    pub failed: u64,
    pub cached: u64,
    /// Requests sent, retries included.
    pub calls: u64,
    pub in_flight: usize,
    /// The present limit of the adaptive limiter on requests in flight.
    pub limit: usize,
    /// Dollars of the whole run, including what an earlier process of it spent.
    pub cost_usd: f64,
    pub elapsed: Duration,
    /// How long the server has been loading its model; `None` if it is not.
    pub loading: Option<Duration>,
}

impl RunProgress {
    pub(super) fn count_outcome(&mut self, line: &OutcomeLine) {
        self.finished += 1;
        self.failed += u64::from(line.outcome == OutcomeKind::Failed);
        self.cached += u64::from(line.cached);
        self.cost_usd += line.cost_usd.unwrap_or(0.0);
    }
}

/// Observes a run. Calls come from the dispatching task, so they must be short.
pub trait ProgressWatcher {
    /// Called for every outcome, before it is necessarily on disk.
    fn on_outcome(&mut self, _line: &OutcomeLine) {}
    /// Called for every question that a model answered in this process, with the time from its start to its verdict:
    /// waiting for a free slot, retries and repeated requests included.
    fn on_answer_time(&mut self, _line: &OutcomeLine, _elapsed: Duration) {}
    /// Called a few times a second. Everything that it counts as finished is on disk.
    fn on_progress(&mut self, _progress: &RunProgress) {}
}

/// Ignores all progress.
impl ProgressWatcher for () {}
