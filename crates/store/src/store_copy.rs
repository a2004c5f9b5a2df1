//! Copies a store into another one, of the same engine or of the other: `gradus store copy`.
//!
//! Rows are copied in the order of their keys. With each batch, the target records how far the copy is, so an interrupted
//! one goes on behind its last batch. Until the copy is complete and verified, the target cannot be opened otherwise.
//! Nothing else writes to either store meanwhile: a folder has its lock, a database that of [`StoreEngine::lock_for_copy`].

use std::sync::Arc;

use crate::compress::decompress_bytes;
use crate::engine::StoreEngine;
use crate::error::StoreError;
use crate::grading::insert_words;
use crate::index_words::collect_distinct_words;
use crate::project_numbers::ProjectNumberCache;
use crate::sql::{OptionalRow, SqlConnection, SqlValue, params};
use crate::transfer::{finish_import, read_schema_number, value_from_json};
use crate::transfer_tables::{TABLES, TableReader, TransferTable};
use crate::writer::WriteHandle;
use crate::{DATABASE_FILE_NAME, Store, StoreLocation, StoreOptions};

/// Makes the text for the full-text search of a trajectory, which the target cannot compute itself.
pub type SearchTextBuilder = Arc<dyn Fn(&[u8]) -> String + Send + Sync>;

/// The rows of one table, in both stores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopiedTable {
    pub table: &'static str,
    pub rows: u64,
}

/// Position of a copy: the table, and the key of its last row as JSON.
struct CopyPosition {
    source: String,
    table: usize,
    after: Option<Vec<SqlValue>>,
}

/// Copies everything but the sessions of pages and the answers of judges that servers share. The target must be empty,
/// or have an incomplete copy of the same source. `report` is called after each table. Returns what was compared at the end: both stores have the same rows.
pub fn copy_store(
    from: &StoreLocation,
    to: &StoreLocation,
    words: &SearchTextBuilder,
    report: &mut dyn FnMut(&CopiedTable),
) -> Result<Vec<CopiedTable>, StoreError> {
    let (source, _source_lock) = open_source(from)?;
    let (target, _target_lock) = open_target(to)?;
    let reader = source.readers.take_reader()?;
    let view = reader.patient_snapshot()?;
    let begun = begin_copy(&target, &source.location(), list_days(&view)?)?;
    for (number, table) in TABLES.iter().enumerate().skip(begun.table) {
        let after = begun.after.clone().filter(|_| number == begun.table);
        let rows = copy_table(&view, &target, number, table, after, words)?;
        report(&CopiedTable { table: table.name, rows });
    }
    let finish = |writing: &mut crate::writer::WriteContext<'_>| finish_import(writing.sql);
    target.writer()?.submit(0, finish)?.wait()?;
    let copied = compare_stores(&source, &target)?;
    let end = |writing: &mut crate::writer::WriteContext<'_>| {
        writing.sql.execute_batch("DROP TABLE store_copy")?;
        *writing.projects = ProjectNumberCache::read(writing.sql)?;
        Ok(())
    };
    target.writer()?.submit(0, end)?.wait()?;
    Ok(copied)
}

/// Opens the source so that no server writes to it.
fn open_source(from: &StoreLocation) -> Result<(Store, Option<SqlConnection>), StoreError> {
    match from {
        StoreLocation::Folder(folder) => {
            crate::check_existing_store(&folder.join(DATABASE_FILE_NAME))?;
            let store = Store::open(folder, StoreOptions::default())?;
            // Attempts that a killed server began are counted now: the copy has none of them.
            store.fail_unfinished_attempts(0)?.wait()?;
            Ok((store, None))
        }
        StoreLocation::Postgres(_) => {
            let store = Store::open_at_to_read(from)?;
            require_own_schema(&store)?;
            let lock = from.engine()?.lock_for_copy()?;
            Ok((store, lock))
        }
    }
}

/// Opens the target: it is empty, or has an incomplete copy.
fn open_target(to: &StoreLocation) -> Result<(Store, Option<SqlConnection>), StoreError> {
    match to {
        StoreLocation::Folder(folder) => Ok((Store::open_folder(folder, StoreOptions::default())?, None)),
        StoreLocation::Postgres(_) => {
            let engine = to.engine()?.into_copy_lock_holder();
            // Checked before servers are looked for: users who name the wrong database should not stop its servers.
            require_vacant(&engine)?;
            let lock = engine.lock_for_copy()?;
            let store = Store::with_engine(engine, None, StoreOptions::default())?;
            require_own_schema(&store)?;
            Ok((store, lock))
        }
    }
}

/// Fails if a database has rows that no copy wrote.
fn require_vacant(engine: &StoreEngine) -> Result<(), StoreError> {
    let sql = match engine.open_reader() {
        Err(StoreError::NoTables { .. } | StoreError::TooOld { .. }) => return Ok(()),
        opened => opened?,
    };
    if has_incomplete_copy(&sql)? { Ok(()) } else { require_empty(&sql, &engine.to_string()) }
}

