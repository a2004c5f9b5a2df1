//! What becomes of spans that come once, twice, late, changed, or without a root.

#![allow(clippy::unwrap_used)] // Also outside of the tests themselves.

mod lab;

use std::sync::atomic::Ordering::Relaxed;

use gradus_core::span::{SpanId, TraceId};
use gradus_store::*;
use lab::*;

/// The texts of the spans that count, by id.
fn spans(lab: &Lab, trace: u128) -> Vec<(u64, String)> {
    let trace_group = lab.store.trace_group(lab.trace(trace).trace_group).unwrap();
    let mut found = Vec::new();
    for block in &trace_group.blocks {
        for line in std::str::from_utf8(&block.export).unwrap().lines() {
            let (id, text) = line.split_once(' ').unwrap();
            let id = u64::from_str_radix(id, 16).unwrap();
            if trace_group.is_current_version(block, SpanId(id)) {
                found.push((id, text.to_owned()));
            }
        }
    }
    found.sort();
    found
}

fn is(ids: &[(u64, &str)]) -> Vec<(u64, String)> {
    ids.iter().map(|(id, text)| (*id, (*text).to_owned())).collect()
}

#[test]
fn a_request_that_comes_twice_is_stored_once() {
    let lab = Lab::new();
    let chunks = || vec![rooted(chunk(1, "shop", 10, &[span(1), span(2).error()]), "root", true)];
    assert_eq!(lab.ingest(chunks(), 100), IngestCounts { new: 2, repeated: 0, replaced: 0 });
    assert_eq!(lab.ingest(chunks(), 200), IngestCounts { new: 0, repeated: 2, replaced: 0 });
    let row = lab.trace(1);
    assert_eq!((row.spans, row.errors, row.arrived_ns), (2, 1, 100));
    assert_eq!(lab.assert_clean().blocks, 1);
}

#[test]
fn spans_that_come_again_among_new_ones_count_once() {
    let lab = Lab::new();
    lab.ingest(vec![chunk(1, "shop", 10, &[span(1).error(), span(2)])], 100);
    let again = chunk(1, "shop", 10, &[span(1).error(), span(3).error()]);
    assert_eq!(lab.ingest(vec![again], 200), IngestCounts { new: 1, repeated: 1, replaced: 0 });
    assert_eq!(spans(&lab, 1), is(&[(1, "a step"), (2, "a step"), (3, "a step")]));
    let row = lab.trace(1);
    assert_eq!((row.spans, row.errors), (3, 2));
    lab.assert_clean();
}

#[test]
fn the_version_that_came_last_counts_unless_it_is_still_running() {
    let lab = Lab::new();
    let send = |sent: Sent, now_ns| lab.ingest(vec![chunk(1, "shop", 10, &[sent])], now_ns);
    send(span(1).text("begun").running(), 1);
    assert_eq!(send(span(1).text("further").running(), 2).replaced, 1);
    assert_eq!(send(span(1).text("failed").error(), 3).replaced, 1);
    assert_eq!(lab.trace(1).errors, 1);
    assert_eq!(send(span(1).text("begun").running(), 4).repeated, 1);
    assert_eq!(spans(&lab, 1), is(&[(1, "failed")]));
    assert_eq!(send(span(1).text("done"), 5).replaced, 1);
    assert_eq!(spans(&lab, 1), is(&[(1, "done")]));
    assert_eq!(lab.trace(1).errors, 0, "the error was corrected");
    assert_eq!(send(span(1).text("failed").error(), 6).replaced, 1, "an old version that comes again is the last");
    assert_eq!(spans(&lab, 1), is(&[(1, "failed")]));
    assert_eq!((lab.trace(1).spans, lab.trace(1).errors), (1, 1));
    lab.assert_clean();
}

#[test]
fn a_running_version_behind_a_new_span_does_not_count() {
    let lab = Lab::new();
    lab.ingest(vec![chunk(1, "shop", 10, &[span(1).text("done")])], 1);
    let late = chunk(1, "shop", 10, &[span(1).text("begun").running(), span(2)]);
    assert_eq!(lab.ingest(vec![late], 2), IngestCounts { new: 1, repeated: 1, replaced: 0 });
    assert_eq!(spans(&lab, 1), is(&[(1, "done"), (2, "a step")]));
}

#[test]
fn a_root_that_comes_last_names_the_trace() {
    let lab = Lab::new();
    lab.ingest(vec![chunk(1, "library", 500, &[span(2)])], 1);
    lab.ingest(vec![chunk(1, "library", 300, &[span(3)])], 2);
    let row = lab.trace(1);
    assert_eq!((row.name.as_str(), row.project.as_str(), row.has_root), ("span 2", "library", false));
    assert_eq!(lab.ready(1_000, 10, 10_000, 10), Vec::<i64>::new(), "its root is not there");
    lab.ingest(vec![rooted(chunk(1, "shop", 100, &[span(1)]), "answer", true)], 3);
    let row = lab.trace(1);
    assert_eq!((row.name.as_str(), row.project.as_str(), row.has_root), ("answer", "shop", true));
    assert_eq!((row.start_ns, row.end_ns, row.spans), (100, 1500, 3));
    assert_eq!(lab.ready(1_000, 10, 10_000, 10), [row.trace_group]);
    assert_eq!(lab.list(&TraceFilter { project: Some("library".into()), ..Default::default() }, 5), Vec::<u128>::new());
    assert_eq!(lab.list(&TraceFilter { project: Some("shop".into()), ..Default::default() }, 5), [1]);
}

