//! Connections to the file: how they are set up, and the numbered migrations.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use crate::error::StoreError;
use crate::files::{append_path_suffix, check_database_file};

/// In order; a store remembers how many of them it has been through.
const MIGRATIONS: &[&str] = &[
    include_str!("../migrations/0001.sql"),
    include_str!("../migrations/0002.sql"),
    include_str!("../migrations/0003.sql"),
];
/// Marks the file as ours, for `file` and for ourselves ("grad").
const APPLICATION_ID: i64 = 0x6772_6164;
/// Spans are a few hundred bytes to a few kilobytes when compressed: larger pages keep more of them out of chains.
const PAGE_BYTES: i64 = 8192;
/// How far the write-ahead log grows before its pages are moved into the file.
const CHECKPOINT_PAGES: i64 = 4000;
const STATEMENTS: usize = 64;
/// How long one waits for another process that writes.
pub(crate) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Opens for writing; makes the file if it is not there.
pub(crate) fn open_writer(path: &Path) -> Result<Connection, StoreError> {
    if !check_database_file(path)? {
        create_store(path)?;
    }
    set_up_store(path, path)
}

/// Makes a new store. It gets its name when it is complete, so that an empty file under that name is always one that was
/// truncated, and never one that somebody began to make.
fn create_store(path: &Path) -> Result<(), StoreError> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let draft = append_path_suffix(path, &format!(".new-{}-{number}", std::process::id()));
    let not_writable = |error: std::io::Error| StoreError::not_writable(path, &error);
    let remove_draft = || {
        for ending in ["", "-wal", "-shm", "-journal"] {
            let _ = std::fs::remove_file(append_path_suffix(&draft, ending));
        }
    };
    remove_draft();
    // Made here and not by SQLite, so that only its owner can read it; the files beside it get the same rights.
    crate::create_private(&draft).map_err(not_writable)?;
    let made = set_up_store(&draft, path)
        .and_then(|connection| connection.close().map_err(|(_, error)| StoreError::from_open_error(path, &error)));
    // Somebody else who made one meanwhile was first.
    let named = made.and_then(|()| match std::fs::hard_link(&draft, path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        // Not every file system has links.
        Err(_) => std::fs::rename(&draft, path).map_err(not_writable),
    });
    remove_draft();
    named
}

/// Opens a file and brings it up to date; errors name `path`.
fn set_up_store(file: &Path, path: &Path) -> Result<Connection, StoreError> {
    let open = || -> Result<Connection, rusqlite::Error> {
        Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)
    };
    let set_up_writer = |connection: &Connection, is_new: bool| -> Result<(), rusqlite::Error> {
        // These two count only before the first table is made, and write to the file: a full disk would refuse a store that
        // can still be read.
        if is_new {
            connection.pragma_update(None, "page_size", PAGE_BYTES)?;
            connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
        }
        connection.pragma_update(None, "journal_mode", "WAL")?;
        // An acknowledged span survives a power cut, too.
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
        connection.pragma_update(None, "journal_size_limit", CHECKPOINT_PAGES * PAGE_BYTES)?;
        connection.pragma_update(None, "cache_size", -16_000)
    };
    let opening = |error: rusqlite::Error| StoreError::from_open_error(path, &error);
    let mut connection = open().map_err(opening)?;
    // Looked at before anything is changed: it may be somebody else's.
    set_up(&connection).map_err(opening)?;
    let version = check_version(&connection, path)?;
    set_up_writer(&connection, version == 0).map_err(opening)?;
    migrate_database(&mut connection, path)?;
    check_schema(&connection, path)?;
    Ok(connection)
}

