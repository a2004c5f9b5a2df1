//! OTLP in: over HTTP (protobuf and JSON) and over gRPC, both ending in [`accept_otlp_request`]. A sender hears "done" when its records
//! are on disk, and not before.

mod body;
mod chunks;
mod grpc;
mod http;
mod refusal;

pub(super) use grpc::build_grpc_error as grpc_error;
pub(super) use http::status_response;
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
use super::state::{ServerState, write_lane};
use crate::clock::now_ns;
use crate::http_error::ApiError;

/// Where OTLP is sent.
pub(super) fn build_otlp_routes() -> Router<Arc<ServerState>> {
    Router::new()
        .route("/v1/traces", post(http::export_traces_http))
        .route("/v1/logs", post(http::export_logs_http))
        .route("/opentelemetry.proto.collector.trace.v1.TraceService/Export", post(grpc::export_traces))
        .route("/opentelemetry.proto.collector.logs.v1.LogsService/Export", post(grpc::export_logs))
}

/// Whether OTLP over HTTP is sent to this address.
pub(super) fn is_otlp(path: &str) -> bool {
    matches!(path, "/v1/traces" | "/v1/logs")
}

/// Reads the body of a small request, which is not compressed.
pub(super) async fn read_small_body(
    server: &ServerState,
    headers: &HeaderMap,
    body: Body,
    limit: usize,
) -> Result<(Vec<u8>, MemoryLease), ApiError> {
    let read = body::read_request_body(server, headers, body, limit, BodyCompression::None).await;
    read.map(|received| (received.bytes, received.lease)).map_err(|refusal| small_body_error(&refusal))
}

/// Reads a small body as JSON, on a thread for that.
pub(super) async fn read_small_json<T: DeserializeOwned + Send + 'static>(
    server: &Arc<ServerState>,
    headers: &HeaderMap,
    body: Body,
    limit: usize,
) -> Result<(T, MemoryLease), ApiError> {
    let read = body::read_request_body(server, headers, body, limit, BodyCompression::None).await;
    let received = read.map_err(|refusal| small_body_error(&refusal))?;
    let client = received.client;
    let parsed = server.small_work.run(client, move || {
        let mut lease = received.lease;
        let value = parse_json(&received.bytes, &mut lease)?;
        Ok((value, lease))
    });
    let parsed = parsed.await.unwrap_or_else(|lost| Err(JsonError::Refused(lost.into())));
    parsed.map_err(|error| match error {
        JsonError::Refused(refusal) => small_body_error(&refusal),
        JsonError::Invalid(error) => ApiError::bad_request(format!("the body cannot be read: {error}")),
    })
}

fn small_body_error(refusal: &ReceiveRefusal) -> ApiError {
    let message = match refusal {
        ReceiveRefusal::TooLarge { limit } => {
            format!("the body is larger than {limit} bytes; send less at once")
        }
        other => other.to_string(),
    };
    ApiError::new(refusal.status(), message)
}

/// Why a body of JSON is not read.
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

/// Parses JSON after the memory that its values take is reserved.
pub(super) fn parse_json<T: DeserializeOwned>(text: &[u8], lease: &mut MemoryLease) -> Result<T, JsonError> {
    lease.grow(estimate_parsed_size(text)).map_err(ReceiveRefusal::from)?;
    serde_json::from_slice(text).map_err(JsonError::Invalid)
}

/// Reads a body of any size, decompresses it, and hands it to `parse`, on a thread for such work.
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
    work_on(server, received, parse).await
}

/// Requests of this size have threads of their own: whoever sends little does not wait for those who send much.
const SMALL_BYTES: usize = 512 << 10;
/// What is compressed is taken for small when it is this much smaller.
const EXPECTED_RATIO: usize = 8;

