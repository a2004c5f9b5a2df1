//! One memory budget for everything that clients make the server hold: bodies as they arrive, what they decompress and
//! parse to, and response bytes that wait to be read. A client is refused when its own share or the whole budget is used
//! up; a part of the budget is kept for clients that hold little, so that large requests cannot shut out small ones.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::client_address::ClientAddress;

/// A client that holds less than this part of the budget may also use the reserve.
const GUARANTEED_PART: usize = 16;
/// This part of the budget is the reserve.
const RESERVE_PART: usize = 4;
/// Responses that wait to be read hold at most this part.
const RESPONSE_PART: usize = 2;
/// How long a request waits for others to release memory before it is refused.
const MAX_WAIT: Duration = Duration::from_millis(500);
/// After a client that holds little was refused, the server reports for this long that it is overloaded.
const OVERLOAD_MEMORY: Duration = Duration::from_secs(5);

/// What memory is held for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemoryUse {
    Request,
    Response,
}

/// Why memory was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemoryRefusal {
    /// Others hold it at the moment.
    Full,
    /// The client holds its share already.
    ClientShare,
    /// This request alone needs more than a client may hold.
    NeverFits,
}

#[derive(Clone, Debug)]
pub(super) struct MemoryBudget {
    shared: Arc<SharedBudget>,
}

#[derive(Debug)]
struct SharedBudget {
    total: usize,
    client_share: usize,
    state: Mutex<BudgetState>,
    released: Notify,
}

#[derive(Debug, Default)]
struct BudgetState {
    used: usize,
    responses: usize,
    clients: HashMap<ClientAddress, usize>,
    refusals: u64,
    starved_at: Option<Instant>,
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
    /// `client_share` bounds what one client holds.
    pub(super) fn new(total: usize, client_share: usize) -> MemoryBudget {
        let client_share = client_share.min(total);
        let shared = SharedBudget { total, client_share, state: Mutex::default(), released: Notify::new() };
        MemoryBudget { shared: Arc::new(shared) }
    }

    /// A lease of nothing, to be grown.
    pub(super) fn open(&self, client: ClientAddress, usage: MemoryUse) -> MemoryLease {
        MemoryLease { shared: Arc::clone(&self.shared), client, usage, bytes: 0 }
    }

    pub(super) fn take(
        &self,
        client: ClientAddress,
        usage: MemoryUse,
        bytes: usize,
    ) -> Result<MemoryLease, MemoryRefusal> {
        let mut lease = self.open(client, usage);
        lease.grow(bytes)?;
        Ok(lease)
    }

    /// Bytes held by requests and by responses.
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

    /// Whether clients that hold little were refused lately.
    pub(super) fn is_overloaded(&self) -> bool {
        self.shared.lock().starved_at.is_some_and(|at| at.elapsed() < OVERLOAD_MEMORY)
    }
}

impl SharedBudget {
    fn lock(&self) -> MutexGuard<'_, BudgetState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_grow(&self, client: ClientAddress, usage: MemoryUse, bytes: usize) -> Result<(), MemoryRefusal> {
        let mut state = self.lock();
        let held = state.clients.get(&client).copied().unwrap_or(0).saturating_add(bytes);
        if held > self.client_share {
            return Err(MemoryRefusal::ClientShare);
        }
        let is_guaranteed = held <= self.total / GUARANTEED_PART;
        let limit = if is_guaranteed { self.total } else { self.total - self.total / RESERVE_PART };
        let is_response = usage == MemoryUse::Response;
        let fits_class = !is_response
            || is_guaranteed
            || state.responses.saturating_add(bytes) <= self.total / RESPONSE_PART;
        if !fits_class || state.used.saturating_add(bytes) > limit {
            return Err(MemoryRefusal::Full);
        }
        state.add(client, is_response, bytes);
        Ok(())
    }

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
    fn add(&mut self, client: ClientAddress, is_response: bool, bytes: usize) {
        self.used += bytes;
        self.responses += if is_response { bytes } else { 0 };
        if bytes > 0 {
            *self.clients.entry(client).or_default() += bytes;
        }
    }
}

impl MemoryLease {
    pub(super) fn grow(&mut self, bytes: usize) -> Result<(), MemoryRefusal> {
        let grown = self.try_grow(bytes);
        if let Err(refusal) = grown {
            let mut state = self.shared.lock();
            state.refusals += 1;
            let held = state.clients.get(&self.client).copied().unwrap_or(0).saturating_add(bytes);
            if refusal == MemoryRefusal::Full && held <= self.shared.total / GUARANTEED_PART {
                state.starved_at = Some(Instant::now());
            }
        }
        grown
    }