#[test]
fn a_root_that_has_not_ended_is_waited_for() {
    let lab = Lab::new();
    let due = || lab.ready(1_000, 10, 10_000, 10).len();
    lab.ingest(vec![rooted(chunk(1, "shop", 1, &[span(1).running()]), "root", false)], 1);
    lab.ingest(vec![chunk(1, "shop", 1, &[span(2)])], 2);
    assert_eq!(due(), 0, "children do not end it");
    lab.ingest(vec![rooted(chunk(1, "shop", 1, &[span(1)]), "root", true)], 3);
    assert_eq!(due(), 1);
    let stale = rooted(chunk(1, "shop", 1, &[span(1).running(), span(3)]), "root", false);
    lab.ingest(vec![stale], 4);
    assert_eq!(due(), 1, "it has ended, whatever comes late");
}

#[test]
fn times_that_are_missing_or_beyond_belief_are_still_listed() {
    let lab = Lab::new();
    lab.ingest(vec![chunk(1, "shop", u64::MAX - 5, &[span(1)])], 1_000);
    lab.ingest(vec![chunk(2, "shop", 0, &[span(2)])], 1_000);
    lab.ingest(vec![chunk(3, "shop", u64::MAX, &[span(3)])], 1_001);
    lab.ingest(vec![chunk(4, "shop", 500, &[span(4)])], 1_002);
    assert_eq!(lab.list(&TraceFilter::default(), 1), [1, 3, 2, 4]);
    assert_eq!(lab.trace(2).start_ns, 1_000);
    let old = RetentionPolicy { max_age_ns: Some(5_000), max_bytes: None };
    assert_eq!(
        lab.store.run_retention_step(old, 6_000).unwrap().wait().unwrap().traces,
        0,
        "all of it arrived just now, whatever it says"
    );
    let much = RetentionPolicy { max_age_ns: None, max_bytes: Some(0) };
    assert_eq!(lab.store.run_retention_step(much, 6_000).unwrap().wait().unwrap().traces, 4);
    assert_eq!(lab.list(&TraceFilter::default(), 1), Vec::<u128>::new());
}

#[test]
fn log_records_that_come_twice_are_stored_once() {
    let lab = Lab::new();
    let logs = || {
        let mut chunk = TraceChunk::new(TraceId(1), "shop".into(), BlockSignal::Logs, b"1 a record\n");
        (chunk.start_ns, chunk.end_ns) = (50, 60);
        chunk
    };
    assert_eq!(lab.ingest(vec![logs()], 1).new, 1);
    assert_eq!(lab.ingest(vec![logs()], 2).repeated, 1);
    lab.ingest(vec![rooted(chunk(1, "shop", 10, &[span(1)]), "root", true)], 3);
    let row = lab.trace(1);
    assert_eq!((row.spans, row.name.as_str(), row.start_ns), (1, "root", 10));
    assert_eq!(lab.store.trace_group(row.trace_group).unwrap().blocks.len(), 2);
}

#[test]
fn many_requests_share_a_commit() {
    let lab = Lab::new();
    let writes: Vec<_> =
        (0..50u64).map(|n| lab.store.ingest(vec![chunk(u128::from(n), "shop", n, &[span(n)])], 1).unwrap()).collect();
    for write in writes {
        assert_eq!(write.wait().unwrap().new, 1);
    }
    let status = lab.store.writer_status().unwrap();
    assert_eq!((status.queued_bytes.load(Relaxed), status.queued_tasks.load(Relaxed)), (0, 0));
    assert!(status.commits.load(Relaxed) <= 50);
}

#[test]
fn a_full_queue_says_so_and_drains() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), StoreOptions { max_queued_bytes: 10_000 }).unwrap();
    let text: String = (0..20_000).map(|_| fastrand::alphanumeric()).collect();
    let (mut taken, mut refused) = (Vec::new(), 0);
    for n in 0..200u64 {
        match store.ingest(vec![chunk(u128::from(n), "shop", n, &[span(n).text(&text)])], 1) {
            Ok(write) => taken.push(write),
            Err(StoreError::Busy) => refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(!taken.is_empty() && refused > 0, "{} taken, {refused} refused", taken.len());
    for write in taken {
        write.wait().unwrap();
    }
    store.ingest(vec![chunk(9999, "shop", 1, &[span(1).text(&text)])], 1).unwrap().wait().unwrap();
}
