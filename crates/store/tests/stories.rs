//! Traces that belong together.

#![allow(clippy::unwrap_used)] // Also outside of the tests themselves.

mod lab;

use gradus_core::span::TraceId;
use gradus_store::LinkKind::{Continues, Leaves, Session};
use gradus_store::*;
use lab::*;

fn send(lab: &Lab, trace: u128, links: &[(LinkKind, u64)], now_ns: i64) {
    let spans = [span(trace as u64 * 100 + now_ns as u64)];
    lab.ingest(vec![linked(rooted(chunk(trace, "shop", 10, &spans), "call", true), links)], now_ns);
}

fn trace_group(lab: &Lab, trace: u128) -> Vec<u128> {
    let row = lab.trace(trace);
    let mut traces: Vec<u128> =
        lab.store.trace_group(row.trace_group).unwrap().traces.into_iter().map(|TraceId(id)| id).collect();
    traces.sort_unstable();
    traces
}

/// What was assembled from a trace group when it was as it was seen.
fn as_seen(seen: &StoredTraceGroup, record: TrajectoryRecord) -> AssembledTraceGroup {
    AssembledTraceGroup { trace_group: seen.no, due_ns: seen.due_ns, records: vec![record] }
}

#[test]
fn traces_of_a_session_are_one_trace_group_and_others_are_not() {
    let lab = Lab::new();
    send(&lab, 1, &[(Session, 7)], 1);
    send(&lab, 2, &[(Session, 8)], 2);
    send(&lab, 3, &[(Session, 7)], 3);
    send(&lab, 4, &[], 4);
    assert_eq!(trace_group(&lab, 3), [1, 3]);
    assert_eq!(trace_group(&lab, 2), [2]);
    assert_eq!(trace_group(&lab, 4), [4]);
    assert_eq!(lab.ready(100, 10, 10, 10).len(), 3);
}

#[test]
fn a_conversation_is_continued_in_whatever_order_it_comes() {
    let lab = Lab::new();
    send(&lab, 3, &[(Continues, 20), (Leaves, 30)], 1);
    send(&lab, 4, &[(Continues, 20)], 2);
    assert_eq!(trace_group(&lab, 4), [4], "two that continue the same need the one that left it");
    send(&lab, 1, &[(Leaves, 10)], 3);
    send(&lab, 2, &[(Continues, 10), (Leaves, 20)], 4);
    for trace in 1..=4 {
        assert_eq!(trace_group(&lab, trace), [1, 2, 3, 4]);
    }
    assert_eq!(lab.ready(100, 10, 10, 10).len(), 1);
}

#[test]
fn uniting_takes_trajectories_and_verdicts_along() {
    let lab = Lab::new();
    send(&lab, 1, &[(Session, 7)], 1);
    send(&lab, 2, &[(Session, 8)], 2);
    for trace in [1, 2] {
        let mut record = trajectory(&format!("t{trace}"), trace, 10);
        record.outcomes = vec![scored("fit", None, "good", 1.0, "")];
        lab.assemble(lab.trace(trace).trace_group, vec![record], 3);
    }
    assert_eq!(lab.store.ready_queue_length().unwrap(), 0);
    send(&lab, 2, &[(Session, 7)], 4);
    let row = lab.trace(2);
    assert_eq!(row.trace_group, lab.trace(1).trace_group);
    assert_eq!(lab.assemble(row.trace_group, vec![trajectory("t1", 1, 10), trajectory("t2", 2, 10)], 5), 0);
    assert_eq!(lab.store.verdict_lines("t2").unwrap().len(), 1);
    assert_eq!(lab.store.ready_queue_length().unwrap(), 0);
    lab.assert_clean();
}

#[test]
fn a_trace_group_that_was_united_while_it_was_assembled_leaves_nothing_behind() {
    let lab = Lab::new();
    send(&lab, 1, &[(Session, 7)], 1);
    send(&lab, 2, &[(Session, 8)], 2);
    let seen = lab.store.trace_group(lab.trace(2).trace_group).unwrap();
    send(&lab, 2, &[(Session, 7)], 3);
    // The assembler comes back with what it saw of the second trace alone.
    let late = lab.store.store_assembled_groups(vec![as_seen(&seen, trajectory("alone", 2, 10))], 4).unwrap();
    assert_eq!(late.wait().unwrap(), 0);
    assert_eq!(lab.store.ready_queue_length().unwrap(), 1);
    lab.assemble(lab.trace(1).trace_group, vec![trajectory("together", 1, 10)], 5);
    assert_eq!(lab.store.trajectory_json("alone").unwrap(), None);
    assert!(lab.store.trajectory_json("together").unwrap().is_some());
}

