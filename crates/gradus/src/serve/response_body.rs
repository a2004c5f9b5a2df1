//! Response bodies on their way to the client: in small chunks, each known to its connection until it is written, and all
//! bytes that wait counted in the memory budget. A large response waits in a file.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use http_body::{Frame, SizeHint};

use super::connection::{ActiveRequest, ConnectionState, PendingChunk};
use super::memory::{MemoryBudget, MemoryLease, MemoryUse};

/// A client takes at least this much in the time that it has for a part of a response.
const CHUNK_BYTES: usize = 64 << 10;

tokio::task_local! {
    static STREAM: Arc<StreamProgress>;
}

/// Whether the client takes what is sent on one stream of HTTP/2. Its window may stay closed while the connection is
/// fine, and then nobody asks the body for more.
#[derive(Debug, Default)]
pub(super) struct StreamProgress {
    waiting_since: Mutex<Option<Instant>>,
}

impl StreamProgress {
    fn set(&self, since: Option<Instant>) {
        *self.waiting_since.lock().unwrap_or_else(PoisonError::into_inner) = since;
    }

    /// The stream that this task answers, if it is one of HTTP/2.
    pub(super) fn current() -> Option<Arc<StreamProgress>> {
        STREAM.try_with(Arc::clone).ok()
    }

    /// Answers a request on this stream.
    pub(super) async fn scope<T>(self: Arc<StreamProgress>, answering: impl Future<Output = T>) -> T {
        STREAM.scope(self, answering).await
    }

    /// Waits until the client has taken nothing for so long.
    pub(super) async fn stalled(&self, timeout: Duration) {
        loop {
            tokio::time::sleep(timeout / 4).await;
            let since = *self.waiting_since.lock().unwrap_or_else(PoisonError::into_inner);
            if since.is_some_and(|since| since.elapsed() > timeout) {
                return;
            }
        }
    }
}

/// What a body holds in memory.
#[derive(Debug)]
enum BodyMemory {
    /// All of it from the beginning.
    Whole(Arc<MemoryLease>),
    /// It is made while it is sent: chunk by chunk.
    PerChunk { budget: MemoryBudget, client: super::client_address::ClientAddress },
}

/// A response body that its connection knows of.
#[derive(Debug)]
pub(super) struct TrackedBody {
    inner: Body,
    /// What is left of a frame that was larger than a chunk.
    rest: Bytes,
    memory: BodyMemory,
    connection: Arc<ConnectionState>,
    stream: Option<Arc<StreamProgress>>,
    _active: ActiveRequest,
}

impl TrackedBody {
    /// A body that is in memory already, which `lease` counts.
    pub(super) fn whole(
        inner: Body,
        lease: MemoryLease,
        connection: &Arc<ConnectionState>,
        active: ActiveRequest,
    ) -> TrackedBody {
        TrackedBody::new(inner, BodyMemory::Whole(Arc::new(lease)), connection, active)
    }

    /// A body that is made while it is sent.
    pub(super) fn streamed(
        inner: Body,
        budget: MemoryBudget,
        client: super::client_address::ClientAddress,
        connection: &Arc<ConnectionState>,
        active: ActiveRequest,
    ) -> TrackedBody {
        TrackedBody::new(inner, BodyMemory::PerChunk { budget, client }, connection, active)
    }

    fn new(
        inner: Body,
        memory: BodyMemory,
        connection: &Arc<ConnectionState>,
        active: ActiveRequest,
    ) -> TrackedBody {
        TrackedBody {
            inner,
            rest: Bytes::new(),
            memory,
            connection: Arc::clone(connection),
            stream: StreamProgress::current(),
            _active: active,
        }
    }

    fn next_chunk(&mut self) -> Frame<Bytes> {
        let bytes = self.rest.split_to(self.rest.len().min(CHUNK_BYTES));
        let lease = match &self.memory {
            BodyMemory::Whole(lease) => Arc::clone(lease),
            BodyMemory::PerChunk { budget, client } => {
                let mut lease = budget.open(*client, MemoryUse::Response);
                // It exists already, and there are only so many streams at once.
                lease.grow_anyway(bytes.len());
                Arc::new(lease)
            }
        };
        if let Some(stream) = &self.stream {
            stream.set(Some(Instant::now()));
        }
        let pending = self.connection.hand_out_chunk();
        Frame::data(Bytes::from_owner(TrackedChunk { bytes, _lease: lease, _pending: pending }))
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
            stream.set(None);
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
    _lease: Arc<MemoryLease>,
    _pending: PendingChunk,
}

impl AsRef<[u8]> for TrackedChunk {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}