/// Opens for reading, beside a writer or without one.
pub(crate) fn open_reader(path: &Path) -> Result<Connection, StoreError> {
    let open = || -> Result<Connection, rusqlite::Error> {
        let connection =
            Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
        connection.pragma_update(None, "query_only", true)?;
        connection.pragma_update(None, "cache_size", -2_000)?;
        set_up(&connection)?;
        Ok(connection)
    };
    let connection = open().map_err(|error| StoreError::from_open_error(path, &error))?;
    if check_version(&connection, path)? < MIGRATIONS.len() as i64 {
        // Reading changes nothing, so it cannot be brought up to date here.
        return Err(StoreError::Damaged {
            path: path.to_owned(),
            reason: "it is empty, or older than this version and was not opened by it for writing yet".to_owned(),
        });
    }
    Ok(connection)
}

fn set_up(connection: &Connection) -> Result<(), rusqlite::Error> {
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    // Plans are the same whatever is asked for: else statements are made again for each value that a plan could go by.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    // What hostile bytes in the file could ask for is switched off.
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.pragma_update(None, "foreign_keys", false)
}

fn migrate_database(connection: &mut Connection, path: &Path) -> Result<(), StoreError> {
    if check_version(connection, path)? == MIGRATIONS.len() as i64 {
        return Ok(());
    }
    let opening = |error: rusqlite::Error| StoreError::from_open_error(path, &error);
    // Two that start at once: the second waits, and finds everything done.
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(opening)?;
    let done = usize::try_from(check_version(&transaction, path)?).unwrap_or_default();
    let migrate = || -> Result<(), rusqlite::Error> {
        for sql in &MIGRATIONS[done..] {
            transaction.execute_batch(sql)?;
        }
        transaction.pragma_update(None, "user_version", MIGRATIONS.len() as i64)?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID)
    };
    migrate().and_then(|()| transaction.commit()).map_err(opening)
}

/// Whether the tables are those that the migrations make: one damaged letter of a column's name would be found only by the
/// first statement that needs it, after the server has started.
fn check_schema(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    let opening = |error: rusqlite::Error| StoreError::from_open_error(path, &error);
    match schema_difference(connection).map_err(opening)? {
        None => Ok(()),
        Some(name) => Err(StoreError::Damaged {
            path: path.to_owned(),
            reason: format!("its table or index {name:?} is not as this version makes it"),
        }),
    }
}

/// The `CREATE` statement of each table, index and trigger, by its name.
type SchemaObjects = BTreeMap<String, String>;

/// The first table, index or trigger that is missing or not as the migrations make it. What others added is theirs.
pub(crate) fn schema_difference(connection: &Connection) -> Result<Option<String>, rusqlite::Error> {
    // The tables that the index of words makes for itself differ between versions of SQLite.
    const OBJECTS: &str =
        "SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'words\\_%' ESCAPE '\\'";
    let objects = |connection: &Connection| -> Result<SchemaObjects, rusqlite::Error> {
        connection.prepare(OBJECTS)?.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
    };
    let reference = Connection::open_in_memory()?;
    MIGRATIONS.iter().try_for_each(|sql| reference.execute_batch(sql))?;
    let found = objects(connection)?;
    let is_changed = |(name, sql): &(String, String)| found.get(name) != Some(sql);
    Ok(objects(&reference)?.into_iter().find(is_changed).map(|(name, _)| name))
}

/// Whether a file has migrations before it.
pub(crate) fn is_older(path: &Path) -> Result<bool, StoreError> {
    let opening = |error: rusqlite::Error| StoreError::from_open_error(path, &error);
    let connection =
        Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)
            .map_err(opening)?;
    set_up(&connection).map_err(opening)?;
    Ok(check_version(&connection, path)? < MIGRATIONS.len() as i64)
}

/// How many migrations a file has been through; an error when it is not ours or too new.
fn check_version(connection: &Connection, path: &Path) -> Result<i64, StoreError> {
    let opening = |error: rusqlite::Error| StoreError::from_open_error(path, &error);
    let number = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).map_err(opening);
    let (version, application) = (number("user_version")?, number("application_id")?);
    let known = MIGRATIONS.len() as i64;
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(opening)?;
    if tables > 0 && application != APPLICATION_ID {
        return Err(StoreError::Damaged { path: path.to_owned(), reason: "it is somebody else's database".to_owned() });
    }
    if version > known {
        return Err(StoreError::TooNew { path: path.to_owned(), found: version, known });
    }
    Ok(version)
}

