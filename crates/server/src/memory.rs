//! One memory budget for everything that clients make the server hold: arriving bodies, their decompressed and parsed
//! form, and unread response bytes (admission control).
//!
//! A client is refused when its own share or the whole budget is used up. The budget ends in steps: the more a client
//! holds, the earlier it is refused, so that large requests cannot lock out small ones. When even clients that hold
//! little find no memory, the large body that arrives slowest is cut off.
//!
//! Sizes are estimates that callers report, not allocations. The mutex is held for arithmetic only.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::client_address::ClientAddress;
use crate::large_arrival::ArrivingLargeBody;
use crate::throttled_log::ThrottledLog;

/// A quarter of the budget is the reserve. Only clients that hold at most 1 / `GUARANTEED_PART` of the budget may use
/// it.
const RESERVE_PART: usize = 4;
const GUARANTEED_PART: usize = 16;
/// The last sixteenth of the budget, inside the reserve, is for small clients. Those hold at most 1 /
/// `SMALL_CLIENT_PART` of the budget (256 KB of 128 MB), but at least `MIN_SMALL_CLIENT_BYTES`, which a few requests need.
const SMALL_RESERVE_PART: usize = 16;
const SMALL_CLIENT_PART: usize = 512;
const MIN_SMALL_CLIENT_BYTES: usize = 64 << 10;
/// Unread responses hold at most half of the budget, so that slow readers cannot block ingest.
const RESPONSE_PART: usize = 2;
/// How long a request waits for others to release memory before it is refused.
const MAX_WAIT: Duration = Duration::from_millis(500);
/// While a small client waits, one slow body is cut off after each interval.
const CUT_OFF_INTERVAL: Duration = Duration::from_millis(150);
/// Maximum number of requests that wait for memory. What they hold meanwhile is not counted, so their number is
/// bounded.
const MAX_WAITING_REQUESTS: usize = 256;
/// The health check reports overload for this long after a refusal, so that a load balancer polling it notices.
pub(super) const OVERLOAD_REPORT: Duration = Duration::from_secs(5);

/// Requests and responses share the budget, but responses have a limit of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemoryUse {
    Request,
    Response,
}

/// Why memory was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemoryRefusal {
    /// Other clients hold the memory. A retry may succeed.
    Full,
    /// The client's other requests hold its share. A retry may succeed when those are done.
    ClientShare,
    /// The lease would exceed what one client may ever hold. A retry cannot succeed.
    NeverFits,
}

/// A handle to the budget; clones share it.
#[derive(Clone, Debug)]
pub(super) struct MemoryBudget {
    shared: Arc<SharedBudget>,
}

/// Limits in bytes, and the state behind one mutex.
#[derive(Debug)]
struct SharedBudget {
    total: usize,
    client_share: usize,
    state: Mutex<BudgetState>,
    /// Wakes all requests that wait for memory. Each tries again, since the released amount may fit any of them.
    released: Notify,
    cut_offs: ThrottledLog,
}

/// Invariant: `used` is the sum of `clients` and includes `responses`.
#[derive(Debug, Default)]
struct BudgetState {
    used: usize,
    responses: usize,
    clients: HashMap<ClientAddress, usize>,
    refusals: u64,
    /// When a small client was last refused: the sign of real overload.
    starved_at: Option<Instant>,
    waiting: usize,
    /// Large bodies that are still arriving and may be cut off.
    arrivals: Vec<Arc<ArrivingLargeBody>>,
}

/// Memory that one request or response holds; released on drop.
#[derive(Debug)]
pub(super) struct MemoryLease {
    shared: Arc<SharedBudget>,
    client: ClientAddress,
    usage: MemoryUse,
    bytes: usize,
}

impl MemoryBudget {
    /// Creates a budget; both limits are in bytes. `client_share` bounds what one client address holds.
    pub(super) fn new(total: usize, client_share: usize) -> MemoryBudget {
        let client_share = client_share.min(total);
        let shared = SharedBudget {
            total,
            client_share,
            state: Mutex::default(),
            released: Notify::new(),
            cut_offs: ThrottledLog::default(),
        };
        MemoryBudget { shared: Arc::new(shared) }
    }

    /// Opens an empty lease. Grow it before memory is allocated, not after.
    pub(super) fn open_lease(&self, client: ClientAddress, usage: MemoryUse) -> MemoryLease {
        MemoryLease { shared: Arc::clone(&self.shared), client, usage, bytes: 0 }
    }

