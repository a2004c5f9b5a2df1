//! Throttling of log lines about frequent events.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// One kind of event. It is logged at most every ten seconds, with the number of occurrences since the last line.
#[derive(Debug, Default)]
pub(super) struct ThrottledLog {
    /// When it was last logged. Monotonic, because with the wall clock nothing would be logged after the clock is set
    /// back.
    pub(super) logged_at: Mutex<Option<Instant>>,
    pub(super) unlogged_count: AtomicU64,
}

impl ThrottledLog {
    /// Minimum time between two lines of the same kind.
    const MIN_LOG_INTERVAL: Duration = Duration::from_secs(10);

    /// Counts an occurrence. Returns the count since the last line if a line is to be logged now.
    pub(super) fn record_occurrence(&self) -> Option<u64> {
        self.unlogged_count.fetch_add(1, Ordering::Relaxed);
        let mut logged_at = self.logged_at.lock().unwrap_or_else(PoisonError::into_inner);
        if logged_at.is_some_and(|logged_at| logged_at.elapsed() < Self::MIN_LOG_INTERVAL) {
            return None;
        }
        *logged_at = Some(Instant::now());
        Some(self.unlogged_count.swap(0, Ordering::Relaxed))
    }
}
