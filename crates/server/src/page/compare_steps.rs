//! Two runs of one task side by side: the same calls are in the same row, and differences are marked.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use gradus_report::compare::StepRelation;
use gradus_report::html::number::{self, format_count};
use gradus_report::html::text;
use serde::Deserialize;

use super::PageLayout;
use super::address::PageUrl;
use super::display_text::format_duration;
use super::render::{self, PageError, PageQuery};
use super::run_addresses::{build_run_trajectory_url, find_trajectory_url};
use super::run_outcome::RunOutcome;
use crate::evaluators::find_evaluator_title;
use crate::http_error::ApiError;
use crate::settings::ReloadableSettings;
use crate::state::ServerState;
use crate::step_comparison::{ComparedRun, StepComparison, StepPair};

/// Maximum number of rows on the page; the rest is counted.
const MAX_ROWS: usize = 200;
/// Maximum number of characters of a thought, of arguments and of a result in a cell. The page of the run shows all
/// of it.
const MAX_CELL_CHARS: usize = 400;
/// Maximum number of arguments that are named as different.
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
    /// The comparison to return to.
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
    api: String,
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

/// A pair of aligned steps.
struct ComparedStepRow {
    class: &'static str,
    /// The difference in words.
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

/// `GET /compare/steps`
pub(super) async fn render_step_comparison(
    State(server): State<Arc<ServerState>>,
    headers: HeaderMap,
    PageQuery(choice): PageQuery<StepComparisonQuery>,
) -> Result<Response, PageError> {
    let project = choice.project.as_deref().filter(|name| !name.is_empty());
    let here = if choice.by.is_some() { "/versions" } else { "/runs" };
    let frame = PageLayout::new(here, project, &headers);
    render::render_large_page(&server, move |server| build_step_comparison(server, &choice, frame)).await
}

fn build_step_comparison(
    server: &ServerState,
    choice: &StepComparisonQuery,
    frame: PageLayout,
) -> Result<StepComparisonPage, ApiError> {
    let settings = server.reloadable();
    let runs = [(&choice.a, &choice.run_a), (&choice.b, &choice.run_b)];
    let comparison = StepComparison::load(server, runs.map(|(id, run)| (id.as_str(), run.as_deref())))?;
    let differing = comparison.differing_count() as u64;
    let mut rows = Vec::new();
    for pair in comparison.pairs.iter().take(MAX_ROWS) {
        rows.push(ComparedStepRow::new(server, &settings, pair, &comparison.runs)?);
    }
    let more = (comparison.pairs.len() - rows.len()) as u64;
    let [first, second] = &comparison.runs;
    let request = first.trajectory.query.as_deref().or(second.trajectory.query.as_deref()).unwrap_or_default();
    let name = |given: &Option<String>, side: &ComparedRun| {
        let name = given.as_deref().or(side.trajectory.agent_version.as_deref()).or(side.run.as_deref());
        text::format_display_line(name.unwrap_or_default())
    };
    Ok(StepComparisonPage {
        frame,
        back: choice.back_url(),
        api: choice.api_url(),
        request: text::format_display_line(request),
        summary: match differing {
            0 => "All calls are the same; only results, thoughts or the answer differ.".to_owned(),
            count => format!(
                "{} of {} differ.",
                format_count(count),
                number::format_counted_noun(comparison.pairs.len() as u64, "row", "rows")
            ),
        },
        answers: [first, second].map(|side| side.trajectory.final_answer.as_deref().and_then(excerpt_text)),
        sides: [
            ComparedSide::new(server, &settings, "A", name(&choice.name_a, first), first)?,
            ComparedSide::new(server, &settings, "B", name(&choice.name_b, second), second)?,
        ],
        rows,
        more: (more > 0).then(|| number::format_counted_noun(more, "more row", "more rows")),
    })
}

impl StepComparisonQuery {
    /// Returns the URL of the same comparison in the API.
    fn api_url(&self) -> String {
        PageUrl::from_path("/api/v1/compare/steps")
            .with("a", Some(&self.a))
            .with("b", Some(&self.b))
            .with("run_a", self.run_a.as_deref())
            .with("run_b", self.run_b.as_deref())
            .to_string()
    }

