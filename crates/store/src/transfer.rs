//! Moves a store as a whole: export to lines of JSON and import, and backup.
//!
//! An export contains the tables, one row per line, with bodies decompressed (OTLP as base64, trajectories as text), so
//! that other programs can read it. API keys are not exported.

use std::io::{self, BufRead, Write};
use std::path::Path;

use crate::sql::{SqlConnection, SqlValue};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value as Json};

use crate::Store;
use crate::compress::{compress_bytes, decompress_bytes};
use crate::error::StoreError;
use crate::grading::insert_words;
use crate::index_words::collect_distinct_words;
use crate::project_numbers::ProjectNumberCache;
use crate::transfer_tables::{API_KEY_TABLE, COUNT_COLUMNS, TABLES, TableReader, TransferTable};

/// Version of the export format, in its first line.
const EXPORT_FORMAT: i64 = 1;
/// Values that a migration computes for existing rows, in addition to the defaults of its columns: the number of the
/// migration, and the statement. Applied after the import of an export from before that migration.
const BACKFILLS: &[(i64, &str)] = &[
    (2, "UPDATE due SET project = coalesce((SELECT project FROM trace WHERE no = story), 0)"),
    (3, "UPDATE trace SET first_arrived_ns = arrived_ns"),
];

/// Numbers of an export or import.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransferCounts {
    pub rows: u64,
    pub traces: u64,
}

impl Store {
    /// Writes everything as lines of JSON, in one read transaction: the state of one moment.
    pub fn export(&self, out: &mut dyn Write) -> Result<TransferCounts, StoreError> {
        let reader = self.readers.take_reader()?;
        let view = reader.patient_snapshot()?;
        // Rows fit only tables of the same schema, so its version is part of the export.
        let schema: i64 = read_schema_number(&view)?;
        let mut done = TransferCounts::default();
        write_line(out, &serde_json::json!({"gradus_export": EXPORT_FORMAT, "schema": schema}))?;
        for table in exported_tables() {
            let mut reader = TableReader::new(&view, table, None)?;
            loop {
                let batch = reader.next_batch()?;
                if batch.is_empty() {
                    break;
                }
                for row in &batch {
                    let mut line = Map::new();
                    for (column, value) in reader.columns.iter().zip(row) {
                        line.insert(column.clone(), value_to_json(table.name, column, value)?);
                    }
                    if table.name == "project" {
                        line.extend(COUNT_COLUMNS.map(|column| (column.to_owned(), Json::from(0))));
                    }
                    write_line(out, &serde_json::json!({"table": table.name, "row": line}))?;
                }
                done.rows += batch.len() as u64;
                done.traces += if table.name == "trace" { batch.len() as u64 } else { 0 };
            }
        }
        write_line(out, &serde_json::json!({"end": done.rows}))?;
        out.flush().map_err(|error| io_error(&error))?;
        Ok(done)
    }

    /// Reads an export into this store, which must be empty: all of it or nothing. `words` makes the text for the
    /// full-text search of a trajectory, which is not exported.
    pub fn import(
        &self,
        mut input: impl BufRead + Send + 'static,
        words: impl Fn(&[u8]) -> String + Send + 'static,
    ) -> Result<TransferCounts, StoreError> {
        let written = self.writer()?.submit(0, move |writing| {
            let sql = writing.sql;
            for table in exported_tables() {
                if !table.is_empty(sql)? {
                    return Err(bad_line_error(0, "the store is not empty; import into a new folder"));
                }
            }
            let mut done = TransferCounts::default();
            let mut line = String::new();
            let (mut number, mut has_ended) = (0, false);
            let mut head = ExportHead::default();
            loop {
                line.clear();
                number += 1;
                if input.read_line(&mut line).map_err(|error| bad_line_error(number, &error.to_string()))? == 0 {
                    break;
                }
                let json: Json =
                    serde_json::from_str(&line).map_err(|error| bad_line_error(number, &error.to_string()))?;
                if has_ended {
                    return Err(bad_line_error(number, "there is more after the end"));
                }
                if number == 1 {
                    head = ExportHead::read(sql, &json)?;
                } else if let Some(rows) = json.get("end") {
                    if rows.as_u64() != Some(done.rows) {
                        return Err(bad_line_error(number, "rows are missing before this one"));
                    }
                    has_ended = true;
                } else {
                    import_row(sql, &json, &head, &words).map_err(|error| match error {
                        StoreError::DiskFull => StoreError::DiskFull,
                        error => bad_line_error(number, &error.to_string()),
                    })?;
                    done.rows += 1;
                    done.traces += u64::from(json["table"] == "trace");
                }
            }
            if !has_ended {
                return Err(bad_line_error(number, "the export ends too early"));
            }
            for (_, statement) in BACKFILLS.iter().filter(|(migration, _)| *migration > head.schema) {
                sql.execute_batch(statement)?;
            }
            finish_import(sql)?;
            *writing.projects = ProjectNumberCache::read(sql)?;
            Ok(done)
        })?;
        written.wait()
    }

