//! What is let go is decided by when it arrived: no sender's clock counts, and a server's clock that was set wrong does no
//! lasting harm.

#![allow(clippy::unwrap_used)] // Also outside of the tests themselves.

mod lab;

use gradus_store::*;
use lab::*;

/// As a sender may say: long ago, at no time, and far in the future.
const CLAIMS: [u64; 5] = [1, 0, 7_000_000_000_000_000_000, u64::MAX - 5, u64::MAX];

fn text() -> String {
    (0..40_000).map(|_| fastrand::alphanumeric()).collect()
}

fn send(lab: &Lab, id: u128, claim: u64, now_ns: i64) {
    lab.ingest(vec![chunk(id, "shop", claim, &[span(id as u64).text(&text())])], now_ns);
}

/// Removes until nothing more is to be removed.
fn retain(lab: &Lab, retention: RetentionPolicy, now_ns: i64) -> u64 {
    let mut removed = 0;
    for _ in 0..1_000 {
        let step = lab.store.run_retention_step(retention, now_ns).unwrap().wait().unwrap();
        removed += step.traces;
        if step.traces == 0 {
            return removed;
        }
    }
    panic!("a retention without an end");
}

fn left(lab: &Lab) -> Vec<u128> {
    let mut ids = lab.list(&TraceFilter::default(), 500);
    ids.sort_unstable();
    ids
}

#[test]
fn under_a_size_the_first_to_arrive_go_first_whatever_they_claim() {
    for claim in CLAIMS {
        let lab = Lab::new();
        // Hostile ones first, then real ones, then hostile ones again.
        for id in 1..=150 {
            let is_real = (51..=100).contains(&id);
            send(&lab, id, if is_real { 1_763_000_000_000_000_000 } else { claim }, 1_000 + id as i64);
        }
        let (used, _) = lab.store.used_and_free_bytes().unwrap();
        retain(&lab, RetentionPolicy { max_age_ns: None, max_bytes: Some(used / 2) }, 10_000);
        let left = left(&lab);
        // The last of those that arrived, without a gap: nobody's claim made him stay or go.
        let expected: Vec<u128> = (151 - left.len() as u128..=150).collect();
        assert_eq!(left, expected, "claimed {claim}");
        assert!((30..130).contains(&left.len()), "{}", left.len());
    }
}

#[test]
fn age_counts_from_the_arrival_of_the_first_record() {
    let lab = Lab::new();
    for (at, claim) in CLAIMS.into_iter().enumerate() {
        send(&lab, 1 + at as u128, claim, 1_000);
        send(&lab, 101 + at as u128, claim, 5_000);
    }
    let age = RetentionPolicy { max_age_ns: Some(2_000), max_bytes: None };
    assert_eq!(retain(&lab, age, 3_000), 0);
    // A record that comes later does not make a trace younger: its sender could keep it for ever.
    lab.ingest(vec![chunk(1, "shop", 2_999, &[span(900)])], 2_999);
    assert_eq!(retain(&lab, age, 4_000), 5);
    assert_eq!(left(&lab), [101, 102, 103, 104, 105]);
    assert_eq!(retain(&lab, age, 8_000), 5);
    lab.assert_clean();
}

#[test]
fn a_clock_that_was_ahead_keeps_nothing_for_longer_than_the_age() {
    const DAY_NS: i64 = 86_400_000_000_000;
    let (now, age) = (100 * DAY_NS, RetentionPolicy { max_age_ns: Some(10 * DAY_NS), max_bytes: None });
    let lab = Lab::new();
    send(&lab, 1, 1, now + 365 * DAY_NS);
    // Set right: what comes now is not older than what came before.
    send(&lab, 2, 1, now);
    assert_eq!(retain(&lab, age, now), 0);
    assert_eq!(retain(&lab, age, now + 9 * DAY_NS), 0);
    assert_eq!(retain(&lab, age, now + 11 * DAY_NS), 2);
}

#[test]
fn a_clock_that_was_set_back_changes_no_order() {
    let lab = Lab::new();
    for id in 1..=150 {
        // Each arrives earlier than the one before it, as far as the clock can tell.
        send(&lab, id, 1_000, 10_000_000 - id as i64 * 10_000);
    }
    let (used, _) = lab.store.used_and_free_bytes().unwrap();
    retain(&lab, RetentionPolicy { max_age_ns: None, max_bytes: Some(used / 2) }, 1);
    let left = left(&lab);
    assert_eq!(left, (151 - left.len() as u128..=150).collect::<Vec<_>>());
    assert!((30..130).contains(&left.len()), "{}", left.len());
}

#[cfg(feature = "postgres")]
#[test]
fn days_without_traces_give_their_room_back() {
    const DAY_NS: i64 = 86_400_000_000_000;
    let lab = Lab::new();
    // The server makes a partition again that it misses, with another object id.
    let first = lab.partitions();
    let today = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as i64;
    let later = today + 5 * DAY_NS;
    send(&lab, 1, 5, today);
    lab.store.free_disk_space(later).unwrap();
    let kept = lab.partitions().iter().filter(|partition| first.contains(partition)).count();
    assert_eq!(kept, first.len().min(1), "that of the trace");
    assert_eq!(left(&lab), [1]);
    assert_eq!(retain(&lab, RetentionPolicy { max_age_ns: Some(DAY_NS), max_bytes: None }, later), 1);
    lab.store.free_disk_space(later).unwrap();
    assert!(lab.partitions().iter().all(|partition| !first.contains(partition)));
    // A day without a partition still takes spans.
    send(&lab, 2, 5, today);
    assert_eq!(left(&lab), [2]);
    lab.assert_clean();
}
