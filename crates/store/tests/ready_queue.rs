//! The ready queue: turns, attempts, quarantine, clocks.

#![allow(clippy::unwrap_used)] // Also outside of the tests themselves.

mod lab;

use gradus_core::span::TraceId;
use gradus_store::*;
use lab::*;

const SECOND: i64 = 1_000_000_000;

fn send(lab: &Lab, trace: u128, project: &str, now_ns: i64) -> i64 {
    lab.ingest(vec![rooted(chunk(trace, project, 10, &[span(trace as u64)]), "call", true)], now_ns);
    lab.trace(trace).trace_group
}

fn query(now_ns: i64, limit: usize) -> ReadyQuery {
    ReadyQuery { now_ns, quiet_ns: 10, give_up_ns: 10, after_project: 0, limit }
}

#[test]
fn projects_take_turns_whatever_the_backlog_of_one_is() {
    let lab = Lab::new();
    for trace in 1..=500 {
        send(&lab, trace, "flood", trace as i64);
    }
    let shop = send(&lab, 1_000, "shop", 1_000);
    let clinic = send(&lab, 1_001, "clinic", 1_001);
    let ready = lab.ready(2_000, 10, 10, 30);
    assert!(ready[..3].contains(&shop) && ready[..3].contains(&clinic), "{ready:?}");
    // Whoever had the last turn comes last the next time.
    let first = lab.store.ready_trace_groups(query(2_000, 30)).unwrap()[0].project;
    let after = lab.store.ready_trace_groups(ReadyQuery { after_project: first, ..query(2_000, 30) }).unwrap();
    assert_ne!(after[0].project, first);
    assert_eq!(lab.ready(2_000, 10, 10, 5_000).len(), 502);
}

#[test]
fn a_process_that_ends_twice_over_a_trace_quarantines_it() {
    let mut lab = Lab::new();
    let poison = send(&lab, 1, "shop", 1);
    let good = send(&lab, 2, "shop", 2);
    let end = |lab: Lab, trace_groups: &[i64]| {
        lab.store.begin_attempts(trace_groups.to_vec()).unwrap().wait().unwrap();
        // It never came to an end of its own.
        lab.reopened()
    };
    lab = end(lab, &[poison, good]);
    assert_eq!(lab.store.fail_unfinished_attempts(5).unwrap().wait().unwrap(), (2, 0));
    let ready = lab.store.ready_trace_groups(query(5 + 2 * SECOND, 10)).unwrap();
    assert!(ready.len() == 2 && ready.iter().all(|ready| ready.is_retry), "{ready:?}");
    lab.assemble(good, vec![trajectory("good", 2, 10)], 6);
    // Together, each is only suspected; alone, it is known which one it was.
    lab = end(lab, &[poison]);
    assert_eq!(lab.store.fail_unfinished_attempts(6).unwrap().wait().unwrap(), (1, 0));
    lab = end(lab, &[poison]);
    assert_eq!(lab.store.fail_unfinished_attempts(7).unwrap().wait().unwrap(), (1, 1));
    assert_eq!(lab.store.fail_unfinished_attempts(7).unwrap().wait().unwrap(), (0, 0));
    assert_eq!((lab.store.quarantined_count().unwrap(), lab.store.ready_queue_length().unwrap()), (1, 0));
    assert!(lab.store.quarantine_reason(poison).unwrap().unwrap().contains("the server ended"));
    // More of it does not bring it back, and nothing else is tied to it.
    lab.ingest(vec![linked(chunk(1, "shop", 10, &[span(7)]), &[(LinkKind::Session, 9)])], 8);
    lab.ingest(vec![linked(chunk(3, "shop", 10, &[span(8)]), &[(LinkKind::Session, 9)])], 9);
    let tied = lab.trace(3).trace_group;
    assert_ne!(tied, poison);
    assert_eq!(lab.ready(100 * SECOND, 10, 10, 10), [tied]);
    let listed = lab.store.quarantined_traces(10).unwrap();
    assert_eq!((listed.len(), listed[0].trace_id, listed[0].attempts, listed[0].spans), (1, TraceId(1), 2, 2));
    // By hand it is tried again, with a clean slate.
    assert_eq!(lab.store.retry_quarantined(Some(TraceId(3))).unwrap().wait().unwrap(), 0);
    assert_eq!(lab.store.retry_quarantined(Some(TraceId(1))).unwrap().wait().unwrap(), 1);
    assert!(lab.ready(100 * SECOND, 10, 10, 10).contains(&poison));
    assert!(!lab.store.fail_attempt(poison, "again", 10).unwrap().wait().unwrap());
    assert!(lab.store.fail_attempt(poison, &"x".repeat(9_999), 11).unwrap().wait().unwrap());
    assert_eq!(lab.store.quarantine_reason(poison).unwrap().unwrap().len(), 500);
    assert_eq!(lab.store.retry_quarantined(None).unwrap().wait().unwrap(), 1);
}

