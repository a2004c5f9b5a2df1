//! What all parts of the server share.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use gradus_store::{Store, StoreError};
use tokio::sync::Semaphore;

use super::admission::Admission;
use super::meters::Meters;
use super::settings::{Reloadable, Settings};

pub(super) struct Server {
    pub(super) store: Arc<Store>,
    pub(super) settings: Settings,
    reloadable: RwLock<Arc<Reloadable>>,
    pub(super) admission: Admission,
    pub(super) meters: Meters,
    /// Turns for taking large requests apart.
    pub(super) large_requests: Semaphore,
    /// Turns for reading through many spans.
    pub(super) scans: Arc<Semaphore>,
    /// The server is going down: it takes nothing new.
    pub(super) is_stopping: AtomicBool,
    pub(super) started: Instant,
    /// When the log said last that the store takes nothing.
    told_of_store_ns: AtomicI64,
}

impl Server {
    pub(super) fn new(store: Store, settings: Settings, reloadable: Reloadable) -> Server {
        Server {
            admission: Admission::new(settings.memory_bytes),
            store: Arc::new(store),
            settings,
            reloadable: RwLock::new(Arc::new(reloadable)),
            meters: Meters::default(),
            large_requests: Semaphore::new(2),
            scans: Arc::new(Semaphore::new(4)),
            is_stopping: AtomicBool::new(false),
            started: Instant::now(),
            told_of_store_ns: AtomicI64::new(i64::MIN),
        }
    }

    /// Says that the store takes nothing, now and then: every sender meets it.
    pub(super) fn tell_of_store(&self, error: &StoreError) {
        const EVERY_NS: i64 = 10_000_000_000;
        let (now, told) = (now_ns(), self.told_of_store_ns.load(Ordering::Relaxed));
        if now.saturating_sub(told) >= EVERY_NS {
            self.told_of_store_ns.store(now, Ordering::Relaxed);
            tracing::error!(%error, "spans cannot be stored; senders are told to try again");
        }
    }

    /// The settings that can change while the server runs.
    pub(super) fn reloadable(&self) -> Arc<Reloadable> {
        Arc::clone(&self.reloadable.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn reload(&self, reloadable: Reloadable) {
        *self.reloadable.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(reloadable);
    }
}

/// Nanoseconds since 1970.
pub(crate) fn now_ns() -> i64 {
    i64::try_from(jiff::Timestamp::now().as_nanosecond()).unwrap_or(i64::MAX)
}
