//! Raw records: of one trace group, for assembly, and of a whole project, page by page.

use std::collections::HashMap;
use std::ops::ControlFlow;

use crate::sql::{KeyStart, SqlConnection, SqlParam, params};
use gradus_core::span::{SpanId, TraceId};

use super::project_number;
use crate::Store;
use crate::compress::decompress_bytes;
use crate::error::StoreError;
use crate::monitor::check_query;
use crate::records::BlockSignal;

/// Records of one trace that arrived together, as an OTLP export request.
#[derive(Clone, Debug)]
pub struct StoredBlock {
    pub no: i64,
    pub trace: i64,
    pub signal: BlockSignal,
    pub arrived_ns: i64,
    pub export: Vec<u8>,
}

/// The records of traces that are assembled together.
#[derive(Clone, Debug, Default)]
pub struct StoredTraceGroup {
    pub no: i64,
    pub traces: Vec<TraceId>,
    /// Project of each trace.
    pub projects: HashMap<TraceId, String>,
    pub blocks: Vec<StoredBlock>,
    /// For traces with spans in several versions: the block with the version that counts.
    pub versions: HashMap<(i64, SpanId), i64>,
    /// The time of the last arrival, if it is in the ready queue.
    pub due_ns: Option<i64>,
    /// Whether it is larger than what is assembled at once. The rest is missing.
    pub is_cut: bool,
}

impl StoredTraceGroup {
    /// Whether a block has the version of a span that counts.
    pub fn is_current_version(&self, block: &StoredBlock, span: SpanId) -> bool {
        self.versions.get(&(block.trace, span)).is_none_or(|no| *no == block.no)
    }
}

/// Position among the traces of a project, in order of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProjectPosition {
    pub start_ns: i64,
    pub trace: i64,
}

/// Position among the records of a project.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PagePosition {
    at: ProjectPosition,
    /// The last block of the trace that was read; `None` if all were.
    block: Option<i64>,
}

/// How much of a trace group is read. Of a larger group, the records that arrived first are read.
#[derive(Clone, Copy, Debug)]
pub struct TraceGroupLimits {
    /// Bytes of its records, decompressed. The block that exceeds them is still included.
    pub bytes: usize,
    /// Groups with more spans than this are not read at all.
    pub spans: i64,
}

impl Default for TraceGroupLimits {
    fn default() -> Self {
        TraceGroupLimits { bytes: MAX_GROUP_BYTES, spans: i64::MAX }
    }
}

/// Maximum bytes of one trace group in memory.
pub(super) const MAX_GROUP_BYTES: usize = 64 << 20;
/// Maximum number of spans with several versions that are tracked in one trace.
const MAX_TRACKED_VERSIONS: u32 = 500_000;
/// Maximum number of traces in one page. With small traces, this limit ends a page before its size does.
const MAX_PAGE_TRACES: i64 = 64;
/// Size after which a page ends. The block that exceeds it is still included.
const PAGE_BYTES: usize = 4 << 20;

impl Store {
    /// The records of a trace group, within the default limits.
    pub fn trace_group(&self, trace_group: i64) -> Result<StoredTraceGroup, StoreError> {
        self.open_snapshot()?.trace_group_within(trace_group, TraceGroupLimits::default())
    }

    /// The next traces of a project with their records, in order of time; `None` at the end. A trace that is larger
    /// than a page is spread over several.
    pub fn read_project_page(
        &self,
        project: &str,
        after: Option<PagePosition>,
    ) -> Result<Option<(StoredTraceGroup, PagePosition)>, StoreError> {
        let reader = self.readers.take_reader()?;
        // One read transaction, so that blocks and versions agree.
        let sql: &SqlConnection = &*reader.snapshot()?;
        let Some(project) = project_number(sql, project)? else { return Ok(None) };
        let beginning = ProjectPosition { start_ns: i64::MIN, trace: 0 };
        let after = after.unwrap_or(PagePosition { at: beginning, block: None });
        let mut statement = sql.prepare_cached(
            "SELECT start_ns, no, trace_id, has_versions FROM trace INDEXED BY trace_by_project \
             WHERE project = ? AND (start_ns, no) >= (?, ?) ORDER BY start_ns, no LIMIT ?",
        )?;
        let values = params![project, after.at.start_ns, after.at.trace, MAX_PAGE_TRACES];
        let mut rows = statement.query(values)?;
        let mut page = StoredTraceGroup::default();
        let mut last = None;
        let mut left = PAGE_BYTES;
        while let Some(row) = rows.next()? {
            let at = ProjectPosition { start_ns: row.get(0)?, trace: row.get(1)? };
            let is_begun = at == after.at;
            let after_block = match after.block {
                None if is_begun => continue,
                Some(block) if is_begun => block,
                _ => 0,
            };
            let block = read_blocks(sql, at.trace, after_block, &mut left, &mut page.blocks)?;
            page.traces.push(TraceId(u128::from_be_bytes(row.get(2)?)));
            if row.get(3)? {
                read_versions(sql, at.trace, &mut page.versions)?;
            }
            last = Some(PagePosition { at, block });
            if block.is_some() || left == 0 {
                break;
            }
        }
        Ok(last.map(|last| (page, last)))
    }
}

