//! The state of one connection that limits look at: whether it is idle, when it last made progress, whether it has
//! shown a key, and which response chunks it has not written yet.
//!
//! All fields that change are atomics or short mutexes, because a connection's task, its streams and the registry
//! update them from different threads.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::client_address::ClientAddress;

/// Why the server closes a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ConnectionCloseReason {
    /// It sent no request within the header timeout.
    NoRequest,
    /// It sent no request for too long after the last one.
    Idle,
    /// The client did not read a response chunk in time.
    Stalled,
    /// It was idle, and a new connection needed its slot.
    Evicted,
    /// It had open requests but made no progress, and a new connection needed its slot.
    EvictedBusy,
    /// Too many of its streams in a row were refused for lack of memory.
    Memory,
    /// It sent far more bytes than its requests account for, such as HTTP/2 frames that need no answer.
    Flood,
}

impl ConnectionCloseReason {
    /// In the order of the discriminants: the registry indexes its counters with them.
    pub(super) const ALL: [ConnectionCloseReason; 7] = [
        ConnectionCloseReason::NoRequest,
        ConnectionCloseReason::Idle,
        ConnectionCloseReason::Stalled,
        ConnectionCloseReason::Evicted,
        ConnectionCloseReason::EvictedBusy,
        ConnectionCloseReason::Memory,
        ConnectionCloseReason::Flood,
    ];

    /// The value of the label `reason` in `/metrics`.
    pub(super) fn name(self) -> &'static str {
        match self {
            ConnectionCloseReason::NoRequest => "no_request",
            ConnectionCloseReason::Idle => "idle",
            ConnectionCloseReason::Stalled => "stalled",
            ConnectionCloseReason::Evicted => "evicted",
            ConnectionCloseReason::EvictedBusy => "evicted_busy",
            ConnectionCloseReason::Memory => "memory",
            ConnectionCloseReason::Flood => "flood",
        }
    }
}

/// Why a connection may be used only for health checks and for requests with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionRestriction {
    /// The client address has reached its limit of connections.
    Address,
    /// All slots that are open to clients without a key are in use.
    Total,
}

/// How long clients may take. Each limit guards against a client that holds a slot or memory by being slow (Slowloris).
#[derive(Clone, Copy, Debug)]
pub(super) struct ConnectionTimeouts {
    /// To send the headers of a request, and the first request of a connection.
    pub(super) header: Duration,
    /// To send a request's body.
    pub(super) body: Duration,
    /// Between requests.
    pub(super) idle: Duration,
    /// To take the next part of a response.
    pub(super) stall: Duration,
}

/// Maximum time for a request that needs no key to arrive, and for each part of its response to be read.
const MAX_KEYLESS_TIME: Duration = Duration::from_secs(5);
/// Maximum window over which the rate of a large body is measured; a third of the body timeout if that is less.
const MAX_RATE_WINDOW: Duration = Duration::from_secs(10);

impl ConnectionTimeouts {
    /// The timeouts of requests that need no key. Anyone can send them, so they are short whatever the settings say.
    pub(super) fn for_keyless(self) -> ConnectionTimeouts {
        let short = |time: Duration| time.min(MAX_KEYLESS_TIME);
        ConnectionTimeouts { body: short(self.body), stall: short(self.stall), ..self }
    }

    /// The window over which the rate of a large body is measured.
    pub(super) fn rate_window(self) -> Duration {
        (self.body / 3).min(MAX_RATE_WINDOW)
    }
}

/// Maximum number of bytes that a connection may send in addition to those of its requests: bodies that were refused,
/// and HTTP/2 frames such as PING and WINDOW_UPDATE.
const MAX_UNEXPECTED_BYTES: u64 = 4 << 20;
/// The same allowance over time, for connections that live long.
const EXPECTED_BYTES_PER_SECOND: u64 = 1 << 10;
/// Allowance for the head of a request.
const REQUEST_HEAD_BYTES: u64 = 64 << 10;
/// Allowance for the framing of one part of a body.
const FRAME_BYTES: u64 = 64;
/// Number of read response bytes for which a client may send one byte of acknowledgement (HTTP/2 window updates).
const READ_BYTES_PER_ACKNOWLEDGED: u64 = 16;

/// Shared by the connection's task, its requests, its response bodies and the registry.
#[derive(Debug)]
pub(super) struct ConnectionState {
    pub(super) peer: SocketAddr,
    pub(super) address: ClientAddress,
    opened_at: Instant,
    /// When something was received or written last, in milliseconds after the connection was opened.
    last_progress_ms: AtomicU64,
    active_requests: AtomicUsize,
    has_asked: AtomicBool,
    is_keyed: AtomicBool,
    /// Number of streams in a row that were refused for lack of memory.
    refused_streams: AtomicUsize,
    received_bytes: AtomicU64,
    /// Bytes that its requests and responses account for.
    expected_bytes: AtomicU64,
    /// Set when it was opened while its address, or all addresses together, had no slot left. A valid key lifts it.
    restriction: Option<ConnectionRestriction>,
    pending: Mutex<PendingChunks>,
    close_reason: Mutex<Option<ConnectionCloseReason>>,
    closing: Notify,
}

