//! Files that are removed or replaced under a store that is open: nothing is acknowledged that nobody could read later, and
//! what was acknowledged before is not lost.

#![allow(clippy::unwrap_used)] // Also outside of the tests themselves.

mod lab;

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use gradus_core::span::TraceId;
use gradus_store::*;
use lab::*;

fn file(lab: &Lab, ending: &str) -> PathBuf {
    lab.folder.path().join(format!("{DATABASE_FILE_NAME}{ending}"))
}

fn is_gone(result: &Result<IngestCounts, StoreError>) -> bool {
    matches!(result, Err(StoreError::Gone { .. }))
}

fn try_ingest(lab: &Lab, id: u128) -> Result<IngestCounts, StoreError> {
    lab.store.ingest(vec![chunk(id, "shop", 1, &[span(id as u64)])], 1).unwrap().wait()
}

#[test]
fn a_removed_file_is_noticed_before_the_next_acknowledgement() {
    for ending in ["", "-wal", "-shm"] {
        let lab = Lab::new();
        for id in 1..=20 {
            try_ingest(&lab, id).unwrap();
        }
        lab.store.check_files().unwrap();
        fs::remove_file(file(&lab, ending)).unwrap();
        assert!(is_gone(&try_ingest(&lab, 21)), "{ending}");
        assert!(is_gone(&try_ingest(&lab, 22)), "{ending}: and stays so");
        assert!(matches!(lab.store.check_files(), Err(StoreError::Gone { .. })), "{ending}");
        assert!(lab.store.writer_status().unwrap().is_failing.load(Ordering::Relaxed));
        let error = lab.store.check_files().unwrap_err().to_string();
        assert!(error.contains(&format!("gradus.db{ending}: ")) && !error.contains('\n'), "{error}");
        if ending.is_empty() {
            continue;
        }
        // What was acknowledged is in the database by now, whatever becomes of this process.
        let copy = tempfile::tempdir().unwrap();
        fs::copy(file(&lab, ""), copy.path().join(DATABASE_FILE_NAME)).unwrap();
        let copied = Store::open(copy.path(), StoreOptions::default()).unwrap();
        for id in 1..=20 {
            assert!(copied.trace(TraceId(id)).unwrap().is_some(), "{ending}: {id}");
        }
        let lab = lab.reopened();
        assert_eq!(lab.list(&TraceFilter::default(), 100).len(), 20, "{ending}");
        try_ingest(&lab, 30).unwrap();
        lab.assert_clean();
    }
}

#[test]
fn a_log_that_was_truncated_in_place_is_noticed() {
    let lab = Lab::new();
    for id in 1..=20 {
        try_ingest(&lab, id).unwrap();
    }
    fs::File::options().write(true).open(file(&lab, "-wal")).unwrap().set_len(0).unwrap();
    assert!(is_gone(&try_ingest(&lab, 21)));
    assert!(is_gone(&try_ingest(&lab, 22)), "and stays so");
    // The log's own emptying is none.
    let lab = Lab::new();
    for id in 1..=5 {
        try_ingest(&lab, id).unwrap();
        lab.store.free_disk_space(10_000).unwrap();
        assert_eq!(fs::metadata(file(&lab, "-wal")).unwrap().len(), 0);
        lab.store.check_files().unwrap();
    }
    lab.assert_clean();
}

#[test]
fn a_replaced_file_is_noticed_and_left_alone() {
    for ending in ["", "-wal", "-shm"] {
        let lab = Lab::new();
        try_ingest(&lab, 1).unwrap();
        let path = file(&lab, ending);
        let away = lab.folder.path().join("away");
        fs::rename(&path, &away).unwrap();
        fs::write(&path, "somebody else's").unwrap();
        assert!(is_gone(&try_ingest(&lab, 2)), "{ending}");
        let Lab { folder, store } = lab;
        drop(store);
        assert_eq!(fs::read(folder.path().join(format!("{DATABASE_FILE_NAME}{ending}"))).unwrap(), b"somebody else's");
    }
}

#[test]
fn an_emptied_database_is_noticed() {
    let lab = Lab::new();
    try_ingest(&lab, 1).unwrap();
    fs::OpenOptions::new().write(true).open(file(&lab, "")).unwrap().set_len(0).unwrap();
    assert!(is_gone(&try_ingest(&lab, 2)));
}

#[test]
fn a_file_that_is_put_back_is_taken_again() {
    for ending in ["", "-wal", "-shm"] {
        let lab = Lab::new();
        try_ingest(&lab, 1).unwrap();
        let (path, away) = (file(&lab, ending), lab.folder.path().join("away"));
        fs::rename(&path, &away).unwrap();
        assert!(is_gone(&try_ingest(&lab, 2)));
        fs::rename(&away, &path).unwrap();
        try_ingest(&lab, 3).unwrap();
        let lab = lab.reopened();
        assert_eq!(lab.trace(1).spans + lab.trace(3).spans, 2, "{ending}");
    }
}

#[test]
fn nobody_has_to_send_something_for_it_to_be_noticed() {
    let lab = Lab::new();
    try_ingest(&lab, 1).unwrap();
    fs::remove_file(file(&lab, "-wal")).unwrap();
    let status = lab.store.writer_status().unwrap();
    let started = Instant::now();
    while !status.is_failing.load(Ordering::Relaxed) {
        assert!(started.elapsed() < Duration::from_secs(60), "it is not noticed");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Who finds the index of the log without a lock takes it for abandoned and truncates it: the process that has it mapped
/// ends with SIGBUS.
#[cfg(target_os = "linux")]
#[test]
fn looking_at_the_files_ends_no_lock_of_sqlite() {
    use std::os::unix::fs::MetadataExt as _;
    let lab = Lab::new();
    for id in 1..=3 {
        try_ingest(&lab, id).unwrap();
        lab.store.check_files().unwrap();
    }
    for ending in ["", "-shm"] {
        let inode = format!(":{} ", fs::metadata(file(&lab, ending)).unwrap().ino());
        let locks = fs::read_to_string("/proc/locks").unwrap();
        assert!(locks.lines().any(|lock| lock.contains(&inode)), "{ending}: no lock on {inode}in\n{locks}");
    }
}
