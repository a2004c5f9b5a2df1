//! Receives OTLP over HTTP (protobuf and JSON) and over gRPC. Both end in [`accept_otlp_request`]. A sender is
//! acknowledged after its records are on disk, and never before.

mod body;
mod chunks;
mod grpc;
mod http;
mod refusal;

pub(super) use chunks::MAX_PROJECT_NAME_BYTES;
pub(super) use grpc::build_grpc_error as grpc_error;
pub(super) use http::build_status_response;
pub(super) use refusal::ReceiveRefusal;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::HeaderMap;
use axum::routing::post;
use gradus_otlp::{RejectedRecords, TelemetrySignal};
use gradus_store::TraceChunk;
use serde::de::DeserializeOwned;

use self::body::{BodyCompression, ExceedsSmallLimit, ReceivedBody};
use super::json_size::estimate_parsed_size;
use super::memory::MemoryLease;
use super::state::{ServerState, client_write_lane};
use crate::clock::now_ns;
use crate::http_error::ApiError;

/// Builds the routes of the OTLP specification. A gRPC method is a path of HTTP/2.
pub(super) fn build_otlp_routes() -> Router<Arc<ServerState>> {
    Router::new()
        .route("/v1/traces", post(http::export_traces_http))
        .route("/v1/logs", post(http::export_logs_http))
        .route("/opentelemetry.proto.collector.trace.v1.TraceService/Export", post(grpc::export_traces))
        .route("/opentelemetry.proto.collector.logs.v1.LogsService/Export", post(grpc::export_logs))
}

/// Whether a path belongs to OTLP/HTTP, whose errors are `google.rpc.Status` messages.
pub(super) fn is_otlp_path(path: &str) -> bool {
    matches!(path, "/v1/traces" | "/v1/logs")
}

/// Reads the body of a small request without decompressing it, up to `limit` bytes.
pub(super) async fn read_small_body(
    server: &ServerState,
    headers: &HeaderMap,
    body: Body,
    limit: usize,
) -> Result<(Vec<u8>, MemoryLease), ApiError> {
    let read = body::read_request_body(server, headers, body, limit, BodyCompression::None).await;
    read.map(|received| (received.bytes, received.lease)).map_err(|refusal| to_small_body_error(&refusal))
}

/// Reads a small JSON body. It is parsed on a worker thread, because parsing untrusted JSON may take long.
pub(super) async fn read_small_json<T: DeserializeOwned + Send + 'static>(
    server: &Arc<ServerState>,
    headers: &HeaderMap,
    body: Body,
    limit: usize,
) -> Result<(T, MemoryLease), ApiError> {
    let read = body::read_request_body(server, headers, body, limit, BodyCompression::None).await;
    let received = read.map_err(|refusal| to_small_body_error(&refusal))?;
    let client = received.client;
    let parsed = server.small_work.run(client, move || {
        let mut lease = received.lease;
        let value = parse_json(&received.bytes, &mut lease)?;
        Ok((value, lease))
    });
    let parsed = parsed.await.unwrap_or_else(|lost| Err(JsonError::Refused(lost.into())));
    parsed.map_err(|error| match error {
        JsonError::Refused(refusal) => to_small_body_error(&refusal),
        JsonError::Invalid(error) => ApiError::bad_request(format!("the body cannot be read: {error}")),
    })
}

/// Converts a refusal. The message of the OTLP limit names a setting that does not apply to small bodies.
fn to_small_body_error(refusal: &ReceiveRefusal) -> ApiError {
    let message = match refusal {
        ReceiveRefusal::TooLarge { limit } => {
            format!("the body is larger than {limit} bytes; send less at once")
        }
        other => other.to_string(),
    };
    ApiError::new(refusal.status(), message)
}

/// Why a JSON body could not be read: no memory, or invalid JSON.
#[derive(Debug)]
pub(super) enum JsonError {
    Refused(ReceiveRefusal),
    Invalid(serde_json::Error),
}

impl From<ReceiveRefusal> for JsonError {
    fn from(refusal: ReceiveRefusal) -> JsonError {
        JsonError::Refused(refusal)
    }
}

