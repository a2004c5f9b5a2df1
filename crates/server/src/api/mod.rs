//! The JSON API. What it can be asked is described by the code itself: `/openapi.json` is made from these functions.

mod alerts;
mod annotations;
mod body;
mod download;
mod health;
mod metrics;
mod projects;
mod prometheus;
pub(super) mod quarantine;
mod rubrics;
mod runs;
mod schema;
mod span_line;
mod spans;
mod table;
mod traces;

use std::sync::Arc;

use axum::Router;
use axum::routing::get;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::state::ServerState;

#[derive(OpenApi)]
#[openapi(info(
    title = "Gradus",
    description = "Traces of agents, the trajectories in them, and how they were graded. Times are RFC 3339."
))]
struct OpenApiSpec;

/// The API's routes, and their description.
pub(super) fn routes() -> Router<Arc<ServerState>> {
    let (router, description) = OpenApiRouter::with_openapi(OpenApiSpec::openapi())
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
    router.route("/openapi.json", get(move || health::openapi(description.clone())))
}
