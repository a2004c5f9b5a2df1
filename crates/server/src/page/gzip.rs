//! Gzip compression of pages and assets. HTML shrinks to about a fifth.

use std::io::Write;
use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, VARY};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::http_error::ApiError;
use crate::queries::QueryKind;
use crate::state::ServerState;

/// Minimum size of a compressed body. Smaller ones fit into one packet anyway.
const MIN_COMPRESSED_BYTES: usize = 1_000;

/// Middleware that compresses text responses if the client accepts gzip. Downloads are not touched: they are streamed,
/// and this needs the whole body.
pub(super) async fn gzip_response(State(server): State<Arc<ServerState>>, request: Request, next: Next) -> Response {
    let can_unpack = accepts_gzip(request.headers());
    let mut response = next.run(request).await;
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let is_text =
        ["text/html", "text/css", "text/javascript", "text/plain"].iter().any(|known| kind.starts_with(known));
    if !is_text {
        return response;
    }
    // Set on uncompressed responses as well, since a cache could serve them to other clients.
    response.headers_mut().append(VARY, HeaderValue::from_static("accept-encoding"));
    if !can_unpack || response.headers().contains_key(CONTENT_ENCODING) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    // Pages are rendered as a whole, so this copies no stream and needs no limit.
    let Ok(text) = to_bytes(body, usize::MAX).await else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    if text.len() < MIN_COMPRESSED_BYTES {
        return Response::from_parts(parts, Body::from(text));
    }
    // Compression takes about as long as rendering, so it runs on the query pool and not on the async threads.
    let done = server.queries.run(QueryKind::Rows, move || compress_gzip(&text)).await;
    let packed = match done {
        Ok(Ok(packed)) => packed,
        Ok(Err(_)) => return StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        Err(refusal) => return ApiError::from(refusal).into_response(),
    };
    parts.headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    // It states the length of the uncompressed body.
    parts.headers.remove(CONTENT_LENGTH);
    Response::from_parts(parts, Body::from(packed))
}

/// Compresses at a fast level: the default level is much slower and saves little on HTML.
pub(super) fn compress_gzip(text: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(text.len() / 4), Compression::fast());
    encoder.write_all(text)?;
    encoder.finish()
}

/// Parses `Accept-Encoding` (RFC 9110 §12.5.3). A weight of 0 excludes gzip. `*` is not taken for gzip.
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let given = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    let mut all = given.flat_map(|value| value.split(',')).map(|one| {
        let (name, rest) = one.split_once(';').unwrap_or((one, ""));
        let weight = rest.trim().strip_prefix("q=").and_then(|weight| weight.trim().parse::<f32>().ok());
        (name.trim().to_ascii_lowercase(), weight.unwrap_or(1.0))
    });
    all.any(|(name, weight)| name == "gzip" && weight > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_can_unpack_gets_it_packed() {
        let takes = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT_ENCODING, value.parse().unwrap());
            accepts_gzip(&headers)
        };
        for value in ["gzip", "br, GZIP;q=0.8", "deflate, gzip"] {
            assert!(takes(value), "{value}");
        }
        for value in ["", "br", "gzip;q=0", "gzipped", "identity"] {
            assert!(!takes(value), "{value}");
        }
        assert!(!accepts_gzip(&HeaderMap::new()));
    }
}
