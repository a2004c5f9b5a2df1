//! The JSON API. `/openapi.json` is generated from these functions, so the description cannot differ from the code.

mod agent_metrics;
mod alert_rules;
mod alerts;
mod annotations;
mod body;
mod download;
mod failure_groups;
mod health;
mod metrics;
mod projects;
mod prometheus;
pub(super) mod quarantine;
mod rubrics;
mod runs;
mod schema;
mod sessions;
mod settle;
mod span_line;
mod spans;
mod start;
mod step_comparison;
mod table;
mod traces;
mod versions;

use std::sync::Arc;

use axum::Router;
use axum::routing::get;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::state::ServerState;

/// The head of the description; routes add themselves.
#[derive(OpenApi)]
#[openapi(info(
    title = "Gradus",
    description = "Traces of agents, the trajectories in them, and how they were graded. Times are RFC 3339."
))]
struct OpenApiSpec;

/// All routes of the API. Authentication, limits and logging are layers of the outer router.
pub(super) fn build_api_routes() -> Router<Arc<ServerState>> {
    let (router, description) = OpenApiRouter::with_openapi(OpenApiSpec::openapi())
        .routes(routes!(projects::list_all_projects))
        .routes(routes!(traces::search_traces))
        .routes(routes!(traces::get_trace))
        .routes(routes!(sessions::list_sessions))
        .routes(routes!(sessions::get_session))
        .routes(routes!(spans::of_project))
        .routes(routes!(spans::export_project_otlp))
        .routes(routes!(metrics::list_metrics))
        .routes(routes!(failure_groups::list_failure_groups))
        .routes(routes!(failure_groups::get_failure_group, failure_groups::change_failure_group))
        .routes(routes!(failure_groups::download_group_dataset))
        .routes(routes!(versions::list_versions))
        .routes(routes!(runs::list_runs))
        .routes(routes!(runs::get_run))
        .routes(routes!(runs::compare_two_runs))
        .routes(routes!(step_comparison::compare_run_steps))
        .routes(routes!(annotations::search_annotations, annotations::add_annotations))
        .routes(routes!(annotations::delete_annotation))
        .routes(routes!(rubrics::list_rubrics))
        .routes(routes!(quarantine::list_quarantined_traces))
        .routes(routes!(quarantine::retry_all))
        .routes(routes!(quarantine::retry_one))
        .routes(routes!(settle::settle_traces))
        .routes(routes!(alerts::list_alerts))
        .routes(routes!(alert_rules::create_alert_rule))
        .routes(routes!(alert_rules::replace_alert_rule, alert_rules::delete_alert_rule))
        .routes(routes!(alert_rules::mute_alert, alert_rules::unmute_alert))
        .routes(routes!(alert_rules::test_alert))
        .routes(routes!(alert_rules::export_alert_rules))
        .routes(routes!(alerts::list_grading_rules))
        .routes(routes!(start::report_start_status))
        .routes(routes!(start::load_demo))
        .routes(routes!(health::report_health))
        .routes(routes!(health::report_readiness))
        .routes(routes!(health::export_server_metrics))
        .split_for_parts();
    // Rendered once: it only depends on the code.
    let description = description.to_pretty_json().unwrap_or_default();
    router.route("/openapi.json", get(move || health::serve_openapi(description.clone())))
}
