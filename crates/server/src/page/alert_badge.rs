//! The badge in the navigation of every page while an alert fires.
//!
//! Pages build their frame from the headers of the request, so this layer passes the number as a header. A value from
//! the client is replaced.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;

use crate::state::ServerState;

const FIRING_HEADER: &str = "x-gradus-firing";

/// Adds the number of firing alerts to a request.
pub(super) async fn add_firing_count(
    State(server): State<Arc<ServerState>>,
    mut request: Request,
    next: Next,
) -> Response {
    let count = HeaderValue::from(server.alerts.firing_count());
    request.headers_mut().insert(FIRING_HEADER, count);
    next.run(request).await
}

/// Reads the number; 0 for requests that did not pass the layer, as those for error pages.
pub(super) fn read_firing_count(headers: &HeaderMap) -> usize {
    headers.get(FIRING_HEADER).and_then(|count| count.to_str().ok()?.parse().ok()).unwrap_or(0)
}
