//! Pairs runs of different versions, and names versions by letters.

use std::collections::{BTreeMap, HashSet};

use super::version_results::{RunValues, TaskKey, VersionResults};

/// Maximum number of versions in a comparison: one letter each.
pub const MAX_VERSIONS: usize = 26;

/// `A`, `B`, …
pub(super) fn version_letter(at: usize) -> String {
    char::from(b'A' + (at % MAX_VERSIONS) as u8).to_string()
}

/// How runs are paired.
pub(super) struct PairingKeys {
    /// The versions judged the same runs, so a run is paired with itself.
    pub(super) by_trajectory: bool,
    /// Items are identified by their requests, because some version has no items.
    by_request: bool,
}

impl PairingKeys {
    /// Pairs by run if the versions judged the same runs, for example two judges of the same traces, one of which may
    /// have stopped early; otherwise by task. Two versions of an agent can also share some runs: recordings without
    /// an id get one from their content. In those runs nothing changed, and comparing only them would hide every
    /// change.
    ///
    /// Runs of a dataset are paired by item, and other runs by request. If only some versions have items, for example
    /// after judging the traces of an experiment again, items are matched by their requests.
    pub(super) fn choose(versions: &[VersionResults]) -> PairingKeys {
        let ids = |results: &VersionResults| -> HashSet<String> {
            let all = results.tasks.values().flat_map(|task| &task.runs).map(|run| run.trajectory_id.clone());
            all.filter(|id| !id.is_empty()).collect()
        };
        let Some((first, rest)) = versions.split_first() else {
            return PairingKeys { by_trajectory: false, by_request: false };
        };
        let first = ids(first);
        let has_same_runs = |other: &VersionResults| {
            let other = ids(other);
            let shared = other.intersection(&first).count();
            shared == first.len().min(other.len()) && 2 * shared > first.len().max(other.len())
        };
        let by_trajectory = !first.is_empty() && rest.iter().all(has_same_runs);
        PairingKeys { by_trajectory, by_request: can_pair_by_request(versions) }
    }

    pub(super) fn task_name(&self, results: &VersionResults, key: &TaskKey, run: &RunValues) -> String {
        let item_request = |id: &String| results.header.item_requests.get(id).filter(|_| self.by_request);
        match key {
            _ if self.by_trajectory => format!("run {}", run.trajectory_id),
            TaskKey::Item(id) => match item_request(id) {
                Some(digest) => format!("request {digest}"),
                None => format!("item {id}"),
            },
            TaskKey::Request(digest) => format!("request {digest}"),
            TaskKey::Trajectory(id) => format!("run {id}"),
        }
    }
}

/// Whether a version has no items, and requests identify the items of the others: no two items have the same request, and
/// no item has different ones.
fn can_pair_by_request(versions: &[VersionResults]) -> bool {
    let has_items = |results: &VersionResults| results.tasks.keys().any(|key| matches!(key, TaskKey::Item(_)));
    let mut by_item: BTreeMap<&str, &str> = BTreeMap::new();
    let all = versions.iter().flat_map(|results| &results.header.item_requests);
    let is_stable = all.into_iter().all(|(item, request)| *by_item.entry(item).or_insert(request) == request);
    let requests: HashSet<&&str> = by_item.values().collect();
    is_stable && requests.len() == by_item.len() && !versions.iter().all(has_items)
}
