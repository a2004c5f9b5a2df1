//! From stored records to stored trajectories, with the verdicts of rules.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use gradus_core::assemble::LinkKey;
use gradus_core::span::TraceId;
use gradus_core::trajectory::Trajectory;
use gradus_eval::outcome::{OutcomeKind, OutcomeLine};
use gradus_eval::runner::RulesJudge;
use gradus_store::{
    AssembledStory, LinkKind, OutcomeRecord, RecordedKind, Store, StoreError, Story, TrajectoryRecord,
};

use super::rule::Rule;
use crate::serve::settings::Reloadable;
use crate::serve::state::{Server, now_ns};
use crate::source::{Intake, Limits};

/// Stories that are assembled before anybody looks whether the server is to stop.
const BATCH: usize = 128;
/// What is stored together, in bytes.
const WRITTEN_AT_ONCE: usize = 4 << 20;
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(1);
const QUERY_BYTES: usize = 300;
const NAME_BYTES: usize = 200;
/// Tools that a trajectory is found by.
const MOST_TOOLS: usize = 500;

/// Assembles what is complete until the server stops.
pub(super) fn run(server: &Server) {
    let mut judges = Judges::default();
    while !server.is_stopping.load(Ordering::Relaxed) {
        let pause = match assemble_due(server, &mut judges) {
            Ok(0) => PAUSE,
            Ok(_) => Duration::ZERO,
            Err(error) => {
                tracing::error!(%error, "traces could not be assembled; trying again");
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
        let story = server.store.story(*number)?;
        let (trajectories, links) = read_story(&story);
        if !links.is_empty() && server.store.link(links, now_ns())?.wait()? {
            // It belongs to others, and is assembled with them.
            continue;
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
        let story = AssembledStory { story: *number, due_ns: story.due_ns, records };
        bytes += story.bytes();
        stories.push(story);
        if bytes > WRITTEN_AT_ONCE || judges.is_careful {
            written.push(server.store.assembled_all(std::mem::take(&mut stories), now_ns())?);
            bytes = 0;
        }
    }
    if !stories.is_empty() {
        written.push(server.store.assembled_all(stories, now_ns())?);
    }
    // Stories that are stored together fail together: after a failure each is for itself.
    judges.is_careful = true;
    for one in written {
        server.meters.assembled(one.wait()?);
    }
    judges.is_careful = false;
    Ok(due.len())
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
        rule: &Rule,
        trajectory: Trajectory,
        mut record: TrajectoryRecord,
    ) -> TrajectoryRecord {
        let judge = self
            .by_rule
            .entry(rule.name.clone())
            .or_insert_with(|| RulesJudge::new(&run_id(rule), &rule.evaluators, rule.tool_texts()));
        let tools: HashMap<u32, String> =
            trajectory.steps.iter().map(|step| (step.index, step.tool.clone())).collect();
        for line in judge.judge(trajectory) {
            server.meters.outcome(&line);
            record.outcomes.push(outcome_record(&line, &tools));
        }
        record.ungraded_by = rule.asks_a_model().then(|| rule.name.clone());
        record
    }
}

/// The name under which a rule's verdicts are kept.
pub(super) fn run_id(rule: &Rule) -> String {
    format!("live-{}", rule.name)
}

pub(super) fn outcome_record(line: &OutcomeLine, tools: &HashMap<u32, String>) -> OutcomeRecord {
    OutcomeRecord {
        evaluator: line.evaluator.to_string(),
        step: line.step_index,
        kind: match line.outcome {
            OutcomeKind::Scored => RecordedKind::Scored,
            OutcomeKind::NotApplicable => RecordedKind::NotApplicable,
            OutcomeKind::Failed => RecordedKind::Failed,
        },
        label: line.label.clone(),
        score: line.score,
        tool: line
            .step_index
            .and_then(|index| tools.get(&index))
            .map(|tool| beginning(tool).replace('\n', " "))
            .unwrap_or_default(),
        run: line.run_id.to_string(),
        line: serde_json::to_string(line).unwrap_or_default(),
    }
}

/// The trajectories of a story, as `gradus traces` would find them in a file.
pub(in crate::serve) fn story_trajectories(story: &Story) -> Vec<Trajectory> {
    read_story(story).0
}

type Links = Vec<(TraceId, LinkKind, u64)>;

/// The same, with what ties its traces to others beyond what spans alone say.
fn read_story(story: &Story) -> (Vec<Trajectory>, Links) {
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
    crate::serve::write_otlp(story, &mut |export| intake.export(export));
    let links = match intake.finish() {
        Ok(summary) => summary.links.into_iter().map(|(trace, key)| {
            let (kind, key) = stored_link(key);
            (trace, kind, key)
        }),
        Err(error) => {
            tracing::error!(%error, story = story.no, "a trace could not be assembled");
            return (trajectories, Vec::new());
        }
    };
    let links = links.collect();
    (trajectories, links)
}

/// A link's key as the store has it.
pub(in crate::serve) fn stored_link(key: LinkKey) -> (LinkKind, u64) {
    match key {
        LinkKey::Session(key) => (LinkKind::Session, key),
        LinkKey::Leaves(key) => (LinkKind::Leaves, key),
        LinkKey::Continues(key) => (LinkKind::Continues, key),
    }
}

/// A trajectory as it is stored.
fn record_of(trajectory: &mut Trajectory) -> TrajectoryRecord {
    let offered = std::mem::replace(&mut trajectory.tools, Arc::from([]));
    let json = serde_json::to_vec(trajectory).unwrap_or_default();
    trajectory.tools = offered;
    let mut tools: Vec<String> =
        trajectory.steps.iter().map(|step| beginning(&step.tool).replace('\n', " ")).collect();
    tools.sort_unstable();
    tools.dedup();
    tools.truncate(MOST_TOOLS);
    let trace_id = trajectory.trace_ids.first().map(|id| TraceId::parse(id)).unwrap_or_default();
    let text = |value: &Option<String>| value.as_deref().map(beginning).unwrap_or_default().to_owned();
    let query = trajectory.query.as_deref().unwrap_or_default();
    TrajectoryRecord {
        trajectory_id: trajectory.trajectory_id.clone(),
        trace_id,
        start_ns: nanoseconds(trajectory.start.as_deref()),
        end_ns: nanoseconds(trajectory.end.as_deref()),
        agent: text(&trajectory.agent),
        version: text(&trajectory.agent_version),
        model: text(&trajectory.model),
        session: text(&trajectory.session_id),
        query: query[..query.floor_char_boundary(QUERY_BYTES)].to_owned(),
        steps: trajectory.steps.len() as u32,
        is_error: trajectory.is_error,
        tokens: trajectory.tokens.prompt.saturating_add(trajectory.tokens.completion),
        cost_usd: trajectory.cost_usd,
        tools,
        json,
        words: words(trajectory),
        outcomes: Vec::new(),
        ungraded_by: None,
    }
}

/// Names become keys of indexes, and are whatever somebody sends: their beginnings are enough.
fn beginning(name: &str) -> &str {
    &name[..name.floor_char_boundary(NAME_BYTES)]
}

fn nanoseconds(text: Option<&str>) -> i64 {
    let time = text.and_then(|text| text.parse::<jiff::Timestamp>().ok());
    time.and_then(|time| i64::try_from(time.as_nanosecond()).ok()).unwrap_or(0)
}

/// What a trajectory is found by: what was asked, thought, called and answered, and the beginning of what came back.
fn words(trajectory: &Trajectory) -> String {
    const MOST_BYTES: usize = 8_000;
    const OF_A_RESULT: usize = 300;
    let mut words = String::new();
    let mut add = |text: &str, most: usize| {
        let room = MOST_BYTES.saturating_sub(words.len()).min(most);
        words.push_str(&text[..text.floor_char_boundary(room)]);
        words.push('\n');
    };
    let parts = [&trajectory.query, &trajectory.final_answer, &trajectory.agent, &trajectory.session_id];
    parts.into_iter().flatten().for_each(|text| add(text, 2_000));
    for step in &trajectory.steps {
        add(&step.tool, 200);
        step.thought.iter().for_each(|text| add(text, 1_000));
        step.arguments_text().iter().for_each(|text| add(text, 500));
        step.observation.iter().for_each(|text| add(text, OF_A_RESULT));
    }
    words
}

/// The same for a trajectory in JSON.
pub(crate) fn words_of(json: &[u8]) -> String {
    serde_json::from_slice::<Trajectory>(json).map(|trajectory| words(&trajectory)).unwrap_or_default()
}

/// The trajectory of this id, with its tools, made from the records again.
pub(super) fn trajectory_again(
    store: &Store,
    story: i64,
    id: &str,
) -> Result<Option<Trajectory>, StoreError> {
    let story = store.story(story)?;
    Ok(story_trajectories(&story).into_iter().find(|trajectory| trajectory.trajectory_id == id))
}
