//! Response bodies while they are sent: in small chunks, each of which its connection knows until it is written, and
//! with all unread bytes counted in the memory budget.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use http_body::{Frame, SizeHint};

use super::connection::{ActiveRequest, ConnectionState, PendingChunk};
use super::memory::MemoryLease;

/// Size of one chunk, which a client must read within the stall timeout.
const CHUNK_BYTES: usize = 64 << 10;

tokio::task_local! {
    static STREAM: Arc<StreamProgress>;
}

/// Whether the client reads one HTTP/2 stream. Its flow-control window may stay closed while the connection works, and
/// then hyper never polls the body again, so the deadline is watched from outside.
#[derive(Debug, Default)]
pub(super) struct StreamProgress {
    /// When the client must have read the last chunk; `None` while the server owes the next one.
    due_at: Mutex<Option<Instant>>,
}

impl StreamProgress {
    /// Set when a chunk is handed out, and cleared when the next one is asked for.
    fn set_deadline(&self, due_at: Option<Instant>) {
        *self.due_at.lock().unwrap_or_else(PoisonError::into_inner) = due_at;
    }

    /// Returns the stream that this task answers; `None` for HTTP/1.
    pub(super) fn current() -> Option<Arc<StreamProgress>> {
        STREAM.try_with(Arc::clone).ok()
    }

    /// Runs a future with this stream as the current one.
    pub(super) async fn scope<T>(self: Arc<StreamProgress>, answering: impl Future<Output = T>) -> T {
        STREAM.scope(self, answering).await
    }

    /// Returns when a deadline was missed. It polls in this interval, which is cheaper than a timer for each chunk.
    pub(super) async fn wait_until_stalled(&self, interval: Duration) {
        loop {
            tokio::time::sleep(interval).await;
            let due_at = *self.due_at.lock().unwrap_or_else(PoisonError::into_inner);
            if due_at.is_some_and(|due_at| Instant::now() > due_at) {
                return;
            }
        }
    }
}

/// The leases of a request and its response, which are held until the last chunk is written.
#[derive(Debug)]
pub(super) struct StreamMemory {
    pub(super) request: MemoryLease,
    pub(super) response: MemoryLease,
}

/// The parts of a request that its response body keeps alive.
#[derive(Debug)]
pub(super) struct AnsweredRequest {
    pub(super) connection: Arc<ConnectionState>,
    pub(super) active: ActiveRequest,
    pub(super) memory: StreamMemory,
    /// How long the client may take to read each chunk.
    pub(super) stall_timeout: Duration,
}

/// A response body whose chunks are tracked until they are written.
#[derive(Debug)]
pub(super) struct TrackedBody {
    inner: Body,
    /// The rest of a frame that was larger than a chunk.
    rest: Bytes,
    /// Whether it is produced while it is sent, so that each chunk is leased on its own.
    is_streamed: bool,
    memory: Arc<StreamMemory>,
    connection: Arc<ConnectionState>,
    stream: Option<Arc<StreamProgress>>,
    stall_timeout: Duration,
    _active: ActiveRequest,
}

impl TrackedBody {
    /// A body that is in memory already and covered by the response's lease.
    pub(super) fn from_buffered(inner: Body, request: AnsweredRequest) -> TrackedBody {
        TrackedBody::new(inner, false, request)
    }

    /// A body that is produced while it is sent.
    pub(super) fn from_stream(inner: Body, request: AnsweredRequest) -> TrackedBody {
        TrackedBody::new(inner, true, request)
    }

    fn new(inner: Body, is_streamed: bool, request: AnsweredRequest) -> TrackedBody {
        TrackedBody {
            inner,
            rest: Bytes::new(),
            is_streamed,
            memory: Arc::new(request.memory),
            connection: request.connection,
            stream: StreamProgress::current(),
            stall_timeout: request.stall_timeout,
            _active: request.active,
        }
    }

    /// Returns the next chunk with everything that must live until it is written. `Bytes::from_owner` drops the
    /// guards together with the bytes.
    fn next_chunk(&mut self) -> Frame<Bytes> {
        let bytes = self.rest.split_to(self.rest.len().min(CHUNK_BYTES));
        let lease = self.is_streamed.then(|| {
            let mut lease = self.memory.response.open_sibling();
            // The chunk exists already, and the number of streams is bounded.
            lease.grow_anyway(bytes.len());
            lease
        });
        if let Some(stream) = &self.stream {
            stream.set_deadline(Some(Instant::now() + self.stall_timeout));
        }
        // Twice the time of a stream, so that a stalled HTTP/2 stream is reset alone, before its whole connection is
        // closed.
        let pending = self.connection.hand_out_chunk(2 * self.stall_timeout);
        let memory = Arc::clone(&self.memory);
        Frame::data(Bytes::from_owner(TrackedChunk { bytes, _lease: lease, _memory: memory, _pending: pending }))
    }
}

impl http_body::Body for TrackedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Some(stream) = &self.stream {
            // hyper asks for more only when the client has read the last chunk.
            stream.set_deadline(None);
        }
        if self.rest.is_empty() {
            let frame = match std::task::ready!(Pin::new(&mut self.inner).poll_frame(context)) {
                Some(Ok(frame)) => frame,
                other => return Poll::Ready(other),
            };
            match frame.into_data() {
                Ok(data) => self.rest = data,
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            }
        }
        Poll::Ready(Some(Ok(self.next_chunk())))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let inner = self.inner.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower() + self.rest.len() as u64);
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper + self.rest.len() as u64);
        }
        hint
    }
}

/// The bytes of a chunk and the guards that end when it is written.
struct TrackedChunk {
    bytes: Bytes,
    _lease: Option<MemoryLease>,
    _memory: Arc<StreamMemory>,
    _pending: PendingChunk,
}

impl AsRef<[u8]> for TrackedChunk {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}
