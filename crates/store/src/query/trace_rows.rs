//! One trace as lists and pages show it, with its trajectories and sums of their outcomes.

use crate::sql::{OptionalRow, SqlConnection, SqlError, SqlRow, params};
use gradus_core::span::TraceId;

use super::project_number;
use crate::Store;
use crate::error::StoreError;

/// A trace with its counts.
#[derive(Clone, Debug)]
pub struct TraceRow {
    pub no: i64,
    pub trace_id: TraceId,
    pub project: String,
    pub name: String,
    /// Times of spans are by the clock of the sender, `arrived_ns` by the clock of the server.
    pub start_ns: i64,
    pub end_ns: i64,
    pub spans: i64,
    pub errors: i64,
    /// Compressed bytes of its records.
    pub bytes: i64,
    pub has_root: bool,
    /// Number of the trace group: that of its first trace.
    pub trace_group: i64,
    pub arrived_ns: i64,
    pub trajectories: Vec<TrajectoryRow>,
}

/// A trajectory in the list of a trace.
#[derive(Clone, Debug)]
pub struct TrajectoryRow {
    pub no: i64,
    pub trajectory_id: String,
    pub agent: String,
    pub version: String,
    pub model: String,
    pub query: String,
    pub steps: i64,
    pub is_error: bool,
    pub start_ns: i64,
    pub end_ns: i64,
    pub tokens: i64,
    pub cost_usd: Option<f64>,
    /// Empty if it belongs to none.
    pub session: String,
    pub scores: Vec<ScoreRow>,
}

/// Sums of the outcomes of one evaluator on one trajectory.
#[derive(Clone, Debug, PartialEq)]
pub struct ScoreRow {
    pub evaluator: String,
    pub scored: i64,
    pub sum: f64,
    pub failed: i64,
    pub not_applicable: i64,
    /// The judge could not decide, or gave a label without a score.
    pub abstained: i64,
    /// The label of the trajectory as a whole, if the evaluator gave one.
    pub label: Option<String>,
    /// Outcomes below the best score, and the first step with one: 0 if only the trajectory as a whole has one.
    pub wrong: i64,
    pub first_wrong: Option<u32>,
}

impl Store {
    /// One trace with its trajectories.
    pub fn trace(&self, id: TraceId) -> Result<Option<TraceRow>, StoreError> {
        let reader = self.readers.take_reader()?;
        let sql: &SqlConnection = &reader;
        let row = sql
            .prepare_cached(&trace_row_sql("trace_id = ?"))?
            .query_row(params![id.0.to_be_bytes()], trace_from_row)
            .optional()?;
        let Some(mut row) = row else { return Ok(None) };
        add_trajectories(sql, std::slice::from_mut(&mut row))?;
        Ok(Some(row))
    }

    /// The stored trajectory as JSON, without tool definitions.
    pub fn trajectory_json(&self, trajectory_id: &str) -> Result<Option<Vec<u8>>, StoreError> {
        read_trajectory_json(&*self.readers.take_reader()?, trajectory_id, u64::MAX)
    }

    /// The trace in which a trajectory begins.
    pub fn trace_of_trajectory(&self, trajectory_id: &str) -> Result<Option<TraceId>, StoreError> {
        let reader = self.readers.take_reader()?;
        let id: Option<[u8; 16]> = reader
            .prepare_cached(
                "SELECT trace.trace_id FROM trajectory JOIN trace ON trace.no = trajectory.trace \
                 WHERE trajectory_id = ?",
            )?
            .query_row([trajectory_id], |row| row.get(0))
            .optional()?;
        Ok(id.map(|id| TraceId(u128::from_be_bytes(id))))
    }

    /// Start of the earliest trajectory that is still stored.
    pub fn earliest_trajectory_start(&self, project: Option<&str>) -> Result<Option<i64>, StoreError> {
        let reader = self.readers.take_reader()?;
        let sql: &SqlConnection = &reader;
        match project {
            None => Ok(sql
                .prepare_cached("SELECT min(start_ns) FROM trajectory INDEXED BY trajectory_by_start")?
                .query_row((), |row| row.get(0))?),
            Some(name) => {
                let Some(project) = project_number(sql, name)? else { return Ok(None) };
                Ok(sql
                    .prepare_cached(
                        "SELECT min(start_ns) FROM trajectory INDEXED BY trajectory_by_project WHERE project = ?",
                    )?
                    .query_row([project], |row| row.get(0))?)
            }
        }
    }

    /// Number of steps of a trajectory.
    pub fn trajectory_step_count(&self, trajectory_id: &str) -> Result<Option<u32>, StoreError> {
        let reader = self.readers.take_reader()?;
        Ok(reader
            .prepare_cached("SELECT steps FROM trajectory WHERE trajectory_id = ?")?
            .query_row([trajectory_id], |row| row.get(0))
            .optional()?)
    }
}

