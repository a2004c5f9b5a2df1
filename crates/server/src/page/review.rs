//! Review of verdicts, one after another. Each label has a keyboard shortcut, and the next verdict follows at once.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use gradus_store::{ReviewFilter, ReviewPosition};

use super::address::PageUrl;
use super::agreement::{self, DimensionAgreement};
use super::failure_groups;
use super::label_authors::LabelAuthor;
use super::render::{self, PageError, PageQuery};
use super::review_item::{QueuePosition, ReviewItemView};
use super::review_query::{ReviewQuery, ReviewSelection};
use super::review_sample::{SampleView, build_sample};
use super::traces::{FilterChip, build_filter_chips};
use super::undoable_label::UndoableLabel;
use super::{PageLayout, SelectOption, build_project_options};
use crate::caller::RequestCaller;
use crate::evaluators::find_evaluator_title;
use crate::http_error::ApiError;
use crate::state::ServerState;
use gradus_report::html::number::format_count;

/// Without an item the page says whether all is reviewed or the search has to continue.
#[derive(Template)]
#[template(path = "review.html")]
pub(super) struct ReviewPage {
    frame: PageLayout,
    projects: Vec<SelectOption>,
    evaluators: Vec<SelectOption>,
    which: ReviewSelection,
    /// The failure group that the queue is limited to.
    group: Option<ReviewedGroup>,
    /// Further limits of the queue that the form does not show. Each can be removed.
    chips: Vec<FilterChip>,
    /// Fields that the form sends along.
    hidden: Vec<(&'static str, String)>,
    item: Option<ReviewItemView>,
    progress: Option<QueuePosition>,
    sample: Option<SampleView>,
    /// The label that this person has just given.
    given: Option<UndoableLabel>,
    /// URL to continue the search if it found no verdict within its bounds.
    further: Option<String>,
    author: LabelAuthor,
    dimensions: Vec<DimensionAgreement>,
    /// Number of labels that agreement is computed from, if there are more.
    of_latest: Option<String>,
    agreement: String,
    /// The URL of this page, if it is the response to a form and the browser shows another one.
    pub(super) address: Option<String>,
}

/// The failure group of the queue.
struct ReviewedGroup {
    key: String,
    /// `None` if the group does not exist any more.
    title: Option<String>,
    href: String,
    /// URL of the queue without the group.
    without: String,
}

/// `GET /review`
pub(super) async fn render_review_page(
    State(server): State<Arc<ServerState>>,
    Extension(caller): Extension<RequestCaller>,
    headers: HeaderMap,
    PageQuery(choice): PageQuery<ReviewQuery>,
) -> Result<Response, PageError> {
    let choice = choice.without_blanks();
    let person = LabelAuthor::from_headers(&headers, &caller);
    let frame = PageLayout::new("/review", choice.project.as_deref(), &headers);
    // The trace of the verdict may be large.
    render::render_large_page(&server, move |server| build_review_page(server, &choice, frame, person)).await
}

/// Builds the page. The evaluators to choose from are those of the rules, plus the selected one.
pub(super) fn build_review_page(
    server: &ServerState,
    choice: &ReviewQuery,
    frame: PageLayout,
    author: LabelAuthor,
) -> Result<ReviewPage, ApiError> {
    let settings = server.reloadable();
    let filter = choice.to_filter(&author)?;
    let (item, progress, further, sample) = match choice.which.sampling() {
        Some(sampling) => {
            let (item, mut sample) = build_sample(server, choice, sampling, &author)?;
            (item, sample.progress.take(), None, Some(sample))
        }
        None => {
            let (found, further) = find_next_item(server, choice, &filter)?;
            let (item, place) = found.unzip();
            let progress = QueuePosition::load(server, &filter, place.as_ref())?;
            (item, progress, further, None)
        }
    };
    let labels = server.store.labels(choice.project.as_deref(), agreement::MAX_REVIEW_LABELS)?;
    let of_latest =
        (labels.len() == agreement::MAX_REVIEW_LABELS).then(|| format_count(agreement::MAX_REVIEW_LABELS as u64));
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
    // A sample is drawn from all verdicts: those of a group or of a period would not represent the judge.
    let limits = if sample.is_none() { choice.hidden_limits().to_vec() } else { Vec::new() };
    let group = choice.group.as_deref().filter(|_| sample.is_none());
    let chips = build_filter_chips(&choice.to_url(), None);
    let is_limit = |chip: &FilterChip| chip.name != "group" && limits.iter().any(|(name, _)| *name == chip.name);
    Ok(ReviewPage {
        frame,
        projects: build_project_options(server.store.project_names()?, choice.project.as_deref()),
        evaluators: names.into_iter().map(evaluator).collect(),
        which: choice.which,
        group: group.map(|key| describe_group(server, choice, key)).transpose()?,
        chips: chips.into_iter().filter(is_limit).collect(),
        hidden: limits.iter().filter_map(|(name, value)| Some((*name, (*value).clone()?))).collect(),
        item,
        progress,
        given: UndoableLabel::find(&settings, choice, &labels, &author),
        sample,
        further: further.map(|place| choice.to_url().with("after", Some(&place.to_string())).to_string()),
        author,
        dimensions,
        of_latest,
        agreement: PageUrl::from_path("/agreement").with("project", choice.project.as_deref()).to_string(),
        address: None,
    })
}

/// Maximum number of verdicts that are skipped in one request because their trace is changing.
const MAX_SKIPPED_VERDICTS: usize = 20;

/// A verdict with its position in the queue.
type PositionedItem = (ReviewItemView, ReviewPosition);

/// Finds the next verdict that can be shown, or the cursor to continue from. The verdict of the parameter `at` comes
/// first.
fn find_next_item(
    server: &ServerState,
    choice: &ReviewQuery,
    filter: &ReviewFilter,
) -> Result<(Option<PositionedItem>, Option<ReviewPosition>), ApiError> {
    let parse = |text: &Option<String>| {
        let wrong = |()| ApiError::bad_request("after: not a position in the list");
        text.as_deref().map(str::parse::<ReviewPosition>).transpose().map_err(wrong)
    };
    let mut after = parse(&choice.after)?;
    let mut again = match parse(&choice.at)? {
        Some(place) => server.store.review_item(&place)?,
        None => None,
    };
    for _ in 0..MAX_SKIPPED_VERDICTS {
        let (is_again, (found, further)) = match again.take() {
            Some(item) => (true, (Some(item), None)),
            None => (false, server.store.next_verdict(filter, after.as_ref())?),
        };
        let Some(found) = found else { return Ok((None, further)) };
        match ReviewItemView::load_for_review(server, choice, &found) {
            Ok(Some(item)) => return Ok((Some((item, found.place)), None)),
            Ok(None) => {}
            // The trace was deleted since the verdict was found.
            Err(error) if error.status() == StatusCode::NOT_FOUND => {}
            Err(error) => return Err(error),
        }
        if !is_again {
            after = Some(found.place);
        }
    }
    Ok((None, after))
}

/// Describes the group by its present name.
fn describe_group(server: &ServerState, choice: &ReviewQuery, key: &str) -> Result<ReviewedGroup, ApiError> {
    Ok(ReviewedGroup {
        key: key.to_owned(),
        title: failure_groups::load_group_title(server, key)?,
        href: PageUrl::from_path(failure_groups::format_group_path(key))
            .with("project", choice.project.as_deref())
            .to_string(),
        without: choice.to_url().with_replaced("group", None).to_string(),
    })
}
