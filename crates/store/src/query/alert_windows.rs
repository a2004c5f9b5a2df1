//! Measurements for alerts: trajectories of a time window. Alerts are evaluated every few seconds, so every query here
//! is bounded by [`MAX_WATCHED_TRAJECTORIES`] and runs on an index.

use crate::sql::{SqlConnection, SqlRow, params_from_iter};
use crate::sql::{SqlError, SqlValue, params};

use super::project_number;
use crate::Store;
use crate::error::StoreError;
use crate::records::FacetKind;
use crate::records::RecordedKind;

/// Trajectories that began in a window, of one project or of all.
#[derive(Clone, Debug, Default)]
pub struct TrajectoryWindow {
    pub project: Option<String>,
    pub from_ns: i64,
    pub to_ns: i64,
}

/// An example of what an alert is about.
#[derive(Clone, Debug, PartialEq)]
pub struct ExampleRow {
    pub trace_id: u128,
    pub trajectory_id: String,
    pub query: String,
    /// `None` for the trajectory as a whole.
    pub step: Option<u32>,
    pub tool: String,
    pub label: Option<String>,
    pub score: Option<f64>,
    pub start_ns: i64,
    pub duration_ns: i64,
}

/// Maximum number of trajectories that one call of [`Store::scores_after`] reads.
const MAX_NEW_TRAJECTORIES: i64 = 2_000;

/// Maximum number of trajectories that one measurement reads: the latest.
const MAX_WATCHED_TRAJECTORIES: i64 = 20_000;

const FIRST_OF_WINDOW: &str =
    "SELECT min(no) FROM (SELECT no FROM trajectory WHERE start_ns >= ? ORDER BY start_ns DESC LIMIT ?) AS latest";

impl Store {
    /// The number of the last trajectory that was stored before those of a window; 0 if there is none.
    pub fn last_trajectory_before(&self, window: &TrajectoryWindow) -> Result<i64, StoreError> {
        let reader = self.readers.take_reader()?;
        // Numbers follow arrival: a late upload with an early start must not hide the others.
        let first: Option<i64> = reader
            .prepare_cached(FIRST_OF_WINDOW)?
            .query_row([window.from_ns, MAX_WATCHED_TRAJECTORIES], |row| row.get(0))?;
        let last = || reader.prepare_cached(LAST_TRAJECTORY)?.query_row((), |row| row.get(0));
        Ok(match first {
            Some(first) => first - 1,
            None => last()?,
        })
    }

    /// Returns the mean score of each trajectory after a number, in the order in which they were stored, and the
    /// number to continue from. A case that the judge could not decide counts as `undecided`, if that is given.
    /// Trajectories without a score are left out. A trajectory that has waited for its judge
    /// only since `waiting_since_ns` or later ends the list, so that it is read later; one that has waited longer is
    /// skipped. Of the windows, only the projects are used.
    pub fn scores_after(
        &self,
        evaluator: &str,
        undecided: Option<f64>,
        windows: &[TrajectoryWindow],
        after: i64,
        waiting_since_ns: i64,
    ) -> Result<(Vec<f64>, i64), StoreError> {
        let reader = self.readers.take_reader()?;
        let sql: &SqlConnection = &*reader.snapshot()?;
        let mut projects = Vec::new();
        for name in windows.iter().filter_map(|window| window.project.as_deref()) {
            projects.extend(project_number(sql, name)?);
        }
        let is_all = windows.iter().any(|window| window.project.is_none());
        let last: i64 = sql.prepare_cached(LAST_TRAJECTORY)?.query_row((), |row| row.get(0))?;
        // Numbers begin anew when everything was deleted.
        let mut cursor = after.min(last);
        let mut trajectories = sql.prepare_cached(NEW_TRAJECTORIES)?;
        let mut mean = sql.prepare_cached(
            "SELECT avg(CASE WHEN kind = 0 THEN coalesce(score, CAST(?3 AS DOUBLE PRECISION)) \
             ELSE CAST(?3 AS DOUBLE PRECISION) END) \
             FROM outcome WHERE trajectory = ?1 AND evaluator = ?2 AND kind IN (0, 3)",
        )?;
        let mut rows = trajectories.query(params![cursor, MAX_NEW_TRAJECTORIES])?;
        let mut scores = Vec::new();
        while let Some(row) = rows.next()? {
            let (trajectory, project, waits_since): (i64, i64, Option<i64>) = (row.get(0)?, row.get(1)?, row.get(2)?);
            if waits_since.is_some_and(|since| since >= waiting_since_ns) {
                break;
            }
            cursor = trajectory;
            if is_all || projects.contains(&project) {
                let score: Option<f64> = mean.query_row(params![trajectory, evaluator, undecided], |row| row.get(0))?;
                scores.extend(score);
            }
        }
        Ok((scores, cursor))
    }