/// The deadlines of response chunks that were handed out and are not written yet, numbered in that order.
#[derive(Debug, Default)]
struct PendingChunks {
    next: u64,
    due_at: BTreeMap<u64, Instant>,
}

impl ConnectionState {
    pub(super) fn new(peer: SocketAddr, restriction: Option<ConnectionRestriction>) -> ConnectionState {
        ConnectionState {
            peer,
            address: ClientAddress::from_ip(peer.ip()),
            opened_at: Instant::now(),
            last_progress_ms: AtomicU64::new(0),
            active_requests: AtomicUsize::new(0),
            has_asked: AtomicBool::new(false),
            is_keyed: AtomicBool::new(false),
            refused_streams: AtomicUsize::new(0),
            received_bytes: AtomicU64::new(0),
            expected_bytes: AtomicU64::new(MAX_UNEXPECTED_BYTES),
            restriction,
            pending: Mutex::default(),
            close_reason: Mutex::new(None),
            closing: Notify::new(),
        }
    }

    /// Counts a request as active until the returned guard is dropped, which is after its last response byte.
    pub(super) fn begin_request(self: &Arc<ConnectionState>) -> ActiveRequest {
        self.has_asked.store(true, Ordering::Relaxed);
        self.active_requests.fetch_add(1, Ordering::Relaxed);
        self.expected_bytes.fetch_add(REQUEST_HEAD_BYTES, Ordering::Relaxed);
        self.mark_progress();
        ActiveRequest { connection: Arc::clone(self) }
    }

    /// Whether no request is active. An idle connection may be evicted first.
    pub(super) fn is_idle(&self) -> bool {
        self.active_requests.load(Ordering::Relaxed) == 0
    }

    /// Counts received bytes. Returns true when they exceed what the requests and responses so far account for.
    pub(super) fn count_received(&self, bytes: usize) -> bool {
        let received = self.received_bytes.fetch_add(bytes as u64, Ordering::Relaxed) + bytes as u64;
        let expected = self.expected_bytes.load(Ordering::Relaxed);
        received > expected && received > expected + self.opened_at.elapsed().as_secs() * EXPECTED_BYTES_PER_SECOND
    }

    /// Raises the allowance for received bytes: HTTP/2 clients acknowledge what they read.
    pub(super) fn count_written(&self, bytes: usize) {
        self.expected_bytes.fetch_add(bytes as u64 / READ_BYTES_PER_ACKNOWLEDGED, Ordering::Relaxed);
    }

    /// Raises the allowance by a part of a request body that a handler has read.
    pub(super) fn count_body(&self, bytes: usize) {
        self.expected_bytes.fetch_add(bytes as u64 + FRAME_BYTES, Ordering::Relaxed);
        self.mark_progress();
    }

    /// Records that bytes were received or written. Uses `fetch_max`, since threads may call it out of order.
    pub(super) fn mark_progress(&self) {
        let now_ms = self.opened_at.elapsed().as_millis() as u64;
        self.last_progress_ms.fetch_max(now_ms, Ordering::Relaxed);
    }

    /// When a byte was last received or written, with a resolution of a millisecond.
    pub(super) fn last_progress(&self) -> Instant {
        self.opened_at + Duration::from_millis(self.last_progress_ms.load(Ordering::Relaxed))
    }

