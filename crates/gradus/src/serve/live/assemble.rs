//! From stored records to stored trajectories, with the verdicts of rules.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use gradus_core::assemble::LinkKey;
use gradus_core::span::TraceId;
use gradus_core::trajectory::Trajectory;
use gradus_eval::runner::RulesJudge;
use gradus_store::{AssembledStory, LinkKind, StoreError, Story, TrajectoryRecord, Written};

use super::record::{Scales, outcome_record, record_of};
use super::rule::GradingRule;
use super::setback::{Setback, survive};
use crate::serve::settings::Reloadable;
use crate::serve::state::{Server, now_ns};
use crate::source::{Intake, Limits};

/// Stories that are assembled before anybody looks whether the server is to stop.
const BATCH: usize = 512;
/// What is stored together, in bytes.
const WRITTEN_AT_ONCE: usize = 8 << 20;
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(1);

/// Assembles what is complete until the server stops.
pub(super) fn run(server: &Server) {
    let mut judges = Judges::default();
    while !server.is_stopping.load(Ordering::Relaxed) {
        let pause = match survive(|| assemble_due(server, &mut judges)) {
            Ok(0) => PAUSE,
            Ok(_) => Duration::ZERO,
            Err(setback) => {
                server.meters.set_back(setback.kind());
                tracing::error!(error = %setback, "traces could not be assembled; trying again");
                judges = Judges { is_careful: true, ..Judges::default() };
                PAUSE_AFTER_FAILURE
            }
        };
        std::thread::sleep(pause);
    }
}

fn assemble_due(server: &Server, judges: &mut Judges) -> Result<usize, StoreError> {
    let settings = &server.settings;
    let quiet_ns = settings.quiet.as_nanos() as i64;
    let give_up_ns = settings.give_up.max(settings.quiet).as_nanos() as i64;
    let due = server.store.due(now_ns(), quiet_ns, give_up_ns, BATCH)?;
    if due.is_empty() {
        return Ok(0);
    }
    let reloadable = server.reloadable();
    judges.use_rules(&reloadable);
    let mut written = Vec::new();
    let (mut stories, mut bytes) = (Vec::new(), 0);
    for number in &due {
        match survive(|| assemble(server, &reloadable, judges, *number)) {
            Ok(Some(story)) => {
                bytes += story.bytes();
                stories.push(story);
            }
            Ok(None) => {}
            Err(setback) => {
                judges.by_rule.clear();
                set_aside(server, *number, setback)?;
            }
        }
        if bytes > WRITTEN_AT_ONCE || judges.is_careful {
            written.extend(store(server, &mut stories)?);
            bytes = 0;
        }
    }
    written.extend(store(server, &mut stories)?);
    let mut failed = None;
    for (numbers, one) in written {
        match (one.wait(), numbers.as_slice()) {
            (Ok(count), _) => server.meters.assembled(count),
            (Err(error), [alone]) => set_aside(server, *alone, error.into())?,
            (Err(error), _) => failed = Some(error),
        }
    }
    // Stories that are stored together fail together: after a failure each is for itself.
    judges.is_careful = failed.is_some();
    failed.map_or(Ok(due.len()), Err)
}

/// `None` when it belongs to others, and is assembled with them.
fn assemble(
    server: &Server,
    reloadable: &Reloadable,
    judges: &mut Judges,
    number: i64,
) -> Result<Option<AssembledStory>, StoreError> {
    let story = server.store.story(number)?;
    let (trajectories, links) = read_story(&story)?;
    if !links.is_empty() && server.store.link(links, now_ns())?.wait()? {
        return Ok(None);
    }
    let mut records = Vec::with_capacity(trajectories.len());
    for mut trajectory in trajectories {
        let rule = reloadable.rules.iter().find(|rule| rule.fits(project(&trajectory)));
        let record = record_of(&mut trajectory);
        records.push(match rule.filter(|rule| rule.takes(&trajectory)) {
            Some(rule) => judges.judge(server, rule, trajectory, record),
            None => record,
        });
    }
    Ok(Some(AssembledStory { story: number, due_ns: story.due_ns, records }))
}

type Storing = (Vec<i64>, Written<usize>);

