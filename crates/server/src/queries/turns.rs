//! Turns of queries. Fewer queries run at a time than are admitted, so that a core stays free for ingest. A query
//! that has run for a slice waits for its next turn, and the caller with the least running time is next.

use std::cell::RefCell;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use gradus_store::QueryStop;

use crate::queries::pool_state::QueryBudget;
use crate::queries::pool_state::{PoolShared, PoolState};

/// Period of the clock thread, and maximum time before a waiting query checks its own limits.
const CLOCK_PERIOD: Duration = Duration::from_millis(50);
/// Maximum number of rounds without queries before the clock thread ends: one second.
const MAX_IDLE_ROUNDS: usize = 20;

impl PoolState {
    /// Whether this query is the next waiting one and a slot is free. Stalled queries occupy no slot.
    fn may_run(&self, id: u64, slots: usize) -> bool {
        let counted = self.turns.iter().filter(|budget| !budget.is_stalled()).count();
        let next = self.waiting.iter().min_by_key(|(id, caller)| (self.time_used(caller), *id));
        counted < slots && next.is_some_and(|(next, _)| *next == id)
    }
}

impl PoolShared {
    /// Blocks until the query has a turn, or returns the reason that it must end. Starts the clock thread if none runs.
    pub(super) fn take_turn(self: &Arc<Self>, budget: &Arc<QueryBudget>) -> Result<(), QueryStop> {
        let mut state = self.lock();
        state.waiting.push((budget.id, Arc::clone(&budget.caller)));
        if !std::mem::replace(&mut state.has_clock, true) {
            let pool = Arc::clone(self);
            let clock = std::thread::Builder::new().name("query-clock".to_owned());
            state.has_clock = clock.spawn(move || pool.run_clock()).is_ok();
        }
        loop {
            budget.enforce_limits();
            let stopped = budget.stop_reason();
            if stopped.is_some() || state.may_run(budget.id, self.limits.slots) {
                state.waiting.retain(|(id, _)| *id != budget.id);
                if let Some(stop) = stopped {
                    self.changed.notify_all();
                    return Err(stop);
                }
                state.turns.push(Arc::clone(budget));
                budget.begin_turn();
                return Ok(());
            }
            state = self.changed.wait_timeout(state, CLOCK_PERIOD).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Ends the turn of a query, charges its caller and wakes the waiting ones.
    pub(super) fn end_turn(&self, budget: &QueryBudget) {
        let mut state = self.lock();
        state.turns.retain(|running| running.id != budget.id);
        let ran = budget.end_turn();
        state.charge(&budget.caller, ran);
        drop(state);
        self.changed.notify_all();
    }

    /// Called after a slice. Continues at once if no query waits; otherwise the query queues for its next turn.
    pub(super) fn yield_turn(self: &Arc<Self>, budget: &QueryBudget) -> Result<(), QueryStop> {
        let mut state = self.lock();
        let ran = budget.end_turn();
        state.charge(&budget.caller, ran);
        let Some(own) = state.turns.iter().position(|running| running.id == budget.id) else { return Ok(()) };
        if state.waiting.is_empty() {
            budget.begin_turn();
            return Ok(());
        }
        let own = state.turns.swap_remove(own);
        drop(state);
        self.changed.notify_all();
        self.take_turn(&own)
    }

    /// The clock thread: stops queries that exceed a limit without calling `check`. SQLite's full-text index does so
    /// while it expands a prefix.
    fn run_clock(&self) {
        let mut idle_rounds = 0;
        loop {
            std::thread::sleep(CLOCK_PERIOD);
            let mut state = self.lock();
            let is_idle = state.turns.is_empty() && state.waiting.is_empty();
            idle_rounds = if is_idle { idle_rounds + 1 } else { 0 };
            if idle_rounds > MAX_IDLE_ROUNDS {
                state.has_clock = false;
                return;
            }
            let running = state.turns.clone();
            drop(state);
            running.iter().for_each(|budget| budget.enforce_limits());
        }
    }
}

thread_local! {
    // The query of this thread, for [`without_turn`], which has no other way to find it.
    static CURRENT: RefCell<Option<Arc<QueryBudget>>> = const { RefCell::new(None) };
}

/// Runs a query on this thread within its budget. It does not run at all if it was stopped before its first turn.
pub(super) fn run_in_turns(pool: &Arc<PoolShared>, budget: &Arc<QueryBudget>, query: impl FnOnce()) {
    /// Ends the turn on drop, so that a panic in the query does not keep it.
    struct EndTurn<'p>(&'p PoolShared, &'p QueryBudget);
    impl Drop for EndTurn<'_> {
        fn drop(&mut self) {
            CURRENT.with(|current| *current.borrow_mut() = None);
            self.0.end_turn(self.1);
        }
    }
    if pool.take_turn(budget).is_err() {
        return;
    }
    let _end = EndTurn(pool, budget);
    CURRENT.with(|current| *current.borrow_mut() = Some(Arc::clone(budget)));
    let monitor: Arc<QueryBudget> = Arc::clone(budget);
    gradus_store::run_monitored(monitor, query);
    budget.finish();
}

/// Waits for something other than the store, such as a slow client, without holding a turn. The waiting time is not
/// counted as running time.
pub(crate) fn without_turn<T>(wait: impl FnOnce() -> T) -> T {
    let Some(budget) = CURRENT.with(|current| current.borrow().clone()) else { return wait() };
    let pool = budget.pool();
    pool.end_turn(&budget);
    let waited = wait();
    // If the query was stopped meanwhile, its next check reports it.
    let _ = pool.take_turn(&budget);
    waited
}

/// Whether another download waits for admission, which a stalled client would delay.
pub(crate) fn are_downloads_waiting() -> bool {
    CURRENT.with(|current| current.borrow().as_ref().is_some_and(|budget| budget.pool().are_downloads_waiting()))
}
