//! Retention: removes traces that are too old or too many, in small steps, so that no other writer waits long.

use std::time::Duration;

use crate::sql::{OptionalRow, SqlConnection};

use crate::Store;
use crate::buckets::{DAY_NS, bucket_index};
use crate::error::StoreError;
use crate::failures::forget_empty_groups;
use crate::grading::remove_trajectory_keeping_metrics;
use crate::judge_calls::forget_answers;
use crate::writer::WriteHandle;

/// Limits of what is stored. `None` means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetentionPolicy {
    pub max_age_ns: Option<i64>,
    pub max_bytes: Option<u64>,
}

/// What one step removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemovalCounts {
    pub traces: u64,
    pub spans: u64,
    /// Whether there may be more to remove.
    pub has_more: bool,
}

/// Maximum number of traces that one step removes.
const TRACES_PER_STEP: i64 = 50;
/// Maximum number of arrival times that one step corrects.
const CORRECTIONS_PER_STEP: i64 = 5_000;
/// Bytes of removed records after which a step ends.
const BYTES_PER_STEP: u64 = 16 << 20;
/// Maximum number of free pages that one step returns to the file system.
const PAGES_PER_STEP: i64 = 500;

/// Number of attempts to checkpoint the log, and the time between them.
const CHECKPOINT_TRIES: usize = 20;
const CHECKPOINT_PAUSE: Duration = Duration::from_millis(50);

/// How long dropping a partition waits for others, and lets others wait.
const DROP_WAIT_MS: u64 = 200;

/// Minimum time for which spending is stored: a month, over which people watch it, and some days.
const SPEND_RETENTION_NS: i64 = 40 * DAY_NS;

impl Store {
    /// Returns the space of removed traces to the file system. SQLite: checkpoints the write-ahead log, if nobody
    /// reads from it; only then does the file shrink to its content. PostgreSQL: drops the partitions of days that
    /// have no trace any more.
    pub fn free_disk_space(&self, now_ns: i64) -> Result<(), StoreError> {
        // On a connection of its own, since a checkpoint cannot be part of a transaction. It does not wait for readers,
        // because that would block the writer.
        let Some(path) = self.engine.file() else { return drop_empty_partitions(&self.engine.open_writer()?, now_ns) };
        let connection = crate::connection::open_writer(path)?;
        connection.busy_timeout(Duration::ZERO)?;
        for _ in 0..CHECKPOINT_TRIES {
            let checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)";
            if matches!(connection.query_row(checkpoint, [], |row| row.get::<_, i64>(0)), Ok(0)) {
                break;
            }
            std::thread::sleep(CHECKPOINT_PAUSE);
        }
        Ok(())
    }

    /// Removes a few traces that exceed the limits, those that arrived first. The arrival of a trace is that of its
    /// first record, by the clock of this server. The times of its spans do not count, and later records do not make
    /// it younger.
    pub fn run_retention_step(
        &self,
        retention: RetentionPolicy,
        now_ns: i64,
    ) -> Result<WriteHandle<RemovalCounts>, StoreError> {
        let (used, _) = self.used_and_free_bytes()?;
        let is_too_large = retention.max_bytes.is_some_and(|most| used > most);
        self.writer()?.submit(0, move |writing| {
            let sql = writing.sql;
            let mut traces = Vec::new();
            if let Some(age) = retention.max_age_ns {
                let before_ns = now_ns.saturating_sub(age);
                delete_expired_history(sql, before_ns, now_ns)?;
                correct_arrivals(sql, now_ns)?;
                traces = expired_traces(sql, before_ns)?;
            }
            if traces.is_empty() && is_too_large {
                traces = first_traces(sql)?;
            }
            let mut removed =
                RemovalCounts { has_more: traces.len() as i64 == TRACES_PER_STEP, ..RemovalCounts::default() };
            let mut left_bytes = BYTES_PER_STEP;
            for (trace, spans, bytes) in traces {
                if left_bytes == 0 {
                    removed.has_more = true;
                    break;
                }
                remove_trace(sql, trace)?;
                removed.traces += 1;
                removed.spans += spans;
                left_bytes = left_bytes.saturating_sub(bytes);
            }
            if removed.traces > 0 && sql.sqlite().is_some() {
                let mut statement = sql.prepare_cached(&format!("PRAGMA incremental_vacuum({PAGES_PER_STEP})"))?;
                let mut rows = statement.query(())?;
                while rows.next()?.is_some() {}
            }
            Ok(removed)
        })
    }
}

