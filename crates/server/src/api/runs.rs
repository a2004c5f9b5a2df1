//! Runs of `gradus eval` in the data folder of the server, and one live run for each rule of live grading.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use gradus_eval::report::EvaluationSummary;
use gradus_eval::run::{RunManifest, RunState, StateFolder};
use gradus_report::compare::VersionComparison;
use gradus_store::MetricFilter;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::schema;
use crate::http_error::{ApiError, run_large_query, run_short_query};
use crate::live_comparison::{ComparedName, compare_live};
use crate::run_comparison::compare_runs;
use crate::run_lookup::log_run_failure;
use crate::state::ServerState;
use crate::time_text::parse_rfc3339;

#[derive(Serialize, ToSchema)]
#[schema(as = Runs)]
pub(super) struct RunList {
    items: Vec<RunListItem>,
}

/// A run of `gradus eval`, or a rule of live grading.
#[derive(Serialize, ToSchema)]
#[schema(as = Run)]
pub(super) struct RunListItem {
    run_id: String,
    /// `running`, `stopped` or `finished`; a live run is always running.
    state: &'static str,
    /// Whether it is a rule of live grading instead of a run of `gradus eval`.
    is_live: bool,
    /// RFC 3339; null for live runs.
    started: Option<String>,
    ended: Option<String>,
    /// Why the run ended early, if it did.
    stopped_because: Option<String>,
    /// Sources as they were given; the project pattern of a live run.
    sources: Vec<String>,
    judge: String,
    evaluators: Vec<String>,
}

/// The live runs, then those of `gradus eval`, latest first.
#[utoipa::path(get, path = "/api/v1/runs", tag = "runs", responses((status = 200, body = RunList)))]
pub(super) async fn list_runs(State(server): State<Arc<ServerState>>) -> Result<Json<RunList>, ApiError> {
    run_short_query(&server, |server| {
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
            // A run that is being created or deleted at this moment has no readable manifest yet, or any more.
            if let Ok(run) = folder.read_run(&id) {
                items.push(RunListItem::from_record(run.record));
            }
        }
        Ok(Json(RunList { items }))
    })
    .await
}

/// Newtype for the schema: `EvaluationSummary` describes itself with `schemars`, not with `utoipa`.
#[derive(Serialize)]
pub(super) struct RunSummary(EvaluationSummary);

impl utoipa::PartialSchema for RunSummary {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
        schema::generate_openapi_schema::<EvaluationSummary>()
    }
}

impl ToSchema for RunSummary {}

/// The summary of a run of `gradus eval`, as `gradus eval --json` writes it.
#[utoipa::path(get, path = "/api/v1/runs/{run_id}", tag = "runs", params(("run_id" = String, Path)),
    responses((status = 200, body = RunSummary), (status = 404, body = crate::http_error::ErrorBody)))]
pub(super) async fn get_run(
    State(server): State<Arc<ServerState>>,
    Path(id): Path<String>,
) -> Result<Json<RunSummary>, ApiError> {
    // A summary that is not cached reads all outcomes of the run.
    run_large_query(&server, move |server| {
        let run = crate::run_lookup::find_run(server, &id)?;
        let whole = server.run_reports.load_report(&run).map_err(log_run_failure)?;
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

/// Newtype for the schema, as [`RunSummary`].
#[derive(Serialize)]
pub(super) struct RunComparisonBody(Arc<VersionComparison>);

impl utoipa::PartialSchema for RunComparisonBody {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
        schema::generate_openapi_schema::<VersionComparison>()
    }
}

impl ToSchema for RunComparisonBody {}

/// A is the one that B is compared with.
#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct ComparisonParams {
    /// The id of a run, or with `by` a name of live traffic.
    a: String,
    b: String,
    /// `version`, `model` or `agent`: compares live traffic instead of two runs of `gradus eval`.
    by: Option<String>,
    /// The following select live traffic.
    project: Option<String>,
    agent: Option<String>,
    version: Option<String>,
    model: Option<String>,
    /// Trajectories that began at or after this time.
    from: Option<String>,
    /// Trajectories that began before this time.
    to: Option<String>,
}

/// Two runs of `gradus eval`, or two versions, models or agents in live traffic, compared as `gradus compare --json` writes
/// it. At most 50,000 trajectories of each run; of live traffic, the latest 1,000 of each.
#[utoipa::path(get, path = "/api/v1/compare", tag = "runs", params(ComparisonParams),
    responses((status = 200, body = RunComparisonBody), (status = 400, body = crate::http_error::ErrorBody),
        (status = 404, body = crate::http_error::ErrorBody)))]
pub(super) async fn compare_two_runs(
    State(server): State<Arc<ServerState>>,
    params: Result<Query<ComparisonParams>, QueryRejection>,
) -> Result<Json<RunComparisonBody>, ApiError> {
    let Query(params) = params.map_err(|_| ApiError::bad_request("Give two runs to compare: ?a=RUN&b=RUN."))?;
    run_large_query(&server, move |server| {
        let Some(by) = params.by.as_deref() else {
            return Ok(Json(RunComparisonBody(compare_runs(server, &params.a, &params.b)?)));
        };
        let by = ComparedName::parse(by).ok_or_else(|| ApiError::bad_request("by: version, model or agent"))?;
        let filter = MetricFilter {
            project: params.project.clone(),
            agent: params.agent.clone(),
            version: params.version.clone(),
            model: params.model.clone(),
            from_ns: parse_rfc3339("from", params.from.as_deref())?,
            to_ns: parse_rfc3339("to", params.to.as_deref())?,
            ..MetricFilter::default()
        };
        let comparison = compare_live(server, by, [&params.a, &params.b], &filter)?;
        Ok(Json(RunComparisonBody(Arc::new(comparison))))
    })
    .await
}
