//! The ready queue: trace groups (traces that are assembled together) for which records arrived since they were
//! assembled.
//!
//! An attempt is recorded before it begins. A trace that ends the process, for whatever reason, is found at the next
//! start by its unfinished attempt. After [`MAX_ATTEMPTS`] it is quarantined: kept, listed, and not tried again until a
//! person asks for it.

use std::borrow::Cow;
use std::collections::VecDeque;

use crate::sql::{OptionalRow, SqlConnection, params};
use gradus_core::span::TraceId;

use crate::Store;
use crate::error::StoreError;
use crate::writer::WriteHandle;

/// Number of failed attempts after which a trace group is quarantined.
pub const MAX_ATTEMPTS: i64 = 2;
/// Pause before a failed group is tried again.
const RETRY_PAUSE_NS: i64 = 1_000_000_000;
/// Values of `is_started`: assembled together with others, or alone.
const STARTED_TOGETHER: i64 = 1;
const STARTED_ALONE: i64 = 2;
/// Arrival times further in the future than this come from a clock that was set back since.
const MAX_CLOCK_STEP_NS: i64 = 10_000_000_000;
/// How long a server may work on something without a sign of life, as SQL of PostgreSQL. Others take over then.
pub(crate) const LEASE_INTERVAL: &str = "interval '30 seconds'";
/// Maximum bytes that are stored of the reason of a failure.
const MAX_REASON_BYTES: usize = 500;

/// Selects complete trace groups: those whose root has ended if nothing arrived for `quiet_ns`, the others if nothing
/// arrived for `give_up_ns`.
#[derive(Clone, Copy, Debug)]
pub struct ReadyQuery {
    pub now_ns: i64,
    pub quiet_ns: i64,
    pub give_up_ns: i64,
    /// Projects take turns. The one with the next number comes first.
    pub after_project: i64,
    pub limit: usize,
}

/// A trace group that is ready to be assembled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadyTraceGroup {
    pub trace_group: i64,
    pub project: i64,
    /// Whether it must be assembled alone: an attempt failed, or the process ended while it was assembled with others.
    pub is_retry: bool,
}

/// A trace that could not be assembled and is not tried again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuarantinedTrace {
    pub trace_id: TraceId,
    pub project: String,
    pub name: String,
    pub spans: i64,
    pub attempts: i64,
    pub since_ns: i64,
    pub reason: String,
}

impl Store {
    /// Complete trace groups, a few of each project in turn, so that no project waits for the backlog of another.
    /// Groups that failed once come last.
    pub fn ready_trace_groups(&self, query: ReadyQuery) -> Result<Vec<ReadyTraceGroup>, StoreError> {
        let now_ns = self.node.shared_time_ns(query.now_ns);
        let query = ReadyQuery { now_ns, ..query };
        let reader = self.readers.take_reader()?;
        let projects = ready_projects(&reader, query.after_project, query.limit)?;
        let per_project = query.limit.div_ceil(projects.len().max(1));
        let mut by_project: VecDeque<VecDeque<ReadyTraceGroup>> = VecDeque::new();
        for project in projects {
            by_project.push_back(ready_in_project(&reader, &query, project, per_project, self.node.name())?);
        }
        let mut ready = Vec::new();
        while let Some(mut trace_groups) = by_project.pop_front() {
            if let Some(trace_group) = trace_groups.pop_front() {
                ready.push(trace_group);
                by_project.push_back(trace_groups);
            }
        }
        ready.truncate(query.limit);
        let left = query.limit - ready.len();
        let mut retries = reader.prepare_cached(
            "SELECT story, project FROM due INDEXED BY due_again WHERE attempts > 0 AND quarantined_ns IS NULL \
             AND not_before_ns <= ?1 UNION ALL \
             SELECT story, project FROM due INDEXED BY due_again WHERE attempts > 0 AND quarantined_ns IS NULL \
             AND not_before_ns > ?2 LIMIT ?3",
        )?;
        let rows = retries.query_map([now_ns, now_ns.saturating_add(MAX_CLOCK_STEP_NS), left as i64], |row| {
            Ok(ReadyTraceGroup { trace_group: row.get(0)?, project: row.get(1)?, is_retry: true })
        })?;
        for row in rows {
            ready.push(row?);
        }
        Ok(ready)
    }

