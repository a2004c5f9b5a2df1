//! The query pool: which queries wait and run, and what each may use. A query has a time to run, counted while it has
//! its turn, and a time in which it must be done. The store and all long loops ask [`QueryBudget::check`]; the clock of
//! the pool interrupts what never asks.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use gradus_store::{QueryInterrupt, QueryMonitor, QueryStop};
use tokio::sync::oneshot;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueryKind {
    /// Reads rows.
    Rows,
    /// Reads whole traces or runs, which may be large: few at a time.
    Large,
    /// Sends its answer while it finds it, for as long as that takes.
    Download,
}

pub(super) struct PoolShared {
    pub(super) limits: QueryLimits,
    pub(super) counts: QueryCounts,
    pub(super) state: Mutex<PoolState>,
    pub(super) changed: Condvar,
    /// When the last queries end because the server does.
    pub(super) shutdown_at: OnceLock<Instant>,
}

#[derive(Default)]
pub(super) struct PoolState {
    pub(super) callers: HashMap<Arc<str>, CallerUse>,
    pub(super) queue: Vec<QueuedQuery>,
    pub(super) admitted: [usize; 3],
    pub(super) next_id: u64,
    /// Those that run at this moment, and those that wait for their turn.
    pub(super) turns: Vec<Arc<QueryBudget>>,
    pub(super) waiting: Vec<(u64, Arc<str>)>,
    pub(super) has_clock: bool,
}

impl PoolState {
    pub(super) fn time_used(&self, caller: &str) -> Duration {
        self.callers.get(caller).map_or(Duration::ZERO, |one| one.used)
    }

    pub(super) fn charge(&mut self, caller: &str, ran: Duration) {
        if let Some(one) = self.callers.get_mut(caller) {
            one.used += ran;
        }
    }

    pub(super) fn get_or_add_caller(&mut self, name: &Arc<str>) -> &mut CallerUse {
        // Whoever comes new has not run less than the others: he was not there.
        let used = self.callers.values().map(|one| one.used).min().unwrap_or_default();
        self.callers.entry(Arc::clone(name)).or_insert_with(|| CallerUse { used, ..CallerUse::default() })
    }

    pub(super) fn forget_if_idle(&mut self, name: &str) {
        if self.callers.get(name).is_some_and(|one| one.queued == 0 && one.admitted == [0; 3]) {
            self.callers.remove(name);
        }
    }

