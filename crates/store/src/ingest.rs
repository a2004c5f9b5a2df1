//! Stores the records of a request, which the receiver has split by trace.

use crate::records::BlockSignal;
use std::sync::Arc;

use crate::sql::{OptionalRow, SqlConnection, SqlError, params};
use gradus_core::span::{SpanId, TraceId};

use crate::compress::compress_bytes;
use crate::error::StoreError;
use crate::records::FacetKind;
use crate::writer::WriteContext;

/// Records of one trace that arrived together.
#[derive(Clone, Debug)]
pub struct TraceChunk {
    pub trace_id: TraceId,
    pub project: Arc<str>,
    pub signal: BlockSignal,
    /// The spans of a chunk of spans; empty for log records.
    pub spans: Vec<SpanKey>,
    /// 0 and `u64::MAX` mean that the time is not known.
    pub start_ns: u64,
    pub end_ns: u64,
    /// Name of the first span, for traces whose root has not arrived yet.
    pub name: String,
    pub root: Option<RootSpan>,
    pub links: Vec<(LinkKind, u64)>,
    /// Of the whole export, to recognise repeated log records. 0 for spans.
    pub(crate) digest: u64,
    /// The export, compressed.
    pub(crate) body: Vec<u8>,
}

/// What the store keeps of a span in addition to its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanKey {
    pub span_id: SpanId,
    /// Of the encoded span: two versions of a span differ in it.
    pub digest: u64,
    pub has_ended: bool,
    /// It ended in an error.
    pub is_error: bool,
}

/// A span without a parent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootSpan {
    pub name: String,
    pub has_ended: bool,
}

/// How a trace is linked to others: by its session, by the conversation after it, or by a conversation that it
/// continues. The values are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkKind {
    Session = 0,
    Leaves = 1,
    Continues = 2,
}

impl TraceChunk {
    /// A chunk with these records. `export` is an OTLP export request with only them. Compresses it, so this should not
    /// run on an async thread.
    pub fn new(trace_id: TraceId, project: Arc<str>, signal: BlockSignal, export: &[u8]) -> TraceChunk {
        TraceChunk {
            trace_id,
            project,
            signal,
            spans: Vec::new(),
            start_ns: u64::MAX,
            end_ns: 0,
            name: String::new(),
            root: None,
            links: Vec::new(),
            // Spans are recognised by their ids and their own digests. Only log records need this one.
            digest: match signal {
                BlockSignal::Spans => 0,
                BlockSignal::Logs => gradus_core::stable_digest(export) as u64,
            },
            body: compress_bytes(export),
        }
    }

    /// Approximate memory, for the budget of the write queue.
    pub fn memory_bytes(&self) -> usize {
        self.body.len()
            + self.spans.len() * size_of::<SpanKey>()
            + self.links.len() * size_of::<(LinkKind, u64)>()
            + self.name.len()
            + 200
    }
}

/// What happened to the records of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IngestCounts {
    pub new: u64,
    /// Were stored already.
    pub repeated: u64,
    /// Replaced an earlier version.
    pub replaced: u64,
}

/// A time as the database stores it. Times after 2262 do not fit and are not real. The last value is reserved, so that
/// every time is before another one.
fn clamp_timestamp(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX).min(i64::MAX - 1)
}

/// Start and end of the records of a chunk, if they state them.
pub(crate) fn chunk_time_range(chunk: &TraceChunk) -> Option<(i64, i64)> {
    let start_ns = clamp_timestamp(Some(chunk.start_ns).filter(|ns| !matches!(ns, 0 | &u64::MAX))?);
    Some((start_ns, clamp_timestamp(chunk.end_ns).max(start_ns)))
}

/// Maximum number of traces in one trace group. A further trace begins a new group: a session without end must not be
/// assembled as a whole for each of its calls.
const MAX_GROUP_TRACES: i64 = 200;
/// Maximum number of trace groups that one link of a trace may merge.
const MAX_MERGED_GROUPS: usize = 8;

