//! How far a new store has come: whether spans arrived, and whether a trajectory was graded.

use crate::sql::{OptionalRow, SqlConnection};
use gradus_core::span::TraceId;

use crate::Store;
use crate::error::StoreError;

/// Maximum number of projects in [`StoreProgress::projects`].
const MAX_PROJECTS: i64 = 3;

/// What is in the store. Counts are kept by triggers, so this is as fast for a large store as for an empty one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreProgress {
    pub traces: i64,
    pub spans: i64,
    pub trajectories: i64,
    /// The first projects with traces, in the order of their arrival.
    pub projects: Vec<String>,
    /// The graded trajectory that arrived first; `None` if nothing is graded, or retention has deleted every graded
    /// trajectory.
    pub first_graded: Option<GradedTrajectory>,
}

/// A trajectory with what its evaluators said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GradedTrajectory {
    pub trace_id: TraceId,
    pub trajectory_id: String,
    pub project: String,
    /// Number of flagged verdicts.
    pub flagged_verdict_count: i64,
    pub verdict_count: i64,
    /// Names of the evaluators that abstained.
    pub abstained: Vec<String>,
}

impl Store {
    /// Whether anything was ever graded. Rollups outlive the trajectories that retention deletes.
    pub fn was_ever_graded(&self) -> Result<bool, StoreError> {
        let reader = self.readers.take_reader()?;
        let mut statement =
            reader.prepare_cached("SELECT EXISTS (SELECT 1 FROM rollup) OR EXISTS (SELECT 1 FROM rollup_long)")?;
        Ok(statement.query_row((), |row| row.get(0))?)
    }

    /// Counts, and the first graded trajectory.
    pub fn store_progress(&self) -> Result<StoreProgress, StoreError> {
        let reader = self.readers.take_reader()?;
        let counts = reader.choose("project", "project_count");
        let (traces, spans, trajectories) = reader
            .prepare_cached(&format!(
                "SELECT COALESCE(sum(traces), 0), COALESCE(sum(spans), 0), COALESCE(sum(trajectories), 0) FROM {counts}"
            ))?
            .query_row((), |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        let mut statement = reader.prepare_cached(
            "SELECT name FROM project WHERE EXISTS (SELECT 1 FROM trace WHERE trace.project = project.no) \
             ORDER BY no LIMIT ?",
        )?;
        let projects = statement.query_map([MAX_PROJECTS], |row| row.get(0))?.collect::<Result<_, _>>()?;
        Ok(StoreProgress { traces, spans, trajectories, projects, first_graded: find_first_graded(&reader)? })
    }
}

fn find_first_graded(reader: &SqlConnection) -> Result<Option<GradedTrajectory>, StoreError> {
    // The primary key of `outcome` begins with the trajectory, so this reads one row of each table.
    let found = reader
        .prepare_cached(
            "SELECT trajectory.no, trajectory.trajectory_id, trace.trace_id, project.name FROM outcome \
             JOIN trajectory ON trajectory.no = outcome.trajectory JOIN trace ON trace.no = trajectory.trace \
             JOIN project ON project.no = trajectory.project ORDER BY outcome.trajectory LIMIT 1",
        )?
        .query_row((), |row| {
            Ok((row.get::<i64>(0)?, row.get::<String>(1)?, row.get::<[u8; 16]>(2)?, row.get::<String>(3)?))
        })
        .optional()?;
    let Some((no, trajectory_id, trace_id, project)) = found else { return Ok(None) };
    let (verdict_count, flagged_verdict_count) = reader
        .prepare_cached(
            "SELECT count(*), count(CASE WHEN is_wrong THEN 1 END) FROM outcome WHERE trajectory = ? AND kind = 0",
        )?
        .query_row([no], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let mut statement = reader.prepare_cached(
        "SELECT DISTINCT evaluator FROM outcome WHERE trajectory = ? AND kind = 3 ORDER BY evaluator",
    )?;
    let abstained = statement.query_map([no], |row| row.get(0))?.collect::<Result<_, _>>()?;
    let trace_id = TraceId(u128::from_be_bytes(trace_id));
    Ok(Some(GradedTrajectory { trace_id, trajectory_id, project, flagged_verdict_count, verdict_count, abstained }))
}
