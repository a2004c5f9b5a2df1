//! What all parts of the server share.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use gradus_store::Store;
use tokio::sync::Notify;

use super::admission::Admission;
use super::meters::Meters;
use super::settings::{Reloadable, Settings};

pub(super) struct Server {
    pub(super) store: Arc<Store>,
    pub(super) settings: Settings,
    reloadable: RwLock<Arc<Reloadable>>,
    pub(super) admission: Admission,
    pub(super) meters: Meters,
    /// Something came in.
    pub(super) arrived: Notify,
    /// The server is going down: it takes nothing new.
    pub(super) is_stopping: AtomicBool,
    pub(super) started: Instant,
}

impl Server {
    pub(super) fn new(store: Store, settings: Settings, reloadable: Reloadable) -> Server {
        Server {
            admission: Admission::new(settings.memory_bytes),
            store: Arc::new(store),
            settings,
            reloadable: RwLock::new(Arc::new(reloadable)),
            meters: Meters::default(),
            arrived: Notify::new(),
            is_stopping: AtomicBool::new(false),
            started: Instant::now(),
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
