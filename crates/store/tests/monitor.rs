//! Queries under a monitor: they stop inside of SQLite when they should, and use connections of their own.

#![allow(clippy::unwrap_used)] // Also outside of the tests themselves.

mod lab;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use gradus_store::*;
use lab::*;

#[derive(Default)]
struct Monitor {
    /// Checks after which it says no.
    limit: AtomicU64,
    checks: AtomicU64,
    attached: Mutex<Vec<Arc<QueryInterrupt>>>,
    was_attached: AtomicBool,
}

impl Monitor {
    fn new(limit: u64) -> Arc<Monitor> {
        Arc::new(Monitor { limit: AtomicU64::new(limit), ..Monitor::default() })
    }
}

impl QueryMonitor for Monitor {
    fn check(&self) -> Result<(), QueryStop> {
        if self.checks.fetch_add(1, Ordering::Relaxed) >= self.limit.load(Ordering::Relaxed) {
            return Err(QueryStop::Cancelled);
        }
        Ok(())
    }

    fn attach(&self, interrupt: &Arc<QueryInterrupt>) {
        self.was_attached.store(true, Ordering::Relaxed);
        self.attached.lock().unwrap().push(Arc::clone(interrupt));
    }

    fn detach(&self, interrupt: &Arc<QueryInterrupt>) {
        self.attached.lock().unwrap().retain(|known| !Arc::ptr_eq(known, interrupt));
    }
}

fn filled() -> Lab {
    let lab = Lab::new();
    for n in 0..400u64 {
        drop(lab.store.ingest(vec![chunk(u128::from(n) + 1, "shop", n, &[span(n)])], 1).unwrap());
    }
    lab.ingest(vec![chunk(999, "shop", 999, &[span(999)])], 1);
    for id in 1..=400 {
        let mut record = trajectory(&format!("t{id}"), id, 1);
        record.words = format!("refund {id} {}", fastrand::u32(..));
        lab.assemble(lab.trace(id).trace_group, vec![record], 1);
    }
    lab
}

/// Looks at every trace, and finds none.
fn costly() -> TraceFilter {
    let score = ScoreBound { evaluator: "none".to_owned(), at_least: Some(1.0), below: None };
    TraceFilter { error: Some(false), score: Some(score), agent: Some("planner".to_owned()), ..Default::default() }
}

#[test]
fn a_query_stops_where_its_monitor_says_no_and_the_next_one_works() {
    let lab = filled();
    let all = Monitor::new(u64::MAX);
    let page = run_monitored(all.clone(), || lab.store.traces(&costly(), None, 10)).unwrap();
    assert!(page.traces.is_empty());
    let needed = all.checks.load(Ordering::Relaxed);
    assert!(needed > 6, "{needed} checks");
    assert!(all.was_attached.load(Ordering::Relaxed) && all.attached.lock().unwrap().is_empty());
    let few = Monitor::new(needed / 2);
    let stopped = run_monitored(few.clone(), || lab.store.traces(&costly(), None, 10));
    assert!(matches!(stopped, Err(StoreError::Stopped(QueryStop::Cancelled))), "{stopped:?}");
    // It stopped where it was told to: hardly anything was done after that.
    assert!(few.checks.load(Ordering::Relaxed) < needed / 2 + 5);
    // The connection is as good as new, with and without a monitor.
    assert!(run_monitored(Monitor::new(u64::MAX), || lab.store.traces(&costly(), None, 10)).is_ok());
    assert_eq!(lab.store.traces(&TraceFilter::default(), None, 500).unwrap().traces.len(), 401);
    check_query().unwrap();
}

#[test]
fn a_search_stops_at_an_interrupt() {
    let lab = filled();
    let filter = TraceFilter { text: Some("refund".to_owned()), ..TraceFilter::default() };
    let monitor = Monitor::new(2);
    let stopped = run_monitored(monitor, || lab.store.traces(&filter, None, 500));
    assert!(matches!(stopped, Err(StoreError::Stopped(_))), "{stopped:?}");
    assert_eq!(lab.store.traces(&filter, None, 500).unwrap().traces.len(), 400);
    let bomb: Vec<String> = ('a'..='t').map(|letter| format!("{letter}*")).collect();
    let filter = TraceFilter { text: Some(bomb.join(" ")), ..TraceFilter::default() };
    assert!(matches!(lab.store.traces(&filter, None, 500), Err(StoreError::BadSearch { .. })));
}

/// A query that waits in its monitor, holding its connection.
struct Holding {
    entered: std::sync::Barrier,
    release: std::sync::Barrier,
    is_first: AtomicBool,
}

impl QueryMonitor for Holding {
    fn check(&self) -> Result<(), QueryStop> {
        Ok(())
    }

    fn attach(&self, _: &Arc<QueryInterrupt>) {
        if self.is_first.swap(false, Ordering::Relaxed) {
            self.entered.wait();
            self.release.wait();
        }
    }

    fn detach(&self, _: &Arc<QueryInterrupt>) {}
}

#[test]
fn keys_senders_and_the_servers_own_work_wait_for_no_query() {
    const QUERIES: usize = 40;
    let folder = tempfile::tempdir().unwrap();
    let key = new_key().unwrap();
    let scopes = KeyScopes { ingest: true, ..KeyScopes::default() };
    assert!(Store::add_key_at(&folder.path().into(), "ann", &key, scopes, 1).unwrap());
    let store = Arc::new(Store::open(folder.path(), StoreOptions::default()).unwrap());
    let monitors: Vec<Arc<Holding>> = (0..QUERIES)
        .map(|_| {
            Arc::new(Holding {
                entered: std::sync::Barrier::new(2),
                release: std::sync::Barrier::new(2),
                is_first: AtomicBool::new(true),
            })
        })
        .collect();
    let queries: Vec<_> = monitors
        .iter()
        .map(|monitor| {
            let (store, monitor) = (Arc::clone(&store), Arc::clone(monitor));
            std::thread::spawn(move || run_monitored(monitor, || store.projects().unwrap().len()))
        })
        .collect();
    for monitor in &monitors {
        monitor.entered.wait();
    }
    // All of them hold a connection; everything else goes on.
    assert!(store.find_key_scopes(&key).unwrap().is_some());
    store.ingest(vec![chunk(1, "shop", 1, &[span(1)])], 1).unwrap().wait().unwrap();
    assert_eq!(store.ready_queue_length().unwrap(), 1);
    assert!(Store::revoke_key_at(&folder.path().into(), "ann", 2).unwrap());
    assert!(store.find_key_scopes(&key).unwrap().is_none(), "at once");
    for monitor in &monitors {
        monitor.release.wait();
    }
    for query in queries {
        query.join().unwrap();
    }
}