fn require_empty(sql: &SqlConnection, location: &str) -> Result<(), StoreError> {
    for table in TABLES {
        if !table.is_empty(sql)? {
            return Err(StoreError::NotEmpty { path: location.into() });
        }
    }
    Ok(())
}

/// Fails if a newer version added to the tables: only that version can copy all of it.
fn require_own_schema(store: &Store) -> Result<(), StoreError> {
    let known = crate::schema_version() as i64;
    match read_schema_number(&*store.readers.take_reader()?)? {
        found if found > known => Err(StoreError::TooNew { path: store.location().into(), found, known }),
        _ => Ok(()),
    }
}

/// Copies the rest of a table, one batch in each transaction. The next batch is read while one is written.
fn copy_table(
    view: &SqlConnection,
    target: &Store,
    number: usize,
    table: &'static TransferTable,
    after: Option<Vec<SqlValue>>,
    words: &SearchTextBuilder,
) -> Result<u64, StoreError> {
    let mut reader = TableReader::new(view, table, after)?;
    let mut copied = 0;
    let mut writing: Option<WriteHandle<()>> = None;
    loop {
        let batch = reader.next_batch()?;
        if let Some(handle) = writing.take() {
            handle.wait()?;
        }
        let Some(position) = reader.position().filter(|_| !batch.is_empty()) else { return Ok(copied) };
        copied += batch.len() as u64;
        let (columns, position, words) = (reader.columns.clone(), key_to_json(position), Arc::clone(words));
        // Nothing else waits in the queue, so its limit does not matter.
        writing = Some(target.writer()?.submit(0, move |writing| {
            table.insert_rows(writing.sql, &columns, &batch)?;
            if table.name == "trajectory" {
                index_trajectories(writing.sql, &columns, &batch, &*words)?;
            }
            writing
                .sql
                .prepare_cached("UPDATE store_copy SET at_table = ?, after = ?")?
                .execute(params![number, position])?;
            Ok(())
        })?);
    }
}

/// Adds copied trajectories to the full-text index.
fn index_trajectories(
    sql: &SqlConnection,
    columns: &[String],
    rows: &[Vec<SqlValue>],
    words: &dyn Fn(&[u8]) -> String,
) -> Result<(), StoreError> {
    let column = |name: &str| columns.iter().position(|column| column == name);
    let (Some(no), Some(body)) = (column("no"), column("body")) else {
        return Err(StoreError::bad_row("trajectory", "it has no number or no body"));
    };
    for row in rows {
        if let (SqlValue::Integer(no), SqlValue::Blob(body)) = (&row[no], &row[body]) {
            let text = words(&decompress_bytes(body)?);
            insert_words(sql, [(*no, collect_distinct_words(&text).as_str())])?;
        }
    }
    Ok(())
}

/// The days in the numbers of traces: those of SQLite have none, and are all of the first.
fn list_days(view: &SqlConnection) -> Result<Vec<i64>, StoreError> {
    let mut statement = view.prepare_cached("SELECT DISTINCT no >> 32 FROM trace ORDER BY 1")?;
    Ok(statement.query_map((), |row| row.get(0))?.collect::<Result<_, _>>()?)
}

/// Where to go on; records the beginning of a new copy.
fn begin_copy(target: &Store, source: &str, days: Vec<i64>) -> Result<CopyPosition, StoreError> {
    let (location, source) = (target.location(), source.to_owned());
    let begin = move |writing: &mut crate::writer::WriteContext<'_>| {
        let sql = writing.sql;
        if has_incomplete_copy(sql)? {
            let position = read_position(sql)?;
            return match position.source == source {
                true => Ok(position),
                false => Err(StoreError::OtherCopy { path: location.clone().into(), source_name: position.source }),
            };
        }
        require_empty(sql, &location)?;
        sql.execute_batch(
            "CREATE TABLE store_copy (source TEXT NOT NULL, at_table INTEGER NOT NULL, after TEXT NOT NULL)",
        )?;
        sql.execute("INSERT INTO store_copy (source, at_table, after) VALUES (?, 0, '')", [&source])?;
        if sql.sqlite().is_none() {
            // Otherwise all rows would lie in the partition for the rest, which is searched whenever another one is made.
            for day in &days {
                sql.prepare_cached("SELECT 1 FROM make_partitions(?)")?.exists([*day])?;
            }
        }
        Ok(CopyPosition { source: source.clone(), table: 0, after: None })
    };
    target.writer()?.submit(0, begin)?.wait()
}

