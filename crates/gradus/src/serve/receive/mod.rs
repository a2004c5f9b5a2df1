//! OTLP in: over HTTP (protobuf and JSON) and over gRPC, both ending in [`accept`]. A sender hears "done" when its records
//! are on disk, and not before.

mod body;
mod chunks;
mod grpc;
mod http;

pub(super) use chunks::stored_link;
pub(super) use grpc::{error as grpc_error, export_logs, export_traces};
pub(super) use http::{logs, traces};

use std::sync::Arc;

use gradus_otlp::{Rejected, Signal};
use gradus_store::StoreError;

use super::admission::Room;
use super::state::{Server, now_ns};

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
enum Refusal {
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
    fn retry_after_s(&self) -> Option<u32> {
        match self {
            Refusal::Busy | Refusal::TooSlow => Some(1),
            Refusal::Store(StoreError::Busy) => Some(1),
            Refusal::Store(_) => Some(5),
            Refusal::Bad(_) | Refusal::TooLarge { .. } | Refusal::Unsupported(_) => None,
        }
    }
}

/// Work of this size is done where it stands; more would keep others waiting.
const SMALL_BYTES: usize = 32 << 10;

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
        tokio::task::spawn_blocking(prepare).await.map_err(|error| Refusal::Bad(error.to_string()))?
    };
    let (chunks, rejected) = prepared.map_err(Refusal::Bad)?;
    if !chunks.is_empty() {
        let written = server.store.ingest(chunks, now_ns()).map_err(Refusal::Store)?;
        let ingested = written.done().await.map_err(Refusal::Store)?;
        server.meters.ingested(signal, &ingested);
        server.arrived.notify_one();
    }
    drop(room);
    server.meters.received(signal, size, &rejected);
    Ok(rejected)
}
