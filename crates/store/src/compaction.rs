//! Compaction: merges the blocks of a trace, and returns free space.

use crate::Store;
use crate::compress::{compress_bytes, decompress_bytes};
use crate::error::StoreError;
use crate::sql::SqlConnection;

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
        let blocks: Vec<(i64, Vec<u8>)> = sql
            .prepare_cached("SELECT no, body FROM block WHERE trace = ? AND signal = 0 ORDER BY no")?
            .query_map([trace], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<Result<_, _>>()?;
        let mut export = Vec::new();
        for (_, body) in &blocks {
            export.extend(decompress_bytes(body)?);
            if export.len() > MAX_MERGED_BYTES {
                break;
            }
        }
        if export.len() > MAX_MERGED_BYTES {
            continue;
        }
        let body = compress_bytes(&export);
        let first = blocks[0].0;
        let digest = gradus_core::stable_digest(&export) as u64 as i64;
        sql.prepare_cached("UPDATE block SET body = ?, digest = ? WHERE no = ?")?
            .execute(crate::sql::params![body, digest, first])?;
        sql.prepare_cached("UPDATE span SET block = ? WHERE trace = ?")?.execute([first, *trace])?;
        sql.prepare_cached("DELETE FROM block WHERE trace = ? AND signal = 0 AND no <> ?")?.execute([*trace, first])?;
        sql.prepare_cached(
            "UPDATE trace SET bytes = (SELECT sum(length(body)) FROM block WHERE trace = ?1) WHERE no = ?1",
        )?
        .execute([trace])?;
        merged += blocks.len() as u64 - 1;
    }
    Ok((merged, traces.last().copied()))
}
