//! The list of projects.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use crate::http_error::{ApiError, run_short_query};
use crate::state::ServerState;
use crate::time_text as time;

/// A project with what is stored of it.
#[derive(Serialize, ToSchema)]
#[schema(as = Project)]
pub(super) struct ProjectSummary {
    name: String,
    /// When the first span of the project arrived.
    created: String,
    /// Stored traces, spans and trajectories; retention reduces them.
    traces: i64,
    spans: i64,
    trajectories: i64,
    /// When its first trace began.
    first: Option<String>,
    /// When its last trace began.
    last: Option<String>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = Projects)]
pub(super) struct ProjectList {
    items: Vec<ProjectSummary>,
}

/// All projects, by name.
#[utoipa::path(get, path = "/api/v1/projects", tag = "projects", responses((status = 200, body = ProjectList)))]
pub(super) async fn list_all_projects(State(server): State<Arc<ServerState>>) -> Result<Json<ProjectList>, ApiError> {
    run_short_query(&server, |server| {
        let rows = server.store.projects()?;
        let items = rows.into_iter().map(|row| ProjectSummary {
            name: row.name,
            created: time::format_rfc3339(row.created_ns),
            traces: row.traces,
            spans: row.spans,
            trajectories: row.trajectories,
            first: row.first_ns.map(time::format_rfc3339),
            last: row.last_ns.map(time::format_rfc3339),
        });
        Ok(Json(ProjectList { items: items.collect() }))
    })
    .await
}
