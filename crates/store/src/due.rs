//! Stories that something came for since they were assembled.

use rusqlite::params;

use crate::Store;
use crate::error::StoreError;

impl Store {
    /// Stories that are complete: those whose root has ended when nothing came for `quiet_ns`, the others when nothing
    /// came for `give_up_ns`.
    pub fn due(
        &self,
        now_ns: i64,
        quiet_ns: i64,
        give_up_ns: i64,
        limit: usize,
    ) -> Result<Vec<i64>, StoreError> {
        let reader = self.readers.take()?;
        let mut statement = reader.prepare_cached(
            "SELECT story FROM due INDEXED BY due_by_time WHERE is_ended = 1 AND arrived_ns <= ?1 \
             UNION ALL SELECT story FROM due INDEXED BY due_by_time WHERE is_ended = 0 AND arrived_ns <= ?2 LIMIT ?3",
        )?;
        let rows = statement.query_map(
            params![now_ns.saturating_sub(quiet_ns), now_ns.saturating_sub(give_up_ns), limit as i64],
            |row| row.get(0),
        )?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    pub fn due_count(&self) -> Result<i64, StoreError> {
        let reader = self.readers.take()?;
        Ok(reader.prepare_cached("SELECT count(*) FROM due")?.query_row([], |row| row.get(0))?)
    }
}
