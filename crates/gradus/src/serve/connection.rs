//! One connection as limits see it: whether it is idle, whether it has shown a key, and which response bytes were handed to
//! it and not yet written.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::client_address::ClientAddress;

/// Why the server closes a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum CloseReason {
    /// It sent no request in the time for that.
    NoRequest,
    /// Nothing was asked for too long.
    Idle,
    /// The client did not read its response.
    Stalled,
    /// Others needed its place.
    Evicted,
}

impl CloseReason {
    pub(super) const ALL: [CloseReason; 4] =
        [CloseReason::NoRequest, CloseReason::Idle, CloseReason::Stalled, CloseReason::Evicted];

    pub(super) fn name(self) -> &'static str {
        match self {
            CloseReason::NoRequest => "no_request",
            CloseReason::Idle => "idle",
            CloseReason::Stalled => "stalled",
            CloseReason::Evicted => "evicted",
        }
    }
}

/// Why a connection is there for health checks and keys only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Restriction {
    /// Its address has all the places that one may have.
    Address,
    /// All places are taken.
    Total,
}

/// How long clients may take.
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

#[derive(Debug)]
pub(super) struct ConnectionState {
    pub(super) peer: SocketAddr,
    pub(super) address: ClientAddress,
    opened_at: Instant,
    /// Milliseconds after it was opened.
    last_active_ms: AtomicU64,
    active_requests: AtomicUsize,
    has_asked: AtomicBool,
    is_keyed: AtomicBool,
    /// It came when its address, or everybody together, had no place left: it is there for health checks and for whoever
    /// shows a key.
    restriction: Option<Restriction>,
    pending: Mutex<PendingChunks>,
    close_reason: Mutex<Option<CloseReason>>,
    closing: Notify,
}

/// Parts of responses that are not written yet, oldest first.
#[derive(Debug, Default)]
struct PendingChunks {
    next: u64,
    handed_out: BTreeMap<u64, Instant>,
}

impl ConnectionState {
    pub(super) fn new(peer: SocketAddr, restriction: Option<Restriction>) -> ConnectionState {
        ConnectionState {
            peer,
            address: ClientAddress::from_ip(peer.ip()),
            opened_at: Instant::now(),
            last_active_ms: AtomicU64::new(0),
            active_requests: AtomicUsize::new(0),
            has_asked: AtomicBool::new(false),
            is_keyed: AtomicBool::new(false),
            restriction,
            pending: Mutex::default(),
            close_reason: Mutex::new(None),
            closing: Notify::new(),
        }
    }

    /// A request has come; it is over when what is returned is dropped.
    pub(super) fn begin_request(self: &Arc<ConnectionState>) -> ActiveRequest {
        self.has_asked.store(true, Ordering::Relaxed);
        self.active_requests.fetch_add(1, Ordering::Relaxed);
        ActiveRequest { connection: Arc::clone(self) }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.active_requests.load(Ordering::Relaxed) == 0
    }

    pub(super) fn last_active(&self) -> Instant {
        self.opened_at + Duration::from_millis(self.last_active_ms.load(Ordering::Relaxed))
    }

    /// It has shown a valid key: it may use all places.
    pub(super) fn mark_keyed(&self) {
        self.is_keyed.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_keyed(&self) -> bool {
        self.is_keyed.load(Ordering::Relaxed)
    }

    /// Why requests without a key are refused on it, if they are.
    pub(super) fn restriction(&self) -> Option<Restriction> {
        self.restriction.filter(|_| !self.is_keyed())
    }

    /// A part of a response is handed out; it is written when what is returned is dropped.
    pub(super) fn hand_out_chunk(self: &Arc<ConnectionState>) -> PendingChunk {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        let number = pending.next;
        pending.next += 1;
        pending.handed_out.insert(number, Instant::now());
        PendingChunk { connection: Arc::clone(self), number }
    }

    fn oldest_chunk(&self) -> Option<Instant> {
        let pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        pending.handed_out.first_key_value().map(|(_, at)| *at)
    }

    /// Why this connection has to go now, if it has.
    pub(super) fn overdue(&self, now: Instant, timeouts: &ConnectionTimeouts) -> Option<CloseReason> {
        let since = |at: Instant| now.saturating_duration_since(at);
        // A stream of HTTP/2 whose window stays closed is reset before, alone.
        if self.oldest_chunk().is_some_and(|at| since(at) > 2 * timeouts.stall) {
            return Some(CloseReason::Stalled);
        }
        if !self.is_idle() {
            return None;
        }
        if !self.has_asked.load(Ordering::Relaxed) {
            return (since(self.opened_at) > timeouts.header).then_some(CloseReason::NoRequest);
        }
        (since(self.last_active()) > timeouts.idle).then_some(CloseReason::Idle)
    }

    /// Asks the connection's task to close it; false if that was done before.
    pub(super) fn close(&self, reason: CloseReason) -> bool {
        let mut known = self.close_reason.lock().unwrap_or_else(PoisonError::into_inner);
        if known.is_some() {
            return false;
        }
        *known = Some(reason);
        self.closing.notify_one();
        true
    }

    pub(super) fn is_closing(&self) -> bool {
        self.close_reason.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Waits until the connection has to be closed.
    pub(super) async fn close_requested(&self) -> CloseReason {
        loop {
            if let Some(reason) = *self.close_reason.lock().unwrap_or_else(PoisonError::into_inner) {
                return reason;
            }
            self.closing.notified().await;
        }
    }
}

/// A request under way, its response included.
#[derive(Debug)]
pub(super) struct ActiveRequest {
    connection: Arc<ConnectionState>,
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        let now_ms = self.connection.opened_at.elapsed().as_millis() as u64;
        self.connection.last_active_ms.fetch_max(now_ms, Ordering::Relaxed);
        self.connection.active_requests.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A part of a response that waits to be written.
#[derive(Debug)]
pub(super) struct PendingChunk {
    connection: Arc<ConnectionState>,
    number: u64,
}

impl Drop for PendingChunk {
    fn drop(&mut self) {
        let mut pending = self.connection.pending.lock().unwrap_or_else(PoisonError::into_inner);
        pending.handed_out.remove(&self.number);
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
            |seconds: u64| connection.overdue(Instant::now() + Duration::from_secs(seconds), &timeouts());
        assert_eq!((after(9), after(11)), (None, Some(CloseReason::NoRequest)));
        let request = connection.begin_request();
        assert_eq!(after(1000), None);
        let chunk = connection.hand_out_chunk();
        assert_eq!((after(59), after(61)), (None, Some(CloseReason::Stalled)));
        drop(chunk);
        assert_eq!(after(1000), None);
        drop(request);
        assert_eq!((after(59), after(61)), (None, Some(CloseReason::Idle)));
    }
}
