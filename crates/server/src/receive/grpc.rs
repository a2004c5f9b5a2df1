//! OTLP over gRPC. A unary call is a message with a prefix of five bytes and a status in the trailers. That is little
//! enough to implement here, with the same memory limits as over HTTP and without decoding the message twice.

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use base64::Engine as _;
use gradus_otlp::{RejectedRecords, TelemetrySignal, export_response, retry_status};
use http_body_util::{BodyExt as _, Full};

use super::body::{BodyCompression, read_request_body};
use super::http::parse_project_header;
use super::{OtlpRequestHead, ReceiveRefusal, accept_otlp_request};
use crate::state::ServerState;

/// `opentelemetry.proto.collector.trace.v1.TraceService/Export`.
pub(crate) async fn export_traces(server: State<Arc<ServerState>>, headers: HeaderMap, body: Body) -> Response {
    handle_grpc_export(&server, TelemetrySignal::Span, &headers, body).await
}

/// `opentelemetry.proto.collector.logs.v1.LogsService/Export`.
pub(crate) async fn export_logs(server: State<Arc<ServerState>>, headers: HeaderMap, body: Body) -> Response {
    handle_grpc_export(&server, TelemetrySignal::Log, &headers, body).await
}

const GRPC_CONTENT_TYPE: &str = "application/grpc";
const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");
const ACCEPT_ENCODING: HeaderName = HeaderName::from_static("grpc-accept-encoding");
/// The prefix of a gRPC message: a flag for compression, and the length as a big-endian `u32`.
const MESSAGE_PREFIX_BYTES: usize = 5;

/// Answers an export. Errors are logged, because exporters often do not show them.
async fn handle_grpc_export(
    server: &Arc<ServerState>,
    signal: TelemetrySignal,
    headers: &HeaderMap,
    body: Body,
) -> Response {
    let (code, response) = match receive_grpc_export(server, signal, headers, body).await {
        Ok(rejected) => (0, build_grpc_success(&rejected)),
        Err(refusal) => {
            let (code, response) = build_grpc_refusal(&refusal);
            server.log_refusal("OTLP over gRPC", code, &refusal.to_string());
            (code, response)
        }
    };
    server.meters.record_response(signal, "grpc", code);
    response
}

/// Checks the framing of the message and passes it on. A unary call has exactly one message.
async fn receive_grpc_export(
    server: &Arc<ServerState>,
    signal: TelemetrySignal,
    headers: &HeaderMap,
    body: Body,
) -> Result<RejectedRecords, ReceiveRefusal> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let kind = text("content-type").unwrap_or_default();
    if !matches!(kind.split(';').next().unwrap_or_default().trim(), GRPC_CONTENT_TYPE | "application/grpc+proto") {
        return Err(ReceiveRefusal::Unsupported(format!(
            "content type {kind:?} is not known here; send {GRPC_CONTENT_TYPE}"
        )));
    }
    let limit = server.settings.max_request_bytes;
    // The body is not compressed as a whole; the flag of the message says whether the message is.
    let mut received =
        read_request_body(server, headers, body, limit.saturating_add(MESSAGE_PREFIX_BYTES), BodyCompression::None)
            .await?;
    let frame = &mut received.bytes;
    let head: Option<[u8; MESSAGE_PREFIX_BYTES]> = frame.first_chunk().copied();
    let (is_packed, length) = match head {
        Some([flag @ (0 | 1), a, b, c, d]) => (flag == 1, u32::from_be_bytes([a, b, c, d]) as usize),
        _ => return Err(ReceiveRefusal::Bad("this is no gRPC message".to_owned())),
    };
    if frame.len() != MESSAGE_PREFIX_BYTES + length {
        return Err(ReceiveRefusal::Bad(format!(
            "the message says it has {length} bytes, and has {}",
            frame.len() - MESSAGE_PREFIX_BYTES
        )));
    }
    frame.drain(..MESSAGE_PREFIX_BYTES);
    if is_packed {
        received.compression = BodyCompression::parse(text("grpc-encoding"))?;
    }
    if is_packed && received.compression == BodyCompression::None {
        return Err(ReceiveRefusal::Bad("the message is compressed, and grpc-encoding does not say how".to_owned()));
    }
    accept_otlp_request(
        server,
        OtlpRequestHead { signal, is_json: false, project: parse_project_header(headers) },
        received,
    )
    .await
}

/// Builds the response message, followed by trailers with status 0.
fn build_grpc_success(rejected: &RejectedRecords) -> Response {
    let message = export_response(rejected);
    let mut bytes = vec![0];
    bytes.extend((message.len() as u32).to_be_bytes());
    bytes.extend(message);
    let trailers = HeaderMap::from_iter([(STATUS, HeaderValue::from_static("0"))]);
    let body = Full::from(bytes).with_trailers(async move { Some(Ok(trailers)) });
    build_grpc_response(Body::new(body), HeaderMap::new())
}

/// Builds a refusal with a code of `google.rpc.Code`: 3 invalid argument, 4 deadline exceeded, 8 resource exhausted,
/// 12 unimplemented, 14 unavailable. Exporters retry 4, 8 and 14 (8 only with retry information).
fn build_grpc_refusal(refusal: &ReceiveRefusal) -> (u16, Response) {
    let code: u16 = match refusal {
        ReceiveRefusal::Bad(_) => 3,
        ReceiveRefusal::TooLarge { .. }
        | ReceiveRefusal::BodyTooLarge { .. }
        | ReceiveRefusal::NeverFits
        | ReceiveRefusal::ClientShare => 8,
        ReceiveRefusal::Unsupported(_) => 12,
        ReceiveRefusal::TooSlow => 4,
        ReceiveRefusal::Busy | ReceiveRefusal::Store(_) => 14,
    };
    (code, build_grpc_error(code, &refusal.to_string(), refusal.retry_after_s()))
}

/// Builds a response without a message ("trailers-only"): the status is in the headers.
pub(crate) fn build_grpc_error(code: u16, message: &str, retry_after_s: Option<u32>) -> Response {
    let mut headers = HeaderMap::from_iter([(STATUS, HeaderValue::from(code))]);
    if let Ok(value) = HeaderValue::from_str(&percent_encode_message(message)) {
        headers.insert(MESSAGE, value);
    }
    // OTLP exporters read the delay from `RetryInfo` in `grpc-status-details-bin`.
    if let Some(seconds) = retry_after_s {
        let details = retry_status(u32::from(code), message, seconds);
        let text = base64::engine::general_purpose::STANDARD_NO_PAD.encode(details);
        if let Ok(value) = HeaderValue::from_str(&text) {
            headers.insert(DETAILS, value);
        }
    }
    build_grpc_response(Body::empty(), headers)
}

/// Builds a response with HTTP status 200, which gRPC errors have, too.
fn build_grpc_response(body: Body, headers: HeaderMap) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::OK;
    *response.headers_mut() = headers;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(GRPC_CONTENT_TYPE));
    response.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("identity,gzip,zstd"));
    response
}

/// Percent-encodes a message, as the gRPC specification demands for `grpc-message`.
fn percent_encode_message(text: &str) -> String {
    const GRPC_MESSAGE: &AsciiSet = &CONTROLS.add(b'%');
    utf8_percent_encode(text, GRPC_MESSAGE).to_string()
}