fn read_position(sql: &SqlConnection) -> Result<CopyPosition, StoreError> {
    let found = sql.query_row("SELECT source, at_table, after FROM store_copy", (), |row| {
        Ok((row.get::<String>(0)?, row.get::<i64>(1)?, row.get::<String>(2)?))
    });
    let bad = |reason: &str| StoreError::bad_row("store_copy", reason);
    let (source, number, after) = found.optional()?.ok_or_else(|| bad("it is empty"))?;
    let table = usize::try_from(number).ok().filter(|number| *number < TABLES.len()).ok_or_else(|| bad("no table"))?;
    let after = match after.is_empty() {
        true => None,
        false => {
            let key: Vec<serde_json::Value> = serde_json::from_str(&after).map_err(|error| bad(&error.to_string()))?;
            Some(key.iter().map(|value| value_from_json(TABLES[table].name, "", value)).collect::<Result<_, _>>()?)
        }
    };
    Ok(CopyPosition { source, table, after })
}

/// Keys consist of numbers and texts.
fn key_to_json(key: &[SqlValue]) -> String {
    let values = key.iter().map(|value| match value {
        SqlValue::Integer(number) => serde_json::Value::from(*number),
        SqlValue::Real(number) => serde_json::Value::from(*number),
        SqlValue::Text(text) => serde_json::Value::from(text.as_str()),
        // No key has such a column.
        SqlValue::Null | SqlValue::Blob(_) => serde_json::Value::Null,
    });
    serde_json::Value::from_iter(values).to_string()
}

/// Whether a copy into this store was begun and not finished.
fn has_incomplete_copy(sql: &SqlConnection) -> Result<bool, StoreError> {
    let statement = sql.choose(
        "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = 'store_copy')",
        "SELECT to_regclass('gradus.store_copy') IS NOT NULL",
    );
    Ok(sql.query_row(statement, (), |row| row.get(0))?)
}

/// Fails if a copy into the store was begun and not finished.
pub(crate) fn require_no_copy(sql: &SqlConnection, engine: &StoreEngine) -> Result<(), StoreError> {
    match has_incomplete_copy(sql)? {
        true => Err(StoreError::IncompleteCopy { path: engine.to_string().into() }),
        false => Ok(()),
    }
}

/// Compares all tables of both stores, at the same time.
fn compare_stores(source: &Store, target: &Store) -> Result<Vec<CopiedTable>, StoreError> {
    let (ours, theirs) = std::thread::scope(|scope| {
        let theirs = scope.spawn(|| summarise_tables(target));
        (summarise_tables(source), theirs.join())
    });
    let theirs = theirs.map_err(|_| StoreError::Sql("comparing the copy failed".to_owned()))?;
    let pairs = ours?.into_iter().zip(theirs?);
    let compared = TABLES.iter().zip(pairs).map(|(table, (ours, theirs))| match ours == theirs {
        true => Ok(CopiedTable { table: table.name, rows: ours.rows }),
        false => Err(StoreError::CopyDiffers {
            table: table.name,
            rows: ours.rows,
            copied: theirs.rows,
            path: target.location().into(),
        }),
    });
    compared.collect()
}

/// Count and digest of a table, in which the order of rows does not matter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct TableSummary {
    rows: u64,
    digest: u128,
}

fn summarise_tables(store: &Store) -> Result<Vec<TableSummary>, StoreError> {
    let reader = store.readers.take_reader()?;
    let view = reader.snapshot()?;
    TABLES.iter().map(|table| summarise_table(&view, table)).collect()
}

fn summarise_table(sql: &SqlConnection, table: &'static TransferTable) -> Result<TableSummary, StoreError> {
    let mut reader = TableReader::new(sql, table, None)?;
    // The engines may have the columns in another order.
    let mut order: Vec<usize> = (0..reader.columns.len()).collect();
    order.sort_by_key(|index| reader.columns[*index].clone());
    let mut summary = TableSummary::default();
    let mut bytes = Vec::new();
    loop {
        let batch = reader.next_batch()?;
        if batch.is_empty() {
            return Ok(summary);
        }
        for row in &batch {
            bytes.clear();
            for index in &order {
                append_value(&mut bytes, &row[*index]);
            }
            summary.rows += 1;
            summary.digest = summary.digest.wrapping_add(gradus_core::stable_digest(&bytes));
        }
    }
}

/// Appends a value so that two rows have the same bytes only if they have the same values.
fn append_value(bytes: &mut Vec<u8>, value: &SqlValue) {
    let (kind, content): (u8, &[u8]) = match value {
        SqlValue::Null => (0, &[]),
        SqlValue::Integer(number) => (1, &number.to_le_bytes()),
        SqlValue::Real(number) => (2, &number.to_bits().to_le_bytes()),
        // PostgreSQL replaces the character NUL.
        SqlValue::Text(text) => (3, &text.replace('\0', "\u{fffd}").into_bytes()),
        SqlValue::Blob(blob) => (4, blob),
    };
    bytes.push(kind);
    bytes.extend((content.len() as u64).to_le_bytes());
    bytes.extend(content);
}

impl Store {
    /// Returns the store itself, unless it is the target of an unfinished copy.
    pub(crate) fn require_complete(self) -> Result<Store, StoreError> {
        require_no_copy(&*self.readers.take_reader()?, &self.engine)?;
        Ok(self)
    }
}
