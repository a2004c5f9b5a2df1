//! Compaction: merges the blocks of a trace, and returns free space.

use std::ops::ControlFlow;

use crate::Store;
use crate::compress::{compress_bytes, decompress_bytes};
use crate::error::StoreError;
use crate::sql::{SqlConnection, SqlParam, params};

impl Store {
    /// Merges the blocks of each trace, and returns free space to the file system. Nobody else may use the store.
    pub fn compact(&self) -> Result<u64, StoreError> {
        let mut merged = 0;
        let mut after = 0;
        loop {
            let (count, last) = self.writer()?.submit(0, move |writing| merge_blocks(writing.sql, after))?.wait()?;
            merged += count;
            match last {
                Some(last) => after = last,
                None => break,
            }
        }
        let Some(path) = self.engine.file() else {
            // PostgreSQL's own vacuum returns free space.
            return Ok(merged);
        };
        let connection = crate::connection::open_writer(path)?;
        connection
            .execute_batch("INSERT INTO words (words) VALUES ('optimize'); VACUUM; PRAGMA wal_checkpoint(TRUNCATE)")?;
        Ok(merged)
    }
}

/// The span blocks of a trace.
const SPAN_BLOCKS: &str = "SELECT no, body FROM block WHERE trace = ? AND signal = 0 AND no >= ? ORDER BY no LIMIT ?";

/// Merges the blocks of the next traces that have more than one. Concatenated protobuf messages are one message, so
/// their bodies are simply joined.
fn merge_blocks(sql: &SqlConnection, after: i64) -> Result<(u64, Option<i64>), StoreError> {
    const TRACES: i64 = 100;
    /// Maximum bytes of a merged body, because a body is read into memory as a whole.
    const MAX_MERGED_BYTES: usize = 32 << 20;
    let traces: Vec<i64> = sql
        .prepare_cached(
            "SELECT trace FROM block WHERE trace > ? AND signal = 0 GROUP BY trace HAVING count(*) > 1 \
             ORDER BY trace LIMIT ?",
        )?
        .query_map([after, TRACES], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    let mut merged = 0;
    for trace in &traces {
        // Such traces stay as they are: the block of a span decides which of its versions counts.
        let has_versions: bool =
            sql.query_row("SELECT has_versions FROM trace WHERE no = ?", [trace], |row| row.get(0))?;
        if has_versions {
            continue;
        }
        let (mut first, mut block_count, mut export) = (None, 0, Vec::<u8>::new());
        sql.visit_bodies(SPAN_BLOCKS, &[SqlParam::Integer(*trace)], i64::MIN, |row| -> Result<_, StoreError> {
            first = first.or(Some(row.get::<i64>(0)?));
            block_count += 1;
            export.extend(decompress_bytes(row.get_ref(1)?.as_blob())?);
            Ok(if export.len() > MAX_MERGED_BYTES { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        let Some(first) = first.filter(|_| export.len() <= MAX_MERGED_BYTES) else { continue };
        let body = compress_bytes(&export);
        let digest = gradus_core::stable_digest(&export) as u64 as i64;
        // The trace leads PostgreSQL to the partition.
        sql.prepare_cached("UPDATE block SET body = ?, digest = ? WHERE trace = ? AND no = ?")?
            .execute(params![body, digest, trace, first])?;
        sql.prepare_cached("UPDATE span SET block = ? WHERE trace = ?")?.execute([first, *trace])?;
        sql.prepare_cached("DELETE FROM block WHERE trace = ? AND signal = 0 AND no <> ?")?.execute([*trace, first])?;
        sql.prepare_cached(
            "UPDATE trace SET bytes = (SELECT sum(length(body)) FROM block WHERE trace = ?1) WHERE no = ?1",
        )?
        .execute([trace])?;
        merged += block_count - 1;
    }
    Ok((merged, traces.last().copied()))
}
