//! Whether the demo is being loaded.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::server_config::DemoLoadError;

/// At most one demo is loaded at a time.
#[derive(Debug, Default)]
pub(crate) struct DemoLoad(Mutex<DemoLoadStatus>);

/// Kept in memory only: after a restart nothing is being loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum DemoLoadStatus {
    #[default]
    NotLoaded,
    Loading,
    Loaded,
    Failed(String),
}

impl DemoLoad {
    pub(crate) fn status(&self) -> DemoLoadStatus {
        self.lock().clone()
    }

    /// Marks the demo as loading; false if it is being loaded already.
    pub(crate) fn begin(&self) -> bool {
        let mut status = self.lock();
        let is_free = *status != DemoLoadStatus::Loading;
        if is_free {
            *status = DemoLoadStatus::Loading;
        }
        is_free
    }

    pub(crate) fn end(&self, played: Result<(), DemoLoadError>) {
        *self.lock() = match played {
            Ok(()) => DemoLoadStatus::Loaded,
            Err(error) => DemoLoadStatus::Failed(error.to_string()),
        };
    }

    fn lock(&self) -> MutexGuard<'_, DemoLoadStatus> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
