//! Loading of the trace that a page shows: one of its trajectories with verdicts and labels.

use gradus_core::span::TraceId;
use gradus_core::trajectory::Trajectory;
use gradus_store::{AnnotationFilter, AnnotationRecord, TraceRow};
use serde::Deserialize;

use super::address::PageUrl;
use super::display_text::parse_time_ns;
use crate::http_error::ApiError;
use crate::page::address::format_step_anchor;
use crate::page::label_authors::KeyNameSet;
use crate::recorded_verdict::{RecordedVerdict, load_verdicts};
use crate::state::ServerState;
use crate::trace_group::TraceGroupView;

/// A trace and the selected trajectory.
pub(super) struct LoadedTrace {
    pub(super) row: TraceRow,
    /// None if the trace contains no trajectory, as one with a few unrelated spans.
    pub(super) trajectory: Option<Trajectory>,
    /// All trajectories of the trace in order, the selected one included.
    pub(super) others: Vec<TrajectoryListEntry>,
    /// If the first trajectory is selected and has no wrong verdict: the first other one that has one, where the
    /// cause may be.
    pub(super) failing_other: Option<(Trajectory, Vec<RecordedVerdict>)>,
    /// Verdicts on the selected trajectory, in the order of its steps.
    pub(super) outcomes: Vec<RecordedVerdict>,
    /// Annotations of people on the whole trace. `author` is already formatted for display.
    pub(super) said: Vec<AnnotationRecord>,
    /// Whether the trajectory waits for a judge model.
    pub(super) waits: bool,
    /// The trace may still grow. What is shown was assembled for this request and is not graded yet.
    pub(super) is_open: bool,
    /// Why the trace is quarantined, if it is.
    pub(super) quarantine_reason: Option<String>,
}

/// An entry of the list of trajectories.
pub(super) struct TrajectoryListEntry {
    pub(super) id: String,
    pub(super) agent: Option<String>,
    pub(super) query: Option<String>,
    pub(super) steps: usize,
    /// Whether it has a wrong verdict. Always false while the trace is open.
    pub(super) is_failing: bool,
    /// The trajectory and the step of it that started this one.
    pub(super) parent: Option<String>,
    pub(super) parent_step: Option<u32>,
    pub(super) start_ns: i64,
    pub(super) end_ns: i64,
}

/// The part of a stored trajectory that says who started it.
#[derive(Default, Deserialize)]
struct ParentReference {
    parent_trajectory_id: Option<String>,
    parent_step_index: Option<u32>,
}

/// Maximum number of trajectories of one trace whose parents are looked up, since each has to be read for it.
const MAX_PARENTS: usize = 50;

/// Maximum number of annotations that are loaded with one trace.
const MAX_TRACE_ANNOTATIONS: usize = 2_000;

/// Parses exactly 32 hexadecimal digits. Anything else could not be stored and would be unsafe in a path.
pub(super) fn trace_id(text: &str) -> Option<TraceId> {
    u128::from_str_radix(text, 16).ok().filter(|_| text.len() == 32).map(TraceId)
}

/// Number of steps on one page of a trajectory.
pub(super) const STEPS_PER_PAGE: usize = 200;

/// Builds the URL of a trajectory. `step` selects the page that contains it; the first page needs no parameter, since
/// steps are numbered from 1.
pub(super) fn build_trace_url(trace: &str, trajectory: Option<&str>, step: Option<u32>) -> PageUrl {
    let step = step.filter(|step| *step as usize > STEPS_PER_PAGE).map(|step| step.to_string());
    PageUrl::from_path(format!("/traces/{trace}")).with("trajectory", trajectory).with("step", step.as_deref())
}

/// Builds the URL of a step with its fragment; for verdicts on the whole trajectory, the top of the page with the
/// headline.
pub(super) fn build_step_url(trace: &str, trajectory: Option<&str>, step: Option<u32>) -> PageUrl {
    let page = build_trace_url(trace, trajectory, step);
    match step {
        Some(_) => page.with_fragment(format_step_anchor(step)),
        None => page,
    }
}

pub(super) fn format_step_url(trace: &str, trajectory: Option<&str>, step: Option<u32>) -> String {
    build_step_url(trace, trajectory, step).to_string()
}

