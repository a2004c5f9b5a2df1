//! Stores copied into others: from SQLite to the engine of the tests and back, interrupted, and refused.

#![allow(clippy::unwrap_used)] // Also outside of the tests themselves.

mod lab;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use gradus_store::*;
use lab::*;

/// More trajectories than a batch has rows.
const TRACES: u128 = 620;

/// A store in a folder, whatever the engine of the tests is.
fn furnished() -> Lab {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), StoreOptions::default()).unwrap();
    let lab = Lab { folder, store };
    let chunks = |id: u128| {
        let spans = [span(id as u64), span(id as u64 + 10_000).error().text("nul \0 and “ü”")];
        rooted(
            chunk(id, if id.is_multiple_of(3) { "library" } else { "shop" }, 10 * id as u64, &spans),
            "root",
            id.is_multiple_of(2),
        )
    };
    lab.ingest((1..=TRACES).map(chunks).collect(), 1_000);
    // One call returns what a server claims at a time.
    let claims = || Some(lab.ready(5_000, 10, 10, TRACES as usize)).filter(|claimed| !claimed.is_empty());
    for trace_group in std::iter::from_fn(claims).flatten() {
        let id = lab.store.trace_group(trace_group).unwrap().traces[0].0;
        let mut record = trajectory(&format!("t{id}"), id, 10 * id as i64);
        record.json = format!(r#"{{"id":{id}}}"#).into_bytes();
        record.words = format!("word{id}");
        record.outcomes = vec![scored("fit", Some(1), "bad", 2.2250738585072014e-308, "search")];
        lab.assemble(trace_group, vec![record], 6_000);
    }
    let at = StoreLocation::Folder(lab.folder.path().to_owned());
    lab.fill_every_table(&at, TRACES + 1, 7_000);
    lab
}

fn search_words() -> SearchTextBuilder {
    Arc::new(|json| format!("word{}", serde_json::from_slice::<serde_json::Value>(json).unwrap()["id"]))
}

