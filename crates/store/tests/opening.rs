//! Files and folders that are not what they should be: told in one line, and left as they were.

#![allow(clippy::unwrap_used)] // Also outside of the tests themselves.

mod lab;

use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use gradus_store::*;
use lab::*;

fn open(folder: &Path) -> Result<Store, StoreError> {
    Store::open(folder, StoreOptions::default())
}

fn assert_told(error: &StoreError, what: &str) {
    let line = error.to_string();
    assert!(line.contains(what) && !line.contains('\n'), "{line}");
}

#[test]
fn one_at_a_time_and_any_number_of_readers() {
    let lab = Lab::new();
    lab.ingest(vec![chunk(1, "shop", 1, &[span(1)])], 1);
    assert_told(&open(lab.folder.path()).unwrap_err(), "another gradus is using this store");
    let read = Store::open_to_read(&lab.folder.path().join(DATABASE_FILE_NAME)).unwrap();
    assert_eq!(read.projects().unwrap().len(), 1);
    assert!(matches!(read.ingest(vec![], 1), Err(StoreError::Closed)));
    let lab = lab.reopened();
    assert_eq!(lab.trace(1).spans, 1);
}

#[test]
fn another_process_is_told_that_the_store_is_in_use() {
    if let Some(folder) = std::env::var_os("STORE_IN_USE") {
        let error = open(Path::new(&folder)).unwrap_err();
        assert!(matches!(error, StoreError::InUse { .. }), "{error}");
        return;
    }
    let lab = Lab::new();
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "another_process_is_told_that_the_store_is_in_use"])
        .env("STORE_IN_USE", lab.folder.path())
        .status()
        .unwrap();
    assert!(status.success());
}

#[test]
fn what_is_no_store_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(DATABASE_FILE_NAME);
    assert_told(&Store::open_to_read(&path).unwrap_err(), "there is no store here");
    fs::write(&path, "dear diary, ".repeat(1_000)).unwrap();
    assert_told(&open(folder.path()).unwrap_err(), "this is no Gradus store");
    assert_told(&Store::open_to_read(&path).unwrap_err(), "this is no Gradus store");
    fs::remove_file(&path).unwrap();
    {
        let other = rusqlite::Connection::open(&path).unwrap();
        other.execute_batch("CREATE TABLE mine (x); INSERT INTO mine VALUES (1)").unwrap();
    }
    let before = fs::read(&path).unwrap();
    assert_told(&open(folder.path()).unwrap_err(), "somebody else's database");
    assert_told(&Store::open_to_read(&path).unwrap_err(), "somebody else's database");
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[test]
fn a_store_truncated_to_nothing_is_refused_and_left_alone() {
    let Lab { folder, store } = filled();
    let path = folder.path().join(DATABASE_FILE_NAME);
    drop(store);
    let sound = fs::read(&path).unwrap();
    for bytes in [0, 1, 50, 99, 100, 4096, 8192, sound.len() as u64 - 1] {
        fs::write(&path, &sound).unwrap();
        fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(bytes).unwrap();
        assert_told(&open(folder.path()).unwrap_err(), "damaged");
        assert!(Store::open_to_read(&path).is_err());
        assert!(Store::add_key_at(&folder.path().into(), "a", "k", KeyScopes::default(), 1).is_err());
        assert_eq!(fs::metadata(&path).unwrap().len(), bytes, "nothing was written over it");
    }
    fs::write(&path, &sound).unwrap();
    drop(open(folder.path()).unwrap());
    // Without its file, what the log holds must not be deleted either.
    fs::remove_file(&path).unwrap();
    let log = folder.path().join("gradus.db-wal");
    fs::write(&log, "frames").unwrap();
    assert_told(&open(folder.path()).unwrap_err(), "write-ahead log is there");
    assert_eq!(fs::read(&log).unwrap(), b"frames");
    fs::remove_file(&log).unwrap();
    drop(open(folder.path()).unwrap());
    let names = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, [".gitignore", "gradus.db", "gradus.lock"], "no draft is left");
}

