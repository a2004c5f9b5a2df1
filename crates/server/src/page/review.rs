//! Review of verdicts, one after another. Each label has a keyboard shortcut, and the next verdict follows at once.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use gradus_core::trajectory::Trajectory;
use gradus_eval::calibration::LabelSampling;
use gradus_store::{FailureGroupOptions, MetricFilter, ReviewFilter, ReviewItem, ReviewPlace};
use serde::Deserialize;

use super::address::PageUrl;
use super::agreement::{self, DimensionAgreement};
use super::blind_sample::{self, BlindSample, MAX_SAMPLE_LABELS, SampleDraw};
use super::display_text::format_timestamp;
use super::failure_groups::{group_title, group_url};
use super::loaded_trace::{self, LoadedTrace};
use super::render::{self, PageError, PageQuery};
use super::step::{StepView, TrajectoryVerdicts};
use super::text_preview::{TextPreview, TrajectoryLocation};
use super::verdict::VerdictDetailView;
use super::{PageLayout, SelectOption, build_project_options};
use crate::caller::RequestCaller;
use crate::clock::now_ns;
use crate::evaluators::find_evaluator_title;
use crate::http_error::ApiError;
use crate::page::label_authors::LabelAuthor;
use crate::state::ServerState;
use gradus_report::html::number::format_count;
use gradus_report::html::text;

/// Steps in the summary of a verdict on the whole trajectory.
const MAX_LISTED: usize = 40;

/// Parameters of `/review`.
#[derive(Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct ReviewQuery {
    project: Option<String>,
    evaluator: Option<String>,
    /// `all`, `wrong`, `failed` for questions without a verdict, `sample` and `sample_by_label` for a random sample
    /// without the verdicts.
    which: ReviewSelection,
    /// Key of a failure group: only its verdicts.
    group: Option<String>,
    /// Cursor: the verdict after which to continue. Skipping sets it. In a sample, the first position to show.
    after: Option<String>,
    /// The random sample, by the text of its draw; without it, the one that was labelled last, or a new one.
    draw: Option<String>,
    /// The position in the sample whose label this person has just given: its verdict is shown now.
    revealed: Option<String>,
}

/// Which verdicts are reviewed. The default is all of them in order: labels on wrong verdicts only would bias the
/// measured agreement.
#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ReviewSelection {
    #[default]
    #[serde(alias = "")]
    All,
    Wrong,
    Failed,
    /// Every verdict with the same probability, without the verdict.
    Sample,
    /// As many of each label of the judge, without the verdict.
    SampleByLabel,
}

impl ReviewSelection {
    /// How verdicts are drawn; `None` if they are shown in order.
    fn sampling(self) -> Option<LabelSampling> {
        match self {
            ReviewSelection::Sample => Some(LabelSampling::Uniform),
            ReviewSelection::SampleByLabel => Some(LabelSampling::Stratified),
            _ => None,
        }
    }
}

impl ReviewQuery {
    /// Without the cursor.
    fn to_url(&self) -> PageUrl {
        let which = match self.which {
            ReviewSelection::All => None,
            ReviewSelection::Wrong => Some("wrong"),
            ReviewSelection::Failed => Some("failed"),
            ReviewSelection::Sample => Some("sample"),
            ReviewSelection::SampleByLabel => Some("sample_by_label"),
        };
        PageUrl::from_path("/review")
            .with("project", self.project.as_deref())
            .with("evaluator", self.evaluator.as_deref())
            .with("which", which)
            .with("group", self.group.as_deref())
    }
}

/// Without an item the page says whether all is reviewed or the search has to continue.
#[derive(Template)]
#[template(path = "review.html")]
struct ReviewPage {
    frame: PageLayout,
    projects: Vec<SelectOption>,
    evaluators: Vec<SelectOption>,
    which: ReviewSelection,
    group: Option<ReviewedGroup>,
    item: Option<ReviewItemView>,
    sample: Option<SampleView>,
    /// URL to continue the search if its time was over before a verdict was found.
    further: Option<String>,
    author: LabelAuthor,
    dimensions: Vec<DimensionAgreement>,
    /// Number of labels that agreement is computed from, if there are more.
    of_latest: Option<String>,
    agreement: String,
}

/// The failure group whose verdicts are reviewed.
struct ReviewedGroup {
    key: String,
    title: String,
    href: String,
    /// URL of the queue without it.
    without: String,
}

impl ReviewedGroup {
    fn load(server: &ServerState, choice: &ReviewQuery) -> Result<Option<ReviewedGroup>, ApiError> {
        let Some(key) = &choice.group else { return Ok(None) };
        let options = FailureGroupOptions { before_ns: None, with_muted: true, key: Some(key), limit: 1 };
        let list = server.store.failure_groups(&MetricFilter::default(), options)?;
        let row = list.groups.first();
        Ok(Some(ReviewedGroup {
            key: key.clone(),
            title: row.map_or_else(|| text::format_display_line(key), group_title),
            href: group_url(key),
            without: choice.to_url().with_replaced("group", None).to_string(),
        }))
    }
}

