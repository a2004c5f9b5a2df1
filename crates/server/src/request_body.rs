//! Request bodies while they arrive. Each byte counts as progress of its connection. A body that arrives too slowly for
//! its size, or whose memory others need, ends with an error.

use crate::large_arrival::ArrivingLargeBody;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use http_body::{Frame, SizeHint};
use tokio::time::Sleep;

use super::client_address::ClientAddress;
use super::connection::ConnectionState;
use super::memory::MemoryBudget;

/// Minimum size of a large body, which must keep up a minimum rate and may be cut off when memory is short.
const LARGE_BODY_BYTES: usize = 1 << 20;
/// The minimum rate of a large body in each window. Slower senders would hold memory for minutes.
const MIN_BYTES_PER_SECOND: f64 = 64.0 * 1024.0;

/// Why a body ended early.
#[derive(Debug, thiserror::Error)]
pub(super) enum BodyError {
    #[error("it took too long to arrive")]
    TooSlow,
    #[error("it was cut off, since it arrived slowly and others needed its memory")]
    CutOff,
    #[error(transparent)]
    Transport(axum::Error),
}

impl BodyError {
    /// Whether `error` was caused by a slow body. axum wraps the errors of bodies, so the cause is examined.
    pub(super) fn is_slowness(error: &axum::Error) -> bool {
        let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<BodyError>());
        matches!(cause, Some(BodyError::TooSlow | BodyError::CutOff))
    }
}

/// The state of a body that has become large.
#[derive(Debug)]
struct LargeBody {
    arrival: Arc<ArrivingLargeBody>,
    window_end: Pin<Box<Sleep>>,
    window_bytes: usize,
}

/// A body that reports to its connection and to the memory budget.
#[derive(Debug)]
pub(super) struct RequestBody<B> {
    inner: B,
    budget: MemoryBudget,
    client: ClientAddress,
    connection: Arc<ConnectionState>,
    begun_at: Instant,
    received: usize,
    rate_window: Duration,
    deadline: Option<Pin<Box<Sleep>>>,
    large: Option<LargeBody>,
}

impl<B> RequestBody<B> {
    /// A large body must keep up its rate in each `rate_window`. With a `deadline`, the whole body must arrive within
    /// it.
    pub(super) fn new(
        inner: B,
        budget: MemoryBudget,
        client: ClientAddress,
        connection: Arc<ConnectionState>,
        rate_window: Duration,
        deadline: Option<Duration>,
    ) -> RequestBody<B> {
        RequestBody {
            inner,
            budget,
            client,
            connection,
            begun_at: Instant::now(),
            received: 0,
            rate_window,
            deadline: deadline.map(|time| Box::pin(tokio::time::sleep(time))),
            large: None,
        }
    }

    /// Registers the body as large when it exceeds [`LARGE_BODY_BYTES`]. The rate is measured from then on.
    fn count_bytes(&mut self, bytes: usize) {
        self.received += bytes;
        self.connection.count_body(bytes);
        if let Some(large) = &mut self.large {
            large.arrival.add_bytes(bytes);
            large.window_bytes += bytes;
        } else if self.received > LARGE_BODY_BYTES {
            let arrival =
                Arc::new(ArrivingLargeBody { begun_at: self.begun_at, ..ArrivingLargeBody::new(self.client) });
            arrival.add_bytes(self.received);
            self.budget.begin_arrival(Arc::clone(&arrival));
            let window_end = Box::pin(tokio::time::sleep(self.rate_window));
            self.large = Some(LargeBody { arrival, window_end, window_bytes: 0 });
        }
    }

    /// Returns why the body must end now, if it must. Otherwise the task is woken when a limit may be exceeded.
    /// Called only while no data is ready.
    fn poll_limits(&mut self, context: &mut Context<'_>) -> Option<BodyError> {
        if let Some(deadline) = &mut self.deadline
            && deadline.as_mut().poll(context).is_ready()
        {
            return Some(BodyError::TooSlow);
        }
        let large = self.large.as_mut()?;
        if large.arrival.poll_cut_off(context) {
            return Some(BodyError::CutOff);
        }
        let min_bytes = MIN_BYTES_PER_SECOND * self.rate_window.as_secs_f64();
        while large.window_end.as_mut().poll(context).is_ready() {
            if (large.window_bytes as f64) < min_bytes {
                return Some(BodyError::TooSlow);
            }
            large.window_bytes = 0;
            large.window_end.as_mut().reset(tokio::time::Instant::now() + self.rate_window);
        }
        None
    }
}

