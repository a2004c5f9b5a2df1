//! Verdicts one after another, for people to say whether they are right: a key for each, and the next one comes by itself.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use gradus_core::trajectory::Trajectory;
use gradus_store::{ReviewFilter, ReviewItem, ReviewPlace};
use serde::Deserialize;

use super::address::PageUrl;
use super::agreement::{self, DimensionAgreement};
use super::answer::{self, PageError, PageQuery};
use super::fold::{TextPreview, TrajectoryLocation};
use super::opened::{self, LoadedTrace};
use super::step::{StepView, TrajectoryVerdicts};
use super::verdict::VerdictDetailView;
use super::{PageLayout, SelectOption, build_project_options};
use crate::caller::RequestCaller;
use crate::evaluators::find_evaluator_title;
use crate::http_error::ApiError;
use crate::page::people::LabelAuthor;
use crate::state::ServerState;
use gradus_report::html::number::format_count;
use gradus_report::html::text;

/// Steps that are listed where the whole trajectory is judged.
const MAX_LISTED: usize = 40;

#[derive(Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct ReviewQuery {
    project: Option<String>,
    evaluator: Option<String>,
    /// `all`, `wrong`, or what could not be judged: `failed`.
    which: ReviewSelection,
    after: Option<String>,
}

/// Which verdicts come. All of them, as they were given, unless something else is chosen: whoever sees only one of the
/// judge's labels cannot tell by them how good it is.
#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ReviewSelection {
    #[default]
    #[serde(alias = "")]
    All,
    Wrong,
    Failed,
}

impl ReviewQuery {
    fn to_url(&self) -> PageUrl {
        let which = match self.which {
            ReviewSelection::All => None,
            ReviewSelection::Wrong => Some("wrong"),
            ReviewSelection::Failed => Some("failed"),
        };
        PageUrl::from_path("/review")
            .with("project", self.project.as_deref())
            .with("evaluator", self.evaluator.as_deref())
            .with("which", which)
    }
}

#[derive(Template)]
#[template(path = "review.html")]
struct ReviewPage {
    frame: PageLayout,
    projects: Vec<SelectOption>,
    evaluators: Vec<SelectOption>,
    which: ReviewSelection,
    item: Option<ReviewItemView>,
    /// Where to look further when nothing was found so far.
    further: Option<String>,
    author: LabelAuthor,
    dimensions: Vec<DimensionAgreement>,
    /// Where only so many of the latest labels count.
    of_latest: Option<String>,
    agreement: String,
}

struct ReviewItemView {
    verdict: VerdictDetailView,
    /// Labels of others are not shown before this person has decided: agreement among people would be worth nothing.
    others_said: usize,
    query: Option<TextPreview>,
    answer: Option<TextPreview>,
    /// None where the whole trajectory is judged.
    step: Option<StepView>,
    steps: Vec<StepSummaryLine>,
    /// How many steps there are, where not all are listed.
    of_steps: Option<String>,
    trace: String,
    what: String,
    skip: String,
}

/// A step on one line.
struct StepSummaryLine {
    number: u32,
    tool: String,
    arguments: String,
    observation: String,
    is_error: bool,
}

pub(super) async fn render_review_page(
    State(server): State<Arc<ServerState>>,
    Extension(caller): Extension<RequestCaller>,
    headers: HeaderMap,
    PageQuery(choice): PageQuery<ReviewQuery>,
) -> Result<Response, PageError> {
    let blank = |text: Option<String>| text.filter(|text| !text.is_empty());
    let choice = ReviewQuery {
        project: blank(choice.project),
        evaluator: blank(choice.evaluator),
        which: choice.which,
        after: blank(choice.after),
    };
    let person = LabelAuthor::from_headers(&headers, &caller);
    let frame = PageLayout::new("/review", choice.project.as_deref(), &headers);
    // The trace that it is about may be large.
    answer::of_large(&server, move |server| build_review_page(server, &choice, frame, person)).await
}

fn build_review_page(
    server: &ServerState,
    choice: &ReviewQuery,
    frame: PageLayout,
    author: LabelAuthor,
) -> Result<ReviewPage, ApiError> {
    let settings = server.reloadable();
    let after = match &choice.after {
        Some(text) => Some(text.parse().map_err(|()| ApiError::bad_request("after: not a position in the list"))?),
        None => None,
    };
    let filter = ReviewFilter {
        project: choice.project.clone(),
        evaluator: choice.evaluator.clone(),
        only_wrong: choice.which == ReviewSelection::Wrong,
        only_failed: choice.which == ReviewSelection::Failed,
        author: author.identifier.clone(),
    };
    let (item, further) = find_next_item(server, choice, &filter, after)?;
    let labels = server.store.labels(choice.project.as_deref(), agreement::FEW)?;
    let of_latest = (labels.len() == agreement::FEW).then(|| format_count(agreement::FEW as u64));
    let dimensions = agreement::compute_dimension_agreement(&settings, &labels);
    let mut names: Vec<String> = settings
        .rules
        .iter()
        .flat_map(|rule| &rule.evaluators)
        .map(|evaluator| evaluator.name.to_string())
        .chain(choice.evaluator.clone())
        .collect();
    names.sort_unstable();
    names.dedup();
    let evaluator = |name: String| SelectOption {
        title: find_evaluator_title(&settings, &name),
        is_chosen: Some(&name) == choice.evaluator.as_ref(),
        name,
    };
    Ok(ReviewPage {
        frame,
        projects: build_project_options(server.store.project_names()?, choice.project.as_deref()),
        evaluators: names.into_iter().map(evaluator).collect(),
        which: choice.which,
        item,
        further: further.map(|place| choice.to_url().with("after", Some(&place.to_string())).to_string()),
        author,
        dimensions,
        of_latest,
        agreement: PageUrl::from_path("/agreement").with("project", choice.project.as_deref()).to_string(),
    })
}