    fn try_grow(&mut self, bytes: usize) -> Result<(), MemoryRefusal> {
        if self.bytes.saturating_add(bytes) > self.shared.client_share {
            return Err(MemoryRefusal::NeverFits);
        }
        self.shared.try_grow(self.client, self.usage, bytes)?;
        self.bytes += bytes;
        Ok(())
    }

    /// Grows, and waits a moment for others to release memory if there is none.
    pub(super) async fn grow_patiently(&mut self, bytes: usize) -> Result<(), MemoryRefusal> {
        let deadline = tokio::time::Instant::now() + MAX_WAIT;
        loop {
            let shared = Arc::clone(&self.shared);
            let released = shared.released.notified();
            tokio::pin!(released);
            // Registered before the attempt, so that a release in between is not missed.
            released.as_mut().enable();
            match self.try_grow(bytes) {
                Err(MemoryRefusal::Full | MemoryRefusal::ClientShare) => {}
                done => return done,
            }
            if tokio::time::timeout_at(deadline, released).await.is_err() {
                return self.grow(bytes);
            }
        }
    }

    /// Counts memory that exists already, whatever the limits say.
    pub(super) fn grow_anyway(&mut self, bytes: usize) {
        self.shared.lock().add(self.client, self.usage == MemoryUse::Response, bytes);
        self.bytes += bytes;
    }

    /// Releases all but so many bytes.
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
        let mut lease = budget.take(client(1), MemoryUse::Request, 100 * KB).expect("memory");
        assert_eq!(lease.grow(21 * KB), Err(MemoryRefusal::Full));
        assert_eq!(lease.grow(20 * KB), Ok(()));
        assert_eq!(budget.used_bytes(), (120 * KB, 0));
        lease.shrink_to(10 * KB);
        assert_eq!(budget.used_bytes(), (10 * KB, 0));
        drop(lease);
        assert_eq!(budget.used_bytes(), (0, 0));
        assert!(budget.shared.lock().clients.is_empty());
    }

    #[test]
    fn a_client_that_holds_little_is_served_when_others_hold_all_they_can() {
        let budget = MemoryBudget::new(160 * KB, 80 * KB);
        let first = budget.take(client(1), MemoryUse::Request, 80 * KB).expect("memory");
        assert_eq!(
            budget.take(client(1), MemoryUse::Request, 1).expect_err("its share is used up"),
            MemoryRefusal::ClientShare
        );
        let second = budget.take(client(2), MemoryUse::Request, 40 * KB).expect("memory");
        let third = budget.take(client(3), MemoryUse::Request, 11 * KB);
        assert_eq!(third.expect_err("above what is guaranteed"), MemoryRefusal::Full);
        let small: Vec<MemoryLease> = (4..8)
            .map(|last| budget.take(client(last), MemoryUse::Request, 10 * KB).expect("guaranteed"))
            .collect();
        assert!(!budget.is_overloaded());
        assert!(budget.take(client(9), MemoryUse::Request, KB).is_err());
        assert!(budget.is_overloaded());
        drop((first, second, small));
        assert_eq!(budget.used_bytes(), (0, 0));
    }

    #[test]
    fn responses_leave_memory_for_requests() {
        let budget = MemoryBudget::new(160 * KB, 160 * KB);
        let _unread = budget.take(client(1), MemoryUse::Response, 80 * KB).expect("memory");
        assert!(budget.take(client(2), MemoryUse::Response, 20 * KB).is_err());
        assert!(budget.take(client(2), MemoryUse::Request, 20 * KB).is_ok());
        assert_eq!(
            budget.take(client(3), MemoryUse::Request, 161 * KB).expect_err("too much"),
            MemoryRefusal::NeverFits
        );
    }

    #[tokio::test]
    async fn whoever_waits_gets_what_is_released() {
        let budget = MemoryBudget::new(160 * KB, 160 * KB);
        let held = budget.take(client(1), MemoryUse::Request, 120 * KB).expect("memory");
        let waiting = budget.clone();
        let waiting = tokio::spawn(async move {
            let mut lease = waiting.open(client(2), MemoryUse::Request);
            lease.grow_patiently(60 * KB).await
        });
        tokio::task::yield_now().await;
        drop(held);
        assert_eq!(waiting.await.expect("no panic"), Ok(()));
    }
}