/// Stores the chunks of one request. The caller runs this in a transaction, so it is all or nothing.
pub(crate) fn ingest_chunks(
    writing: &mut WriteContext<'_>,
    chunks: &[TraceChunk],
    now_ns: i64,
) -> Result<IngestCounts, StoreError> {
    let mut ingested = IngestCounts::default();
    let mut numbers = TraceNumbers::default();
    for chunk in chunks {
        ingest_chunk(writing, chunk, now_ns, &mut numbers, &mut ingested)?;
    }
    Ok(ingested)
}

/// Numbers for new traces, as SQLite itself would assign them. Known before the rows are written, so that a row is
/// written once and complete.
#[derive(Default)]
struct TraceNumbers {
    last: Option<i64>,
}

impl TraceNumbers {
    /// The next number. Only the writer assigns numbers, so no other process can take it.
    fn next(&mut self, sql: &SqlConnection) -> Result<i64, StoreError> {
        let last = match self.last {
            Some(last) => last,
            None => sql
                .prepare_cached("SELECT max(no) FROM trace")?
                .query_row((), |row| row.get::<Option<i64>>(0))?
                .unwrap_or(0),
        };
        self.last = Some(last + 1);
        Ok(last + 1)
    }
}

/// The row of a trace before the chunk is added.
struct KnownTrace {
    no: i64,
    /// State of the root span: 0 not seen, 1 running, 2 ended.
    root: i64,
    is_new: bool,
    trace_group: i64,
    project: i64,
    start_ns: i64,
}

/// Stores one chunk and puts its trace group into the ready queue.
fn ingest_chunk(
    writing: &mut WriteContext<'_>,
    chunk: &TraceChunk,
    now_ns: i64,
    numbers: &mut TraceNumbers,
    ingested: &mut IngestCounts,
) -> Result<(), StoreError> {
    let sql = writing.sql;
    let project = writing.projects.get_or_create(&chunk.project, sql, now_ns)?;
    let trace = match find_known_trace(sql, chunk.trace_id)? {
        Some(known) => known,
        None => {
            let no = numbers.next(sql)?;
            KnownTrace { no, root: 0, is_new: true, trace_group: no, project, start_ns: i64::MAX }
        }
    };
    let records = chunk.spans.len().max(1) as u64;
    if chunk.signal == BlockSignal::Logs && !trace.is_new && is_known_block(sql, trace.no, chunk)? {
        // Log records have no ids, so a repeated request is recognised by its bytes.
        ingested.repeated += records;
        return Ok(());
    }
    let block = insert_block(sql, trace.no, chunk, now_ns)?;
    let (found, errors) = match chunk.signal {
        BlockSignal::Spans => insert_spans(sql, &trace, block, &chunk.spans)?,
        BlockSignal::Logs => (IngestCounts { new: 1, ..IngestCounts::default() }, 0),
    };
    ingested.new += found.new;
    ingested.repeated += found.repeated;
    ingested.replaced += found.replaced;
    if found.new + found.replaced == 0 {
        sql.prepare_cached("DELETE FROM block WHERE no = ?")?.execute([block])?;
        // A trace without any record still gets its row.
        return match trace.is_new {
            true => insert_trace(sql, chunk, trace.no, &TraceDelta { project, ..TraceDelta::default() }, now_ns),
            false => Ok(()),
        };
    }
    let root_state = trace.root.max(chunk.root.as_ref().map_or(0, |root| 1 + i64::from(root.has_ended)));
    let added = TraceDelta {
        project,
        root_state,
        spans: if chunk.signal == BlockSignal::Spans { found.new } else { 0 },
        errors,
        bytes: chunk.body.len(),
        has_versions: found.replaced > 0 || found.repeated > 0,
    };
    if trace.is_new {
        insert_trace(sql, chunk, trace.no, &added, now_ns)?;
    } else {
        update_trace(sql, chunk, &trace, &added, now_ns)?;
    }
    let trace_group = if chunk.links.is_empty() {
        trace.trace_group
    } else {
        link_trace(sql, trace.no, trace.trace_group, &chunk.links)?.trace_group
    };
    if errors > 0 {
        insert_error_facet(sql, trace.no)?;
    }
    queue_trace_group(sql, trace_group, project, root_state == 2, now_ns)
}

