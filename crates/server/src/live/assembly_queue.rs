//! Which trace group an assembler takes next.
//!
//! Projects take turns. Large trace groups have a lane of their own with one assembler at a time, so that they never keep small
//! ones waiting. A trace group that failed before is taken alone: should it end the process, nobody else is blamed. And a large
//! trace group that was just assembled rests in proportion to what it cost: spans that trickle into it would otherwise have all
//! of it assembled again each time.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gradus_store::{ReadyQuery, ReadyTraceGroup, Store, StoreError};

/// Small trace groups that are taken together, and stored together.
const MAX_BATCH: usize = 256;
/// Candidates that are looked up at once.
const MAX_CANDIDATES: usize = 1024;
/// A trace group rests this many times as long as its assembly took.
const REST_FACTOR: u32 = 20;
/// Assemblies that took less are not worth remembering.
const MIN_REMEMBERED: Duration = Duration::from_millis(50);
const MAX_REMEMBERED: usize = 10_000;

#[derive(Debug, Default)]
pub(super) struct AssemblyQueue {
    state: Mutex<AssemblyQueueState>,
}

#[derive(Debug, Default)]
struct AssemblyQueueState {
    candidates: VecDeque<ReadyTraceGroup>,
    /// Trace groups that turned out to be large.
    large: VecDeque<ReadyTraceGroup>,
    is_large_taken: bool,
    /// Taken by an assembler, or waiting in the lane for large ones.
    claimed: HashSet<i64>,
    /// Until when trace groups rest.
    resting: HashMap<i64, Instant>,
    rest_ends: BTreeSet<(Instant, i64)>,
    last_project: i64,
    last_large_project: i64,
}

/// Trace groups that one assembler works on.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct AssemblyClaim {
    pub(super) trace_groups: Vec<ReadyTraceGroup>,
    /// It is the one large trace group that is assembled at the moment.
    pub(super) is_large: bool,
}

impl AssemblyQueue {
    /// The next trace groups, if any is ready.
    pub(super) fn claim(&self, store: &Store, query: ReadyQuery) -> Result<Option<AssemblyClaim>, StoreError> {
        let mut state = self.lock();
        if !state.is_large_taken
            && let Some(trace_group) = state.take_large()
        {
            state.is_large_taken = true;
            return Ok(Some(AssemblyClaim { trace_groups: vec![trace_group], is_large: true }));
        }
        if state.candidates.is_empty() {
            state.wake_rested();
            // Those that are claimed or rest are found again: ask for as many more.
            let limit = MAX_CANDIDATES + state.claimed.len() + state.resting.len().min(MAX_CANDIDATES);
            let query = ReadyQuery { after_project: state.last_project, limit, ..query };
            let ready = store.ready_trace_groups(query)?;
            let state = &mut *state;
            state.candidates = ready
                .into_iter()
                .filter(|ready| {
                    !state.claimed.contains(&ready.trace_group) && !state.resting.contains_key(&ready.trace_group)
                })
                .collect();
        }
        let mut trace_groups = Vec::new();
        while let Some(next) = state.candidates.front().copied() {
            let is_enough = trace_groups.len() == MAX_BATCH || next.is_retry && !trace_groups.is_empty();
            if is_enough {
                break;
            }
            state.candidates.pop_front();
            if !state.claimed.insert(next.trace_group) {
                continue;
            }
            state.last_project = next.project;
            trace_groups.push(next);
            if next.is_retry {
                break;
            }
        }
        Ok((!trace_groups.is_empty()).then_some(AssemblyClaim { trace_groups, is_large: false }))
    }

    /// A trace group that is too large to be taken with others: it waits for its lane.
    pub(super) fn defer_large(&self, trace_group: ReadyTraceGroup) {
        self.lock().large.push_back(trace_group);
    }

    /// A claim came to its end; `took` is how long each of its trace groups needed.
    pub(super) fn release(&self, trace_group: i64, is_large: bool, took: Duration) {
        let mut state = self.lock();
        state.claimed.remove(&trace_group);
        if is_large {
            state.is_large_taken = false;
        }
        if took >= MIN_REMEMBERED && state.resting.len() < MAX_REMEMBERED {
            let until = Instant::now() + took * REST_FACTOR;
            state.resting.insert(trace_group, until);
            state.rest_ends.insert((until, trace_group));
        }
    }

    /// All that are claimed, for whoever has to take their attempts back.
    pub(super) fn claimed_trace_groups(&self) -> Vec<i64> {
        self.lock().claimed.iter().copied().collect()
    }

    fn lock(&self) -> MutexGuard<'_, AssemblyQueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AssemblyQueueState {
    fn wake_rested(&mut self) {
        let now = Instant::now();
        while let Some((end, trace_group)) = self.rest_ends.first().copied().filter(|(end, _)| *end <= now) {
            self.rest_ends.remove(&(end, trace_group));
            self.resting.remove(&trace_group);
        }
    }

    /// The next large trace group, of another project than the last one if there is one.
    fn take_large(&mut self) -> Option<ReadyTraceGroup> {
        let of_another = self.large.iter().position(|trace_group| trace_group.project != self.last_large_project);
        let trace_group = self.large.remove(of_another.unwrap_or_default())?;
        self.last_large_project = trace_group.project;
        Some(trace_group)
    }
}
