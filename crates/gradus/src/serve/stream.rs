//! Responses that are made while they are sent: neither side has to hold them all.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use gradus_store::StoreError;
use http_body_util::StreamBody;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

/// What waits to be sent, at most: one piece that is made, and these.
const PIECES: usize = 2;
const PIECE_BYTES: usize = 64 << 10;

type Piece = Result<http_body::Frame<Bytes>, std::io::Error>;

/// Where an answer is written to, as fast as it is taken.
pub(super) struct Sink {
    sender: mpsc::Sender<Piece>,
    piece: Vec<u8>,
    is_gone: bool,
    /// The answer ends before its end.
    is_cut: Arc<AtomicBool>,
    /// Whoever takes nothing for so long gets no more: others wait for his turn.
    stall_timeout: Duration,
    runtime: Handle,
}

impl Sink {
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
        // Made inside of the runtime, where its clock is.
        let stall_timeout = self.stall_timeout;
        let sent = self.runtime.block_on(async { tokio::time::timeout(stall_timeout, sending).await });
        self.is_gone = !matches!(sent, Ok(Ok(())));
        if sent.is_err() {
            self.is_cut.store(true, Ordering::Relaxed);
        }
    }
}

/// A body that `write` makes, on a thread of its own.
pub(super) fn body(
    stall_timeout: Duration,
    write: impl FnOnce(&mut Sink) -> Result<(), StoreError> + Send + 'static,
) -> Body {
    let (sender, mut receiver) = mpsc::channel::<Piece>(PIECES);
    let is_cut = Arc::new(AtomicBool::new(false));
    let mut sink = Sink {
        sender,
        piece: Vec::new(),
        is_gone: false,
        is_cut: Arc::clone(&is_cut),
        stall_timeout,
        runtime: Handle::current(),
    };
    tokio::task::spawn_blocking(move || match write(&mut sink) {
        Ok(()) => sink.flush(),
        Err(error) => {
            tracing::error!(%error, "spans could not be read");
            sink.is_cut.store(true, Ordering::Relaxed);
        }
    });
    let poll = move |context: &mut Context<'_>| match receiver.poll_recv(context) {
        // Whoever reads must see that this is not the end.
        Poll::Ready(None) if is_cut.swap(false, Ordering::Relaxed) => {
            Poll::Ready(Some(Err(std::io::Error::other("the answer could not be finished"))))
        }
        polled => polled,
    };
    Body::new(StreamBody::new(PollStream(poll)))
}

/// A stream from a function that polls.
struct PollStream<F>(F);

impl<F> futures_core::Stream for PollStream<F>
where
    F: FnMut(&mut Context<'_>) -> Poll<Option<Piece>> + Unpin,
{
    type Item = Piece;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Piece>> {
        (self.0)(context)
    }
}
