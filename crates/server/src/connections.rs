//! All connections: how many may be open, in all and of one address, and which one is closed when a new one needs its
//! slot.
//!
//! A part of all slots is reserved for connections that have shown a key and for health checks: without a key,
//! connections beyond the rest are restricted to those. When there is no slot left, a connection without a key is
//! closed for the new one: an idle one if there is one, else the one without progress for longest, of the address
//! that has most. A new connection never closes one of an address that has fewer. Busy connections with a key are
//! never closed.

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::client_address::{ClientAddress, IpNetwork};
use super::connection::{ConnectionCloseReason, ConnectionRestriction, ConnectionState, ConnectionTimeouts};
use super::memory::OVERLOAD_REPORT;
use crate::throttled_log::ThrottledLog;

/// One part in five of all slots is reserved for connections that have shown a key and for health checks.
const RESERVE_PART: usize = 5;
/// Number of restricted connections that an address may open beyond its limit, so that its health checks are still
/// answered.
const ADDRESS_RESERVE: usize = 8;
/// A connection that made progress within this time is closed only for an address with fewer connections: a client that
/// has just connected has not shown its key yet.
const RECENT_PROGRESS: Duration = Duration::from_secs(1);
/// Maximum number of connections that are examined to find one to evict, which bounds the time under the lock.
const MAX_INSPECTED: usize = 16;
/// Maximum number of corrections of the examined order before a connection is chosen.
const MAX_CORRECTION_PASSES: usize = 4;

/// Limits on open connections.
#[derive(Clone, Debug)]
pub(super) struct ConnectionLimits {
    pub(super) total: usize,
    /// For one client address. Connections of trusted proxies are exempt, because many clients share them.
    pub(super) per_address: Option<usize>,
    pub(super) trusted_proxies: Vec<IpNetwork>,
}

/// All open connections and the admission policy. One mutex guards them: it is held for bookkeeping only, never while a
/// socket is used.
#[derive(Debug)]
pub(super) struct ConnectionRegistry {
    limits: ConnectionLimits,
    open: Mutex<OpenConnections>,
    refused: AtomicU64,
    /// Closed connections by [`ConnectionCloseReason`], for `/metrics`.
    closed: [AtomicU64; ConnectionCloseReason::ALL.len()],
    refusals: ThrottledLog,
    evictions: ThrottledLog,
}

/// Connections ordered by their last progress, the oldest first, with and without a key apart.
#[derive(Debug, Default)]
struct ProgressOrder {
    keyless: BTreeSet<(Instant, u64)>,
    keyed: BTreeSet<(Instant, u64)>,
}

impl ProgressOrder {
    fn group(&self, is_keyed: bool) -> &BTreeSet<(Instant, u64)> {
        if is_keyed { &self.keyed } else { &self.keyless }
    }

    fn group_mut(&mut self, is_keyed: bool) -> &mut BTreeSet<(Instant, u64)> {
        if is_keyed { &mut self.keyed } else { &mut self.keyless }
    }

    fn len(&self) -> usize {
        self.keyless.len() + self.keyed.len()
    }
}

/// A connection and the position under which it is filed. Progress and keys are recorded without the lock, so the
/// position is corrected lazily, when the connection is examined. Until then it is filed as older than it is, which is
/// safe.
#[derive(Debug)]
struct OpenConnection {
    state: Arc<ConnectionState>,
    filed_at: Instant,
    is_filed_keyed: bool,
}

/// The indexes of the registry. Every connection is in `all`, in `by_progress` and in the order of its address.
#[derive(Debug, Default)]
struct OpenConnections {
    next: u64,
    all: HashMap<u64, OpenConnection>,
    by_progress: ProgressOrder,
    by_address: HashMap<ClientAddress, ProgressOrder>,
    /// Connections without a key for each address, ordered by count, to find the address with the most in O(log n).
    keyless_counts: BTreeSet<(usize, ClientAddress)>,
    /// When a connection was last refused because all slots were in use. The health check reports overload for a while
    /// after it.
    refused_at: Option<Instant>,
}

