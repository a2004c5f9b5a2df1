//! Settling: a client that has sent everything asks the server to assemble and judge it now, without waiting for more
//! spans. Tests and notebooks use it, because they know when their agent has finished.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::Thread;

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::settings::ServerSettings;

/// Requests that wait until the ready queue is empty. While a request waits, every trace group counts as complete.
#[derive(Debug, Default)]
pub(crate) struct SettleRequests {
    pending: AtomicUsize,
    /// The assembly threads, which sleep while no group is ready. Empty until they have started.
    assemblers: OnceLock<Vec<Thread>>,
    /// Notified when groups were assembled or quarantined.
    progress: Notify,
}

impl SettleRequests {
    /// Counts a request until the guard is dropped, also when its client goes away.
    pub(crate) fn begin_request(&self) -> PendingSettle<'_> {
        self.pending.fetch_add(1, Ordering::Relaxed);
        PendingSettle { requests: self }
    }

    /// Wakes the requests that wait. Called when groups were assembled or quarantined.
    pub(crate) fn notify_progress(&self) {
        self.progress.notify_waiters();
    }

    /// Completes at the first progress after it was created: create it before checking the queue, so that none is
    /// missed.
    pub(crate) fn next_progress(&self) -> Notified<'_> {
        self.progress.notified()
    }

    pub(crate) fn has_pending(&self) -> bool {
        self.pending.load(Ordering::Relaxed) > 0
    }

    /// Returns how long trace groups wait for more spans: with an ended root, and without one. Nothing waits while a
    /// request is pending.
    pub(crate) fn completion_waits_ns(&self, settings: &ServerSettings) -> (i64, i64) {
        if self.has_pending() {
            return (0, 0);
        }
        // A trace without an ended root never becomes ready earlier than one with it.
        let give_up = settings.give_up.max(settings.quiet);
        (settings.quiet.as_nanos() as i64, give_up.as_nanos() as i64)
    }

    /// Called once, when the assembly threads have started.
    pub(crate) fn set_assemblers(&self, threads: &[Thread]) {
        let _ = self.assemblers.set(threads.to_vec());
    }

    /// Ends the sleep of the assembly threads. One that is awake skips its next sleep, so no group is missed.
    pub(crate) fn wake_assemblers(&self) {
        self.assemblers.get().into_iter().flatten().for_each(Thread::unpark);
    }
}

/// One request that waits.
#[derive(Debug)]
pub(crate) struct PendingSettle<'r> {
    requests: &'r SettleRequests,
}

impl Drop for PendingSettle<'_> {
    fn drop(&mut self) {
        self.requests.pending.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::SettleRequests;

    #[test]
    fn requests_are_pending_until_their_guard_is_dropped() {
        let requests = SettleRequests::default();
        assert!(!requests.has_pending());
        let (first, second) = (requests.begin_request(), requests.begin_request());
        drop(first);
        assert!(requests.has_pending());
        drop(second);
        assert!(!requests.has_pending());
    }

    #[tokio::test]
    async fn progress_between_looking_and_waiting_is_not_missed() {
        let requests = SettleRequests::default();
        let progress = requests.next_progress();
        requests.notify_progress();
        // Without the notification this would not return.
        progress.await;
    }

    #[test]
    fn a_woken_thread_skips_its_next_sleep() {
        let requests = SettleRequests::default();
        // Before the threads have started there is nobody to wake.
        requests.wake_assemblers();
        requests.set_assemblers(&[std::thread::current()]);
        requests.wake_assemblers();
        // Without the wake-up this would not return.
        std::thread::park();
    }
}
