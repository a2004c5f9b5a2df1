//! A process that is killed in the middle of writing: what it was told is stored is stored.

#![allow(clippy::unwrap_used)] // Also outside of the tests themselves.

mod lab;

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use gradus_core::span::TraceId;
use gradus_store::*;
use lab::*;

/// Writes from several threads, and says which traces are stored, until it is killed.
#[test]
fn child_that_writes() {
    let Some(folder) = std::env::var_os("STORE_OF_THE_CHILD") else { return };
    let first: u128 = std::env::var("FIRST_OF_THE_CHILD").unwrap().parse().unwrap();
    let store = Store::open(folder.as_ref(), StoreOptions::default()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4u128 {
            let store = &store;
            scope.spawn(move || {
                let text: String = (0..1_500).map(|_| fastrand::alphanumeric()).collect();
                for id in (first + thread..).step_by(4) {
                    let link = [(LinkKind::Session, (id / 8) as u64)];
                    let one = linked(chunk(id, "shop", id as u64, &[span(1).text(&text), span(2)]), &link);
                    let two = rooted(chunk(id, "shop", id as u64, &[span(3).error(), span(2)]), "root", true);
                    store.ingest(vec![one, two], id as i64).unwrap().wait().unwrap();
                    let trace_group = store.trace(TraceId(id)).unwrap().unwrap().trace_group;
                    if id % 3 == 0 {
                        let mut record = trajectory(&format!("t{id}"), id, 1);
                        record.outcomes = vec![scored("fit", None, "good", 1.0, "")];
                        let due_ns = store.trace_group(trace_group).unwrap().due_ns;
                        store
                            .store_assembled_groups(
                                vec![AssembledTraceGroup { trace_group, due_ns, records: vec![record] }],
                                1,
                            )
                            .unwrap()
                            .wait()
                            .unwrap();
                    }
                    // One write, so that half a line is never read as a number.
                    std::io::stdout().write_all(format!("\nstored {id}\n").as_bytes()).unwrap();
                }
            });
        }
    });
}

#[test]
fn what_was_acknowledged_survives_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let mut random = fastrand::Rng::new();
    let mut stored: Vec<u128> = Vec::new();
    let mut first = 1;
    for _ in 0..8 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_that_writes", "--nocapture"])
            .env("STORE_OF_THE_CHILD", folder.path())
            .env("FIRST_OF_THE_CHILD", first.to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let told = std::thread::spawn(move || -> Vec<u128> {
            let lines = out.lines().map_while(Result::ok);
            lines.filter_map(|line| line.strip_prefix("stored ")?.parse().ok()).collect()
        });
        std::thread::sleep(Duration::from_millis(random.u64(80..600)));
        child.kill().unwrap();
        child.wait().unwrap();
        stored.extend(told.join().unwrap());
        first = stored.iter().max().copied().unwrap_or(first) + 1_000;
    }
    assert!(stored.len() > 20, "only {} were stored", stored.len());
    let store = Store::open(folder.path(), StoreOptions::default()).unwrap();
    for id in &stored {
        let row = store.trace(TraceId(*id)).unwrap().expect("an acknowledged trace is there");
        assert_eq!((row.spans, row.errors, row.has_root), (3, 1, true), "of trace {id}");
    }
    let lab = Lab { folder, store };
    let report = lab.assert_clean();
    assert_eq!(report.spans, 3 * report.traces, "a request is there whole");
}