    /// Names of all projects.
    pub fn project_names(&self) -> Result<Vec<String>, StoreError> {
        let reader = self.readers.take_reader()?;
        let mut statement = reader.prepare_cached("SELECT name FROM project ORDER BY name")?;
        Ok(statement.query_map((), |row| row.get(0))?.collect::<Result<_, _>>()?)
    }

    /// Returns the number of trajectories, and of those with an error. If there are many, only the latest are
    /// counted.
    pub fn error_counts(&self, window: &TrajectoryWindow) -> Result<(u64, u64), StoreError> {
        let reader = self.readers.take_reader()?;
        let Some((terms, values)) = build_window_condition(&reader, window)? else { return Ok((0, 0)) };
        Ok(reader
            .prepare_cached(&format!(
                "SELECT count(*), count(CASE WHEN is_error THEN 1 END) FROM (SELECT is_error FROM trajectory WHERE {terms} \
                 ORDER BY start_ns DESC LIMIT {MAX_WATCHED_TRAJECTORIES}) AS latest"
            ))?
            .query_row(params_from_iter(values), |row| Ok((row.get(0)?, row.get(1)?)))?)
    }

    /// Durations of trajectories, in no order.
    pub fn durations_ns(&self, window: &TrajectoryWindow) -> Result<Vec<i64>, StoreError> {
        let reader = self.readers.take_reader()?;
        let Some((terms, values)) = build_window_condition(&reader, window)? else { return Ok(Vec::new()) };
        let mut statement = reader.prepare_cached(&format!(
            "SELECT end_ns - start_ns FROM trajectory WHERE {terms} ORDER BY start_ns DESC LIMIT {MAX_WATCHED_TRAJECTORIES}"
        ))?;
        Ok(statement.query_map(params_from_iter(values), |row| row.get(0))?.collect::<Result<_, _>>()?)
    }

    /// The outcomes with the lowest scores, or those that failed.
    pub fn worst_verdicts(
        &self,
        window: &TrajectoryWindow,
        evaluator: Option<&str>,
        are_failed: bool,
        limit: usize,
    ) -> Result<Vec<ExampleRow>, StoreError> {
        let reader = self.readers.take_reader()?;
        let Some((terms, mut values)) = build_window_condition(&reader, window)? else {
            return Ok(Vec::new());
        };
        let kind = if are_failed { RecordedKind::Failed } else { RecordedKind::Scored };
        values.push(SqlValue::Integer(kind as i64));
        let evaluator = evaluator.map_or(SqlValue::Null, |name| SqlValue::Text(name.to_owned()));
        values.extend([evaluator.clone(), evaluator, SqlValue::Integer(limit as i64)]);
        let mut statement = reader.prepare_cached(&format!(
            "SELECT trace.trace_id, t.trajectory_id, t.query, outcome.step, outcome.tool, outcome.label, outcome.score, \
             t.end_ns - t.start_ns, t.start_ns \
             FROM (SELECT no, trace, trajectory_id, query, start_ns, end_ns FROM trajectory WHERE {terms} \
             ORDER BY start_ns DESC LIMIT {MAX_WATCHED_TRAJECTORIES}) t \
             JOIN outcome ON outcome.trajectory = t.no JOIN trace ON trace.no = t.trace \
             WHERE outcome.kind = ? AND (outcome.kind <> 0 OR outcome.score IS NOT NULL) \
             AND (? IS NULL OR outcome.evaluator = ?) ORDER BY outcome.score, t.start_ns DESC LIMIT ?"
        ))?;
        Ok(statement.query_map(params_from_iter(values), example_from_row)?.collect::<Result<_, _>>()?)
    }

    /// Trajectories with an error, the latest first, or those that took longest.
    pub fn worst_trajectories(
        &self,
        window: &TrajectoryWindow,
        by_duration: bool,
        limit: usize,
    ) -> Result<Vec<ExampleRow>, StoreError> {
        let reader = self.readers.take_reader()?;
        let Some((terms, mut values)) = build_window_condition(&reader, window)? else {
            return Ok(Vec::new());
        };
        values.push(SqlValue::Integer(limit as i64));
        let (which, order) = if by_duration { ("TRUE", "t.end_ns - t.start_ns") } else { ("t.is_error", "t.start_ns") };
        let mut statement = reader.prepare_cached(&format!(
            "SELECT trace.trace_id, t.trajectory_id, t.query, 0, '', NULL, NULL, t.end_ns - t.start_ns, t.start_ns \
             FROM (SELECT * FROM trajectory WHERE {terms} ORDER BY start_ns DESC LIMIT {MAX_WATCHED_TRAJECTORIES}) t \
             JOIN trace ON trace.no = t.trace WHERE {which} ORDER BY {order} DESC LIMIT ?"
        ))?;
        Ok(statement.query_map(params_from_iter(values), example_from_row)?.collect::<Result<_, _>>()?)
    }

