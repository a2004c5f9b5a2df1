//! Moves a store as a whole: export to lines of JSON and import, backup, and compaction.
//!
//! An export contains the tables, one row per line, with bodies decompressed (OTLP as base64, trajectories as text), so
//! that other programs can read it. API keys are not exported.

use std::io::{self, BufRead, Write};
use std::path::Path;

use crate::sql::{SqlConnection, params_from_iter};
use crate::sql::{SqlValue, SqlValueRef};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value as Json};

use crate::Store;
use crate::compress::{compress_bytes, decompress_bytes};
use crate::error::StoreError;
use crate::grading::insert_words;
use crate::interned_labels::collect_distinct_words;
use crate::project_numbers::ProjectNumberCache;

/// The exported tables, in an order in which they can be imported.
const TABLES: &[&str] = &[
    "project",
    "trace",
    "block",
    "span",
    "link",
    "due",
    "trajectory",
    "facet",
    "outcome",
    "failure_group",
    "failure",
    "rollup",
    "rollup_long",
    "usage_long",
    "ungraded",
    "spend",
    "annotation",
    "alert_state",
    "alert_event",
    "alert_rule",
    "alert_mute",
    "anchor_set",
];
/// Version of the export format, in its first line.
const FORMAT: i64 = 1;
/// What a migration computes for rows that were there before it, beside the default values of its columns: the number
/// of the migration, and the statement. Applied after an export from before that migration was imported.
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
        let view = reader.snapshot()?;
        // Rows fit only tables of the same schema, so its version is part of the export.
        let schema: i64 = schema_of(&view)?;
        let mut done = TransferCounts::default();
        write_line(out, &serde_json::json!({"gradus_export": FORMAT, "schema": schema}))?;
        for table in TABLES {
            let columns = exported_columns(&view, table)?;
            let select = columns.iter().map(|column| match is_computed(&view, table, column) {
                true => format!("0 AS {column}"),
                false => column.clone(),
            });
            let select = select.collect::<Vec<_>>().join(", ");
            let mut statement = view.prepare(&format!("SELECT {select} FROM {table}"))?;
            let mut rows = statement.query(())?;
            while let Some(row) = rows.next()? {
                let mut line = Map::new();
                for (index, column) in columns.iter().enumerate() {
                    line.insert(column.clone(), to_json(table, column, row.get_ref(index)?)?);
                }
                write_line(out, &serde_json::json!({"table": table, "row": line}))?;
                done.rows += 1;
                done.traces += u64::from(*table == "trace");
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
            for table in TABLES {
                let statement = format!("SELECT EXISTS (SELECT 1 FROM {table})");
                if sql.query_row(&statement, (), |row| row.get(0))? {
                    return Err(bad_line(0, "the store is not empty; import into a new folder"));
                }
            }
            let mut done = TransferCounts::default();
            let mut line = String::new();
            let (mut number, mut has_ended) = (0, false);
            let mut head = ExportHead::default();
            loop {
                line.clear();
                number += 1;
                if input.read_line(&mut line).map_err(|error| bad_line(number, &error.to_string()))? == 0 {
                    break;
                }
                let json: Json = serde_json::from_str(&line).map_err(|error| bad_line(number, &error.to_string()))?;
                if has_ended {
                    return Err(bad_line(number, "there is more after the end"));
                }
                if number == 1 {
                    head = ExportHead::read(sql, &json)?;
                } else if let Some(rows) = json.get("end") {
                    if rows.as_u64() != Some(done.rows) {
                        return Err(bad_line(number, "rows are missing before this one"));
                    }
                    has_ended = true;
                } else {
                    import_row(sql, &json, &head, &words).map_err(|error| match error {
                        StoreError::DiskFull => StoreError::DiskFull,
                        error => bad_line(number, &error.to_string()),
                    })?;
                    done.rows += 1;
                    done.traces += u64::from(json["table"] == "trace");
                }
            }
            if !has_ended {
                return Err(bad_line(number, "the export ends too early"));
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
            Some(path) => Store::backup_beside(path, to),
            None => Err(StoreError::NotSupported { what: "backup", instead: "pg_dump" }),
        }
    }

    /// Copies the store at `path` into a new file, also while a server writes to it. An existing file is an error. A store
    /// of an older version is copied as it is, so that there is a copy from before it is migrated.
    pub fn backup_beside(path: &Path, to: &Path) -> Result<(), StoreError> {
        crate::check_existing_store(path)?;
        let (reader, _) = crate::connection::open_any_version(path)?;
        let name = to.to_str().ok_or_else(|| StoreError::bad_row("the name of the copy", "it is no text"))?;
        // Created here, so that an incomplete copy can be removed without touching a file of the user.
        crate::create_private(to).map_err(|error| match error.kind() {
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

    /// Merges the blocks of each trace, and returns free space to the file system. Nobody else may use the store.
    pub fn compact(&self) -> Result<u64, StoreError> {
        let mut merged = 0;
        let mut after = 0;
        loop {
            let (count, last) = self.writer()?.submit(0, move |writing| merge_blocks(writing.sql, after))?.wait()?;
            merged += count;
            match last {
                Some(last) => after = last,
                None => break,
            }
        }
        let Some(path) = self.engine.file() else {
            // PostgreSQL's own vacuum returns free space.
            return Ok(merged);
        };
        let connection = crate::connection::open_writer(path)?;
        connection
            .execute_batch("INSERT INTO words (words) VALUES ('optimize'); VACUUM; PRAGMA wal_checkpoint(TRUNCATE)")?;
        Ok(merged)
    }
}

/// Brings counters up to date that an import bypassed.
fn finish_import(sql: &SqlConnection) -> Result<(), StoreError> {
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
         setval('alert_event_no_seq', greatest((SELECT max(no) FROM alert_event), 1))",
    ))?)
}

