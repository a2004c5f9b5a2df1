//! A real full disk: a file system of a few megabytes, mounted in a namespace of its own.

#![allow(clippy::unwrap_used)] // Also outside of the tests themselves.

mod lab;

use std::path::Path;
use std::process::Command;
use std::sync::atomic::Ordering;

use gradus_core::span::TraceId;
use gradus_store::*;
use lab::*;

#[test]
fn a_full_disk_loses_nothing_and_writing_goes_on() {
    if let Some(folder) = std::env::var_os("STORE_ON_A_SMALL_DISK") {
        return on_a_small_disk(Path::new(&folder));
    }
    let folder = tempfile::tempdir().unwrap();
    let mount = "mount -t tmpfs -o size=6m none \"$STORE_ON_A_SMALL_DISK\"";
    let shell = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"]);
        command.env("STORE_ON_A_SMALL_DISK", folder.path());
        command
    };
    if !shell(mount).status().is_ok_and(|status| status.success()) {
        eprintln!("skipped: a_full_disk_loses_nothing_and_writing_goes_on: no file system can be mounted here");
        return;
    }
    let status = shell(&format!("{mount} && exec \"$@\""))
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "a_full_disk_loses_nothing_and_writing_goes_on", "--nocapture"])
        .status()
        .unwrap();
    assert!(status.success());
}

fn on_a_small_disk(folder: &Path) {
    let ballast = folder.join("ballast");
    std::fs::write(&ballast, vec![1; 2 << 20]).unwrap();
    let store = Store::open(&folder.join("store"), StoreOptions::default()).unwrap();
    let text = |_| (0..8_000).map(|_| fastrand::alphanumeric()).collect::<String>();
    let (mut stored, mut failed) = (Vec::new(), 0);
    // Several at a time, so that requests share the transaction that fails.
    for round in 0..200u64 {
        let writes: Vec<_> = (0..8)
            .map(|n| round * 8 + n)
            .map(|id| {
                (id, store.ingest(vec![chunk(u128::from(id), &format!("p{id}"), id, &[span(id).text(&text(id))])], 1))
            })
            .collect();
        for (id, write) in writes {
            match write.unwrap().wait() {
                Ok(_) => stored.push(id),
                Err(StoreError::DiskFull) => failed += 1,
                Err(error) => panic!("{error}"),
            }
        }
        if failed > 30 {
            break;
        }
    }
    assert!(failed > 30 && stored.len() > 20, "{} stored, {failed} failed", stored.len());
    let status = store.writer_status().unwrap();
    assert!(status.is_failing.load(Ordering::Relaxed));
    assert_eq!(status.queued_bytes.load(Ordering::Relaxed), 0);
    assert!(matches!(store.backup(&folder.join("copy")), Err(StoreError::DiskFull)));
    assert!(!folder.join("copy").exists(), "half a copy is no copy");
    std::fs::remove_file(&ballast).unwrap();
    for id in 10_000..10_010u64 {
        let chunk = chunk(u128::from(id), "p1", id, &[span(id).text(&text(id))]);
        store.ingest(vec![chunk], 1).unwrap().wait().unwrap();
        stored.push(id);
    }
    assert!(!status.is_failing.load(Ordering::Relaxed));
    for _ in 0..2 {
        for id in &stored {
            assert_eq!(store.trace(TraceId(u128::from(*id))).unwrap().unwrap().spans, 1);
        }
        let report = store.check(&mut |block| span_ids(&block.export)).unwrap();
        assert_eq!(report.problems, Vec::<String>::new());
        assert_eq!(report.traces as usize, stored.len());
    }
}