    /// Acquires a lease of this size, without waiting.
    pub(super) fn acquire_lease(
        &self,
        client: ClientAddress,
        usage: MemoryUse,
        bytes: usize,
    ) -> Result<MemoryLease, MemoryRefusal> {
        let mut lease = self.open_lease(client, usage);
        lease.grow(bytes)?;
        Ok(lease)
    }

    /// Registers a large body, which may be cut off until [`MemoryBudget::end_arrival`].
    pub(super) fn begin_arrival(&self, arrival: Arc<ArrivingLargeBody>) {
        self.shared.lock().arrivals.push(arrival);
    }

    pub(super) fn end_arrival(&self, arrival: &Arc<ArrivingLargeBody>) {
        self.shared.lock().arrivals.retain(|known| !Arc::ptr_eq(known, arrival));
    }

    /// Returns the bytes held by requests, and by responses, for `/metrics`.
    pub(super) fn used_bytes(&self) -> (usize, usize) {
        let state = self.shared.lock();
        (state.used - state.responses, state.responses)
    }

    pub(super) fn total_bytes(&self) -> usize {
        self.shared.total
    }

    pub(super) fn refusals(&self) -> u64 {
        self.shared.lock().refusals
    }

    /// Whether small clients were refused lately. Refusals of large clients are normal operation.
    pub(super) fn is_overloaded(&self) -> bool {
        self.shared.lock().starved_at.is_some_and(|at| at.elapsed() < OVERLOAD_REPORT)
    }
}

impl SharedBudget {
    fn lock(&self) -> MutexGuard<'_, BudgetState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the maximum that a small client holds, in bytes.
    fn max_small_client_bytes(&self) -> usize {
        (self.total / SMALL_CLIENT_PART).max(MIN_SMALL_CLIENT_BYTES).min(self.total / GUARANTEED_PART)
    }

    /// Returns the fill level of the whole budget up to which a client that holds this many bytes may grow: the steps
    /// of the module's documentation.
    fn limit_for(&self, held: usize) -> usize {
        if held <= self.max_small_client_bytes() {
            self.total
        } else if held <= self.total / GUARANTEED_PART {
            self.total - self.total / SMALL_RESERVE_PART
        } else {
            self.total - self.total / RESERVE_PART
        }
    }

    /// Returns the maximum size of one lease: a client's share, but never the reserve.
    fn max_lease(&self) -> usize {
        self.client_share.min(self.total - self.total / RESERVE_PART)
    }

    /// Whether a client is small with this many more bytes.
    fn is_small(&self, client: ClientAddress, bytes: usize) -> bool {
        self.lock().held_with(client, bytes) <= self.max_small_client_bytes()
    }

    /// Cuts off the large body with the lowest rate. One at a time: while a body that was cut off has not released its
    /// memory, no other one is.
    fn cut_off_slowest(&self) {
        let now = Instant::now();
        let slowest = {
            let state = self.lock();
            if state.arrivals.iter().any(|arrival| arrival.is_cut_off()) {
                return;
            }
            let by_rate = |one: &&Arc<ArrivingLargeBody>, other: &&Arc<ArrivingLargeBody>| {
                one.bytes_per_second(now).total_cmp(&other.bytes_per_second(now))
            };
            let slowest = state.arrivals.iter().min_by(by_rate).map(Arc::clone);
            if let Some(slowest) = &slowest {
                slowest.cut_off();
            }
            slowest
        };
        if let Some(slowest) = slowest
            && let Some(times) = self.cut_offs.record_occurrence()
        {
            let (address, bytes) = (slowest.client, slowest.bytes());
            tracing::warn!(%address, bytes, times, "aborted a slow large request to free memory for small ones");
        }
    }

    /// Checks the client's share first, then the limit of responses, then the step that applies to the client. A client
    /// within its guaranteed part may hold responses beyond the limit of responses.
    fn try_grow(&self, client: ClientAddress, usage: MemoryUse, bytes: usize) -> Result<(), MemoryRefusal> {
        let mut state = self.lock();
        let held = state.held_with(client, bytes);
        if held > self.client_share {
            return Err(MemoryRefusal::ClientShare);
        }
        let is_guaranteed = held <= self.total / GUARANTEED_PART;
        let is_response = usage == MemoryUse::Response;
        let fits_class =
            !is_response || is_guaranteed || state.responses.saturating_add(bytes) <= self.total / RESPONSE_PART;
        if !fits_class || state.used.saturating_add(bytes) > self.limit_for(held) {
            return Err(MemoryRefusal::Full);
        }
        state.add(client, is_response, bytes);
        Ok(())
    }

