//! The JSON API. What it can be asked is described by the code itself: `/openapi.json` is made from these functions.

mod alerts;
mod annotations;
mod body;
mod download;
mod error;
mod health;
mod metrics;
mod projects;
pub(super) mod quarantine;
mod rubrics;
mod runs;
mod schema;
mod spans;
mod table;
mod time;
mod traces;

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::state::Server;
use super::{page, phoenix, receive};
pub(super) use error::{ApiError, Params, blocking, blocking_large, blocking_sender};
pub(super) use spans::visit_spans;
pub(super) use time::{read as read_time, show as show_time};
pub(super) use traces::score_bound;

#[derive(OpenApi)]
#[openapi(info(
    title = "Gradus",
    description = "Traces of agents, the trajectories in them, and how they were graded. Times are RFC 3339."
))]
struct Description;

/// All that the server answers, and its description.
pub(super) fn router(server: Arc<Server>) -> Router {
    let (router, description) = OpenApiRouter::with_openapi(Description::openapi())
        .routes(routes!(projects::list))
        .routes(routes!(traces::list))
        .routes(routes!(traces::one))
        .routes(routes!(spans::of_project))
        .routes(routes!(spans::export))
        .routes(routes!(metrics::list))
        .routes(routes!(runs::list))
        .routes(routes!(runs::one))
        .routes(routes!(annotations::list, annotations::add))
        .routes(routes!(annotations::remove))
        .routes(routes!(rubrics::list))
        .routes(routes!(quarantine::list))
        .routes(routes!(quarantine::retry_all))
        .routes(routes!(quarantine::retry_one))
        .routes(routes!(alerts::list))
        .routes(routes!(alerts::rules))
        .routes(routes!(health::healthz))
        .routes(routes!(health::readyz))
        .routes(routes!(health::metrics))
        .split_for_parts();
    let description = description.to_pretty_json().unwrap_or_default();
    router
        .route("/openapi.json", get(move || health::openapi(description.clone())))
        .route("/v1/traces", post(receive::traces))
        .route("/v1/logs", post(receive::logs))
        .route("/opentelemetry.proto.collector.trace.v1.TraceService/Export", post(receive::export_traces))
        .route("/opentelemetry.proto.collector.logs.v1.LogsService/Export", post(receive::export_logs))
        .merge(phoenix::routes())
        .merge(page::routes(&server))
        .fallback(error::not_found)
        .method_not_allowed_fallback(error::wrong_method)
        .with_state(server)
}
