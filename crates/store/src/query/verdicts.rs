//! Outcomes of one trajectory.

use crate::sql::{OptionalRow, SqlRow, params};

use crate::Store;
use crate::error::StoreError;

/// An outcome as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct VerdictLine {
    pub judged_ns: i64,
    /// Whether it was below the best score of its evaluator when it was stored.
    pub is_wrong: bool,
    /// The outcome as JSON.
    pub line: String,
}

impl Store {
    /// The outcomes of a trajectory, by step and evaluator. Step 0, the trajectory as a whole, comes first.
    pub fn verdict_lines(&self, trajectory_id: &str) -> Result<Vec<VerdictLine>, StoreError> {
        let reader = self.readers.take_reader()?;
        let mut statement = reader.prepare_cached(
            "SELECT judged_ns, is_wrong, line FROM outcome JOIN trajectory ON trajectory.no = outcome.trajectory \
             WHERE trajectory_id = ? ORDER BY step, evaluator",
        )?;
        let line =
            |row: &SqlRow<'_>| Ok(VerdictLine { judged_ns: row.get(0)?, is_wrong: row.get(1)?, line: row.get(2)? });
        Ok(statement.query_map([trajectory_id], line)?.collect::<Result<_, _>>()?)
    }

    /// One outcome as a line of JSON; without a step, of the trajectory as a whole.
    pub fn find_verdict_line(
        &self,
        trajectory_id: &str,
        evaluator: &str,
        step: Option<u32>,
    ) -> Result<Option<String>, StoreError> {
        let reader = self.readers.take_reader()?;
        Ok(reader
            .prepare_cached(
                "SELECT line FROM outcome WHERE trajectory = (SELECT no FROM trajectory WHERE trajectory_id = ?) \
                 AND evaluator = ? AND step = ?",
            )?
            .query_row(params![trajectory_id, evaluator, step.unwrap_or(0)], |row| row.get(0))
            .optional()?)
    }
}