    /// Gives bytes back and wakes all waiting requests. Entries of clients that hold nothing are removed, so that the
    /// map stays small.
    fn release(&self, client: ClientAddress, usage: MemoryUse, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let mut state = self.lock();
        state.used -= bytes;
        if usage == MemoryUse::Response {
            state.responses -= bytes;
        }
        if let Some(held) = state.clients.get_mut(&client) {
            *held -= bytes;
            if *held == 0 {
                state.clients.remove(&client);
            }
        }
        drop(state);
        self.released.notify_waiters();
    }
}

impl BudgetState {
    /// Returns the bytes that a client would hold with this many more.
    fn held_with(&self, client: ClientAddress, bytes: usize) -> usize {
        self.clients.get(&client).copied().unwrap_or(0).saturating_add(bytes)
    }

    fn add(&mut self, client: ClientAddress, is_response: bool, bytes: usize) {
        self.used += bytes;
        self.responses += if is_response { bytes } else { 0 };
        if bytes > 0 {
            *self.clients.entry(client).or_default() += bytes;
        }
    }
}

impl MemoryLease {
    /// Opens an empty lease for the same client and use.
    pub(super) fn open_sibling(&self) -> MemoryLease {
        MemoryLease { shared: Arc::clone(&self.shared), client: self.client, usage: self.usage, bytes: 0 }
    }

    /// Grows without waiting, and counts a refusal. If a small client is refused, the slowest large body is cut off for
    /// the next one.
    pub(super) fn grow(&mut self, bytes: usize) -> Result<(), MemoryRefusal> {
        let grown = self.try_grow(bytes);
        if let Err(refusal) = grown {
            let is_starved = {
                let mut state = self.shared.lock();
                state.refusals += 1;
                let held = state.held_with(self.client, bytes);
                let is_starved = refusal == MemoryRefusal::Full && held <= self.shared.max_small_client_bytes();
                if is_starved {
                    state.starved_at = Some(Instant::now());
                }
                is_starved
            };
            if is_starved {
                self.shared.cut_off_slowest();
            }
        }
        grown
    }

    /// Grows without counting a refusal, for callers that try again.
    fn try_grow(&mut self, bytes: usize) -> Result<(), MemoryRefusal> {
        if self.bytes.saturating_add(bytes) > self.shared.max_lease() {
            return Err(MemoryRefusal::NeverFits);
        }
        self.shared.try_grow(self.client, self.usage, bytes)?;
        self.bytes += bytes;
        Ok(())
    }

    /// Grows, and waits up to [`MAX_WAIT`] for other clients to release memory.
    pub(super) async fn grow_patiently(&mut self, bytes: usize) -> Result<(), MemoryRefusal> {
        match self.try_grow(bytes) {
            Err(MemoryRefusal::Full | MemoryRefusal::ClientShare) => {}
            done => return done,
        }
        let Some(_waiting) = WaitingRequest::begin(&self.shared) else { return self.grow(bytes) };
        let begun = tokio::time::Instant::now();
        let deadline = begun + MAX_WAIT;
        let mut cut_off_at = begun + CUT_OFF_INTERVAL;
        loop {
            let shared = Arc::clone(&self.shared);
            let released = shared.released.notified();
            tokio::pin!(released);
            // Registered before the attempt, so that a release between the attempt and the wait is not missed.
            released.as_mut().enable();
            let refusal = match self.try_grow(bytes) {
                Err(refusal @ (MemoryRefusal::Full | MemoryRefusal::ClientShare)) => refusal,
                done => return done,
            };
            let until = cut_off_at.min(deadline);
            if tokio::time::timeout_at(until, released).await.is_err() {
                if until == deadline {
                    return self.grow(bytes);
                }
                cut_off_at += CUT_OFF_INTERVAL;
                if refusal == MemoryRefusal::Full && self.shared.is_small(self.client, bytes) {
                    self.shared.cut_off_slowest();
                }
            }
        }
    }

