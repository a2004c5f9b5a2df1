//! Errors of the HTTP API as JSON, and query parameters with readable errors.

use std::sync::Arc;

use axum::Json;
use axum::extract::{FromRequestParts, Query};
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use gradus_store::StoreError;
use serde::Serialize;
use serde::de::DeserializeOwned;
use utoipa::ToSchema;

use crate::client_address::ClientAddress;
use crate::logging::report_store_failure;
use crate::queries::{QueryKind, QueryRefusal};
use crate::spilled_body::spill_store_error;
use crate::state::ServerState;

/// An error response. The message is for the caller: it must not repeat recorded text or secrets.
#[derive(Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    message: String,
}

/// What went wrong, and what to do about it.
#[derive(Serialize, ToSchema)]
pub(super) struct ErrorBody {
    error: String,
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> ApiError {
        ApiError { status, message: message.into() }
    }

    /// For pages, which show the error in HTML with the same status.
    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::BAD_REQUEST, message)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::NOT_FOUND, message)
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> ApiError {
        let status = match &error {
            StoreError::Busy
            | StoreError::DiskFull
            | StoreError::Closed
            | StoreError::Gone { .. }
            | StoreError::Unreachable { .. }
            | StoreError::NotReachable { .. }
            | StoreError::CopyRunning { .. }
            | StoreError::ReadOnlyServer => StatusCode::SERVICE_UNAVAILABLE,
            StoreError::BadSearch { .. } => return ApiError::bad_request(error.to_string()),
            StoreError::Stopped(stop) => return QueryRefusal::Stopped(*stop).into(),
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        report_store_failure(&error);
        ApiError::new(status, error.to_string())
    }
}

impl From<QueryRefusal> for ApiError {
    fn from(refusal: QueryRefusal) -> ApiError {
        ApiError::new(refusal.status(), refusal.to_string())
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(ErrorBody { error: self.message })).into_response();
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

/// Runs a short query in the query pool, within its time budget; callers take turns.
pub(crate) async fn run_short_query<T: Send + 'static>(
    server: &Arc<ServerState>,
    read: impl FnOnce(&ServerState) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    run_query(server, QueryKind::Rows, read).await
}

/// As [`run_short_query`] for queries that load whole traces or runs. Fewer of them run at once, since each may hold
/// much memory.
pub(crate) async fn run_large_query<T: Send + 'static>(
    server: &Arc<ServerState>,
    read: impl FnOnce(&ServerState) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    run_query(server, QueryKind::Large, read).await
}

/// As [`run_short_query`], but also renders the response on the query thread, so that no async thread is blocked by
/// serialization.
pub(crate) async fn respond_to_query<T: IntoResponse>(
    server: &Arc<ServerState>,
    kind: QueryKind,
    read: impl FnOnce(&ServerState) -> Result<T, ApiError> + Send + 'static,
) -> Result<Response, ApiError> {
    run_query(server, kind, move |server| Ok(read(server)?.into_response())).await
}

/// As [`respond_to_query`] for JSON that may be large: it is written to a
/// [`SpillWriter`](crate::spilled_body::SpillWriter), so that it is never in memory as a whole.
pub(crate) async fn respond_json<T: Serialize>(
    server: &Arc<ServerState>,
    kind: QueryKind,
    read: impl FnOnce(&ServerState) -> Result<T, ApiError> + Send + 'static,
) -> Result<Response, ApiError> {
    let client = ClientAddress::current();
    run_query(server, kind, move |server| {
        let value = read(server)?;
        let mut out = server.spill_writer(client);
        serde_json::to_writer(&mut out, &value).map_err(|error| spill_store_error(&error.into()))?;
        let body = out.into_body().map_err(|error| spill_store_error(&error))?;
        Ok(([(CONTENT_TYPE, "application/json")], body).into_response())
    })
    .await
}

/// The outer error is a refusal by the pool, the inner one that of the query.
async fn run_query<T: Send + 'static>(
    server: &Arc<ServerState>,
    kind: QueryKind,
    read: impl FnOnce(&ServerState) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let reading = Arc::clone(server);
    server.queries.run(kind, move || read(&reading)).await?
}

/// Runs blocking work outside the query pool, for requests that must not wait for queries: senders, changes of
/// settings, metrics.
pub(crate) async fn run_outside_pool<T: Send + 'static>(
    server: &Arc<ServerState>,
    read: impl FnOnce(&ServerState) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let server = Arc::clone(server);
    let done = tokio::task::spawn_blocking(move || read(&server)).await;
    done.unwrap_or_else(|_| Err(ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "the request could not be answered")))
}

/// Query parameters of a request. An unknown parameter is an error, so that a misspelt filter does not return
/// everything.
pub(crate) struct ApiQuery<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for ApiQuery<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<ApiQuery<T>, ApiError> {
        let query = Query::<T>::try_from_uri(&parts.uri);
        query.map(|Query(value)| ApiQuery(value)).map_err(|rejection| {
            let text = rejection.body_text();
            // axum prefixes the reason with its own words, which say nothing to a caller.
            let reason = text.rsplit_once("query string: ").map_or(text.as_str(), |(_, reason)| reason);
            ApiError::bad_request(format!("the parameters cannot be read: {reason}"))
        })
    }
}
