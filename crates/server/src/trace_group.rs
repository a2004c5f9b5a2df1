//! Assembles the stored records of a trace group into trajectories, with the same code as `gradus traces` for a file,
//! but within limits that a server can afford for one group.

use gradus_core::assemble::LinkKey;
use gradus_core::span::TraceId;
use gradus_core::trajectory::{DefectKind, ExtractionDefect, Trajectory};
use gradus_store::{LinkKind, Store, StoreError, StoredTraceGroup, TraceGroupLimits};

use crate::session_memory::SessionMemory;
use crate::settings::ServerSettings;
use gradus_ingest::{GroupLimits, RecordIntake, SourceLimits};

/// Maximum number of spans of one group that are assembled.
const MAX_GROUP_SPANS: usize = 30_000;
/// Maximum number of attribute values in all spans of a group, which bounds the decoded size.
const MAX_GROUP_VALUES: usize = 1_000_000;
/// Maximum number of stored trajectories of one group.
const MAX_GROUP_TRAJECTORIES: usize = 5_000;
/// Maximum number of steps of one trajectory that are stored and graded.
const MAX_TRAJECTORY_STEPS: usize = 10_000;
/// Maximum size of one text of a trajectory, such as a tool result, and of all texts together. Escaped as JSON they
/// may take six times as much.
const MAX_TEXT_BYTES: usize = 2 << 20;
const MAX_TRAJECTORY_TEXT_BYTES: usize = 16 << 20;

/// The lane in which a group is assembled: together with others, or one large group at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TraceGroupSize {
    Small,
    Large,
}

impl TraceGroupSize {
    /// A group within both limits is cheap to assemble and shares a batch with others.
    const MAX_SMALL_BYTES: usize = 4 << 20;
    const MAX_SMALL_SPANS: i64 = 3_000;

    /// Returns how much the store reads of a group. A small group that exceeds its limits is moved to the other lane;
    /// a large one is cut.
    pub(super) fn limits(self, settings: &ServerSettings) -> TraceGroupLimits {
        match self {
            TraceGroupSize::Small => TraceGroupLimits { bytes: Self::MAX_SMALL_BYTES, spans: Self::MAX_SMALL_SPANS },
            TraceGroupSize::Large => TraceGroupLimits { bytes: settings.max_trace_bytes, spans: i64::MAX },
        }
    }
}

/// A group as it is at this moment, for pages and for judging it again. Nothing is stored.
#[derive(Debug, Default)]
pub(crate) struct TraceGroupView {
    pub(crate) trajectories: Vec<Trajectory>,
    /// Whether records arrived since the group was last assembled.
    pub(crate) has_new_records: bool,
    /// Whether only a part of the records was read.
    pub(crate) is_cut: bool,
    /// Why the group is quarantined. It is not assembled then, since it might crash the server.
    pub(crate) quarantine_reason: Option<String>,
}

impl TraceGroupView {
    /// Reads and assembles the group on the calling thread, which must not be an async one. A quarantined group is not
    /// read.
    pub(crate) fn load(store: &Store, number: i64) -> Result<TraceGroupView, StoreError> {
        if let Some(reason) = store.quarantine_reason(number)? {
            return Ok(TraceGroupView { quarantine_reason: Some(reason), ..TraceGroupView::default() });
        }
        let trace_group = store.trace_group(number)?;
        let (has_new_records, is_cut) = (trace_group.due_ns.is_some(), trace_group.is_cut);
        let (mut trajectories, _) = read_trace_group(trace_group)?;
        // A session memory of its own: viewed traces are seldom the next ones to be graded.
        SessionMemory::default().link_group(&store.open_snapshot()?, &mut trajectories)?;
        Ok(TraceGroupView { trajectories, has_new_records, is_cut, quarantine_reason: None })
    }
}

/// Link keys that were found while assembling: trace, kind of the link, and hashed key.
pub(super) type TraceGroupLinks = Vec<(TraceId, LinkKind, u64)>;

