//! Reroutes trajectories that wait for a rule that was removed: they go to the rule that grades their project now, or
//! leave the queue.

use gradus_store::{Store, StoreError};

use crate::grading_rule::GradingRule;

/// Moves all such trajectories, a bounded number of rows in each step, so that ingest is not delayed. Called at each
/// start and every few seconds.
pub(super) fn reroute_ungraded(store: &Store, rules: &[GradingRule]) -> Result<(), StoreError> {
    let asking: Vec<&str> = rules.iter().filter(|rule| rule.asks_model()).map(|rule| rule.name.as_str()).collect();
    for (rule, project) in store.waiting_rules_except(&asking)? {
        let fitting = rules.iter().find(|rule| rule.matches_project(&project)).filter(|rule| rule.asks_model());
        let to = fitting.map(|rule| rule.name.clone());
        let mut count = 0;
        loop {
            match store.reroute_ungraded(rule.clone(), project.clone(), to.clone())?.wait()? {
                0 => break,
                some => count += some,
            }
        }
        let to = to.as_deref().unwrap_or("none");
        tracing::info!(rule, project, to, count, "reassigned trajectories of a rule that no longer calls a model");
    }
    Ok(())
}
