//! Tracks which judges of a run still answer. A panel continues without a dead judge, as long as more than half of
//! its members are left.

use std::sync::Arc;

use super::panel::JudgePanel;
use crate::judge::ModelJudge;

/// Maximum number of consecutive failures, after which a judge counts as dead.
const MAX_FAILURES_IN_A_ROW: u32 = 50;
/// The same at the end of a run, when no further questions can show whether it recovered.
const MAX_FAILURES_AT_END: u32 = 10;

/// The judges of a run: the members of the panel, then the judge of the escalation.
pub(super) struct JudgeHealth {
    judges: Vec<JudgeState>,
    member_count: usize,
}

struct JudgeState {
    judge: Arc<ModelJudge>,
    name: Arc<str>,
    /// Reset by every answer, readable or not.
    failures_in_a_row: u32,
    last_failure: String,
    /// Why it is no longer asked.
    dropped_because: Option<String>,
}

impl JudgeHealth {
    pub(super) fn new(panel: Option<&JudgePanel>) -> JudgeHealth {
        let state = |judge: &Arc<ModelJudge>| JudgeState {
            judge: Arc::clone(judge),
            name: judge.name().into(),
            failures_in_a_row: 0,
            last_failure: String::new(),
            dropped_because: None,
        };
        let judges = panel.map_or_else(Vec::new, |panel| panel.judges().map(state).collect());
        JudgeHealth { judges, member_count: panel.map_or(0, |panel| panel.members().len()) }
    }

    pub(super) fn judge(&self, number: usize) -> &Arc<ModelJudge> {
        &self.judges[number].judge
    }

    pub(super) fn judges(&self) -> impl Iterator<Item = &Arc<ModelJudge>> {
        self.judges.iter().map(|state| &state.judge)
    }

    pub(super) fn name(&self, number: usize) -> &Arc<str> {
        &self.judges[number].name
    }

    /// Returns why the judge is no longer asked.
    pub(super) fn dropped_because(&self, number: usize) -> Option<&str> {
        self.judges[number].dropped_because.as_deref()
    }

    pub(super) fn record_answer(&mut self, number: usize) {
        self.judges[number].failures_in_a_row = 0;
    }

    /// Counts a failed request. Returns false if the judge is now dead and the run cannot continue without it.
    pub(super) fn record_failure(&mut self, number: usize, reason: String) -> bool {
        let state = &mut self.judges[number];
        state.failures_in_a_row += 1;
        state.last_failure.clone_from(&reason);
        state.failures_in_a_row < MAX_FAILURES_IN_A_ROW || self.drop_judge(number, reason)
    }

    /// Stops asking the judge if the rest of the panel can decide. Returns false if it cannot.
    pub(super) fn drop_judge(&mut self, number: usize, reason: String) -> bool {
        let is_member = number < self.member_count;
        let left = self.members().enumerate().filter(|(at, state)| *at != number && state.dropped_because.is_none());
        if !is_member || left.count() * 2 <= self.member_count {
            return false;
        }
        self.judges[number].dropped_because.get_or_insert(reason);
        true
    }

    /// Returns the last failure, if so many judges failed at the end of the run that no further question could be
    /// decided.
    pub(super) fn find_failure_at_end(&self) -> Option<&str> {
        let is_failing = |state: &&JudgeState| state.failures_in_a_row >= MAX_FAILURES_AT_END;
        let is_out = |state: &&JudgeState| is_failing(state) || state.dropped_because.is_some();
        let left = self.members().filter(|state| !is_out(state)).count();
        let is_panel_dead = left * 2 <= self.member_count;
        let mut failing = self.judges.iter().enumerate().filter(|(_, state)| is_failing(state));
        let needed = failing.find(|(number, _)| is_panel_dead || *number >= self.member_count);
        needed.map(|(_, state)| state.last_failure.as_str())
    }

    fn members(&self) -> impl Iterator<Item = &JudgeState> {
        self.judges.iter().take(self.member_count)
    }
}
