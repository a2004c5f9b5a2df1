//! Responses that are streamed while a query finds them, so that neither side holds all of it.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use gradus_store::{QueryStop, StoreError};
use http_body_util::StreamBody;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::logging::report_store_failure;
use super::queries::{CancelOnDrop, QueryPermit, QueryPool, are_downloads_waiting, without_turn};

/// Maximum number of pieces that wait to be sent, in addition to the one that is being filled.
const MAX_WAITING_PIECES: usize = 2;
/// Size of one piece. Larger pieces would hold more memory for each client that reads slowly.
const PIECE_BYTES: usize = 64 << 10;
/// Stall timeout while another download waits for the slot.
const CROWDED_STALL_TIMEOUT: Duration = Duration::from_secs(5);
/// How often a stalled send checks whether others wait.
const STALL_CHECK: Duration = Duration::from_secs(1);

type ResponseFrame = Result<http_body::Frame<Bytes>, std::io::Error>;

/// Where a query writes its response. Writing blocks when the client reads slowly (backpressure).
pub(super) struct ResponseSink {
    sender: mpsc::Sender<ResponseFrame>,
    piece: Vec<u8>,
    is_gone: bool,
    /// The response is incomplete, and its body must end with an error.
    is_cut: Arc<AtomicBool>,
    /// A client that reads nothing for this long is cut off.
    stall_timeout: Duration,
    runtime: Handle,
}

impl ResponseSink {
    /// Does nothing after the client has left. Long loops should check [`ResponseSink::is_gone`].
    pub(super) fn write(&mut self, mut bytes: &[u8]) {
        // Split into pieces, so that few bytes wait to be sent however many are written at once.
        while self.piece.len() + bytes.len() >= PIECE_BYTES && !self.is_gone {
            let (part, rest) = bytes.split_at(PIECE_BYTES.saturating_sub(self.piece.len()).min(bytes.len()));
            self.piece.extend_from_slice(part);
            self.flush();
            bytes = rest;
        }
        if !self.is_gone {
            self.piece.extend_from_slice(bytes);
        }
    }

    /// Whether the client has disconnected or was cut off.
    pub(super) fn is_gone(&self) -> bool {
        self.is_gone || self.sender.is_closed()
    }

    /// Sends the current piece. The query gives up its turn while it waits for the client.
    pub(super) fn flush(&mut self) {
        let full = std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE_BYTES));
        if self.is_gone || full.is_empty() {
            return;
        }
        let sending = self.sender.send(Ok(http_body::Frame::data(full.into())));
        let stall_timeout = self.stall_timeout;
        let wait = async {
            let mut sending = std::pin::pin!(sending);
            let begun = Instant::now();
            loop {
                match tokio::time::timeout(STALL_CHECK.min(stall_timeout), sending.as_mut()).await {
                    Ok(sent) => return sent.is_ok(),
                    // A client that does not read keeps its slot only while nobody else needs it.
                    Err(_) if begun.elapsed() >= stall_timeout => return false,
                    Err(_) if begun.elapsed() >= CROWDED_STALL_TIMEOUT && are_downloads_waiting() => return false,
                    Err(_) => {}
                }
            }
        };
        let is_sent = without_turn(|| self.runtime.block_on(wait));
        self.is_gone = !is_sent;
    }
}

/// Returns a body that `write` produces on a query thread. Dropping the body stops the query. Errors after the first
/// byte cannot change the status, so the body ends with an error instead, and the client sees an incomplete transfer.
pub(super) fn stream_query_body(
    queries: &QueryPool,
    permit: QueryPermit,
    stall_timeout: Duration,
    write: impl FnOnce(&mut ResponseSink) -> Result<(), StoreError> + Send + 'static,
) -> Body {
    let (sender, mut receiver) = mpsc::channel::<ResponseFrame>(MAX_WAITING_PIECES);
    // True until the response is complete: the query may be stopped at any point, or never start.
    let is_cut = Arc::new(AtomicBool::new(true));
    let mut sink = ResponseSink {
        sender,
        piece: Vec::new(),
        is_gone: false,
        is_cut: Arc::clone(&is_cut),
        stall_timeout,
        runtime: Handle::current(),
    };
    let running = queries.spawn(permit, move || match write(&mut sink) {
        Ok(()) => {
            sink.flush();
            sink.is_cut.store(sink.is_gone, Ordering::Relaxed);
        }
        Err(StoreError::Stopped(QueryStop::Cancelled)) => {}
        Err(error @ StoreError::Stopped(_)) => tracing::warn!(%error, "a download was aborted"),
        Err(error) => report_store_failure(&error),
    });
    if let Err(error) = &running {
        tracing::error!(%error, "failed to start a download");
    }
    let poll = move |context: &mut Context<'_>| match receiver.poll_recv(context) {
        // A clean end would make an incomplete response look complete.
        Poll::Ready(None) if is_cut.swap(false, Ordering::Relaxed) => {
            Poll::Ready(Some(Err(std::io::Error::other("the answer could not be finished"))))
        }
        polled => polled,
    };
    Body::new(StreamBody::new(PollStream { poll, _running: running.ok() }))
}

/// A stream from a polling function. It owns the guard of its query.
struct PollStream<F> {
    poll: F,
    _running: Option<CancelOnDrop>,
}

impl<F> futures_core::Stream for PollStream<F>
where
    F: FnMut(&mut Context<'_>) -> Poll<Option<ResponseFrame>> + Unpin,
{
    type Item = ResponseFrame;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<ResponseFrame>> {
        (self.poll)(context)
    }
}
