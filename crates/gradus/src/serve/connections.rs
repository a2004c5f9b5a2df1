//! All connections: how many there may be, in all and of one address, who gets a place when there is none left, and which
//! ones have to go.
//!
//! A part of all places is kept for connections that have shown a key. When the others are taken, the connection that is
//! idle longest, without a key, of the address that has most, goes for the new one. Where none is idle, the new one is
//! taken with restrictions: health checks are answered, and whoever shows a key.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::client_address::{ClientAddress, ProxyNetwork};
use super::connection::{CloseReason, ConnectionState, ConnectionTimeouts, Restriction};
use super::state::Occasionally;

/// This part of all places is for connections that have shown a key, and for health checks.
const RESERVE_PART: usize = 5;
/// Restricted connections of an address beyond its limit, so that its health checks are answered.
const ADDRESS_RESERVE: usize = 8;
/// After somebody was refused for lack of places, the server reports for this long that it is overloaded.
const OVERLOAD_MEMORY: Duration = Duration::from_secs(5);

#[derive(Clone, Debug)]
pub(super) struct ConnectionLimits {
    pub(super) total: usize,
    /// Of one address; connections of trusted proxies are not counted.
    pub(super) per_address: Option<usize>,
    pub(super) trusted_proxies: Vec<ProxyNetwork>,
}

#[derive(Debug)]
pub(super) struct ConnectionRegistry {
    limits: ConnectionLimits,
    open: Mutex<OpenConnections>,
    refused: AtomicU64,
    closed: [AtomicU64; CloseReason::ALL.len()],
    refusals: Occasionally,
    evictions: Occasionally,
}

#[derive(Debug, Default)]
struct OpenConnections {
    next: u64,
    all: HashMap<u64, Arc<ConnectionState>>,
    by_address: HashMap<ClientAddress, usize>,
    refused_at: Option<Instant>,
}

/// A connection's place, which is free again when this is dropped.
#[derive(Debug)]
pub(super) struct ConnectionPlace {
    registry: Arc<ConnectionRegistry>,
    number: u64,
    pub(super) state: Arc<ConnectionState>,
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        self.registry.lock().remove(self.number);
    }
}

impl OpenConnections {
    fn insert(&mut self, state: Arc<ConnectionState>) -> u64 {
        let number = self.next;
        self.next += 1;
        *self.by_address.entry(state.address).or_default() += 1;
        self.all.insert(number, state);
        number
    }

    fn remove(&mut self, number: u64) {
        let Some(state) = self.all.remove(&number) else { return };
        if let Some(count) = self.by_address.get_mut(&state.address) {
            *count -= 1;
            if *count == 0 {
                self.by_address.remove(&state.address);
            }
        }
    }

    fn count(&self, address: ClientAddress) -> usize {
        self.by_address.get(&address).copied().unwrap_or(0)
    }

    /// Takes the place of an idle connection: those without a key first, then those of the address that has most of
    /// them, then the one that is idle longest.
    fn evict(&mut self, of: Option<ClientAddress>, spares_keyed: bool) -> Option<Arc<ConnectionState>> {
        let candidates = self.all.iter().filter(|(_, state)| {
            of.is_none_or(|address| state.address == address)
                && state.is_idle()
                && !(spares_keyed && state.is_keyed())
        });
        let victim = candidates.min_by_key(|(_, state)| {
            let crowd = std::cmp::Reverse(self.count(state.address));
            (state.is_keyed(), crowd, state.last_active())
        });
        let (number, state) = victim.map(|(number, state)| (*number, Arc::clone(state)))?;
        self.remove(number);
        Some(state)
    }
}

