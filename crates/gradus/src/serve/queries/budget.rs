//! What one query may use: a time to run, counted while it has its turn, and a time in which it must be done. The store and
//! all long loops ask [`QueryBudget::check`]; the clock of the pool interrupts what never asks.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use gradus_store::{QueryInterrupt, QueryMonitor, QueryStop};

use super::pool::{PoolShared, QueryKind};

pub(super) struct QueryBudget {
    pub(super) id: u64,
    pub(super) caller: Arc<str>,
    kind: QueryKind,
    pool: Arc<PoolShared>,
    begun: Instant,
    stop: AtomicU8,
    /// Nanoseconds that it ran in turns that are over.
    ran_ns: AtomicU64,
    /// When its turn began, and when it asked last, in nanoseconds since it was begun; 0 without a turn.
    turn_ns: AtomicU64,
    checked_ns: AtomicU64,
    interrupts: Mutex<Vec<Arc<QueryInterrupt>>>,
}

/// How long a query runs before others that wait have their turn.
const SLICE: Duration = Duration::from_millis(50);
/// Whoever has not asked for so long cannot be made to wait: its turn is not counted, so that others go on.
const STALLED: Duration = Duration::from_millis(250);

const CANCELLED: u8 = 1;
const TIMED_OUT: u8 = 2;
const OVERLOADED: u8 = 3;
const SHUTTING_DOWN: u8 = 4;
/// It came to its end: nothing stops it any more.
const FINISHED: u8 = 5;

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

    fn now_ns(&self) -> u64 {
        // 0 stands for none.
        u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX).max(1)
    }

    fn ran(&self) -> Duration {
        let turn = match self.turn_ns.load(Ordering::Relaxed) {
            0 => 0,
            begun => self.now_ns().saturating_sub(begun),
        };
        Duration::from_nanos(self.ran_ns.load(Ordering::Relaxed) + turn)
    }

    /// Stops it when its time is over; called by the pool's clock, too, and again and again, since an interrupt that comes
    /// between two statements is lost.
    pub(super) fn enforce(&self) {
        let limits = &self.pool.limits;
        let (limit, setting) = limits.time_limit(self.kind);
        if let Some(reason) = self.stop_reason() {
            self.stop(reason);
        } else if self.ran() > limit {
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
            self.enforce();
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
