//! Stories that something came for since they were assembled.

use rusqlite::params;

use crate::Store;
use crate::error::StoreError;
use crate::writer::Written;

const SHORTEST_PAUSE_NS: i64 = 1_000_000_000;
const LONGEST_PAUSE_NS: i64 = 3_600_000_000_000;

impl Store {
    /// Stories that are complete: those whose root has ended when nothing came for `quiet_ns`, the others when nothing
    /// came for `give_up_ns`. Those that were set aside come last, when it is time to try them again.
    pub fn due(
        &self,
        now_ns: i64,
        quiet_ns: i64,
        give_up_ns: i64,
        limit: usize,
    ) -> Result<Vec<i64>, StoreError> {
        let reader = self.readers.take()?;
        let mut statement = reader.prepare_cached(
            "SELECT story FROM due INDEXED BY due_by_time WHERE attempts = 0 AND is_ended = 1 AND arrived_ns <= ?1 \
             UNION ALL \
             SELECT story FROM due INDEXED BY due_by_time WHERE attempts = 0 AND is_ended = 0 AND arrived_ns <= ?2 \
             UNION ALL \
             SELECT story FROM due INDEXED BY due_again WHERE attempts > 0 AND not_before_ns <= ?3 LIMIT ?4",
        )?;
        let rows = statement.query_map(
            params![now_ns.saturating_sub(quiet_ns), now_ns.saturating_sub(give_up_ns), now_ns, limit as i64],
            |row| row.get(0),
        )?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Puts off a story that could not be assembled: for a second, and four times as long each time, up to an hour.
    pub fn set_aside(&self, story: i64, now_ns: i64) -> Result<Written<()>, StoreError> {
        self.writer()?.submit(0, move |writing| {
            writing
                .sql
                .prepare_cached(
                    "UPDATE due SET not_before_ns = ?2 + min(?3 << (2 * min(attempts, 10)), ?4), \
                     attempts = attempts + 1 WHERE story = ?1",
                )?
                .execute([story, now_ns, SHORTEST_PAUSE_NS, LONGEST_PAUSE_NS])?;
            Ok(())
        })
    }

    /// Whether something came for a story since it was assembled.
    pub fn is_due(&self, story: i64) -> Result<bool, StoreError> {
        let reader = self.readers.take()?;
        Ok(reader.prepare_cached("SELECT 1 FROM due WHERE story = ?")?.exists([story])?)
    }

    /// How many stories are set aside.
    pub fn set_aside_count(&self) -> Result<i64, StoreError> {
        let reader = self.readers.take()?;
        Ok(reader
            .prepare_cached("SELECT count(*) FROM due INDEXED BY due_again WHERE attempts > 0")?
            .query_row([], |row| row.get(0))?)
    }

    pub fn due_count(&self) -> Result<i64, StoreError> {
        let reader = self.readers.take()?;
        Ok(reader.prepare_cached("SELECT count(*) FROM due")?.query_row([], |row| row.get(0))?)
    }
}