    /// Records that these trace groups are about to be assembled. Returns those that this server may assemble:
    /// another server on the same database may have been faster. The caller must wait for the commit before it
    /// begins.
    pub fn begin_attempts(&self, trace_groups: Vec<i64>) -> Result<WriteHandle<Vec<i64>>, StoreError> {
        // If one is assembled alone and the process ends, it is known which one is at fault.
        let state = if trace_groups.len() == 1 { STARTED_ALONE } else { STARTED_TOGETHER };
        let node = self.node.name().to_owned();
        self.writer()?.submit(0, move |writing| {
            if writing.sql.sqlite().is_some() {
                set_started(writing.sql, &trace_groups, state)?;
                return Ok(trace_groups.clone());
            }
            let mut claim = writing.sql.prepare_cached(&format!(
                "UPDATE due SET is_started = ?2, owner = ?3, leased_until = now() + {LEASE_INTERVAL}, fence = fence + 1 \
                 WHERE story = (SELECT story FROM due WHERE story = ?1 AND quarantined_ns IS NULL \
                 AND (leased_until IS NULL OR leased_until < now() OR owner = ?3) FOR UPDATE SKIP LOCKED)"
            ))?;
            let mut claimed = Vec::new();
            for trace_group in &trace_groups {
                if claim.execute(params![trace_group, state, node])? > 0 {
                    claimed.push(*trace_group);
                }
            }
            Ok(claimed)
        })
    }

    /// Takes back attempts that ended without a fault of their groups, for example at shutdown.
    pub fn cancel_attempts(&self, trace_groups: Vec<i64>) -> Result<WriteHandle<()>, StoreError> {
        let node = self.node.name().to_owned();
        self.writer()?.submit(0, move |writing| {
            if writing.sql.sqlite().is_some() {
                return set_started(writing.sql, &trace_groups, 0);
            }
            let mut release = writing.sql.prepare_cached(
                "UPDATE due SET is_started = 0, owner = NULL, leased_until = NULL WHERE story = ? AND owner = ?",
            )?;
            for trace_group in &trace_groups {
                release.execute(params![trace_group, node])?;
            }
            Ok(())
        })
    }

    /// Records that an attempt failed. The group is tried again a second later, or quarantined. Returns whether it was.
    pub fn fail_attempt(&self, trace_group: i64, reason: &str, now_ns: i64) -> Result<WriteHandle<bool>, StoreError> {
        let reason = reason[..reason.floor_char_boundary(MAX_REASON_BYTES)].to_owned();
        let now_ns = self.node.shared_time_ns(now_ns);
        self.writer()?
            .submit(reason.len(), move |writing| record_group_failure(writing.sql, trace_group, &reason, now_ns))
    }

    /// Counts attempts that the last process did not finish as failed. Groups that were assembled together are only
    /// suspects, and are assembled alone from now on. Returns the number of unfinished attempts and of groups that were
    /// quarantined. Must be called before the first attempt.
    pub fn fail_unfinished_attempts(&self, now_ns: i64) -> Result<WriteHandle<(usize, usize)>, StoreError> {
        self.writer()?.submit(0, move |writing| fail_unfinished(writing.sql, now_ns))
    }

    /// Puts quarantined groups back into the queue: that of one trace, or all. Returns their number.
    pub fn retry_quarantined(&self, trace: Option<TraceId>) -> Result<WriteHandle<usize>, StoreError> {
        self.writer()?.submit(0, move |writing| {
            const RETRY: &str = "UPDATE due SET attempts = 0, is_started = 0, is_suspect = 0, not_before_ns = 0, quarantined_ns = NULL, \
                                 reason = NULL WHERE quarantined_ns IS NOT NULL";
            let sql = writing.sql;
            Ok(match trace {
                None => sql.prepare_cached(RETRY)?.execute(())?,
                Some(trace) => {
                    let id = trace.0.to_be_bytes();
                    sql.prepare_cached(&format!(
                        "{RETRY} AND story = (SELECT story FROM trace WHERE trace_id = ?)"
                    ))?
                    .execute([&id[..]])?
                }
            })
        })
    }

