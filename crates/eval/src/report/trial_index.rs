//! Maps trajectories to the trials of an experiment or a benchmark. The agents that an agent calls have trajectories
//! of their own; they belong to the trial of the caller.

use std::collections::HashMap;

/// Trials by trajectory and by session. A position is that of the trial in the order in which trials were added.
#[derive(Clone, Debug, Default)]
pub struct TrialIndex {
    by_trajectory: HashMap<String, usize>,
    by_session: HashMap<String, usize>,
    tags: Vec<Vec<String>>,
}

impl TrialIndex {
    /// Adds a trial. `session_id` is only given if every trajectory of the session belongs to this trial.
    pub fn add_trial(&mut self, trajectory_id: Option<String>, session_id: Option<String>, tags: Vec<String>) {
        let position = self.tags.len();
        self.tags.push(tags);
        self.by_trajectory.extend(trajectory_id.map(|id| (id, position)));
        self.by_session.extend(session_id.map(|id| (id, position)));
    }

    /// The trial of a trajectory; `None` if it belongs to none.
    pub fn find_trial(&self, trajectory_id: &str, session_id: Option<&str>) -> Option<usize> {
        let by_session = || self.by_session.get(session_id?);
        self.by_trajectory.get(trajectory_id).or_else(by_session).copied()
    }

    /// The tags of the trial of a trajectory.
    pub fn find_tags(&self, trajectory_id: &str, session_id: Option<&str>) -> &[String] {
        self.find_trial(trajectory_id, session_id).map_or(&[], |position| &self.tags[position])
    }

    /// All tags with the number of their trials, the most frequent first; equal ones by name.
    pub fn rank_tags(&self) -> Vec<(&str, usize)> {
        let mut counts: HashMap<&str, usize> = HashMap::new();
        for tag in self.tags.iter().flatten() {
            *counts.entry(tag).or_default() += 1;
        }
        let mut ranked: Vec<(&str, usize)> = counts.into_iter().collect();
        ranked.sort_by(|(first, more), (second, fewer)| fewer.cmp(more).then(first.cmp(second)));
        ranked
    }
}