/// A random sample without the verdicts.
struct SampleView {
    /// How it was drawn and how far this person is, or why there is none.
    about: String,
    /// The case that this person has just labelled, with the judge's verdict.
    revealed: Option<RevealedVerdict>,
    /// URL of a new sample, up to now.
    renew: Option<String>,
}

/// A verdict that was hidden until this person decided.
struct RevealedVerdict {
    verdict: VerdictDetailView,
    own: String,
    agrees: bool,
}

/// The verdict under review with its context.
struct ReviewItemView {
    verdict: VerdictDetailView,
    /// Nothing on the page tells the verdict.
    is_blind: bool,
    /// Number of labels by others. Their content is hidden until this person has decided, so that people judge
    /// independently.
    others_said: usize,
    query: Option<TextPreview>,
    answer: Option<TextPreview>,
    /// None for a verdict on the whole trajectory.
    step: Option<StepView>,
    steps: Vec<StepSummaryLine>,
    /// Number of steps, if not all are listed.
    of_steps: Option<String>,
    trace: String,
    what: String,
    /// URL of the next verdict without labelling this one.
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

/// `GET /review`
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
        group: blank(choice.group),
        after: blank(choice.after),
        draw: blank(choice.draw),
        revealed: blank(choice.revealed),
    };
    let person = LabelAuthor::from_headers(&headers, &caller);
    let frame = PageLayout::new("/review", choice.project.as_deref(), &headers);
    // The trace of the verdict may be large.
    render::of_large(&server, move |server| build_review_page(server, &choice, frame, person)).await
}

/// Evaluators to choose from are those of the rules, plus the one that is selected.
fn build_review_page(
    server: &ServerState,
    choice: &ReviewQuery,
    frame: PageLayout,
    author: LabelAuthor,
) -> Result<ReviewPage, ApiError> {
    let settings = server.reloadable();
    let filter = ReviewFilter {
        project: choice.project.clone(),
        evaluator: choice.evaluator.clone(),
        only_wrong: choice.which == ReviewSelection::Wrong,
        only_failed: choice.which == ReviewSelection::Failed,
        failure_group: choice.group.clone(),
        author: author.identifier.clone(),
    };
    let (item, further, sample) = match choice.which.sampling() {
        Some(sampling) => {
            let (item, sample) = build_sample(server, choice, sampling, &author)?;
            (item, None, Some(sample))
        }
        None => {
            let wrong = |()| ApiError::bad_request("after: not a position in the list");
            let after = choice.after.as_deref().map(str::parse).transpose().map_err(wrong)?;
            let (item, further) = find_next_item(server, choice, &filter, after)?;
            (item, further, None)
        }
    };
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
        group: ReviewedGroup::load(server, choice)?,
        item,
        sample,
        further: further.map(|place| choice.to_url().with("after", Some(&place.to_string())).to_string()),
        author,
        dimensions,
        of_latest,
        agreement: PageUrl::from_path("/agreement").with("project", choice.project.as_deref()).to_string(),
    })
}

/// Verdicts that are skipped in one request because their trace is changing.
const MAX_PASSED: usize = 20;

/// The next verdict that can be shown, or the cursor to continue from.
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
            // The trace was deleted since the verdict was found.
            Err(error) if error.status() == StatusCode::NOT_FOUND => {}
            Err(error) => return Err(error),
        }
        after = Some(found.place);
    }
    Ok((None, after))
}

/// The next case of a random sample, and what the page says about the sample.
fn build_sample(
    server: &ServerState,
    choice: &ReviewQuery,
    sampling: LabelSampling,
    author: &LabelAuthor,
) -> Result<(Option<ReviewItemView>, SampleView), ApiError> {
    let Some(evaluator) = &choice.evaluator else {
        let about = "Choose a dimension: a sample is of the verdicts of one evaluator.".to_owned();
        return Ok((None, SampleView { about, revealed: None, renew: None }));
    };
    let project = choice.project.as_deref();
    let labels = server.store.labels(project, MAX_SAMPLE_LABELS)?;
    let now_s = now_ns() / 1_000_000_000;
    let draw = match &choice.draw {
        Some(text) => text.parse().map_err(|()| ApiError::bad_request("draw: not a random sample"))?,
        None => blind_sample::continue_or_begin(&labels, evaluator, project, sampling, now_s),
    };
    let sample = BlindSample::load(server, evaluator, project, draw)?;
    let labelled = sample.labelled_by(&labels, &author.identifier);
    let number = |text: &Option<String>| {
        let number = text.as_deref().map(str::parse::<usize>).transpose();
        number.map_err(|_| ApiError::bad_request("after: not a position in the sample"))
    };
    let mut from = number(&choice.after)?.unwrap_or(0);
    let here = choice.to_url().with("draw", Some(&draw.to_string()));
    let mut item = None;
    for _ in 0..MAX_PASSED {
        let Some(position) = sample.next_position(&labelled, from) else { break };
        item = load_sampled_item(server, choice, &sample, position, &here)?;
        if item.is_some() {
            break;
        }
        from = position + 1;
    }
    let revealed = match number(&choice.revealed)?.and_then(|position| sample.item_at(position)) {
        Some(found) => reveal_verdict(server, &found, author)?,
        None => None,
    };
    let how = match draw.sampling {
        LabelSampling::Stratified => "as many of each label of the judge",
        _ => "every verdict with the same probability",
    };
    let about = format!(
        "Random sample of {} verdicts up to {}, {how}. You have labelled {}. The judge's verdict is shown after yours.",
        format_count(sample.len() as u64),
        format_timestamp(draw.until_s * 1_000_000_000),
        format_count(labelled.len() as u64),
    );
    let new = SampleDraw { until_s: now_s, ..sample.draw() };
    let renew = choice.to_url().with("draw", Some(&new.to_string())).to_string();
    Ok((item, SampleView { about, revealed, renew: Some(renew) }))
}

