//! Liveness, readiness and metrics of the server.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use crate::http_error::run_outside_pool;
use crate::state::ServerState;

/// Liveness says nothing about the store: a restart does not repair a full disk.
#[derive(Serialize, ToSchema)]
#[schema(as = Health)]
pub(super) struct HealthStatus {
    status: &'static str,
    version: &'static str,
}

/// The server is running.
#[utoipa::path(get, path = "/healthz", tag = "operations", responses((status = 200, body = HealthStatus)))]
pub(super) async fn report_health() -> Json<HealthStatus> {
    Json(HealthStatus { status: "ok", version: env!("CARGO_PKG_VERSION") })
}

/// Whether spans are accepted.
#[derive(Serialize, ToSchema)]
#[schema(as = Readiness)]
pub(super) struct ReadinessStatus {
    is_ready: bool,
    /// Why they are not; null if they are.
    reason: Option<&'static str>,
}

/// The server accepts spans. Answered from what is known: a probe costs the store nothing, however often it is made.
#[utoipa::path(get, path = "/readyz", tag = "operations",
    responses((status = 200, body = ReadinessStatus), (status = 503, body = ReadinessStatus)))]
pub(super) async fn report_readiness(State(server): State<Arc<ServerState>>) -> Response {
    let reason = if server.is_stopping.load(Ordering::Relaxed) {
        Some("the server is going down")
    } else if !server.store.is_writable() {
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

/// Metrics in the OpenMetrics text format, for Prometheus.
#[utoipa::path(get, path = "/metrics", tag = "operations",
    responses((status = 200, body = String, content_type = "text/plain")))]
pub(super) async fn export_server_metrics(State(server): State<Arc<ServerState>>) -> Response {
    // Not admitted as a query, so that the metrics are available while all queries are busy. One at a time, so that
    // frequent scrapes cannot occupy the threads.
    let _turn = server.metrics_turn.acquire().await;
    let text = run_outside_pool(&server, |server| Ok(super::prometheus::render_prometheus_metrics(server))).await;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    text.map(|text| ([(CONTENT_TYPE, kind)], text)).into_response()
}

/// The description is rendered once when the routes are built.
pub(super) async fn serve_openapi(description: String) -> Response {
    ([(CONTENT_TYPE, "application/json")], description).into_response()
}
