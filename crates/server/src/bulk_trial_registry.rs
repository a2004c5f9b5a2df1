//! The running trial. Only one runs at a time, because trials share the judge with live grading.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;

/// The running trial, and the channel that stops it.
#[derive(Debug, Default)]
pub(crate) struct BulkTrialRegistry(Arc<Mutex<Option<RunningBulkTrial>>>);

#[derive(Debug)]
struct RunningBulkTrial {
    id: String,
    interrupt: mpsc::UnboundedSender<()>,
}

/// Frees the slot on drop, however the trial ends.
#[derive(Debug)]
pub(crate) struct BulkTrialSlot(Arc<Mutex<Option<RunningBulkTrial>>>);

impl BulkTrialRegistry {
    /// Takes the slot; `None` if another trial has it.
    pub(crate) fn begin(&self, id: &str, interrupt: mpsc::UnboundedSender<()>) -> Option<BulkTrialSlot> {
        let mut running = lock(&self.0);
        if running.is_some() {
            return None;
        }
        *running = Some(RunningBulkTrial { id: id.to_owned(), interrupt });
        Some(BulkTrialSlot(Arc::clone(&self.0)))
    }

    pub(crate) fn is_running(&self, id: &str) -> bool {
        lock(&self.0).as_ref().is_some_and(|running| running.id == id)
    }

    /// Stops a trial after the questions in flight. `false` if it does not run.
    pub(crate) fn cancel(&self, id: &str) -> bool {
        let running = lock(&self.0);
        let Some(found) = running.as_ref().filter(|running| running.id == id) else { return false };
        found.interrupt.send(()).is_ok()
    }
}

impl Drop for BulkTrialSlot {
    fn drop(&mut self) {
        *lock(&self.0) = None;
    }
}

fn lock(running: &Mutex<Option<RunningBulkTrial>>) -> MutexGuard<'_, Option<RunningBulkTrial>> {
    running.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_trial_runs_at_a_time() {
        let registry = BulkTrialRegistry::default();
        let (sender, mut receiver) = mpsc::unbounded_channel();
        let slot = registry.begin("a", sender.clone()).unwrap();
        assert!(registry.begin("b", sender.clone()).is_none());
        assert!(registry.is_running("a") && !registry.is_running("b"));
        assert!(!registry.cancel("b") && receiver.try_recv().is_err());
        assert!(registry.cancel("a") && receiver.try_recv().is_ok());
        drop(slot);
        assert!(!registry.cancel("a") && registry.begin("b", sender).is_some());
    }
}
