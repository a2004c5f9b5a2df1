//! The response to a label that could not be stored: the verdict and the form again, with the submitted input.

use std::sync::Arc;

use askama::Template;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use gradus_report::html::text;
use gradus_store::{ReviewItem, ReviewPosition};

use super::PageLayout;
use super::address::parse_own_path;
use super::label_authors::LabelAuthor;
use super::label_form::LabelForm;
use super::render::{PageError, respond_with_status};
use super::review_item::ReviewItemView;
use super::review_query::ReviewQuery;
use crate::evaluators::find_answer_labels;
use crate::http_error::{ApiError, run_large_query};
use crate::state::ServerState;

#[derive(Template)]
#[template(path = "label_retry.html")]
struct LabelRetryPage {
    frame: PageLayout,
    message: String,
    /// `None` if the verdict is gone or cannot be read.
    item: Option<ReviewItemView>,
    author: LabelAuthor,
    /// The label that was chosen.
    label: String,
    note: String,
    back: String,
}

/// Renders the page with the status of the error. A key that may label need not be one that may read the verdict.
pub(super) async fn render_label_retry(
    server: &Arc<ServerState>,
    label: LabelForm,
    author: LabelAuthor,
    headers: &HeaderMap,
    error: ApiError,
    may_read: bool,
) -> Response {
    let frame = PageLayout::new("/review", None, headers);
    let back = parse_own_path(label.back.as_deref()).unwrap_or("/review").to_owned();
    let chosen = [label.label.as_str(), label.other.as_deref().unwrap_or_default()];
    let chosen = chosen.into_iter().find(|text| !text.trim().is_empty()).unwrap_or_default();
    let (chosen, note) = (text::format_display_line(chosen), label.note.clone().unwrap_or_default());
    // Without the verdict, the page still shows the submitted input.
    let item = match may_read {
        true => run_large_query(server, move |server| load_item(server, label)).await.ok().flatten(),
        false => None,
    };
    let page = LabelRetryPage { frame, message: error.message().to_owned(), item, author, label: chosen, note, back };
    match error.status() {
        status if status.is_client_error() || status.is_server_error() => respond_with_status(status, &page),
        _ => PageError::from(error).into_response(),
    }
}

/// Loads the present verdict, with the form filled in.
fn load_item(server: &ServerState, label: LabelForm) -> Result<Option<ReviewItemView>, ApiError> {
    let Some(trace) = server.store.trace_of_trajectory(&label.trajectory)? else { return Ok(None) };
    let step = label.step.as_deref().and_then(|step| step.parse().ok()).unwrap_or(0);
    let place = ReviewPosition { start_ns: 0, trajectory: 0, step, evaluator: label.evaluator.clone() };
    let found = ReviewItem { place, trajectory_id: label.trajectory, trace_id: trace.0 };
    let choice = ReviewQuery { note: label.note, ..ReviewQuery::default() };
    let Some(mut item) = ReviewItemView::load_for_review(server, &choice, &found)? else { return Ok(None) };
    let draw = label.draw.filter(|draw| !draw.is_empty());
    if draw.is_some() {
        let labels = find_answer_labels(&server.reloadable(), &label.evaluator);
        item.hide_verdict(labels.into_iter().map(|(label, _)| label).collect());
    }
    let back = parse_own_path(label.back.as_deref()).unwrap_or("/review").to_owned();
    if let Some(form) = &mut item.verdict.labelling {
        form.other = label.other.unwrap_or_default();
        form.draw = draw;
        form.back = back.clone();
    }
    item.skip = back;
    Ok(Some(item))
}
