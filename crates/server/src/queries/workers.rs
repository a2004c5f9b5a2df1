//! Threads that run queries. A thread is started when none is idle, and ends after a while without work.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::thread_priority::ThreadPriority;

type QueryJob = Box<dyn FnOnce() + Send>;

/// A pool without a limit of its own: admission bounds the number of jobs.
#[derive(Default)]
pub(super) struct QueryWorkers {
    state: Mutex<WorkerState>,
    ready: Condvar,
}

/// Guarded by one mutex, together with the condition variable `ready`.
#[derive(Default)]
struct WorkerState {
    jobs: VecDeque<QueryJob>,
    /// Threads that wait for a job. A job that was queued but not yet taken also counts against it.
    idle: usize,
}

/// Maximum time that an idle thread waits for its next query before it ends.
const MAX_WORKER_IDLE_TIME: Duration = Duration::from_secs(10);

impl QueryWorkers {
    /// Runs a job without delay. The caller bounds the number of jobs. Fails if a thread cannot be started; the job
    /// is dropped then.
    pub(super) fn run(self: &Arc<Self>, job: QueryJob) -> std::io::Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.jobs.push_back(job);
        // Every queued job has an idle thread to take it.
        if state.idle >= state.jobs.len() {
            drop(state);
            self.ready.notify_one();
            return Ok(());
        }
        let workers = Arc::clone(self);
        let started = std::thread::Builder::new().name("query".to_owned()).spawn(move || workers.run_jobs());
        if let Err(error) = started {
            state.jobs.pop_back();
            return Err(error);
        }
        Ok(())
    }

    /// The loop of one thread.
    fn run_jobs(&self) {
        ThreadPriority::Low.apply_to_thread();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                // The thread survives a panic. The caller notices it, because the channel of the answer is dropped.
                let _ = catch_unwind(AssertUnwindSafe(job));
                state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state.idle += 1;
            let waited = self.ready.wait_timeout(state, MAX_WORKER_IDLE_TIME).unwrap_or_else(PoisonError::into_inner);
            state = waited.0;
            state.idle -= 1;
            if waited.1.timed_out() && state.jobs.is_empty() {
                return;
            }
        }
    }
}
