//! OTLP in: over HTTP (protobuf and JSON) and over gRPC, both ending in [`accept`]. A sender hears "done" when its records
//! are on disk, and not before.

mod body;
mod chunks;
mod grpc;
mod http;

pub(super) use grpc::{error as grpc_error, export_logs, export_traces};
pub(super) use http::{logs, status_response, traces};

use std::borrow::Cow;
use std::sync::Arc;

use axum::body::Body;
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use gradus_otlp::{Rejected, Signal};
use gradus_store::{Chunk, StoreError};

use self::body::{Compression, unpack};
use super::admission::Room;
use super::api::ApiError;
use super::state::{Server, now_ns};

/// Reads the body of a request that is no OTLP within the same bounds.
pub(super) async fn read_small_body(
    server: &Server,
    body: Body,
    length: Option<usize>,
    limit: usize,
) -> Result<(Vec<u8>, Room), ApiError> {
    body::read(body, length, limit, &server.admission).await.map_err(|refusal| {
        let status = match &refusal {
            Refusal::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Refusal::Busy => StatusCode::SERVICE_UNAVAILABLE,
            Refusal::TooSlow => StatusCode::REQUEST_TIMEOUT,
            _ => StatusCode::BAD_REQUEST,
        };
        let message = match refusal {
            Refusal::TooLarge { limit } => {
                format!("the body is larger than {limit} bytes; send less at once")
            }
            other => other.to_string(),
        };
        ApiError::new(status, message)
    })
}

/// Whether OTLP over HTTP is sent to this address.
pub(super) fn is_otlp(path: &str) -> bool {
    matches!(path, "/v1/traces" | "/v1/logs")
}

/// Reads a whole body, unpacked, within the room that there is.
pub(super) async fn read_body(
    server: &Server,
    headers: &HeaderMap,
    body: Body,
) -> Result<(Vec<u8>, Room), Refusal> {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let compression = Compression::named(text(CONTENT_ENCODING))?;
    let length = text(CONTENT_LENGTH).and_then(|length| length.parse().ok());
    let limit = server.settings.max_request_bytes;
    let (bytes, mut room) = body::read(body, length, limit, &server.admission).await?;
    let unpacked = match unpack(&bytes, compression, limit, &mut room)? {
        Cow::Owned(unpacked) => Some(unpacked),
        Cow::Borrowed(_) => None,
    };
    Ok((unpacked.unwrap_or(bytes), room))
}

/// Stores spans that came in another form than OTLP, written as an export request.
pub(super) async fn accept_spans(
    server: &Arc<Server>,
    export: Vec<u8>,
    project: Arc<str>,
    room: Room,
) -> Result<Rejected, Refusal> {
    let request = Request {
        signal: Signal::Span,
        is_json: false,
        bytes: export,
        compression: Compression::None,
        project: Some(project),
        room,
    };
    accept(server, request).await
}

/// What was sent, as it came.
struct Request {
    signal: Signal,
    is_json: bool,
    bytes: Vec<u8>,
    compression: Compression,
    /// What a header says the project is.
    project: Option<Arc<str>>,
    room: Room,
}

/// Why a request is not taken.
#[derive(Debug)]
pub(super) enum Refusal {
    /// It can never be taken.
    Bad(String),
    TooLarge {
        limit: usize,
    },
    Unsupported(String),
    /// It can be taken later.
    Busy,
    TooSlow,
    Store(StoreError),
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Refusal::Bad(reason) | Refusal::Unsupported(reason) => f.write_str(reason),
            Refusal::TooLarge { limit } => {
                write!(
                    f,
                    "the request is larger than {limit} bytes; send smaller batches, or raise serve.max_request_mb"
                )
            }
            Refusal::Busy => f.write_str("too much is waiting to be stored; try again later"),
            Refusal::TooSlow => f.write_str("the request took too long to arrive"),
            Refusal::Store(error) => write!(f, "{error}"),
        }
    }
}

impl Refusal {
    /// When to try again, in seconds; `None` when that is of no use.
    pub(super) fn retry_after_s(&self) -> Option<u32> {
        match self {
            Refusal::Busy | Refusal::TooSlow => Some(1),
            Refusal::Store(StoreError::Busy) => Some(1),
            Refusal::Store(_) => Some(5),
            Refusal::Bad(_) | Refusal::TooLarge { .. } | Refusal::Unsupported(_) => None,
        }
    }
}

/// Work of this size is done where it stands, in a few milliseconds at the most; more would keep others waiting.
const SMALL_BYTES: usize = 512 << 10;
/// What is packed is taken for small when it is this much smaller.
const PACKED: usize = 8;

/// Stores a request's records.
async fn accept(server: &Arc<Server>, mut request: Request) -> Result<Rejected, Refusal> {
    let signal = request.signal;
    let small = match request.compression {
        Compression::None => SMALL_BYTES,
        _ => SMALL_BYTES / PACKED,
    };
    let mut prepared = None;
    if request.bytes.len() <= small {
        prepared = match request.prepare(server, SMALL_BYTES) {
            // It unpacks to more than it looked like.
            Err(Refusal::TooLarge { .. }) if request.compression != Compression::None => None,
            done => Some(done),
        };
    }
    let prepared = match prepared {
        Some(prepared) => prepared,
        None => {
            // Few at a time: each thread holds tools for packing, and there are only so many cores.
            let _turn = server.large_requests.acquire().await;
            let server = Arc::clone(server);
            let done = tokio::task::spawn_blocking(move || {
                let done = request.prepare(&server, server.settings.max_request_bytes);
                (request, done)
            });
            let done = done.await.map_err(|error| Refusal::Bad(error.to_string()))?;
            request = done.0;
            done.1
        }
    };
    let Prepared { chunks, rejected, size } = prepared?;
    if !chunks.is_empty() {
        let written = server.store.ingest(chunks, now_ns()).map_err(Refusal::Store)?;
        let ingested = written.done().await.map_err(|error| {
            server.tell_of_store(&error);
            Refusal::Store(error)
        })?;
        server.meters.ingested(signal, &ingested);
    }
    drop(request.room);
    server.meters.received(signal, size, &rejected);
    Ok(rejected)
}

/// A request that is ready to be stored.
struct Prepared {
    chunks: Vec<Chunk>,
    rejected: Rejected,
    /// Bytes, unpacked.
    size: usize,
}

impl Request {
    fn prepare(&mut self, server: &Server, limit: usize) -> Result<Prepared, Refusal> {
        let bytes = unpack(&self.bytes, self.compression, limit, &mut self.room)?;
        // The records are copied once more, by trace, and what was JSON is copied into protobuf before.
        let copies = if self.is_json { 2 } else { 1 };
        self.room.grow(copies * bytes.len()).map_err(|_| Refusal::Busy)?;
        let redaction = &server.reloadable().redaction;
        let limits = &server.settings.limits;
        let sent =
            chunks::Sent { signal: self.signal, is_json: self.is_json, project: self.project.as_ref() };
        let (chunks, rejected) = chunks::prepare(&bytes, sent, redaction, limits, &mut self.room)?;
        Ok(Prepared { chunks, rejected, size: bytes.len() })
    }
}
