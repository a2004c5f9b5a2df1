//! Bodies of requests to the API: bounded in size, in time and, all together, in memory, as those of spans are.

use axum::body::Body;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use serde::de::DeserializeOwned;

use super::error::ApiError;
use crate::serve::admission::Room;
use crate::serve::receive;
use crate::serve::state::Server;

const MOST_BYTES: usize = 2 << 20;

/// Reads a body as JSON; the room it takes is kept as long as what is returned with it.
pub(super) async fn json_body<T: DeserializeOwned>(
    server: &Server,
    headers: &HeaderMap,
    body: Body,
) -> Result<(T, Room), ApiError> {
    let text = |name| headers.get(name).and_then(|value: &axum::http::HeaderValue| value.to_str().ok());
    let kind = text(CONTENT_TYPE).unwrap_or_default().split(';').next().unwrap_or_default().trim();
    if !kind.eq_ignore_ascii_case("application/json") {
        let message = format!("content type {kind:?} is not known here; send application/json");
        return Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
    }
    let length = text(CONTENT_LENGTH).and_then(|length| length.parse().ok());
    let (bytes, room) = receive::read_small_body(server, body, length, MOST_BYTES).await?;
    let value = serde_json::from_slice(&bytes)
        .map_err(|error| ApiError::bad(format!("the body cannot be read: {error}")))?;
    Ok((value, room))
}
