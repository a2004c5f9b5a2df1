//! Verdicts with the decision that was recorded with them, from the store or from the files of a run.

use gradus_core::trajectory::Trajectory;
use gradus_eval::outcome::OutcomeLine;
use gradus_eval::report::RunReader;
use gradus_eval::run::RunManifest;
use gradus_store::VerdictLine;

use crate::http_error::ApiError;
use crate::run_lookup::{find_run, log_run_failure};
use crate::state::ServerState;

/// A verdict, and whether it counted as wrong when it was recorded.
pub(crate) struct RecordedVerdict {
    /// When the verdict was given. Verdicts of a run have the time at which the run ended.
    pub(crate) at_ns: i64,
    /// Whether the score was below the best of its evaluator at that time. Later changes of the rubric do not alter it.
    pub(crate) is_wrong: bool,
    pub(crate) line: OutcomeLine,
}

/// Loads the verdicts on a trajectory in the order of its steps, those on the whole first. Lines that cannot be
/// parsed are left out.
pub(crate) fn load_verdicts(server: &ServerState, trajectory: &str) -> Result<Vec<RecordedVerdict>, ApiError> {
    let lines = server.store.verdict_lines(trajectory)?.into_iter();
    let parsed = lines.filter_map(|VerdictLine { judged_ns, is_wrong, line }| {
        let line = serde_json::from_str(&line).ok()?;
        Some(RecordedVerdict { at_ns: judged_ns, is_wrong, line })
    });
    let mut verdicts: Vec<RecordedVerdict> = parsed.collect();
    verdicts.sort_by_key(|given| given.line.step_index);
    Ok(verdicts)
}

/// Reads the files of the run up to the trajectory. 404 if the run or the trajectory does not exist.
pub(crate) fn read_run_trajectory(
    server: &ServerState,
    run: &str,
    id: &str,
) -> Result<(RunManifest, Trajectory, Vec<RecordedVerdict>), ApiError> {
    let mut reader = RunReader::open(&find_run(server, run)?).map_err(log_run_failure)?;
    let found = reader.find_trajectory(id).map_err(log_run_failure)?;
    let (trajectory, lines) = found.ok_or_else(|| ApiError::not_found("This run has no trajectory with this id."))?;
    let record = reader.record.clone();
    let mut outcomes: Vec<RecordedVerdict> = lines.into_iter().map(|line| to_recorded_verdict(&record, line)).collect();
    outcomes.sort_by_key(|given| given.line.step_index);
    Ok((record, trajectory, outcomes))
}

/// Converts an outcome of a run. Right or wrong is decided by the labels in the manifest of the run, not by present
/// rubrics.
fn to_recorded_verdict(record: &RunManifest, line: OutcomeLine) -> RecordedVerdict {
    let known = record.evaluators.iter().find(|known| *known.name == *line.evaluator);
    let is_wrong = line.score.is_some() && known.is_some_and(|known| !known.is_right(line.score));
    // Outcome lines have no time of their own.
    let ended = record.ended.as_deref().unwrap_or(&record.started);
    let at = ended.parse::<jiff::Timestamp>().ok();
    RecordedVerdict { at_ns: at.and_then(|at| i64::try_from(at.as_nanosecond()).ok()).unwrap_or(0), is_wrong, line }
}
