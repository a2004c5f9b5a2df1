//! Throttling of log lines about frequent events.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// One kind of event. It is logged at most every ten seconds, with the number of occurrences since the last line.
#[derive(Debug, Default)]
pub(super) struct ThrottledLog {
    /// When it was last logged. Monotonic, because with the wall clock nothing would be logged after the clock is set
    /// back.
    pub(super) told: Mutex<Option<Instant>>,
    pub(super) untold: AtomicU64,
}

impl ThrottledLog {
    /// Minimum time between two lines of the same kind.
    const PAUSE: Duration = Duration::from_secs(10);

    /// Counts an occurrence. Returns the count since the last line if a line is to be logged now.
    pub(super) fn record_occurrence(&self) -> Option<u64> {
        self.untold.fetch_add(1, Ordering::Relaxed);
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.is_some_and(|told| told.elapsed() < Self::PAUSE) {
            return None;
        }
        *told = Some(Instant::now());
        Some(self.untold.swap(0, Ordering::Relaxed))
    }
}
