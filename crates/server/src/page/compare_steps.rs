//! Two runs of one task side by side: the same calls stand in the same row, and what differs is marked.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use gradus_core::trajectory::{Trajectory, TrajectoryStep};
use gradus_report::compare::{AlignedStep, StepRelation, align_steps};
use gradus_report::html::number::{self, format_count};
use gradus_report::html::text;
use serde::Deserialize;

use super::PageLayout;
use super::address::PageUrl;
use super::display_text::format_duration;
use super::render::{self, PageError, PageQuery};
use super::run_addresses::{run_trajectory_address, trajectory_address};
use super::run_outcome::RunOutcome;
use super::run_trajectory::read_run_trajectory;
use crate::evaluators::find_evaluator_title;
use crate::http_error::ApiError;
use crate::page::recorded_verdict::RecordedVerdict;
use crate::settings::ReloadableSettings;
use crate::state::ServerState;

/// Rows of the page; the rest is counted.
const MAX_ROWS: usize = 200;
/// Characters of a thought, of arguments and of a result in a cell. The page of the run has all of it.
const MAX_CELL_CHARS: usize = 400;
/// Arguments that are named as different.
const MAX_DIFFERENT_KEYS: usize = 8;

/// Parameters of `/compare/steps`.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct StepComparisonQuery {
    /// Ids of the trajectories.
    a: String,
    b: String,
    /// Runs of `gradus eval` that judged them; without these, the store has them.
    run_a: Option<String>,
    run_b: Option<String>,
    /// What was compared, for the way back.
    by: Option<String>,
    name_a: Option<String>,
    name_b: Option<String>,
    project: Option<String>,
}

#[derive(Template)]
#[template(path = "compare_steps.html")]
struct StepComparisonPage {
    frame: PageLayout,
    back: String,
    request: String,
    sides: [ComparedSide; 2],
    rows: Vec<ComparedStepRow>,
    /// Rows that are not shown.
    more: Option<String>,
    answers: [Option<String>; 2],
    /// `2 of 5 rows differ`.
    summary: String,
}

