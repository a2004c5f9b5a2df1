//! Scores and usage by version, model or agent, from the rollups: the columns of the page of versions.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use gradus_store::{MetricFilter, NameScoreRow};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::evaluators::{compute_mean_interval, find_evaluator_title, gives_only_flags};
use crate::http_error::{ApiError, ApiQuery, run_short_query};
use crate::live_comparison::ComparedName;
use crate::settings::ReloadableSettings;
use crate::state::ServerState;
use crate::time_text::parse_rfc3339;

/// Maximum number of names in one response.
const MAX_NAMES: usize = 200;

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct VersionParams {
    /// `version`, `model` or `agent` [default: version].
    by: Option<String>,
    project: Option<String>,
    agent: Option<String>,
    version: Option<String>,
    model: Option<String>,
    /// Trajectories that began at or after this time.
    from: Option<String>,
    /// Trajectories that began before this time.
    to: Option<String>,
}

#[derive(Serialize, ToSchema)]
pub(super) struct VersionScoreList {
    /// Those with the latest trajectories first.
    items: Vec<VersionScores>,
    /// Whether there are more names.
    is_cut: bool,
}

/// A version, a model or an agent.
#[derive(Serialize, ToSchema)]
pub(super) struct VersionScores {
    name: String,
    trajectories: i64,
    errors: i64,
    /// Means of a trajectory. Null if not known.
    mean_seconds: Option<f64>,
    mean_tokens: Option<f64>,
    mean_cost_usd: Option<f64>,
    scores: Vec<VersionScore>,
}

/// The mean score of one evaluator, on the scale of its labels.
#[derive(Serialize, ToSchema)]
pub(super) struct VersionScore {
    evaluator: String,
    title: String,
    /// Null if nothing was scored.
    mean: Option<f64>,
    low: Option<f64>,
    high: Option<f64>,
    scored: i64,
    abstained: i64,
    failed: i64,
    /// Whether rules decided that only notice mistakes. The mean is about the few cases that they decided.
    is_flags_only: bool,
}

/// Scores and usage of each version, model or agent. Two of them are compared by `/api/v1/compare?by=`.
#[utoipa::path(get, path = "/api/v1/versions", tag = "metrics", params(VersionParams),
    responses((status = 200, body = VersionScoreList), (status = 400, body = crate::http_error::ErrorBody)))]
pub(super) async fn list_versions(
    State(server): State<Arc<ServerState>>,
    ApiQuery(params): ApiQuery<VersionParams>,
) -> Result<Json<VersionScoreList>, ApiError> {
    let by = ComparedName::parse(params.by.as_deref().unwrap_or("version"))
        .ok_or_else(|| ApiError::bad_request("by: version, model or agent"))?;
    let filter = MetricFilter {
        project: params.project,
        agent: params.agent,
        version: params.version,
        model: params.model,
        from_ns: parse_rfc3339("from", params.from.as_deref())?,
        to_ns: parse_rfc3339("to", params.to.as_deref())?,
        ..MetricFilter::default()
    };
    run_short_query(&server, move |server| {
        let table = server.store.name_scores(&filter, by.kind(), MAX_NAMES)?;
        let settings = server.reloadable();
        let items = table.rows.into_iter().map(|row| VersionScores::from_row(&settings, row));
        Ok(Json(VersionScoreList { items: items.collect(), is_cut: table.is_cut }))
    })
    .await
}

impl VersionScores {
    fn from_row(settings: &ReloadableSettings, row: NameScoreRow) -> VersionScores {
        let usage = row.usage;
        let each = |sum: f64, count: i64| (count > 0 && sum > 0.0).then(|| sum / count as f64);
        let scores = row.scores.into_iter().map(|(evaluator, moments)| {
            let interval = compute_mean_interval(settings, &evaluator, &moments);
            VersionScore {
                title: find_evaluator_title(settings, &evaluator),
                is_flags_only: gives_only_flags(settings, &evaluator),
                mean: (moments.scored > 0).then(|| moments.sum / moments.scored as f64),
                low: interval.map(|interval| interval.low),
                high: interval.map(|interval| interval.high),
                scored: moments.scored,
                abstained: moments.abstained,
                failed: moments.failed,
                evaluator,
            }
        });
        VersionScores {
            name: row.name,
            trajectories: usage.trajectories,
            errors: usage.errors,
            mean_seconds: each(usage.took_ns / 1e9, usage.trajectories),
            mean_tokens: each(usage.tokens as f64, usage.trajectories),
            mean_cost_usd: each(usage.cost_usd, usage.costed),
            scores: scores.collect(),
        }
    }
}
