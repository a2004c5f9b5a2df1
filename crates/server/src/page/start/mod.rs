//! First start: how to send traces to this server, and what arrived so far. The overview shows it while nothing is
//! graded; `/start` shows it at any time.

mod snippet;

use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::State;
use axum::http::header::LOCATION;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse, Response};

use super::display_text::{format_whole_number, join_names};
use super::loaded_trace;
use super::render::{self, PageError, PageQuery};
use super::{NavigationQuery, PageLayout, PageUrl};
use crate::caller::{RequestCaller, RequiredScope};
use crate::demo_load::DemoLoadStatus;
use crate::demo_traces;
use crate::evaluators::find_evaluator_title;
use crate::http_error::{ApiError, run_short_query};
use crate::own_address::find_own_address;
use crate::start_status::{StartStage, StartStatus};
use crate::state::ServerState;
use gradus_report::html::number::format_counted_noun;
use gradus_report::html::text;
use snippet::{StartSnippet, list_snippets};

#[derive(Template)]
#[template(path = "start.html")]
pub(super) struct StartPage {
    frame: PageLayout,
    address: String,
    grpc: String,
    needs_key: bool,
    snippets: Vec<StartSnippet>,
    /// Whether there is a demo, and the caller may send spans.
    has_demo: bool,
    may_load_demo: bool,
    status: StartStatusPart,
}

/// What arrived so far. The script polls it.
#[derive(Template)]
#[template(path = "start_status.html")]
struct StartStatusPart {
    stage: StartStageView,
    /// The demo is being loaded, or why it could not be.
    is_demo_loading: bool,
    demo_failure: Option<String>,
}

/// The three stages, in the order in which they are reached.
enum StartStageView {
    Waiting,
    Received {
        /// Counts, in words.
        counts: String,
        projects: String,
        traces: String,
        quiet_s: String,
        /// Projects that no grading rule matches, in words.
        unmatched: Option<String>,
    },
    Graded(GradedView),
}

/// The first graded trajectory, and the evaluators that did not judge it.
struct GradedView {
    counts: String,
    project: String,
    href: String,
    verdicts: String,
    overview: String,
    /// Titles of evaluators that need a model, if none is configured. Empty if they are not known.
    missing: Option<String>,
}

impl StartStatusPart {
    fn new(server: &ServerState, status: &StartStatus) -> StartStatusPart {
        StartStatusPart {
            stage: StartStageView::new(server, status),
            is_demo_loading: status.demo == DemoLoadStatus::Loading,
            demo_failure: match &status.demo {
                DemoLoadStatus::Failed(reason) => Some(text::format_display_line(reason)),
                _ => None,
            },
        }
    }
}

impl StartStageView {
    fn new(server: &ServerState, status: &StartStatus) -> StartStageView {
        let progress = &status.progress;
        let count = |count: i64| u64::try_from(count).unwrap_or(0);
        let counts = format!(
            "{} in {}",
            format_counted_noun(count(progress.spans), "span", "spans"),
            format_counted_noun(count(progress.traces), "trace", "traces")
        );
        match status.stage() {
            StartStage::Waiting => StartStageView::Waiting,
            StartStage::Received => StartStageView::Received {
                counts,
                projects: join_names(progress.projects.iter().map(String::as_str)),
                traces: "/traces".to_owned(),
                quiet_s: format!("{}", server.settings.quiet.as_secs_f64()),
                unmatched: (!status.unmatched.is_empty())
                    .then(|| join_names(status.unmatched.iter().map(String::as_str))),
            },
            StartStage::Graded(graded) => {
                let settings = server.reloadable();
                let titles: Vec<String> =
                    graded.abstained.iter().map(|name| find_evaluator_title(&settings, name)).collect();
                StartStageView::Graded(GradedView {
                    counts,
                    project: text::format_display_line(&graded.project),
                    href: loaded_trace::format_step_url(
                        &graded.trace_id.to_string(),
                        Some(&graded.trajectory_id),
                        None,
                    ),
                    verdicts: match graded.flagged_verdict_count {
                        0 => format!("{} verdicts, none flagged", format_whole_number(graded.verdict_count)),
                        wrong => format!(
                            "{} verdicts, {} flagged",
                            format_whole_number(graded.verdict_count),
                            format_whole_number(wrong)
                        ),
                    },
                    overview: PageUrl::from_path("/").with("project", Some(&graded.project)).to_string(),
                    missing: (!status.has_model_judge).then(|| join_names(titles.iter().map(String::as_str))),
                })
            }
        }
    }
}

/// `GET /start`
pub(super) async fn render_start_page(
    State(server): State<Arc<ServerState>>,
    Extension(caller): Extension<RequestCaller>,
    headers: HeaderMap,
    uri: Uri,
    PageQuery(looked): PageQuery<NavigationQuery>,
) -> Result<Response, PageError> {
    let frame = PageLayout::new("", looked.project(), &headers);
    render::render_page(&server, move |server| build_start_page(server, &caller, frame, &headers, &uri)).await
}

/// The page with `frame`, which marks the overview as current where that shows it.
pub(super) fn build_start_page(
    server: &ServerState,
    caller: &RequestCaller,
    frame: PageLayout,
    headers: &HeaderMap,
    uri: &Uri,
) -> Result<StartPage, ApiError> {
    let settings = &server.settings;
    let address = find_own_address(settings, headers, uri);
    Ok(StartPage {
        frame,
        snippets: list_snippets(&address, settings.needs_key),
        address,
        grpc: settings.grpc.port().to_string(),
        needs_key: settings.needs_key,
        has_demo: settings.demo.is_some(),
        may_load_demo: caller.has_scope(RequiredScope::Ingest),
        status: StartStatusPart::new(server, &StartStatus::load(server)?),
    })
}

/// `GET /start/status`: what arrived so far, for polling. Answers 304 while nothing changes.
pub(super) async fn render_start_status(
    State(server): State<Arc<ServerState>>,
    headers: HeaderMap,
) -> Result<Response, PageError> {
    Ok(run_short_query(&server, move |server| {
        let part = StartStatusPart::new(server, &StartStatus::load(server)?);
        Ok(render::respond_with_fragment(&part, &headers))
    })
    .await?)
}

/// `POST /start/demo`: begins to load the demo. Responds with 303, so that reloading the page does not repeat it.
pub(super) async fn submit_demo(State(server): State<Arc<ServerState>>) -> Result<Response, PageError> {
    demo_traces::start_demo(&server)?;
    let mut response = StatusCode::SEE_OTHER.into_response();
    response.headers_mut().insert(LOCATION, HeaderValue::from_static("/start#status"));
    Ok(response)
}
