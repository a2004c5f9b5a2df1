//! Whether the server is there, whether it can take something, and what it has counted.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{Html, IntoResponse, Redirect, Response};
use serde::Serialize;
use utoipa::ToSchema;

use super::error::{ApiError, blocking};
use crate::serve::meters;
use crate::serve::state::Server;

#[derive(Serialize, ToSchema)]
pub(super) struct Health {
    status: &'static str,
    version: &'static str,
}

/// The server runs.
#[utoipa::path(get, path = "/healthz", tag = "operations", responses((status = 200, body = Health)))]
pub(super) async fn healthz() -> Json<Health> {
    Json(Health { status: "ok", version: env!("CARGO_PKG_VERSION") })
}

#[derive(Serialize, ToSchema)]
pub(super) struct Readiness {
    is_ready: bool,
    /// Why it is not.
    reason: Option<&'static str>,
}

/// How long a trial to write may take.
const TRIAL: Duration = Duration::from_secs(2);

/// The server takes spans.
#[utoipa::path(get, path = "/readyz", tag = "operations",
    responses((status = 200, body = Readiness), (status = 503, body = Readiness)))]
pub(super) async fn readyz(State(server): State<Arc<Server>>) -> Response {
    let failing = || server.store.status().is_none_or(|status| status.is_failing.load(Ordering::Relaxed));
    if failing() {
        // Who is told that nothing can be written sends nothing, and then nothing would show that it can be again.
        if let Ok(tried) = server.store.try_to_write() {
            let _ = tokio::time::timeout(TRIAL, tried.done()).await;
        }
    }
    let is_failing = failing();
    let reason = if server.is_stopping.load(Ordering::Relaxed) {
        Some("the server is going down")
    } else if is_failing {
        Some("the store cannot be written to; see the log")
    } else {
        None
    };
    let status = if reason.is_some() { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
    (status, Json(Readiness { is_ready: reason.is_none(), reason })).into_response()
}

/// What was counted, for Prometheus.
#[utoipa::path(get, path = "/metrics", tag = "operations",
    responses((status = 200, body = String, content_type = "text/plain")))]
pub(super) async fn metrics(State(server): State<Arc<Server>>) -> Response {
    let text = blocking(&server, |server| Ok(meters::exposition(server))).await;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    text.map(|text| ([(CONTENT_TYPE, kind)], text)).into_response()
}

pub(super) async fn openapi(description: String) -> Response {
    ([(CONTENT_TYPE, "application/json")], description).into_response()
}

/// A first page, until there is a better one.
pub(super) async fn index() -> Html<&'static str> {
    Html(concat!(
        "<!doctype html><html lang=en><meta charset=utf-8><title>Gradus</title><h1>Gradus</h1>",
        "<p>Send OTLP to <code>/v1/traces</code>, or by gRPC. Read with the API, which ",
        "<a href=openapi.json>openapi.json</a> describes: <a href=api/v1/projects>projects</a>, ",
        "<a href=api/v1/traces>traces</a>, <a href=api/v1/metrics>metrics</a>.</p></html>"
    ))
}

/// Where links in alerts lead: to what there is of a trace.
pub(super) async fn trace(Path(id): Path<String>) -> Response {
    // Only what looks like an id gets into an address.
    if id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        Redirect::to(&format!("/api/v1/traces/{id}")).into_response()
    } else {
        ApiError::missing("there is no trace with this id").into_response()
    }
}
