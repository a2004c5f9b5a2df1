//! Walks through the traces of a project with their records, a few at a time, in either direction. Phoenix's routes
//! read the store in this way.

use std::collections::HashMap;

use crate::sql::{OptionalRow, SqlConnection, SqlRow, params};
use gradus_core::span::{SpanId, TraceId};

use super::ProjectPosition;
use super::spans::{MAX_GROUP_BYTES, StoredBlock, read_blocks, read_versions};
use super::trace_list_page::PORTION_GROWTH;
use crate::Store;
use crate::error::StoreError;

/// One trace with its records.
#[derive(Clone, Debug)]
pub struct TraceRecords {
    pub position: ProjectPosition,
    pub trace_id: TraceId,
    /// End of the last of its spans.
    pub end_ns: i64,
    /// Whether it has more records than are read at once. Then only the first ones are here.
    pub is_cut: bool,
    pub blocks: Vec<StoredBlock>,
    versions: HashMap<(i64, SpanId), i64>,
}

impl TraceRecords {
    /// Whether a block has the version of a span that counts.
    pub fn is_current_version(&self, block: &StoredBlock, span: SpanId) -> bool {
        self.versions.get(&(block.trace, span)).is_none_or(|no| *no == block.no)
    }
}

/// Direction and bounds of a walk.
#[derive(Clone, Copy, Debug)]
pub struct TraceWalk {
    pub newest_first: bool,
    /// The trace to begin with, in the order of the walk.
    pub at: Option<ProjectPosition>,
    /// Only traces that began before this time.
    pub before_ns: i64,
    /// Only traces that ended at this time or later.
    pub ended_from_ns: i64,
}

impl Default for TraceWalk {
    fn default() -> Self {
        TraceWalk { newest_first: true, at: None, before_ns: i64::MAX, ended_from_ns: i64::MIN }
    }
}

impl TraceWalk {
    /// The same walk, behind a trace.
    pub fn resume_after(self, last: ProjectPosition) -> TraceWalk {
        let step = if self.newest_first { -1 } else { 1 };
        TraceWalk { at: Some(ProjectPosition { trace: last.trace + step, ..last }), ..self }
    }
}

/// Maximum number of traces in one page, if they are small.
const MAX_PAGE_TRACES: usize = 64;
/// Maximum number of traces that one statement lists, where most of them do not match.
const MAX_PORTION_TRACES: usize = 4_096;
/// Size after which no further trace is added to a page.
const PAGE_BYTES: usize = 4 << 20;

/// Oldest first. The row value comparison makes the walk resume exactly behind a trace.
const OLDEST_FIRST_SQL: &str = "SELECT start_ns, no, trace_id, has_versions, end_ns FROM trace INDEXED BY trace_by_project \
                  WHERE project = ? AND (start_ns, no) >= (?, ?) ORDER BY start_ns, no LIMIT ?";
/// Newest first.
const NEWEST_FIRST_SQL: &str = "SELECT start_ns, no, trace_id, has_versions, end_ns FROM trace INDEXED BY trace_by_project \
                    WHERE project = ? AND (start_ns, no) <= (?, ?) ORDER BY start_ns DESC, no DESC LIMIT ?";

impl Store {
    /// The next traces of a walk; empty at its end.
    pub fn read_walk_page(&self, project: i64, walk: &TraceWalk) -> Result<Vec<TraceRecords>, StoreError> {
        let reader = self.readers.take_reader()?;
        // One read transaction, so that blocks and versions agree.
        let sql: &SqlConnection = &*reader.snapshot()?;
        let mut statement = sql.prepare_cached(if walk.newest_first { NEWEST_FIRST_SQL } else { OLDEST_FIRST_SQL })?;
        let mut at = match (walk.at, walk.newest_first) {
            (Some(at), false) => at,
            (None, false) => ProjectPosition { start_ns: i64::MIN, trace: i64::MIN },
            (at, true) => {
                let end = ProjectPosition { start_ns: walk.before_ns.saturating_sub(1), trace: i64::MAX };
                at.map_or(end, |at| at.min(end))
            }
        };
        let mut page: Vec<TraceRecords> = Vec::new();
        let mut left = MAX_GROUP_BYTES;
        // PostgreSQL computes all rows of a statement before the first one is read.
        let mut portion = MAX_PAGE_TRACES;
        loop {
            let mut rows = statement.query(params![project, at.start_ns, at.trace, portion as i64])?;
            let mut read = 0;
            while let Some(row) = rows.next()? {
                read += 1;
                let (start_ns, end_ns): (i64, i64) = (row.get(0)?, row.get(4)?);
                at = ProjectPosition { start_ns, trace: row.get(1)? };
                if start_ns >= walk.before_ns {
                    return Ok(page);
                }
                if end_ns < walk.ended_from_ns {
                    continue;
                }
                let Some(trace) = read_trace(sql, &row, &mut left, !page.is_empty())? else { return Ok(page) };
                page.push(trace);
                if page.len() >= MAX_PAGE_TRACES || left < MAX_GROUP_BYTES - PAGE_BYTES {
                    return Ok(page);
                }
            }
            if read < portion {
                return Ok(page);
            }
            at.trace += if walk.newest_first { -1 } else { 1 };
            portion = (portion * PORTION_GROWTH).min(MAX_PORTION_TRACES);
        }
    }

    /// One trace of a project; `None` if it does not exist.
    pub fn trace_records(&self, project: i64, id: TraceId) -> Result<Option<TraceRecords>, StoreError> {
        let reader = self.readers.take_reader()?;
        let sql: &SqlConnection = &*reader.snapshot()?;
        let id = id.0.to_be_bytes();
        let mut statement = sql.prepare_cached(
            "SELECT start_ns, no, trace_id, has_versions, end_ns FROM trace WHERE trace_id = ? AND project = ?",
        )?;
        let mut rows = statement.query(params![&id[..], project])?;
        match rows.next()? {
            Some(row) => read_trace(sql, &row, &mut { MAX_GROUP_BYTES }, false),
            None => Ok(None),
        }
    }

    /// Position of a trace in a project; `None` if it does not exist.
    pub fn trace_position(&self, project: i64, id: TraceId) -> Result<Option<ProjectPosition>, StoreError> {
        let reader = self.readers.take_reader()?;
        let id = id.0.to_be_bytes();
        let position = reader
            .prepare_cached("SELECT start_ns, no FROM trace WHERE trace_id = ? AND project = ?")?
            .query_row(params![&id[..], project], |row| {
                Ok(ProjectPosition { start_ns: row.get(0)?, trace: row.get(1)? })
            })
            .optional()?;
        Ok(position)
    }
}

/// Reads a trace; `None` if it does not fit and should wait for a page of its own.
fn read_trace(
    sql: &SqlConnection,
    row: &SqlRow<'_>,
    left: &mut usize,
    may_wait: bool,
) -> Result<Option<TraceRecords>, StoreError> {
    let trace: i64 = row.get(1)?;
    let mut blocks = Vec::new();
    let is_cut = *left == 0 || read_blocks(sql, trace, 0, left, &mut blocks)?.is_some();
    if is_cut && may_wait {
        return Ok(None);
    }
    let mut versions = HashMap::new();
    if row.get(3)? {
        read_versions(sql, trace, &mut versions)?;
    }
    Ok(Some(TraceRecords {
        position: ProjectPosition { start_ns: row.get(0)?, trace },
        trace_id: TraceId(u128::from_be_bytes(row.get(2)?)),
        end_ns: row.get(4)?,
        is_cut,
        blocks,
        versions,
    }))
}
