//! Errors of Phoenix's routes: plain text, which clients print, or JSON where clients parse it.

use std::sync::Arc;

use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::response::{IntoResponse, Response};
use gradus_store::StoreError;

use crate::logging::report_store_failure;
use crate::queries::{QueryKind, QueryRefusal};
use crate::receive::{JsonError, ReceiveRefusal};
use crate::state::ServerState;

/// An error response, complete with its body.
#[derive(Debug)]
pub(super) struct PhoenixApiError {
    status: StatusCode,
    body: String,
    /// The content type of `body`.
    content_type: &'static str,
    /// Set where a retry may succeed.
    retry_after_s: Option<u32>,
}

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

impl PhoenixApiError {
    pub(super) fn new(status: StatusCode, message: impl Into<String>) -> PhoenixApiError {
        PhoenixApiError { status, body: message.into(), content_type: TEXT, retry_after_s: None }
    }

    pub(super) fn bad_request(message: impl Into<String>) -> PhoenixApiError {
        PhoenixApiError::new(StatusCode::BAD_REQUEST, message)
    }

    pub(super) fn not_found(message: impl Into<String>) -> PhoenixApiError {
        PhoenixApiError::new(StatusCode::NOT_FOUND, message)
    }

    /// Builds a 422 for parameters or a query that cannot be understood.
    pub(super) fn unprocessable(message: impl Into<String>) -> PhoenixApiError {
        PhoenixApiError::new(StatusCode::UNPROCESSABLE_ENTITY, message)
    }

    /// Builds a 422 for a body that cannot be understood, in FastAPI's form: `location` is the path to the wrong field.
    pub(super) fn invalid_body(location: &[serde_json::Value], message: &str) -> PhoenixApiError {
        let mut at = vec![serde_json::Value::from("body")];
        at.extend_from_slice(location);
        let detail = serde_json::json!({"detail": [{"type": "value_error", "loc": at, "msg": message}]});
        PhoenixApiError { content_type: JSON, ..PhoenixApiError::unprocessable(detail.to_string()) }
    }

    /// Builds an error with a JSON body, for responses whose structure clients parse.
    pub(super) fn with_json_body(status: StatusCode, body: &serde_json::Value) -> PhoenixApiError {
        PhoenixApiError { content_type: JSON, ..PhoenixApiError::new(status, body.to_string()) }
    }
}

impl From<StoreError> for PhoenixApiError {
    fn from(error: StoreError) -> PhoenixApiError {
        // A stopped query is not a failure of the store and is not logged as one.
        if let StoreError::Stopped(stop) = error {
            return QueryRefusal::Stopped(stop).into();
        }
        report_store_failure(&error);
        match &error {
            StoreError::Busy | StoreError::DiskFull | StoreError::Closed | StoreError::Gone { .. } => PhoenixApiError {
                retry_after_s: Some(1),
                ..PhoenixApiError::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string())
            },
            _ => PhoenixApiError::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        }
    }
}

impl From<QueryRefusal> for PhoenixApiError {
    fn from(refusal: QueryRefusal) -> PhoenixApiError {
        let status = refusal.status();
        let retry_after_s = (status == StatusCode::SERVICE_UNAVAILABLE).then_some(1);
        PhoenixApiError { retry_after_s, ..PhoenixApiError::new(status, refusal.to_string()) }
    }
}

impl From<ReceiveRefusal> for PhoenixApiError {
    fn from(refusal: ReceiveRefusal) -> PhoenixApiError {
        let retry_after_s = refusal.retry_after_s();
        PhoenixApiError { retry_after_s, ..PhoenixApiError::new(refusal.status(), refusal.to_string()) }
    }
}

impl From<JsonError> for PhoenixApiError {
    fn from(error: JsonError) -> PhoenixApiError {
        match error {
            JsonError::Refused(refusal) => refusal.into(),
            JsonError::Invalid(error) => {
                PhoenixApiError::invalid_body(&[], &format!("the body cannot be read: {error}"))
            }
        }
    }
}

impl IntoResponse for PhoenixApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, [(CONTENT_TYPE, self.content_type)], self.body).into_response();
        if let Some(seconds) = self.retry_after_s {
            response.headers_mut().insert(RETRY_AFTER, seconds.into());
        }
        response
    }
}

/// Runs a short query in the query pool, within its time budget; callers take turns.
pub(super) async fn run_short_query<T: Send + 'static>(
    server: &Arc<ServerState>,
    read: impl FnOnce(&ServerState) -> Result<T, PhoenixApiError> + Send + 'static,
) -> Result<T, PhoenixApiError> {
    run_query(server, QueryKind::Rows, read).await
}

/// As [`run_short_query`], for queries that load whole traces. Fewer of them run at once.
pub(super) async fn run_large_query<T: Send + 'static>(
    server: &Arc<ServerState>,
    read: impl FnOnce(&ServerState) -> Result<T, PhoenixApiError> + Send + 'static,
) -> Result<T, PhoenixApiError> {
    run_query(server, QueryKind::Large, read).await
}

/// The outer error is a refusal by the pool, the inner one that of the query.
async fn run_query<T: Send + 'static>(
    server: &Arc<ServerState>,
    kind: QueryKind,
    read: impl FnOnce(&ServerState) -> Result<T, PhoenixApiError> + Send + 'static,
) -> Result<T, PhoenixApiError> {
    let reading = Arc::clone(server);
    server.queries.run(kind, move || read(&reading)).await?
}

/// Runs a lookup outside the query pool, for requests of senders, which must not wait for queries.
pub(super) async fn run_outside_pool<T: Send + 'static>(
    server: &Arc<ServerState>,
    read: impl FnOnce(&ServerState) -> Result<T, PhoenixApiError> + Send + 'static,
) -> Result<T, PhoenixApiError> {
    let server = Arc::clone(server);
    let done = tokio::task::spawn_blocking(move || read(&server)).await;
    done.unwrap_or_else(|_| {
        Err(PhoenixApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "the request could not be answered"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logging::tests::count_lines;

    #[test]
    fn a_store_that_fails_is_not_logged_for_each_request() {
        let lines = count_lines(|| (0..100).for_each(|_| drop(PhoenixApiError::from(StoreError::DiskFull))));
        assert!(lines <= 1, "{lines}");
    }
}
