//! Phoenix's REST API, answered as Phoenix answers it: projects, spans, data frames, annotations, sessions, and the
//! forms of its older clients. Each family of requests has a file. The data is the same as everywhere else in the
//! store; only the representation is Phoenix's.

mod annotation_lists;
mod annotation_subject;
mod annotations;
mod arrow;
mod create;
mod data_list;
mod dataframe;
mod dataframe_rows;
mod error;
mod evaluations;
mod filter_context;
mod frame_json;
mod ids;
mod otlp;
mod projection;
mod projects;
mod query;
mod request;
mod rows;
mod scan;
mod session_lookup;
mod sessions;
mod span_filters;
mod span_match;
mod spans;
mod trace_order;
mod trace_totals;
mod traces;
mod verdicts;

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};

use super::state::ServerState;
use error::PhoenixApiError;
pub(super) use span_match::has_matching_span;

/// The Phoenix version whose behaviour is implemented. Clients check it before they use newer routes.
const VERSION: &str = "20.26.1";
/// Phoenix clients read the server's version from this header of any response.
const VERSION_HEADER: HeaderName = HeaderName::from_static("x-phoenix-server-version");

/// Path of the version, which is answered without a key, as in Phoenix.
pub(super) const VERSION_PATH: &str = "/arize_phoenix_version";

/// Paths and methods are those of Phoenix's OpenAPI document. `/v1/traces` without an id belongs to OTLP.
pub(super) fn build_phoenix_routes() -> Router<Arc<ServerState>> {
    Router::new()
        .route(VERSION_PATH, get(async || VERSION))
        .route("/v1/projects", get(projects::list_projects).post(projects::create_project))
        .route(
            "/v1/projects/{project}",
            get(projects::get_project).put(projects::update_project_description).delete(projects::delete_project),
        )
        .route("/v1/projects/{project}/spans", get(spans::list_spans).post(create::create_spans))
        .route("/v1/projects/{project}/spans/otlpv1", get(spans::list_otlp))
        .route("/v1/projects/{project}/traces", get(traces::list_traces))
        .route("/v1/projects/{project}/sessions", get(sessions::list_sessions))
        .route("/v1/projects/{project}/span_annotations", get(annotation_lists::list_span_annotations))
        .route("/v1/projects/{project}/trace_annotations", get(annotation_lists::list_trace_annotations))
        .route("/v1/projects/{project}/session_annotations", get(annotation_lists::list_session_annotations))
        .route("/v1/sessions/{session}", get(sessions::get_session))
        .route("/v1/spans", post(dataframe::query_spans).get(dataframe::query_spans))
        .route("/v1/traces/{trace}", delete(traces::delete_trace))
        .route("/v1/span_annotations", post(annotations::receive_span_annotations))
        .route("/v1/trace_annotations", post(annotations::receive_trace_annotations))
        .route("/v1/session_annotations", post(annotations::receive_session_annotations))
        .route("/v1/document_annotations", post(annotations::receive_document_annotations))
        .route("/v1/span_notes", post(annotations::receive_span_note))
        .route("/v1/trace_notes", post(annotations::receive_trace_note))
        .route("/v1/session_notes", post(annotations::receive_session_note))
        .route("/v1/evaluations", post(evaluations::log_evaluations))
        .layer(from_fn(add_version_header))
}

/// Adds the version to every response, errors included.
async fn add_version_header(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    response.headers_mut().insert(VERSION_HEADER, HeaderValue::from_static(VERSION));
    response
}

/// Returns the response for parts of Phoenix that this server does not implement; `None` for any other path. 501
/// tells clients that a retry is useless.
pub(super) fn respond_unimplemented(path: &str) -> Option<Response> {
    let name = path.strip_prefix("/v1/")?.split('/').next()?;
    let is_known = matches!(
        name,
        "datasets" | "experiments" | "experiment_evaluations" | "prompts" | "prompt_versions" | "annotation_configs"
    );
    is_known.then(|| {
        let message = format!("{name} are Phoenix's; Gradus keeps traces, annotations and what was graded");
        PhoenixApiError::new(StatusCode::NOT_IMPLEMENTED, message).into_response()
    })
}

/// Whether requests to a path have a body even with GET: older clients send data frame queries that way.
pub(super) fn takes_body(path: &str) -> bool {
    path == "/v1/spans"
}

/// Whether a path is Phoenix's and not OTLP's, which decides the form of errors.
pub(super) fn is_phoenix_path(path: &str) -> bool {
    path.starts_with("/v1/") && !matches!(path, "/v1/traces" | "/v1/logs")
}

/// Returns Phoenix's response to a missing or wrong key. Clients look for this text.
pub(super) fn respond_invalid_token() -> Response {
    PhoenixApiError::new(StatusCode::UNAUTHORIZED, "Invalid token").into_response()
}
