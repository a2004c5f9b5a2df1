//! The sums behind metrics: what one trajectory adds to them, and takes away again when it changes.

use std::collections::{BTreeMap, HashMap};

use foldhash::fast::RandomState;
use rusqlite::{Connection, OptionalExtension, params};

use crate::error::StoreError;
use crate::grading::{OutcomeRecord, TrajectoryRecord};
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
    for ((evaluator, tool), part) in &parts {
        let row = Row { project, evaluator, tool, bucket, agent: &agent, version: &version, model: &model };
        change(sql, &row, &moments(part, sign))?;
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

/// Which sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Row<'r> {
    project: i64,
    evaluator: &'r str,
    tool: &'r str,
    bucket: i64,
    agent: &'r str,
    version: &'r str,
    model: &'r str,
}

fn change(sql: &Connection, row: &Row<'_>, by: &Moments) -> Result<(), StoreError> {
    sql.prepare_cached(
        "INSERT INTO rollup (project, evaluator, tool, bucket, agent, version, model, trajectories, scored, sum, \
         sum_sum, sum_n, n_n, failed, not_applicable) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) \
         ON CONFLICT DO UPDATE SET trajectories = trajectories + excluded.trajectories, \
         scored = scored + excluded.scored, sum = sum + excluded.sum, sum_sum = sum_sum + excluded.sum_sum, \
         sum_n = sum_n + excluded.sum_n, n_n = n_n + excluded.n_n, failed = failed + excluded.failed, \
         not_applicable = not_applicable + excluded.not_applicable",
    )?
    .execute(params![
        row.project,
        row.evaluator,
        row.tool,
        row.bucket,
        row.agent,
        row.version,
        row.model,
        by.trajectories,
        by.scored,
        by.sum,
        by.sum_sum,
        by.sum_n,
        by.n_n,
        by.failed,
        by.not_applicable,
    ])?;
    Ok(())
}

/// What one trajectory's part comes to in the sums.
fn moments(part: &Moments, sign: i64) -> Moments {
    let (n, factor) = (part.scored as f64, sign as f64);
    Moments {
        trajectories: sign,
        scored: sign * part.scored,
        sum: factor * part.sum,
        sum_sum: factor * part.sum * part.sum,
        sum_n: factor * part.sum * n,
        n_n: factor * n * n,
        failed: sign * part.failed,
        not_applicable: sign * part.not_applicable,
    }
}

fn count(part: &mut Moments, kind: i64, score: Option<f64>) {
    match (kind, score) {
        (0, Some(score)) => {
            part.scored += 1;
            part.sum += score;
        }
        (1, _) => part.not_applicable += 1,
        _ => part.failed += 1,
    }
}

/// What new trajectories add, gathered before it is written.
#[derive(Debug, Default)]
pub(crate) struct Sums<'r> {
    rows: HashMap<Row<'r>, Moments, RandomState>,
}

impl<'r> Sums<'r> {
    /// Counts in a trajectory that has no verdicts but those of its record.
    pub(crate) fn add(&mut self, project: i64, record: &'r TrajectoryRecord) {
        // The last one to a question counts.
        let mut verdicts: HashMap<(&str, u32), &OutcomeRecord, RandomState> = HashMap::default();
        for outcome in &record.outcomes {
            verdicts.insert((&outcome.evaluator, outcome.step.unwrap_or(0)), outcome);
        }
        let mut parts: HashMap<(&'r str, &'r str), Moments, RandomState> = HashMap::default();
        for outcome in verdicts.into_values() {
            let kind = outcome.kind as i64;
            count(parts.entry((&outcome.evaluator, "")).or_default(), kind, outcome.score);
            if !outcome.tool.is_empty() {
                count(parts.entry((&outcome.evaluator, &outcome.tool)).or_default(), kind, outcome.score);
            }
        }
        for ((evaluator, tool), part) in parts {
            let row = Row {
                project,
                evaluator,
                tool,
                bucket: record.start_ns.div_euclid(BUCKET_NS),
                agent: &record.agent,
                version: &record.version,
                model: &record.model,
            };
            let (sum, part) = (self.rows.entry(row).or_default(), moments(&part, 1));
            sum.trajectories += part.trajectories;
            sum.scored += part.scored;
            sum.sum += part.sum;
            sum.sum_sum += part.sum_sum;
            sum.sum_n += part.sum_n;
            sum.n_n += part.n_n;
            sum.failed += part.failed;
            sum.not_applicable += part.not_applicable;
        }
    }

    pub(crate) fn write(&mut self, sql: &Connection) -> Result<(), StoreError> {
        self.rows.drain().try_for_each(|(row, moments)| change(sql, &row, &moments))
    }
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
        let part = parts.entry((evaluator.clone(), String::new())).or_default();
        count(part, kind, score);
        if !tool.is_empty() {
            count(parts.entry((evaluator, tool)).or_default(), kind, score);
        }
    }
    Ok(parts)
}
