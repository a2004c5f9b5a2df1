//! Which queries are let in: so many at once, so many of each caller, and those of whoever's queries ran least first.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use gradus_store::QueryStop;
use tokio::sync::oneshot;

use super::budget::QueryBudget;
use super::current_caller;
use super::turns::run_in_turns;
use super::workers::QueryWorkers;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::serve) enum QueryKind {
    /// Reads rows.
    Rows,
    /// Reads whole traces or runs, which may be large: few at a time.
    Large,
    /// Sends its answer while it finds it, for as long as that takes.
    Download,
}

#[derive(Clone, Debug)]
pub(in crate::serve) struct QueryLimits {
    /// How long a query may run.
    pub(in crate::serve) query_time: Duration,
    pub(in crate::serve) download_time: Duration,
    /// How long it may wait for others.
    pub(in crate::serve) max_wait: Duration,
    /// How many run at a moment.
    pub(in crate::serve) slots: usize,
}

/// Under way at once, of each kind. The last two may hold a whole trace in memory each.
const MAX_QUERIES: [usize; 3] = [8, 2, 4];
/// Of one caller.
const MAX_CALLER_QUERIES: [usize; 3] = [4, 1, 2];
/// Waiting to be let in.
const MAX_QUEUED: usize = 512;
const MAX_CALLER_QUEUED: usize = 64;

impl QueryLimits {
    pub(in crate::serve) fn new(query_time: Duration, download_time: Duration) -> QueryLimits {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        // One core is left for those who send.
        let slots = cores.saturating_sub(1).max(1);
        QueryLimits { query_time, download_time, max_wait: Duration::from_secs(30), slots }
    }

    pub(super) fn time_limit(&self, kind: QueryKind) -> (Duration, &'static str) {
        match kind {
            QueryKind::Rows | QueryKind::Large => (self.query_time, "serve.query_timeout_s"),
            QueryKind::Download => (self.download_time, "serve.download_timeout_s"),
        }
    }
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::serve) enum QueryRefusal {
    #[error("too many queries are waiting; try again later")]
    Busy,
    #[error("{0}")]
    Stopped(QueryStop),
    #[error("the query could not be answered; see the server's log")]
    Failed,
}

