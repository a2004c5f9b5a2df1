//! OTLP in: over HTTP (protobuf and JSON) and over gRPC, both ending in [`accept`]. A sender hears "done" when its records
//! are on disk, and not before.

mod body;
mod chunks;
mod grpc;
mod http;

pub(super) use grpc::{error as grpc_error, export_logs, export_traces};
pub(super) use http::{logs, traces};

use std::sync::Arc;

use axum::body::Body;
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use axum::http::{HeaderMap, HeaderValue};
use gradus_otlp::{Rejected, Signal};
use gradus_store::StoreError;

use super::admission::Room;
use super::state::{Server, now_ns};

/// Reads a whole body, unpacked, within the room that there is.
pub(super) async fn read_body(
    server: &Server,
    headers: &HeaderMap,
    body: Body,
) -> Result<(Vec<u8>, Room), Refusal> {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let compression = body::Compression::named(text(CONTENT_ENCODING))?;
    let length = text(CONTENT_LENGTH).and_then(|length| length.parse().ok());
    let limit = server.settings.max_request_bytes;
    let (bytes, mut room) = body::read(body, length, limit, &server.admission).await?;
    Ok((body::unpack(bytes, compression, limit, &mut room)?, room))
}

/// Stores spans that came in another form than OTLP, written as an export request.
pub(super) async fn accept_spans(
    server: &Arc<Server>,
    export: Vec<u8>,
    project: Arc<str>,
    room: Room,
) -> Result<Rejected, Refusal> {
    let request =
        Request { signal: Signal::Span, is_json: false, bytes: export, project: Some(project), room };
    accept(server, request).await
}

/// What was sent, unpacked.
struct Request {
    signal: Signal,
    is_json: bool,
    bytes: Vec<u8>,
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

/// Stores a request's records.
async fn accept(server: &Arc<Server>, request: Request) -> Result<Rejected, Refusal> {
    let Request { signal, is_json, bytes, project, mut room } = request;
    // The records are copied once more, by trace.
    room.grow(bytes.len()).map_err(|_| Refusal::Busy)?;
    let size = bytes.len();
    let prepare = {
        let server = Arc::clone(server);
        move || {
            let redaction = &server.reloadable().redaction;
            chunks::prepare(&bytes, signal, is_json, project.as_ref(), redaction, &server.settings.limits)
        }
    };
    let prepared = if size <= SMALL_BYTES {
        prepare()
    } else {
        // Few at a time: each thread holds tools for packing, and there are only so many cores.
        let _turn = server.large_requests.acquire().await;
        tokio::task::spawn_blocking(prepare).await.map_err(|error| Refusal::Bad(error.to_string()))?
    };
    let (chunks, rejected) = prepared.map_err(Refusal::Bad)?;
    if !chunks.is_empty() {
        let written = server.store.ingest(chunks, now_ns()).map_err(Refusal::Store)?;
        let ingested = written.done().await.map_err(|error| {
            server.tell_of_store(&error);
            Refusal::Store(error)
        })?;
        server.meters.ingested(signal, &ingested);
    }
    drop(room);
    server.meters.received(signal, size, &rejected);
    Ok(rejected)
}
