//! Runs of `gradus eval` that were kept in the server's folder, and the live ones: one for each rule.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use gradus_eval::report::EvaluationSummary;
use gradus_eval::run::{RunManifest, RunState, StateFolder};
use serde::Serialize;
use utoipa::ToSchema;

use super::schema;
use crate::http_error::{ApiError, blocking_large, run_store_query};
use crate::run_lookup::log_run_failure;
use crate::state::ServerState;

#[derive(Serialize, ToSchema)]
#[schema(as = Runs)]
pub(super) struct RunList {
    items: Vec<RunListItem>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = Run)]
pub(super) struct RunListItem {
    run_id: String,
    /// `running`, `stopped` or `finished`; a live run is always running.
    state: &'static str,
    is_live: bool,
    started: Option<String>,
    ended: Option<String>,
    stopped_because: Option<String>,
    sources: Vec<String>,
    judge: String,
    evaluators: Vec<String>,
}

/// The live runs, then those of `gradus eval`, latest first.
#[utoipa::path(get, path = "/api/v1/runs", tag = "runs", responses((status = 200, body = RunList)))]
pub(super) async fn list_runs(State(server): State<Arc<ServerState>>) -> Result<Json<RunList>, ApiError> {
    run_store_query(&server, |server| {
        let live = server.reloadable();
        let live = live.rules.iter().map(|rule| RunListItem {
            run_id: rule.run_id(),
            state: "running",
            is_live: true,
            started: None,
            ended: None,
            stopped_because: None,
            sources: vec![rule.project_pattern().to_owned()],
            judge: rule.judge.as_ref().map_or_else(|| "offline".to_owned(), |judge| judge.name()),
            evaluators: rule.evaluators.iter().map(|evaluator| evaluator.name.to_string()).collect(),
        });
        let mut items: Vec<RunListItem> = live.collect();
        let folder = StateFolder::from_path(&server.settings.data);
        for id in folder.run_ids() {
            if let Ok(run) = folder.read_run(&id) {
                items.push(RunListItem::from_record(run.record));
            }
        }
        Ok(Json(RunList { items }))
    })
    .await
}

#[derive(Serialize)]
pub(super) struct RunSummary(EvaluationSummary);

impl utoipa::PartialSchema for RunSummary {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
        schema::generate_openapi_schema::<EvaluationSummary>()
    }
}

impl ToSchema for RunSummary {}

/// What a run of `gradus eval` came to, as `gradus eval --json` writes it.
#[utoipa::path(get, path = "/api/v1/runs/{run_id}", tag = "runs", params(("run_id" = String, Path)),
    responses((status = 200, body = RunSummary), (status = 404, body = crate::http_error::ErrorBody)))]
pub(super) async fn get_run(
    State(server): State<Arc<ServerState>>,
    Path(id): Path<String>,
) -> Result<Json<RunSummary>, ApiError> {
    blocking_large(&server, move |server| {
        let run = crate::run_lookup::find_run(server, &id)?;
        let whole = server.summaries.load_report(&run).map_err(log_run_failure)?;
        Ok(Json(RunSummary(whole.summary.clone())))
    })
    .await
}

impl RunListItem {
    fn from_record(record: RunManifest) -> RunListItem {
        RunListItem {
            run_id: record.run_id,
            state: match record.state {
                RunState::Running => "running",
                RunState::Stopped => "stopped",
                RunState::Finished => "finished",
            },
            is_live: false,
            started: Some(record.started),
            ended: record.ended,
            stopped_because: record.stopped_because,
            sources: record.sources,
            judge: record.judge,
            evaluators: record.evaluators.into_iter().map(|evaluator| evaluator.name).collect(),
        }
    }
}