/// Holds what a statement does against what it should: no sorting, no reading of whole tables.
#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(crate) fn assert_plan(sql: &Connection, statement: &str, way: &str) {
    let mut explained = sql.prepare(&format!("EXPLAIN QUERY PLAN {statement}")).unwrap();
    let count = explained.parameter_count();
    let values = vec![rusqlite::types::Null; count];
    let lines = explained.query_map(rusqlite::params_from_iter(values), |row| row.get::<_, String>(3)).unwrap();
    let lines: Vec<String> = lines.collect::<Result<_, _>>().unwrap();
    let is_bad = |line: &String| {
        line.contains("TEMP B-TREE")
            || line.contains("AUTOMATIC")
            || (line.starts_with("SCAN") && !line.contains("VIRTUAL TABLE INDEX") && !line.contains("CONSTANT ROW"))
    };
    assert!(!lines.iter().any(is_bad) && lines.iter().any(|line| line.contains(way)), "{statement}\n{lines:#?}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_is_not_as_it_was_made_is_noticed_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        let sql = open_writer(&path).unwrap();
        sql.execute_batch("CREATE INDEX of_somebody ON trace (name)").unwrap();
        assert_eq!(schema_difference(&sql).unwrap(), None, "what others added is theirs");
        sql.execute_batch(
            "PRAGMA writable_schema = ON; \
             UPDATE sqlite_schema SET sql = replace(sql, 'has_versions', 'has_versionz') WHERE name = 'trace'",
        )
        .unwrap();
        assert_eq!(schema_difference(&sql).unwrap().as_deref(), Some("trace"));
        drop(sql);
        let refused = open_writer(&path).unwrap_err().to_string();
        assert!(refused.contains("store.db") && refused.contains("\"trace\""), "{refused}");
    }

    /// The statements that are run all the time, as they stand in this crate's files.
    #[test]
    fn what_is_asked_all_the_time_goes_through_indexes() {
        let folder = tempfile::tempdir().unwrap();
        let sql = open_writer(&folder.path().join("store.db")).unwrap();
        let is_new = sql.pragma_query_value(None, "page_size", |row| row.get::<_, i64>(0)).unwrap();
        let vacuum = sql.pragma_query_value(None, "auto_vacuum", |row| row.get::<_, i64>(0)).unwrap();
        assert_eq!((is_new, vacuum), (PAGE_BYTES, 2));
        let mut looked_at = 0;
        for source in [
            include_str!("ingest.rs"),
            include_str!("grading.rs"),
            include_str!("ready_queue.rs"),
            include_str!("ungraded.rs"),
            include_str!("spend.rs"),
            include_str!("facets.rs"),
            include_str!("rollup.rs"),
            include_str!("usage.rs"),
            include_str!("retention.rs"),
            include_str!("query/spans.rs"),
            include_str!("query/walk.rs"),
            include_str!("query/annotations.rs"),
            include_str!("query/sessions.rs"),
            include_str!("projects.rs"),
        ] {
            let parts = source.split("prepare_cached(").skip(1);
            for statement in parts.filter_map(literal).filter(|statement| !statement.contains("count(*) FROM")) {
                // Inserting is no question; the sums of what was spent are a few rows an hour.
                if statement.starts_with("INSERT") || statement.contains("FROM spend") {
                    continue;
                }
                assert_plan(&sql, &statement, "");
                looked_at += 1;
            }
        }
        assert!(looked_at > 25, "{looked_at}");
    }

    /// The text of the string that a piece of source begins with.
    fn literal(source: &str) -> Option<String> {
        let text = source.trim_start().strip_prefix('"')?;
        let text = &text[..text.find('"')?];
        Some(text.split("\\\n").map(str::trim_start).collect())
    }
}
