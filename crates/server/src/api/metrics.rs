//! Scores over time, or by agent, version, model or tool, from the rollups of the store.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use gradus_core::duration_text::parse_duration;
use gradus_store::{BUCKET_NS, MetricFilter, MetricGroup, MetricRow};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::http_error::{ApiError, ApiQuery, run_short_query};
use crate::settings::ReloadableSettings;
use crate::state::ServerState;
use crate::time_text as time;

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct MetricParams {
    project: Option<String>,
    evaluator: Option<String>,
    agent: Option<String>,
    version: Option<String>,
    model: Option<String>,
    /// Only steps that call this tool.
    tool: Option<String>,
    /// Trajectories that began at or after this time.
    from: Option<String>,
    /// Trajectories that began before this time.
    to: Option<String>,
    /// `time`, `agent`, `version`, `model` or `tool`; without it: one figure for each evaluator.
    by: Option<String>,
    /// The length of a period when `by=time`: `5m` and more [default: 1h].
    period: Option<String>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = Metrics)]
pub(super) struct MetricList {
    items: Vec<MetricPoint>,
}

/// Mean score of one evaluator in one group.
#[derive(Serialize, ToSchema)]
pub(super) struct MetricPoint {
    evaluator: String,
    /// The value of what `by` names: the start of a period (RFC 3339) or a name. Null without `by`.
    group: Option<String>,
    /// Null when nothing was scored.
    mean: Option<f64>,
    /// Cluster-robust 95 % confidence interval of the mean, on the scale of the labels. Steps of one trajectory are one
    /// cluster.
    low: Option<f64>,
    high: Option<f64>,
    /// Numbers of outcomes by kind.
    scored: i64,
    failed: i64,
    not_applicable: i64,
    /// The judge could not decide, or gave a label without a score.
    abstained: i64,
    /// Number of trajectories with an outcome of any kind.
    trajectories: i64,
}

/// Scores of graded trajectories. They come from rollups of five minutes, which are kept longer than traces.
#[utoipa::path(get, path = "/api/v1/metrics", tag = "metrics", params(MetricParams),
    responses((status = 200, body = MetricList), (status = 400, body = crate::http_error::ErrorBody)))]
pub(super) async fn list_metrics(
    State(server): State<Arc<ServerState>>,
    ApiQuery(params): ApiQuery<MetricParams>,
) -> Result<Json<MetricList>, ApiError> {
    let group = parse_metric_group(params.by.as_deref(), params.period.as_deref())?;
    let filter = MetricFilter {
        project: params.project,
        evaluator: params.evaluator,
        agent: params.agent,
        version: params.version,
        model: params.model,
        tool: params.tool,
        from_ns: time::parse_rfc3339("from", params.from.as_deref())?,
        to_ns: time::parse_rfc3339("to", params.to.as_deref())?,
    };
    run_short_query(&server, move |server| {
        let rows = server.store.metrics(&filter, group)?;
        let settings = server.reloadable();
        let items = rows.into_iter().map(|row| MetricPoint::from_row(&settings, row, group));
        Ok(Json(MetricList { items: items.collect() }))
    })
    .await
}

/// Parses the grouping. A period has to be a multiple of the rollup bucket: shorter or unaligned periods cannot be
/// computed from rollups.
fn parse_metric_group(by: Option<&str>, period: Option<&str>) -> Result<MetricGroup, ApiError> {
    Ok(match by {
        None => MetricGroup::All,
        Some("time") => {
            let text = period.unwrap_or("1h");
            let length = parse_duration(text).and_then(|length| i64::try_from(length.as_nanos()).ok());
            let period_ns =
                length.filter(|length| *length >= BUCKET_NS && length % BUCKET_NS == 0).ok_or_else(|| {
                    ApiError::bad_request(format!(
                        "period={text}: write it as 5m, 1h or 1d; it must be a multiple of five minutes"
                    ))
                })?;
            MetricGroup::Time { period_ns }
        }
        Some("agent") => MetricGroup::Agent,
        Some("version") => MetricGroup::Version,
        Some("model") => MetricGroup::Model,
        Some("tool") => MetricGroup::Tool,
        Some(other) => {
            return Err(ApiError::bad_request(format!("by={other}: time, agent, version, model or tool")));
        }
    })
}

impl MetricPoint {
    fn from_row(settings: &ReloadableSettings, row: MetricRow, group: MetricGroup) -> MetricPoint {
        let moments = row.moments;
        let interval = crate::evaluators::compute_mean_interval(settings, &row.evaluator, &moments);
        MetricPoint {
            evaluator: row.evaluator,
            group: match group {
                MetricGroup::All => None,
                MetricGroup::Time { .. } => row.group.parse().ok().map(time::format_rfc3339),
                _ => Some(row.group),
            },
            mean: (moments.scored > 0).then(|| moments.sum / moments.scored as f64),
            low: interval.map(|interval| interval.low),
            high: interval.map(|interval| interval.high),
            scored: moments.scored,
            failed: moments.failed,
            not_applicable: moments.not_applicable,
            abstained: moments.abstained,
            trajectories: moments.trajectories,
        }
    }
}
