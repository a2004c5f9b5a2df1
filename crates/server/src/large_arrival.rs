//! A large request body that is still arriving, shared by the body and the memory budget.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Waker};
use std::time::Instant;

use super::client_address::ClientAddress;

/// The memory budget compares the rates of these and cuts off the slowest when small clients find no memory.
#[derive(Debug)]
pub(super) struct ArrivingLargeBody {
    pub(super) client: ClientAddress,
    pub(super) begun_at: Instant,
    pub(super) bytes: AtomicUsize,
    pub(super) is_cut_off: AtomicBool,
    pub(super) waker: Mutex<Option<Waker>>,
}

impl ArrivingLargeBody {
    pub(super) fn new(client: ClientAddress) -> ArrivingLargeBody {
        ArrivingLargeBody {
            client,
            begun_at: Instant::now(),
            bytes: AtomicUsize::new(0),
            is_cut_off: AtomicBool::new(false),
            waker: Mutex::new(None),
        }
    }

    pub(super) fn add_bytes(&self, count: usize) {
        self.bytes.fetch_add(count, Ordering::Relaxed);
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns the average rate since the body began. The body with the lowest rate is cut off first.
    pub(super) fn bytes_per_second(&self, now: Instant) -> f64 {
        let seconds = now.saturating_duration_since(self.begun_at).as_secs_f64();
        self.bytes() as f64 / seconds.max(0.001)
    }

    /// Ends the body with an error. Its memory is released soon after, when the handler returns.
    pub(super) fn cut_off(&self) {
        self.is_cut_off.store(true, Ordering::Release);
        if let Some(waker) = self.waker.lock().unwrap_or_else(PoisonError::into_inner).take() {
            waker.wake();
        }
    }

    pub(super) fn is_cut_off(&self) -> bool {
        self.is_cut_off.load(Ordering::Acquire)
    }

    /// As `is_cut_off`, and registers the task to be woken by [`ArrivingLargeBody::cut_off`]. The waker is stored before the
    /// flag is read, so that a call in between is not missed.
    pub(super) fn poll_cut_off(&self, context: &Context<'_>) -> bool {
        *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(context.waker().clone());
        self.is_cut_off()
    }
}
