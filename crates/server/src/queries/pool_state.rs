//! The state of the query pool: which queries wait and run, and what each may use.
//!
//! A query has a limit on its running time, which counts only while it has a turn, and a limit on its total time. The
//! store and all long loops call [`QueryBudget::check`]. The clock of the pool interrupts SQLite where a statement
//! never does.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use gradus_store::{QueryInterrupt, QueryMonitor, QueryStop};
use tokio::sync::oneshot;

/// The kinds have separate limits. The discriminants index the arrays of counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueryKind {
    /// Reads rows through an index: pages, lists, counts.
    Rows,
    /// Loads whole traces or runs, which may be large. Few run at once.
    Large,
    /// Streams its answer while it is found, for as long as the client reads.
    Download,
}

/// Shared by the pool, the permits, the budgets and the clock thread.
pub(super) struct PoolShared {
    pub(super) limits: QueryLimits,
    pub(super) counts: QueryCounts,
    pub(super) state: Mutex<PoolState>,
    /// Notified when a turn ends or a query is stopped.
    pub(super) changed: Condvar,
    /// When running queries are stopped because the server stops. Set once.
    pub(super) shutdown_at: OnceLock<Instant>,
}

/// Guarded by one mutex, which is never held while a query runs.
#[derive(Default)]
pub(super) struct PoolState {
    pub(super) callers: HashMap<Arc<str>, CallerUse>,
    pub(super) queue: Vec<QueuedQuery>,
    /// Admitted queries by [`QueryKind`].
    pub(super) admitted: [usize; 3],
    pub(super) next_id: u64,
    /// Queries that have a turn, and those that wait for one by id and caller.
    pub(super) turns: Vec<Arc<QueryBudget>>,
    pub(super) waiting: Vec<(u64, Arc<str>)>,
    /// Whether the clock thread runs. It starts with the first query and ends when the pool is idle.
    pub(super) has_clock: bool,
}

impl PoolState {
    pub(super) fn time_used(&self, caller: &str) -> Duration {
        self.callers.get(caller).map_or(Duration::ZERO, |one| one.used)
    }

    /// Adds running time to a caller. A caller that has left the pool is not charged.
    pub(super) fn charge(&mut self, caller: &str, ran: Duration) {
        if let Some(one) = self.callers.get_mut(caller) {
            one.used += ran;
        }
    }

    /// A new caller starts with the smallest time of all others. Starting at zero would let it run ahead of everybody.
    pub(super) fn get_or_add_caller(&mut self, name: &Arc<str>) -> &mut CallerUse {
        // The same rule as in fair queueing: a newcomer has no credit from the time when it was absent.
        let used = self.callers.values().map(|one| one.used).min().unwrap_or_default();
        self.callers.entry(Arc::clone(name)).or_insert_with(|| CallerUse { used, ..CallerUse::default() })
    }

    /// Drops a caller without queries, so that the map stays as small as the number of active callers.
    pub(super) fn forget_if_idle(&mut self, name: &str) {
        if self.callers.get(name).is_some_and(|one| one.queued == 0 && one.admitted == [0; 3]) {
            self.callers.remove(name);
        }
    }

    /// Takes the next query that may be admitted: of the caller with the least running time, and the oldest of those.
    pub(super) fn take_next(&mut self) -> Option<QueuedQuery> {
        let callers = &self.callers;
        let may_enter = |query: &QueuedQuery| {
            let kind = query.kind as usize;
            let free = MAX_QUERIES[kind].saturating_sub(self.admitted[kind]);
            let own = callers.get(&query.caller).map_or(0, |one| one.admitted[kind]);
            // The last slot of a kind is reserved for a caller that has none of it.
            own < MAX_CALLER_QUERIES[kind] && free > usize::from(own > 0)
        };
        let used = |query: &QueuedQuery| callers.get(&query.caller).map(|one| one.used);
        let queued = self.queue.iter().enumerate().filter(|(_, query)| may_enter(query));
        let (at, _) = queued.min_by_key(|(_, query)| (used(query), query.id))?;
        let next = self.queue.remove(at);
        self.admitted[next.kind as usize] += 1;
        let caller = self.get_or_add_caller(&next.caller);
        caller.queued -= 1;
        caller.admitted[next.kind as usize] += 1;
        Some(next)
    }
}