#[test]
fn what_joined_a_trace_group_while_it_was_assembled_keeps_its_verdicts() {
    let lab = Lab::new();
    send(&lab, 1, &[(Session, 7)], 1);
    send(&lab, 2, &[(Session, 8)], 2);
    let mut record = trajectory("t2", 2, 10);
    record.outcomes = vec![scored("fit", None, "good", 1.0, "")];
    lab.assemble(lab.trace(2).trace_group, vec![record], 3);
    let seen = lab.store.trace_group(lab.trace(1).trace_group).unwrap();
    // The clock stands still, or goes back: it is due again all the same.
    send(&lab, 2, &[(Session, 7)], 1);
    lab.store.store_assembled_groups(vec![as_seen(&seen, trajectory("t1", 1, 10))], 4).unwrap().wait().unwrap();
    assert_eq!(lab.store.verdict_lines("t2").unwrap().len(), 1, "it was not seen, and is not gone");
    assert_eq!(lab.store.ready_queue_length().unwrap(), 1);
    lab.assemble(seen.no, vec![trajectory("t1", 1, 10)], 5);
    assert_eq!(lab.store.trajectory_json("t2").unwrap(), None);
    assert_eq!(lab.store.metrics(&MetricFilter::default(), MetricGroup::All).unwrap(), []);
    lab.assert_clean();
}

#[test]
fn a_trajectory_that_moves_to_another_trace_group_stays_there() {
    let lab = Lab::new();
    send(&lab, 1, &[], 1);
    send(&lab, 2, &[], 2);
    let (first, second) = (lab.trace(1).trace_group, lab.trace(2).trace_group);
    lab.assemble(first, vec![trajectory("t", 1, 10)], 3);
    lab.assemble(second, vec![trajectory("t", 2, 10)], 4);
    assert_eq!(lab.store.trace_of_trajectory("t").unwrap(), Some(TraceId(2)));
    send(&lab, 1, &[], 5);
    lab.assemble(first, vec![], 6);
    assert!(lab.store.trajectory_json("t").unwrap().is_some(), "it is not the first story's any more");
}

#[test]
fn a_session_without_an_end_is_cut_into_trace_groups() {
    let lab = Lab::new();
    for trace in 1..=450 {
        send(&lab, trace, &[(Session, 7)], trace as i64);
    }
    let mut sizes: Vec<usize> = (1..=450).map(|trace| trace_group(&lab, trace).len()).collect();
    sizes.sort_unstable();
    assert!(sizes.iter().all(|size| *size <= 200), "{sizes:?}");
    assert_eq!(lab.ready(1_000, 10, 10, 100).len(), 3);
}

#[test]
fn a_trace_group_goes_on_when_its_first_trace_is_let_go() {
    let lab = Lab::new();
    lab.ingest(vec![linked(chunk(1, "shop", 10, &[span(1)]), &[(Session, 7)])], 1);
    lab.ingest(vec![linked(chunk(2, "shop", 1_000, &[span(2)]), &[(Session, 7)])], 800);
    let retention = RetentionPolicy { max_age_ns: Some(500), max_bytes: None };
    assert_eq!(lab.store.run_retention_step(retention, 1_000).unwrap().wait().unwrap().traces, 1);
    let due = lab.ready(2_000, 10, 10, 10);
    assert_eq!(due.len(), 1);
    assert_eq!(lab.store.trace_group(due[0]).unwrap().traces, [TraceId(2)]);
    lab.assemble(due[0], vec![trajectory("t2", 2, 1_000)], 801);
    lab.ingest(vec![linked(chunk(3, "shop", 1_000, &[span(3)]), &[(Session, 7)])], 900);
    assert_eq!(trace_group(&lab, 3), [2, 3]);
    assert_eq!(lab.store.run_retention_step(retention, 10_000).unwrap().wait().unwrap().traces, 2);
    assert_eq!(lab.store.ready_queue_length().unwrap(), 0);
    lab.assert_clean();
}

#[test]
fn a_snapshot_shows_one_moment_and_what_came_later_is_assembled_again() {
    let lab = Lab::new();
    send(&lab, 1, &[(Session, 7)], 1);
    let group = lab.trace(1).trace_group;
    let snapshot = lab.store.open_snapshot().unwrap();
    let read = || snapshot.trace_group_within(group, TraceGroupLimits::default()).unwrap();
    let before = read();
    send(&lab, 2, &[(Session, 7)], 2);
    assert_eq!((read().traces, read().due_ns), (before.traces.clone(), before.due_ns));
    let stored = lab.store.store_assembled_groups(vec![as_seen(&before, trajectory("t1", 1, 10))], 3).unwrap();
    assert_eq!(stored.wait().unwrap(), 1);
    assert_eq!(snapshot.trajectory_json_within("t1", u64::MAX).unwrap(), None);
    assert_eq!(lab.store.ready_queue_length().unwrap(), 1);
    drop(snapshot);
    assert_eq!(trace_group(&lab, 1), [1, 2]);
    // Its connection is free again: there are fewer connections than this.
    (0..20).for_each(|_| drop(lab.store.open_snapshot().unwrap()));
}
