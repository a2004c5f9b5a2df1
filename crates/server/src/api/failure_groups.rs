//! Failure groups: what goes wrong, how often and since when.

use std::collections::HashSet;
use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use gradus_store::{FailureGroupNote, FailureGroupOptions, FailureGroupRow, FailureTrajectoryRow, MetricFilter};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::derived_checks::{DerivedChecks, derive_checks};
use crate::failure_group_notes::{UNKNOWN_GROUP, annotate_failure_group};
use crate::http_error::{ApiError, ApiQuery, run_large_query, run_short_query};
use crate::receive;
use crate::state::ServerState;
use crate::time_text as time;

/// Maximum number of groups in one response.
const MAX_GROUPS: usize = 200;
/// Maximum number of items in a dataset.
const MAX_ITEMS: usize = 1_000;
/// Maximum number of trajectories of a group in one response.
const MAX_EXAMPLES: usize = 200;
/// Maximum size of a request body: a note, with every character escaped.
const MAX_CHANGE_BYTES: usize = 32 << 10;
/// Maximum size of a dataset. A request can be a whole document.
const MAX_DATASET_BYTES: usize = 8 << 20;

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct FailureGroupParams {
    project: Option<String>,
    agent: Option<String>,
    version: Option<String>,
    model: Option<String>,
    /// Trajectories that began at or after this time.
    from: Option<String>,
    /// Trajectories that began before this time.
    to: Option<String>,
    /// Where the period before begins; it ends at `from`.
    before: Option<String>,
    /// Also groups that are muted on the overview.
    #[serde(default)]
    muted: bool,
    /// At most 200 [default: 50].
    limit: Option<usize>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = FailureGroups)]
pub(super) struct FailureGroupPage {
    /// Those with the most trajectories first.
    items: Vec<FailureGroupItem>,
    /// All groups of the period, muted ones included.
    count: u64,
}

/// Wrong verdicts of one evaluator on one tool, for one reason.
#[derive(Serialize, ToSchema)]
#[schema(as = FailureGroup)]
struct FailureGroupItem {
    /// Stable; `/groups/KEY` is its page, `group=KEY` filters traces.
    key: String,
    evaluator: String,
    tool: Option<String>,
    /// The rule that decided; null when a model did.
    rule: Option<String>,
    label: String,
    /// With values replaced by their kind.
    reason: String,
    name: Option<String>,
    note: Option<String>,
    muted: bool,
    /// When the first trajectory with it began (RFC 3339).
    first_seen: String,
    trajectories: u64,
    /// Trajectories of the period before; 0 without `before`.
    trajectories_before: u64,
    verdicts: u64,
    /// The most frequent versions.
    versions: Vec<VersionCount>,
    /// The trajectory with the most such verdicts.
    example: Option<FailureExampleItem>,
}

#[derive(Serialize, ToSchema)]
struct VersionCount {
    version: String,
    trajectories: u64,
}

#[derive(Serialize, ToSchema)]
struct FailureExampleItem {
    trace_id: String,
    trajectory_id: String,
    /// Null for the whole trajectory.
    step: Option<u32>,
    query: String,
}

/// Failure groups of a period.
#[utoipa::path(get, path = "/api/v1/failure-groups", tag = "metrics", params(FailureGroupParams),
    responses((status = 200, body = FailureGroupPage), (status = 400, body = crate::http_error::ErrorBody)))]
