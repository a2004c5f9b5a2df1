//! How far a person is in the review queue.

use std::ops::ControlFlow;

use crate::sql::{OptionalRow, SqlConnection};

use super::review::{ReviewFilter, ReviewItem, ReviewPosition, ReviewWalk, load_trace_id};
use crate::Store;
use crate::error::StoreError;

/// Maximum number of verdicts that are counted. A person reviews hundreds, and the page is loaded after every label.
const MAX_COUNTED: u64 = 1_000;
/// Maximum number of trajectories that are examined for the count.
const MAX_COUNTED_TRAJECTORIES: i64 = 2_000;

/// How far a person is in the review queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReviewProgress {
    /// Verdicts that match, labelled or not.
    pub verdicts: u64,
    /// Those of them that this person has labelled.
    pub labelled: u64,
    /// Whether the queue continues after what was counted.
    pub is_more: bool,
    /// Position of the verdict in the queue, from 1. `None` if it is after what was counted.
    pub position: Option<u64>,
}

impl Store {
    /// Counts the queue from its beginning, and finds the verdict at `place` in it.
    pub fn review_progress(
        &self,
        filter: &ReviewFilter,
        place: Option<&ReviewPosition>,
    ) -> Result<ReviewProgress, StoreError> {
        let reader = self.readers.take_reader()?;
        let sql: &SqlConnection = &*reader.snapshot()?;
        let mut progress = ReviewProgress::default();
        let Some(walk) = ReviewWalk::new(sql, filter)? else { return Ok(progress) };
        let mut examined = 0;
        walk.visit_trajectories(sql, (i64::MAX, i64::MAX), MAX_COUNTED_TRAJECTORIES + 1, |row| {
            examined += 1;
            if examined > MAX_COUNTED_TRAJECTORIES {
                progress.is_more = true;
            }
            if progress.is_more {
                return Ok(ControlFlow::Break(()));
            }
            let trajectory: i64 = row.get(1)?;
            let here = place.filter(|place| place.trajectory == trajectory);
            walk.visit_verdicts(sql, row, |step, evaluator, is_labelled| {
                if progress.verdicts == MAX_COUNTED {
                    progress.is_more = true;
                    return Ok(ControlFlow::Break(()));
                }
                progress.verdicts += 1;
                progress.labelled += u64::from(is_labelled()?);
                if here.is_some_and(|place| (step, evaluator) == (place.step, &*place.evaluator)) {
                    progress.position = Some(progress.verdicts);
                }
                Ok(ControlFlow::Continue(()))
            })?;
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(progress)
    }

    /// The verdict at a position, labelled or not; `None` if its trajectory is gone.
    pub fn review_item(&self, place: &ReviewPosition) -> Result<Option<ReviewItem>, StoreError> {
        let reader = self.readers.take_reader()?;
        let sql: &SqlConnection = &*reader.snapshot()?;
        let found: Option<(String, i64)> = sql
            .prepare_cached("SELECT trajectory_id, trace FROM trajectory WHERE no = ?")?
            .query_row([place.trajectory], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        let Some((trajectory_id, trace)) = found else { return Ok(None) };
        let trace_id = load_trace_id(sql, trace)?;
        Ok(Some(ReviewItem { place: place.clone(), trajectory_id, trace_id }))
    }
}
