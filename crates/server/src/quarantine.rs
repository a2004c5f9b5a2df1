//! Retries of quarantined traces, for the API and the page `/server`.

use std::sync::Arc;

use gradus_core::span::TraceId;

use crate::http_error::ApiError;
use crate::state::ServerState;

/// Releases one quarantined trace for another attempt, or all of them without an id. Returns how many were released.
/// A trace that fails again is quarantined again.
pub(crate) async fn retry_quarantined_traces(
    server: &Arc<ServerState>,
    trace_id: Option<&str>,
) -> Result<usize, ApiError> {
    let trace_id = trace_id.map(|id| {
        let number = u128::from_str_radix(id, 16).ok().filter(|_| id.len() == 32);
        number.map(TraceId).ok_or_else(|| ApiError::bad_request("a trace id has 32 hexadecimal digits"))
    });
    let retried = server.store.retry_quarantined(trace_id.transpose()?)?.wait_async().await?;
    tracing::info!(retried, "retrying quarantined traces");
    Ok(retried)
}