fn exported(store: &Store) -> String {
    let mut out = Vec::new();
    store.export(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// An empty store of the engine of the tests.
fn empty_target() -> (tempfile::TempDir, StoreLocation) {
    let folder = tempfile::tempdir().unwrap();
    drop(open_store(&folder));
    let at = location(folder.path());
    (folder, at)
}

fn copy(from: &StoreLocation, to: &StoreLocation) -> Result<Vec<CopiedTable>, StoreError> {
    copy_store(from, to, &search_words(), &mut |_| ())
}

#[test]
fn a_copy_and_its_copy_have_the_same_rows() {
    let Lab { folder, store } = furnished();
    let (lines, keys) = (exported(&store), store.keys().unwrap());
    drop(store);
    let (_target_folder, target) = empty_target();
    let copied = copy(&StoreLocation::Folder(folder.path().to_owned()), &target).unwrap();
    let rows = |name: &str| copied.iter().find(|table| table.table == name).unwrap().rows;
    assert_eq!((rows("trace"), rows("span"), rows("outcome"), rows("api_key")), (622, 1_242, 621, 1));
    let empty: Vec<&str> = copied.iter().filter(|table| table.rows == 0).map(|table| table.table).collect();
    assert_eq!(empty, [""; 0], "nothing is known about a table without rows");
    let back_folder = tempfile::tempdir().unwrap();
    copy(&target, &StoreLocation::Folder(back_folder.path().to_owned())).unwrap();
    let back = Lab { store: Store::open(back_folder.path(), StoreOptions::default()).unwrap(), folder: back_folder };
    assert_eq!(exported(&back.store), lines);
    assert_eq!(back.store.keys().unwrap(), keys);
    back.assert_clean();
    let found = TraceFilter { text: Some("word77".into()), ..Default::default() };
    assert_eq!(back.list(&found, 5), [77]);
    // Numbers go on behind those of the copied rows.
    assert_eq!(back.ingest(vec![chunk(9_999, "new", 5, &[span(1)])], 9_000).new, 1);
    back.assert_clean();
}

#[test]
fn an_interrupted_copy_goes_on_and_is_not_used_before() {
    let Lab { folder, store } = furnished();
    drop(store);
    let source = StoreLocation::Folder(folder.path().to_owned());
    let (_target_folder, target) = empty_target();
    // The second batch of trajectories fails.
    let (words, asked) = (search_words(), AtomicUsize::new(0));
    let failing: SearchTextBuilder = Arc::new(move |json| {
        assert!(asked.fetch_add(1, Ordering::Relaxed) < 510, "interrupted");
        words(json)
    });
    copy_store(&source, &target, &failing, &mut |_| ()).unwrap_err();
    for opened in [Store::open_at(&target, StoreOptions::default()), Store::open_at_to_read(&target)] {
        let error = opened.unwrap_err();
        assert!(matches!(error, StoreError::IncompleteCopy { .. }), "{error}");
    }
    let other = furnished();
    let other_source = StoreLocation::Folder(other.folder.path().to_owned());
    drop(other.store);
    let error = copy(&other_source, &target).unwrap_err();
    assert!(matches!(error, StoreError::OtherCopy { .. }), "{error}");
    let mut tables = Vec::new();
    copy_store(&source, &target, &search_words(), &mut |table| tables.push(table.clone())).unwrap();
    assert_eq!(tables[0], CopiedTable { table: "trajectory", rows: 121 });
    assert_eq!(Store::open_at_to_read(&target).unwrap().count_traces(&TraceFilter::default()).unwrap().count, 622);
}

#[test]
fn a_copy_needs_a_source_and_an_empty_target() {
    let empty = tempfile::tempdir().unwrap();
    let (_target_folder, target) = empty_target();
    let missing = copy(&StoreLocation::Folder(empty.path().to_owned()), &target).unwrap_err();
    assert!(matches!(missing, StoreError::Missing { .. }), "{missing}");
    let source = furnished();
    let at = StoreLocation::Folder(source.folder.path().to_owned());
    let in_use = copy(&at, &target).unwrap_err();
    assert!(matches!(in_use, StoreError::InUse { .. }), "{in_use}");
    drop(source.store);
    copy(&at, &target).unwrap();
    // Also while a server uses it: stopping that one would not help.
    let _server = target.folder().is_none().then(|| Store::open_at(&target, StoreOptions::default()).unwrap());
    let full = copy(&at, &target).unwrap_err();
    assert!(matches!(full, StoreError::NotEmpty { .. }), "{full}");
    Store::open_at_to_read(&target).unwrap();
}

#[test]
fn a_source_that_changes_meanwhile_is_noticed() {
    let Lab { folder, store } = furnished();
    drop(store);
    let source = StoreLocation::Folder(folder.path().to_owned());
    let (_target_folder, target) = empty_target();
    // Another program: gradus is kept out by the lock of the folder.
    let change = |table: &CopiedTable| {
        if table.table == "api_key" {
            let file = rusqlite::Connection::open(folder.path().join(DATABASE_FILE_NAME)).unwrap();
            file.execute("UPDATE alert_rule SET author = 'somebody else'", ()).unwrap();
        }
    };
    let error = copy_store(&source, &target, &search_words(), &mut { change }).unwrap_err();
    assert!(matches!(error, StoreError::CopyDiffers { table: "alert_rule", rows: 1, copied: 1, .. }), "{error}");
    let opened = Store::open_at(&target, StoreOptions::default()).unwrap_err();
    assert!(matches!(opened, StoreError::IncompleteCopy { .. }), "{opened}");
}

#[test]
fn servers_and_copies_keep_each_other_out_of_a_database() {
    let (_folder, database) = empty_target();
    if database.folder().is_some() {
        return; // A folder has its lock.
    }
    let Lab { folder, store } = furnished();
    drop(store);
    let source = StoreLocation::Folder(folder.path().to_owned());
    let server = Store::open_at(&database, StoreOptions::default()).unwrap();
    let refused = copy(&source, &database).unwrap_err();
    assert!(matches!(refused, StoreError::ServersRunning { .. }), "{refused}");
    drop(server);
    let is_refused = |at: &StoreLocation| {
        let opened = Store::open_at(at, StoreOptions::default()).unwrap_err();
        assert!(matches!(opened, StoreError::CopyRunning { .. }), "{opened}");
        let copied = copy(&source, at).unwrap_err();
        // The source of a copy has rows, its target is in use.
        matches!(copied, StoreError::InUse { .. } | StoreError::ServersRunning { .. } | StoreError::NotEmpty { .. })
    };
    copy_store(&source, &database, &search_words(), &mut |_| assert!(is_refused(&database))).unwrap();
    // The same for a database that is copied from.
    let back = tempfile::tempdir().unwrap();
    let back_at = StoreLocation::Folder(back.path().to_owned());
    let server = Store::open_at(&database, StoreOptions::default()).unwrap();
    let refused = copy(&database, &back_at).unwrap_err();
    assert!(matches!(refused, StoreError::ServersRunning { .. }), "{refused}");
    drop(server);
    copy_store(&database, &back_at, &search_words(), &mut |_| assert!(is_refused(&database))).unwrap();
    Store::open_at(&database, StoreOptions::default()).unwrap();
}

#[test]
fn a_copied_database_has_the_partitions_of_its_days() {
    const DAY: i64 = 20_000;
    let source = Lab::new();
    let at = location(source.folder.path());
    if at.folder().is_some() {
        return; // SQLite has no partitions.
    }
    for day in [DAY, DAY + 1] {
        source.ingest(vec![chunk(day as u128, "shop", 10, &[span(1)])], day * 86_400_000_000_000);
    }
    let Lab { folder: _folder, store } = source;
    drop(store);
    let (target_folder, target) = empty_target();
    copy(&at, &target).unwrap();
    let target = Lab { store: open_store(&target_folder), folder: target_folder };
    let count = |table: &str| -> i64 {
        let rows = format!("SELECT count(*) FROM gradus.{table}");
        target.database().unwrap().query_one(&rows, &[]).unwrap().get(0)
    };
    let tables =
        ["span_day_20000", "span_day_20001", "block_day_20000", "block_day_20001", "span_other", "block_other"];
    assert_eq!(tables.map(count), [1, 1, 1, 1, 0, 0]);
    target.assert_clean();
}