/// Waits until a new file and its name are on the disk.
fn sync_file(path: &Path) -> io::Result<()> {
    std::fs::File::open(path)?.sync_all()?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    std::fs::File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

/// Merges the blocks of the next traces that have several. Concatenated protobuf messages are one message, so their
/// bodies are simply joined.
fn merge_blocks(sql: &SqlConnection, after: i64) -> Result<(u64, Option<i64>), StoreError> {
    const TRACES: i64 = 100;
    /// What stays in pieces, because a body must be readable at once.
    const MAX_BYTES: usize = 32 << 20;
    let traces: Vec<i64> = sql
        .prepare_cached(
            "SELECT trace FROM block WHERE trace > ? AND signal = 0 GROUP BY trace HAVING count(*) > 1 \
             ORDER BY trace LIMIT ?",
        )?
        .query_map([after, TRACES], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    let mut merged = 0;
    for trace in &traces {
        // Such traces stay as they are: the block of a span decides which of its versions counts.
        let has_versions: bool =
            sql.query_row("SELECT has_versions FROM trace WHERE no = ?", [trace], |row| row.get(0))?;
        if has_versions {
            continue;
        }
        let blocks: Vec<(i64, Vec<u8>)> = sql
            .prepare_cached("SELECT no, body FROM block WHERE trace = ? AND signal = 0 ORDER BY no")?
            .query_map([trace], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<Result<_, _>>()?;
        let mut export = Vec::new();
        for (_, body) in &blocks {
            export.extend(decompress_bytes(body)?);
            if export.len() > MAX_BYTES {
                break;
            }
        }
        if export.len() > MAX_BYTES {
            continue;
        }
        let body = compress_bytes(&export);
        let first = blocks[0].0;
        let digest = gradus_core::stable_digest(&export) as u64 as i64;
        sql.prepare_cached("UPDATE block SET body = ?, digest = ? WHERE no = ?")?
            .execute(crate::sql::params![body, digest, first])?;
        sql.prepare_cached("UPDATE span SET block = ? WHERE trace = ?")?.execute([first, *trace])?;
        sql.prepare_cached("DELETE FROM block WHERE trace = ? AND signal = 0 AND no <> ?")?.execute([*trace, first])?;
        sql.prepare_cached(
            "UPDATE trace SET bytes = (SELECT sum(length(body)) FROM block WHERE trace = ?1) WHERE no = ?1",
        )?
        .execute([trace])?;
        merged += blocks.len() as u64 - 1;
    }
    Ok((merged, traces.last().copied()))
}

/// The number of migrations that a store has been through.
fn schema_of(sql: &SqlConnection) -> Result<i64, StoreError> {
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
        let known: i64 = schema_of(sql)?;
        if json["gradus_export"] != FORMAT {
            return Err(bad_line(1, "this is no export of a Gradus store"));
        }
        match json["schema"].as_i64() {
            Some(schema) if (1..=known).contains(&schema) => Ok(ExportHead { schema, is_older: schema < known }),
            _ => {
                let found = &json["schema"];
                Err(bad_line(1, &format!("made by a newer Gradus (format {found}, this one knows {known})")))
            }
        }
    }
}

/// Columns of PostgreSQL's tables that say which server works on a row. They mean nothing elsewhere.
const LEASE_COLUMNS: [&str; 3] = ["owner", "leased_until", "fence"];
/// Columns of the table of projects that PostgreSQL counts in another table.
const COUNT_COLUMNS: [&str; 3] = ["traces", "spans", "trajectories"];

/// The columns of a table in an export, which are the same for both engines.
fn exported_columns(sql: &SqlConnection, table: &str) -> Result<Vec<String>, StoreError> {
    let mut columns = sql.prepare_cached(&format!("SELECT * FROM {table} LIMIT 0"))?.column_names();
    if sql.sqlite().is_none() {
        columns.retain(|column| !LEASE_COLUMNS.contains(&column.as_str()));
        if table == "project" {
            columns.extend(COUNT_COLUMNS.map(str::to_owned));
        }
    }
    Ok(columns)
}

/// Whether a column of an export is none of the table.
fn is_computed(sql: &SqlConnection, table: &str, column: &str) -> bool {
    sql.sqlite().is_none() && table == "project" && COUNT_COLUMNS.contains(&column)
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
    let table = TABLES.iter().find(|table| **table == name).ok_or_else(|| bad("an unknown table"))?;
    let row = json["row"].as_object().ok_or_else(|| bad("no row"))?;
    let mut columns = exported_columns(sql, table)?;
    if head.is_older {
        // Columns that a later migration added get their default value. Those without one make the statement fail.
        columns.retain(|column| row.contains_key(column));
    }
    if row.len() != columns.len() {
        return Err(bad("other columns than the table has"));
    }
    let mut values = Vec::with_capacity(columns.len());
    for column in &columns {
        let value = row.get(column).ok_or_else(|| bad("a column is missing"))?;
        values.push(from_json(table, column, value)?);
    }
    let is_stored: Vec<bool> = columns.iter().map(|column| !is_computed(sql, table, column)).collect();
    let mut stored = is_stored.iter();
    columns.retain(|_| stored.next().copied().unwrap_or_default());
    let mut stored = is_stored.iter();
    values.retain(|_| stored.next().copied().unwrap_or_default());
    let marks = vec!["?"; columns.len()].join(", ");
    sql.prepare_cached(&format!("INSERT INTO {table} ({}) VALUES ({marks})", columns.join(", ")))?
        .execute(params_from_iter(values))?;
    if *table == "trajectory" {
        let text = words(row["body"].as_str().unwrap_or_default().as_bytes());
        let no = row["no"].as_i64().ok_or_else(|| bad("a trajectory without a number"))?;
        insert_words(sql, [(no, collect_distinct_words(&text).as_str())])?;
    }
    Ok(())
}

/// A value of the database as JSON: bodies decompressed, other blobs as base64.
fn to_json(table: &str, column: &str, value: SqlValueRef<'_>) -> Result<Json, StoreError> {
    Ok(match (table, column, value) {
        (_, _, SqlValueRef::Null) => Json::Null,
        (_, _, SqlValueRef::Bool(is_true)) => Json::from(i64::from(is_true)),
        (_, _, SqlValueRef::Integer(number)) => Json::from(number),
        (_, _, SqlValueRef::Real(number)) => Json::from(number),
        (_, _, SqlValueRef::Text(text)) => Json::from(String::from_utf8_lossy(text).into_owned()),
        ("block", "body", SqlValueRef::Blob(bytes)) => Json::from(STANDARD.encode(decompress_bytes(bytes)?)),
        ("trajectory", "body", SqlValueRef::Blob(bytes)) => {
            Json::from(String::from_utf8_lossy(&decompress_bytes(bytes)?).into_owned())
        }
        (_, _, SqlValueRef::Blob(bytes)) => Json::from(STANDARD.encode(bytes)),
    })
}

/// The reverse of `to_json`.
fn from_json(table: &str, column: &str, json: &Json) -> Result<SqlValue, StoreError> {
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
fn bad_line(number: u64, reason: &str) -> StoreError {
    match number {
        0 => StoreError::bad_row("the target", reason),
        _ => StoreError::bad_row(format!("line {number} of the export"), reason),
    }
}
