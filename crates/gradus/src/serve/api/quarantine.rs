//! Traces that could not be assembled twice: which they are, and another attempt by hand.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use gradus_core::span::TraceId;
use gradus_store::QuarantinedTrace;
use serde::Serialize;
use utoipa::ToSchema;

use super::error::{ApiError, blocking};
use super::time;
use crate::serve::state::Server;

const MAX_LISTED: usize = 1_000;

#[derive(Serialize, ToSchema)]
pub(super) struct QuarantineList {
    /// The latest first; at most 1,000.
    items: Vec<QuarantineItem>,
}

#[derive(Serialize, ToSchema)]
struct QuarantineItem {
    trace_id: String,
    project: String,
    name: String,
    spans: i64,
    attempts: i64,
    since: String,
    reason: String,
}

#[derive(Serialize, ToSchema)]
pub(super) struct RetryResult {
    /// Traces that are in the ready queue again.
    retried: usize,
}

/// Quarantined traces.
#[utoipa::path(get, path = "/api/v1/quarantine", tag = "traces", responses((status = 200, body = QuarantineList)))]
pub(super) async fn list(State(server): State<Arc<Server>>) -> Result<Json<QuarantineList>, ApiError> {
    blocking(&server, |server| {
        let items = server.store.quarantined_traces(MAX_LISTED)?.into_iter().map(item).collect();
        Ok(Json(QuarantineList { items }))
    })
    .await
}

/// Puts all quarantined traces back into the ready queue.
#[utoipa::path(post, path = "/api/v1/quarantine/retry", tag = "traces", responses((status = 200, body = RetryResult)))]
pub(super) async fn retry_all(State(server): State<Arc<Server>>) -> Result<Json<RetryResult>, ApiError> {
    Ok(Json(RetryResult { retried: retry(&server, None).await? }))
}

/// Puts one quarantined trace back into the ready queue.
#[utoipa::path(post, path = "/api/v1/quarantine/{trace_id}/retry", tag = "traces",
    params(("trace_id" = String, Path, description = "32 hexadecimal digits")),
    responses((status = 200, body = RetryResult), (status = 404, body = super::error::ErrorBody)))]
pub(super) async fn retry_one(
    State(server): State<Arc<Server>>,
    Path(trace_id): Path<String>,
) -> Result<Json<RetryResult>, ApiError> {
    match retry(&server, Some(&trace_id)).await? {
        0 => Err(ApiError::missing("there is no quarantined trace with this id")),
        retried => Ok(Json(RetryResult { retried })),
    }
}

/// The same for one trace or for all, for the page.
pub(in crate::serve) async fn retry(server: &Arc<Server>, trace_id: Option<&str>) -> Result<usize, ApiError> {
    let trace_id = trace_id.map(|id| {
        let number = u128::from_str_radix(id, 16).ok().filter(|_| id.len() == 32);
        number.map(TraceId).ok_or_else(|| ApiError::bad("a trace id has 32 hexadecimal digits"))
    });
    let retried = server.store.retry_quarantined(trace_id.transpose()?)?.done().await?;
    tracing::info!(retried, "quarantined traces are tried again");
    Ok(retried)
}

fn item(row: QuarantinedTrace) -> QuarantineItem {
    QuarantineItem {
        trace_id: row.trace_id.to_string(),
        project: row.project,
        name: row.name,
        spans: row.spans,
        attempts: row.attempts,
        since: time::show(row.since_ns),
        reason: row.reason,
    }
}