    /// Quarantined traces, the latest first. For a group of several traces, its first one is listed.
    pub fn quarantined_traces(&self, limit: usize) -> Result<Vec<QuarantinedTrace>, StoreError> {
        let reader = self.readers.take_reader()?;
        // There are few, and this is rarely called.
        let mut statement = reader.prepare(
            "SELECT trace_id, project.name, trace.name, trace.spans, attempts, quarantined_ns, coalesce(reason, '') \
             FROM due INDEXED BY due_quarantined JOIN trace ON trace.no = due.story \
             JOIN project ON project.no = trace.project \
             WHERE quarantined_ns IS NOT NULL ORDER BY quarantined_ns DESC LIMIT ?",
        )?;
        let rows = statement.query_map([limit as i64], |row| {
            Ok(QuarantinedTrace {
                trace_id: TraceId(u128::from_be_bytes(row.get(0)?)),
                project: row.get(1)?,
                name: row.get(2)?,
                spans: row.get(3)?,
                attempts: row.get(4)?,
                since_ns: row.get(5)?,
                reason: row.get(6)?,
            })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Why a trace group is quarantined; `None` if it is not.
    pub fn quarantine_reason(&self, trace_group: i64) -> Result<Option<String>, StoreError> {
        let reader = self.readers.take_reader()?;
        Ok(reader
            .prepare_cached("SELECT coalesce(reason, '') FROM due WHERE story = ? AND quarantined_ns IS NOT NULL")?
            .query_row([trace_group], |row| row.get(0))
            .optional()?)
    }

    /// Uses a partial index, so it is cheap however long the queue is.
    pub fn quarantined_count(&self) -> Result<i64, StoreError> {
        let reader = self.readers.take_reader()?;
        Ok(reader
            .prepare_cached("SELECT count(*) FROM due INDEXED BY due_quarantined WHERE quarantined_ns IS NOT NULL")?
            .query_row((), |row| row.get(0))?)
    }

    /// Whether records arrived for a trace group since it was assembled.
    pub fn is_in_ready_queue(&self, trace_group: i64) -> Result<bool, StoreError> {
        let reader = self.readers.take_reader()?;
        Ok(reader.prepare_cached("SELECT 1 FROM due WHERE story = ?")?.exists([trace_group])?)
    }

    /// Number of trace groups in the queue, without quarantined ones.
    pub fn ready_queue_length(&self) -> Result<i64, StoreError> {
        let reader = self.readers.take_reader()?;
        let all: i64 = reader.prepare_cached("SELECT count(*) FROM due")?.query_row((), |row| row.get(0))?;
        drop(reader);
        Ok(all - self.quarantined_count()?)
    }
}

/// Counts unfinished attempts as failed. In PostgreSQL, these are attempts whose server did not renew its lease.
pub(crate) fn fail_unfinished(sql: &SqlConnection, now_ns: i64) -> Result<(usize, usize), StoreError> {
    // Runs once at the start, so SQLite needs no index, which every attempt would have to maintain.
    let unfinished = sql.choose(
        "SELECT story, is_started FROM due WHERE is_started > 0",
        "SELECT story, is_started FROM due WHERE is_started > 0 AND leased_until < now() FOR UPDATE SKIP LOCKED",
    );
    let started: Vec<(i64, i64)> =
        sql.prepare(unfinished)?.query_map((), |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<Result<_, _>>()?;
    let mut quarantined = 0;
    for (trace_group, state) in &started {
        if *state == STARTED_ALONE {
            let reason = "the server ended while it assembled this trace";
            quarantined += usize::from(record_group_failure(sql, *trace_group, reason, now_ns)?);
        } else {
            sql.prepare_cached(sql.choose(
                "UPDATE due SET is_started = 0, is_suspect = 1 WHERE story = ?",
                "UPDATE due SET is_started = 0, is_suspect = 1, owner = NULL, leased_until = NULL WHERE story = ?",
            ))?
            .execute([trace_group])?;
        }
    }
    Ok((started.len(), quarantined))
}

/// Records that attempts were started, together or alone; 0 means that none is under way.
fn set_started(sql: &SqlConnection, trace_groups: &[i64], state: i64) -> Result<(), StoreError> {
    let mut update = sql.prepare_cached("UPDATE due SET is_started = ?2 WHERE story = ?1")?;
    for trace_group in trace_groups {
        update.execute([*trace_group, state])?;
    }
    Ok(())
}

/// Projects with groups in the queue, in the order of their turns. One index lookup per project.
fn ready_projects(sql: &SqlConnection, after: i64, limit: usize) -> Result<Vec<i64>, StoreError> {
    let mut next = sql
        .prepare_cached("SELECT min(project) FROM due INDEXED BY due_by_project WHERE attempts = 0 AND project > ?")?;
    let mut projects = Vec::new();
    for (from, until) in [(after, i64::MAX), (-1, after)] {
        let mut last = from;
        while projects.len() < limit {
            let found: Option<i64> = next.query_row([last], |row| row.get(0))?;
            let Some(project) = found.filter(|project| *project <= until) else { break };
            projects.push(project);
            last = project;
        }
    }
    Ok(projects)
}

/// Complete trace groups of one project: those with an ended root first.
fn ready_in_project(
    sql: &SqlConnection,
    query: &ReadyQuery,
    project: i64,
    limit: usize,
    node: &str,
) -> Result<VecDeque<ReadyTraceGroup>, StoreError> {
    // An arrival in the future was before the clock was set back, so it counts as long ago.
    const READY: &str = "SELECT story, is_suspect FROM due INDEXED BY due_by_project WHERE attempts = 0 AND project = ?1 AND \
                         is_ended = ?2 AND arrived_ns <= ?3 LIMIT ?4";
    const AHEAD: &str = "SELECT story, is_suspect FROM due INDEXED BY due_by_project WHERE attempts = 0 AND project = ?1 AND \
                         is_ended = ?2 AND arrived_ns > ?3 LIMIT ?4";
    let mut ready = VecDeque::new();
    let ahead_ns = query.now_ns.saturating_add(MAX_CLOCK_STEP_NS);
    for (is_ended, wait_ns) in [(true, query.quiet_ns), (false, query.give_up_ns)] {
        for (statement, border_ns) in [(READY, query.now_ns.saturating_sub(wait_ns)), (AHEAD, ahead_ns)] {
            let left = limit - ready.len();
            if left == 0 {
                return Ok(ready);
            }
            // What another server assembles is not ready. What this one has claimed is: its queue knows what it works on, and
            // an attempt may have ended while the database was away. Names of servers are hexadecimal digits.
            let unleased = format!(" AND (leased_until IS NULL OR leased_until < now() OR owner = '{node}') LIMIT");
            let statement = sql.choose(Cow::Borrowed(statement), Cow::Owned(statement.replace(" LIMIT", &unleased)));
            let mut statement = sql.prepare_cached(&statement)?;
            let rows = statement.query_map(params![project, is_ended, border_ns, left as i64], |row| {
                Ok(ReadyTraceGroup { trace_group: row.get(0)?, project, is_retry: row.get(1)? })
            })?;
            for trace_group in rows {
                ready.push_back(trace_group?);
            }
        }
    }
    Ok(ready)
}

/// Counts a failure. Returns whether the group is quarantined now.
fn record_group_failure(sql: &SqlConnection, trace_group: i64, reason: &str, now_ns: i64) -> Result<bool, StoreError> {
    let released = sql.choose("", "owner = NULL, leased_until = NULL,");
    let is_quarantined: Option<bool> = sql
        .prepare_cached(&format!(
            "UPDATE due SET attempts = attempts + 1, is_started = 0, {released} not_before_ns = ?3, reason = ?4, \
             quarantined_ns = CASE WHEN attempts + 1 >= ?5 THEN CAST(?2 AS BIGINT) END WHERE story = ?1 \
             RETURNING quarantined_ns IS NOT NULL"
        ))?
        .query_row(params![trace_group, now_ns, now_ns.saturating_add(RETRY_PAUSE_NS), reason, MAX_ATTEMPTS], |row| {
            row.get(0)
        })
        .optional()?;
    Ok(is_quarantined.unwrap_or_default())
}