#[test]
fn an_attempt_that_was_taken_back_is_no_failure() {
    let lab = Lab::new();
    let trace_group = send(&lab, 1, "shop", 1);
    lab.store.begin_attempts(vec![trace_group]).unwrap().wait().unwrap();
    lab.store.cancel_attempts(vec![trace_group]).unwrap().wait().unwrap();
    let lab = lab.reopened();
    assert_eq!(lab.store.fail_unfinished_attempts(5).unwrap().wait().unwrap(), (0, 0));
    assert_eq!(lab.ready(100, 10, 10, 10), [trace_group]);
}

#[test]
fn a_clock_that_was_set_back_stops_nothing() {
    let lab = Lab::new();
    let year = 365 * 86_400 * SECOND;
    let trace_group = send(&lab, 1, "shop", 10 * year);
    assert_eq!(lab.ready(9 * year, 10, 10, 10), [trace_group], "it arrived before the clock was set back");
    assert_eq!(lab.ready(10 * year - SECOND, 10, 10, 10), Vec::<i64>::new(), "a second is no step of a clock");
    assert!(!lab.store.fail_attempt(trace_group, "once", 10 * year).unwrap().wait().unwrap());
    assert_eq!(lab.ready(9 * year, 10, 10, 10), [trace_group]);
}

#[test]
fn a_trace_group_in_parts_is_there_when_its_last_part_is() {
    let lab = Lab::new();
    let trace_group = send(&lab, 1, "shop", 1);
    let record = |n: usize, text: &str| {
        let outcomes = (1..=30).map(|step| scored("call_validity", Some(step), "valid", 1.0, "search"));
        TrajectoryRecord {
            json: format!(r#"{{"text":"{text}"}}"#).into_bytes(),
            outcomes: outcomes.collect(),
            ..trajectory(&format!("t{n}"), 1, 10)
        }
    };
    let write = |records: Vec<TrajectoryRecord>, now_ns: i64| {
        let due_ns = lab.store.trace_group(trace_group).unwrap().due_ns;
        lab.store.store_assembled_in_parts(AssembledTraceGroup { trace_group, due_ns, records }, now_ns).unwrap()
    };
    assert_eq!(write((0..300).map(|n| record(n, "first")).collect(), 2), 300);
    assert_eq!(lab.store.ready_queue_length().unwrap(), 0);
    assert_eq!(lab.trace(1).trajectories.len(), 300);
    // Fewer the next time: those that are not among them go, those that are the same stay.
    lab.ingest(vec![chunk(1, "shop", 10, &[span(9)])], 3);
    let next = (0..100).map(|n| record(n, if n < 50 { "first" } else { "second" })).collect();
    assert_eq!(write(next, 4), 50);
    assert_eq!((lab.trace(1).trajectories.len(), lab.store.ready_queue_length().unwrap()), (100, 0));
    lab.assert_clean();
}
