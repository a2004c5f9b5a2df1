//! Sessions: traces whose trajectories name the same session. The name comes from the sender (`session.id` and the
//! like), so it is unique in a project only.

use std::collections::BTreeSet;

use crate::sql::{SqlConnection, params};
use gradus_core::span::TraceId;

use crate::Store;
use crate::error::StoreError;

/// A session in a project. The same name in two projects is two sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRow {
    pub session: String,
    pub project: i64,
    /// In order of their start.
    pub traces: Vec<SessionTrace>,
}

/// A trace of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionTrace {
    pub trace_id: TraceId,
    pub start_ns: i64,
    pub end_ns: i64,
}

/// Maximum number of trajectories of one session that are examined.
const MAX_TRAJECTORIES: i64 = 1000;

impl Store {
    /// Sessions of a project in the order of their names, from one on.
    pub fn sessions(
        &self,
        project: i64,
        from: &str,
        is_descending: bool,
        limit: usize,
    ) -> Result<Vec<SessionRow>, StoreError> {
        let reader = self.readers.take_reader()?;
        let sql: &SqlConnection = &*reader.snapshot()?;
        let (test, order) = if is_descending { ("<=", "DESC") } else { (">=", "ASC") };
        let mut statement = sql.prepare_cached(&format!(
            "SELECT DISTINCT session FROM trajectory INDEXED BY trajectory_by_session \
             WHERE session <> '' AND session {test} ? AND project = ? ORDER BY session {order} LIMIT ?"
        ))?;
        let names: Vec<String> =
            statement.query_map(params![from, project, limit as i64], |row| row.get(0))?.collect::<Result<_, _>>()?;
        names
            .into_iter()
            .map(|session| Ok(SessionRow { traces: list_session_traces(sql, &session, project)?, session, project }))
            .collect()
    }

    /// The sessions with this name, one per project.
    pub fn sessions_named(&self, session: &str) -> Result<Vec<SessionRow>, StoreError> {
        let reader = self.readers.take_reader()?;
        let sql: &SqlConnection = &*reader.snapshot()?;
        let mut statement = sql.prepare_cached(
            "SELECT DISTINCT project FROM trajectory INDEXED BY trajectory_by_session \
             WHERE session = ? AND session <> '' ORDER BY project",
        )?;
        let projects: Vec<i64> = statement.query_map([session], |row| row.get(0))?.collect::<Result<_, _>>()?;
        projects
            .into_iter()
            .map(|project| {
                Ok(SessionRow {
                    session: session.to_owned(),
                    project,
                    traces: list_session_traces(sql, session, project)?,
                })
            })
            .collect()
    }
}

/// The traces of all trace groups of a session: a plain client creates one trace per call, and only one of them is the
/// trace of the trajectory.
fn list_session_traces(sql: &SqlConnection, session: &str, project: i64) -> Result<Vec<SessionTrace>, StoreError> {
    let mut statement = sql.prepare_cached(
        "SELECT story FROM trajectory INDEXED BY trajectory_by_session \
         WHERE session = ? AND session <> '' AND project = ? ORDER BY start_ns LIMIT ?",
    )?;
    let trace_groups: BTreeSet<i64> = statement
        .query_map(params![session, project, MAX_TRAJECTORIES], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    let mut statement = sql.prepare_cached(
        "SELECT trace_id, start_ns, end_ns FROM trace WHERE no = ?1 AND story = ?1 UNION ALL \
         SELECT trace_id, start_ns, end_ns FROM trace WHERE story = ?1 AND story <> no",
    )?;
    let mut traces = Vec::new();
    for trace_group in trace_groups {
        let rows = statement.query_map([trace_group], |row| {
            let id: [u8; 16] = row.get(0)?;
            Ok(SessionTrace { trace_id: TraceId(u128::from_be_bytes(id)), start_ns: row.get(1)?, end_ns: row.get(2)? })
        })?;
        for row in rows {
            traces.push(row?);
        }
    }
    traces.sort_by_key(|trace| (trace.start_ns, trace.trace_id));
    Ok(traces)
}
