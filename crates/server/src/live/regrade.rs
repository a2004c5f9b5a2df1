//! Reassembles trajectories from their records, for judging by a model. The stored JSON has no tools on offer, which
//! prompts need.

use std::collections::{BTreeMap, HashMap};

use gradus_core::trajectory::Trajectory;
use gradus_store::{JudgeSpend, Store, StoreError, UngradedTrajectory};

use super::assembly_failure::catch_assembly_panic;
use super::ledger::postpone_grading;
use crate::clock::now_ns;
use crate::trace_group::TraceGroupView;

/// Returns the trajectories that could be assembled. Each trace group is assembled once, however many of its
/// trajectories are needed. Trajectories that cannot be assembled now stay in the ungraded queue with a delay.
pub(super) fn reassemble_trajectories(
    store: &Store,
    wanted: Vec<UngradedTrajectory>,
) -> Result<Vec<(UngradedTrajectory, Trajectory)>, StoreError> {
    let mut by_trace_group: BTreeMap<i64, Vec<UngradedTrajectory>> = BTreeMap::new();
    for one in wanted {
        by_trace_group.entry(one.trace_group).or_default().push(one);
    }
    let mut found = Vec::new();
    for (number, wanted) in by_trace_group {
        let assembled = catch_assembly_panic(|| Ok(TraceGroupView::load(store, number)?.trajectories));
        let mut by_id: HashMap<String, Trajectory> = match assembled {
            Ok(all) => all.into_iter().map(|one| (one.trajectory_id.clone(), one)).collect(),
            Err(failure) => {
                let failure = failure.into_group_failure()?;
                tracing::error!(trace_group = number, error = %failure, "judging a trace failed; postponed");
                HashMap::new()
            }
        };
        for one in wanted {
            match by_id.remove(&one.trajectory_id) {
                Some(trajectory) => found.push((one, trajectory)),
                None => postpone_trajectory(store, &one)?,
            }
        }
    }
    Ok(found)
}

/// Delays a trajectory that its trace group did not yield. If it belongs to another group by now, the queue is
/// already up to date and nothing is done.
fn postpone_trajectory(store: &Store, one: &UngradedTrajectory) -> Result<(), StoreError> {
    if store.trace_group_of_ungraded(one.no)? != Some(one.trace_group) {
        return Ok(());
    }
    match store.record_verdicts(one, Vec::new(), JudgeSpend::default(), postpone_grading(one), now_ns()) {
        // A failure only means that the trajectory is retried too early.
        Ok(_) | Err(StoreError::Busy) => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::fixtures::Lab;

    #[test]
    fn a_trajectory_whose_trace_group_was_united_with_another_waits_for_the_next_look() {
        let lab = Lab::new(1 << 20);
        let now = lab.ungraded(i64::MAX).unwrap();
        let before = UngradedTrajectory { trace_group: now.trace_group + 100, ..now.clone() };
        assert!(reassemble_trajectories(&lab.store, vec![before]).unwrap().is_empty());
        lab.flush();
        assert_eq!(lab.ungraded(now_ns()), Some(now));
    }

    #[test]
    fn what_records_do_not_give_is_put_off_and_never_given_up() {
        let lab = Lab::new(1 << 20);
        for delays in 1..=5 {
            let wanted = lab.ungraded(i64::MAX).unwrap();
            assert!(reassemble_trajectories(&lab.store, vec![wanted]).unwrap().is_empty());
            lab.flush();
            assert_eq!(lab.ungraded(now_ns()), None);
            assert_eq!(lab.ungraded(i64::MAX).unwrap().delays, delays);
        }
    }

    #[test]
    fn a_trajectory_that_is_gone_is_no_error() {
        let lab = Lab::new(1 << 20);
        let gone = UngradedTrajectory { no: 99, ..lab.ungraded(i64::MAX).unwrap() };
        assert!(reassemble_trajectories(&lab.store, vec![gone]).unwrap().is_empty());
    }
}