/// Assembles the trajectories of a group, and finds links to other traces that only complete messages reveal. Omitted
/// parts are reported as a defect of the first trajectory.
pub(super) fn read_trace_group(
    mut trace_group: StoredTraceGroup,
) -> Result<(Vec<Trajectory>, TraceGroupLinks), StoreError> {
    let mut trajectories = Vec::new();
    let mut left_out = OmittedParts { records: trace_group.is_cut, ..OmittedParts::default() };
    let group = GroupLimits {
        spans: MAX_GROUP_SPANS,
        values: MAX_GROUP_VALUES,
        // One more than the limit, to detect a larger number.
        trajectories: MAX_GROUP_TRAJECTORIES + 1,
    };
    // The spool stays in memory, because the store has bounded the records.
    let limits = SourceLimits { group, spool_memory: usize::MAX, ..SourceLimits::default() };
    let projects = std::mem::take(&mut trace_group.projects);
    let mut sink = |_: usize, mut trajectory: Trajectory| {
        if trajectories.len() == MAX_GROUP_TRAJECTORIES {
            left_out.trajectories = true;
            return Ok(());
        }
        if trajectory.steps.len() > MAX_TRAJECTORY_STEPS {
            let detail = format!("{} steps; the first {MAX_TRAJECTORY_STEPS} are kept", trajectory.steps.len());
            trajectory.steps.truncate(MAX_TRAJECTORY_STEPS);
            trajectory.defects.truncate(MAX_TRAJECTORY_STEPS);
            trajectory.defects.push(ExtractionDefect::new(DefectKind::TooLarge, detail, None));
        }
        shorten_texts(&mut trajectory);
        // Senders may name the project in a header, which no span records.
        let first = trajectory.trace_ids.first().map(|id| TraceId::parse(id)).unwrap_or_default();
        if let Some(project) = projects.get(&first) {
            trajectory.project = Some(project.clone());
        }
        trajectories.push(trajectory);
        Ok(())
    };
    let number = trace_group.no;
    let mut intake = RecordIntake::new(limits, &mut sink);
    intake.begin_source("store");
    crate::stored_records::write_otlp_and_free(trace_group, &mut |export| intake.add_export(export));
    let summary = intake
        .finish()
        .map_err(|error| StoreError::BadRow { what: format!("trace group {number}"), reason: error.to_string() })?;
    left_out.records |= summary.defects.iter().any(|defect| defect.kind == DefectKind::TooLarge);
    if let (Some(detail), Some(first)) = (left_out.describe_omissions(), trajectories.first_mut()) {
        first.defects.push(ExtractionDefect::new(DefectKind::TooLarge, detail, None));
    }
    let links = summary.links.into_iter().map(|(trace, key)| {
        let (kind, key) = to_stored_link(key);
        (trace, kind, key)
    });
    Ok((trajectories, links.collect()))
}

/// Truncates texts that are too long to read or judge. The spans keep them whole.
fn shorten_texts(trajectory: &mut Trajectory) {
    let mut left = MAX_TRAJECTORY_TEXT_BYTES;
    let mut longest = 0;
    let mut shorten = |text: &mut Option<String>| {
        let Some(text) = text else { return };
        let room = MAX_TEXT_BYTES.min(left);
        if text.len() > room {
            longest = longest.max(text.len());
            text.truncate(text.floor_char_boundary(room));
            text.shrink_to_fit();
        }
        left -= text.len();
    };
    [&mut trajectory.query, &mut trajectory.final_answer].into_iter().for_each(&mut shorten);
    for step in &mut trajectory.steps {
        [&mut step.thought, &mut step.arguments_raw, &mut step.observation].into_iter().for_each(&mut shorten);
    }
    if longest > 0 {
        let detail = format!("a text of {longest} bytes is longer than a server keeps; its beginning is kept");
        trajectory.defects.push(ExtractionDefect::new(DefectKind::TooLarge, detail, None));
    }
}

/// The parts of a group that its trajectories do not contain.
#[derive(Default)]
struct OmittedParts {
    records: bool,
    trajectories: bool,
}

impl OmittedParts {
    fn describe_omissions(&self) -> Option<String> {
        match (self.records, self.trajectories) {
            (false, false) => None,
            (true, false) => Some("the trace is larger than a server assembles; what came first was read".to_owned()),
            (_, true) => Some(format!(
                "the trace has more than {MAX_GROUP_TRAJECTORIES} trajectories; those that began first are kept"
            )),
        }
    }
}

/// Converts a link to the store's kind and hashed key.
pub(crate) fn to_stored_link(key: LinkKey) -> (LinkKind, u64) {
    match key {
        LinkKey::Session(key) => (LinkKind::Session, key),
        LinkKey::Leaves(key) => (LinkKind::Leaves, key),
        LinkKey::Continues(key) => (LinkKind::Continues, key),
    }
}

#[cfg(test)]
mod tests {
    use gradus_core::trajectory::TrajectoryStep;

    use super::*;

    #[test]
    fn long_texts_are_kept_as_far_as_they_fit() {
        let observed =
            |bytes: usize| TrajectoryStep { observation: Some("é".repeat(bytes / 2)), ..TrajectoryStep::default() };
        let mut short = Trajectory { steps: vec![observed(1_000)], ..Trajectory::default() };
        shorten_texts(&mut short);
        assert_eq!((short.steps[0].observation.as_ref().map(String::len), short.defects.len()), (Some(1_000), 0));
        let mut long = Trajectory { query: Some("x".repeat(MAX_TEXT_BYTES - 1)), ..Trajectory::default() };
        long.steps = (0..10).map(|_| observed(3 * MAX_TEXT_BYTES)).collect();
        shorten_texts(&mut long);
        let kept = |step: &TrajectoryStep| step.observation.as_ref().map_or(0, String::len);
        let sum: usize = long.steps.iter().map(kept).sum();
        assert_eq!(kept(&long.steps[0]), MAX_TEXT_BYTES);
        assert_eq!(sum + MAX_TEXT_BYTES, MAX_TRAJECTORY_TEXT_BYTES, "characters are not cut in two");
        assert_eq!(long.defects.len(), 1);
    }
}
