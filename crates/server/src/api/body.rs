//! JSON bodies of API requests: bounded in size and time, and within the memory budget that all requests share.

use std::sync::Arc;

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use serde::de::DeserializeOwned;

use crate::http_error::ApiError;
use crate::memory::MemoryLease;
use crate::receive;
use crate::state::ServerState;

/// Maximum size of a body: enough for 1,000 annotations with explanations.
const MAX_API_BODY_BYTES: usize = 2 << 20;

/// Reads and parses a body. The memory is reserved as long as the returned lease lives. Other content types than
/// `application/json` get 415: a form of another site could not send this one without a preflight request.
pub(super) async fn read_json_body<T: DeserializeOwned + Send + 'static>(
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
    receive::read_small_json(server, headers, body, MAX_API_BODY_BYTES).await
}
