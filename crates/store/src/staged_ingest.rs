//! Stores the records of a request in PostgreSQL: copies them into temporary tables in binary form, and lets the server
//! move them on (`ingest_staged` in the migrations). A request costs a few round trips, however many spans it has.

use ::postgres::binary_copy::BinaryCopyInWriter;
use ::postgres::types::Type;

use crate::error::StoreError;
use crate::ingest::{IngestCounts, TraceChunk, chunk_time_range, link_trace, queue_trace_group};
use crate::records::{BlockSignal, FacetKind};
use crate::sql::SqlError;
use crate::sql::postgres::{PostgresConnection, replace_nul_chars};
use crate::writer::WriteContext;

/// The temporary tables of a connection. They are empty after each transaction. Bodies are compressed already.
const STAGING_TABLES: &str = "CREATE TEMPORARY TABLE IF NOT EXISTS staged_chunk (task BIGINT, ord BIGINT, trace_id BYTEA, \
    project BIGINT, signal BIGINT, start_ns BIGINT, end_ns BIGINT, name TEXT, root_state BIGINT, has_links BOOLEAN, \
    span_count BIGINT, error_facet BIGINT, digest BIGINT, body BYTEA) ON COMMIT DELETE ROWS; \
    ALTER TABLE pg_temp.staged_chunk ALTER COLUMN body SET STORAGE EXTERNAL; \
    CREATE TEMPORARY TABLE IF NOT EXISTS staged_span (task BIGINT, ord BIGINT, position BIGINT, span_id BIGINT, \
    digest BIGINT, ended BIGINT, error BIGINT) ON COMMIT DELETE ROWS";

const COPY_CHUNKS: &str = "COPY staged_chunk FROM STDIN BINARY";
const COPY_SPANS: &str = "COPY staged_span FROM STDIN BINARY";

const CHUNK_TYPES: [Type; 14] = [
    Type::INT8,
    Type::INT8,
    Type::BYTEA,
    Type::INT8,
    Type::INT8,
    Type::INT8,
    Type::INT8,
    Type::TEXT,
    Type::INT8,
    Type::BOOL,
    Type::INT8,
    Type::INT8,
    Type::INT8,
    Type::BYTEA,
];
const SPAN_TYPES: [Type; 7] = [Type::INT8, Type::INT8, Type::INT8, Type::INT8, Type::INT8, Type::INT8, Type::INT8];

/// What the server did with a chunk.
struct StagedResult {
    chunk: usize,
    trace: i64,
    trace_group: i64,
    root_state: i64,
    is_stored: bool,
    counts: IngestCounts,
}

/// Stores the chunks of one request. The caller runs this in a transaction, so it is all or nothing.
pub(crate) fn ingest_staged(
    writing: &mut WriteContext<'_>,
    connection: &PostgresConnection,
    chunks: &[TraceChunk],
    now_ns: i64,
) -> Result<IngestCounts, StoreError> {
    let sql = writing.sql;
    let mut projects = Vec::with_capacity(chunks.len());
    for chunk in chunks {
        projects.push(writing.projects.get_or_create(&chunk.project, sql, now_ns)?);
    }
    if connection.begin_staging() {
        sql.execute_batch(STAGING_TABLES)?;
    }
    // Distinguishes the requests of one transaction.
    let task = connection.next_task_number();
    copy_chunks(connection, task, chunks, &projects).map_err(SqlError::from)?;
    let mut statement = sql.prepare_cached(
        "SELECT ord, trace, story, root_state, is_stored, new_count, repeated_count, replaced_count \
         FROM ingest_staged(?, ?) ORDER BY ord",
    )?;
    let results: Vec<StagedResult> = statement
        .query_map([task, now_ns], |row| {
            Ok(StagedResult {
                chunk: row.get(0)?,
                trace: row.get(1)?,
                trace_group: row.get(2)?,
                root_state: row.get(3)?,
                is_stored: row.get(4)?,
                counts: IngestCounts { new: row.get(5)?, repeated: row.get(6)?, replaced: row.get(7)? },
            })
        })?
        .collect::<Result<_, _>>()?;
    let mut ingested = IngestCounts::default();
    for result in results {
        ingested.new += result.counts.new;
        ingested.repeated += result.counts.repeated;
        ingested.replaced += result.counts.replaced;
        let chunk = &chunks[result.chunk];
        if result.is_stored && !chunk.links.is_empty() {
            let linked = link_trace(sql, result.trace, result.trace_group, &chunk.links)?;
            queue_trace_group(sql, linked.trace_group, projects[result.chunk], result.root_state == 2, now_ns)?;
        }
    }
    connection.add_changes(ingested.new + ingested.replaced);
    Ok(ingested)
}

/// Copies chunks and spans to the server.
fn copy_chunks(
    connection: &PostgresConnection,
    task: i64,
    chunks: &[TraceChunk],
    projects: &[i64],
) -> Result<(), ::postgres::Error> {
    let mut client = connection.client();
    let error_facet = FacetKind::Error as i64;
    let mut rows = BinaryCopyInWriter::new(client.copy_in(COPY_CHUNKS)?, &CHUNK_TYPES);
    for (ord, (chunk, project)) in chunks.iter().zip(projects).enumerate() {
        let times = chunk_time_range(chunk);
        let root_state = chunk.root.as_ref().map_or(0, |root| 1 + i64::from(root.has_ended));
        let name = replace_nul_chars(chunk.root.as_ref().map_or(chunk.name.as_str(), |root| &root.name));
        rows.write(&[
            &task,
            &(ord as i64),
            &&chunk.trace_id.0.to_be_bytes()[..],
            project,
            &(chunk.signal as i64),
            &times.map(|(start_ns, _)| start_ns),
            &times.map(|(_, end_ns)| end_ns),
            &name,
            &root_state,
            &!chunk.links.is_empty(),
            &(chunk.spans.len() as i64),
            &error_facet,
            &(chunk.digest as i64),
            &chunk.body,
        ])?;
    }
    rows.finish()?;
    let mut rows = BinaryCopyInWriter::new(client.copy_in(COPY_SPANS)?, &SPAN_TYPES);
    for (ord, chunk) in chunks.iter().enumerate().filter(|(_, chunk)| chunk.signal == BlockSignal::Spans) {
        for (position, span) in chunk.spans.iter().enumerate() {
            rows.write(&[
                &task,
                &(ord as i64),
                &(position as i64),
                &(span.span_id.0 as i64),
                &(span.digest as i64),
                &i64::from(span.has_ended),
                &i64::from(span.is_error),
            ])?;
        }
    }
    rows.finish()?;
    Ok(())
}