    /// Copies the store into a new file, also while a server writes to it. An existing file is an error.
    pub fn backup(&self, to: &Path) -> Result<(), StoreError> {
        match self.engine.file() {
            Some(path) => Store::backup_file(path, to),
            None => Err(StoreError::NotSupported { what: "backup", instead: "pg_dump" }),
        }
    }

    /// Copies the store at `path` into a new file, also while a server writes to it. An existing file is an error. A store
    /// of an older version is copied as it is, so that there is a copy from before it is migrated.
    pub fn backup_file(path: &Path, to: &Path) -> Result<(), StoreError> {
        crate::check_existing_store(path)?;
        let (reader, _) = crate::connection::open_any_version(path)?;
        let name = to.to_str().ok_or_else(|| StoreError::bad_row("the name of the copy", "it is no text"))?;
        // Created here, so that an incomplete copy can be removed without touching a file of the user.
        crate::create_private_file(to).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => StoreError::Exists { path: to.to_owned() },
            io::ErrorKind::StorageFull => StoreError::DiskFull,
            _ => StoreError::not_writable(to, &error),
        })?;
        // Readers must not write, but this statement writes to another file.
        reader.pragma_update(None, "query_only", false)?;
        let copied = reader.execute("VACUUM INTO ?", [name]);
        let kept = copied.map_err(StoreError::from).and_then(|_| sync_file(to).map_err(|error| io_error(&error)));
        if kept.is_err() {
            let _ = std::fs::remove_file(to);
        }
        kept
    }
}

/// Updates counters that an import bypassed.
pub(crate) fn finish_import(sql: &SqlConnection) -> Result<(), StoreError> {
    // In SQLite, the triggers counted rows whose counts were imported already. In PostgreSQL, rows came with numbers that
    // its sequences do not know.
    Ok(sql.execute_batch(sql.choose(
        "UPDATE project SET traces = (SELECT count(*) FROM trace WHERE project = project.no), \
         spans = (SELECT coalesce(sum(spans), 0) FROM trace WHERE project = project.no), \
         trajectories = (SELECT count(*) FROM trajectory WHERE project = project.no)",
        "SELECT setval('trace_seq', greatest((SELECT max(no) % (1::BIGINT << 32) FROM trace), 1)), \
         setval('block_seq', greatest((SELECT max(no) FROM block), 1)), \
         setval('trajectory_no_seq', greatest((SELECT max(no) FROM trajectory), 1)), \
         setval('project_no_seq', greatest((SELECT max(no) FROM project), 1)), \
         setval('failure_group_no_seq', greatest((SELECT max(no) FROM failure_group), 1)), \
         setval('annotation_no_seq', greatest((SELECT max(no) FROM annotation), 1)), \
         setval('alert_event_no_seq', greatest((SELECT max(no) FROM alert_event), 1)), \
         setval('api_key_no_seq', greatest((SELECT max(no) FROM api_key), 1))",
    ))?)
}

/// Waits until a new file and its name are on the disk.
fn sync_file(path: &Path) -> io::Result<()> {
    std::fs::File::open(path)?.sync_all()?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    std::fs::File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

/// Returns the number of migrations that were applied to a store.
pub(crate) fn read_schema_number(sql: &SqlConnection) -> Result<i64, StoreError> {
    match sql.sqlite() {
        Some(connection) => Ok(connection.pragma_query_value(None, "user_version", |row| row.get(0))?),
        None => Ok(sql.query_row("SELECT schema_version FROM store_format", (), |row| row.get(0))?),
    }
}

/// The first line of an export.
#[derive(Default)]
struct ExportHead {
    /// Number of migrations that the exported store had been through.
    schema: i64,
    /// Whether this version has more of them, so that rows may have fewer columns than its tables.
    is_older: bool,
}

impl ExportHead {
    fn read(sql: &SqlConnection, json: &Json) -> Result<ExportHead, StoreError> {
        let known: i64 = read_schema_number(sql)?;
        if json["gradus_export"] != EXPORT_FORMAT {
            return Err(bad_line_error(1, "this is no export of a Gradus store"));
        }
        match json["schema"].as_i64() {
            Some(schema) if (1..=known).contains(&schema) => Ok(ExportHead { schema, is_older: schema < known }),
            _ => {
                let found = &json["schema"];
                Err(bad_line_error(1, &format!("made by a newer Gradus (format {found}, this one knows {known})")))
            }
        }
    }
}

/// The tables of an export.
fn exported_tables() -> impl Iterator<Item = &'static TransferTable> {
    TABLES.iter().filter(|table| table.name != API_KEY_TABLE.name)
}