/// Puts a trace group into the ready queue.
pub(crate) fn queue_trace_group(
    sql: &SqlConnection,
    trace_group: i64,
    project: i64,
    is_ended: bool,
    now_ns: i64,
) -> Result<(), StoreError> {
    // Records that arrive while a group is assembled must change its time of arrival, even if the clock stands still.
    sql.prepare_cached(
        "INSERT INTO due (story, arrived_ns, is_ended, project) VALUES (?, ?, ?, ?) ON CONFLICT (story) DO UPDATE SET \
         arrived_ns = excluded.arrived_ns + CASE WHEN excluded.arrived_ns = due.arrived_ns THEN 1 ELSE 0 END, \
         is_ended = excluded.is_ended",
    )?
    .execute(params![trace_group, now_ns, is_ended, project])?;
    Ok(())
}

/// Changes of a trace by one chunk.
#[derive(Default)]
struct TraceDelta {
    project: i64,
    root_state: i64,
    spans: u64,
    errors: i64,
    bytes: usize,
    has_versions: bool,
}

/// A statement with triggers could fail halfway, so SQLite copies every page before it changes it: into a file, if they
/// are many. Here the whole task is rolled back on failure. SQLite spares the copies where nothing in the statement or its
/// triggers can abort: conflicts FAIL, the number is the one that SQLite assigns itself, and no function is called.
const INSERT_TRACE: &str = "INSERT OR FAIL INTO trace (trace_id, project, name, start_ns, end_ns, spans, errors, bytes, \
     has_root, has_versions, story, arrived_ns, first_arrived_ns) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?12)";

/// See [`INSERT_TRACE`].
const UPDATE_TRACE: &str = "UPDATE OR FAIL trace SET end_ns = CASE WHEN ?2 > end_ns THEN ?2 ELSE end_ns END, \
     spans = spans + ?3, errors = errors + ?4, bytes = bytes + ?5, has_root = ?6, has_versions = has_versions OR ?7, \
     arrived_ns = ?8, name = coalesce(?9, name) WHERE no = ?1";

/// Inserts the row of a new trace.
fn insert_trace(
    sql: &SqlConnection,
    chunk: &TraceChunk,
    no: i64,
    added: &TraceDelta,
    now_ns: i64,
) -> Result<(), StoreError> {
    // Records without a time are listed by their arrival.
    let (start_ns, end_ns) = chunk_time_range(chunk).unwrap_or((now_ns, now_ns));
    let assigned = sql.insert_numbered(
        INSERT_TRACE,
        params![
            &chunk.trace_id.0.to_be_bytes()[..],
            added.project,
            chunk.root.as_ref().map_or(chunk.name.as_str(), |root| &root.name),
            start_ns,
            end_ns,
            added.spans,
            added.errors,
            added.bytes,
            added.root_state,
            added.has_versions,
            no,
            now_ns,
        ],
    )?;
    // Spans and blocks of the trace have this number already.
    if assigned != no {
        return Err(StoreError::Sql(format!("a new trace got the number {assigned} instead of {no}")));
    }
    Ok(())
}

/// Adds a chunk to the row of a trace.
fn update_trace(
    sql: &SqlConnection,
    chunk: &TraceChunk,
    trace: &KnownTrace,
    added: &TraceDelta,
    now_ns: i64,
) -> Result<(), StoreError> {
    let (start_ns, end_ns) = chunk_time_range(chunk).unwrap_or((i64::MAX, 0));
    // Project and name of the root span are those of the trace; until it arrives, those of the first span.
    let root = chunk.root.as_ref();
    sql.prepare_cached(UPDATE_TRACE)?.execute(params![
        trace.no,
        end_ns,
        added.spans,
        added.errors,
        added.bytes,
        added.root_state,
        added.has_versions,
        now_ns,
        root.map(|root| &root.name),
    ])?;
    // Indexed columns are written only if they change: setting one moves its index entries even if the value is the
    // same.
    if start_ns < trace.start_ns {
        sql.prepare_cached("UPDATE trace SET start_ns = ?2 WHERE no = ?1")?.execute([trace.no, start_ns])?;
    }
    if root.is_some() && added.project != trace.project {
        sql.prepare_cached("UPDATE trace SET project = ?2 WHERE no = ?1")?.execute([trace.no, added.project])?;
        sql.prepare_cached("UPDATE annotation SET project = ? WHERE trace = ?")?.execute([added.project, trace.no])?;
    }
    Ok(())
}

