//! OTLP over HTTP, as protobuf or JSON. Responses have the encoding of the request, as the specification demands.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use gradus_otlp::{
    RejectedRecords, TelemetrySignal, encode_rpc_status, export_response, export_response_json, status_json,
};

use super::body::{BodyCompression, read_request_body};
use super::{OtlpRequestHead, ReceiveRefusal, accept_otlp_request};
use crate::state::ServerState;

/// `POST /v1/traces`.
pub(crate) async fn export_traces_http(server: State<Arc<ServerState>>, headers: HeaderMap, body: Body) -> Response {
    handle_http_export(&server, TelemetrySignal::Span, &headers, body).await
}

/// `POST /v1/logs`.
pub(crate) async fn export_logs_http(server: State<Arc<ServerState>>, headers: HeaderMap, body: Body) -> Response {
    handle_http_export(&server, TelemetrySignal::Log, &headers, body).await
}

const PROTOBUF: &str = "application/x-protobuf";
const JSON: &str = "application/json";

/// Answers an export. Errors are logged, because exporters often do not show them.
async fn handle_http_export(
    server: &Arc<ServerState>,
    signal: TelemetrySignal,
    headers: &HeaderMap,
    body: Body,
) -> Response {
    let (kind, is_json) = (read_media_type(headers), is_json(headers));
    let outcome = if is_json || kind.eq_ignore_ascii_case(PROTOBUF) {
        receive_http_export(server, signal, is_json, headers, body).await
    } else {
        Err(ReceiveRefusal::Unsupported(format!("content type {kind:?} is not known here; send {PROTOBUF} or {JSON}")))
    };
    let response = match &outcome {
        Ok(rejected) => build_http_success(rejected, signal, is_json),
        Err(refusal) => {
            let response = build_http_refusal(refusal, is_json);
            server.log_refusal("OTLP over HTTP", response.status().as_u16(), &refusal.to_string());
            response
        }
    };
    server.meters.record_response(signal, "http", response.status().as_u16());
    response
}

/// Returns the media type without parameters such as `charset`.
fn read_media_type(headers: &HeaderMap) -> &str {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.split(';').next().unwrap_or_default().trim()
}

fn is_json(headers: &HeaderMap) -> bool {
    read_media_type(headers).eq_ignore_ascii_case(JSON)
}

/// Receives an export. The limit of the body applies before and after decompression.
async fn receive_http_export(
    server: &Arc<ServerState>,
    signal: TelemetrySignal,
    is_json: bool,
    headers: &HeaderMap,
    body: Body,
) -> Result<RejectedRecords, ReceiveRefusal> {
    let compression = BodyCompression::from_headers(headers)?;
    let received = read_request_body(server, headers, body, server.settings.max_request_bytes, compression).await?;
    accept_otlp_request(server, OtlpRequestHead { signal, is_json, project: parse_project_header(headers) }, received)
        .await
}

/// Returns the project of the header `x-project-name`, which Phoenix clients send. `None` if it is missing, empty or
/// not UTF-8.
pub(super) fn parse_project_header(headers: &HeaderMap) -> Option<Arc<str>> {
    // `to_str` would refuse names outside of ASCII.
    let name = std::str::from_utf8(headers.get("x-project-name")?.as_bytes()).ok()?.trim();
    (!name.is_empty()).then(|| name.into())
}

/// Builds a 200, with `partial_success` if records were rejected. Exporters must not retry those.
fn build_http_success(rejected: &RejectedRecords, signal: TelemetrySignal, is_json: bool) -> Response {
    if is_json {
        build_typed_response(StatusCode::OK, JSON, export_response_json(rejected, signal))
    } else {
        build_typed_response(StatusCode::OK, PROTOBUF, export_response(rejected))
    }
}

/// Builds a `google.rpc.Status` in the encoding of the request, for refusals before the body is read.
pub(crate) fn build_status_response(http: StatusCode, code: u16, message: &str, headers: &HeaderMap) -> Response {
    build_typed_status(http, u32::from(code), message, is_json(headers))
}

/// Builds a refusal. Its HTTP status decides whether an exporter retries (429, 502, 503, 504); the code in the body
/// is for logs.
fn build_http_refusal(refusal: &ReceiveRefusal, is_json: bool) -> Response {
    let code = match refusal {
        ReceiveRefusal::Bad(_) | ReceiveRefusal::Unsupported(_) => 3,
        ReceiveRefusal::TooLarge { .. }
        | ReceiveRefusal::BodyTooLarge { .. }
        | ReceiveRefusal::NeverFits
        | ReceiveRefusal::ClientShare => 8,
        ReceiveRefusal::Busy | ReceiveRefusal::Store(_) => 14,
        ReceiveRefusal::TooSlow => 4,
    };
    let mut response = build_typed_status(refusal.status(), code, &refusal.to_string(), is_json);
    if let Some(seconds) = refusal.retry_after_s() {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

fn build_typed_status(http: StatusCode, code: u32, message: &str, is_json: bool) -> Response {
    if is_json {
        build_typed_response(http, JSON, status_json(code, message))
    } else {
        build_typed_response(http, PROTOBUF, encode_rpc_status(code, message))
    }
}

fn build_typed_response(status: StatusCode, kind: &'static str, body: impl Into<Body>) -> Response {
    (status, [(CONTENT_TYPE, HeaderValue::from_static(kind))], body.into()).into_response()
}