impl PoolShared {
    pub(super) fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the grace period of a stopping server is over.
    pub(super) fn is_past_shutdown(&self) -> bool {
        self.shutdown_at.get().is_some_and(|at| Instant::now() > *at)
    }

    pub(super) fn are_downloads_waiting(&self) -> bool {
        self.lock().queue.iter().any(|query| query.kind == QueryKind::Download)
    }

    /// Admits waiting queries while slots are free. Call it without holding the lock.
    pub(super) fn admit_next(self: &Arc<Self>) {
        loop {
            let Some(next) = self.lock().take_next() else { return };
            let permit = QueryPermit {
                pool: Arc::clone(self),
                id: next.id,
                caller: next.caller,
                kind: next.kind,
                is_given_back: false,
            };
            // The receiver is gone. `give_back` instead of a drop, because dropping the permit would call this function
            // again.
            if let Err(mut permit) = next.admit.send(permit) {
                permit.give_back();
            }
        }
    }
}

/// The limits of the pool. The first two are settings.
#[derive(Clone, Debug)]
pub(crate) struct QueryLimits {
    /// Maximum running time of a page, a list or a search, and of a download.
    pub(crate) query_time: Duration,
    pub(crate) download_time: Duration,
    /// Maximum time that a query waits for admission, and in total for its turns.
    pub(crate) max_wait: Duration,
    /// Maximum number of queries that have a turn at the same time.
    pub(crate) slots: usize,
}

/// Maximum number of admitted queries by [`QueryKind`]. A large query or a download may hold a whole trace in memory.
pub(super) const MAX_QUERIES: [usize; 3] = [8, 2, 4];

/// Maximum number of admitted queries of one caller, by [`QueryKind`].
pub(super) const MAX_CALLER_QUERIES: [usize; 3] = [4, 1, 2];

impl QueryLimits {
    pub(crate) fn new(query_time: Duration, download_time: Duration) -> QueryLimits {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        // One core stays free for ingest.
        let slots = cores.saturating_sub(1).max(1);
        QueryLimits { query_time, download_time, max_wait: Duration::from_secs(30), slots }
    }

    /// Returns the maximum running time of a kind, and the name of the setting for the error message.
    pub(super) fn time_limit(&self, kind: QueryKind) -> (Duration, &'static str) {
        match kind {
            QueryKind::Rows | QueryKind::Large => (self.query_time, "serve.query_timeout_s"),
            QueryKind::Download => (self.download_time, "serve.download_timeout_s"),
        }
    }
}

/// Ended queries by result, for `/metrics`.
#[derive(Debug, Default)]
pub(crate) struct QueryCounts {
    pub(super) done: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) timed_out: AtomicU64,
    pub(super) cancelled: AtomicU64,
    pub(super) overloaded: AtomicU64,
}

