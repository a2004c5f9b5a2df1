//! Flaws about failed calls. The original has a failed call, too, and handles it well, so that questions about errors
//! apply to both.

use gradus_core::trajectory::TrajectoryStep;

use super::draft::{PlantingSite, RunDraft};
use super::planted_run::FlawedRun;
use crate::seeded_choice::SeededChoice;
use crate::tool_words::is_writing;

/// Error messages of calls that were refused and changed nothing.
const REFUSALS: [&str; 6] = [
    "{\"error\":{\"status\":403,\"message\":\"Forbidden: you have no right to do this. Nothing was changed.\"}}",
    "Error: 422 Unprocessable Entity. The request was rejected, and nothing was changed.",
    "{\"status\":409,\"message\":\"Conflict: the operation was not carried out.\"}",
    "Error: 404 Not Found. The operation was not carried out.",
    "{\"ok\":false,\"error\":\"quota exceeded, the request was refused\"}",
    "Error: 401 Unauthorized. The credentials have expired; nothing was done.",
];

/// Messages of transient failures, after which a retry is right.
const PASSING_FAILURES: [&str; 3] = [
    "Error: 429 Too Many Requests. The request was not processed; try again in 2 seconds.",
    "{\"status\":503,\"message\":\"Service temporarily unavailable. The request was not processed.\"}",
    "Error: connection refused before the request could be sent.",
];

const RETRY_THOUGHTS: [&str; 3] = [
    "The request was not processed, so I try it again.",
    "That was a passing failure and nothing was done yet. I repeat the call.",
    "The service was busy for a moment; the same call once more.",
];

/// Makes a change fail, while the agent continues and answers as if it had succeeded.
pub(super) fn plant_ignored_error(site: &PlantingSite<'_>, choice: &mut SeededChoice) -> Option<FlawedRun> {
    let steps = site.steps();
    // A right run with a failure of its own would have two.
    if steps.iter().any(|step| step.is_error) {
        return None;
    }
    let changes: Vec<usize> = (0..steps.len()).filter(|at| is_writing(&steps[*at].tool)).collect();
    let at = *choice.pick(&changes)?;
    let mut original = RunDraft::new(site.run);
    let failure = (*choice.pick(&PASSING_FAILURES)?).to_owned();
    let attempt =
        TrajectoryStep { observation: Some(failure), is_error: true, tool_call_id: None, ..steps[at].clone() };
    original.insert_step(at, attempt);
    if site.run.has_thoughts() {
        original.trajectory.steps[at + 1].thought = choice.pick(&RETRY_THOUGHTS).map(|text| (*text).to_owned());
    }
    let mut draft = RunDraft::new(site.run);
    draft.fail_step(at, choice.pick(&REFUSALS)?);
    let note = format!("step {} fails, and the run goes on: {}", at + 1, steps[at].tool);
    let is_last = at + 1 == steps.len();
    let run = draft.finish(site, original, RunDraft::number(at), RunDraft::number(at + 1), note);
    Some(
        run.with_trajectory_expectation("recovery_quality", true)
            .with_trajectory_expectation("error_recovery", true)
            .with_trajectory_expectation("task_completion", true)
            // Only the answer certainly treats the call as successful; other steps may not depend on it.
            .with_step_expectation("misread_observation", is_last),
    )
}
