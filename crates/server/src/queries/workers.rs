//! Threads that run queries. There are as many as queries run at once, and those without work for a while end.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::thread_priority::ThreadPriority;

type QueryJob = Box<dyn FnOnce() + Send>;

#[derive(Default)]
pub(super) struct QueryWorkers {
    state: Mutex<WorkerState>,
    ready: Condvar,
}

#[derive(Default)]
struct WorkerState {
    jobs: VecDeque<QueryJob>,
    idle: usize,
}

/// How long a thread waits for its next query.
const MAX_IDLE: Duration = Duration::from_secs(10);

impl QueryWorkers {
    /// Runs a job at once: whoever calls this bounds how many there are.
    pub(super) fn run(self: &Arc<Self>, job: QueryJob) -> std::io::Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.jobs.push_back(job);
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

    fn run_jobs(&self) {
        ThreadPriority::Low.apply_to_thread();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                // The thread outlives a query that panics; whoever asked sees that there is no answer.
                let _ = catch_unwind(AssertUnwindSafe(job));
                state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state.idle += 1;
            let waited = self.ready.wait_timeout(state, MAX_IDLE).unwrap_or_else(PoisonError::into_inner);
            state = waited.0;
            state.idle -= 1;
            if waited.1.timed_out() && state.jobs.is_empty() {
                return;
            }
        }
    }
}