impl ConnectionRegistry {
    pub(super) fn new(limits: ConnectionLimits) -> ConnectionRegistry {
        ConnectionRegistry {
            limits,
            open: Mutex::default(),
            refused: AtomicU64::new(0),
            closed: Default::default(),
            refusals: Occasionally::default(),
            evictions: Occasionally::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, OpenConnections> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a new connection; `None` if it has to be refused.
    pub(super) fn admit(self: &Arc<ConnectionRegistry>, peer: SocketAddr) -> Option<ConnectionPlace> {
        let address = ClientAddress::from_ip(peer.ip());
        let is_proxy = self.limits.trusted_proxies.iter().any(|network| network.contains(peer.ip()));
        let per_address = self.limits.per_address.filter(|_| !is_proxy).unwrap_or(usize::MAX);
        let total = self.limits.total;
        let unkeyed = total - total / RESERVE_PART;
        let mut open = self.lock();
        let of_address = open.count(address);
        let mut evicted = None;
        let mut restriction = None;
        if of_address >= per_address {
            evicted = open.evict(Some(address), false);
            if evicted.is_none() {
                restriction = Some(Restriction::Address);
                if of_address >= per_address.saturating_add(ADDRESS_RESERVE) {
                    drop(open);
                    self.report_refusal(address, of_address);
                    return None;
                }
            }
        } else if open.all.len() >= unkeyed {
            evicted = open.evict(None, true);
            restriction = evicted.is_none().then_some(Restriction::Total);
        }
        if evicted.is_none() && open.all.len() >= total {
            evicted = open.evict(None, false);
            if evicted.is_none() {
                open.refused_at = Some(Instant::now());
                drop(open);
                self.report_refusal(address, of_address);
                return None;
            }
        }
        let state = Arc::new(ConnectionState::new(peer, restriction));
        let number = open.insert(Arc::clone(&state));
        drop(open);
        if let Some(victim) = evicted {
            self.close(&victim, CloseReason::Evicted);
            if let Some(times) = self.evictions.count() {
                let address = victim.address;
                tracing::warn!(%address, times, "idle connections were closed, since all places were taken");
            }
        }
        Some(ConnectionPlace { registry: Arc::clone(self), number, state })
    }

    /// A request on a restricted connection was refused.
    pub(super) fn report_restricted(&self, state: &ConnectionState) {
        let count = {
            let mut open = self.lock();
            if state.restriction() == Some(Restriction::Total) {
                open.refused_at = Some(Instant::now());
            }
            open.count(state.address)
        };
        self.report_refusal(state.address, count);
    }

    fn report_refusal(&self, address: ClientAddress, connections: usize) {
        self.refused.fetch_add(1, Ordering::Relaxed);
        if let Some(times) = self.refusals.count() {
            tracing::warn!(%address, connections, times, "connections were refused: too many are open");
        }
    }

    fn close(&self, state: &ConnectionState, reason: CloseReason) {
        if state.close(reason) {
            self.closed[reason as usize].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Closes connections that are silent, idle or not read.
    pub(super) fn close_overdue(&self, timeouts: &ConnectionTimeouts) {
        let now = Instant::now();
        let overdue: Vec<(Arc<ConnectionState>, CloseReason)> = {
            let open = self.lock();
            let overdue = open.all.values().filter(|state| !state.is_closing());
            overdue.filter_map(|state| Some((Arc::clone(state), state.overdue(now, timeouts)?))).collect()
        };
        for (state, reason) in overdue {
            self.close(&state, reason);
        }
    }

    /// Connections that are open, and those of them that have shown a key.
    pub(super) fn open_count(&self) -> (usize, usize) {
        let open = self.lock();
        (open.all.len(), open.all.values().filter(|state| state.is_keyed()).count())
    }

    pub(super) fn refused_count(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    pub(super) fn closed_count(&self, reason: CloseReason) -> u64 {
        self.closed[reason as usize].load(Ordering::Relaxed)
    }

    /// Whether connections of any address were refused lately.
    pub(super) fn is_overloaded(&self) -> bool {
        self.lock().refused_at.is_some_and(|at| at.elapsed() < OVERLOAD_MEMORY)
    }

    pub(super) fn trusted_proxies(&self) -> &[ProxyNetwork] {
        &self.limits.trusted_proxies
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registry(total: usize, per_address: Option<usize>) -> Arc<ConnectionRegistry> {
        let trusted_proxies = vec![ProxyNetwork::parse("10.0.0.1").expect("an address")];
        Arc::new(ConnectionRegistry::new(ConnectionLimits { total, per_address, trusted_proxies }))
    }

    fn peer(last: u8) -> SocketAddr {
        ([127, 0, 0, last], 1000).into()
    }

    #[test]
    fn silent_connections_of_one_address_make_room_for_others() {
        let registry = registry(100, Some(50));
        let silent: Vec<_> = (0..300).map(|_| registry.admit(peer(1)).expect("a place")).collect();
        assert_eq!(registry.open_count().0, 50);
        assert_eq!(registry.closed_count(CloseReason::Evicted), 250);
        // The newest stay.
        assert!(silent[0].state.is_closing() && !silent[299].state.is_closing());
        let other = registry.admit(peer(2)).expect("a place");
        assert_eq!(other.state.restriction(), None);
        drop((silent, other));
        assert_eq!(registry.open_count().0, 0);
    }

    #[test]
    fn busy_connections_stay_and_places_are_left_for_keys_and_health_checks() {
        let registry = registry(10, None);
        let busy: Vec<_> = (0..8)
            .map(|_| {
                let place = registry.admit(peer(1)).expect("a place");
                let request = place.state.begin_request();
                (place, request)
            })
            .collect();
        assert!(busy.iter().all(|(place, _)| place.state.restriction().is_none()));
        let first = registry.admit(peer(2)).expect("a restricted place");
        assert_eq!(first.state.restriction(), Some(Restriction::Total));
        first.state.mark_keyed();
        assert_eq!(first.state.restriction(), None);
        let _keyed_request = first.state.begin_request();
        let second = registry.admit(peer(3)).expect("a restricted place");
        assert!(second.state.restriction().is_some() && !registry.is_overloaded());
        // The last one makes room as long as it is idle.
        let third = registry.admit(peer(4)).expect("the place of an idle one");
        assert!(second.state.is_closing());
        let _health_check = third.state.begin_request();
        assert!(registry.admit(peer(5)).is_none());
        assert!(registry.is_overloaded());
        assert_eq!(registry.refused_count(), 1);
    }

    #[test]
    fn keys_keep_their_places_while_others_are_idle() {
        let registry = registry(10, None);
        let keyed: Vec<_> = (0..5)
            .map(|_| {
                let place = registry.admit(peer(1)).expect("a place");
                place.state.mark_keyed();
                place
            })
            .collect();
        let _silent: Vec<_> = (0..100).map(|_| registry.admit(peer(2)).expect("a place")).collect();
        assert!(keyed.iter().all(|place| !place.state.is_closing()));
    }

    #[test]
    fn proxies_and_servers_without_a_limit_may_have_many() {
        let registry = registry(100, Some(10));
        let proxied: Vec<_> =
            (0..60).map(|_| registry.admit(([10, 0, 0, 1], 1).into()).expect("a place")).collect();
        assert!(proxied.iter().all(|place| !place.state.is_closing()));
    }
}