    /// Records that it has shown a valid key, which lifts every restriction.
    pub(super) fn mark_keyed(&self) {
        self.is_keyed.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_keyed(&self) -> bool {
        self.is_keyed.load(Ordering::Relaxed)
    }

    /// Why requests without a key are refused on it, if they are.
    pub(super) fn restriction(&self) -> Option<ConnectionRestriction> {
        self.restriction.filter(|_| !self.is_keyed())
    }

    /// Counts a stream that was refused for lack of memory, or resets the count. Returns the number of refused
    /// streams in a row.
    pub(super) fn count_refused_stream(&self, is_refused: bool) -> usize {
        if is_refused {
            return self.refused_streams.fetch_add(1, Ordering::Relaxed) + 1;
        }
        if self.refused_streams.load(Ordering::Relaxed) > 0 {
            self.refused_streams.store(0, Ordering::Relaxed);
        }
        0
    }

    /// Registers a response chunk that must be written within `time`. It counts as written when the returned guard is
    /// dropped.
    pub(super) fn hand_out_chunk(self: &Arc<ConnectionState>, time: Duration) -> PendingChunk {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        let number = pending.next;
        pending.next += 1;
        pending.due_at.insert(number, Instant::now() + time);
        PendingChunk { connection: Arc::clone(self), number }
    }

    /// The earliest deadline. Timeouts differ between chunks, so it is not always that of the oldest one.
    fn next_chunk_due_at(&self) -> Option<Instant> {
        let pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        pending.due_at.values().min().copied()
    }

    /// The timeout that this connection has exceeded, if any. An unread response counts even while requests are active.
    pub(super) fn overdue_reason(&self, now: Instant, timeouts: &ConnectionTimeouts) -> Option<ConnectionCloseReason> {
        let since = |at: Instant| now.saturating_duration_since(at);
        if self.next_chunk_due_at().is_some_and(|due_at| now > due_at) {
            return Some(ConnectionCloseReason::Stalled);
        }
        if !self.is_idle() {
            return None;
        }
        if !self.has_asked.load(Ordering::Relaxed) {
            return (since(self.opened_at) > timeouts.header).then_some(ConnectionCloseReason::NoRequest);
        }
        (since(self.last_progress()) > timeouts.idle).then_some(ConnectionCloseReason::Idle)
    }

    /// Asks the connection's task to close it. Returns false if it was asked before: the first reason counts.
    pub(super) fn close(&self, reason: ConnectionCloseReason) -> bool {
        let mut known = self.close_reason.lock().unwrap_or_else(PoisonError::into_inner);
        if known.is_some() {
            return false;
        }
        *known = Some(reason);
        self.closing.notify_one();
        true
    }

    /// Why it is being closed, if it is.
    pub(super) fn close_reason(&self) -> Option<ConnectionCloseReason> {
        *self.close_reason.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until [`ConnectionState::close`] is called. `notify_one` stores a permit, so a call before this one is not
    /// missed.
    pub(super) async fn close_requested(&self) -> ConnectionCloseReason {
        loop {
            if let Some(reason) = self.close_reason() {
                return reason;
            }
            self.closing.notified().await;
        }
    }
}

/// An open request, its response included. Dropping it ends the request.
#[derive(Debug)]
pub(super) struct ActiveRequest {
    connection: Arc<ConnectionState>,
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.connection.mark_progress();
        self.connection.active_requests.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A response chunk that is not written yet. hyper drops it with the bytes when they are written.
#[derive(Debug)]
pub(super) struct PendingChunk {
    connection: Arc<ConnectionState>,
    number: u64,
}

impl Drop for PendingChunk {
    fn drop(&mut self) {
        self.connection.mark_progress();
        let mut pending = self.connection.pending.lock().unwrap_or_else(PoisonError::into_inner);
        pending.due_at.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timeouts() -> ConnectionTimeouts {
        let seconds = Duration::from_secs;
        ConnectionTimeouts { header: seconds(10), body: seconds(30), idle: seconds(60), stall: seconds(30) }
    }

    #[test]
    fn connections_go_when_they_are_silent_idle_or_stalled() {
        let connection = Arc::new(ConnectionState::new(([127, 0, 0, 1], 1).into(), None));
        let after =
            |seconds: u64| connection.overdue_reason(Instant::now() + Duration::from_secs(seconds), &timeouts());
        assert_eq!((after(9), after(11)), (None, Some(ConnectionCloseReason::NoRequest)));
        let request = connection.begin_request();
        assert_eq!(after(1000), None);
        let chunk = connection.hand_out_chunk(Duration::from_secs(60));
        assert_eq!((after(59), after(61)), (None, Some(ConnectionCloseReason::Stalled)));
        // The shortest time counts, whichever was handed out first.
        let short = connection.hand_out_chunk(2 * timeouts().for_keyless().stall);
        assert_eq!((after(9), after(11)), (None, Some(ConnectionCloseReason::Stalled)));
        drop((chunk, short));
        assert_eq!(after(1000), None);
        drop(request);
        assert_eq!((after(59), after(61)), (None, Some(ConnectionCloseReason::Idle)));
    }

    #[test]
    fn a_connection_that_sends_far_more_than_its_requests_need_is_closed() {
        let open = || Arc::new(ConnectionState::new(([127, 0, 0, 1], 1).into(), None));
        let honest = open();
        for _ in 0..1000 {
            let _request = honest.begin_request();
            assert!(!honest.count_received(3_000));
            assert!(!honest.count_received(1 << 20));
            honest.count_body(1 << 20);
            honest.count_written(500);
        }
        // A long download is acknowledged in many small frames.
        for _ in 0..10_000 {
            honest.count_written(32 << 10);
            assert!(!honest.count_received(26));
        }
        let flood = open();
        let _request = flood.begin_request();
        // It is answered byte by byte.
        while !flood.count_received(64 << 10) {
            flood.count_written(64 << 10);
            assert!(flood.received_bytes.load(Ordering::Relaxed) < 2 * MAX_UNEXPECTED_BYTES);
        }
    }
}
