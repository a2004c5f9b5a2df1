//! Bodies of requests to the API: bounded in size, in time and, all together, in memory, as those of spans are.

use std::sync::Arc;

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use serde::de::DeserializeOwned;

use crate::http_error::ApiError;
use crate::memory::MemoryLease;
use crate::receive;
use crate::state::ServerState;

const MAX_BYTES: usize = 2 << 20;

/// Reads a body as JSON; the memory that it takes is held as long as the lease.
pub(super) async fn json_body<T: DeserializeOwned + Send + 'static>(
    server: &Arc<ServerState>,
    headers: &HeaderMap,
    body: Body,
) -> Result<(T, MemoryLease), ApiError> {
    let kind = headers.get(CONTENT_TYPE).and_then(|value: &HeaderValue| value.to_str().ok());
    let kind = kind.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    if !kind.eq_ignore_ascii_case("application/json") {
        let message = format!("content type {kind:?} is not known here; send application/json");
        return Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
    }
    receive::read_small_json(server, headers, body, MAX_BYTES).await
}