/// A case without anything that tells its verdict. `None` if it cannot be shown.
fn load_sampled_item(
    server: &ServerState,
    choice: &ReviewQuery,
    sample: &BlindSample,
    position: usize,
    here: &PageUrl,
) -> Result<Option<ReviewItemView>, ApiError> {
    let Some(found) = sample.item_at(position) else { return Ok(None) };
    let mut item = match ReviewItemView::load_for_review(server, choice, &found) {
        Ok(Some(item)) => item,
        Ok(None) => return Ok(None),
        Err(error) if error.status() == StatusCode::NOT_FOUND => return Ok(None),
        Err(error) => return Err(error),
    };
    item.is_blind = true;
    item.others_said = 0;
    item.skip = here.clone().with("after", Some(&(position + 1).to_string())).to_string();
    let verdict = &mut item.verdict;
    verdict.class = "na";
    verdict.label = String::new();
    (verdict.explanation, verdict.evidence, verdict.remarks) = (None, Vec::new(), Vec::new());
    verdict.said.clear();
    if let Some(form) = &mut verdict.labelling {
        form.right = None;
        form.others = sample.evaluator.labels.iter().map(|(label, _)| label.clone()).collect();
        form.seen = String::new();
        form.draw = Some(format!("{} {}", sample.draw(), choice.project.as_deref().unwrap_or_default()));
        form.back = here.clone().with("revealed", Some(&position.to_string())).to_string();
    }
    Ok(Some(item))
}

/// The verdict on a case that this person has labelled. `None` if the person has not.
fn reveal_verdict(
    server: &ServerState,
    found: &ReviewItem,
    author: &LabelAuthor,
) -> Result<Option<RevealedVerdict>, ApiError> {
    let verdict = match ReviewItemView::load_for_review(server, &ReviewQuery::default(), found) {
        Ok(Some(item)) => item.verdict,
        Ok(None) => return Ok(None),
        Err(error) if error.status() == StatusCode::NOT_FOUND => return Ok(None),
        Err(error) => return Err(error),
    };
    let own = verdict.said.iter().find(|said| said.is_by(author)).map(|said| (said.label.clone(), said.agrees));
    Ok(own.map(|(own, agrees)| RevealedVerdict { verdict, own, agrees }))
}

impl ReviewItemView {
    /// None if the verdict was replaced since it was found.
    fn load_for_review(
        server: &ServerState,
        choice: &ReviewQuery,
        found: &ReviewItem,
    ) -> Result<Option<ReviewItemView>, ApiError> {
        let trace = format!("{:032x}", found.trace_id);
        let opened = loaded_trace::load_trace(server, &trace, Some(&found.trajectory_id))?;
        let settings = server.reloadable();
        // The store writes 0 for the whole trajectory.
        let step = Some(found.place.step).filter(|step| *step > 0);
        let Some(trajectory) = &opened.trajectory else { return Ok(None) };
        let is_asked = |line: &gradus_eval::outcome::OutcomeLine| {
            line.step_index == step && *line.evaluator == *found.place.evaluator
        };
        let Some(given) = opened.outcomes.iter().find(|given| is_asked(&given.line)) else {
            return Ok(None);
        };
        // A labelled verdict is not found again, so the same URL shows the next one.
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
            trace: loaded_trace::step_address(&trace, Some(&found.trajectory_id), step),
            skip: choice.to_url().with("after", Some(&found.place.to_string())).to_string(),
            others_said: verdict.said.len(),
            is_blind: false,
            verdict,
        }))
    }
}

/// None if the trajectory changed and has no such step any more.
fn shown_step(
    opened: &LoadedTrace,
    trajectory: &Trajectory,
    number: u32,
    here: &PageUrl,
    server: &ServerState,
) -> Option<StepView> {
    let trace = opened.row.trace_id.to_string();
    let shelf = TrajectoryLocation::Trace { trace: &trace, trajectory: &trajectory.trajectory_id };
    let judged = TrajectoryVerdicts { shelf, trajectory, outcomes: &opened.outcomes, said: &opened.said };
    match trajectory.steps.iter().find(|step| step.index == number) {
        Some(step) => Some(StepView::from_step(&server.reloadable(), &judged, step, here)),
        None => StepView::from_final_thought(&server.reloadable(), &judged, trajectory, here)
            .filter(|step| step.number == number),
    }
}

/// The first steps on one line each. Whole texts are on the page of the trace.
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
