//! The trajectories of one session in order of time, with their totals.

use crate::sql::{OptionalRow, SqlConnection, SqlError, SqlRow, params};
use gradus_core::span::TraceId;

use super::project_number;
use super::trace_rows::{TrajectoryRow, add_scores, trajectory_from_row};
use crate::Store;
use crate::error::StoreError;

/// Maximum number of trajectories of one session that are summed up.
const MAX_SUMMED: i64 = 10_000;

/// A page of a session. The same name in two projects is two sessions.
#[derive(Clone, Debug)]
pub struct SessionTurnPage {
    pub project: String,
    pub totals: SessionTotals,
    /// In order of their start.
    pub turns: Vec<SessionTurnRow>,
}

/// Totals of the trajectories of a session, up to a bound.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionTotals {
    pub trajectories: i64,
    pub tokens: i64,
    /// The sum of the known costs; `None` if no cost is known.
    pub cost_usd: Option<f64>,
    /// Trajectories without a known cost.
    pub unpriced: i64,
    pub start_ns: i64,
    pub end_ns: i64,
}

/// A trajectory of a session, with the trace in which it begins.
#[derive(Clone, Debug)]
pub struct SessionTurnRow {
    pub trace_id: TraceId,
    pub trajectory: TrajectoryRow,
}

impl Store {
    /// Returns the trajectories of a session from an offset on. Without a project, those of the first project that
    /// has a session of this name. `None` if the session does not exist.
    pub fn session_turns(
        &self,
        session: &str,
        project: Option<&str>,
        offset: usize,
        limit: usize,
    ) -> Result<Option<SessionTurnPage>, StoreError> {
        let reader = self.readers.take_reader()?;
        let sql: &SqlConnection = &*reader.snapshot()?;
        let number = match project {
            Some(name) => project_number(sql, name)?,
            None => sql
                .prepare_cached(
                    "SELECT min(project) FROM trajectory INDEXED BY trajectory_by_session \
                     WHERE session = ? AND session <> ''",
                )?
                .query_row([session], |row| row.get(0))?,
        };
        let Some(number) = number else { return Ok(None) };
        let totals = sum_session(sql, session, number, MAX_SUMMED)?;
        if totals.trajectories == 0 {
            return Ok(None);
        }
        let name: Option<String> = sql
            .prepare_cached("SELECT name FROM project WHERE no = ?")?
            .query_row([number], |row| row.get(0))
            .optional()?;
        let mut statement = sql.prepare_cached(
            "SELECT t.no, trajectory_id, agent, version, model, query, steps, is_error, t.start_ns, t.end_ns, tokens, \
             cost_usd, session, trace.trace_id \
             FROM trajectory t INDEXED BY trajectory_by_session JOIN trace ON trace.no = t.trace \
             WHERE session = ? AND session <> '' AND t.project = ? ORDER BY t.start_ns, t.no LIMIT ? OFFSET ?",
        )?;
        let rows = statement.query_map(params![session, number, limit as i64, offset as i64], |row| {
            let id: [u8; 16] = row.get(13)?;
            Ok(SessionTurnRow { trace_id: TraceId(u128::from_be_bytes(id)), trajectory: trajectory_from_row(row)? })
        })?;
        let mut turns: Vec<SessionTurnRow> = rows.collect::<Result<_, _>>()?;
        add_scores(sql, turns.iter_mut().map(|turn| &mut turn.trajectory).collect())?;
        Ok(Some(SessionTurnPage { project: name.unwrap_or_default(), totals, turns }))
    }
}

/// A trajectory of a session that began before another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EarlierTurnRow {
    pub trajectory_id: String,
    pub start_ns: i64,
    pub end_ns: i64,
}

/// Lists trajectories of the session that began before this time, the latest first. `trace` identifies the project.
pub(crate) fn read_earlier_turns(
    sql: &SqlConnection,
    trace: TraceId,
    session: &str,
    start_ns: i64,
    limit: usize,
) -> Result<Vec<EarlierTurnRow>, StoreError> {
    let mut statement = sql.prepare_cached(
        "SELECT trajectory_id, start_ns, end_ns FROM trajectory INDEXED BY trajectory_by_session \
         WHERE session = ? AND session <> '' AND project = (SELECT project FROM trace WHERE trace_id = ?) \
         AND start_ns < ? ORDER BY start_ns DESC LIMIT ?",
    )?;
    let id = trace.0.to_be_bytes();
    let rows = statement.query_map(params![session, id, start_ns, limit as i64], |row| {
        Ok(EarlierTurnRow { trajectory_id: row.get(0)?, start_ns: row.get(1)?, end_ns: row.get(2)? })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Sums over the first `most` trajectories: any sender can add to a session.
pub(super) fn sum_session(
    sql: &SqlConnection,
    session: &str,
    project: i64,
    most: i64,
) -> Result<SessionTotals, StoreError> {
    Ok(sql.prepare_cached(SESSION_TOTALS_SQL)?.query_row(params![session, project, most], totals_from_row)?)
}

/// Parameters are the name of the session, its project, and the maximum number of trajectories.
pub(super) const SESSION_TOTALS_SQL: &str = "SELECT count(*), coalesce(sum(tokens), 0), sum(cost_usd), \
     count(*) - count(cost_usd), coalesce(min(start_ns), 0), coalesce(max(end_ns), 0) FROM \
     (SELECT tokens, cost_usd, start_ns, end_ns FROM trajectory INDEXED BY trajectory_by_session \
      WHERE session = ? AND session <> '' AND project = ? ORDER BY start_ns LIMIT ?) AS part";

/// From the columns of [`SESSION_TOTALS_SQL`].
pub(super) fn totals_from_row(row: &SqlRow<'_>) -> Result<SessionTotals, SqlError> {
    Ok(SessionTotals {
        trajectories: row.get(0)?,
        tokens: row.get(1)?,
        cost_usd: row.get(2)?,
        unpriced: row.get(3)?,
        start_ns: row.get(4)?,
        end_ns: row.get(5)?,
    })
}
