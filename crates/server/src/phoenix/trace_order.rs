//! Orders traces by latency. No index exists for it: all traces of a project are examined, and only those of one page
//! are held in memory.

use std::collections::BTreeMap;

use gradus_core::span::TraceId;
use gradus_store::ProjectPosition;

use super::ids;

/// Latency in microseconds, then the position of the trace, which makes the order total and the cursor unambiguous.
pub(super) type TraceLatencyRank = (i64, ProjectPosition);

/// A bounded priority queue of the best `limit + 1` traces.
pub(super) struct TraceLatencyRanking {
    slowest_first: bool,
    /// The first trace of the page, from a cursor.
    at: Option<TraceLatencyRank>,
    limit: usize,
    /// The traces of the page, and the one after it.
    best: BTreeMap<TraceLatencyRank, TraceId>,
}

impl TraceLatencyRanking {
    pub(super) fn new(slowest_first: bool, at: Option<TraceLatencyRank>, limit: usize) -> TraceLatencyRanking {
        TraceLatencyRanking { slowest_first, at, limit, best: BTreeMap::new() }
    }

    /// Adds a trace unless it precedes the cursor, and drops the last one if there are too many.
    pub(super) fn insert(&mut self, rank: TraceLatencyRank, trace: TraceId) {
        let is_before = |at: TraceLatencyRank| if self.slowest_first { rank > at } else { rank < at };
        if self.at.is_some_and(is_before) {
            return;
        }
        self.best.insert(rank, trace);
        if self.best.len() > self.limit + 1 {
            let _ = if self.slowest_first { self.best.pop_first() } else { self.best.pop_last() };
        }
    }

    /// Returns the traces of the page in order, and the rank of the next page's first trace.
    pub(super) fn into_page(self) -> (Vec<TraceId>, Option<TraceLatencyRank>) {
        let mut page: Vec<(TraceLatencyRank, TraceId)> = self.best.into_iter().collect();
        if self.slowest_first {
            page.reverse();
        }
        let next = page.get(self.limit).map(|(rank, _)| *rank);
        page.truncate(self.limit);
        (page.into_iter().map(|(_, trace)| trace).collect(), next)
    }
}

const LATENCY_CURSOR_TYPE: &str = "TraceByLatency";

pub(super) fn write_cursor((took_us, position): TraceLatencyRank) -> String {
    ids::encode_node_id(LATENCY_CURSOR_TYPE, format_args!("{took_us}:{}:{}", position.start_ns, position.trace))
}

/// Decodes a cursor; `None` if it belongs to another list or was changed.
pub(super) fn read_cursor(cursor: &str) -> Option<TraceLatencyRank> {
    let text = ids::decode_node_id(LATENCY_CURSOR_TYPE, cursor)?;
    let mut numbers = text.split(':').map(|number| number.parse::<i64>().ok());
    let (took_us, start_ns, trace) = (numbers.next()??, numbers.next()??, numbers.next()??);
    numbers.next().is_none().then_some((took_us, ProjectPosition { start_ns, trace }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Page by page it is what sorting gives, however the traces come.
        #[test]
        fn pages_are_the_sorted_list(took in proptest::collection::vec(0_i64..9, 0..40), limit in 1_usize..7, slowest_first in any::<bool>()) {
            let rank = |number: usize| {
                (took[number], ProjectPosition { start_ns: 5, trace: number as i64 })
            };
            let mut wanted: Vec<usize> = (0..took.len()).collect();
            wanted.sort_by_key(|number| rank(*number));
            if slowest_first {
                wanted.reverse();
            }
            let (mut found, mut at) = (Vec::new(), None);
            loop {
                let mut ranking = TraceLatencyRanking::new(slowest_first, at, limit);
                for number in 0..took.len() {
                    ranking.insert(rank(number), TraceId(number as u128));
                    prop_assert!(ranking.best.len() <= limit + 1);
                }
                let (page, next) = ranking.into_page();
                found.extend(page.iter().map(|trace| trace.0 as usize));
                let Some(next) = next else { break };
                at = read_cursor(&write_cursor(next));
                prop_assert_eq!(at, Some(next));
            }
            prop_assert_eq!(found, wanted);
        }
    }
}
