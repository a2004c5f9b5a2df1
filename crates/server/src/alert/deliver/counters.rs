//! Counters of deliveries by kind of target.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::alert::target::TargetKind;

/// A snapshot of the counters. Counters only grow while the server runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeliveryCounts {
    kinds: [KindCounts; TargetKind::ALL.len()],
}

/// Counts for one kind of target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KindCounts {
    pub sent: u64,
    /// Notices that were given up after the last attempt or a permanent failure.
    pub failed: u64,
    /// Attempts after the first one of a notice.
    pub retried: u64,
    /// Notices pushed out of a full queue, or still queued when the server stopped.
    pub dropped: u64,
}

impl DeliveryCounts {
    pub fn for_kind(&self, kind: TargetKind) -> KindCounts {
        self.kinds[kind as usize]
    }

    pub fn iter(&self) -> impl Iterator<Item = (TargetKind, KindCounts)> {
        TargetKind::ALL.into_iter().zip(self.kinds)
    }
}

/// Written by all lanes at once. Relaxed ordering suffices: no other memory depends on these numbers.
#[derive(Debug, Default)]
pub(super) struct DeliveryCounters {
    kinds: [KindCounters; TargetKind::ALL.len()],
}

#[derive(Debug, Default)]
struct KindCounters {
    sent: AtomicU64,
    failed: AtomicU64,
    retried: AtomicU64,
    dropped: AtomicU64,
}

impl DeliveryCounters {
    pub(super) fn count_sent(&self, kind: TargetKind) {
        self.kinds[kind as usize].sent.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_failed(&self, kind: TargetKind) {
        self.kinds[kind as usize].failed.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_retried(&self, kind: TargetKind) {
        self.kinds[kind as usize].retried.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_dropped(&self, kind: TargetKind, count: u64) {
        self.kinds[kind as usize].dropped.fetch_add(count, Ordering::Relaxed);
    }

    pub(super) fn snapshot(&self) -> DeliveryCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        DeliveryCounts {
            kinds: self.kinds.each_ref().map(|kind| KindCounts {
                sent: read(&kind.sent),
                failed: read(&kind.failed),
                retried: read(&kind.retried),
                dropped: read(&kind.dropped),
            }),
        }
    }
}