/// A connection's slot, which is free again when this is dropped.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    registry: Arc<ConnectionRegistry>,
    number: u64,
    pub(super) state: Arc<ConnectionState>,
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.registry.lock().remove(self.number);
    }
}

/// A connection that was removed for a new one. It is closed after the lock is released.
struct EvictedConnection {
    state: Arc<ConnectionState>,
    reason: ConnectionCloseReason,
}

impl OpenConnections {
    fn insert(&mut self, state: Arc<ConnectionState>) -> u64 {
        let number = self.next;
        self.next += 1;
        self.insert_numbered(number, state);
        number
    }

    /// Files a connection under its current progress and key in all indexes.
    fn insert_numbered(&mut self, number: u64, state: Arc<ConnectionState>) {
        let connection = OpenConnection { filed_at: state.last_progress(), is_filed_keyed: state.is_keyed(), state };
        let (address, is_keyed) = (connection.state.address, connection.is_filed_keyed);
        let entry = (connection.filed_at, number);
        self.by_progress.group_mut(is_keyed).insert(entry);
        let of_address = self.by_address.entry(address).or_default();
        let before = of_address.keyless.len();
        of_address.group_mut(is_keyed).insert(entry);
        let after = of_address.keyless.len();
        self.update_keyless_count(address, before, after);
        self.all.insert(number, connection);
    }

    /// Uses the position under which the connection is filed, which may differ from its current state. `None` if it was
    /// evicted before.
    fn remove(&mut self, number: u64) -> Option<Arc<ConnectionState>> {
        let connection = self.all.remove(&number)?;
        let (address, is_keyed) = (connection.state.address, connection.is_filed_keyed);
        let entry = (connection.filed_at, number);
        self.by_progress.group_mut(is_keyed).remove(&entry);
        if let Some(of_address) = self.by_address.get_mut(&address) {
            let before = of_address.keyless.len();
            of_address.group_mut(is_keyed).remove(&entry);
            let after = of_address.keyless.len();
            if of_address.len() == 0 {
                self.by_address.remove(&address);
            }
            self.update_keyless_count(address, before, after);
        }
        Some(connection.state)
    }

    /// Keeps `keyless_counts` in step with the order of the address. An address without such connections has no entry.
    fn update_keyless_count(&mut self, address: ClientAddress, before: usize, after: usize) {
        if before != after {
            self.keyless_counts.remove(&(before, address));
            if after > 0 {
                self.keyless_counts.insert((after, address));
            }
        }
    }

    fn count_for_address(&self, address: ClientAddress) -> usize {
        self.by_address.get(&address).map_or(0, ProgressOrder::len)
    }

    fn keyless_count(&self, address: ClientAddress) -> usize {
        self.by_address.get(&address).map_or(0, |order| order.keyless.len())
    }

