//! The queue of one target and the task that empties it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::{DeliveryContext, attempt};
use crate::alert::notice::AlertNotice;
use crate::alert::target::AlertTarget;

/// The task owns no handle to the lane, only to the queue; `Drop` aborts it.
#[derive(Debug)]
pub(super) struct DeliveryLane {
    queue: Arc<NoticeQueue>,
    task: JoinHandle<()>,
}

/// Bounded by `push`. `changed` is notified after every change of the state, with the lock released.
#[derive(Debug, Default)]
struct NoticeQueue {
    waiting: Mutex<NoticeQueueState>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct NoticeQueueState {
    notices: VecDeque<Arc<AlertNotice>>,
    /// Whether the task has taken a notice out of the queue and not finished it.
    is_busy: bool,
    is_closed: bool,
}

impl DeliveryLane {
    pub(super) fn start(target: AlertTarget, shared: &Arc<DeliveryContext>, runtime: &Handle) -> DeliveryLane {
        let queue = Arc::new(NoticeQueue::default());
        let task = runtime.spawn(deliver_all(target, Arc::clone(&queue), Arc::clone(shared)));
        DeliveryLane { queue, task }
    }

    /// Appends a notice and returns whether the oldest one was dropped for it. A limit of 0 counts as 1.
    pub(super) fn push(&self, notice: Arc<AlertNotice>, limit: usize) -> bool {
        let mut waiting = self.queue.lock();
        let is_full = waiting.notices.len() >= limit.max(1);
        if is_full {
            waiting.notices.pop_front();
        }
        waiting.notices.push_back(notice);
        drop(waiting);
        self.queue.changed.notify_one();
        is_full
    }

    /// Queued notices and the one that is being delivered.
    pub(super) fn waiting_count(&self) -> usize {
        let waiting = self.queue.lock();
        waiting.notices.len() + usize::from(waiting.is_busy)
    }

    /// Lets the task end after the queue is empty.
    pub(super) fn close(&self) {
        self.queue.lock().is_closed = true;
        self.queue.changed.notify_one();
    }

    /// Waits for the task until `deadline`, then aborts it. Returns the number of notices that were not delivered.
    pub(super) async fn finish(mut self, deadline: Instant) -> u64 {
        if tokio::time::timeout_at(deadline, &mut self.task).await.is_err() {
            self.task.abort();
            // Waiting for the abort drops the future of the delivery, which kills a command that still runs.
            let _ = (&mut self.task).await;
        }
        self.waiting_count() as u64
    }
}

/// A lane that is dropped without `finish` leaves no task behind.
impl Drop for DeliveryLane {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl NoticeQueue {
    fn lock(&self) -> MutexGuard<'_, NoticeQueueState> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the next notice; `None` once the queue is closed and empty.
    async fn next(&self) -> Option<Arc<AlertNotice>> {
        loop {
            {
                let mut waiting = self.lock();
                let next = waiting.notices.pop_front();
                waiting.is_busy = next.is_some();
                if next.is_some() || waiting.is_closed {
                    return next;
                }
            }
            // `notify_one` stores a permit, so a change between the unlock and this line is not missed.
            self.changed.notified().await;
        }
    }
}

async fn deliver_all(target: AlertTarget, queue: Arc<NoticeQueue>, shared: Arc<DeliveryContext>) {
    while let Some(notice) = queue.next().await {
        attempt::deliver_with_retries(&target, &notice, &shared).await;
    }
}
