//! What waits for a rule that is not there any more: it goes to the rule that its project has now, or waits no longer.

use gradus_store::{Store, StoreError};

use crate::grading_rule::GradingRule;

pub(super) fn reroute_ungraded(store: &Store, rules: &[GradingRule]) -> Result<(), StoreError> {
    let asking: Vec<&str> = rules.iter().filter(|rule| rule.asks_a_model()).map(|rule| rule.name.as_str()).collect();
    for (rule, project) in store.ungraded_by_others(&asking)? {
        let fitting = rules.iter().find(|rule| rule.matches_project(&project)).filter(|rule| rule.asks_a_model());
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