/// Loads a trace with the trajectory `wanted`, or with the first one. 404 if either does not exist. Reads and possibly
/// assembles a whole trace group, so it belongs on the pool for large queries.
pub(super) fn load_trace(server: &ServerState, trace: &str, wanted: Option<&str>) -> Result<LoadedTrace, ApiError> {
    let missing = || ApiError::not_found("No trace has this id. Retention may have deleted it.");
    let id = trace_id(trace).ok_or_else(missing)?;
    let row = server.store.trace(id)?.ok_or_else(missing)?;
    let quarantine_reason = server.store.quarantine_reason(row.trace_group)?;
    let is_open = quarantine_reason.is_none() && server.store.is_in_ready_queue(row.trace_group)?;
    // A stored trajectory is read as it was graded. While the trace is open it may be outdated, and one that begins in
    // another trace of the group is not among the rows of this trace; both are assembled anew.
    let stored = row.trajectories.iter().any(|known| wanted.is_none_or(|id| known.trajectory_id == id));
    let (trajectory, others) = if stored && !is_open {
        load_stored_selection(server, &row, wanted)?
    } else {
        assemble_selection(server, &row, wanted)?
    };
    if wanted.is_some() && trajectory.is_none() {
        return Err(ApiError::not_found("This trace has no trajectory with this id."));
    }
    let outcomes = match &trajectory {
        Some(trajectory) => load_verdicts(server, &trajectory.trajectory_id)?,
        None => Vec::new(),
    };
    let filter = AnnotationFilter {
        trace_id: Some(id.0),
        annotator: Some("HUMAN".to_owned()),
        limit: MAX_TRACE_ANNOTATIONS,
        ..AnnotationFilter::default()
    };
    let mut said = server.store.annotations(&filter)?;
    // Key names are only needed to format authors.
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
    let is_flagged = outcomes.iter().any(|given| given.is_wrong);
    let is_first = others.first().zip(trajectory.as_ref()).is_some_and(|(first, own)| first.id == own.trajectory_id);
    let failing_other = match others.iter().find(|other| other.is_failing) {
        Some(other) if is_first && !is_flagged => load_run(server, &other.id)?,
        _ => None,
    };
    Ok(LoadedTrace { row, trajectory, others, failing_other, outcomes, said, waits, is_open, quarantine_reason })
}

/// The selected trajectory, and the list of all.
type TrajectorySelection = (Option<Trajectory>, Vec<TrajectoryListEntry>);

/// Reads the trajectory that was stored when the trace was complete.
fn load_stored_selection(
    server: &ServerState,
    row: &TraceRow,
    wanted: Option<&str>,
) -> Result<TrajectorySelection, ApiError> {
    let chosen = row.trajectories.iter().find(|known| wanted.is_none_or(|id| known.trajectory_id == id));
    let json = chosen.map(|known| server.store.trajectory_json(&known.trajectory_id)).transpose()?.flatten();
    let text = |text: &String| (!text.is_empty()).then(|| text.clone());
    let mut others = Vec::with_capacity(row.trajectories.len());
    for (at, known) in row.trajectories.iter().enumerate() {
        // A single trajectory has no parent in its trace.
        let is_looked_up = row.trajectories.len() > 1 && at < MAX_PARENTS;
        let parent = if is_looked_up { load_parent(server, &known.trajectory_id)? } else { ParentReference::default() };
        others.push(TrajectoryListEntry {
            id: known.trajectory_id.clone(),
            agent: text(&known.agent),
            query: text(&known.query),
            steps: usize::try_from(known.steps).unwrap_or(0),
            is_failing: known.scores.iter().any(|score| score.wrong > 0),
            parent: parent.parent_trajectory_id,
            parent_step: parent.parent_step_index,
            start_ns: known.start_ns,
            end_ns: known.end_ns,
        });
    }
    Ok((json.and_then(|json| serde_json::from_slice(&json).ok()), others))
}

/// Loads a stored trajectory with its verdicts. None if it cannot be read.
fn load_run(server: &ServerState, id: &str) -> Result<Option<(Trajectory, Vec<RecordedVerdict>)>, ApiError> {
    let json = server.store.trajectory_json(id)?.unwrap_or_default();
    let trajectory: Option<Trajectory> = serde_json::from_slice(&json).ok();
    trajectory.map(|trajectory| Ok((trajectory, load_verdicts(server, id)?))).transpose()
}

/// Loads the parent of a trajectory; empty if the trajectory cannot be read.
fn load_parent(server: &ServerState, trajectory: &str) -> Result<ParentReference, ApiError> {
    let json = server.store.trajectory_json(trajectory)?.unwrap_or_default();
    Ok(serde_json::from_slice(&json).unwrap_or_default())
}

/// Assembles the trajectories from the stored records: while a trace arrives, and for a trajectory that begins in
/// another trace.
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
        parent: one.parent_trajectory_id.clone(),
        parent_step: one.parent_step_index,
        start_ns: parse_time_ns(one.start.as_deref()).unwrap_or(0),
        end_ns: parse_time_ns(one.end.as_deref()).unwrap_or(0),
    });
    let others = others.collect();
    let at = all.iter().position(|one| wanted.is_none_or(|id| one.trajectory_id == id));
    Ok((at.map(|at| all.swap_remove(at)), others))
}