/// A store as the version before this one made it.
fn first_version(path: &Path) {
    let sql = rusqlite::Connection::open(path).unwrap();
    sql.execute_batch("PRAGMA page_size = 8192; PRAGMA auto_vacuum = INCREMENTAL; PRAGMA journal_mode = WAL; BEGIN;")
        .unwrap();
    sql.execute_batch(include_str!("../migrations/0001.sql")).unwrap();
    sql.execute_batch(
        "INSERT INTO project (no, name, created_ns) VALUES (1, 'shop', 1); \
         INSERT INTO trace (no, trace_id, project, name, start_ns, end_ns, spans, errors, bytes, has_root, has_versions, \
         story, arrived_ns) VALUES \
         (1, x'00000000000000000000000000000001', 1, 'a', 7000000000000000000, 7000000000000000001, 0, 0, 0, 2, 0, 1, 500), \
         (2, x'00000000000000000000000000000002', 1, 'b', 400, 401, 0, 0, 0, 2, 0, 2, 2000); \
         PRAGMA user_version = 1; PRAGMA application_id = 0x67726164; COMMIT",
    )
    .unwrap();
}

#[test]
fn a_store_of_the_first_version_is_migrated_and_its_traces_go_by_arrival() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(DATABASE_FILE_NAME);
    first_version(&path);
    assert_eq!(Store::pending_upgrade(&path).unwrap().map(|(found, _)| found), Some(1));
    let store = open(folder.path()).unwrap();
    assert_eq!(Store::pending_upgrade(&path).unwrap(), None);
    assert_eq!(store.projects().unwrap()[0].name, "shop");
    let retention = RetentionPolicy { max_age_ns: Some(1_000), max_bytes: None };
    assert_eq!(store.run_retention_step(retention, 2_000).unwrap().wait().unwrap().traces, 1);
    let left = store.traces(&TraceFilter::default(), None, 10).unwrap().traces;
    assert_eq!(left.iter().map(|trace| trace.trace_id.0).collect::<Vec<_>>(), [2]);
    store.ingest(vec![chunk(3, "shop", 1, &[span(1)])], 2_000).unwrap().wait().unwrap();
    drop(store);
    drop(open(folder.path()).unwrap());
}

fn format_of(path: &Path) -> i64 {
    rusqlite::Connection::open(path).unwrap().pragma_query_value(None, "user_version", |row| row.get(0)).unwrap()
}

#[test]
fn reading_upgrades_an_older_store_unless_its_server_runs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(DATABASE_FILE_NAME);
    first_version(&path);
    // A server of the version that made it.
    let lock = fs::File::create(folder.path().join("gradus.lock")).unwrap();
    lock.lock().unwrap();
    assert_told(&Store::open_to_read(&path).unwrap_err(), "another gradus is using this store");
    // These change nothing, so they work all the same.
    assert!(Store::list_keys_at(&folder.path().into()).unwrap().is_empty());
    Store::backup_file(&path, &folder.path().join("copy.db")).unwrap();
    assert_eq!((format_of(&path), format_of(&folder.path().join("copy.db"))), (1, 1));
    drop(lock);
    assert_eq!(Store::open_to_read(&path).unwrap().projects().unwrap()[0].name, "shop");
    assert!(format_of(&path) > 1);
}

/// A table that a migration wants to create is there already.
#[test]
fn a_migration_that_fails_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(DATABASE_FILE_NAME);
    first_version(&path);
    let sql = rusqlite::Connection::open(&path).unwrap();
    sql.execute_batch("CREATE TABLE anchor_set (mine TEXT)").unwrap();
    let dump = |sql: &rusqlite::Connection| -> Vec<String> {
        let mut statement = sql.prepare("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name").unwrap();
        statement.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
    };
    let before = dump(&sql);
    assert_told(&open(folder.path()).unwrap_err(), "anchor_set");
    assert!(Store::open_to_read(&path).is_err());
    assert_eq!((dump(&sql), format_of(&path)), (before, 1));
    sql.execute_batch("DROP TABLE anchor_set").unwrap();
    assert_eq!(open(folder.path()).unwrap().projects().unwrap()[0].name, "shop");
}