/// Adds an error facet to a trace before it is assembled, so that filters find it.
fn insert_error_facet(sql: &SqlConnection, trace: i64) -> Result<(), StoreError> {
    sql.prepare_cached(
        "INSERT INTO facet (project, kind, value, start_ns, trace) SELECT project, ?2, '', start_ns, no FROM trace \
         WHERE no = ?1 AND NOT EXISTS (SELECT 1 FROM facet WHERE trace = ?1 AND kind = ?2)",
    )?
    .execute(params![trace, FacetKind::Error as i64])?;
    Ok(())
}

/// Returns the row of a trace; `None` if it is not stored.
fn find_known_trace(sql: &SqlConnection, trace_id: TraceId) -> Result<Option<KnownTrace>, StoreError> {
    let id = trace_id.0.to_be_bytes();
    let known = sql
        .prepare_cached("SELECT no, has_root, story, project, start_ns FROM trace WHERE trace_id = ?")?
        .query_row([&id[..]], |row| {
            Ok(KnownTrace {
                no: row.get(0)?,
                root: row.get(1)?,
                is_new: false,
                trace_group: row.get(2)?,
                project: row.get(3)?,
                start_ns: row.get(4)?,
            })
        })
        .optional()?;
    Ok(known)
}

/// Whether the same log records were stored before.
fn is_known_block(sql: &SqlConnection, trace: i64, chunk: &TraceChunk) -> Result<bool, StoreError> {
    let mut statement = sql.prepare_cached("SELECT 1 FROM block WHERE trace = ? AND digest = ? AND signal = ?")?;
    Ok(statement.exists(params![trace, chunk.digest as i64, chunk.signal as i64])?)
}

/// Stores the compressed export. Returns the number of the block.
fn insert_block(sql: &SqlConnection, trace: i64, chunk: &TraceChunk, now_ns: i64) -> Result<i64, StoreError> {
    let insert = "INSERT INTO block (trace, signal, arrived_ns, digest, body) VALUES (?, ?, ?, ?, ?)";
    let values = params![trace, chunk.signal as i64, now_ns, chunk.digest as i64, chunk.body];
    Ok(sql.insert_numbered(insert, values)?)
}

/// Inserts spans. Returns their counts, and the change of the number of spans with an error.
fn insert_spans(
    sql: &SqlConnection,
    trace: &KnownTrace,
    block: i64,
    spans: &[SpanKey],
) -> Result<(IngestCounts, i64), StoreError> {
    let mut insert = sql.prepare_cached(
        "INSERT INTO span (trace, span_id, block, digest, ended, error) VALUES (?, ?, ?, ?, ?, ?) \
         ON CONFLICT DO NOTHING",
    )?;
    let (mut found, mut errors) = (IngestCounts::default(), 0);
    for span in spans {
        let (id, digest) = (span.span_id.0 as i64, span.digest as i64);
        let values = params![trace.no, id, block, digest, span.has_ended, span.is_error];
        if insert.execute(values)? == 1 {
            found.new += 1;
            errors += i64::from(span.is_error);
            continue;
        }
        // The later version counts, but a running span does not replace one that has ended.
        let was_error: Option<bool> = sql
            .prepare_cached("SELECT error FROM span WHERE trace = ? AND span_id = ? AND digest <> ? AND ended <= ?")?
            .query_row(params![trace.no, id, digest, span.has_ended], |row| row.get(0))
            .optional()?;
        let Some(was_error) = was_error else {
            found.repeated += 1;
            continue;
        };
        sql.prepare_cached(
            "UPDATE span SET block = ?3, digest = ?4, ended = ?5, error = ?6 WHERE trace = ?1 AND span_id = ?2",
        )?
        .execute(values)?;
        found.replaced += 1;
        errors += i64::from(span.is_error) - i64::from(was_error);
    }
    Ok((found, errors))
}