/// Reads the records of a trace group. The caller reads in one transaction.
pub(crate) fn read_trace_group(
    sql: &SqlConnection,
    trace_group: i64,
    limits: TraceGroupLimits,
) -> Result<StoredTraceGroup, StoreError> {
    let traces: Vec<(i64, [u8; 16], bool, String, i64)> = sql
        .prepare_cached(
            "SELECT t.no, trace_id, has_versions, project.name, t.spans FROM ( \
             SELECT no, trace_id, has_versions, project, spans FROM trace WHERE no = ?1 AND story = ?1 UNION ALL \
             SELECT no, trace_id, has_versions, project, spans FROM trace WHERE story = ?1 AND story <> no) t \
             JOIN project ON project.no = t.project",
        )?
        .query_map([trace_group], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?)))?
        .collect::<Result<_, _>>()?;
    let mut found = StoredTraceGroup { no: trace_group, ..StoredTraceGroup::default() };
    found.due_ns = sql
        .prepare_cached("SELECT max(arrived_ns) FROM due WHERE story = ?")?
        .query_row([trace_group], |row| row.get(0))?;
    if traces.iter().map(|(_, _, _, _, spans)| *spans).sum::<i64>() > limits.spans {
        found.is_cut = true;
        return Ok(found);
    }
    let mut left = limits.bytes;
    for (trace, id, has_versions, project, _) in traces {
        let id = TraceId(u128::from_be_bytes(id));
        found.traces.push(id);
        found.projects.insert(id, project);
        found.is_cut |= left == 0 || read_blocks(sql, trace, 0, &mut left, &mut found.blocks)?.is_some();
        if has_versions {
            read_versions(sql, trace, &mut found.versions)?;
        }
    }
    Ok(found)
}

/// Reads the blocks of a trace behind a block, and returns the last one if there are more than fit. The first block is
/// read whatever its size, so that every call makes progress.
pub(super) fn read_blocks(
    sql: &SqlConnection,
    trace: i64,
    after: i64,
    left: &mut usize,
    blocks: &mut Vec<StoredBlock>,
) -> Result<Option<i64>, StoreError> {
    let (mut last, mut is_cut) = (None, false);
    let first = after.saturating_add(1);
    sql.visit_bodies(BLOCKS_OF_TRACE, &[SqlParam::Integer(trace)], first, |row| -> Result<_, StoreError> {
        if *left == 0 && last.is_some() {
            is_cut = true;
            return Ok(ControlFlow::Break(()));
        }
        check_query()?;
        let export = decompress_bytes(row.get_ref(1)?.as_blob())?;
        *left = left.saturating_sub(export.len());
        let no = row.get(0)?;
        blocks.push(StoredBlock {
            no,
            trace,
            signal: signal_from_number(row.get(2)?),
            arrived_ns: row.get(3)?,
            export,
        });
        last = Some(no);
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(last.filter(|_| is_cut))
}

/// The blocks of a trace from one on, for [`SqlConnection::visit_bodies`].
pub(crate) const BLOCKS_OF_TRACE: &str =
    "SELECT no, body, signal, arrived_ns FROM block WHERE trace = ? AND no >= ? ORDER BY no LIMIT ?";
/// The spans of a trace with the block of each, for [`SqlConnection::visit_rows`].
pub(crate) const SPANS_OF_TRACE: &str =
    "SELECT span_id, block FROM span WHERE trace = ? AND span_id >= ? ORDER BY span_id LIMIT ?";

/// The signal of a block from the number in the database.
pub(crate) fn signal_from_number(number: i64) -> BlockSignal {
    if number == 1 { BlockSignal::Logs } else { BlockSignal::Spans }
}

/// For each span of a trace, the block with the version that counts. Only needed for traces that have several versions.
pub(super) fn read_versions(
    sql: &SqlConnection,
    trace: i64,
    versions: &mut HashMap<(i64, SpanId), i64>,
) -> Result<(), StoreError> {
    let mut left = MAX_TRACKED_VERSIONS;
    sql.visit_rows(SPANS_OF_TRACE, &[SqlParam::Integer(trace)], KeyStart::FIRST, |row| -> Result<_, StoreError> {
        versions.insert((trace, SpanId(row.get::<i64>(0)? as u64)), row.get(1)?);
        left -= 1;
        Ok(if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::{assert_plan, open_writer};

    #[test]
    fn records_of_a_trace_are_found_through_indexes() {
        let folder = tempfile::tempdir().unwrap();
        let sql = open_writer(&folder.path().join("store.db")).unwrap();
        assert_plan(&sql, BLOCKS_OF_TRACE, "block_by_trace (trace=? AND rowid>?)");
        assert_plan(&sql, SPANS_OF_TRACE, "PRIMARY KEY (trace=? AND span_id>?)");
    }
}
