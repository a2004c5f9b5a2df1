//! Responses that are made while they are sent: neither side has to hold them all.

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

/// What waits to be sent, at most: one piece that is made, and these.
const PIECES: usize = 2;
const PIECE_BYTES: usize = 64 << 10;
/// How long whoever takes nothing keeps his place while others wait for a download.
const CROWDED: Duration = Duration::from_secs(5);
const STALL_CHECK: Duration = Duration::from_secs(1);

type ResponseFrame = Result<http_body::Frame<Bytes>, std::io::Error>;

/// Where an answer is written to, as fast as it is taken.
pub(super) struct ResponseSink {
    sender: mpsc::Sender<ResponseFrame>,
    piece: Vec<u8>,
    is_gone: bool,
    /// The answer ends before its end.
    is_cut: Arc<AtomicBool>,
    /// Whoever takes nothing for so long gets no more: others wait for his turn.
    stall_timeout: Duration,
    runtime: Handle,
}

impl ResponseSink {
    pub(super) fn write(&mut self, mut bytes: &[u8]) {
        // In pieces, however much comes at once: what waits to be sent stays small.
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

    /// Whether whoever asked has left.
    pub(super) fn is_gone(&self) -> bool {
        self.is_gone || self.sender.is_closed()
    }

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
                    // Whoever sleeps keeps his place only as long as nobody else wants it.
                    Err(_) if begun.elapsed() >= stall_timeout => return false,
                    Err(_) if begun.elapsed() >= CROWDED && are_downloads_waiting() => return false,
                    Err(_) => {}
                }
            }
        };
        let is_sent = without_turn(|| self.runtime.block_on(wait));
        self.is_gone = !is_sent;
    }
}

/// A body that `write` makes: a query, which is stopped when the body is not wanted any more.
pub(super) fn stream_query_body(
    queries: &QueryPool,
    permit: QueryPermit,
    stall_timeout: Duration,
    write: impl FnOnce(&mut ResponseSink) -> Result<(), StoreError> + Send + 'static,
) -> Body {
    let (sender, mut receiver) = mpsc::channel::<ResponseFrame>(PIECES);
    // Until it is complete: it may be stopped at any point, or never begin.
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
        // Whoever reads must see that this is not the end.
        Poll::Ready(None) if is_cut.swap(false, Ordering::Relaxed) => {
            Poll::Ready(Some(Err(std::io::Error::other("the answer could not be finished"))))
        }
        polled => polled,
    };
    Body::new(StreamBody::new(PollStream { poll, _running: running.ok() }))
}

/// A stream from a function that polls, and the query that it comes from.
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
