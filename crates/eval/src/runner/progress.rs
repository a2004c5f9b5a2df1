//! How far a run is.

use std::time::Duration;

use crate::outcome::{OutcomeKind, OutcomeLine};

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RunProgress {
    pub trajectories: u64,
    /// Questions known so far.
    pub planned: u64,
    /// Whether those are all: the source is read to its end.
    pub is_all_planned: bool,
    pub finished: u64,
    pub failed: u64,
    pub cached: u64,
    /// Requests sent, retries included.
    pub calls: u64,
    pub in_flight: usize,
    /// Requests that the endpoint may have at once, as of now.
    pub limit: usize,
    /// Of the whole run: what an earlier, cut off process spent counts, too.
    pub cost_usd: f64,
    pub elapsed: Duration,
    /// For how long the judge's server has been loading its model; `None` when it is not.
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

/// Looks on while a run goes on.
pub trait ProgressWatcher {
    fn outcome(&mut self, _line: &OutcomeLine) {}
    /// Called a few times a second; everything that it counts as finished is on disk.
    fn tick(&mut self, _progress: &RunProgress) {}
}

/// Nobody looks on.
impl ProgressWatcher for () {}