/// The result of linking a trace.
pub(crate) struct TraceLinkResult {
    pub(crate) trace_group: i64,
    /// Whether trace groups were merged.
    pub(crate) has_united: bool,
}

/// Links a trace to those that it belongs with, and merges their groups.
pub(crate) fn link_trace(
    sql: &SqlConnection,
    trace: i64,
    trace_group: i64,
    links: &[(LinkKind, u64)],
) -> Result<TraceLinkResult, StoreError> {
    let mut tied = TraceLinkResult { trace_group, has_united: false };
    lock_link_keys(sql, links)?;
    for (kind, key) in links {
        let key = *key as i64;
        sql.prepare_cached("INSERT INTO link (key, kind, trace) VALUES (?, ?, ?) ON CONFLICT DO NOTHING")?
            .execute(params![key, *kind as i64, trace])?;
        // A conversation that one trace leaves, others continue. Only a conversation that some trace has left can be
        // continued.
        let kinds: &[LinkKind] = match kind {
            LinkKind::Session => &[LinkKind::Session],
            LinkKind::Leaves => &[LinkKind::Leaves, LinkKind::Continues],
            LinkKind::Continues => &[LinkKind::Leaves],
        };
        // Only the latest traces are considered: earlier ones were linked when they came, or their group is full. A
        // long session must not be read completely for each of its traces.
        let mut others: Vec<i64> = Vec::new();
        for kind in kinds {
            let mut latest = sql.prepare_cached(
                "SELECT trace.story FROM link CROSS JOIN trace ON trace.no = link.trace \
                 WHERE link.key = ? AND link.kind = ? AND link.trace <> ? ORDER BY link.trace DESC LIMIT 64",
            )?;
            for other in latest.query_map(params![key, *kind as i64, trace], |row| row.get(0))? {
                let other = other?;
                if others.len() < MAX_MERGED_GROUPS && !others.contains(&other) {
                    others.push(other);
                }
            }
        }
        for other in others {
            if let Some(one) = merge_trace_groups(sql, tied.trace_group, other)? {
                tied = TraceLinkResult { trace_group: one, has_united: true };
            }
        }
    }
    Ok(tied)
}

/// Other servers that link traces by the same keys wait until this one is done: otherwise neither would see the trace of
/// the other. SQLite has one writer only.
fn lock_link_keys(sql: &SqlConnection, links: &[(LinkKind, u64)]) -> Result<(), StoreError> {
    if sql.sqlite().is_some() {
        return Ok(());
    }
    let mut keys: Vec<i64> = links.iter().map(|(_, key)| *key as i64).collect();
    // In one order, so that two servers cannot wait for each other.
    keys.sort_unstable();
    keys.dedup();
    for key in keys {
        sql.prepare_cached("SELECT 1 FROM pg_advisory_xact_lock(?)")?.exists([key])?;
    }
    Ok(())
}

/// Links a trace by features that were found when it was assembled. Returns whether it is in another group now, which
/// enters the ready queue.
pub(crate) fn link_assembled_trace(
    sql: &SqlConnection,
    trace_id: TraceId,
    links: &[(LinkKind, u64)],
    now_ns: i64,
) -> Result<bool, StoreError> {
    let id = trace_id.0.to_be_bytes();
    let known = sql
        .prepare_cached("SELECT no, story FROM trace WHERE trace_id = ?")?
        .query_row([&id[..]], |row| Ok((row.get::<i64>(0)?, row.get::<i64>(1)?)))
        .optional()?;
    let Some((no, before)) = known else { return Ok(false) };
    let tied = link_trace(sql, no, before, links)?;
    if tied.has_united {
        sql.prepare_cached(
            "INSERT INTO due (story, arrived_ns, is_ended, project) \
             SELECT no, ?2, TRUE, project FROM trace WHERE no = ?1 \
             ON CONFLICT (story) DO UPDATE SET arrived_ns = max(due.arrived_ns + 1, excluded.arrived_ns)",
        )?
        .execute(params![tied.trace_group, now_ns])?;
    }
    Ok(tied.has_united)
}