/// Parses JSON after leasing an upper bound of the memory that its values take.
pub(super) fn parse_json<T: DeserializeOwned>(text: &[u8], lease: &mut MemoryLease) -> Result<T, JsonError> {
    lease.grow(estimate_parsed_size(text)).map_err(ReceiveRefusal::from)?;
    serde_json::from_slice(text).map_err(JsonError::Invalid)
}

/// Reads and decompresses a body of up to `serve.max_request_mb`, and passes it to `parse` on a worker thread. The
/// returned lease must live as long as the result.
pub(super) async fn parse_body<T, E>(
    server: &Arc<ServerState>,
    headers: &HeaderMap,
    body: Body,
    parse: impl FnOnce(Vec<u8>, &mut MemoryLease) -> Result<T, E> + Send + 'static,
) -> Result<(T, MemoryLease), E>
where
    T: Send + 'static,
    E: From<ReceiveRefusal> + Send + 'static,
{
    let compression = BodyCompression::from_headers(headers)?;
    let limit = server.settings.max_request_bytes;
    let received = body::read_request_body(server, headers, body, limit, compression).await?;
    run_on_body(server, received, parse).await
}

/// Maximum size of small requests. They have worker threads of their own, so that small senders do not wait for large
/// ones.
const MAX_SMALL_REQUEST_BYTES: usize = 512 << 10;
/// The usual compression ratio of OTLP. A compressed body is treated as small if it is this many times smaller.
const EXPECTED_COMPRESSION_RATIO: usize = 8;

/// Decompresses a body and runs `work` on it, in the client's turn. A body that turns out to be large moves from the
/// small to the large worker threads.
async fn run_on_body<T, E>(
    server: &Arc<ServerState>,
    received: ReceivedBody,
    work: impl FnOnce(Vec<u8>, &mut MemoryLease) -> Result<T, E> + Send + 'static,
) -> Result<(T, MemoryLease), E>
where
    T: Send + 'static,
    E: From<ReceiveRefusal> + Send + 'static,
{
    let client = received.client;
    let small = match received.compression {
        BodyCompression::None => MAX_SMALL_REQUEST_BYTES,
        _ => MAX_SMALL_REQUEST_BYTES / EXPECTED_COMPRESSION_RATIO,
    };
    let mut waiting = (received, work);
    if waiting.0.bytes.len() <= small {
        let tried = server.small_work.run(client, move || {
            let (received, work) = waiting;
            match received.decompress_small(MAX_SMALL_REQUEST_BYTES) {
                Ok(decompressed) => Ok(process_decompressed(decompressed, work)),
                // It is larger than expected and moves to the threads for large requests.
                Err(ExceedsSmallLimit(received)) => Err((received, work)),
            }
        });
        waiting = match tried.await.map_err(ReceiveRefusal::from)? {
            Ok(done) => return done,
            Err(large) => large,
        };
    }
    let limit = server.settings.max_request_bytes;
    let done = server.large_work.run(client, move || {
        let (received, work) = waiting;
        process_decompressed(received.decompress(limit), work)
    });
    done.await.map_err(ReceiveRefusal::from)?
}

/// Runs `work` on decompressed bytes. The lease is returned with the result, so that the caller decides when the
/// memory is free.
fn process_decompressed<T, E: From<ReceiveRefusal>>(
    decompressed: body::DecompressionResult,
    work: impl FnOnce(Vec<u8>, &mut MemoryLease) -> Result<T, E>,
) -> Result<(T, MemoryLease), E> {
    let (bytes, mut lease) = decompressed?;
    let done = work(bytes, &mut lease)?;
    Ok((done, lease))
}

/// The parts of an OTLP request that are known before its body is read.
struct OtlpRequestHead {
    signal: TelemetrySignal,
    is_json: bool,
    /// The project that a header names. It has priority over the resource attributes.
    project: Option<Arc<str>>,
}

/// Prepares the records on a worker thread and stores them. Returns the records that were rejected, for
/// `partial_success`.
async fn accept_otlp_request(
    server: &Arc<ServerState>,
    request: OtlpRequestHead,
    received: ReceivedBody,
) -> Result<RejectedRecords, ReceiveRefusal> {
    let signal = request.signal;
    let preparing = Arc::clone(server);
    let (prepared, lease) =
        run_on_body(server, received, move |bytes, lease| request.prepare(&preparing, bytes, lease)).await?;
    store_export(server, signal, prepared, lease).await
}