fn store(server: &Server, stories: &mut Vec<AssembledStory>) -> Result<Option<Storing>, StoreError> {
    if stories.is_empty() {
        return Ok(None);
    }
    let numbers = stories.iter().map(|story| story.story).collect();
    Ok(Some((numbers, server.store.assembled(std::mem::take(stories), now_ns())?)))
}

/// Goes on without a story that nothing can be made of for now. What the whole store suffers from is an error.
fn set_aside(server: &Server, number: i64, setback: Setback) -> Result<(), StoreError> {
    let setback = setback.own()?;
    server.meters.set_back(setback.kind());
    tracing::error!(story = number, error = %setback, "a trace could not be assembled; it is set aside for a while");
    server.store.set_aside(number, now_ns())?.wait()
}

fn project(trajectory: &Trajectory) -> &str {
    trajectory.project.as_deref().unwrap_or("default")
}

/// The judges that need no model, by rule.
#[derive(Default)]
struct Judges {
    made_for: Option<Arc<Reloadable>>,
    by_rule: HashMap<String, RulesJudge>,
    /// Something could not be stored the last time.
    is_careful: bool,
}

impl Judges {
    fn use_rules(&mut self, reloadable: &Arc<Reloadable>) {
        if self.made_for.as_ref().is_none_or(|known| !Arc::ptr_eq(known, reloadable)) {
            self.by_rule.clear();
            self.made_for = Some(Arc::clone(reloadable));
        }
    }

    fn judge(
        &mut self,
        server: &Server,
        rule: &GradingRule,
        trajectory: Trajectory,
        mut record: TrajectoryRecord,
    ) -> TrajectoryRecord {
        let judge = self
            .by_rule
            .entry(rule.name.clone())
            .or_insert_with(|| RulesJudge::new(&rule.run_id(), &rule.evaluators, rule.tool_texts()));
        let tools: HashMap<u32, String> =
            trajectory.steps.iter().map(|step| (step.index, step.tool.clone())).collect();
        let scales = Scales::of(&rule.evaluators);
        for line in judge.judge(trajectory) {
            server.meters.outcome(&line);
            record.outcomes.push(outcome_record(&line, &tools, &scales));
        }
        record.ungraded_by = rule.asks_a_model().then(|| rule.name.clone());
        record
    }
}

/// The trajectories of a story, as `gradus traces` would find them in a file.
pub(in crate::serve) fn story_trajectories(story: &Story) -> Vec<Trajectory> {
    match read_story(story) {
        Ok((trajectories, _)) => trajectories,
        Err(error) => {
            tracing::error!(%error, "a trace could not be assembled");
            Vec::new()
        }
    }
}

type Links = Vec<(TraceId, LinkKind, u64)>;

/// The same, with what ties its traces to others beyond what spans alone say.
fn read_story(story: &Story) -> Result<(Vec<Trajectory>, Links), StoreError> {
    let mut trajectories = Vec::new();
    let limits = Limits::default();
    let mut sink = |_: usize, mut trajectory: Trajectory| {
        // Senders name the project in a header, too, which no span knows of.
        let first = trajectory.trace_ids.first().map(|id| TraceId::parse(id)).unwrap_or_default();
        if let Some(project) = story.projects.get(&first) {
            trajectory.project = Some(project.clone());
        }
        trajectories.push(trajectory);
        Ok(())
    };
    let mut intake = Intake::new(limits, &mut sink);
    intake.begin_source("store");
    crate::stored_records::write_otlp(story, &mut |export| intake.export(export));
    let summary = intake.finish().map_err(|error| StoreError::BadRow {
        what: format!("story {}", story.no),
        reason: error.to_string(),
    })?;
    let links = summary.links.into_iter().map(|(trace, key)| {
        let (kind, key) = stored_link(key);
        (trace, kind, key)
    });
    let links = links.collect();
    Ok((trajectories, links))
}

/// A link's key as the store has it.
pub(in crate::serve) fn stored_link(key: LinkKey) -> (LinkKind, u64) {
    match key {
        LinkKey::Session(key) => (LinkKind::Session, key),
        LinkKey::Leaves(key) => (LinkKind::Leaves, key),
        LinkKey::Continues(key) => (LinkKind::Continues, key),
    }
}
