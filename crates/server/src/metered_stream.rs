//! A socket that counts its bytes. A connection that sends much and asks for nothing is closed: HTTP/2 has frames that
//! need no answer and still cost the server work. A connection that sends much at once yields to others.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::connection::{ConnectionCloseReason, ConnectionState};
use super::state::ServerState;

/// Maximum number of bytes that are read before the task yields, so that one fast sender does not starve the other
/// connections of its thread.
const MAX_BURST_BYTES: usize = 64 << 10;

/// Wraps the socket below hyper, so that also bytes that hyper discards are counted.
pub(super) struct MeteredStream {
    inner: TcpStream,
    connection: Arc<ConnectionState>,
    server: Arc<ServerState>,
    /// Bytes read since the socket was last empty or the task last yielded.
    burst: usize,
}

impl MeteredStream {
    pub(super) fn new(inner: TcpStream, connection: Arc<ConnectionState>, server: Arc<ServerState>) -> MeteredStream {
        MeteredStream { inner, connection, server, burst: 0 }
    }
}

impl AsyncRead for MeteredStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        if self.burst >= MAX_BURST_BYTES {
            self.burst = 0;
            // Pending with an immediate wake puts the task at the end of the run queue.
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(context, buffer);
        match &polled {
            Poll::Pending => self.burst = 0,
            Poll::Ready(_) => {
                let count = buffer.filled().len() - before;
                self.burst += count;
                // Closing is asynchronous: the connection's task sees the request at its next turn.
                if self.connection.count_received(count) {
                    self.server.connections.close(&self.connection, ConnectionCloseReason::Flood);
                }
            }
        }
        polled
    }
}

impl AsyncWrite for MeteredStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write(context, bytes);
        if let Poll::Ready(Ok(count)) = &polled {
            self.connection.count_written(*count);
        }
        polled
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write_vectored(context, bytes);
        if let Poll::Ready(Ok(count)) = &polled {
            self.connection.count_written(*count);
        }
        polled
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}
