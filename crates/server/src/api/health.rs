//! Whether the server is there, whether it can take something, and what it has counted.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use crate::http_error::blocking_sender;
use crate::state::ServerState;

#[derive(Serialize, ToSchema)]
#[schema(as = Health)]
pub(super) struct HealthStatus {
    status: &'static str,
    version: &'static str,
}

/// The server runs.
#[utoipa::path(get, path = "/healthz", tag = "operations", responses((status = 200, body = HealthStatus)))]
pub(super) async fn report_health() -> Json<HealthStatus> {
    Json(HealthStatus { status: "ok", version: env!("CARGO_PKG_VERSION") })
}

#[derive(Serialize, ToSchema)]
#[schema(as = Readiness)]
pub(super) struct ReadinessStatus {
    is_ready: bool,
    /// Why it is not.
    reason: Option<&'static str>,
}

/// How long a trial to write may take.
const TRIAL: Duration = Duration::from_secs(2);

/// The server takes spans.
#[utoipa::path(get, path = "/readyz", tag = "operations",
    responses((status = 200, body = ReadinessStatus), (status = 503, body = ReadinessStatus)))]
pub(super) async fn report_readiness(State(server): State<Arc<ServerState>>) -> Response {
    let failing = || server.store.writer_status().is_none_or(|status| status.is_failing.load(Ordering::Relaxed));
    if failing() {
        // Who is told that nothing can be written sends nothing, and then nothing would show that it can be again.
        if let Ok(tried) = server.store.try_to_write() {
            let _ = tokio::time::timeout(TRIAL, tried.wait_async()).await;
        }
    }
    // Found out at once, and not only when somebody sends something.
    let is_failing = failing() || server.store.check_files().is_err();
    let reason = if server.is_stopping.load(Ordering::Relaxed) {
        Some("the server is going down")
    } else if is_failing {
        Some("the store cannot be written to; see the log")
    } else if server.memory.is_overloaded() {
        Some("requests are refused, since all memory for them is in use")
    } else if server.connections.is_overloaded() {
        Some("connections are refused, since too many are open")
    } else {
        None
    };
    let status = if reason.is_some() { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
    (status, Json(ReadinessStatus { is_ready: reason.is_none(), reason })).into_response()
}

/// What was counted, for Prometheus.
#[utoipa::path(get, path = "/metrics", tag = "operations",
    responses((status = 200, body = String, content_type = "text/plain")))]
pub(super) async fn export_server_metrics(State(server): State<Arc<ServerState>>) -> Response {
    // Answered also when all queries are busy, and by one thread however often it is asked for.
    let _turn = server.metrics_turn.acquire().await;
    let text = blocking_sender(&server, |server| Ok(super::prometheus::render_prometheus_metrics(server))).await;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    text.map(|text| ([(CONTENT_TYPE, kind)], text)).into_response()
}

pub(super) async fn serve_openapi(description: String) -> Response {
    ([(CONTENT_TYPE, "application/json")], description).into_response()
}