/// Decompresses a body and does `work` on it, in the client's turn.
async fn work_on<T, E>(
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
        BodyCompression::None => SMALL_BYTES,
        _ => SMALL_BYTES / EXPECTED_RATIO,
    };
    let mut waiting = (received, work);
    if waiting.0.bytes.len() <= small {
        let tried = server.small_work.run(client, move || {
            let (received, work) = waiting;
            match received.decompress_small(SMALL_BYTES) {
                Ok(decompressed) => Ok(process_decompressed(decompressed, work)),
                // It decompresses to more than it looked like.
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

fn process_decompressed<T, E: From<ReceiveRefusal>>(
    decompressed: body::DecompressionResult,
    work: impl FnOnce(Vec<u8>, &mut MemoryLease) -> Result<T, E>,
) -> Result<(T, MemoryLease), E> {
    let (bytes, mut lease) = decompressed?;
    let done = work(bytes, &mut lease)?;
    Ok((done, lease))
}

/// What was sent, as it came.
struct OtlpRequestHead {
    signal: TelemetrySignal,
    is_json: bool,
    /// What a header says the project is.
    project: Option<Arc<str>>,
}

/// Stores a request's records.
async fn accept_otlp_request(
    server: &Arc<ServerState>,
    request: OtlpRequestHead,
    received: ReceivedBody,
) -> Result<RejectedRecords, ReceiveRefusal> {
    let signal = request.signal;
    let preparing = Arc::clone(server);
    let (prepared, lease) =
        work_on(server, received, move |bytes, lease| request.prepare(&preparing, bytes, lease)).await?;
    store_export(server, signal, prepared, lease).await
}

/// Spans that came in another form than OTLP, written as an export request, as the store takes them.
pub(super) fn prepare_spans(
    server: &ServerState,
    export: Vec<u8>,
    project: Arc<str>,
    lease: &mut MemoryLease,
) -> Result<PreparedExport, ReceiveRefusal> {
    OtlpRequestHead { signal: TelemetrySignal::Span, is_json: false, project: Some(project) }
        .prepare(server, export, lease)
}

/// Stores prepared spans.
pub(super) async fn store_spans(
    server: &Arc<ServerState>,
    prepared: PreparedExport,
    lease: MemoryLease,
) -> Result<RejectedRecords, ReceiveRefusal> {
    store_export(server, TelemetrySignal::Span, prepared, lease).await
}

/// The lease is held until the records are on disk: until then they wait in memory.
async fn store_export(
    server: &Arc<ServerState>,
    signal: TelemetrySignal,
    prepared: PreparedExport,
    lease: MemoryLease,
) -> Result<RejectedRecords, ReceiveRefusal> {
    let PreparedExport { chunks, rejected, size } = prepared;
    // One after the other: between them, others are stored. Should one fail, the sender sends all of it again, and what
    // is there already is known.
    for batch in split_into_batches(chunks) {
        let written = server.store.ingest_in_lane(write_lane(), batch, now_ns()).map_err(ReceiveRefusal::Store)?;
        let ingested = written.wait_async().await.map_err(|error| {
            server.tell_of_store(&error);
            ReceiveRefusal::Store(error)
        })?;
        server.meters.record_ingested(signal, &ingested);
    }
    drop(lease);
    server.meters.record_received(signal, size, &rejected);
    Ok(rejected)
}

/// Spans and links of one request that are stored together, which holds up everybody else who writes: some 25 ms.
pub(super) const MAX_BATCH_ROWS: usize = 1_000;

/// Chunks that are stored together. Nearly every request is one batch.
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

/// A request that is ready to be stored.
pub(super) struct PreparedExport {
    chunks: Vec<TraceChunk>,
    rejected: RejectedRecords,
    /// Bytes, unpacked.
    size: usize,
}

/// Parsed values of one record in JSON; records are read one by one, and one with more values is refused.
const MAX_RECORD_VALUES: usize = 16 << 20;

impl OtlpRequestHead {
    fn prepare(
        self,
        server: &ServerState,
        bytes: Vec<u8>,
        lease: &mut MemoryLease,
    ) -> Result<PreparedExport, ReceiveRefusal> {
        let size = bytes.len();
        // The records are copied once more, by trace, and what was JSON is copied into protobuf before.
        let needed = match self.is_json {
            true => size + estimate_parsed_size(&bytes).min(MAX_RECORD_VALUES),
            false => 0,
        };
        lease.grow(size + needed)?;
        let redaction = &server.reloadable().redaction;
        let limits = &server.settings.limits;
        let sent =
            chunks::OtlpRequestRef { signal: self.signal, is_json: self.is_json, project: self.project.as_ref() };
        let (chunks, rejected) = chunks::prepare_trace_chunks(bytes, sent, redaction, limits, lease)?;
        // What was sent is gone; what is left of it waits to be written.
        lease.shrink_to(chunks.iter().map(TraceChunk::memory_bytes).sum());
        Ok(PreparedExport { chunks, rejected, size })
    }
}
