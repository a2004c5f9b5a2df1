//! The latest trajectories of a version, a model or an agent with the scores of their outcomes, to compare it with another
//! one. Reads a bounded number of trajectories; explanations and evidence are not read.

use std::collections::{BTreeMap, BTreeSet};

use crate::sql::{OptionalRow, SqlConnection, params};

use super::MetricFilter;
use super::latest::find_latest_trajectories;
use crate::Store;
use crate::error::StoreError;
use crate::records::RecordedKind;

/// A trajectory with the outcomes that versions are compared by.
#[derive(Clone, Debug, PartialEq)]
pub struct ComparedRunRow {
    pub trajectory_id: String,
    pub version: String,
    /// The beginning of the query.
    pub query: String,
    pub steps: u32,
    pub tokens: i64,
    pub cost_usd: Option<f64>,
    pub took_ns: i64,
    pub outcomes: Vec<ComparedOutcome>,
}

/// An outcome without its explanation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ComparedOutcome {
    /// Position in [`ComparedRuns::evaluators`].
    pub evaluator: usize,
    pub step: Option<u32>,
    pub kind: RecordedKind,
    pub score: Option<f64>,
}

/// The trajectories of one version that are compared.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ComparedRuns {
    /// Newest first.
    pub runs: Vec<ComparedRunRow>,
    /// Names of the evaluators that occur, in order of first appearance.
    pub evaluators: Vec<String>,
    /// The latest outcome of each evaluator as JSON, in the same order. It names the judge and the rubric.
    pub latest_lines: Vec<String>,
    /// Whether there are older trajectories that were not read.
    pub is_cut: bool,
    /// Numbers of the trajectories, in the order of `runs`.
    numbers: Vec<i64>,
}

/// A failure group among compared trajectories.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComparedGroupRow {
    pub key: String,
    pub evaluator: String,
    pub tool: String,
    /// The name that people gave it, else the reason.
    pub title: String,
    /// Trajectories of each list in which it occurs.
    pub runs: Vec<u64>,
}

impl Store {
    /// The latest trajectories that match, at most `limit`. Evaluator and tool of the filter are ignored.
    pub fn compared_runs(&self, filter: &MetricFilter, limit: usize) -> Result<ComparedRuns, StoreError> {
        let reader = self.readers.take_reader()?;
        let sql: &SqlConnection = &*reader.snapshot()?;
        let (latest, is_cut) = find_latest_trajectories(sql, filter)?;
        let mut found = ComparedRuns { is_cut: is_cut || latest.len() > limit, ..ComparedRuns::default() };
        let mut head = sql.prepare_cached(
            "SELECT trajectory_id, version, query, steps, tokens, cost_usd, end_ns - start_ns FROM trajectory WHERE no = ?",
        )?;
        let mut outcomes =
            sql.prepare_cached("SELECT evaluator, step, kind, score FROM outcome WHERE trajectory = ?")?;
        let mut line =
            sql.prepare_cached("SELECT line FROM outcome WHERE trajectory = ? AND evaluator = ? AND step = ?")?;
        for trajectory in latest.iter().take(limit) {
            let row = head.query_row([trajectory.no], |row| {
                Ok(ComparedRunRow {
                    trajectory_id: row.get(0)?,
                    version: row.get(1)?,
                    query: row.get(2)?,
                    steps: row.get(3)?,
                    tokens: row.get(4)?,
                    cost_usd: row.get(5)?,
                    took_ns: row.get(6)?,
                    outcomes: Vec::new(),
                })
            });
            let mut run = row?;
            let mut rows = outcomes.query([trajectory.no])?;
            while let Some(row) = rows.next()? {
                let name: String = row.get(0)?;
                let step: u32 = row.get(1)?;
                let known = found.evaluators.iter().position(|known| *known == name);
                let evaluator = match known {
                    Some(at) => at,
                    None => {
                        found.latest_lines.push(line.query_row(params![trajectory.no, name, step], |row| row.get(0))?);
                        found.evaluators.push(name);
                        found.evaluators.len() - 1
                    }
                };
                run.outcomes.push(ComparedOutcome {
                    evaluator,
                    step: Some(step).filter(|step| *step > 0),
                    kind: read_kind(row.get(2)?),
                    score: row.get(3)?,
                });
            }
            found.runs.push(run);
            found.numbers.push(trajectory.no);
        }
        Ok(found)
    }

    /// Failure groups of the trajectories of several lists.
    pub fn compared_groups(&self, versions: &[ComparedRuns]) -> Result<Vec<ComparedGroupRow>, StoreError> {
        let reader = self.readers.take_reader()?;
        let sql: &SqlConnection = &*reader.snapshot()?;
        let mut counts: BTreeMap<i64, Vec<u64>> = BTreeMap::new();
        let mut groups = sql.prepare_cached(
            "SELECT failure_group FROM failure INDEXED BY failure_by_trajectory WHERE trajectory = ?",
        )?;
        for (at, version) in versions.iter().enumerate() {
            for number in &version.numbers {
                let found: BTreeSet<i64> = groups.query_map([number], |row| row.get(0))?.collect::<Result<_, _>>()?;
                for group in found {
                    counts.entry(group).or_insert_with(|| vec![0; versions.len()])[at] += 1;
                }
            }
        }
        let mut load =
            sql.prepare_cached("SELECT key, evaluator, tool, coalesce(name, reason) FROM failure_group WHERE no = ?")?;
        let mut rows = Vec::with_capacity(counts.len());
        for (group, runs) in counts {
            let row = load.query_row([group], |row| {
                let (key, evaluator, tool, title) = (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
                Ok(ComparedGroupRow { key, evaluator, tool, title, runs })
            });
            rows.extend(row.optional()?);
        }
        Ok(rows)
    }
}

/// Reads a kind. An unknown number, written by a newer version, counts as failed: neither right nor wrong.
fn read_kind(number: i64) -> RecordedKind {
    match number {
        0 => RecordedKind::Scored,
        1 => RecordedKind::NotApplicable,
        3 => RecordedKind::Abstained,
        _ => RecordedKind::Failed,
    }
}
