//! Response bodies on their way to the client: in small chunks, each known to its connection until it is written, and all
//! bytes that wait counted in the memory budget, with what their request holds.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use http_body::{Frame, SizeHint};

use super::connection::{ActiveRequest, ConnectionState, PendingChunk};
use super::memory::MemoryLease;

/// A client takes at least this much in the time that it has for a part of a response.
const CHUNK_BYTES: usize = 64 << 10;

tokio::task_local! {
    static STREAM: Arc<StreamProgress>;
}

/// Whether the client takes what is sent on one stream of HTTP/2. Its window may stay closed while the connection is
/// fine, and then nobody asks the body for more.
#[derive(Debug, Default)]
pub(super) struct StreamProgress {
    /// When the client must have taken the part that it was sent last.
    due_at: Mutex<Option<Instant>>,
}

impl StreamProgress {
    fn set_deadline(&self, due_at: Option<Instant>) {
        *self.due_at.lock().unwrap_or_else(PoisonError::into_inner) = due_at;
    }

    /// The stream that this task answers, if it is one of HTTP/2.
    pub(super) fn current() -> Option<Arc<StreamProgress>> {
        STREAM.try_with(Arc::clone).ok()
    }

    /// Answers a request on this stream.
    pub(super) async fn scope<T>(self: Arc<StreamProgress>, answering: impl Future<Output = T>) -> T {
        STREAM.scope(self, answering).await
    }

    /// Waits until the client has not taken in time what it was sent; this is looked at so often.
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

/// What a request and its response hold until the last part of the response is written.
#[derive(Debug)]
pub(super) struct StreamMemory {
    pub(super) request: MemoryLease,
    pub(super) response: MemoryLease,
}

/// A request that is being answered.
#[derive(Debug)]
pub(super) struct AnsweredRequest {
    pub(super) connection: Arc<ConnectionState>,
    pub(super) active: ActiveRequest,
    pub(super) memory: StreamMemory,
    /// How long the client may take for each part of the response.
    pub(super) stall_timeout: Duration,
}

/// A response body that its connection knows of.
#[derive(Debug)]
pub(super) struct TrackedBody {
    inner: Body,
    /// What is left of a frame that was larger than a chunk.
    rest: Bytes,
    /// It is made while it is sent: each chunk counts for itself.
    is_streamed: bool,
    memory: Arc<StreamMemory>,
    connection: Arc<ConnectionState>,
    stream: Option<Arc<StreamProgress>>,
    stall_timeout: Duration,
    _active: ActiveRequest,
}

impl TrackedBody {
    /// A body that is in memory already, which the response's lease counts.
    pub(super) fn from_buffered(inner: Body, request: AnsweredRequest) -> TrackedBody {
        TrackedBody::new(inner, false, request)
    }

    /// A body that is made while it is sent.
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

    fn next_chunk(&mut self) -> Frame<Bytes> {
        let bytes = self.rest.split_to(self.rest.len().min(CHUNK_BYTES));
        let lease = self.is_streamed.then(|| {
            let mut lease = self.memory.response.open_sibling();
            // It exists already, and there are only so many streams at once.
            lease.grow_anyway(bytes.len());
            lease
        });
        if let Some(stream) = &self.stream {
            stream.set_deadline(Some(Instant::now() + self.stall_timeout));
        }
        // A stream of HTTP/2 whose window stays closed is reset before, alone.
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
            // Who asks for more has taken what there was.
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

/// A chunk that waits to be written.
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