    /// Returns the tools that trajectories of the last `recent_ns` of the window call and no earlier one in the
    /// window did, and the number of steps that were examined.
    pub fn newly_used_tools(
        &self,
        window: &TrajectoryWindow,
        recent_ns: i64,
    ) -> Result<(Vec<String>, u64), StoreError> {
        let reader = self.readers.take_reader()?;
        let recent_from = window.to_ns.saturating_sub(recent_ns);
        let recent = TrajectoryWindow { from_ns: recent_from, ..window.clone() };
        let Some((terms, values)) = build_window_condition(&reader, &recent)? else {
            return Ok((Vec::new(), 0));
        };
        let mut statement = reader.prepare_cached(&format!(
            "SELECT project, tools, steps FROM trajectory WHERE {terms} ORDER BY start_ns DESC LIMIT {MAX_WATCHED_TRAJECTORIES}"
        ))?;
        let rows = statement.query_map(params_from_iter(values), |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        let mut tools: Vec<(i64, String)> = Vec::new();
        let mut count = 0;
        for row in rows {
            let (project, names, steps): (i64, String, u64) = row?;
            count += steps;
            tools.extend(names.lines().map(|name| (project, name.to_owned())));
        }
        tools.sort_unstable();
        tools.dedup();
        let mut unseen = Vec::new();
        let mut earlier = reader.prepare_cached(
            "SELECT 1 FROM facet WHERE project = ? AND kind = ? AND value = ? AND start_ns >= ? AND start_ns < ? LIMIT 1",
        )?;
        for (project, tool) in tools {
            if !tool.is_empty()
                && !earlier.exists(params![project, FacetKind::Tool as i64, tool, window.from_ns, recent_from])?
            {
                unseen.push(tool);
            }
        }
        unseen.sort_unstable();
        unseen.dedup();
        Ok((unseen, count))
    }
}

const LAST_TRAJECTORY: &str = "SELECT coalesce(max(no), 0) FROM trajectory";

const NEW_TRAJECTORIES: &str = "SELECT t.no, t.project, ungraded.since_ns FROM trajectory t \
                                LEFT JOIN ungraded ON ungraded.trajectory = t.no WHERE t.no > ? ORDER BY t.no LIMIT ?";

/// The condition on project and time, with its parameters. Reads through the index of the project or of all
/// trajectories.
fn build_window_condition(
    sql: &SqlConnection,
    window: &TrajectoryWindow,
) -> Result<Option<(&'static str, Vec<SqlValue>)>, StoreError> {
    let bounds = [SqlValue::Integer(window.from_ns), SqlValue::Integer(window.to_ns)];
    let Some(name) = &window.project else {
        return Ok(Some(("start_ns >= ? AND start_ns < ?", bounds.to_vec())));
    };
    let Some(project) = project_number(sql, name)? else { return Ok(None) };
    let mut values = vec![SqlValue::Integer(project)];
    values.extend(bounds);
    Ok(Some(("project = ? AND start_ns >= ? AND start_ns < ?", values)))
}

impl Store {
    /// The latest trajectories that used one of these tools.
    pub fn find_tool_uses(
        &self,
        window: &TrajectoryWindow,
        tools: &[String],
        limit: usize,
    ) -> Result<Vec<ExampleRow>, StoreError> {
        let reader = self.readers.take_reader()?;
        let Some((terms, values)) = build_window_condition(&reader, window)? else { return Ok(Vec::new()) };
        let mut statement = reader.prepare_cached(&format!(
            "SELECT trace.trace_id, t.trajectory_id, t.query, 0, t.tools, NULL, NULL, t.end_ns - t.start_ns, t.start_ns \
             FROM (SELECT * FROM trajectory WHERE {terms} ORDER BY start_ns DESC LIMIT {MAX_WATCHED_TRAJECTORIES}) t \
             JOIN trace ON trace.no = t.trace"
        ))?;
        let mut found = Vec::new();
        let mut rows = statement.query_map(params_from_iter(values), example_from_row)?;
        while found.len() < limit
            && let Some(row) = rows.next().transpose()?
        {
            let used = row.tool.lines().find(|name| tools.iter().any(|tool| tool == name)).map(str::to_owned);
            if let Some(tool) = used {
                found.push(ExampleRow { tool, ..row });
            }
        }
        Ok(found)
    }
}

fn example_from_row(row: &SqlRow<'_>) -> Result<ExampleRow, SqlError> {
    let step: u32 = row.get(3)?;
    Ok(ExampleRow {
        trace_id: u128::from_be_bytes(row.get(0)?),
        trajectory_id: row.get(1)?,
        query: row.get(2)?,
        step: (step > 0).then_some(step),
        tool: row.get(4)?,
        label: row.get(5)?,
        score: row.get(6)?,
        duration_ns: row.get(7)?,
        start_ns: row.get(8)?,
    })
}
