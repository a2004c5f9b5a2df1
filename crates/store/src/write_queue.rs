//! The write queue. Lanes take turns, so a client with much to write delays itself and not the others (fair queueing).

use std::collections::{HashMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The lane of a write. Writes of one lane keep their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct WriteLane(u64);

impl WriteLane {
    /// For work that no client asked for.
    pub const INTERNAL: WriteLane = WriteLane(0);

    /// The lane of a client. Numbers may collide; then two clients share a lane.
    pub fn for_client(number: u64) -> WriteLane {
        WriteLane(number.max(1))
    }
}

/// The lane of one client may fill this fraction of the queue: a quarter.
const CLIENT_SHARE_DIVISOR: usize = 4;

/// Why a task is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueRefusal {
    Full,
    Closed,
}

/// Tasks by lane, bounded in bytes. One thread takes them, any number of threads add.
pub(crate) struct WriteQueue<T> {
    state: Mutex<WriteQueueState<T>>,
    changed: Condvar,
    max_bytes: usize,
}

/// The state under the lock.
struct WriteQueueState<T> {
    lanes: HashMap<WriteLane, LaneTasks<T>>,
    /// Lanes with tasks, in the order of their turns.
    turns: VecDeque<WriteLane>,
    bytes: usize,
    /// When the queue was closed: the time until which waiting tasks are still handed out.
    ends_at: Option<Instant>,
}

/// Tasks of one lane with their bytes.
struct LaneTasks<T> {
    tasks: VecDeque<(usize, T)>,
    bytes: usize,
}

impl<T> WriteQueue<T> {
    /// A queue for about `max_bytes`.
    pub(crate) fn new(max_bytes: usize) -> WriteQueue<T> {
        let state = WriteQueueState { lanes: HashMap::new(), turns: VecDeque::new(), bytes: 0, ends_at: None };
        WriteQueue { state: Mutex::new(state), changed: Condvar::new(), max_bytes }
    }

    /// A panic of another thread must not close the store, so a poisoned lock is used as it is.
    fn lock(&self) -> MutexGuard<'_, WriteQueueState<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a task with this many bytes. A single task is never too large for an empty lane, so no request is refused
    /// forever.
    pub(crate) fn push(&self, lane: WriteLane, bytes: usize, task: T) -> Result<(), QueueRefusal> {
        let mut state = self.lock();
        if state.ends_at.is_some() {
            return Err(QueueRefusal::Closed);
        }
        let in_lane = state.lanes.get(&lane).map_or(0, |waiting| waiting.bytes);
        let lane_limit =
            if lane == WriteLane::INTERNAL { self.max_bytes } else { self.max_bytes / CLIENT_SHARE_DIVISOR };
        let is_lane_full = in_lane > 0 && in_lane + bytes > lane_limit;
        let is_full = state.bytes > 0 && in_lane > 0 && state.bytes + bytes > self.max_bytes;
        // An empty lane may exceed the limit, so that one client cannot lock others out, but only up to twice the
        // limit.
        if is_lane_full || is_full || state.bytes > 2 * self.max_bytes {
            return Err(QueueRefusal::Full);
        }
        let WriteQueueState { lanes, turns, .. } = &mut *state;
        let waiting = lanes.entry(lane).or_insert_with(|| {
            turns.push_back(lane);
            LaneTasks { tasks: VecDeque::new(), bytes: 0 }
        });
        waiting.tasks.push_back((bytes, task));
        waiting.bytes += bytes;
        state.bytes += bytes;
        drop(state);
        self.changed.notify_one();
        Ok(())
    }

    /// The next task, without waiting.
    pub(crate) fn try_pop(&self) -> Option<(usize, T)> {
        self.lock().pop()
    }

    /// Waits for the next task. Returns `Ok(None)` after `patience`, and an error if the queue is closed and empty.
    pub(crate) fn pop(&self, patience: Duration) -> Result<Option<(usize, T)>, QueueRefusal> {
        let mut state = self.lock();
        loop {
            if let Some(task) = state.pop() {
                return Ok(Some(task));
            }
            if state.ends_at.is_some() {
                return Err(QueueRefusal::Closed);
            }
            let waited = self.changed.wait_timeout(state, patience).unwrap_or_else(PoisonError::into_inner);
            state = waited.0;
            if waited.1.timed_out() {
                return Ok(state.pop());
            }
        }
    }

    /// Refuses further tasks. Waiting ones can still be taken for `patience`.
    pub(crate) fn close(&self, patience: Duration) {
        self.lock().ends_at = Some(Instant::now() + patience);
        self.changed.notify_all();
    }
}

// Round robin: the lane goes to the end after each task.
impl<T> WriteQueueState<T> {
    /// Takes the first task of the lane whose turn it is. Nothing is handed out after the end of a closed queue.
    fn pop(&mut self) -> Option<(usize, T)> {
        if self.ends_at.is_some_and(|at| Instant::now() > at) {
            return None;
        }
        let lane = self.turns.pop_front()?;
        let waiting = self.lanes.get_mut(&lane)?;
        let task = waiting.tasks.pop_front()?;
        waiting.bytes -= task.0;
        self.bytes -= task.0;
        if waiting.tasks.is_empty() {
            self.lanes.remove(&lane);
        } else {
            self.turns.push_back(lane);
        }
        Some(task)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn popped(queue: &WriteQueue<&'static str>) -> Vec<&'static str> {
        std::iter::from_fn(|| queue.try_pop()).map(|(_, task)| task).collect()
    }

    #[test]
    fn every_lane_has_its_turn() {
        let queue = WriteQueue::new(1000);
        let (much, little) = (WriteLane::for_client(7), WriteLane::for_client(8));
        for task in ["a1", "a2", "a3"] {
            queue.push(much, 10, task).unwrap();
        }
        queue.push(little, 10, "b1").unwrap();
        queue.push(WriteLane::INTERNAL, 10, "c1").unwrap();
        assert_eq!(popped(&queue), ["a1", "b1", "c1", "a2", "a3"]);
        assert!(queue.lock().lanes.is_empty() && queue.lock().bytes == 0);
    }

    #[test]
    fn a_lane_that_is_full_does_not_fill_the_queue() {
        let queue = WriteQueue::new(1000);
        let (greedy, modest) = (WriteLane::for_client(7), WriteLane::for_client(8));
        queue.push(greedy, 900, "a1").unwrap();
        assert_eq!(queue.push(greedy, 10, "a2"), Err(QueueRefusal::Full));
        queue.push(modest, 200, "b1").unwrap();
        assert_eq!(queue.push(modest, 200, "b2"), Err(QueueRefusal::Full));
        assert_eq!(popped(&queue), ["a1", "b1"]);
        queue.push(modest, 200, "b2").unwrap();
        queue.close(Duration::from_secs(60));
        assert_eq!(queue.push(modest, 1, "b3"), Err(QueueRefusal::Closed));
        assert_eq!(queue.pop(Duration::ZERO), Ok(Some((200, "b2"))));
        assert_eq!(queue.pop(Duration::ZERO), Err(QueueRefusal::Closed));
        let queue = WriteQueue::new(1000);
        queue.push(modest, 1, "b4").unwrap();
        queue.close(Duration::ZERO);
        std::thread::sleep(Duration::from_millis(1));
        assert_eq!(queue.pop(Duration::ZERO), Err(QueueRefusal::Closed), "nobody waits for it without an end");
    }
}