/// Drops empty partitions of PostgreSQL. Dropping one needs a lock on the whole table, which blocks readers and
/// writers: the attempt is given up soon, and repeated the next time.
fn drop_empty_partitions(sql: &SqlConnection, now_ns: i64) -> Result<(), StoreError> {
    // Yesterday's traces may still be in the making by a server whose clock is behind.
    let before_day = now_ns / DAY_NS - 1;
    sql.execute_batch(&format!("SET lock_timeout = '{DROP_WAIT_MS}ms'"))?;
    match sql.query_row("SELECT drop_partitions(?)", [before_day], |row| row.get::<i64>(0)) {
        Err(error) if error.is_lock_timeout() => Ok(()),
        dropped => Ok(dropped.map(|_| ())?),
    }
}

/// Number, spans and bytes of a trace.
type TraceSize = (i64, u64, u64);

/// The traces that arrived first, if they arrived before a time.
fn expired_traces(sql: &SqlConnection, before_ns: i64) -> Result<Vec<TraceSize>, StoreError> {
    let mut statement = sql.prepare_cached(
        "SELECT no, spans, bytes FROM trace INDEXED BY trace_by_arrival WHERE first_arrived_ns < ? \
         ORDER BY first_arrived_ns LIMIT ?",
    )?;
    let rows = statement.query_map([before_ns, TRACES_PER_STEP], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// In the order of their numbers, which is the order of arrival whatever the clock said.
fn first_traces(sql: &SqlConnection) -> Result<Vec<TraceSize>, StoreError> {
    let mut statement = sql.prepare_cached("SELECT no, spans, bytes FROM trace WHERE no > 0 ORDER BY no LIMIT ?")?;
    let rows = statement.query_map([TRACES_PER_STEP], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Traces that arrived while the clock was ahead would be kept too long. Their age counts from now on.
fn correct_arrivals(sql: &SqlConnection, now_ns: i64) -> Result<(), StoreError> {
    sql.prepare_cached(
        "UPDATE trace SET first_arrived_ns = ?1 WHERE no IN (SELECT no FROM trace INDEXED BY trace_by_arrival \
         WHERE first_arrived_ns > ?1 ORDER BY first_arrived_ns LIMIT ?2)",
    )?
    .execute([now_ns, CORRECTIONS_PER_STEP])?;
    Ok(())
}

/// Removes notices and answers of judges of the same age as the traces. Spending is kept for as long as a budget or an
/// alert may ask for it, whatever the age of traces: a few rows per hour.
fn delete_expired_history(sql: &SqlConnection, before_ns: i64, now_ns: i64) -> Result<(), StoreError> {
    sql.prepare_cached(
        "DELETE FROM alert_event WHERE no IN (SELECT no FROM alert_event WHERE at_ns < ? ORDER BY at_ns LIMIT 500)",
    )?
    .execute([before_ns])?;
    forget_answers(sql, before_ns)?;
    forget_empty_groups(sql)?;
    let spend_before_ns = before_ns.min(now_ns.saturating_sub(SPEND_RETENTION_NS));
    sql.prepare_cached("DELETE FROM spend WHERE bucket < ?")?.execute([bucket_index(spend_before_ns)])?;
    Ok(())
}

/// Removes a trace with everything derived from it, except its share in metrics.
pub(crate) fn remove_trace(sql: &SqlConnection, trace: i64) -> Result<(), StoreError> {
    let trajectories: Vec<i64> = sql
        .prepare_cached("SELECT no FROM trajectory WHERE trace = ?")?
        .query_map([trace], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    for trajectory in trajectories {
        remove_trajectory_keeping_metrics(sql, trajectory)?;
    }
    let trace_group: Option<i64> =
        sql.prepare_cached("SELECT story FROM trace WHERE no = ?")?.query_row([trace], |row| row.get(0)).optional()?;
    for statement in [
        "DELETE FROM facet WHERE trace = ?",
        "DELETE FROM link WHERE trace = ?",
        "DELETE FROM annotation WHERE trace = ?",
        "DELETE FROM span WHERE trace = ?",
        "DELETE FROM block WHERE trace = ?",
        "DELETE FROM trace WHERE no = ?",
    ] {
        sql.prepare_cached(statement)?.execute([trace])?;
    }
    // Its trace group may continue without it, and stay in the queue.
    sql.prepare_cached(
        "DELETE FROM due WHERE story = ?1 AND NOT EXISTS (SELECT 1 FROM trace WHERE no = ?1 AND story = ?1) \
         AND NOT EXISTS (SELECT 1 FROM trace WHERE story = ?1 AND story <> no)",
    )?
    .execute([trace_group])?;
    Ok(())
}