pub(super) async fn list_failure_groups(
    State(server): State<Arc<ServerState>>,
    ApiQuery(params): ApiQuery<FailureGroupParams>,
) -> Result<Json<FailureGroupPage>, ApiError> {
    let filter = MetricFilter {
        project: params.project,
        agent: params.agent,
        version: params.version,
        model: params.model,
        from_ns: time::parse_rfc3339("from", params.from.as_deref())?,
        to_ns: time::parse_rfc3339("to", params.to.as_deref())?,
        ..MetricFilter::default()
    };
    let before_ns = time::parse_rfc3339("before", params.before.as_deref())?;
    let limit = params.limit.unwrap_or(50).clamp(1, MAX_GROUPS);
    let with_muted = params.muted;
    run_short_query(&server, move |server| {
        let options = FailureGroupOptions { before_ns, with_muted, key: None, limit };
        let list = server.store.failure_groups(&filter, options)?;
        let items = list.groups.into_iter().map(FailureGroupItem::from_row).collect();
        Ok(Json(FailureGroupPage { items, count: list.group_count }))
    })
    .await
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct GroupDatasetParams {
    project: Option<String>,
    agent: Option<String>,
    version: Option<String>,
    model: Option<String>,
    /// Trajectories that began at or after this time.
    from: Option<String>,
    /// Trajectories that began before this time.
    to: Option<String>,
}

/// What to change about a failure group. A field that is absent or null stays as it is.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct FailureGroupChange {
    /// At most 120 characters; an empty text removes the name.
    name: Option<String>,
    /// At most 2,000 characters; an empty text removes the note.
    note: Option<String>,
    /// A muted group is not on the overview.
    muted: Option<bool>,
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct GroupExampleParams {
    /// At most 200 [default: 20].
    limit: Option<usize>,
}

/// One failure group over all stored trajectories.
#[derive(Serialize, ToSchema)]
#[schema(as = FailureGroupDetails)]
pub(super) struct FailureGroupDetails {
    #[serde(flatten)]
    group: FailureGroupItem,
    /// The latest trajectories with it, latest first.
    examples: Vec<FailureExampleItem>,
}

/// One failure group with its latest trajectories.
#[utoipa::path(get, path = "/api/v1/failure-groups/{key}", tag = "metrics",
    params(("key" = String, Path, description = "The key of the group"), GroupExampleParams),
    responses((status = 200, body = FailureGroupDetails), (status = 404, body = crate::http_error::ErrorBody)))]
pub(super) async fn get_failure_group(
    State(server): State<Arc<ServerState>>,
    Path(key): Path<String>,
    ApiQuery(params): ApiQuery<GroupExampleParams>,
) -> Result<Json<FailureGroupDetails>, ApiError> {
    let limit = params.limit.unwrap_or(20).clamp(1, MAX_EXAMPLES);
    run_short_query(&server, move |server| {
        let options = FailureGroupOptions { before_ns: None, with_muted: true, key: Some(&key), limit: 1 };
        let groups = server.store.failure_groups(&MetricFilter::default(), options)?.groups;
        let group = groups.into_iter().next().ok_or_else(|| ApiError::not_found(UNKNOWN_GROUP))?;
        let examples = server.store.failure_trajectories(&MetricFilter::default(), &key, limit)?;
        let examples = examples.into_iter().map(FailureExampleItem::from_row).collect();
        Ok(Json(FailureGroupDetails { group: FailureGroupItem::from_row(group), examples }))
    })
    .await
}

/// Names or mutes a failure group, or gives it a note. Needs the scope admin.
#[utoipa::path(patch, path = "/api/v1/failure-groups/{key}", tag = "metrics", request_body = FailureGroupChange,
    params(("key" = String, Path, description = "The key of the group")),
    responses((status = 204), (status = 400, body = crate::http_error::ErrorBody),
        (status = 404, body = crate::http_error::ErrorBody)))]
pub(super) async fn change_failure_group(
    State(server): State<Arc<ServerState>>,
    Path(key): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<StatusCode, ApiError> {
    let (change, _lease) =
        receive::read_small_json::<FailureGroupChange>(&server, &headers, body, MAX_CHANGE_BYTES).await?;
    let note = FailureGroupNote { name: change.name, note: change.note, is_muted: change.muted };
    annotate_failure_group(&server, key, note).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The requests of the runs of a group, as a dataset for `gradus experiment`; at most 1,000 and 8 MB, the latest. Items
/// have a check only where one follows for certain: no call of a tool that does not exist, and any answer for runs that
/// ended without one. `metadata.checks` says so.
#[utoipa::path(get, path = "/api/v1/failure-groups/{key}/dataset", tag = "metrics",
    params(("key" = String, Path, description = "The key of the group"), GroupDatasetParams),
    responses((status = 200, body = String, content_type = "application/jsonl"),
        (status = 404, body = crate::http_error::ErrorBody)))]
