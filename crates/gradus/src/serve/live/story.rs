//! Reads the records of a story into trajectories, as `gradus traces` would find them in a file, within what a server can
//! afford for one story.

use gradus_core::assemble::LinkKey;
use gradus_core::span::TraceId;
use gradus_core::trajectory::{Defect, DefectKind, Trajectory};
use gradus_store::{LinkKind, Store, StoreError, Story, StoryLimits};

use crate::serve::settings::Settings;
use crate::source::{GroupLimits, Intake, Limits};

/// Spans of one story that are assembled.
const MAX_STORY_SPANS: usize = 30_000;
/// Attribute values of all its spans.
const MAX_STORY_VALUES: usize = 1_000_000;
/// Trajectories of one story that are kept.
const MAX_STORY_TRAJECTORIES: usize = 5_000;
/// Steps of one trajectory that are kept and graded.
const MAX_TRAJECTORY_STEPS: usize = 10_000;

/// Whether a story is assembled together with others or in the lane for large ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StorySize {
    Small,
    Large,
}

impl StorySize {
    const MAX_SMALL_BYTES: usize = 4 << 20;
    const MAX_SMALL_SPANS: i64 = 3_000;

    pub(super) fn limits(self, settings: &Settings) -> StoryLimits {
        match self {
            StorySize::Small => StoryLimits { bytes: Self::MAX_SMALL_BYTES, spans: Self::MAX_SMALL_SPANS },
            StorySize::Large => StoryLimits { bytes: settings.max_trace_bytes, spans: i64::MAX },
        }
    }
}

/// A story as it is at this moment, for those who look at it or judge it again.
#[derive(Debug, Default)]
pub(in crate::serve) struct StoryView {
    pub(in crate::serve) trajectories: Vec<Trajectory>,
    /// Something came since it was assembled.
    pub(in crate::serve) is_due: bool,
    /// It is larger than what was read of it.
    pub(in crate::serve) is_cut: bool,
    /// Why it is quarantined, if it is. Nothing is assembled then.
    pub(in crate::serve) quarantine_reason: Option<String>,
}

impl StoryView {
    pub(in crate::serve) fn load(store: &Store, number: i64) -> Result<StoryView, StoreError> {
        if let Some(reason) = store.quarantine_reason(number)? {
            return Ok(StoryView { quarantine_reason: Some(reason), ..StoryView::default() });
        }
        let story = store.story(number)?;
        let (is_due, is_cut) = (story.due_ns.is_some(), story.is_cut);
        let (trajectories, _) = read_story(story)?;
        Ok(StoryView { trajectories, is_due, is_cut, quarantine_reason: None })
    }
}

pub(super) type Links = Vec<(TraceId, LinkKind, u64)>;

/// The trajectories of a story, and what ties its traces to others beyond what spans alone say.
pub(super) fn read_story(mut story: Story) -> Result<(Vec<Trajectory>, Links), StoreError> {
    let mut trajectories = Vec::new();
    let mut left_out = LeftOut { records: story.is_cut, ..LeftOut::default() };
    let group = GroupLimits {
        spans: MAX_STORY_SPANS,
        values: MAX_STORY_VALUES,
        // One more shows that there are more.
        trajectories: MAX_STORY_TRAJECTORIES + 1,
    };
    // Kept in memory whatever its size: what was read from the store is bounded already.
    let limits = Limits { group, spool_memory: usize::MAX, ..Limits::default() };
    let projects = std::mem::take(&mut story.projects);
    let mut sink = |_: usize, mut trajectory: Trajectory| {
        if trajectories.len() == MAX_STORY_TRAJECTORIES {
            left_out.trajectories = true;
            return Ok(());
        }
        if trajectory.steps.len() > MAX_TRAJECTORY_STEPS {
            let detail =
                format!("{} steps; the first {MAX_TRAJECTORY_STEPS} are kept", trajectory.steps.len());
            trajectory.steps.truncate(MAX_TRAJECTORY_STEPS);
            trajectory.defects.truncate(MAX_TRAJECTORY_STEPS);
            trajectory.defects.push(Defect::new(DefectKind::TooLarge, detail, None));
        }
        // Senders name the project in a header, too, which no span knows of.
        let first = trajectory.trace_ids.first().map(|id| TraceId::parse(id)).unwrap_or_default();
        if let Some(project) = projects.get(&first) {
            trajectory.project = Some(project.clone());
        }
        trajectories.push(trajectory);
        Ok(())
    };
    let number = story.no;
    let mut intake = Intake::new(limits, &mut sink);
    intake.begin_source("store");
    crate::stored_records::take_otlp(story, &mut |export| intake.export(export));
    let summary = intake
        .finish()
        .map_err(|error| StoreError::BadRow { what: format!("story {number}"), reason: error.to_string() })?;
    left_out.records |= summary.defects.iter().any(|defect| defect.kind == DefectKind::TooLarge);
    if let (Some(detail), Some(first)) = (left_out.detail(), trajectories.first_mut()) {
        first.defects.push(Defect::new(DefectKind::TooLarge, detail, None));
    }
    let links = summary.links.into_iter().map(|(trace, key)| {
        let (kind, key) = stored_link(key);
        (trace, kind, key)
    });
    Ok((trajectories, links.collect()))
}

/// What of a story is not in its trajectories.
#[derive(Default)]
struct LeftOut {
    records: bool,
    trajectories: bool,
}

impl LeftOut {
    fn detail(&self) -> Option<String> {
        match (self.records, self.trajectories) {
            (false, false) => None,
            (true, false) => {
                Some("the trace is larger than a server assembles; what came first was read".to_owned())
            }
            (_, true) => Some(format!(
                "the trace has more than {MAX_STORY_TRAJECTORIES} trajectories; those that began first are kept"
            )),
        }
    }
}

/// A link's key as the store has it.
pub(in crate::serve) fn stored_link(key: LinkKey) -> (LinkKind, u64) {
    match key {
        LinkKey::Session(key) => (LinkKind::Session, key),
        LinkKey::Leaves(key) => (LinkKind::Leaves, key),
        LinkKey::Continues(key) => (LinkKind::Continues, key),
    }
}