/// Reads a stored trajectory as JSON; `None` also if it has more than `max_bytes`.
pub(crate) fn read_trajectory_json(
    sql: &SqlConnection,
    trajectory_id: &str,
    max_bytes: u64,
) -> Result<Option<Vec<u8>>, StoreError> {
    let body: Option<Vec<u8>> = sql
        .prepare_cached("SELECT body FROM trajectory WHERE trajectory_id = ?")?
        .query_row([trajectory_id], |row| row.get(0))
        .optional()?;
    // A damaged body is an error of decompression.
    let is_within = |body: &Vec<u8>| crate::compress::decompressed_size(body).is_none_or(|size| size <= max_bytes);
    body.filter(is_within).map(|body| crate::compress::decompress_bytes(&body)).transpose()
}

/// Reads traces by their numbers, in this order. Numbers without a trace are left out.
pub(super) fn list_trace_rows(sql: &SqlConnection, numbers: &[i64]) -> Result<Vec<TraceRow>, StoreError> {
    let sets: Vec<[i64; 1]> = numbers.iter().map(|number| [*number]).collect();
    let found = sql.query_each(&trace_row_sql("no = ?"), &sets, trace_from_row)?;
    let mut rows: Vec<TraceRow> = found.into_iter().flatten().collect();
    add_trajectories(sql, &mut rows)?;
    Ok(rows)
}

/// `which` is a condition with one parameter.
fn trace_row_sql(which: &str) -> String {
    format!(
        "SELECT trace.no, trace_id, project.name, trace.name, start_ns, end_ns, trace.spans, errors, bytes, has_root, \
         story, arrived_ns FROM trace JOIN project ON project.no = trace.project WHERE trace.{which}"
    )
}

fn trace_from_row(row: &SqlRow<'_>) -> Result<TraceRow, SqlError> {
    Ok(TraceRow {
        no: row.get(0)?,
        trace_id: TraceId(u128::from_be_bytes(row.get(1)?)),
        project: row.get(2)?,
        name: row.get(3)?,
        start_ns: row.get(4)?,
        end_ns: row.get(5)?,
        spans: row.get(6)?,
        errors: row.get(7)?,
        bytes: row.get(8)?,
        has_root: row.get(9)?,
        trace_group: row.get(10)?,
        arrived_ns: row.get(11)?,
        trajectories: Vec::new(),
    })
}

/// Adds the trajectories that begin in each trace, in order of time, up to 1,000, with their scores.
fn add_trajectories(sql: &SqlConnection, traces: &mut [TraceRow]) -> Result<(), StoreError> {
    let sets: Vec<[i64; 1]> = traces.iter().map(|trace| [trace.no]).collect();
    let found = sql.query_each(
        "SELECT no, trajectory_id, agent, version, model, query, steps, is_error, start_ns, end_ns, tokens, cost_usd, \
         session FROM trajectory WHERE trace = ? ORDER BY start_ns, no LIMIT 1000",
        &sets,
        trajectory_from_row,
    )?;
    for (trace, trajectories) in traces.iter_mut().zip(found) {
        trace.trajectories = trajectories;
    }
    add_scores(sql, traces.iter_mut().flat_map(|trace| &mut trace.trajectories).collect())
}

/// From the columns of the query in `add_trajectories`, in their order.
pub(super) fn trajectory_from_row(row: &SqlRow<'_>) -> Result<TrajectoryRow, SqlError> {
    Ok(TrajectoryRow {
        no: row.get(0)?,
        trajectory_id: row.get(1)?,
        agent: row.get(2)?,
        version: row.get(3)?,
        model: row.get(4)?,
        query: row.get(5)?,
        steps: row.get(6)?,
        is_error: row.get(7)?,
        start_ns: row.get(8)?,
        end_ns: row.get(9)?,
        tokens: row.get(10)?,
        cost_usd: row.get(11)?,
        session: row.get(12)?,
        scores: Vec::new(),
    })
}

/// Adds the sums by evaluator, computed from the outcomes themselves: a trajectory has few.
pub(super) fn add_scores(sql: &SqlConnection, trajectories: Vec<&mut TrajectoryRow>) -> Result<(), StoreError> {
    let sets: Vec<[i64; 1]> = trajectories.iter().map(|trajectory| [trajectory.no]).collect();
    let found = sql.query_each(
        "SELECT evaluator, count(score), coalesce(sum(score), 0.0), count(CASE WHEN kind = 2 THEN 1 END), \
         count(CASE WHEN kind = 1 THEN 1 END), count(CASE WHEN is_wrong THEN 1 END), \
         coalesce(min(CASE WHEN is_wrong AND step > 0 THEN step END), min(CASE WHEN is_wrong THEN 0 END)), \
         count(CASE WHEN kind = 3 OR (kind = 0 AND score IS NULL) THEN 1 END), max(CASE WHEN step = 0 THEN label END) \
         FROM outcome WHERE trajectory = ? GROUP BY evaluator ORDER BY evaluator LIMIT 1000",
        &sets,
        |row| {
            Ok(ScoreRow {
                evaluator: row.get(0)?,
                scored: row.get(1)?,
                sum: row.get(2)?,
                failed: row.get(3)?,
                not_applicable: row.get(4)?,
                wrong: row.get(5)?,
                first_wrong: row.get(6)?,
                abstained: row.get(7)?,
                label: row.get(8)?,
            })
        },
    )?;
    for (trajectory, scores) in trajectories.into_iter().zip(found) {
        trajectory.scores = scores;
    }
    Ok(())
}