pub(super) async fn download_group_dataset(
    State(server): State<Arc<ServerState>>,
    Path(key): Path<String>,
    ApiQuery(params): ApiQuery<GroupDatasetParams>,
) -> Result<Response, ApiError> {
    let filter = MetricFilter {
        project: params.project,
        agent: params.agent,
        version: params.version,
        model: params.model,
        from_ns: time::parse_rfc3339("from", params.from.as_deref())?,
        to_ns: time::parse_rfc3339("to", params.to.as_deref())?,
        ..MetricFilter::default()
    };
    let lines = run_large_query(&server, move |server| {
        let examples = server.store.failure_trajectories(&filter, &key, MAX_ITEMS)?;
        if examples.is_empty() {
            return Err(ApiError::not_found("failure group not found among the stored runs of the filter"));
        }
        let options = FailureGroupOptions { before_ns: None, with_muted: true, key: Some(&key), limit: 1 };
        let group = server.store.failure_groups(&MetricFilter::default(), options)?.groups.into_iter().next();
        let checks = group.and_then(|group| derive_checks(&group.rule, &group.tool));
        let mut seen = HashSet::new();
        let mut lines = String::new();
        for example in &examples {
            if lines.len() > MAX_DATASET_BYTES {
                break;
            }
            // The list contains only the beginning of a request.
            let json = server.store.trajectory_json(&example.trajectory_id)?.unwrap_or_default();
            let request = serde_json::from_slice::<RecordedRequest>(&json).ok().and_then(|one| one.query);
            if let Some(request) = request.filter(|text| !text.trim().is_empty() && seen.insert(text.clone())) {
                lines.push_str(&format_dataset_line(example, &request, &key, checks.as_ref()));
            }
        }
        Ok(lines)
    })
    .await?;
    let headers = [
        (CONTENT_TYPE, "application/jsonl; charset=utf-8"),
        (CONTENT_DISPOSITION, "attachment; filename=\"failures.jsonl\""),
    ];
    Ok((headers, lines).into_response())
}

/// The part of a stored trajectory that a dataset needs.
#[derive(Deserialize)]
struct RecordedRequest {
    query: Option<String>,
}

/// Formats one item of the dataset.
fn format_dataset_line(
    example: &FailureTrajectoryRow,
    request: &str,
    key: &str,
    checks: Option<&DerivedChecks>,
) -> String {
    let mut item = serde_json::json!({
        "id": example.trajectory_id,
        "request": request,
        "metadata": {
            "failure_group": key,
            "trace_id": format!("{:032x}", example.trace_id.0),
            "checks": if checks.is_some() { "derived" } else { "none" },
        },
    });
    if let Some(checks) = checks {
        item[checks.field] = checks.value.clone();
    }
    format!("{item}\n")
}

impl FailureGroupItem {
    fn from_row(row: FailureGroupRow) -> FailureGroupItem {
        let named = |text: String| (!text.is_empty()).then_some(text);
        FailureGroupItem {
            key: row.key,
            evaluator: row.evaluator,
            tool: named(row.tool),
            rule: named(row.rule),
            label: row.label,
            reason: row.reason,
            name: row.name,
            note: row.note,
            muted: row.is_muted,
            first_seen: time::format_rfc3339(row.first_seen_ns),
            trajectories: row.trajectories,
            trajectories_before: row.trajectories_before,
            verdicts: row.verdicts,
            versions: row
                .versions
                .into_iter()
                .map(|(version, trajectories)| VersionCount { version, trajectories })
                .collect(),
            example: row.example.map(FailureExampleItem::from_row),
        }
    }
}

impl FailureExampleItem {
    fn from_row(row: FailureTrajectoryRow) -> FailureExampleItem {
        FailureExampleItem {
            trace_id: format!("{:032x}", row.trace_id.0),
            trajectory_id: row.trajectory_id,
            step: row.step,
            query: row.query,
        }
    }
}
