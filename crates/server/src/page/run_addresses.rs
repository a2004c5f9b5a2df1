//! Where runs and their trajectories are looked at.

use super::address::{PageUrl, encode_path_segment};
use super::opened;
use crate::http_error::ApiError;
use crate::page::address::format_step_anchor;
use crate::state::ServerState;

/// Where a run is looked at.
pub(super) fn run_address(id: &str, project: Option<&str>) -> String {
    PageUrl::from_path(format!("/runs/{id}")).with("project", project).to_string()
}

/// Where a trajectory of a run can be looked at; none if its trace was never sent here.
pub(super) fn trajectory_address(
    server: &ServerState,
    id: &str,
    step: Option<u32>,
) -> Result<Option<String>, ApiError> {
    let trace = server.store.trace_of_trajectory(id)?;
    Ok(trace.map(|trace| opened::step_address(&trace.to_string(), Some(id), step)))
}

/// Where a trajectory of a run is looked at, or one of its steps.
pub(super) fn run_trajectory_address(run: &str, trajectory: &str, step: Option<u32>, project: Option<&str>) -> PageUrl {
    let page = step.filter(|step| *step as usize > opened::STEPS_OF_A_PAGE).map(|step| step.to_string());
    trajectory_path(run, trajectory)
        .with("step", page.as_deref())
        .with("project", project)
        .with_fragment(format_step_anchor(step))
}

fn trajectory_path(run: &str, trajectory: &str) -> PageUrl {
    PageUrl::from_path(format!("/runs/{run}/trajectories/{}", encode_path_segment(trajectory)))
}

/// Where a text of it is.
pub(super) fn run_text_address(run: &str, trajectory: &str) -> String {
    format!("{}/text", trajectory_path(run, trajectory))
}
