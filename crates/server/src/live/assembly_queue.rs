//! The order in which trace groups are assembled.
//!
//! Projects take turns. Large groups have a lane of their own with one thread at a time, so that they never delay small
//! ones. A group that failed before is claimed alone: if it crashes the process, no other group is blamed. A large
//! group that was just assembled rests in proportion to its cost, because spans that trickle in would otherwise have
//! all of it assembled again each time.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gradus_store::{ReadyQuery, ReadyTraceGroup, Store, StoreError};

/// Maximum number of small groups that are claimed, and later stored, together.
const MAX_BATCH: usize = 256;
/// Maximum number of ready groups that are fetched from the store at once.
const MAX_CANDIDATES: usize = 1024;
/// A group rests this many times as long as its assembly took, so that it uses at most 5 % of one thread.
const REST_FACTOR: u32 = 20;
/// Minimum assembly time of a group that rests afterwards.
const MIN_SLOW_ASSEMBLY: Duration = Duration::from_millis(50);
/// Maximum number of resting groups in memory. Beyond that, groups do not rest.
const MAX_RESTING_GROUPS: usize = 10_000;

/// Shared by the assembly threads. The store is read while the lock is held, so that two threads do not fetch the same
/// candidates.
#[derive(Debug, Default)]
pub(super) struct AssemblyQueue {
    state: Mutex<AssemblyQueueState>,
}

/// Groups are identified by their row number in the store.
#[derive(Debug, Default)]
struct AssemblyQueueState {
    candidates: VecDeque<ReadyTraceGroup>,
    /// Trace groups that turned out to be large.
    large: VecDeque<ReadyTraceGroup>,
    is_large_taken: bool,
    /// Groups that a thread works on or that wait in the large lane.
    claimed: HashSet<i64>,
    /// When the rest of a group ends. `rest_ends` has the same entries in order of time.
    resting: HashMap<i64, Instant>,
    rest_ends: BTreeSet<(Instant, i64)>,
    /// The project that was served last. The store lists the projects after it first.
    last_project: i64,
    last_large_project: i64,
}

/// Groups that one thread has claimed and must release.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct AssemblyClaim {
    pub(super) trace_groups: Vec<ReadyTraceGroup>,
    /// Whether this is the one large group that is assembled at the moment.
    pub(super) is_large: bool,
}

impl AssemblyQueue {
    /// Claims the next groups; `None` if none is ready. A waiting large group comes first, as long as no other one is
    /// being assembled.
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
            // The store also returns groups that are claimed or rest, so ask for as many more.
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
            // A retry is never claimed together with other groups.
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

    /// Moves a claimed group to the large lane. It stays claimed meanwhile.
    pub(super) fn defer_large(&self, trace_group: ReadyTraceGroup) {
        self.lock().large.push_back(trace_group);
    }

    /// Ends the claim of one group; `took` is the time of its assembly, and zero if it was not assembled.
    pub(super) fn release(&self, trace_group: i64, is_large: bool, took: Duration) {
        let mut state = self.lock();
        state.claimed.remove(&trace_group);
        if is_large {
            state.is_large_taken = false;
        }
        if took >= MIN_SLOW_ASSEMBLY && state.resting.len() < MAX_RESTING_GROUPS {
            let until = Instant::now() + took * REST_FACTOR;
            state.resting.insert(trace_group, until);
            state.rest_ends.insert((until, trace_group));
        }
    }

    /// Ends the rest of all groups, because a client waits for them.
    pub(super) fn end_rests(&self) {
        let mut state = self.lock();
        state.resting.clear();
        state.rest_ends.clear();
    }

    /// Returns all claimed groups, whose attempts a stop has to cancel.
    pub(super) fn claimed_trace_groups(&self) -> Vec<i64> {
        self.lock().claimed.iter().copied().collect()
    }

    fn lock(&self) -> MutexGuard<'_, AssemblyQueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AssemblyQueueState {
    /// Removes groups whose rest is over. They are found again as candidates if they have new records.
    fn wake_rested(&mut self) {
        let now = Instant::now();
        while let Some((end, trace_group)) = self.rest_ends.first().copied().filter(|(end, _)| *end <= now) {
            self.rest_ends.remove(&(end, trace_group));
            self.resting.remove(&trace_group);
        }
    }

    /// Takes the next large group, preferably of another project than the last one.
    fn take_large(&mut self) -> Option<ReadyTraceGroup> {
        let of_another = self.large.iter().position(|trace_group| trace_group.project != self.last_large_project);
        let trace_group = self.large.remove(of_another.unwrap_or_default())?;
        self.last_large_project = trace_group.project;
        Some(trace_group)
    }
}
