//! Quarantined traces, which could not be assembled twice: the list, and a retry by hand.

use crate::quarantine::retry_quarantined_traces;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use gradus_store::QuarantinedTrace;
use serde::Serialize;
use utoipa::ToSchema;

use crate::http_error::{ApiError, run_short_query};
use crate::state::ServerState;
use crate::time_text as time;

/// Maximum number of listed traces. A defect in one instrumentation can quarantine every trace of a project.
const MAX_LISTED_TRACES: usize = 1_000;

#[derive(Serialize, ToSchema)]
pub(super) struct QuarantineList {
    /// The latest first; at most 1,000.
    items: Vec<QuarantineItem>,
}

/// A trace with its failures. Its spans stay stored.
#[derive(Serialize, ToSchema)]
struct QuarantineItem {
    trace_id: String,
    project: String,
    name: String,
    spans: i64,
    /// Failed attempts to assemble it.
    attempts: i64,
    /// When it was quarantined (RFC 3339).
    since: String,
    reason: String,
}

#[derive(Serialize, ToSchema)]
pub(super) struct RetryResult {
    /// Number of traces that are in the ready queue again.
    retried: usize,
}

/// Quarantined traces.
#[utoipa::path(get, path = "/api/v1/quarantine", tag = "traces", responses((status = 200, body = QuarantineList)))]
pub(super) async fn list_quarantined_traces(
    State(server): State<Arc<ServerState>>,
) -> Result<Json<QuarantineList>, ApiError> {
    run_short_query(&server, |server| {
        let items = server.store.quarantined_traces(MAX_LISTED_TRACES)?.into_iter().map(to_quarantine_item).collect();
        Ok(Json(QuarantineList { items }))
    })
    .await
}

/// Puts all quarantined traces back into the ready queue.
#[utoipa::path(post, path = "/api/v1/quarantine/retry", tag = "traces", responses((status = 200, body = RetryResult)))]
pub(super) async fn retry_all(State(server): State<Arc<ServerState>>) -> Result<Json<RetryResult>, ApiError> {
    Ok(Json(RetryResult { retried: retry_quarantined_traces(&server, None).await? }))
}

/// Puts one quarantined trace back into the ready queue.
#[utoipa::path(post, path = "/api/v1/quarantine/{trace_id}/retry", tag = "traces",
    params(("trace_id" = String, Path, description = "32 hexadecimal digits")),
    responses((status = 200, body = RetryResult), (status = 404, body = crate::http_error::ErrorBody)))]
pub(super) async fn retry_one(
    State(server): State<Arc<ServerState>>,
    Path(trace_id): Path<String>,
) -> Result<Json<RetryResult>, ApiError> {
    match retry_quarantined_traces(&server, Some(&trace_id)).await? {
        0 => Err(ApiError::not_found("there is no quarantined trace with this id")),
        retried => Ok(Json(RetryResult { retried })),
    }
}

fn to_quarantine_item(row: QuarantinedTrace) -> QuarantineItem {
    QuarantineItem {
        trace_id: row.trace_id.to_string(),
        project: row.project,
        name: row.name,
        spans: row.spans,
        attempts: row.attempts,
        since: time::format_rfc3339(row.since_ns),
        reason: row.reason,
    }
}