/// Inserts one row. The file may be hostile, so tables and columns are checked against the schema.
fn import_row(
    sql: &SqlConnection,
    json: &Json,
    head: &ExportHead,
    words: &dyn Fn(&[u8]) -> String,
) -> Result<(), StoreError> {
    let bad = |reason: &str| StoreError::bad_row("it", reason);
    let name = json["table"].as_str().unwrap_or_default();
    // Names become part of the statement, so only known ones are accepted.
    let table = exported_tables().find(|table| table.name == name).ok_or_else(|| bad("an unknown table"))?;
    let row = json["row"].as_object().ok_or_else(|| bad("no row"))?;
    let mut columns = table.shared_columns(sql)?;
    if head.is_older {
        // Columns that a later migration added get their default value. Those without one make the statement fail.
        columns.retain(|column| row.contains_key(column));
    }
    // Counts of projects are computed at the end.
    let is_counted = |column: &String| name == "project" && COUNT_COLUMNS.contains(&column.as_str());
    if row.keys().filter(|column| !is_counted(column)).count() != columns.len() {
        return Err(bad("other columns than the table has"));
    }
    let mut values = Vec::with_capacity(columns.len());
    for column in &columns {
        let value = row.get(column).ok_or_else(|| bad("a column is missing"))?;
        values.push(value_from_json(name, column, value)?);
    }
    table.insert_rows(sql, &columns, &[values])?;
    if name == "trajectory" {
        let text = words(row["body"].as_str().unwrap_or_default().as_bytes());
        let no = row["no"].as_i64().ok_or_else(|| bad("a trajectory without a number"))?;
        insert_words(sql, [(no, collect_distinct_words(&text).as_str())])?;
    }
    Ok(())
}

/// A value of the database as JSON: bodies decompressed, other blobs as base64.
fn value_to_json(table: &str, column: &str, value: &SqlValue) -> Result<Json, StoreError> {
    Ok(match (table, column, value) {
        (_, _, SqlValue::Null) => Json::Null,
        (_, _, SqlValue::Integer(number)) => Json::from(*number),
        (_, _, SqlValue::Real(number)) => Json::from(*number),
        (_, _, SqlValue::Text(text)) => Json::from(text.as_str()),
        ("block", "body", SqlValue::Blob(bytes)) => Json::from(STANDARD.encode(decompress_bytes(bytes)?)),
        ("trajectory", "body", SqlValue::Blob(bytes)) => {
            Json::from(String::from_utf8_lossy(&decompress_bytes(bytes)?).into_owned())
        }
        (_, _, SqlValue::Blob(bytes)) => Json::from(STANDARD.encode(bytes)),
    })
}

/// The reverse of `value_to_json`.
pub(crate) fn value_from_json(table: &str, column: &str, json: &Json) -> Result<SqlValue, StoreError> {
    let is_blob = matches!(
        (table, column),
        ("block", "body") | ("trace", "trace_id") | ("trajectory", "digest" | "body") | ("failure_group", "signature")
    );
    let bad = || StoreError::bad_row(format!("{table}.{column}"), "it has another type");
    Ok(match json {
        Json::Null => SqlValue::Null,
        Json::String(text) if (table, column) == ("trajectory", "body") => {
            SqlValue::Blob(compress_bytes(text.as_bytes()))
        }
        Json::String(text) if is_blob => {
            let bytes = STANDARD.decode(text).map_err(|error| StoreError::bad_row(column, error))?;
            SqlValue::Blob(if column == "body" { compress_bytes(&bytes) } else { bytes })
        }
        Json::String(text) => SqlValue::Text(text.clone()),
        Json::Number(number) => match number.as_i64() {
            Some(integer) => SqlValue::Integer(integer),
            None => SqlValue::Real(number.as_f64().ok_or_else(bad)?),
        },
        _ => return Err(bad()),
    })
}

/// One line of JSON. Line feeds inside of texts are escaped by JSON.
fn write_line(out: &mut dyn Write, json: &Json) -> Result<(), StoreError> {
    serde_json::to_writer(&mut *out, json).map_err(|error| io_error(&error.into()))?;
    out.write_all(b"\n").map_err(|error| io_error(&error))
}

/// A full disk has an error of its own.
fn io_error(error: &io::Error) -> StoreError {
    match error.kind() {
        io::ErrorKind::StorageFull => StoreError::DiskFull,
        _ => StoreError::Sql(error.to_string()),
    }
}

/// An error in line `number` of an export, counted from 1. 0 stands for the export as a whole.
fn bad_line_error(number: u64, reason: &str) -> StoreError {
    match number {
        0 => StoreError::bad_row("the target", reason),
        _ => StoreError::bad_row(format!("line {number} of the export"), reason),
    }
}
