//! What goes wrong with a request, as JSON; and parameters that are read with an error a caller understands.

use std::sync::Arc;

use axum::Json;
use axum::extract::{FromRequestParts, Query};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use gradus_store::StoreError;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;
use utoipa::ToSchema;

use crate::serve::auth::is_grpc;
use crate::serve::receive::grpc_error;
use crate::serve::state::Server;
use crate::serve::{page, phoenix};

#[derive(Debug)]
pub(in crate::serve) struct ApiError {
    status: StatusCode,
    message: String,
}

/// What went wrong, and what to do about it.
#[derive(Serialize, ToSchema)]
pub(super) struct ErrorBody {
    error: String,
}

impl ApiError {
    pub(in crate::serve) fn new(status: StatusCode, message: impl Into<String>) -> ApiError {
        ApiError { status, message: message.into() }
    }

    pub(in crate::serve) fn status(&self) -> StatusCode {
        self.status
    }

    pub(in crate::serve) fn message(&self) -> &str {
        &self.message
    }

    pub(in crate::serve) fn bad(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::BAD_REQUEST, message)
    }

    pub(in crate::serve) fn missing(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::NOT_FOUND, message)
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> ApiError {
        let status = match &error {
            StoreError::Busy | StoreError::DiskFull | StoreError::Closed => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        tracing::error!(%error, "the store failed");
        ApiError::new(status, error.to_string())
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        (self.status, Json(ErrorBody { error: self.message })).into_response()
    }
}

/// Reads from the store without keeping others waiting.
pub(in crate::serve) async fn blocking<T: Send + 'static>(
    server: &Arc<Server>,
    read: impl FnOnce(&Server) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let server = Arc::clone(server);
    let done = tokio::task::spawn_blocking(move || read(&server)).await;
    done.unwrap_or_else(|_| {
        Err(ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "the request could not be answered"))
    })
}

/// The same for what takes much: so many at once. A turn is over when the work is, and not when whoever asked goes away.
pub(in crate::serve) async fn in_turn<T: Send + 'static>(
    server: &Arc<Server>,
    turns: &Arc<Semaphore>,
    read: impl FnOnce(&Server) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let turn = Arc::clone(turns).acquire_owned().await;
    blocking(server, move |server| {
        let _turn = turn;
        read(server)
    })
    .await
}

/// Query parameters; those that are not known are an error, not something to pass over.
pub(in crate::serve) struct Params<T>(pub(in crate::serve) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Params<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Params<T>, ApiError> {
        let query = Query::<T>::try_from_uri(&parts.uri);
        query.map(|Query(value)| Params(value)).map_err(|rejection| {
            let text = rejection.body_text();
            let reason = text.rsplit_once("query string: ").map_or(text.as_str(), |(_, reason)| reason);
            ApiError::bad(format!("the parameters cannot be read: {reason}"))
        })
    }
}

pub(super) async fn not_found(uri: Uri, headers: HeaderMap) -> Response {
    if is_grpc(&headers) {
        return grpc_error(12, "there is no such service here; traces and logs can be exported", None);
    }
    if let Some(answer) = phoenix::not_here(uri.path()) {
        return answer;
    }
    if page::is_for_people(&uri, &headers) {
        return page::missing(&headers);
    }
    let advice = match uri.path() {
        "/v1/metrics" => "metrics are not kept here; /v1/traces and /v1/logs are",
        _ => "see /openapi.json for what there is",
    };
    ApiError::missing(format!("there is nothing at this address; {advice}")).into_response()
}

pub(super) async fn wrong_method(method: Method) -> ApiError {
    ApiError::new(
        StatusCode::METHOD_NOT_ALLOWED,
        format!("{method} is not for this address; see /openapi.json"),
    )
}