impl<B> http_body::Body for RequestBody<B>
where
    B: http_body::Body<Data = Bytes> + Unpin,
    B::Error: Into<axum::BoxError>,
{
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match Pin::new(&mut self.inner).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => {
                self.count_bytes(frame.data_ref().map_or(0, Bytes::len));
                if self.large.as_ref().is_some_and(|large| large.arrival.is_cut_off()) {
                    return Poll::Ready(Some(Err(BodyError::CutOff)));
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(BodyError::Transport(axum::Error::new(error))))),
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => match self.poll_limits(context) {
                Some(error) => Poll::Ready(Some(Err(error))),
                None => Poll::Pending,
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl<B> Drop for RequestBody<B> {
    fn drop(&mut self) {
        if let Some(large) = &self.large {
            self.budget.end_arrival(&large.arrival);
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    const WINDOW: Duration = Duration::from_secs(10);

    /// Parts that come at intervals, and then nothing.
    struct PacedBody {
        part: Bytes,
        left: usize,
        interval: Duration,
        next_at: Pin<Box<Sleep>>,
    }

    impl http_body::Body for PacedBody {
        type Data = Bytes;
        type Error = std::io::Error;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<Option<std::io::Result<Frame<Bytes>>>> {
            std::task::ready!(self.next_at.as_mut().poll(context));
            if self.left == 0 {
                return Poll::Pending;
            }
            self.left -= 1;
            let next_at = tokio::time::Instant::now() + self.interval;
            self.next_at.as_mut().reset(next_at);
            Poll::Ready(Some(Ok(Frame::data(self.part.clone()))))
        }
    }

    fn body(
        budget: &MemoryBudget,
        part_bytes: usize,
        parts: usize,
        interval: Duration,
        deadline: Option<Duration>,
    ) -> RequestBody<PacedBody> {
        let peer = ([127, 0, 0, 1], 1).into();
        let inner = PacedBody {
            part: vec![0; part_bytes].into(),
            left: parts,
            interval,
            next_at: Box::pin(tokio::time::sleep(Duration::ZERO)),
        };
        let connection = Arc::new(ConnectionState::new(peer, None));
        RequestBody::new(inner, budget.clone(), connection.address, connection, WINDOW, deadline)
    }

    /// Reads to the error at the end; how many bytes there were.
    async fn read(body: RequestBody<PacedBody>) -> (usize, BodyError) {
        let mut body = body;
        let mut bytes = 0;
        loop {
            match body.frame().await.expect("a frame") {
                Ok(frame) => bytes += frame.data_ref().map_or(0, Bytes::len),
                Err(error) => return (bytes, error),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_large_body_keeps_up_a_rate() {
        let budget = MemoryBudget::new(1 << 20, 1 << 20);
        let second = Duration::from_secs(1);
        // 32 KB a second: dropped in the first window after it is large. 1 MB takes 32 s.
        let (bytes, error) = read(body(&budget, 32 << 10, 1000, second, None)).await;
        assert!(matches!(error, BodyError::TooSlow) && bytes < (2 << 20), "{bytes} {error}");
        // 128 KB a second: all of it arrives.
        let (bytes, error) = read(body(&budget, 128 << 10, 100, second, None)).await;
        assert!(matches!(error, BodyError::TooSlow) && bytes == 100 * (128 << 10), "{bytes} {error}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_small_body_may_be_slow_unless_anybody_may_send_it() {
        let budget = MemoryBudget::new(1 << 20, 1 << 20);
        let second = Duration::from_secs(1);
        let waiting = tokio::time::timeout(Duration::from_secs(1000), read(body(&budget, 1, 100, second, None)));
        assert!(waiting.await.is_err(), "its own time limit is elsewhere");
        let (bytes, error) = read(body(&budget, 1, 100, second, Some(5 * second))).await;
        assert!(matches!(error, BodyError::TooSlow) && bytes <= 6, "{bytes} {error}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_is_cut_off_ends_while_nothing_arrives() {
        let budget = MemoryBudget::new(1 << 20, 1 << 20);
        let second = Duration::from_secs(1);
        let reading = tokio::spawn(read(body(&budget, (1 << 20) + 1, 1, second, None)));
        // A small client finds no memory.
        let client = |last: u8| ClientAddress::from_ip([127, 0, 0, last].into());
        let mut all = budget.open_lease(client(1), super::super::memory::MemoryUse::Request);
        all.grow_anyway(1 << 20);
        let mut small = budget.open_lease(client(2), super::super::memory::MemoryUse::Request);
        tokio::task::yield_now().await;
        assert!(small.grow_patiently(100).await.is_err());
        let (bytes, error) = reading.await.expect("no panic");
        assert!(matches!(error, BodyError::CutOff), "{bytes} {error}");
        let error = axum::Error::new(error);
        assert!(BodyError::is_slowness(&error));
    }
}
