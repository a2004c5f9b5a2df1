//! Assigns failure groups to wrong verdicts that were stored before failure groups existed.

use gradus_eval::outcome::OutcomeLine;
use gradus_store::{FailureGroupKey, Store, StoreError, UngroupedVerdict};

use super::record::build_failure_group;

/// Maximum number of verdicts in one transaction. Senders wait for it, so it is short.
const MAX_BATCH_VERDICTS: usize = 200;

/// Groups all such verdicts, one batch after the other. Ends early if the server stops.
pub(crate) fn group_stored_verdicts(store: &Store, is_stopping: impl Fn() -> bool) -> Result<u64, StoreError> {
    let mut grouped = 0;
    let mut last = Vec::new();
    while !is_stopping() {
        let verdicts = store.ungrouped_verdicts(MAX_BATCH_VERDICTS)?;
        // Verdicts that cannot be grouped, because their trajectory is damaged, would be found again for ever.
        if verdicts.is_empty() || verdicts == last {
            break;
        }
        grouped += verdicts.len() as u64;
        let keyed = verdicts.iter().map(|verdict| (verdict.clone(), build_group_key(verdict))).collect();
        store.group_verdicts(keyed)?.wait()?;
        last = verdicts;
    }
    Ok(grouped)
}

/// Builds the group key. Unreadable lines form a group of their own: the verdict counts, but its reason is unknown.
fn build_group_key(verdict: &UngroupedVerdict) -> FailureGroupKey {
    let tool = Some(verdict.tool.as_str()).filter(|tool| !tool.is_empty());
    match serde_json::from_str::<OutcomeLine>(&verdict.line) {
        Ok(line) => build_failure_group(tool, &line),
        Err(_) => FailureGroupKey {
            key: format!("unreadable-{}", verdict.evaluator),
            evaluator: verdict.evaluator.clone(),
            reason: "no explanation".to_owned(),
            ..FailureGroupKey::default()
        },
    }
}
