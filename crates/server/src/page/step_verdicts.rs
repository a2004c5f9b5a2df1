//! The verdicts on one step that flag nothing, which the page of a long run loads when they are unfolded.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Extension, Path, State};
use axum::http::HeaderMap;
use axum::response::Response;
use serde::Deserialize;

use super::address::PageUrl;
use super::label_authors::LabelAuthor;
use super::loaded_trace;
use super::render::{self, PageError, PageQuery};
use super::verdict::VerdictDetailView;
use crate::caller::RequestCaller;
use crate::state::ServerState;

/// Parameters of `/traces/{trace}/steps/{step}/verdicts`.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct StepVerdictsQuery {
    /// Id of the trajectory; the first one of the trace without it.
    trajectory: Option<String>,
}

/// The verdicts on one step that flag nothing.
#[derive(Template)]
#[template(path = "step_verdicts.html")]
struct StepVerdictsPart {
    verdicts: Vec<VerdictDetailView>,
    author: LabelAuthor,
}

/// Formats the URL of the verdicts on one step that flag nothing.
pub(super) fn step_verdicts_url(trace: &str, trajectory: &str, step: u32) -> String {
    let path = PageUrl::from_path(format!("/traces/{trace}/steps/{step}/verdicts"));
    path.with("trajectory", Some(trajectory)).to_string()
}

/// `GET /traces/{trace}/steps/{step}/verdicts`: loaded when they are unfolded.
pub(super) async fn render_step_verdicts(
    State(server): State<Arc<ServerState>>,
    Extension(caller): Extension<RequestCaller>,
    headers: HeaderMap,
    Path((id, step)): Path<(String, u32)>,
    PageQuery(choice): PageQuery<StepVerdictsQuery>,
) -> Result<Response, PageError> {
    let author = LabelAuthor::from_headers(&headers, &caller);
    render::render_large_fragment(&server, headers, move |server| {
        let opened = loaded_trace::load_trace(server, &id, choice.trajectory.as_deref())?;
        let here = loaded_trace::build_trace_url(&id, choice.trajectory.as_deref(), Some(step));
        let given = opened.outcomes.iter().filter(|given| given.line.step_index == Some(step) && !given.is_wrong);
        let settings = server.reloadable();
        let verdicts = given.map(|given| VerdictDetailView::from_recorded(&settings, given, &opened.said, &here));
        Ok(StepVerdictsPart { verdicts: verdicts.collect(), author })
    })
    .await
}
