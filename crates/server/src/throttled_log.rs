//! Log lines about what happens often.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What happens often, told now and then, and then how often it was.
#[derive(Debug, Default)]
pub(super) struct ThrottledLog {
    /// When it was told last. By the clock that nobody sets: else nothing would be told for as long as one was set back.
    pub(super) told: Mutex<Option<Instant>>,
    pub(super) untold: AtomicU64,
}

impl ThrottledLog {
    const PAUSE: Duration = Duration::from_secs(10);

    /// How often it happened since it was told, if it is to be told now.
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
