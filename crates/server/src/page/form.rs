//! Bodies of HTML forms.

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use serde::de::DeserializeOwned;

use super::render::PageError;
use crate::receive;
use crate::state::ServerState;

/// Maximum size of a form in bytes. The largest field is the changed text of a rubric.
const MAX_FORM_BYTES: usize = 64 << 10;

/// Reads a form within the memory budget of requests. Other content types get 415.
pub(super) async fn read_form<T: DeserializeOwned>(
    server: &ServerState,
    headers: &HeaderMap,
    body: Body,
) -> Result<T, PageError> {
    let text = |name| headers.get(name).and_then(|value: &axum::http::HeaderValue| value.to_str().ok());
    if !text(CONTENT_TYPE).is_some_and(|kind| kind.starts_with("application/x-www-form-urlencoded")) {
        return Err(PageError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "This address accepts only HTML form data."));
    }
    let (bytes, _lease) = receive::read_small_body(server, headers, body, MAX_FORM_BYTES).await?;
    serde_urlencoded::from_bytes(&bytes)
        .map_err(|error| PageError::new(StatusCode::BAD_REQUEST, format!("The form cannot be read: {error}.")))
}
