//! Admission of queries: a bounded number at once, a bounded number for each caller, and fair queueing. Among waiting
//! queries, that of the caller with the least running time is admitted first.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use gradus_store::QueryStop;
use tokio::sync::oneshot;

use super::current_caller;
use super::turns::run_in_turns;
use super::workers::QueryWorkers;
use crate::queries::pool_state::{
    PoolShared, QueryBudget, QueryCounts, QueryKind, QueryLimits, QueryPermit, QueuedQuery,
};

/// Maximum number of queries that wait for admission, in all and for one caller. More are refused at once with 503.
const MAX_QUEUED: usize = 512;
const MAX_CALLER_QUEUED: usize = 64;

/// Why a query has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum QueryRefusal {
    #[error("too many queries are waiting; try again later")]
    Busy,
    #[error("{0}")]
    Stopped(QueryStop),
    #[error("the query could not be answered; see the server's log")]
    Failed,
}

impl QueryRefusal {
    /// A timeout is 422 and not 503: the query asks for too much, and clients must not retry it unchanged.
    pub(crate) fn status(self) -> StatusCode {
        match self {
            // The query is too large: a retry does not help.
            QueryRefusal::Stopped(QueryStop::TimedOut { .. }) => StatusCode::UNPROCESSABLE_ENTITY,
            QueryRefusal::Busy | QueryRefusal::Stopped(_) => StatusCode::SERVICE_UNAVAILABLE,
            QueryRefusal::Failed => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

/// The pool of a server. It lives as long as the server; worker threads come and go.
pub(crate) struct QueryPool {
    shared: Arc<PoolShared>,
    workers: Arc<QueryWorkers>,
}

/// Removes a query from the queue on drop: its client has disconnected, or it was admitted.
struct LeaveQueue<'p> {
    pool: &'p Arc<PoolShared>,
    id: u64,
}

impl Drop for LeaveQueue<'_> {
    fn drop(&mut self) {
        let mut state = self.pool.lock();
        if let Some(at) = state.queue.iter().position(|query| query.id == self.id) {
            let query = state.queue.remove(at);
            state.get_or_add_caller(&query.caller).queued -= 1;
            state.forget_if_idle(&query.caller);
            drop(state);
        }
    }
}

/// Stops a query on drop, because its client has disconnected.
pub(crate) struct CancelOnDrop {
    budget: Arc<QueryBudget>,
    is_answered: bool,
}

impl CancelOnDrop {
    /// The query has answered, so dropping the guard stops nothing.
    fn disarm(&mut self) {
        self.is_answered = true;
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if self.is_answered {
            return;
        }
        self.budget.stop(QueryStop::Cancelled);
        // Wakes a query that waits for its turn, so that it sees the stop at once.
        self.budget.pool().changed.notify_all();
    }
}

impl QueryPool {
    pub(crate) fn new(limits: QueryLimits) -> QueryPool {
        let shared = PoolShared {
            limits,
            counts: QueryCounts::default(),
            state: Mutex::default(),
            changed: Condvar::new(),
            shutdown_at: OnceLock::new(),
        };
        QueryPool { shared: Arc::new(shared), workers: Arc::default() }
    }

    /// Waits until a query of the current caller may run, up to `max_wait`. Cancel-safe: dropping the future leaves the
    /// queue.
    pub(crate) async fn admit(&self, kind: QueryKind) -> Result<QueryPermit, QueryRefusal> {
        let caller = current_caller();
        let (admit, mut admitted) = oneshot::channel();
        let id = {
            // A stopping server admits nothing, so that the running queries can end.
            if self.shared.shutdown_at.get().is_some() {
                return Err(QueryRefusal::Stopped(QueryStop::ShuttingDown));
            }
            let mut state = self.shared.lock();
            let is_full = state.queue.len() >= MAX_QUEUED;
            if is_full || state.get_or_add_caller(&caller).queued >= MAX_CALLER_QUEUED {
                state.forget_if_idle(&caller);
                self.shared.counts.refused.fetch_add(1, Ordering::Relaxed);
                return Err(QueryRefusal::Busy);
            }
            state.get_or_add_caller(&caller).queued += 1;
            state.next_id += 1;
            let id = state.next_id;
            state.queue.push(QueuedQuery { id, caller, kind, admit });
            id
        };
        self.shared.admit_next();
        let _leave = LeaveQueue { pool: &self.shared, id };
        match tokio::time::timeout(self.shared.limits.max_wait, &mut admitted).await {
            Ok(Ok(permit)) => Ok(permit),
            _ => {
                self.shared.counts.count_end(Some(QueryStop::Overloaded));
                Err(QueryRefusal::Stopped(QueryStop::Overloaded))
            }
        }
    }

    /// Starts an admitted query on a worker thread. Dropping the returned guard stops it. Fails if the system refuses a
    /// thread.
    pub(crate) fn spawn(
        &self,
        permit: QueryPermit,
        query: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<CancelOnDrop> {
        let pool = Arc::clone(&self.shared);
        let budget = Arc::new(QueryBudget::new(permit.id, Arc::clone(&permit.caller), permit.kind, Arc::clone(&pool)));
        let running = Arc::clone(&budget);
        self.workers.run(Box::new(move || {
            let _permit = permit;
            run_in_turns(&pool, &running, query);
            // Counted before the permit is dropped, so that `/metrics` never shows more queries than are admitted.
            pool.counts.count_end(running.stop_reason());
        }))?;
        Ok(CancelOnDrop { budget, is_answered: false })
    }

    /// Runs a query for the current caller and returns its result. Dropping the future stops the query. A panic in the
    /// query is [`QueryRefusal::Failed`].
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        kind: QueryKind,
        query: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, QueryRefusal> {
        let permit = self.admit(kind).await?;
        let (sender, answered) = oneshot::channel();
        let running = self.spawn(permit, move || {
            let _ = sender.send(query());
        });
        let mut running = running.map_err(|error| {
            tracing::error!(%error, "failed to start a query");
            QueryRefusal::Failed
        })?;
        match answered.await {
            Ok(answer) => {
                running.disarm();
                Ok(answer)
            }
            // The sender was dropped: the query was stopped before it ran, or it panicked.
            Err(_) => match running.budget.stop_reason() {
                Some(stop) => Err(QueryRefusal::Stopped(stop)),
                None => Err(QueryRefusal::Failed),
            },
        }
    }

    pub(crate) fn counts(&self) -> &QueryCounts {
        &self.shared.counts
    }

    /// Returns the number of admitted queries, and of those that wait for admission.
    pub(crate) fn under_way(&self) -> (usize, usize) {
        let state = self.shared.lock();
        (state.admitted.iter().sum(), state.queue.len())
    }

    /// Refuses new queries from now on and stops those that still run after `grace`.
    pub(crate) fn shut_down(&self, grace: Duration) {
        let _ = self.shared.shutdown_at.set(Instant::now() + grace);
    }
}
