//! The request journal: counters over all requests, and the latest requests in detail.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::http::RequestMethod;
use super::time::SimulatedTime;

/// Maximum number of requests in detail; older ones are only counted.
const MAX_JOURNAL_ENTRIES: usize = 10_000;
/// Maximum size of complete exchanges in bytes. A run of an agent stays far below.
const MAX_EXCHANGE_BYTES: usize = 256 << 20;
/// Maximum number of distinct unsimulated paths that are counted. Paths come from clients, so the map is bounded.
const MAX_UNROUTED_PATHS: usize = 1_000;

/// One request without its bodies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RequestJournalEntry {
    /// From 1, without gaps.
    pub number: u64,
    /// In upper case.
    pub method: &'static str,
    /// Below the base, with the name of a repository in place of its id.
    pub path: String,
    /// As received, percent-encoded.
    pub query: String,
    /// GitHub's operation id; `None` for paths that are not simulated.
    pub operation: Option<&'static str>,
    /// The login of the caller; `None` for anonymous requests and invalid tokens.
    pub account: Option<String>,
    /// What the client saw, also if a fault replaced the response.
    pub status: u16,
    /// Simulated time after the request.
    pub at: SimulatedTime,
    /// Whether a planted fault affected it.
    pub fault: bool,
}

/// A request with its response, complete. Recorded only after [`crate::World::start_recording_exchanges`]; the rules of the
/// benchmark evaluate these.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedExchange {
    /// The number of the journal entry.
    pub number: u64,
    pub method: String,
    pub path: String,
    pub query: String,
    /// As in the journal entry. Owned, because exchanges are read back from files.
    pub operation: Option<String>,
    pub account: Option<String>,
    pub status: u16,
    /// Simulated time before the request.
    pub from: SimulatedTime,
    /// Simulated time after the request.
    pub to: SimulatedTime,
    /// Whether a planted fault affected it.
    pub fault: bool,
    /// The request body; invalid UTF-8 is replaced.
    pub body: String,
    /// The response headers that rules evaluate: `link`, `retry-after`, `x-ratelimit-remaining`, `x-ratelimit-reset`.
    pub headers: Vec<(String, String)>,
    /// The response body.
    pub answer: String,
}

impl RecordedExchange {
    /// Returns the placeholders of the route: owner, repository, number. `None` for paths that are not simulated.
    pub fn path_parameters(&self) -> Option<Vec<(&'static str, String)>> {
        crate::route_table::find_route(RequestMethod::from_name(&self.method), &self.path).map(|(_, names)| names)
    }
}

/// Counters since the start or the last reset.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SimulatorCounters {
    /// All requests of GitHub's API, also refused ones.
    pub requests: u64,
    /// Successful requests that were neither GET nor HEAD.
    pub writes: u64,
    /// Requests that a planted fault affected.
    pub faults: u64,
    /// By GitHub's operation id.
    pub by_operation: BTreeMap<&'static str, u64>,
    /// By the status that the client saw.
    pub by_status: BTreeMap<u16, u64>,
    /// Requests that were answered with 501, as `METHOD path`. They show which operations a simulation lacks.
    pub unrouted: BTreeMap<String, u64>,
}

/// The journal of a world.
#[derive(Clone, Debug, Default)]
pub(super) struct RequestJournal {
    pub(super) counters: SimulatorCounters,
    entries: VecDeque<RequestJournalEntry>,
    /// `None` until recording is switched on.
    exchanges: Option<Vec<RecordedExchange>>,
    /// Bytes of all recorded bodies, against the limit.
    exchanged_bytes: usize,
}

impl RequestJournal {
    /// Returns the number that the current request will get.
    pub(super) fn next_number(&self) -> u64 {
        self.counters.requests + 1
    }

    /// Counts a request and keeps its entry, dropping the oldest one if necessary.
    pub(super) fn record_entry(&mut self, entry: RequestJournalEntry) {
        let counters = &mut self.counters;
        counters.requests += 1;
        counters.faults += u64::from(entry.fault);
        counters.writes += u64::from(entry.method != "GET" && entry.method != "HEAD" && entry.status < 300);
        *counters.by_status.entry(entry.status).or_default() += 1;
        match entry.operation {
            Some(operation) => *counters.by_operation.entry(operation).or_default() += 1,
            None if entry.status == 501 => {
                let name = format!("{} {}", entry.method, entry.path);
                if counters.unrouted.len() < MAX_UNROUTED_PATHS || counters.unrouted.contains_key(&name) {
                    *counters.unrouted.entry(name).or_default() += 1;
                }
            }
            None => {}
        }
        if self.entries.len() == MAX_JOURNAL_ENTRIES {
            self.entries.pop_front();
        }
        self.entries.push_back(entry);
    }

    /// Starts recording complete exchanges.
    pub(super) fn start_recording_exchanges(&mut self) {
        self.exchanges.get_or_insert_default();
    }

    pub(super) fn is_recording_exchanges(&self) -> bool {
        self.exchanges.is_some()
    }

    /// Whether exchanges are recorded and the limit is reached. The world then refuses requests, because an unrecorded
    /// action could not be judged.
    pub(super) fn is_full(&self) -> bool {
        self.exchanges.is_some() && self.exchanged_bytes >= MAX_EXCHANGE_BYTES
    }

    pub(super) fn record_exchange(&mut self, exchange: RecordedExchange) {
        self.exchanged_bytes += exchange.body.len() + exchange.answer.len();
        self.exchanges.get_or_insert_default().push(exchange);
    }

    pub(super) fn exchanges(&self) -> &[RecordedExchange] {
        self.exchanges.as_deref().unwrap_or_default()
    }

    /// Removes all entries. Exchanges are still recorded if they were before.
    pub(super) fn clear(&mut self) {
        let keeps = self.exchanges.is_some();
        *self = RequestJournal::default();
        if keeps {
            self.start_recording_exchanges();
        }
    }

    /// Returns the entries, oldest first.
    pub(super) fn entries(&self) -> impl Iterator<Item = &RequestJournalEntry> {
        self.entries.iter()
    }
}
