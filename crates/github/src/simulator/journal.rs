//! What was asked: counts for all requests, and the last of them one by one.

use std::collections::{BTreeMap, VecDeque};

use serde::Serialize;

use super::time::Time;

/// So many requests are kept; older ones are counted only.
const MOST_ENTRIES: usize = 10_000;
/// So many different paths without an operation are told apart.
const MOST_UNROUTED: usize = 1_000;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
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
    pub at: Time,
    /// Whether a fault had a hand in it.
    pub fault: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
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
pub(super) struct Journal {
    pub(super) counters: Counters,
    entries: VecDeque<Entry>,
}

impl Journal {
    pub(super) fn next_number(&self) -> u64 {
        self.counters.requests + 1
    }

    pub(super) fn add(&mut self, entry: Entry) {
        let counters = &mut self.counters;
        counters.requests += 1;
        counters.faults += u64::from(entry.fault);
        counters.writes += u64::from(entry.method != "GET" && entry.method != "HEAD" && entry.status < 300);
        *counters.by_status.entry(entry.status).or_default() += 1;
        match entry.operation {
            Some(operation) => *counters.by_operation.entry(operation).or_default() += 1,
            None if entry.status == 501 => {
                let name = format!("{} {}", entry.method, entry.path);
                if counters.unrouted.len() < MOST_UNROUTED || counters.unrouted.contains_key(&name) {
                    *counters.unrouted.entry(name).or_default() += 1;
                }
            }
            None => {}
        }
        if self.entries.len() == MOST_ENTRIES {
            self.entries.pop_front();
        }
        self.entries.push_back(entry);
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }
}
