//! One target's queue and the task that empties it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::{DeliveryContext, attempt};
use crate::alert::notice::AlertNotice;
use crate::alert::target::AlertTarget;

#[derive(Debug)]
pub(super) struct DeliveryLane {
    queue: Arc<NoticeQueue>,
    task: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct NoticeQueue {
    waiting: Mutex<NoticeQueueState>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct NoticeQueueState {
    notices: VecDeque<Arc<AlertNotice>>,
    /// Whether one has been taken out and is on its way.
    is_busy: bool,
    is_closed: bool,
}

impl DeliveryLane {
    pub(super) fn start(target: AlertTarget, shared: &Arc<DeliveryContext>, runtime: &Handle) -> DeliveryLane {
        let queue = Arc::new(NoticeQueue::default());
        let task = runtime.spawn(deliver_all(target, Arc::clone(&queue), Arc::clone(shared)));
        DeliveryLane { queue, task }
    }

    /// Adds a notice; true if another had to go for it.
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

    pub(super) fn waiting_count(&self) -> usize {
        let waiting = self.queue.lock();
        waiting.notices.len() + usize::from(waiting.is_busy)
    }

    /// Lets the task end once the queue is empty.
    pub(super) fn close(&self) {
        self.queue.lock().is_closed = true;
        self.queue.changed.notify_one();
    }

    /// Waits for the task, and ends it if that takes too long; the number of notices that were left.
    pub(super) async fn finish(mut self, deadline: Instant) -> u64 {
        if tokio::time::timeout_at(deadline, &mut self.task).await.is_err() {
            self.task.abort();
            // A command that still runs is ended with it.
            let _ = (&mut self.task).await;
        }
        self.waiting_count() as u64
    }
}

/// A lane that is dropped, and not finished, leaves nothing behind.
impl Drop for DeliveryLane {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl NoticeQueue {
    fn lock(&self) -> MutexGuard<'_, NoticeQueueState> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next notice; `None` when there will be none.
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
            self.changed.notified().await;
        }
    }
}

async fn deliver_all(target: AlertTarget, queue: Arc<NoticeQueue>, shared: Arc<DeliveryContext>) {
    while let Some(notice) = queue.next().await {
        attempt::deliver_with_retries(&target, &notice, &shared).await;
    }
}
