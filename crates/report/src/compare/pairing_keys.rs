//! How runs of different versions are paired, and what versions are called.

use std::collections::HashSet;

use super::version_results::{RunValues, TaskKey, VersionResults};

/// Versions that can be compared at once: one letter each.
pub const MAX_VERSIONS: usize = 26;

/// `A`, `B`, …
pub(super) fn version_letter(at: usize) -> String {
    char::from(b'A' + (at % MAX_VERSIONS) as u8).to_string()
}

/// How runs are paired.
pub(super) struct PairingKeys {
    /// The versions judged the same runs, so a run is paired with itself.
    pub(super) by_trajectory: bool,
}

impl PairingKeys {
    /// By run if the versions have judged the same runs, as two judges of the same traces have, one of which may have
    /// stopped early; otherwise by task. Two versions of an agent can also have runs in common: ids of recordings without
    /// an id are made from their content. Those are the runs in which nothing changed, and comparing them alone would
    /// hide every change.
    pub(super) fn choose(versions: &[VersionResults]) -> PairingKeys {
        let ids = |results: &VersionResults| -> HashSet<String> {
            let all = results.tasks.values().flat_map(|task| &task.runs).map(|run| run.trajectory_id.clone());
            all.filter(|id| !id.is_empty()).collect()
        };
        let Some((first, rest)) = versions.split_first() else { return PairingKeys { by_trajectory: false } };
        let first = ids(first);
        let has_same_runs = |other: &VersionResults| {
            let other = ids(other);
            let shared = other.intersection(&first).count();
            shared == first.len().min(other.len()) && 2 * shared > first.len().max(other.len())
        };
        PairingKeys { by_trajectory: !first.is_empty() && rest.iter().all(has_same_runs) }
    }

    pub(super) fn task_name(&self, key: &TaskKey, run: &RunValues) -> String {
        match key {
            _ if self.by_trajectory => format!("run {}", run.trajectory_id),
            TaskKey::Item(id) => format!("item {id}"),
            TaskKey::Request(digest) => format!("request {digest}"),
            TaskKey::Trajectory(id) => format!("run {id}"),
        }
    }
}