/// Merges two trace groups. Returns `None` if they are the same, would have too many traces, or one is quarantined: a
/// trace that cannot be assembled must not affect others.
fn merge_trace_groups(sql: &SqlConnection, a: i64, b: i64) -> Result<Option<i64>, StoreError> {
    let (low, high) = (a.min(b), a.max(b));
    if low == high {
        return Ok(None);
    }
    let traces = |trace_group: i64| -> Result<i64, SqlError> {
        sql.prepare_cached("SELECT 1 + count(*) FROM trace WHERE story = ? AND story <> no")?
            .query_row([trace_group], |row| row.get(0))
    };
    if traces(low)? + traces(high)? > MAX_GROUP_TRACES {
        return Ok(None);
    }
    let mut quarantined =
        sql.prepare_cached("SELECT 1 FROM due WHERE story IN (?, ?) AND quarantined_ns IS NOT NULL")?;
    if quarantined.exists([low, high])? {
        return Ok(None);
    }
    sql.prepare_cached("UPDATE trace SET story = ?1 WHERE story = ?2 AND story <> no")?.execute([low, high])?;
    sql.prepare_cached("UPDATE trace SET story = ?1 WHERE no = ?2 AND story = ?2")?.execute([low, high])?;
    sql.prepare_cached("UPDATE trajectory SET story = ?1 WHERE story = ?2")?.execute([low, high])?;
    // Failed attempts of either group count for the merged one.
    sql.prepare_cached(
        "INSERT INTO due (story, arrived_ns, is_ended, project, attempts, is_suspect) \
         SELECT ?1, arrived_ns, is_ended, project, attempts, is_suspect FROM due \
         WHERE story = ?2 AND (attempts > 0 OR is_suspect > 0) \
         ON CONFLICT (story) DO UPDATE SET attempts = max(due.attempts, excluded.attempts), \
         is_suspect = max(due.is_suspect, excluded.is_suspect)",
    )?
    .execute([low, high])?;
    sql.prepare_cached("DELETE FROM due WHERE story = ?")?.execute([high])?;
    Ok(Some(low))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::open_writer;
    use crate::grading::INSERT_NEW_TRAJECTORY;

    /// In a statement with triggers, an instruction that may abort makes SQLite copy each page before it is changed.
    #[test]
    fn statements_of_the_hot_path_need_no_copies_of_pages() {
        let folder = tempfile::tempdir().unwrap();
        let sql = open_writer(&folder.path().join("store.db")).unwrap();
        // The conditions are those of `sqlite3VdbeAssertMayAbort` in SQLite.
        let may_abort = |statement: &str| {
            let mut explain = sql.prepare(&format!("EXPLAIN {statement}")).unwrap();
            let rows = explain.raw_query().mapped(|row| Ok((row.get(1)?, row.get(2)?, row.get(3)?)));
            let program: Vec<(String, i64, i64)> = rows.collect::<Result<_, _>>().unwrap();
            const ABORT: i64 = 2;
            program.iter().any(|(operation, p1, p2)| match operation.as_str() {
                "MustBeInt" => *p2 == 0,
                "Function" | "PureFunc" | "VUpdate" => true,
                "Halt" | "HaltIfNull" => *p1 != 0 && *p2 == ABORT,
                _ => false,
            })
        };
        for statement in [INSERT_TRACE, UPDATE_TRACE, INSERT_NEW_TRAJECTORY] {
            assert!(!may_abort(statement), "{statement}");
        }
        assert!(may_abort(&INSERT_TRACE.replacen("(trace_id", "(no, trace_id", 1).replacen("(?1", "(99, ?1", 1)));
        assert!(may_abort(&INSERT_TRACE.replacen(" OR FAIL", "", 1)));
        assert!(may_abort("UPDATE OR FAIL trace SET end_ns = max(end_ns, ?2), spans = spans + ?3 WHERE no = ?1"));
    }
}