    /// The connections without progress for longest, of one address or of all; at most [`MAX_INSPECTED`].
    fn iter_stalest(&self, address: Option<ClientAddress>, is_keyed: bool) -> impl Iterator<Item = u64> + '_ {
        let order = match address {
            Some(address) => self.by_address.get(&address),
            None => Some(&self.by_progress),
        };
        let group = order.into_iter().flat_map(move |order| order.group(is_keyed));
        group.take(MAX_INSPECTED).map(|(_, number)| *number)
    }

    /// Corrects the positions of the first connections of an order. Each correction is paid for by progress or a key
    /// since the last one, so the cost is amortised.
    fn correct_stale_positions(&mut self, address: Option<ClientAddress>) {
        for _ in 0..MAX_CORRECTION_PASSES {
            let inspected = self.iter_stalest(address, false).chain(self.iter_stalest(address, true));
            let is_stale = |number: &u64| {
                self.all.get(number).is_some_and(|connection| {
                    let state = &connection.state;
                    connection.filed_at != state.last_progress() || connection.is_filed_keyed != state.is_keyed()
                })
            };
            let stale: Vec<u64> = inspected.filter(is_stale).collect();
            if stale.is_empty() {
                return;
            }
            for number in stale {
                if let Some(state) = self.remove(number) {
                    self.insert_numbered(number, state);
                }
            }
        }
    }

    /// Finds the address that has to give up a connection for one of `newcomer`: the one with most connections
    /// without a key, or the newcomer itself if no other has more.
    fn find_crowded_address(&mut self, newcomer: ClientAddress) -> ClientAddress {
        self.correct_stale_positions(Some(newcomer));
        // The counts may be stale: a refresh can reveal keys, and then another address has most.
        for _ in 0..MAX_CORRECTION_PASSES {
            let Some((count, most)) = self.keyless_counts.last().copied() else { break };
            if count <= self.keyless_count(newcomer) {
                break;
            }
            self.correct_stale_positions(Some(most));
            if self.keyless_counts.last().is_some_and(|(_, address)| *address == most) {
                return most;
            }
        }
        newcomer
    }

    /// Finds an idle connection that may be closed: of the address with most connections, the one that is idle
    /// longest. Connections of `crowded` may be closed even if they made progress just now.
    fn find_idle(
        &mut self,
        address: Option<ClientAddress>,
        is_keyed: bool,
        crowded: ClientAddress,
        now: Instant,
    ) -> Option<u64> {
        self.correct_stale_positions(address);
        let candidates = self.iter_stalest(address, is_keyed).filter_map(|number| {
            let state = &self.all.get(&number)?.state;
            let may_go = state.address == crowded || is_without_progress(state, now);
            let order = (std::cmp::Reverse(self.keyless_count(state.address)), state.last_progress());
            (state.is_idle() && may_go && state.is_keyed() == is_keyed).then_some((order, number))
        });
        candidates.min().map(|(_, number)| number)
    }

    /// Finds an idle connection without a key that may be closed for one of `newcomer`.
    fn find_idle_keyless(&mut self, newcomer: ClientAddress, now: Instant) -> Option<u64> {
        let crowded = self.find_crowded_address(newcomer);
        self.find_idle(None, false, crowded, now).or_else(|| self.find_idle(Some(crowded), false, crowded, now))
    }

    /// Finds the connection of an address that has no key and is without progress for longest, whether idle or not.
    /// If the address is the newcomer's own, recent progress protects it: a client must not evict its own working
    /// connections.
    fn find_busy_keyless(&mut self, address: ClientAddress, newcomer: ClientAddress, now: Instant) -> Option<u64> {
        self.correct_stale_positions(Some(address));
        let mut candidates = self.iter_stalest(Some(address), false);
        candidates.find(|number| {
            let state = self.all.get(number).map(|connection| &connection.state);
            state.is_some_and(|state| !state.is_keyed() && (address != newcomer || is_without_progress(state, now)))
        })
    }

    /// Removes a connection from the indexes. Its slot is free at once, even though its task closes later.
    fn evict(&mut self, number: u64) -> Option<EvictedConnection> {
        let state = self.remove(number)?;
        let reason = if state.is_idle() { ConnectionCloseReason::Evicted } else { ConnectionCloseReason::EvictedBusy };
        Some(EvictedConnection { state, reason })
    }
}

fn is_without_progress(state: &ConnectionState, now: Instant) -> bool {
    now.saturating_duration_since(state.last_progress()) >= RECENT_PROGRESS
}

/// The decision about a new connection: whether it is restricted, and which connection is evicted for it.
struct ConnectionAdmission {
    restriction: Option<ConnectionRestriction>,
    victim: Option<u64>,
}

