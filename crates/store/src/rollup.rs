//! The sums behind metrics: what one trajectory adds to them, and takes away again when it changes.

use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension, params};

use crate::error::StoreError;
use crate::query::{BUCKET_NS, Moments};

pub(crate) fn add(sql: &Connection, trajectory: i64, evaluator: Option<&str>) -> Result<(), StoreError> {
    apply(sql, trajectory, evaluator, 1)
}

pub(crate) fn subtract(sql: &Connection, trajectory: i64, evaluator: Option<&str>) -> Result<(), StoreError> {
    apply(sql, trajectory, evaluator, -1)
}

fn apply(sql: &Connection, trajectory: i64, evaluator: Option<&str>, sign: i64) -> Result<(), StoreError> {
    let parts = contributions(sql, trajectory, evaluator)?;
    if parts.is_empty() {
        return Ok(());
    }
    let known: Option<(i64, i64, String, String, String)> = sql
        .prepare_cached("SELECT project, start_ns, agent, version, model FROM trajectory WHERE no = ?")?
        .query_row([trajectory], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?)))
        .optional()?;
    let Some((project, start_ns, agent, version, model)) = known else { return Ok(()) };
    let bucket = start_ns.div_euclid(BUCKET_NS);
    let mut statement = sql.prepare_cached(
        "INSERT INTO rollup (project, evaluator, tool, bucket, agent, version, model, trajectories, scored, sum, \
         sum_sum, sum_n, n_n, failed, not_applicable) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) \
         ON CONFLICT DO UPDATE SET trajectories = trajectories + excluded.trajectories, \
         scored = scored + excluded.scored, sum = sum + excluded.sum, sum_sum = sum_sum + excluded.sum_sum, \
         sum_n = sum_n + excluded.sum_n, n_n = n_n + excluded.n_n, failed = failed + excluded.failed, \
         not_applicable = not_applicable + excluded.not_applicable",
    )?;
    for ((evaluator, tool), part) in parts {
        let (n, factor) = (part.scored as f64, sign as f64);
        statement.execute(params![
            project,
            evaluator,
            tool,
            bucket,
            agent,
            version,
            model,
            sign,
            sign * part.scored,
            factor * part.sum,
            factor * part.sum * part.sum,
            factor * part.sum * n,
            factor * n * n,
            sign * part.failed,
            sign * part.not_applicable,
        ])?;
        if sign < 0 {
            // With its last trajectory goes the row, and what rounding left in it.
            sql.prepare_cached(
                "DELETE FROM rollup WHERE project = ? AND evaluator = ? AND tool = ? AND bucket = ? AND agent = ? \
                 AND version = ? AND model = ? AND trajectories <= 0",
            )?
            .execute(params![project, evaluator, tool, bucket, agent, version, model])?;
        }
    }
    Ok(())
}

/// What a trajectory has to say for each evaluator: over all tools, and for each tool.
fn contributions(
    sql: &Connection,
    trajectory: i64,
    evaluator: Option<&str>,
) -> Result<BTreeMap<(String, String), Moments>, StoreError> {
    let mut parts: BTreeMap<(String, String), Moments> = BTreeMap::new();
    let mut statement = sql.prepare_cached(
        "SELECT evaluator, tool, kind, score FROM outcome WHERE trajectory = ?1 AND (?2 IS NULL OR evaluator = ?2)",
    )?;
    let mut rows = statement.query(params![trajectory, evaluator])?;
    while let Some(row) = rows.next()? {
        let (evaluator, tool, kind): (String, String, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let score: Option<f64> = row.get(3)?;
        let mut count = |tool: String| {
            let part = parts.entry((evaluator.clone(), tool)).or_default();
            match (kind, score) {
                (0, Some(score)) => {
                    part.scored += 1;
                    part.sum += score;
                }
                (1, _) => part.not_applicable += 1,
                _ => part.failed += 1,
            }
        };
        count(String::new());
        if !tool.is_empty() {
            count(tool);
        }
    }
    Ok(parts)
}
