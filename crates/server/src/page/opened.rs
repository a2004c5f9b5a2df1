//! A trace that is being looked at: one of its trajectories, with the verdicts on it and what people said of them.

use gradus_core::span::TraceId;
use gradus_core::trajectory::Trajectory;
use gradus_store::{AnnotationFilter, AnnotationRecord, TraceRow, VerdictLine};

use super::address::PageUrl;
use crate::http_error::ApiError;
use crate::page::address::format_step_anchor;
use crate::page::people::KeyNameSet;
use crate::page::recorded_verdict::RecordedVerdict;
use crate::state::ServerState;
use crate::trace_group::TraceGroupView;

pub(super) struct LoadedTrace {
    pub(super) row: TraceRow,
    pub(super) trajectory: Option<Trajectory>,
    /// All that the trace holds, in order.
    pub(super) others: Vec<TrajectoryListEntry>,
    pub(super) outcomes: Vec<RecordedVerdict>,
    /// With their authors as they are shown.
    pub(super) said: Vec<AnnotationRecord>,
    /// A model has still to judge it.
    pub(super) waits: bool,
    /// The trace may still grow; what is shown is as far as it came, and not judged yet.
    pub(super) is_open: bool,
    /// Why it is quarantined, if it is.
    pub(super) quarantine_reason: Option<String>,
}

pub(super) struct TrajectoryListEntry {
    pub(super) id: String,
    pub(super) agent: Option<String>,
    pub(super) query: Option<String>,
    pub(super) steps: usize,
    /// Something in it was found wrong.
    pub(super) is_failing: bool,
}

/// What people said of one trace that is looked at.
const MAX_SAID: usize = 2_000;

pub(super) fn trace_id(text: &str) -> Option<TraceId> {
    u128::from_str_radix(text, 16).ok().filter(|_| text.len() == 32).map(TraceId)
}

/// Steps of one page.
pub(super) const STEPS_OF_A_PAGE: usize = 200;

/// Where a trajectory of a trace is shown, and on which page of it a step.
pub(super) fn build_trace_url(trace: &str, trajectory: Option<&str>, step: Option<u32>) -> PageUrl {
    let step = step.filter(|step| *step as usize > STEPS_OF_A_PAGE).map(|step| step.to_string());
    PageUrl::from_path(format!("/traces/{trace}")).with("trajectory", trajectory).with("step", step.as_deref())
}

/// Where one step of a trajectory is looked at, or the trajectory as a whole: on the page that has it.
pub(super) fn step_address(trace: &str, trajectory: Option<&str>, step: Option<u32>) -> String {
    build_trace_url(trace, trajectory, step).with_fragment(format_step_anchor(step)).to_string()
}

/// Opens a trace at one of its trajectories, or at the first.
pub(super) fn load_trace(server: &ServerState, trace: &str, wanted: Option<&str>) -> Result<LoadedTrace, ApiError> {
    let missing = || ApiError::not_found("No trace has this id. Retention may have deleted it.");
    let id = trace_id(trace).ok_or_else(missing)?;
    let row = server.store.trace(id)?.ok_or_else(missing)?;
    let quarantine_reason = server.store.quarantine_reason(row.trace_group)?;
    let is_open = quarantine_reason.is_none() && server.store.is_due(row.trace_group)?;
    let stored = row.trajectories.iter().any(|known| wanted.is_none_or(|id| known.trajectory_id == id));
    let (trajectory, others) =
        if stored && !is_open { stored_one(server, &row, wanted)? } else { assemble_selection(server, &row, wanted)? };
    if wanted.is_some() && trajectory.is_none() {
        return Err(ApiError::not_found("This trace has no trajectory with this id."));
    }
    let mut outcomes = Vec::new();
    if let Some(trajectory) = &trajectory {
        for VerdictLine { judged_ns, is_wrong, line } in server.store.verdict_lines(&trajectory.trajectory_id)? {
            outcomes.extend(serde_json::from_str(&line).ok().map(|line| RecordedVerdict {
                at_ns: judged_ns,
                is_wrong,
                line,
            }));
        }
    }
    let filter = AnnotationFilter {
        trace_id: Some(id.0),
        annotator: Some("HUMAN".to_owned()),
        limit: MAX_SAID,
        ..AnnotationFilter::default()
    };
    let mut said = server.store.annotations(&filter)?;
    if !said.is_empty() {
        let speakers = KeyNameSet::load_from_store(&server.store)?;
        for one in &mut said {
            one.author = speakers.format_author(&one.author, &one.identifier, &one.metadata);
        }
    }
    let waits = match &trajectory {
        Some(trajectory) => server.store.is_awaiting_grading(&trajectory.trajectory_id)?,
        None => false,
    };
    Ok(LoadedTrace { row, trajectory, others, outcomes, said, waits, is_open, quarantine_reason })
}

type TrajectorySelection = (Option<Trajectory>, Vec<TrajectoryListEntry>);

/// As it was kept when the trace was complete.
fn stored_one(server: &ServerState, row: &TraceRow, wanted: Option<&str>) -> Result<TrajectorySelection, ApiError> {
    let chosen = row.trajectories.iter().find(|known| wanted.is_none_or(|id| known.trajectory_id == id));
    let json = chosen.map(|known| server.store.trajectory_json(&known.trajectory_id)).transpose()?.flatten();
    let text = |text: &String| (!text.is_empty()).then(|| text.clone());
    let others = row.trajectories.iter().map(|known| TrajectoryListEntry {
        id: known.trajectory_id.clone(),
        agent: text(&known.agent),
        query: text(&known.query),
        steps: usize::try_from(known.steps).unwrap_or(0),
        is_failing: known.scores.iter().any(|score| score.wrong > 0),
    });
    Ok((json.and_then(|json| serde_json::from_slice(&json).ok()), others.collect()))
}

/// Made of the records that are there: while a trace arrives, and where its trajectory begins in another trace.
fn assemble_selection(
    server: &ServerState,
    row: &TraceRow,
    wanted: Option<&str>,
) -> Result<TrajectorySelection, ApiError> {
    let id = row.trace_id.to_string();
    let mut all = TraceGroupView::load(&server.store, row.trace_group)?.trajectories;
    all.retain(|one| one.trace_ids.contains(&id));
    let others = all.iter().map(|one| TrajectoryListEntry {
        id: one.trajectory_id.clone(),
        agent: one.agent.clone(),
        query: one.query.clone(),
        steps: one.steps.len(),
        is_failing: false,
    });
    let others = others.collect();
    let at = all.iter().position(|one| wanted.is_none_or(|id| one.trajectory_id == id));
    Ok((at.map(|at| all.swap_remove(at)), others))
}
