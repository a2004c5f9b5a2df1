//! OTLP over HTTP.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use gradus_otlp::{Rejected, Signal, export_response, export_response_json, status, status_json};
use gradus_store::StoreError;

use super::{Refusal, Request, accept, read_body};
use crate::serve::state::Server;

pub(in crate::serve) async fn traces(server: State<Arc<Server>>, headers: HeaderMap, body: Body) -> Response {
    export(&server, Signal::Span, &headers, body).await
}

pub(in crate::serve) async fn logs(server: State<Arc<Server>>, headers: HeaderMap, body: Body) -> Response {
    export(&server, Signal::Log, &headers, body).await
}

const PROTOBUF: &str = "application/x-protobuf";
const JSON: &str = "application/json";

async fn export(server: &Arc<Server>, signal: Signal, headers: &HeaderMap, body: Body) -> Response {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let kind = text(CONTENT_TYPE).unwrap_or_default().split(';').next().unwrap_or_default().trim();
    let is_json = kind.eq_ignore_ascii_case(JSON);
    let outcome = if is_json || kind.eq_ignore_ascii_case(PROTOBUF) {
        take(server, signal, is_json, headers, body).await
    } else {
        Err(Refusal::Unsupported(format!(
            "content type {kind:?} is not known here; send {PROTOBUF} or {JSON}"
        )))
    };
    let response = match &outcome {
        Ok(rejected) => success(rejected, signal, is_json),
        Err(refusal) => refused(refusal, is_json),
    };
    server.meters.answered(signal, "http", response.status().as_u16());
    response
}

async fn take(
    server: &Arc<Server>,
    signal: Signal,
    is_json: bool,
    headers: &HeaderMap,
    body: Body,
) -> Result<Rejected, Refusal> {
    let (bytes, room) = read_body(server, headers, body).await?;
    accept(server, Request { signal, is_json, bytes, project: project(headers), room }).await
}

/// The project that a sender's header names. Phoenix's clients use this name.
pub(super) fn project(headers: &HeaderMap) -> Option<Arc<str>> {
    let name = headers.get("x-project-name")?.to_str().ok()?.trim();
    (!name.is_empty()).then(|| name.into())
}

fn success(rejected: &Rejected, signal: Signal, is_json: bool) -> Response {
    if is_json {
        typed(StatusCode::OK, JSON, export_response_json(rejected, signal))
    } else {
        typed(StatusCode::OK, PROTOBUF, export_response(rejected))
    }
}

fn refused(refusal: &Refusal, is_json: bool) -> Response {
    let (http, code) = match refusal {
        Refusal::Bad(_) => (StatusCode::BAD_REQUEST, 3),
        Refusal::TooLarge { .. } => (StatusCode::PAYLOAD_TOO_LARGE, 8),
        Refusal::Unsupported(_) => (StatusCode::UNSUPPORTED_MEDIA_TYPE, 3),
        Refusal::Busy | Refusal::Store(StoreError::Busy) => (StatusCode::SERVICE_UNAVAILABLE, 14),
        Refusal::TooSlow => (StatusCode::REQUEST_TIMEOUT, 4),
        Refusal::Store(_) => (StatusCode::SERVICE_UNAVAILABLE, 14),
    };
    let message = refusal.to_string();
    let mut response = if is_json {
        typed(http, JSON, status_json(code, &message))
    } else {
        typed(http, PROTOBUF, status(code, &message))
    };
    if let Some(seconds) = refusal.retry_after_s() {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

fn typed(status: StatusCode, kind: &'static str, body: impl Into<Body>) -> Response {
    (status, [(CONTENT_TYPE, HeaderValue::from_static(kind))], body.into()).into_response()
}