/// Verdicts that are passed over because their trace changes at this moment.
const MAX_PASSED: usize = 20;

/// The next verdict that can be shown, or where to look further.
fn find_next_item(
    server: &ServerState,
    choice: &ReviewQuery,
    filter: &ReviewFilter,
    mut after: Option<ReviewPlace>,
) -> Result<(Option<ReviewItemView>, Option<ReviewPlace>), ApiError> {
    for _ in 0..MAX_PASSED {
        let (found, further) = server.store.next_verdict(filter, after.as_ref())?;
        let Some(found) = found else { return Ok((None, further)) };
        match ReviewItemView::load_for_review(server, choice, &found) {
            Ok(Some(item)) => return Ok((Some(item), None)),
            Ok(None) => {}
            Err(error) if error.status() == StatusCode::NOT_FOUND => {}
            Err(error) => return Err(error),
        }
        after = Some(found.place);
    }
    Ok((None, after))
}

impl ReviewItemView {
    /// None when the verdict went away while it was looked for.
    fn load_for_review(
        server: &ServerState,
        choice: &ReviewQuery,
        found: &ReviewItem,
    ) -> Result<Option<ReviewItemView>, ApiError> {
        let trace = format!("{:032x}", found.trace_id);
        let opened = opened::load_trace(server, &trace, Some(&found.trajectory_id))?;
        let settings = server.reloadable();
        let step = Some(found.place.step).filter(|step| *step > 0);
        let Some(trajectory) = &opened.trajectory else { return Ok(None) };
        let is_asked = |line: &gradus_eval::outcome::OutcomeLine| {
            line.step_index == step && *line.evaluator == *found.place.evaluator
        };
        let Some(given) = opened.outcomes.iter().find(|given| is_asked(&given.line)) else {
            return Ok(None);
        };
        // What was labelled is passed over the next time, so a label brings back to the same address.
        let here = choice.to_url().with("after", choice.after.as_deref());
        let mut verdict = VerdictDetailView::from_recorded(&settings, given, &opened.said, &here);
        if let Some(form) = &mut verdict.labelling {
            form.back = here.to_string();
        }
        let shelf = TrajectoryLocation::Trace { trace: &trace, trajectory: &found.trajectory_id };
        let fold = |given: &Option<String>, part: &str| shelf.preview_text(given.as_deref(), None, part);
        Ok(Some(ReviewItemView {
            what: step.map_or_else(|| "Whole trajectory".to_owned(), |step| format!("Step {step}")),
            query: fold(&trajectory.query, "query"),
            answer: fold(&trajectory.final_answer, "answer"),
            step: step.and_then(|number| shown_step(&opened, trajectory, number, &here, server)),
            steps: if step.is_none() { summarize_steps(trajectory) } else { Vec::new() },
            of_steps: (step.is_none() && trajectory.steps.len() > MAX_LISTED)
                .then(|| format_count(trajectory.steps.len() as u64)),
            trace: opened::step_address(&trace, Some(&found.trajectory_id), step),
            skip: choice.to_url().with("after", Some(&found.place.to_string())).to_string(),
            others_said: verdict.said.len(),
            verdict,
        }))
    }
}

fn shown_step(
    opened: &LoadedTrace,
    trajectory: &Trajectory,
    number: u32,
    here: &PageUrl,
    server: &ServerState,
) -> Option<StepView> {
    let step = trajectory.steps.iter().find(|step| step.index == number)?;
    let trace = opened.row.trace_id.to_string();
    let shelf = TrajectoryLocation::Trace { trace: &trace, trajectory: &trajectory.trajectory_id };
    let judged = TrajectoryVerdicts { shelf, outcomes: &opened.outcomes, said: &opened.said };
    Some(StepView::from_step(&server.reloadable(), &judged, step, here))
}

fn summarize_steps(trajectory: &Trajectory) -> Vec<StepSummaryLine> {
    let line = |step: &gradus_core::trajectory::TrajectoryStep| StepSummaryLine {
        number: step.index,
        tool: text::format_display_line(&step.tool),
        arguments: text::format_display_line(step.arguments_text().as_deref().unwrap_or_default()),
        observation: text::format_display_line(step.observation.as_deref().unwrap_or_default()),
        is_error: step.is_error,
    };
    trajectory.steps.iter().take(MAX_LISTED).map(line).collect()
}