    /// Returns the URL of the comparison that listed the task.
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

/// Builds the URL of a run, or of one of its steps.
fn build_run_url(server: &ServerState, side: &ComparedRun, step: Option<u32>) -> Result<String, ApiError> {
    let id = &side.trajectory.trajectory_id;
    Ok(match &side.run {
        Some(run) => build_run_trajectory_url(run, id, step, None).to_string(),
        None => find_trajectory_url(server, id, step)?.unwrap_or_else(|| "/traces".to_owned()),
    })
}

fn list_flags(settings: &ReloadableSettings, side: &ComparedRun, step: Option<u32>) -> Vec<StepFlag> {
    side.wrong_verdicts(step)
        .map(|line| StepFlag {
            title: find_evaluator_title(settings, &line.evaluator),
            label: text::format_display_line(line.label.as_deref().unwrap_or("flagged")),
            explanation: line.explanation.as_deref().and_then(excerpt_text),
        })
        .collect()
}

impl ComparedSide {
    fn new(
        server: &ServerState,
        settings: &ReloadableSettings,
        letter: &'static str,
        name: String,
        side: &ComparedRun,
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
            href: build_run_url(server, side, None)?,
            outcome: RunOutcome::from_outcomes(&side.verdicts),
            facts,
            flags: list_flags(settings, side, None),
        })
    }
}

impl ComparedStepRow {
    fn new(
        server: &ServerState,
        settings: &ReloadableSettings,
        pair: &StepPair,
        [first, second]: &[ComparedRun; 2],
    ) -> Result<ComparedStepRow, ApiError> {
        let cell = |side: &ComparedRun, at: Option<usize>| -> Result<Option<ComparedStepCell>, ApiError> {
            let Some(step) = at.and_then(|at| side.trajectory.steps.get(at)) else { return Ok(None) };
            Ok(Some(ComparedStepCell {
                number: step.index,
                href: build_run_url(server, side, Some(step.index))?,
                tool: text::format_display_line(&step.tool),
                is_error: step.is_error,
                thought: step.thought.as_deref().and_then(excerpt_text),
                arguments: step.arguments_text().as_deref().and_then(excerpt_text),
                observation: step.observation.as_deref().and_then(excerpt_text),
                flags: list_flags(settings, side, Some(step.index)),
            }))
        };
        let row = pair.aligned;
        let keys = describe_different_keys(&pair.different_arguments);
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

/// Lists the names of different arguments, up to a bound. `None` without any.
fn describe_different_keys(keys: &[String]) -> Option<String> {
    let more = keys.len().saturating_sub(MAX_DIFFERENT_KEYS);
    let named: Vec<String> = keys.iter().take(MAX_DIFFERENT_KEYS).map(|key| text::format_display_line(key)).collect();
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    (!keys.is_empty()).then(|| format!("{}{rest}", named.join(", ")))
}

/// Returns the beginning of a text on one line; `None` for an empty text.
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
        let keys: Vec<String> = (0..10).map(|n| format!("k{n}")).collect();
        assert_eq!(describe_different_keys(&keys[..2]).as_deref(), Some("k0, k1"));
        assert!(describe_different_keys(&keys).unwrap().ends_with("k7 and 2 more"));
        assert_eq!(describe_different_keys(&[]), None);
    }

    #[test]
    fn excerpts_say_that_they_are_cut() {
        assert_eq!(excerpt_text("  "), None);
        assert_eq!(excerpt_text("a\nb").as_deref(), Some("a b"));
        let long = "x".repeat(MAX_CELL_CHARS + 1);
        assert!(excerpt_text(&long).unwrap().ends_with("x…"));
    }
}
