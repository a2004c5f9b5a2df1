//! Connections to the database file: their settings, and the numbered migrations.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use crate::error::StoreError;
use crate::files::{append_path_suffix, check_database_file};

/// Migrations in order. `user_version` of a file is the number of migrations that were applied to it. A released
/// migration never changes.
const MIGRATIONS: &[&str] = &[
    include_str!("../migrations/0001.sql"),
    include_str!("../migrations/0002.sql"),
    include_str!("../migrations/0003.sql"),
    include_str!("../migrations/0004.sql"),
    include_str!("../migrations/0005.sql"),
    include_str!("../migrations/0006.sql"),
    include_str!("../migrations/0007.sql"),
    include_str!("../migrations/0008.sql"),
    include_str!("../migrations/0009.sql"),
    include_str!("../migrations/0010.sql"),
];
/// The version of the schema that this program writes: the number of migrations.
pub fn schema_version() -> usize {
    MIGRATIONS.len()
}

/// The version of SQLite that is part of this program.
pub fn sqlite_version() -> &'static str {
    rusqlite::version()
}

/// Marks the file as ours, for the program `file` and for ourselves: "grad" in ASCII.
const APPLICATION_ID: i64 = 0x6772_6164;
/// Compressed spans have a few hundred bytes to a few kilobytes. Larger pages keep more of them out of overflow chains.
const PAGE_BYTES: i64 = 8192;
/// Maximum number of pages in the write-ahead log before they are moved into the database file: 32 MB.
const CHECKPOINT_PAGES: i64 = 4000;
/// Maximum number of prepared statements that a connection caches.
const MAX_CACHED_STATEMENTS: usize = 64;
/// How long a connection waits for another process that writes.
pub(crate) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Opens the file for writing, and creates it if it does not exist.
pub(crate) fn open_writer(path: &Path) -> Result<Connection, StoreError> {
    if !check_database_file(path)? {
        create_store(path)?;
    }
    set_up_store(path, path)
}

/// Creates a new store. The file gets its name only when it is complete, so an empty file under that name is always a
/// truncated one, and never one that another process has begun to create.
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
    // Created here and not by SQLite, so that only its owner can read it. SQLite gives its log and index the same
    // rights.
    crate::create_private_file(&draft).map_err(not_writable)?;
    let made = set_up_store(&draft, path)
        .and_then(|connection| connection.close().map_err(|(_, error)| StoreError::from_open_error(path, &error)));
    // Another process may have created one meanwhile. Then that one is used.
    let named = made.and_then(|()| match std::fs::hard_link(&draft, path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        // Not every file system has hard links.
        Err(_) => std::fs::rename(&draft, path).map_err(not_writable),
    });
    remove_draft();
    named
}

/// Opens a file, sets it up and migrates it. Errors name `path`, which may differ from `file`.
fn set_up_store(file: &Path, path: &Path) -> Result<Connection, StoreError> {
    let open = || -> Result<Connection, rusqlite::Error> {
        Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)
    };
    let set_up_writer = |connection: &Connection, is_new: bool| -> Result<(), rusqlite::Error> {
        // These two take effect only before the first table is created, and they write to the file: on a full disk they
        // would refuse a store that can still be read.
        if is_new {
            connection.pragma_update(None, "page_size", PAGE_BYTES)?;
            connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
        }
        connection.pragma_update(None, "journal_mode", "WAL")?;
        // An acknowledged span must survive a power cut.
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
        connection.pragma_update(None, "journal_size_limit", CHECKPOINT_PAGES * PAGE_BYTES)?;
        // Negative: kibibytes. 16 MB for the writer.
        connection.pragma_update(None, "cache_size", -16_000)
    };
    let opening = |error: rusqlite::Error| StoreError::from_open_error(path, &error);
    let mut connection = open().map_err(opening)?;
    // Checked before anything is changed: the file may belong to another program.
    configure_connection(&connection).map_err(opening)?;
    let version = check_version(&connection, path)?;
    set_up_writer(&connection, version == 0).map_err(opening)?;
    migrate_database(&mut connection, path)?;
    check_schema(&connection, path)?;
    Ok(connection)
}