impl QueryCounts {
    /// Counts an ended query. `None` is a query that has finished by itself.
    pub(super) fn count_end(&self, stop: Option<QueryStop>) {
        let counter = match stop {
            None => &self.done,
            Some(QueryStop::Cancelled | QueryStop::ShuttingDown) => &self.cancelled,
            Some(QueryStop::TimedOut { .. }) => &self.timed_out,
            Some(QueryStop::Overloaded | QueryStop::TooMuchUnread) => &self.overloaded,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns each value of the label `result` with its count.
    pub(crate) fn by_result(&self) -> [(&'static str, u64); 5] {
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

/// The present usage of one caller.
#[derive(Default)]
pub(super) struct CallerUse {
    /// Running time of its queries since it was last absent. Only differences between callers matter.
    pub(super) used: Duration,
    pub(super) admitted: [usize; 3],
    pub(super) queued: usize,
}

/// A query that waits for admission. `id` is unique and increases, so it also orders by age.
pub(super) struct QueuedQuery {
    pub(super) id: u64,
    pub(super) caller: Arc<str>,
    pub(super) kind: QueryKind,
    pub(super) admit: oneshot::Sender<QueryPermit>,
}

/// The right to run one query. It is returned when the query has ended, which may be after its client has left.
pub(crate) struct QueryPermit {
    pub(super) pool: Arc<PoolShared>,
    pub(super) id: u64,
    pub(super) caller: Arc<str>,
    pub(super) kind: QueryKind,
    pub(super) is_given_back: bool,
}

impl QueryPermit {
    /// Returns the slot once; a second call has no effect.
    pub(super) fn give_back(&mut self) {
        if std::mem::replace(&mut self.is_given_back, true) {
            return;
        }
        let mut state = self.pool.lock();
        state.admitted[self.kind as usize] -= 1;
        state.get_or_add_caller(&self.caller).admitted[self.kind as usize] -= 1;
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

/// The time budget of one admitted query. The query's thread, the clock and the client's task use it at the same time,
/// so all state is atomic.
pub(super) struct QueryBudget {
    pub(super) id: u64,
    pub(super) caller: Arc<str>,
    pub(super) kind: QueryKind,
    pub(super) pool: Arc<PoolShared>,
    pub(super) begun: Instant,
    /// 0 while it may run; otherwise one of the codes below. It is set once.
    pub(super) stop: AtomicU8,
    /// Running time in turns that have ended, in nanoseconds.
    pub(super) ran_ns: AtomicU64,
    /// When the current turn began, and when the query last called `check`, in nanoseconds since `begun`. 0 means that
    /// it has no turn.
    pub(super) turn_ns: AtomicU64,
    pub(super) checked_ns: AtomicU64,
    /// Handles to interrupt the SQLite connections that the query uses.
    pub(super) interrupts: Mutex<Vec<Arc<QueryInterrupt>>>,
}

/// Length of the time slice: a query runs this long before waiting ones get a turn.
pub(super) const TIME_SLICE: Duration = Duration::from_millis(50);

/// Maximum time between two calls of `check`. A query that exceeds it cannot be paused; its turn is not counted, so
/// that others can run.
pub(super) const MAX_UNCHECKED_TIME: Duration = Duration::from_millis(250);

pub(super) const CANCELLED: u8 = 1;

pub(super) const TIMED_OUT: u8 = 2;

pub(super) const OVERLOADED: u8 = 3;

pub(super) const SHUTTING_DOWN: u8 = 4;

/// The query has ended by itself: a later stop must not change its result.
pub(super) const FINISHED: u8 = 5;

impl QueryBudget {
    pub(super) fn new(id: u64, caller: Arc<str>, kind: QueryKind, pool: Arc<PoolShared>) -> QueryBudget {
        QueryBudget {
            id,
            caller,
            kind,
            pool,
            begun: Instant::now(),
            stop: AtomicU8::new(0),
            ran_ns: AtomicU64::new(0),
            turn_ns: AtomicU64::new(0),
            checked_ns: AtomicU64::new(0),
            interrupts: Mutex::default(),
        }
    }

    pub(super) fn pool(&self) -> &Arc<PoolShared> {
        &self.pool
    }

    /// Returns why the query must end; `None` while it may run and after it has finished.
    pub(super) fn stop_reason(&self) -> Option<QueryStop> {
        match self.stop.load(Ordering::Relaxed) {
            CANCELLED => Some(QueryStop::Cancelled),
            TIMED_OUT => {
                let (limit, setting) = self.pool.limits.time_limit(self.kind);
                Some(QueryStop::TimedOut { limit_s: limit.as_secs().max(1), setting })
            }
            OVERLOADED => Some(QueryStop::Overloaded),
            SHUTTING_DOWN => Some(QueryStop::ShuttingDown),
            _ => None,
        }
    }

    /// Stops the query and interrupts its statements. The first reason counts. Calling it again repeats the interrupt.
    pub(super) fn stop(&self, reason: QueryStop) {
        let code = match reason {
            QueryStop::Cancelled => CANCELLED,
            QueryStop::TimedOut { .. } => TIMED_OUT,
            QueryStop::Overloaded | QueryStop::TooMuchUnread => OVERLOADED,
            QueryStop::ShuttingDown => SHUTTING_DOWN,
        };
        let _ = self.stop.compare_exchange(0, code, Ordering::Relaxed, Ordering::Relaxed);
        for interrupt in self.interrupts.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            interrupt.interrupt();
        }
    }

    /// Marks the query as finished, so that a late stop has no effect on the counted result.
    pub(super) fn finish(&self) {
        let _ = self.stop.compare_exchange(0, FINISHED, Ordering::Relaxed, Ordering::Relaxed);
    }

    pub(super) fn now_ns(&self) -> u64 {
        // 0 means that the query has no turn.
        u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX).max(1)
    }

    /// Returns the running time so far, the current turn included.
    pub(super) fn run_time(&self) -> Duration {
        let turn = match self.turn_ns.load(Ordering::Relaxed) {
            0 => 0,
            begun => self.now_ns().saturating_sub(begun),
        };
        Duration::from_nanos(self.ran_ns.load(Ordering::Relaxed) + turn)
    }

    /// Stops the query when a limit is exceeded. The clock calls it repeatedly, because SQLite forgets an interrupt
    /// that arrives between two statements.
    pub(super) fn enforce_limits(&self) {
        let limits = &self.pool.limits;
        let (limit, setting) = limits.time_limit(self.kind);
        if let Some(reason) = self.stop_reason() {
            self.stop(reason);
        } else if self.run_time() > limit {
            self.stop(QueryStop::TimedOut { limit_s: limit.as_secs(), setting });
        } else if self.kind != QueryKind::Download && self.begun.elapsed() > limit + limits.max_wait {
            // Its read transaction keeps the write-ahead log from being reset, so it must not wait for turns for long.
            // Downloads are exempt, since their total time depends on how fast the client reads.
            self.stop(QueryStop::Overloaded);
        } else if self.pool.is_past_shutdown() {
            self.stop(QueryStop::ShuttingDown);
        }
    }

    /// Begins a turn. It counts as a check, so that a new turn is not stalled at once.
    pub(super) fn begin_turn(&self) {
        let now = self.now_ns();
        self.checked_ns.store(now, Ordering::Relaxed);
        self.turn_ns.store(now, Ordering::Relaxed);
    }

    /// Ends the turn and returns its length.
    pub(super) fn end_turn(&self) -> Duration {
        let begun = self.turn_ns.swap(0, Ordering::Relaxed);
        let turn = if begun == 0 { 0 } else { self.now_ns().saturating_sub(begun) };
        self.ran_ns.fetch_add(turn, Ordering::Relaxed);
        Duration::from_nanos(turn)
    }

    /// Whether it has a turn but has not called `check` for [`MAX_UNCHECKED_TIME`].
    pub(super) fn is_stalled(&self) -> bool {
        let since = self.now_ns().saturating_sub(self.checked_ns.load(Ordering::Relaxed));
        Duration::from_nanos(since) > MAX_UNCHECKED_TIME
    }
}

impl QueryMonitor for QueryBudget {
    /// Called often from inside of queries, so the common path is a few atomic loads. After a slice the query waits
    /// here for its next turn.
    fn check(&self) -> Result<(), QueryStop> {
        if let Some(reason) = self.stop_reason() {
            return Err(reason);
        }
        let now = self.now_ns();
        self.checked_ns.store(now, Ordering::Relaxed);
        let turn = self.turn_ns.load(Ordering::Relaxed);
        if turn != 0 && Duration::from_nanos(now.saturating_sub(turn)) > TIME_SLICE {
            self.enforce_limits();
            self.pool.yield_turn(self)?;
        }
        self.stop_reason().map_or(Ok(()), Err)
    }

    fn attach(&self, interrupt: &Arc<QueryInterrupt>) {
        self.interrupts.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(interrupt));
    }

    fn detach(&self, interrupt: &Arc<QueryInterrupt>) {
        let mut interrupts = self.interrupts.lock().unwrap_or_else(PoisonError::into_inner);
        interrupts.retain(|known| !Arc::ptr_eq(known, interrupt));
    }
}