/// One of the runs.
struct ComparedSide {
    letter: &'static str,
    name: String,
    href: String,
    outcome: Option<RunOutcome>,
    facts: Vec<(&'static str, String)>,
    /// Wrong verdicts on the whole run.
    flags: Vec<StepFlag>,
}

/// Two steps beside each other.
struct ComparedStepRow {
    class: &'static str,
    /// What differs, in words.
    difference: Option<String>,
    cells: [Option<ComparedStepCell>; 2],
}

struct ComparedStepCell {
    number: u32,
    href: String,
    tool: String,
    is_error: bool,
    thought: Option<String>,
    arguments: Option<String>,
    observation: Option<String>,
    flags: Vec<StepFlag>,
}

/// A wrong verdict.
struct StepFlag {
    title: String,
    label: String,
    explanation: Option<String>,
}

/// A run with its verdicts, and where its page is.
struct LoadedSide {
    trajectory: Trajectory,
    verdicts: Vec<RecordedVerdict>,
    run: Option<String>,
}

/// `GET /compare/steps`
pub(super) async fn render_step_comparison(
    State(server): State<Arc<ServerState>>,
    headers: HeaderMap,
    PageQuery(choice): PageQuery<StepComparisonQuery>,
) -> Result<Response, PageError> {
    let project = choice.project.as_deref().filter(|name| !name.is_empty());
    let here = if choice.by.is_some() { "/versions" } else { "/runs" };
    let frame = PageLayout::new(here, project, &headers);
    render::of_large(&server, move |server| build_step_comparison(server, &choice, frame)).await
}

fn build_step_comparison(
    server: &ServerState,
    choice: &StepComparisonQuery,
    frame: PageLayout,
) -> Result<StepComparisonPage, ApiError> {
    let settings = server.reloadable();
    let first = LoadedSide::load(server, &choice.a, choice.run_a.as_deref())?;
    let second = LoadedSide::load(server, &choice.b, choice.run_b.as_deref())?;
    let aligned = align_steps(&first.trajectory.steps, &second.trajectory.steps);
    let differing = aligned.iter().filter(|row| row.relation != StepRelation::SameCall).count() as u64;
    let mut rows = Vec::new();
    for row in aligned.iter().take(MAX_ROWS) {
        rows.push(ComparedStepRow::new(server, &settings, *row, [&first, &second])?);
    }
    let more = (aligned.len() - rows.len()) as u64;
    let request = first.trajectory.query.as_deref().or(second.trajectory.query.as_deref()).unwrap_or_default();
    let name = |given: &Option<String>, side: &LoadedSide| {
        let name = given.as_deref().or(side.trajectory.agent_version.as_deref()).or(side.run.as_deref());
        text::format_display_line(name.unwrap_or_default())
    };
    Ok(StepComparisonPage {
        frame,
        back: choice.back_url(),
        request: text::format_display_line(request),
        summary: match differing {
            0 => "All calls are the same; only results, thoughts or the answer differ.".to_owned(),
            count => format!(
                "{} of {} differ.",
                format_count(count),
                number::format_counted_noun(aligned.len() as u64, "row", "rows")
            ),
        },
        answers: [&first, &second].map(|side| side.trajectory.final_answer.as_deref().and_then(excerpt_text)),
        sides: [
            ComparedSide::new(server, &settings, "A", name(&choice.name_a, &first), &first)?,
            ComparedSide::new(server, &settings, "B", name(&choice.name_b, &second), &second)?,
        ],
        rows,
        more: (more > 0).then(|| number::format_counted_noun(more, "more row", "more rows")),
    })
}

impl StepComparisonQuery {
    /// The comparison that listed the task.
    fn back_url(&self) -> String {
        let project = self.project.as_deref();
        let url = match self.by.as_deref() {
            Some(by) => PageUrl::from_path("/compare")
                .with("by", Some(by))
                .with("a", self.name_a.as_deref())
                .with("b", self.name_b.as_deref()),
            None => PageUrl::from_path("/compare").with("a", self.run_a.as_deref()).with("b", self.run_b.as_deref()),
        };
        url.with("project", project).to_string()
    }
}

impl LoadedSide {
    /// 404 if the run or the trajectory does not exist.
    fn load(server: &ServerState, id: &str, run: Option<&str>) -> Result<LoadedSide, ApiError> {
        if let Some(run) = run.filter(|run| !run.is_empty()) {
            let (_, trajectory, verdicts) = read_run_trajectory(server, run, id)?;
            return Ok(LoadedSide { trajectory, verdicts, run: Some(run.to_owned()) });
        }
        let missing = || ApiError::not_found("No stored run has this id. Retention may have deleted it.");
        let json = server.store.trajectory_json(id)?.ok_or_else(missing)?;
        let trajectory: Trajectory = serde_json::from_slice(&json).map_err(|_| missing())?;
        let lines = server.store.verdict_lines(id)?;
        let verdicts = lines.into_iter().filter_map(|stored| {
            let line = serde_json::from_str(&stored.line).ok()?;
            Some(RecordedVerdict { at_ns: stored.judged_ns, is_wrong: stored.is_wrong, line })
        });
        Ok(LoadedSide { verdicts: verdicts.collect(), trajectory, run: None })
    }

    fn href(&self, server: &ServerState, step: Option<u32>) -> Result<String, ApiError> {
        let id = &self.trajectory.trajectory_id;
        Ok(match &self.run {
            Some(run) => run_trajectory_address(run, id, step, None).to_string(),
            None => trajectory_address(server, id, step)?.unwrap_or_else(|| "/traces".to_owned()),
        })
    }