    /// The next query that may be let in.
    pub(super) fn take_next(&mut self) -> Option<QueuedQuery> {
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

    pub(super) fn is_past_shutdown(&self) -> bool {
        self.shutdown_at.get().is_some_and(|at| Instant::now() > *at)
    }

    pub(super) fn are_downloads_waiting(&self) -> bool {
        self.lock().queue.iter().any(|query| query.kind == QueryKind::Download)
    }

    /// Lets in as many as there is room for.
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
            // Whoever does not wait any more gives it back here.
            if let Err(mut permit) = next.admit.send(permit) {
                permit.give_back();
            }
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct QueryLimits {
    /// How long a query may run.
    pub(crate) query_time: Duration,
    pub(crate) download_time: Duration,
    /// How long it may wait for others.
    pub(crate) max_wait: Duration,
    /// How many run at a moment.
    pub(crate) slots: usize,
}

/// Under way at once, of each kind. The last two may hold a whole trace in memory each.
pub(super) const MAX_QUERIES: [usize; 3] = [8, 2, 4];

/// Of one caller.
pub(super) const MAX_CALLER_QUERIES: [usize; 3] = [4, 1, 2];

impl QueryLimits {
    pub(crate) fn new(query_time: Duration, download_time: Duration) -> QueryLimits {
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

/// What became of queries, for `/metrics`.
#[derive(Debug, Default)]
pub(crate) struct QueryCounts {
    pub(super) done: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) timed_out: AtomicU64,
    pub(super) cancelled: AtomicU64,
    pub(super) overloaded: AtomicU64,
}

impl QueryCounts {
    pub(super) fn count_end(&self, stop: Option<QueryStop>) {
        let counter = match stop {
            None => &self.done,
            Some(QueryStop::Cancelled | QueryStop::ShuttingDown) => &self.cancelled,
            Some(QueryStop::TimedOut { .. }) => &self.timed_out,
            Some(QueryStop::Overloaded | QueryStop::TooMuchUnread) => &self.overloaded,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// By result.
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

#[derive(Default)]
pub(super) struct CallerUse {
    /// For how long its queries ran, since the first of those that are here.
    pub(super) used: Duration,
    pub(super) admitted: [usize; 3],
    pub(super) queued: usize,
}

pub(super) struct QueuedQuery {
    pub(super) id: u64,
    pub(super) caller: Arc<str>,
    pub(super) kind: QueryKind,
    pub(super) admit: oneshot::Sender<QueryPermit>,
}

/// The right to run one query; given back when the query is over, which may be after whoever asked has left.
pub(crate) struct QueryPermit {
    pub(super) pool: Arc<PoolShared>,
    pub(super) id: u64,
    pub(super) caller: Arc<str>,
    pub(super) kind: QueryKind,
    pub(super) is_given_back: bool,
}

impl QueryPermit {
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

pub(super) struct QueryBudget {
    pub(super) id: u64,
    pub(super) caller: Arc<str>,
    pub(super) kind: QueryKind,
    pub(super) pool: Arc<PoolShared>,
    pub(super) begun: Instant,
    pub(super) stop: AtomicU8,
    /// Nanoseconds that it ran in turns that are over.
    pub(super) ran_ns: AtomicU64,
    /// When its turn began, and when it asked last, in nanoseconds since it was begun; 0 without a turn.
    pub(super) turn_ns: AtomicU64,
    pub(super) checked_ns: AtomicU64,
    pub(super) interrupts: Mutex<Vec<Arc<QueryInterrupt>>>,
}

/// How long a query runs before others that wait have their turn.
pub(super) const SLICE: Duration = Duration::from_millis(50);

/// Whoever has not asked for so long cannot be made to wait: its turn is not counted, so that others go on.
pub(super) const STALLED: Duration = Duration::from_millis(250);

pub(super) const CANCELLED: u8 = 1;

pub(super) const TIMED_OUT: u8 = 2;

pub(super) const OVERLOADED: u8 = 3;

pub(super) const SHUTTING_DOWN: u8 = 4;

/// It came to its end: nothing stops it any more.
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

    /// Why it must not go on, if it must not.
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

    /// Stops it. The first reason counts.
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

    pub(super) fn finish(&self) {
        let _ = self.stop.compare_exchange(0, FINISHED, Ordering::Relaxed, Ordering::Relaxed);
    }

    pub(super) fn now_ns(&self) -> u64 {
        // 0 stands for none.
        u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX).max(1)
    }

    pub(super) fn run_time(&self) -> Duration {
        let turn = match self.turn_ns.load(Ordering::Relaxed) {
            0 => 0,
            begun => self.now_ns().saturating_sub(begun),
        };
        Duration::from_nanos(self.ran_ns.load(Ordering::Relaxed) + turn)
    }

    /// Stops it when its time is over; called by the pool's clock, too, and again and again, since an interrupt that comes
    /// between two statements is lost.
    pub(super) fn enforce_limits(&self) {
        let limits = &self.pool.limits;
        let (limit, setting) = limits.time_limit(self.kind);
        if let Some(reason) = self.stop_reason() {
            self.stop(reason);
        } else if self.run_time() > limit {
            self.stop(QueryStop::TimedOut { limit_s: limit.as_secs(), setting });
        } else if self.kind != QueryKind::Download && self.begun.elapsed() > limit + limits.max_wait {
            // Its transaction keeps the write-ahead log from being reset: it may not wait for its turns for long.
            self.stop(QueryStop::Overloaded);
        } else if self.pool.is_past_shutdown() {
            self.stop(QueryStop::ShuttingDown);
        }
    }

    pub(super) fn begin_turn(&self) {
        let now = self.now_ns();
        self.checked_ns.store(now, Ordering::Relaxed);
        self.turn_ns.store(now, Ordering::Relaxed);
    }

    /// Ends its turn; returns how long that was.
    pub(super) fn end_turn(&self) -> Duration {
        let begun = self.turn_ns.swap(0, Ordering::Relaxed);
        let turn = if begun == 0 { 0 } else { self.now_ns().saturating_sub(begun) };
        self.ran_ns.fetch_add(turn, Ordering::Relaxed);
        Duration::from_nanos(turn)
    }

    /// Whether it has not asked for a while, though it has its turn.
    pub(super) fn is_stalled(&self) -> bool {
        let since = self.now_ns().saturating_sub(self.checked_ns.load(Ordering::Relaxed));
        Duration::from_nanos(since) > STALLED
    }
}

impl QueryMonitor for QueryBudget {
    fn check(&self) -> Result<(), QueryStop> {
        if let Some(reason) = self.stop_reason() {
            return Err(reason);
        }
        let now = self.now_ns();
        self.checked_ns.store(now, Ordering::Relaxed);
        let turn = self.turn_ns.load(Ordering::Relaxed);
        if turn != 0 && Duration::from_nanos(now.saturating_sub(turn)) > SLICE {
            self.enforce_limits();
            self.pool.next_turn(self)?;
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
