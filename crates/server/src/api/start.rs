//! What arrived at a new server, and its demo.
//!
//! Doc comments on types and handlers of this folder are published in `/openapi.json`; notes for maintainers are plain
//! comments.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use serde::Serialize;
use utoipa::ToSchema;

use crate::demo_load::DemoLoadStatus;
use crate::demo_traces::{self, DEMO_PROJECT};
use crate::http_error::{ApiError, run_short_query};
use crate::own_address::find_own_address;
use crate::start_status::{StartStage, StartStatus};
use crate::state::ServerState;

/// How far the setup of this server has come.
#[derive(Serialize, ToSchema)]
#[schema(as = StartStatus)]
pub(super) struct StartStatusBody {
    /// The address that exporters send to. OTLP over HTTP is at `/v1/traces` and `/v1/logs` below it.
    address: String,
    /// `waiting`, `received` or `graded`.
    stage: &'static str,
    spans: i64,
    traces: i64,
    trajectories: i64,
    /// The first projects with traces.
    projects: Vec<String>,
    /// Projects among them that no grading rule matches: nothing in them is graded.
    unmatched_projects: Vec<String>,
    /// The graded trajectory that arrived first.
    first_graded: Option<FirstGraded>,
    /// Whether a grading rule asks a model. Without one, rules judge alone and report only mistakes that they can prove.
    has_model_judge: bool,
    /// `not_loaded`, `loading`, `loaded` or `failed`, since the start of the server.
    demo: &'static str,
}

/// A graded trajectory.
#[derive(Serialize, ToSchema)]
pub(super) struct FirstGraded {
    trace_id: String,
    trajectory_id: String,
    project: String,
    verdicts: i64,
    wrong: i64,
    /// Evaluators that could not judge it without a model.
    abstained: Vec<String>,
}

/// What arrived so far, for setting a server up.
#[utoipa::path(get, path = "/api/v1/start", tag = "server", responses((status = 200, body = StartStatusBody)))]
pub(super) async fn report_start_status(
    State(server): State<Arc<ServerState>>,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Json<StartStatusBody>, ApiError> {
    let address = find_own_address(&server.settings, &headers, &uri);
    let status = run_short_query(&server, StartStatus::load).await?;
    let stage = match status.stage() {
        StartStage::Waiting => "waiting",
        StartStage::Received => "received",
        StartStage::Graded(_) => "graded",
    };
    let StartStatus { progress, has_model_judge, unmatched, demo } = status;
    Ok(Json(StartStatusBody {
        address,
        stage,
        spans: progress.spans,
        traces: progress.traces,
        trajectories: progress.trajectories,
        projects: progress.projects,
        unmatched_projects: unmatched,
        first_graded: progress.first_graded.map(|graded| FirstGraded {
            trace_id: graded.trace_id.to_string(),
            trajectory_id: graded.trajectory_id,
            project: graded.project,
            verdicts: graded.verdict_count,
            wrong: graded.flagged_verdict_count,
            abstained: graded.abstained,
        }),
        has_model_judge,
        demo: match demo {
            DemoLoadStatus::NotLoaded => "not_loaded",
            DemoLoadStatus::Loading => "loading",
            DemoLoadStatus::Loaded => "loaded",
            DemoLoadStatus::Failed(_) => "failed",
        },
    }))
}

/// A demo that is being loaded.
#[derive(Serialize, ToSchema)]
pub(super) struct DemoStarted {
    /// The project of its traces.
    project: &'static str,
}

/// Starts to load the demo: traces of scripted agents that make known mistakes. `GET /api/v1/start` says when it is done.
#[utoipa::path(post, path = "/api/v1/demo", tag = "server",
    responses((status = 202, body = DemoStarted), (status = 404, body = crate::http_error::ErrorBody)))]
pub(super) async fn load_demo(
    State(server): State<Arc<ServerState>>,
) -> Result<(StatusCode, Json<DemoStarted>), ApiError> {
    demo_traces::start_demo(&server)?;
    Ok((StatusCode::ACCEPTED, Json(DemoStarted { project: DEMO_PROJECT })))
}