impl QueryRefusal {
    pub(in crate::serve) fn status(self) -> StatusCode {
        match self {
            // What it asks for is too much: asking again does not help.
            QueryRefusal::Stopped(QueryStop::TimedOut { .. }) => StatusCode::UNPROCESSABLE_ENTITY,
            QueryRefusal::Busy | QueryRefusal::Stopped(_) => StatusCode::SERVICE_UNAVAILABLE,
            QueryRefusal::Failed => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

/// What became of queries, for `/metrics`.
#[derive(Debug, Default)]
pub(in crate::serve) struct QueryCounts {
    done: AtomicU64,
    refused: AtomicU64,
    timed_out: AtomicU64,
    cancelled: AtomicU64,
    overloaded: AtomicU64,
}

impl QueryCounts {
    fn count_end(&self, stop: Option<QueryStop>) {
        let counter = match stop {
            None => &self.done,
            Some(QueryStop::Cancelled | QueryStop::ShuttingDown) => &self.cancelled,
            Some(QueryStop::TimedOut { .. }) => &self.timed_out,
            Some(QueryStop::Overloaded | QueryStop::TooMuchUnread) => &self.overloaded,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// By result.
    pub(in crate::serve) fn by_result(&self) -> [(&'static str, u64); 5] {
        let counts = [
            ("done", &self.done),
            ("refused", &self.refused),
            ("timed_out", &self.timed_out),
            ("cancelled", &self.cancelled),
            ("overloaded", &self.overloaded),
        ];
        counts.map(|(name, count)| (name, count.load(Ordering::Relaxed)))
    }
}

pub(in crate::serve) struct QueryPool {
    shared: Arc<PoolShared>,
    workers: Arc<QueryWorkers>,
}

pub(super) struct PoolShared {
    pub(super) limits: QueryLimits,
    counts: QueryCounts,
    state: Mutex<PoolState>,
    pub(super) changed: Condvar,
    /// When the last queries end because the server does.
    shutdown_at: OnceLock<Instant>,
}

#[derive(Default)]
pub(super) struct PoolState {
    callers: HashMap<Arc<str>, CallerUse>,
    queue: Vec<QueuedQuery>,
    admitted: [usize; 3],
    next_id: u64,
    /// Those that run at this moment, and those that wait for their turn.
    pub(super) turns: Vec<Arc<QueryBudget>>,
    pub(super) waiting: Vec<(u64, Arc<str>)>,
    pub(super) has_clock: bool,
}

#[derive(Default)]
struct CallerUse {
    /// For how long its queries ran, since the first of those that are here.
    used: Duration,
    admitted: [usize; 3],
    queued: usize,
}

struct QueuedQuery {
    id: u64,
    caller: Arc<str>,
    kind: QueryKind,
    admit: oneshot::Sender<QueryPermit>,
}

impl PoolState {
    pub(super) fn used(&self, caller: &str) -> Duration {
        self.callers.get(caller).map_or(Duration::ZERO, |one| one.used)
    }

    pub(super) fn charge(&mut self, caller: &str, ran: Duration) {
        if let Some(one) = self.callers.get_mut(caller) {
            one.used += ran;
        }
    }

    fn caller(&mut self, name: &Arc<str>) -> &mut CallerUse {
        // Whoever comes new has not run less than the others: he was not there.
        let used = self.callers.values().map(|one| one.used).min().unwrap_or_default();
        self.callers.entry(Arc::clone(name)).or_insert_with(|| CallerUse { used, ..CallerUse::default() })
    }

    fn forget_if_idle(&mut self, name: &str) {
        if self.callers.get(name).is_some_and(|one| one.queued == 0 && one.admitted == [0; 3]) {
            self.callers.remove(name);
        }
    }

    /// The next query that may be let in.
    fn take_next(&mut self) -> Option<QueuedQuery> {
        let callers = &self.callers;
        let may_enter = |query: &QueuedQuery| {
            let kind = query.kind as usize;
            let free = MAX_QUERIES[kind].saturating_sub(self.admitted[kind]);
            let own = callers.get(&query.caller).map_or(0, |one| one.admitted[kind]);
            // The last place is for somebody who has none.
            own < MAX_CALLER_QUERIES[kind] && free > usize::from(own > 0)
        };
        let used = |query: &QueuedQuery| callers.get(&query.caller).map(|one| one.used);
        let queued = self.queue.iter().enumerate().filter(|(_, query)| may_enter(query));
        let (at, _) = queued.min_by_key(|(_, query)| (used(query), query.id))?;
        let next = self.queue.remove(at);
        self.admitted[next.kind as usize] += 1;
        let caller = self.caller(&next.caller);
        caller.queued -= 1;
        caller.admitted[next.kind as usize] += 1;
        Some(next)
    }
}

impl PoolShared {
    pub(super) fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_past_shutdown(&self) -> bool {
        self.shutdown_at.get().is_some_and(|at| Instant::now() > *at)
    }

    pub(super) fn are_downloads_waiting(&self) -> bool {
        self.lock().queue.iter().any(|query| query.kind == QueryKind::Download)
    }

    /// Lets in as many as there is room for.
    fn admit_next(self: &Arc<Self>) {
        loop {
            let Some(next) = self.lock().take_next() else { return };
            let permit = QueryPermit {
                pool: Arc::clone(self),
                id: next.id,
                caller: next.caller,
                kind: next.kind,
                is_given_back: false,
            };
            // Whoever does not wait any more gives it back here.
            if let Err(mut permit) = next.admit.send(permit) {
                permit.give_back();
            }
        }
    }
}

/// The right to run one query; given back when the query is over, which may be after whoever asked has left.
pub(in crate::serve) struct QueryPermit {
    pool: Arc<PoolShared>,
    id: u64,
    caller: Arc<str>,
    kind: QueryKind,
    is_given_back: bool,
}

impl QueryPermit {
    fn give_back(&mut self) {
        if std::mem::replace(&mut self.is_given_back, true) {
            return;
        }
        let mut state = self.pool.lock();
        state.admitted[self.kind as usize] -= 1;
        state.caller(&self.caller).admitted[self.kind as usize] -= 1;
        state.forget_if_idle(&self.caller);
    }
}

impl Drop for QueryPermit {
    fn drop(&mut self) {
        if !self.is_given_back {
            self.give_back();
            self.pool.admit_next();
        }
    }
}

/// A query waits no longer when this is dropped.
struct LeaveQueue<'p> {
    pool: &'p Arc<PoolShared>,
    id: u64,
}

impl Drop for LeaveQueue<'_> {
    fn drop(&mut self) {
        let mut state = self.pool.lock();
        if let Some(at) = state.queue.iter().position(|query| query.id == self.id) {
            let query = state.queue.remove(at);
            state.caller(&query.caller).queued -= 1;
            state.forget_if_idle(&query.caller);
            drop(state);
        }
    }
}

/// Stops a query when it is dropped: nobody waits for it any more.
pub(in crate::serve) struct CancelOnDrop {
    budget: Arc<QueryBudget>,
    is_answered: bool,
}

impl CancelOnDrop {
    /// The answer is there.
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
        self.budget.pool().changed.notify_all();
    }
}

impl QueryPool {
    pub(in crate::serve) fn new(limits: QueryLimits) -> QueryPool {
        let shared = PoolShared {
            limits,
            counts: QueryCounts::default(),
            state: Mutex::default(),
            changed: Condvar::new(),
            shutdown_at: OnceLock::new(),
        };
        QueryPool { shared: Arc::new(shared), workers: Arc::default() }
    }

    /// Waits until another query of this task's caller may run.
    pub(in crate::serve) async fn admit(&self, kind: QueryKind) -> Result<QueryPermit, QueryRefusal> {
        let caller = current_caller();
        let (admit, mut admitted) = oneshot::channel();
        let id = {
            if self.shared.shutdown_at.get().is_some() {
                return Err(QueryRefusal::Stopped(QueryStop::ShuttingDown));
            }
            let mut state = self.shared.lock();
            let is_full = state.queue.len() >= MAX_QUEUED;
            if is_full || state.caller(&caller).queued >= MAX_CALLER_QUEUED {
                state.forget_if_idle(&caller);
                self.shared.counts.refused.fetch_add(1, Ordering::Relaxed);
                return Err(QueryRefusal::Busy);
            }
            state.caller(&caller).queued += 1;
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

    /// Begins a query that was let in; it is stopped when what comes back is dropped.
    pub(in crate::serve) fn spawn(
        &self,
        permit: QueryPermit,
        query: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<CancelOnDrop> {
        let pool = Arc::clone(&self.shared);
        let budget =
            Arc::new(QueryBudget::new(permit.id, Arc::clone(&permit.caller), permit.kind, Arc::clone(&pool)));
        let running = Arc::clone(&budget);
        self.workers.run(Box::new(move || {
            let _permit = permit;
            run_in_turns(&pool, &running, query);
            // Counted before another takes its place.
            pool.counts.count_end(running.stop_reason());
        }))?;
        Ok(CancelOnDrop { budget, is_answered: false })
    }

    /// Runs a query for this task's caller, and stops it when this is not waited for any more.
    pub(in crate::serve) async fn run<T: Send + 'static>(
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
            tracing::error!(%error, "a query could not be started");
            QueryRefusal::Failed
        })?;
        match answered.await {
            Ok(answer) => {
                running.disarm();
                Ok(answer)
            }
            Err(_) => match running.budget.stop_reason() {
                Some(stop) => Err(QueryRefusal::Stopped(stop)),
                None => Err(QueryRefusal::Failed),
            },
        }
    }

    pub(in crate::serve) fn counts(&self) -> &QueryCounts {
        &self.shared.counts
    }

    /// Queries that run or wait for a turn, and those that are not let in yet.
    pub(in crate::serve) fn under_way(&self) -> (usize, usize) {
        let state = self.shared.lock();
        (state.admitted.iter().sum(), state.queue.len())
    }

    /// Lets nobody in any more, and ends what still runs after a while.
    pub(in crate::serve) fn shut_down(&self, grace: Duration) {
        let _ = self.shared.shutdown_at.set(Instant::now() + grace);
    }
}
