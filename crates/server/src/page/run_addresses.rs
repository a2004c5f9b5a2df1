//! URLs of runs and their trajectories.

use super::address::{PageUrl, encode_path_segment};
use super::loaded_trace;
use crate::http_error::ApiError;
use crate::page::address::format_step_anchor;
use crate::state::ServerState;

/// Formats the URL of a run. Ids of runs need no encoding: they are checked when a run is read.
pub(super) fn format_run_url(id: &str, project: Option<&str>) -> String {
    PageUrl::from_path(format!("/runs/{id}")).with("project", project).to_string()
}

/// Finds the URL of a trajectory in its trace. None if the trace was never sent to this server.
pub(super) fn find_trajectory_url(
    server: &ServerState,
    id: &str,
    step: Option<u32>,
) -> Result<Option<String>, ApiError> {
    let trace = server.store.trace_of_trajectory(id)?;
    Ok(trace.map(|trace| loaded_trace::format_step_url(&trace.to_string(), Some(id), step)))
}

/// Builds the URL of a trajectory with the verdicts of the run, at a step or at the verdicts on the whole.
pub(super) fn build_run_trajectory_url(
    run: &str,
    trajectory: &str,
    step: Option<u32>,
    project: Option<&str>,
) -> PageUrl {
    let page = step.filter(|step| *step as usize > loaded_trace::STEPS_PER_PAGE).map(|step| step.to_string());
    build_trajectory_path(run, trajectory)
        .with("step", page.as_deref())
        .with("project", project)
        .with_fragment(format_step_anchor(step))
}

/// Builds the path of a trajectory, whose id comes from the files of the run and may be any text.
fn build_trajectory_path(run: &str, trajectory: &str) -> PageUrl {
    PageUrl::from_path(format!("/runs/{run}/trajectories/{}", encode_path_segment(trajectory)))
}

/// Formats the path that serves whole texts of the trajectory.
pub(super) fn format_run_text_url(run: &str, trajectory: &str) -> String {
    format!("{}/text", build_trajectory_path(run, trajectory))
}
