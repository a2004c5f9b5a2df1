//! Answers that are made while they are sent: neither side has to hold them all, and a reader that falls asleep does not
//! hold up the others for ever.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use gradus_store::StoreError;
use http_body_util::StreamBody;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

/// What waits to be sent, at most: pieces of some hundred kilobytes.
const PIECES: usize = 4;
const PIECE_BYTES: usize = 128 << 10;
/// A reader that takes nothing for this long is gone.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

type Piece = Result<http_body::Frame<Bytes>, std::io::Error>;

/// Where an answer is written to, as fast as it is taken.
pub(super) struct Sink {
    sender: mpsc::Sender<Piece>,
    runtime: Handle,
    piece: Vec<u8>,
    is_gone: bool,
}

impl Sink {
    pub(super) fn write(&mut self, bytes: &[u8]) {
        self.piece.extend_from_slice(bytes);
        if self.piece.len() >= PIECE_BYTES {
            self.flush();
        }
    }

    /// Whether whoever asked has left.
    pub(super) fn is_gone(&self) -> bool {
        self.is_gone
    }

    pub(super) fn flush(&mut self) {
        let full = std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE_BYTES));
        if !full.is_empty() {
            self.put(Ok(http_body::Frame::data(full.into())));
        }
    }

    fn put(&mut self, piece: Piece) {
        if !self.is_gone {
            let sent = self
                .runtime
                .block_on(async { tokio::time::timeout(LONGEST_PAUSE, self.sender.send(piece)).await });
            self.is_gone = !matches!(sent, Ok(Ok(())));
        }
    }
}

/// A body that `write` makes, on a thread of its own.
pub(super) fn body(write: impl FnOnce(&mut Sink) -> Result<(), StoreError> + Send + 'static) -> Body {
    let (sender, mut receiver) = mpsc::channel::<Piece>(PIECES);
    let runtime = Handle::current();
    tokio::task::spawn_blocking(move || {
        let mut sink = Sink { sender, runtime, piece: Vec::new(), is_gone: false };
        match write(&mut sink) {
            Ok(()) => sink.flush(),
            Err(error) => {
                // Whoever reads must see that this is not the end.
                tracing::error!(%error, "spans could not be read");
                sink.put(Err(std::io::Error::other(error.to_string())));
            }
        }
    });
    Body::new(StreamBody::new(PollStream(move |context: &mut Context<'_>| receiver.poll_recv(context))))
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
