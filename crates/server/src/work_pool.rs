//! Threads that decompress and parse requests: never on an async thread, and never on a query thread. Clients take
//! turns, and small requests have threads of their own, so that no client's large requests delay others.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use tokio::sync::oneshot;

use super::client_address::ClientAddress;
use crate::thread_priority::ThreadPriority;

type WorkPoolJob = Box<dyn FnOnce() + Send>;

/// The job has no result: it panicked, or the server is stopping.
#[derive(Debug, thiserror::Error)]
#[error("the request could not be read")]
pub(super) struct WorkAborted;

/// A fixed number of threads with one fair queue. The queue needs no limit, since every job holds a lease of the memory
/// budget.
#[derive(Debug)]
pub(super) struct WorkPool {
    queue: Arc<FairQueue>,
}

/// Round robin over clients.
#[derive(Default)]
struct FairQueue {
    state: Mutex<FairQueueState>,
    has_work: Condvar,
}

impl std::fmt::Debug for FairQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FairQueue").finish_non_exhaustive()
    }
}

/// Jobs by client. Invariant: a client is in `turns` exactly once if it has jobs, and not at all otherwise.
#[derive(Default)]
struct FairQueueState {
    jobs: HashMap<ClientAddress, VecDeque<WorkPoolJob>>,
    turns: VecDeque<ClientAddress>,
    is_closed: bool,
}

impl FairQueueState {
    fn push(&mut self, client: ClientAddress, job: WorkPoolJob) {
        let jobs = self.jobs.entry(client).or_default();
        if jobs.is_empty() {
            self.turns.push_back(client);
        }
        jobs.push_back(job);
    }

    /// Takes one job of the first client, which then moves to the end of `turns`.
    fn pop(&mut self) -> Option<WorkPoolJob> {
        let client = self.turns.pop_front()?;
        let jobs = self.jobs.get_mut(&client)?;
        let job = jobs.pop_front();
        if jobs.is_empty() {
            self.jobs.remove(&client);
        } else {
            self.turns.push_back(client);
        }
        job
    }
}

impl WorkPool {
    /// Starts the threads, optionally with a lower priority. They end when the pool is dropped.
    pub(super) fn start(name: &str, threads: usize, priority: Option<ThreadPriority>) -> std::io::Result<WorkPool> {
        let queue = Arc::new(FairQueue::default());
        for _ in 0..threads {
            let queue = Arc::clone(&queue);
            std::thread::Builder::new().name(name.to_owned()).spawn(move || {
                if let Some(priority) = priority {
                    priority.apply_to_thread();
                }
                while let Some(job) = queue.next() {
                    // A panicking job drops its channel, which its client sees as [`WorkAborted`]. The thread goes on.
                    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
                }
            })?;
        }
        Ok(WorkPool { queue })
    }

    /// Runs `work` in the client's turn. The job is skipped if the future was dropped before its turn.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        client: ClientAddress,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, WorkAborted> {
        let (sender, receiver) = oneshot::channel();
        let job = Box::new(move || {
            if !sender.is_closed() {
                let _ = sender.send(work());
            }
        });
        self.queue.state.lock().unwrap_or_else(PoisonError::into_inner).push(client, job);
        self.queue.has_work.notify_one();
        receiver.await.map_err(|_| WorkAborted)
    }
}

impl FairQueue {
    /// Blocks until there is a job. `None` when the pool is dropped and the queue is empty.
    fn next(&self) -> Option<WorkPoolJob> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(job) = state.pop() {
                return Some(job);
            }
            if state.is_closed {
                return None;
            }
            state = self.has_work.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for WorkPool {
    fn drop(&mut self) {
        self.queue.state.lock().unwrap_or_else(PoisonError::into_inner).is_closed = true;
        self.queue.has_work.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(last: u8) -> ClientAddress {
        ClientAddress::from_ip([127, 0, 0, last].into())
    }

    #[test]
    fn clients_take_turns() {
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut queue = FairQueueState::default();
        for (name, from) in [("a1", 1), ("a2", 1), ("a3", 1), ("b1", 2), ("c1", 3), ("b2", 2)] {
            let order = Arc::clone(&order);
            queue.push(client(from), Box::new(move || order.lock().unwrap().push(name)));
        }
        while let Some(job) = queue.pop() {
            job();
        }
        assert_eq!(*order.lock().unwrap(), ["a1", "b1", "c1", "a2", "b2", "a3"]);
        assert!(queue.jobs.is_empty());
    }

    #[tokio::test]
    async fn a_panic_loses_one_job_and_no_thread() {
        let pool = WorkPool::start("test", 1, None).unwrap();
        let lost: Result<(), WorkAborted> = pool.run(client(1), || panic!("expected by this test")).await;
        assert!(lost.is_err());
        assert_eq!(pool.run(client(1), || 7).await.unwrap(), 7);
    }
}
