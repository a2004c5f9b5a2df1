//! What was asked: counts for all requests, and the last of them one by one.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::http::RequestMethod;
use super::time::SimulatedTime;

/// So many requests are kept; older ones are counted only.
const MAX_ENTRIES: usize = 10_000;
/// Whole exchanges are kept until they come to this; a run of an agent is far below.
const MAX_EXCHANGED: usize = 256 << 20;
/// So many different paths without an operation are told apart.
const MAX_UNROUTED: usize = 1_000;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RequestJournalEntry {
    /// From 1.
    pub number: u64,
    pub method: &'static str,
    pub path: String,
    pub query: String,
    /// GitHub's name for it; none for paths that are not simulated.
    pub operation: Option<&'static str>,
    pub account: Option<String>,
    pub status: u16,
    /// Of the simulated clock, after the request.
    pub at: SimulatedTime,
    /// Whether a fault had a hand in it.
    pub fault: bool,
}

/// A request with its answer, whole; kept only where asked for (`World::keep_exchanges`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedExchange {
    /// From 1, as in `Entry`.
    pub number: u64,
    pub method: String,
    pub path: String,
    pub query: String,
    pub operation: Option<String>,
    pub account: Option<String>,
    pub status: u16,
    /// Of the simulated clock, before the request and after it.
    pub from: SimulatedTime,
    pub to: SimulatedTime,
    /// Whether a fault had a hand in it.
    pub fault: bool,
    pub body: String,
    /// The answer's headers that rules ask for: `link`, `retry-after`, `x-ratelimit-remaining`,
    /// `x-ratelimit-reset`.
    pub headers: Vec<(String, String)>,
    pub answer: String,
}

impl RecordedExchange {
    /// What its path names: an owner, a repository, a number. None for paths that are not simulated.
    pub fn path_parameters(&self) -> Option<Vec<(&'static str, String)>> {
        crate::route_table::find_route(RequestMethod::from_name(&self.method), &self.path).map(|(_, names)| names)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SimulatorCounters {
    pub requests: u64,
    /// Requests that changed something.
    pub writes: u64,
    pub faults: u64,
    pub by_operation: BTreeMap<&'static str, u64>,
    pub by_status: BTreeMap<u16, u64>,
    /// Answered with 501: `METHOD path`, with how often.
    pub unrouted: BTreeMap<String, u64>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct RequestJournal {
    pub(super) counters: SimulatorCounters,
    entries: VecDeque<RequestJournalEntry>,
    exchanges: Option<Vec<RecordedExchange>>,
    exchanged_bytes: usize,
}

impl RequestJournal {
    pub(super) fn next_number(&self) -> u64 {
        self.counters.requests + 1
    }

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
                if counters.unrouted.len() < MAX_UNROUTED || counters.unrouted.contains_key(&name) {
                    *counters.unrouted.entry(name).or_default() += 1;
                }
            }
            None => {}
        }
        if self.entries.len() == MAX_ENTRIES {
            self.entries.pop_front();
        }
        self.entries.push_back(entry);
    }

    pub(super) fn keep_exchanges(&mut self) {
        self.exchanges.get_or_insert_default();
    }

    pub(super) fn keeps_exchanges(&self) -> bool {
        self.exchanges.is_some()
    }

    /// Whether exchanges are kept, and there is no room for another one.
    pub(super) fn is_full(&self) -> bool {
        self.exchanges.is_some() && self.exchanged_bytes >= MAX_EXCHANGED
    }

    pub(super) fn record_exchange(&mut self, exchange: RecordedExchange) {
        self.exchanged_bytes += exchange.body.len() + exchange.answer.len();
        self.exchanges.get_or_insert_default().push(exchange);
    }

    pub(super) fn exchanges(&self) -> &[RecordedExchange] {
        self.exchanges.as_deref().unwrap_or_default()
    }

    pub(super) fn clear(&mut self) {
        let keeps = self.exchanges.is_some();
        *self = RequestJournal::default();
        if keeps {
            self.keep_exchanges();
        }
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = &RequestJournalEntry> {
        self.entries.iter()
    }
}