/// Opens the file for reading, also while a writer has it open. The connection itself needs write access to the index
/// of the write-ahead log; `query_only` prevents statements from writing.
pub(crate) fn open_reader(path: &Path) -> Result<Connection, StoreError> {
    let (connection, version) = open_any_version(path)?;
    let known = MIGRATIONS.len() as i64;
    match version {
        0 => Err(StoreError::Damaged { path: path.to_owned(), reason: "it is empty".to_owned() }),
        // A reader changes nothing, so it cannot migrate.
        found if found < known => Err(StoreError::TooOld { path: path.to_owned(), found, known }),
        _ => Ok(connection),
    }
}

/// As [`open_reader`], for tables that are the same in every version so far. Returns the number of migrations that
/// were applied to the file.
pub(crate) fn open_any_version(path: &Path) -> Result<(Connection, i64), StoreError> {
    let open = || -> Result<Connection, rusqlite::Error> {
        let connection =
            Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
        connection.pragma_update(None, "query_only", true)?;
        connection.pragma_update(None, "cache_size", -2_000)?;
        configure_connection(&connection)?;
        Ok(connection)
    };
    let connection = open().map_err(|error| StoreError::from_open_error(path, &error))?;
    let version = check_version(&connection, path)?;
    Ok((connection, version))
}

/// The versions of a store that an older Gradus made, and of this one; `None` if it needs no migration.
pub(crate) fn pending_upgrade(path: &Path) -> Result<Option<(i64, i64)>, StoreError> {
    let (_, found) = open_any_version(path)?;
    let known = MIGRATIONS.len() as i64;
    Ok((0 < found && found < known).then_some((found, known)))
}

/// Migrates a store that an older Gradus made, so that it can be read. A running server of that version does not expect
/// its tables to change, so this needs the lock.
pub(crate) fn upgrade_store(path: &Path) -> Result<(), StoreError> {
    if pending_upgrade(path)?.is_none() {
        return Ok(());
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let _lock = crate::lock_store_folder(folder)?;
    open_writer(path).map(drop)
}

/// Settings of every connection.
fn configure_connection(connection: &Connection) -> Result<(), rusqlite::Error> {
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(MAX_CACHED_STATEMENTS);
    // Query plans must not depend on bound values: otherwise SQLite prepares statements again for each value.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    // Hostile schema in a file must not be able to call functions.
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.pragma_update(None, "foreign_keys", false)
}

/// Runs the missing migrations in one transaction.
fn migrate_database(connection: &mut Connection, path: &Path) -> Result<(), StoreError> {
    if check_version(connection, path)? == MIGRATIONS.len() as i64 {
        return Ok(());
    }
    let opening = |error: rusqlite::Error| StoreError::from_open_error(path, &error);
    // If two processes start at once, the second waits here and finds the work done.
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

/// Compares the tables with those that the migrations create. One damaged letter in the name of a column would
/// otherwise be found by the first statement that needs it, long after the server has started.
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

/// The first table, index or trigger that is missing or differs from what the migrations create. Additional ones are
/// ignored.
pub(crate) fn schema_difference(connection: &Connection) -> Result<Option<String>, rusqlite::Error> {
    // The tables that the full-text index creates for itself differ between versions of SQLite.
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

/// Opens a file and returns whether it still needs migrations.
pub(crate) fn needs_migration(path: &Path) -> Result<bool, StoreError> {
    let opening = |error: rusqlite::Error| StoreError::from_open_error(path, &error);
    let connection =
        Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)
            .map_err(opening)?;
    configure_connection(&connection).map_err(opening)?;
    Ok(check_version(&connection, path)? < MIGRATIONS.len() as i64)
}

/// Returns the number of migrations that were applied to a file. An error if it is not ours or from a newer version.
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

/// Asserts the query plan of a statement: no sorting, no full table scan.
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
            include_str!("judge_calls.rs"),
            include_str!("facets.rs"),
            include_str!("rollup.rs"),
            include_str!("usage.rs"),
            include_str!("retention.rs"),
            include_str!("query/spans.rs"),
            include_str!("query/trace_walk.rs"),
            include_str!("query/annotations.rs"),
            include_str!("query/sessions.rs"),
            include_str!("projects.rs"),
        ] {
            let parts = source.split("prepare_cached(").skip(1);
            for statement in parts.filter_map(literal).filter(|statement| !statement.contains("count(*) FROM")) {
                // Statements of the other engine.
                if ["pg_", "leased_until", "FOR UPDATE", "project_count", "FROM node"]
                    .iter()
                    .any(|word| statement.contains(word))
                {
                    continue;
                }
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