impl ConnectionRegistry {
    pub(super) fn new(limits: ConnectionLimits) -> ConnectionRegistry {
        ConnectionRegistry {
            limits,
            open: Mutex::default(),
            refused: AtomicU64::new(0),
            closed: Default::default(),
            refusals: ThrottledLog::default(),
            evictions: ThrottledLog::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, OpenConnections> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a slot for a new connection; `None` if it has to be refused.
    pub(super) fn admit(self: &Arc<ConnectionRegistry>, peer: SocketAddr) -> Option<ConnectionSlot> {
        self.admit_at(peer, Instant::now())
    }

    /// `now` is a parameter so that tests can set it.
    fn admit_at(self: &Arc<ConnectionRegistry>, peer: SocketAddr, now: Instant) -> Option<ConnectionSlot> {
        let address = ClientAddress::from_ip(peer.ip());
        let mut open = self.lock();
        let Some(admission) = self.decide_admission(&mut open, peer, now) else {
            let count = open.count_for_address(address);
            drop(open);
            self.report_refusal(address, count);
            return None;
        };
        let evicted = admission.victim.and_then(|number| open.evict(number));
        let state = Arc::new(ConnectionState::new(peer, admission.restriction));
        let number = open.insert(Arc::clone(&state));
        drop(open);
        if let Some(EvictedConnection { state: victim, reason }) = evicted {
            self.close(&victim, reason);
            if let Some(times) = self.evictions.record_occurrence() {
                let (address, was_busy) = (victim.address, reason == ConnectionCloseReason::EvictedBusy);
                tracing::warn!(%address, was_busy, times, "closed connections to admit new ones: too many are open");
            }
        }
        Some(ConnectionSlot { registry: Arc::clone(self), number, state })
    }

    /// Applies the policy of the module's documentation. `None` refuses the connection.
    fn decide_admission(
        &self,
        open: &mut OpenConnections,
        peer: SocketAddr,
        now: Instant,
    ) -> Option<ConnectionAdmission> {
        let address = ClientAddress::from_ip(peer.ip());
        let is_proxy = self.limits.trusted_proxies.iter().any(|network| network.contains(peer.ip()));
        let per_address = self.limits.per_address.filter(|_| !is_proxy).unwrap_or(usize::MAX);
        let total = self.limits.total;
        let of_address = open.count_for_address(address);
        let mut admission = ConnectionAdmission { restriction: None, victim: None };
        // First the limit of the address, at the expense of its own connections only.
        if of_address >= per_address {
            let own = Some(address);
            admission.victim =
                open.find_idle(own, false, address, now).or_else(|| open.find_idle(own, true, address, now));
            if admission.victim.is_none() {
                admission.restriction = Some(ConnectionRestriction::Address);
                if of_address >= per_address.saturating_add(ADDRESS_RESERVE) {
                    admission.victim = Some(open.find_busy_keyless(address, address, now)?);
                }
            }
        } else if open.all.len() >= total - total / RESERVE_PART {
            admission.victim = open.find_idle_keyless(address, now);
            admission.restriction = admission.victim.is_none().then_some(ConnectionRestriction::Total);
        }
        // No slot is left at all: a connection without a key goes, and an idle one with a key as the last resort.
        if admission.victim.is_none() && open.all.len() >= total {
            let crowded = open.find_crowded_address(address);
            admission.victim = open
                .find_idle_keyless(address, now)
                .or_else(|| open.find_busy_keyless(crowded, address, now))
                .or_else(|| open.find_idle(None, true, crowded, now));
            if admission.victim.is_none() {
                open.refused_at = Some(now);
                return None;
            }
        }
        Some(admission)
    }

    /// Counts and logs a request that was refused on a restricted connection.
    pub(super) fn report_restricted(&self, state: &ConnectionState) {
        let count = {
            let mut open = self.lock();
            if state.restriction() == Some(ConnectionRestriction::Total) {
                open.refused_at = Some(Instant::now());
            }
            open.count_for_address(state.address)
        };
        self.report_refusal(state.address, count);
    }

    /// Counts a refusal, and logs it with throttling: an attack must not fill the log.
    fn report_refusal(&self, address: ClientAddress, connections: usize) {
        self.refused.fetch_add(1, Ordering::Relaxed);
        if let Some(times) = self.refusals.record_occurrence() {
            tracing::warn!(%address, connections, times, "refused connections: too many are open");
        }
    }

    /// Closes a connection and counts the reason, once for each connection.
    pub(super) fn close(&self, state: &ConnectionState, reason: ConnectionCloseReason) {
        if state.close(reason) {
            self.closed[reason as usize].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Closes connections that exceeded a timeout. Reasons are collected under the lock and applied after it.
    pub(super) fn close_overdue(&self, timeouts: &ConnectionTimeouts) {
        let now = Instant::now();
        let overdue: Vec<(Arc<ConnectionState>, ConnectionCloseReason)> = {
            let open = self.lock();
            let states = open.all.values().map(|connection| &connection.state);
            let open = states.filter(|state| state.close_reason().is_none());
            open.filter_map(|state| Some((Arc::clone(state), state.overdue_reason(now, timeouts)?))).collect()
        };
        for (state, reason) in overdue {
            self.close(&state, reason);
        }
    }

    /// Returns the number of open connections, and of those that have shown a key.
    pub(super) fn open_count(&self) -> (usize, usize) {
        let open = self.lock();
        (open.all.len(), open.all.values().filter(|connection| connection.state.is_keyed()).count())
    }

    pub(super) fn refused_count(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    pub(super) fn closed_count(&self, reason: ConnectionCloseReason) -> u64 {
        self.closed[reason as usize].load(Ordering::Relaxed)
    }

    /// Whether connections were refused lately because all slots were in use. Refusals for one address's limit do not
    /// count.
    pub(super) fn is_overloaded(&self) -> bool {
        self.lock().refused_at.is_some_and(|at| at.elapsed() < OVERLOAD_REPORT)
    }

    pub(super) fn trusted_proxies(&self) -> &[IpNetwork] {
        &self.limits.trusted_proxies
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::ActiveRequest;

    fn registry(total: usize, per_address: Option<usize>) -> Arc<ConnectionRegistry> {
        let trusted_proxies = vec![IpNetwork::parse("10.0.0.1").expect("an address")];
        Arc::new(ConnectionRegistry::new(ConnectionLimits { total, per_address, trusted_proxies }))
    }

    fn peer(last: u8) -> SocketAddr {
        ([127, 0, 0, last], 1000).into()
    }

    fn is_closing(slot: &ConnectionSlot) -> bool {
        slot.state.close_reason().is_some()
    }

    /// A connection with a request under way.
    fn busy(registry: &Arc<ConnectionRegistry>, last: u8) -> (ConnectionSlot, ActiveRequest) {
        let slot = registry.admit(peer(last)).expect("a slot");
        let request = slot.state.begin_request();
        (slot, request)
    }

    #[test]
    fn silent_connections_of_one_address_make_room_for_others() {
        let registry = registry(100, Some(50));
        let silent: Vec<_> = (0..300).map(|_| registry.admit(peer(1)).expect("a slot")).collect();
        assert_eq!(registry.open_count().0, 50);
        assert_eq!(registry.closed_count(ConnectionCloseReason::Evicted), 250);
        // The newest stay.
        assert!(is_closing(&silent[0]) && !is_closing(&silent[299]));
        let other = registry.admit(peer(2)).expect("a slot");
        assert_eq!(other.state.restriction(), None);
        drop((silent, other));
        assert_eq!(registry.open_count().0, 0);
        let open = registry.lock();
        assert!(open.by_address.is_empty() && open.keyless_counts.is_empty() && open.by_progress.len() == 0);
    }

    #[test]
    fn slots_are_left_for_keys_and_health_checks() {
        let registry = registry(10, None);
        let busy: Vec<_> = (0..8).map(|_| busy(&registry, 1)).collect();
        assert!(busy.iter().all(|(slot, _)| slot.state.restriction().is_none()));
        let first = registry.admit(peer(2)).expect("a restricted slot");
        assert_eq!(first.state.restriction(), Some(ConnectionRestriction::Total));
        first.state.mark_keyed();
        assert_eq!(first.state.restriction(), None);
        let second = registry.admit(peer(3)).expect("a restricted slot");
        assert!(second.state.restriction().is_some() && !registry.is_overloaded());
        assert_eq!(registry.closed_count(ConnectionCloseReason::EvictedBusy), 0);
    }

    /// All slots are taken by requests that nobody needs a key for, from two addresses, as many as one may have.
    #[test]
    fn busy_connections_without_a_key_make_room() {
        let registry = registry(2000, Some(1500));
        let now = Instant::now();
        let mut attack: Vec<_> = (0..1500).map(|_| busy(&registry, 1)).collect();
        attack.extend((0..500).map(|_| busy(&registry, 2)));
        assert_eq!(registry.open_count().0, 2000);
        // The address that has most gets no further ones while its connections make progress.
        assert!(registry.admit_at(peer(1), now).is_none());
        let keyed: Vec<_> = (0..300)
            .map(|_| {
                let slot = registry.admit_at(peer(3), now).expect("a slot");
                slot.state.mark_keyed();
                let request = slot.state.begin_request();
                (slot, request)
            })
            .collect();
        assert_eq!(registry.closed_count(ConnectionCloseReason::EvictedBusy), 300);
        // All of the address that has most, and those that were without progress for longest.
        assert!(attack[..300].iter().all(|(slot, _)| is_closing(slot)));
        assert!(attack[300..].iter().all(|(slot, _)| !is_closing(slot)));
        // Whatever the attacker does now, whoever has shown a key stays.
        for _ in 0..2000 {
            attack.extend(registry.admit_at(peer(2), now).map(|slot| {
                let request = slot.state.begin_request();
                (slot, request)
            }));
        }
        assert!(keyed.iter().all(|(slot, _)| !is_closing(slot)));
        assert!(registry.open_count().0 <= 2000);
    }

    #[test]
    fn a_client_that_has_just_connected_is_not_closed_for_one_that_has_many() {
        let registry = registry(10, None);
        let _busy: Vec<_> = (0..9).map(|_| busy(&registry, 1)).collect();
        let new = registry.admit(peer(2)).expect("a slot");
        let now = Instant::now();
        assert!(registry.admit_at(peer(1), now).is_none());
        assert!(registry.is_overloaded() && registry.refused_count() == 1 && !is_closing(&new));
        // For one that has fewer, the address that has most makes room.
        let other = registry.admit_at(peer(3), now).expect("a slot");
        assert_eq!((is_closing(&new), registry.closed_count(ConnectionCloseReason::EvictedBusy)), (false, 1));
        // A while later it is idle like any other.
        let _last = registry.admit_at(peer(4), now + 2 * RECENT_PROGRESS).expect("a slot");
        assert!(is_closing(&new) && !is_closing(&other));
    }

    #[test]
    fn the_connection_without_progress_for_longest_goes_first() {
        let registry = registry(10, None);
        let busy: Vec<_> = (0..10).map(|_| busy(&registry, 1)).collect();
        std::thread::sleep(Duration::from_millis(5));
        for (slot, _) in &busy[..4] {
            slot.state.mark_progress();
        }
        let _other = registry.admit(peer(2)).expect("a slot");
        let closed: Vec<usize> = (0..10).filter(|number| is_closing(&busy[*number].0)).collect();
        assert_eq!(closed, [4]);
    }

    #[test]
    fn an_address_at_its_limit_closes_its_own_stalled_connections() {
        let registry = registry(100, Some(10));
        let busy: Vec<_> = (0..18).map(|_| busy(&registry, 1)).collect();
        let now = Instant::now();
        assert!(registry.admit_at(peer(1), now).is_none(), "all make progress");
        let health_check = registry.admit_at(peer(1), now + 2 * RECENT_PROGRESS).expect("a slot");
        assert_eq!(health_check.state.restriction(), Some(ConnectionRestriction::Address));
        assert!(is_closing(&busy[0].0));
        busy[1..].iter().for_each(|(slot, _)| slot.state.mark_keyed());
        health_check.state.mark_keyed();
        let _request = health_check.state.begin_request();
        assert!(registry.admit_at(peer(1), now + 9 * RECENT_PROGRESS).is_none(), "all have a key and are busy");
    }

    #[test]
    fn keyed_connections_stay_while_others_are_idle() {
        let registry = registry(10, None);
        let keyed: Vec<_> = (0..5)
            .map(|_| {
                let slot = registry.admit(peer(1)).expect("a slot");
                slot.state.mark_keyed();
                slot
            })
            .collect();
        let _silent: Vec<_> = (0..100).map(|_| registry.admit(peer(2)).expect("a slot")).collect();
        assert!(keyed.iter().all(|slot| !is_closing(slot)));
    }

    #[test]
    fn proxies_and_servers_without_a_limit_may_have_many() {
        let registry = registry(100, Some(10));
        let proxied: Vec<_> = (0..60).map(|_| registry.admit(([10, 0, 0, 1], 1).into()).expect("a slot")).collect();
        assert!(proxied.iter().all(|slot| !is_closing(slot)));
    }
}