    fn flags(&self, settings: &ReloadableSettings, step: Option<u32>) -> Vec<StepFlag> {
        let wrong = self.verdicts.iter().filter(|given| given.is_wrong && given.line.step_index == step);
        wrong
            .map(|given| StepFlag {
                title: find_evaluator_title(settings, &given.line.evaluator),
                label: text::format_display_line(given.line.label.as_deref().unwrap_or("flagged")),
                explanation: given.line.explanation.as_deref().and_then(excerpt_text),
            })
            .collect()
    }
}

impl ComparedSide {
    fn new(
        server: &ServerState,
        settings: &ReloadableSettings,
        letter: &'static str,
        name: String,
        side: &LoadedSide,
    ) -> Result<ComparedSide, ApiError> {
        let trajectory = &side.trajectory;
        let time = |text: &Option<String>| text.as_deref()?.parse::<jiff::Timestamp>().ok();
        let mut facts = vec![("Steps", format_count(trajectory.steps.len() as u64))];
        if let (Some(start), Some(end)) = (time(&trajectory.start), time(&trajectory.end)) {
            let took = i64::try_from(end.as_nanosecond() - start.as_nanosecond()).unwrap_or(0);
            facts.push(("Duration", format_duration(took)));
        }
        let tokens = trajectory.tokens.total();
        if tokens > 0 {
            facts.push(("Tokens", format_count(tokens)));
        }
        Ok(ComparedSide {
            letter,
            name,
            href: side.href(server, None)?,
            outcome: RunOutcome::from_outcomes(&side.verdicts),
            facts,
            flags: side.flags(settings, None),
        })
    }
}

impl ComparedStepRow {
    fn new(
        server: &ServerState,
        settings: &ReloadableSettings,
        row: AlignedStep,
        [first, second]: [&LoadedSide; 2],
    ) -> Result<ComparedStepRow, ApiError> {
        let cell = |side: &LoadedSide, at: Option<usize>| -> Result<Option<ComparedStepCell>, ApiError> {
            let Some(step) = at.and_then(|at| side.trajectory.steps.get(at)) else { return Ok(None) };
            Ok(Some(ComparedStepCell {
                number: step.index,
                href: side.href(server, Some(step.index))?,
                tool: text::format_display_line(&step.tool),
                is_error: step.is_error,
                thought: step.thought.as_deref().and_then(excerpt_text),
                arguments: step.arguments_text().as_deref().and_then(excerpt_text),
                observation: step.observation.as_deref().and_then(excerpt_text),
                flags: side.flags(settings, Some(step.index)),
            }))
        };
        let steps = [(first, row.first), (second, row.second)]
            .map(|(side, at)| at.and_then(|at| side.trajectory.steps.get(at)));
        let keys = match (row.relation, steps) {
            (StepRelation::OtherArguments, [Some(one), Some(other)]) => describe_different_keys(one, other),
            _ => None,
        };
        Ok(ComparedStepRow {
            class: if row.relation == StepRelation::SameCall { "same" } else { "differs" },
            difference: row.relation.describe().map(|words| match keys {
                Some(keys) => format!("{words}: {keys}"),
                None => words.to_owned(),
            }),
            cells: [cell(first, row.first)?, cell(second, row.second)?],
        })
    }
}

/// Names of the arguments that differ. `None` if they are not JSON objects.
fn describe_different_keys(first: &TrajectoryStep, second: &TrajectoryStep) -> Option<String> {
    let (one, other) = (first.arguments.as_ref()?.as_object()?, second.arguments.as_ref()?.as_object()?);
    let mut keys: Vec<&String> =
        one.keys().chain(other.keys()).filter(|key| one.get(*key) != other.get(*key)).collect();
    keys.sort_unstable();
    keys.dedup();
    let more = keys.len().saturating_sub(MAX_DIFFERENT_KEYS);
    let named: Vec<String> = keys.iter().take(MAX_DIFFERENT_KEYS).map(|key| text::format_display_line(key)).collect();
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    Some(format!("{}{rest}", named.join(", ")))
}

/// The beginning of a text on one line. `None` for an empty one.
fn excerpt_text(given: &str) -> Option<String> {
    let shown: String = given.trim().chars().take(MAX_CELL_CHARS).collect();
    let is_cut = given.trim().chars().nth(MAX_CELL_CHARS).is_some();
    let mut line = text::format_display_line(&shown);
    if is_cut && !line.ends_with('…') {
        line.push('…');
    }
    (!shown.is_empty()).then_some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_that_differ_are_named() {
        let step = |arguments: &str| TrajectoryStep {
            arguments: serde_json::from_str(arguments).ok(),
            ..TrajectoryStep::default()
        };
        let words = |one: &str, other: &str| describe_different_keys(&step(one), &step(other));
        assert_eq!(words(r#"{"a":1,"b":2,"c":3}"#, r#"{"b":2,"a":2,"d":4}"#).as_deref(), Some("a, c, d"));
        assert_eq!(words("[1]", "{}"), None);
    }

    #[test]
    fn excerpts_say_that_they_are_cut() {
        assert_eq!(excerpt_text("  "), None);
        assert_eq!(excerpt_text("a\nb").as_deref(), Some("a b"));
        let long = "x".repeat(MAX_CELL_CHARS + 1);
        assert!(excerpt_text(&long).unwrap().ends_with("x…"));
    }
}