    /// Grows, and waits only if the client is small. The stream and the headers of a waiting request are not counted,
    /// so large clients must not pile up here.
    pub(super) async fn grow_if_small_patiently(&mut self, bytes: usize) -> Result<(), MemoryRefusal> {
        match self.try_grow(bytes) {
            Err(MemoryRefusal::Full) if self.shared.is_small(self.client, bytes) => self.grow_patiently(bytes).await,
            Err(_) => self.grow(bytes),
            done => done,
        }
    }

    /// Counts memory that already exists, even beyond the limits, so that the budget stays true.
    pub(super) fn grow_anyway(&mut self, bytes: usize) {
        self.shared.lock().add(self.client, self.usage == MemoryUse::Response, bytes);
        self.bytes += bytes;
    }

    /// Releases all but this many bytes. Call it after the memory was freed.
    pub(super) fn shrink_to(&mut self, bytes: usize) {
        let surplus = self.bytes.saturating_sub(bytes);
        self.bytes -= surplus;
        self.shared.release(self.client, self.usage, surplus);
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for MemoryLease {
    fn drop(&mut self) {
        self.shared.release(self.client, self.usage, self.bytes);
    }
}

/// A request that waits for memory; it is counted until this is dropped.
struct WaitingRequest {
    shared: Arc<SharedBudget>,
}

impl WaitingRequest {
    /// `None` if too many requests are waiting.
    fn begin(shared: &Arc<SharedBudget>) -> Option<WaitingRequest> {
        let mut state = shared.lock();
        if state.waiting >= MAX_WAITING_REQUESTS {
            return None;
        }
        state.waiting += 1;
        drop(state);
        Some(WaitingRequest { shared: Arc::clone(shared) })
    }
}

impl Drop for WaitingRequest {
    fn drop(&mut self) {
        self.shared.lock().waiting -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KB: usize = 1 << 10;

    fn client(last: u8) -> ClientAddress {
        ClientAddress::from_ip([127, 0, 0, last].into())
    }

    #[test]
    fn memory_is_bounded_and_comes_back() {
        let budget = MemoryBudget::new(160 * KB, 160 * KB);
        let mut lease = budget.acquire_lease(client(1), MemoryUse::Request, 100 * KB).expect("memory");
        let other = budget.acquire_lease(client(2), MemoryUse::Request, 10 * KB).expect("memory");
        assert_eq!(lease.grow(11 * KB), Err(MemoryRefusal::Full));
        assert_eq!(lease.grow(10 * KB), Ok(()));
        assert_eq!(budget.used_bytes(), (120 * KB, 0));
        lease.shrink_to(10 * KB);
        assert_eq!(budget.used_bytes(), (20 * KB, 0));
        drop((lease, other));
        assert_eq!(budget.used_bytes(), (0, 0));
        assert!(budget.shared.lock().clients.is_empty());
    }

    #[test]
    fn a_lease_that_can_never_fit_differs_from_a_share_in_use() {
        let budget = MemoryBudget::new(160 * KB, 80 * KB);
        let mut first = budget.acquire_lease(client(1), MemoryUse::Request, 50 * KB).expect("memory");
        let mut second = budget.acquire_lease(client(1), MemoryUse::Request, 20 * KB).expect("memory");
        // It fits when the first one is done.
        assert_eq!(second.grow(20 * KB), Err(MemoryRefusal::ClientShare));
        // It does not fit, whoever is done.
        assert_eq!(first.grow(31 * KB), Err(MemoryRefusal::NeverFits));
        drop(second);
        assert_eq!(first.grow(30 * KB), Ok(()));
        // Where a client may hold everything, one lease still leaves the reserve to others.
        let budget = MemoryBudget::new(160 * KB, 160 * KB);
        let refused = budget.acquire_lease(client(1), MemoryUse::Request, 121 * KB).expect_err("the reserve");
        assert_eq!(refused, MemoryRefusal::NeverFits);
    }

    /// Six clients hold what they can; a seventh that holds little is served.
    #[test]
    fn small_clients_are_served_when_others_hold_all_they_can() {
        let budget = MemoryBudget::new(128 << 20, 80 << 20);
        let take = |last: u8, bytes: usize| budget.acquire_lease(client(last), MemoryUse::Request, bytes);
        let first = take(1, 80 << 20).expect("memory");
        assert_eq!(take(1, 1).expect_err("its share is used up"), MemoryRefusal::ClientShare);
        let second = take(2, 16 << 20).expect("memory");
        assert_eq!(take(3, 9 << 20).expect_err("more than is guaranteed"), MemoryRefusal::Full);
        let guaranteed: Vec<MemoryLease> = (3..6).map(|last| take(last, 8 << 20).expect("memory")).collect();
        assert_eq!(take(6, 8 << 20).expect_err("the rest is for small clients"), MemoryRefusal::Full);
        assert!(!budget.is_overloaded());
        let small: Vec<MemoryLease> = (10..42).map(|last| take(last, 256 * KB).expect("memory")).collect();
        assert_eq!(budget.used_bytes(), (128 << 20, 0));
        assert!(!budget.is_overloaded());
        assert!(take(50, KB).is_err());
        assert!(budget.is_overloaded());
        drop((first, second, guaranteed, small));
        assert_eq!(budget.used_bytes(), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn the_slowest_large_body_is_cut_off_for_a_small_client() {
        let budget = MemoryBudget::new(160 * KB, 160 * KB);
        let mut held = budget.acquire_lease(client(1), MemoryUse::Request, 100 * KB).expect("memory");
        held.grow_anyway(60 * KB);
        let [slow, fast] = [1 << 10, 1 << 20].map(|bytes| {
            let arrival = Arc::new(ArrivingLargeBody::new(client(1)));
            arrival.add_bytes(bytes);
            budget.begin_arrival(Arc::clone(&arrival));
            arrival
        });
        // Whoever holds much does not have others cut off.
        let mut large = budget.open_lease(client(2), MemoryUse::Request);
        assert_eq!(large.grow_patiently(20 * KB).await, Err(MemoryRefusal::Full));
        assert!(!slow.is_cut_off());
        let mut small = budget.open_lease(client(3), MemoryUse::Request);
        let (slow_body, releasing) = (Arc::clone(&slow), budget.clone());
        tokio::spawn(async move {
            while !slow_body.is_cut_off() {
                // Time is paused: it passes while all tasks wait for it.
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            drop(held);
            releasing.end_arrival(&slow_body);
        });
        assert_eq!(small.grow_patiently(100).await, Ok(()));
        assert!(slow.is_cut_off() && !fast.is_cut_off() && !budget.is_overloaded());
    }

    #[tokio::test(start_paused = true)]
    async fn only_so_many_requests_wait_for_memory() {
        let budget = MemoryBudget::new(160 * KB, 160 * KB);
        let mut held = budget.open_lease(client(1), MemoryUse::Request);
        held.grow_anyway(160 * KB);
        let waiting: Vec<_> = (0..2 * MAX_WAITING_REQUESTS)
            .map(|_| {
                let budget = budget.clone();
                tokio::spawn(async move {
                    budget.open_lease(client(2), MemoryUse::Request).grow_if_small_patiently(100).await
                })
            })
            .collect();
        while budget.refusals() < MAX_WAITING_REQUESTS as u64 {
            tokio::task::yield_now().await;
        }
        assert_eq!(budget.shared.lock().waiting, MAX_WAITING_REQUESTS);
        drop(held);
        let mut granted = 0;
        for waiting in waiting {
            granted += usize::from(waiting.await.expect("no panic").is_ok());
        }
        assert_eq!((granted, budget.shared.lock().waiting), (MAX_WAITING_REQUESTS, 0));
    }

    #[test]
    fn responses_leave_memory_for_requests() {
        let budget = MemoryBudget::new(160 * KB, 160 * KB);
        let _unread = budget.acquire_lease(client(1), MemoryUse::Response, 80 * KB).expect("memory");
        assert!(budget.acquire_lease(client(2), MemoryUse::Response, 20 * KB).is_err());
        assert!(budget.acquire_lease(client(2), MemoryUse::Request, 20 * KB).is_ok());
        assert_eq!(
            budget.acquire_lease(client(3), MemoryUse::Request, 161 * KB).expect_err("too much"),
            MemoryRefusal::NeverFits
        );
    }

    #[tokio::test]
    async fn whoever_waits_gets_what_is_released() {
        let budget = MemoryBudget::new(160 * KB, 160 * KB);
        let held = budget.acquire_lease(client(1), MemoryUse::Request, 120 * KB).expect("memory");
        let waiting = budget.clone();
        let waiting = tokio::spawn(async move {
            let mut lease = waiting.open_lease(client(2), MemoryUse::Request);
            lease.grow_patiently(60 * KB).await
        });
        tokio::task::yield_now().await;
        drop(held);
        assert_eq!(waiting.await.expect("no panic"), Ok(()));
    }
}
