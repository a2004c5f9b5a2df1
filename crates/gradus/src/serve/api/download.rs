//! Sends what a project holds, page by page, as fast as it is taken and no faster: neither side has to hold it all, and
//! readers that fall asleep do not hold up the others.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use gradus_store::{ProjectPosition, Story};
use http_body_util::StreamBody;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::error::ApiError;
use crate::serve::state::Server;

/// What waits to be sent, at most: pages of some hundred kilobytes.
const PIECES: usize = 4;
const PIECE_BYTES: usize = 128 << 10;
/// A reader that takes nothing for this long is gone.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

type Piece = Result<http_body::Frame<Bytes>, std::io::Error>;

/// Sends `head`, and then what `write` makes of each page.
pub(super) fn of_project(
    server: Arc<Server>,
    project: String,
    head: Vec<u8>,
    write: impl Fn(&Story, &mut dyn FnMut(&[u8])) + Send + 'static,
) -> Result<Body, ApiError> {
    // A download keeps one of the threads that all readers share.
    let turn = Arc::clone(&server.downloads).try_acquire_owned().map_err(|_| {
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "too many downloads are under way; try again later")
    })?;
    let (sender, mut receiver) = mpsc::channel::<Piece>(PIECES);
    let mut sending = Sending { sender, runtime: Handle::current(), is_gone: false };
    tokio::task::spawn_blocking(move || {
        let _turn = turn;
        if !head.is_empty() {
            sending.send(head);
        }
        let mut after: Option<ProjectPosition> = None;
        while !sending.is_gone {
            let (page, last) = match server.store.project_page(&project, after) {
                Ok(Some(found)) => found,
                Ok(None) => return,
                Err(error) => {
                    // Whoever reads must see that this is not the end.
                    tracing::error!(%error, "spans could not be read");
                    sending.put(Err(std::io::Error::other(error.to_string())));
                    return;
                }
            };
            let mut piece = Vec::with_capacity(PIECE_BYTES);
            write(&page, &mut |bytes| {
                piece.extend_from_slice(bytes);
                if piece.len() >= PIECE_BYTES {
                    sending.send(std::mem::replace(&mut piece, Vec::with_capacity(PIECE_BYTES)));
                }
            });
            sending.send(piece);
            after = Some(last);
        }
    });
    let poll = PollStream(move |context: &mut Context<'_>| receiver.poll_recv(context));
    Ok(Body::new(StreamBody::new(poll)))
}

struct Sending {
    sender: mpsc::Sender<Piece>,
    runtime: Handle,
    is_gone: bool,
}

impl Sending {
    fn send(&mut self, bytes: Vec<u8>) {
        self.put(Ok(http_body::Frame::data(bytes.into())));
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