/// Prepares spans that were received in another form and converted to an OTLP export request.
pub(super) fn prepare_spans(
    server: &ServerState,
    export: Vec<u8>,
    project: Arc<str>,
    lease: &mut MemoryLease,
) -> Result<PreparedExport, ReceiveRefusal> {
    OtlpRequestHead { signal: TelemetrySignal::Span, is_json: false, project: Some(project) }
        .prepare(server, export, lease)
}

/// Stores the result of [`prepare_spans`].
pub(super) async fn store_spans(
    server: &Arc<ServerState>,
    prepared: PreparedExport,
    lease: MemoryLease,
) -> Result<RejectedRecords, ReceiveRefusal> {
    store_export(server, TelemetrySignal::Span, prepared, lease).await
}

/// Stores prepared records and waits for the commits. The lease is held until then, because the records wait in memory.
async fn store_export(
    server: &Arc<ServerState>,
    signal: TelemetrySignal,
    prepared: PreparedExport,
    lease: MemoryLease,
) -> Result<RejectedRecords, ReceiveRefusal> {
    let PreparedExport { chunks, rejected, size } = prepared;
    // One batch after another, so that other writers get their turn in between. If one fails, the sender repeats the
    // whole request, and records that are stored already are recognised by their digest.
    for batch in split_into_batches(chunks) {
        let written =
            server.store.ingest_in_lane(client_write_lane(), batch, now_ns()).map_err(ReceiveRefusal::Store)?;
        let ingested = written.wait_async().await.map_err(|error| {
            server.log_storing_failure(&error);
            ReceiveRefusal::Store(error)
        })?;
        server.meters.record_ingested(signal, &ingested);
    }
    drop(lease);
    server.meters.record_received(signal, size, &rejected);
    Ok(rejected)
}

/// Maximum number of spans and links in one transaction. It takes some 25 ms, during which other writers wait.
pub(super) const MAX_BATCH_ROWS: usize = 1_000;

/// Groups chunks into batches of up to [`MAX_BATCH_ROWS`]. Nearly every request is one batch.
fn split_into_batches(chunks: Vec<TraceChunk>) -> Vec<Vec<TraceChunk>> {
    let mut batches: Vec<Vec<TraceChunk>> = Vec::new();
    let mut batch_rows = 0;
    for chunk in chunks {
        let rows = 1 + chunk.spans.len() + chunk.links.len();
        batch_rows += rows;
        match batches.last_mut().filter(|_| batch_rows <= MAX_BATCH_ROWS) {
            Some(batch) => batch.push(chunk),
            None => {
                batch_rows = rows;
                batches.push(vec![chunk]);
            }
        }
    }
    batches
}

/// A request that is decoded, redacted, grouped by trace and compressed.
pub(super) struct PreparedExport {
    chunks: Vec<TraceChunk>,
    rejected: RejectedRecords,
    /// Bytes of the request after decompression, for `/metrics`.
    size: usize,
}

/// Maximum size of the parsed values of one JSON record, in bytes. Records are parsed one by one, and a larger one is
/// rejected.
const MAX_RECORD_VALUE_BYTES: usize = 16 << 20;

impl OtlpRequestHead {
    /// Prepares the records; runs on a worker thread. On return the lease covers the compressed chunks only.
    fn prepare(
        self,
        server: &ServerState,
        bytes: Vec<u8>,
        lease: &mut MemoryLease,
    ) -> Result<PreparedExport, ReceiveRefusal> {
        let size = bytes.len();
        // Records are copied once when they are grouped by trace. JSON is copied into protobuf before that.
        let needed = match self.is_json {
            true => size + estimate_parsed_size(&bytes).min(MAX_RECORD_VALUE_BYTES),
            false => 0,
        };
        lease.grow(size + needed)?;
        let redaction = &server.reloadable().redaction;
        let limits = &server.settings.limits;
        let sent = chunks::OtlpHeadRef { signal: self.signal, is_json: self.is_json, project: self.project.as_ref() };
        let (chunks, rejected) = chunks::prepare_trace_chunks(bytes, sent, redaction, limits, lease)?;
        // The request's bytes are freed; the compressed chunks wait to be written.
        lease.shrink_to(chunks.iter().map(TraceChunk::memory_bytes).sum());
        Ok(PreparedExport { chunks, rejected, size })
    }
}