#[test]
fn a_newer_store_is_refused() {
    let Lab { folder, store } = Lab::new();
    let path = folder.path().join(DATABASE_FILE_NAME);
    drop(store);
    rusqlite::Connection::open(&path).unwrap().pragma_update(None, "user_version", 99).unwrap();
    assert_told(&open(folder.path()).unwrap_err(), "made by a newer Gradus (format 99");
    assert_told(&Store::open_to_read(&path).unwrap_err(), "made by a newer Gradus");
}

fn filled() -> Lab {
    let lab = Lab::new();
    let text: String = (0..3_000).map(|_| fastrand::alphanumeric()).collect();
    for n in 0..200u64 {
        lab.store.ingest(vec![chunk(u128::from(n), "shop", n, &[span(n).text(&text)])], 1).unwrap();
    }
    lab.reopened().reopened()
}

#[test]
fn a_truncated_store_is_told_at_opening() {
    let Lab { folder, store } = filled();
    let path = folder.path().join(DATABASE_FILE_NAME);
    drop(store);
    let size = fs::metadata(&path).unwrap().len();
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(size / 2).unwrap();
    assert_told(&open(folder.path()).unwrap_err(), "damaged");
    assert_told(&Store::open_to_read(&path).unwrap_err(), "damaged");
}

#[test]
fn check_finds_bytes_that_were_changed() {
    let Lab { folder, store } = filled();
    let path = folder.path().join(DATABASE_FILE_NAME);
    drop(store);
    let size = fs::metadata(&path).unwrap().len();
    let mut random = fastrand::Rng::with_seed(3);
    let sound = fs::read(&path).unwrap();
    for _ in 0..12 {
        fs::write(&path, &sound).unwrap();
        let mut file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        // A page somewhere behind the first ones, which hold the schema.
        file.seek(SeekFrom::Start(random.u64(20..size / 8192) * 8192)).unwrap();
        file.write_all(&[0xA5; 8192]).unwrap();
        drop(file);
        let store = match open(folder.path()) {
            Ok(store) => store,
            Err(error) => {
                assert_told(&error, "a");
                continue;
            }
        };
        match store.check(&mut |block| span_ids(&block.export)) {
            Ok(report) => assert!(!report.problems.is_empty()),
            Err(error) => assert_told(&error, "malformed"),
        }
    }
}

#[test]
fn a_folder_that_may_not_be_written_to_is_told() {
    if let Some(folder) = std::env::var_os("STORE_READ_ONLY") {
        let folder = Path::new(&folder);
        for folder in [folder.join("store"), folder.join("new")] {
            let error = open(&folder).unwrap_err();
            assert!(matches!(error, StoreError::NotWritable { .. }), "{error}");
            assert_told(&error, "must exist and be writable");
        }
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("store");
    drop(open(&inner).unwrap());
    for path in [inner.join(DATABASE_FILE_NAME), inner.join("gradus.lock"), inner.join(".gitignore")] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o444)).unwrap();
    }
    for path in [&inner, folder.path()] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o555)).unwrap();
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "a_folder_that_may_not_be_written_to_is_told"])
        .env("STORE_READ_ONLY", folder.path())
        .current_dir("/");
    // Who may do everything must become somebody else first.
    if rustix::process::geteuid().is_root() {
        command.uid(65_534).gid(65_534);
    }
    let status = command.status();
    for path in [folder.path(), &inner] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    match status {
        Ok(status) => assert!(status.success()),
        Err(error) => eprintln!("skipped: the test cannot be run by another user ({error})"),
    }
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    assert_told(&open(&file).unwrap_err(), "must exist and be writable");
}
