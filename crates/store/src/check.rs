//! `gradus store check`: verifies the structure of the file, the readability of every row, and references between rows.

use std::collections::HashSet;

use crate::sql::SqlConnection;
use gradus_core::span::SpanId;

use crate::Store;
use crate::compress::decompress_bytes;
use crate::connection::schema_difference;
use crate::error::StoreError;
use crate::query::StoredBlock;
use crate::records::BlockSignal;

/// What was checked, and the problems that were found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    pub traces: u64,
    pub spans: u64,
    pub blocks: u64,
    pub trajectories: u64,
    pub outcomes: u64,
    /// The first problems, up to a limit; empty for an intact store.
    pub problems: Vec<String>,
}

/// Maximum number of problems in a report. A damaged file can have millions.
const MAX_PROBLEMS: usize = 100;

impl CheckReport {
    /// Adds a problem unless the report is full. `text` is only called if the problem is added.
    fn add_problem(&mut self, text: impl FnOnce() -> String) {
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(text());
        }
    }
}

impl Store {
    /// Checks the file's structure, and that every block can be read and holds the spans it should. `span_ids` decodes a
    /// block: the store itself does not know OTLP, and shows the error of the decoder as the reason.
    pub fn check<E: std::fmt::Display>(
        &self,
        span_ids: &mut dyn FnMut(&StoredBlock) -> Result<Vec<SpanId>, E>,
    ) -> Result<CheckReport, StoreError> {
        let reader = self.readers.take_reader()?;
        let sql: &SqlConnection = &reader;
        // One transaction, so that the check sees one state whatever is written meanwhile.
        let view = sql.snapshot()?;
        let mut report = CheckReport::default();
        check_structure(&view, &mut report)?;
        // An error while reading is reported as a problem and does not end the check.
        let looked_at = [
            check_traces(&view, &mut report, span_ids),
            check_verdicts(&view, &mut report),
            check_references(&view, &mut report),
        ];
        for error in looked_at.into_iter().filter_map(Result::err) {
            report.add_problem(|| error.to_string());
        }
        Ok(report)
    }
}

/// SQLite's own check of pages and indices, and the comparison with the schema of this version.
fn check_structure(sql: &SqlConnection, report: &mut CheckReport) -> Result<(), StoreError> {
    // PostgreSQL checks its pages itself.
    let Some(sql) = sql.sqlite() else { return Ok(()) };
    let mut statement = sql.prepare("PRAGMA integrity_check(20)")?;
    let lines = statement.query_map([], |row| row.get::<_, String>(0))?;
    for line in lines {
        let line = line?;
        if line != "ok" {
            report.add_problem(|| format!("the file is damaged: {line}"));
        }
    }
    if let Some(name) = schema_difference(sql)? {
        report.add_problem(|| format!("the table or index {name:?} is not as this version makes it"));
    }
    Ok(())
}

/// Every block must decompress and decode, every span row must be found in the block that it names, and the counters of
/// traces must agree.
fn check_traces<E: std::fmt::Display>(
    sql: &SqlConnection,
    report: &mut CheckReport,
    span_ids: &mut dyn FnMut(&StoredBlock) -> Result<Vec<SpanId>, E>,
) -> Result<(), StoreError> {
    let mut traces = sql.prepare("SELECT no, hex(trace_id), spans FROM trace ORDER BY no")?;
    let mut blocks = sql.prepare("SELECT no, signal, arrived_ns, body FROM block WHERE trace = ?")?;
    let mut spans = sql.prepare("SELECT span_id, block FROM span WHERE trace = ?")?;
    let mut rows = traces.query(())?;
    while let Some(row) = rows.next()? {
        let (trace, id, counted): (i64, String, u64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        report.traces += 1;
        // Span ids by block, of one trace at a time, so that memory stays bounded.
        let mut held: HashSet<(i64, SpanId)> = HashSet::new();
        let mut found = blocks.query([trace])?;
        while let Some(row) = found.next()? {
            report.blocks += 1;
            let no = row.get(0)?;
            let signal = if row.get::<i64>(1)? == 1 { BlockSignal::Logs } else { BlockSignal::Spans };
            let body: Vec<u8> = row.get(3)?;
            let read = decompress_bytes(&body).map_err(|error| error.to_string()).and_then(|export| {
                let arrived_ns = row.get(2).unwrap_or_default();
                let block = StoredBlock { no, trace, signal, arrived_ns, export };
                span_ids(&block).map_err(|error| error.to_string())
            });
            match read {
                Ok(ids) => held.extend(ids.into_iter().map(|id| (no, id))),
                Err(reason) => report.add_problem(|| format!("block {no} of trace {id} cannot be read: {reason}")),
            }
        }
        let mut count = 0;
        let mut listed = spans.query([trace])?;
        while let Some(row) = listed.next()? {
            count += 1;
            let (span, block) = (SpanId(row.get::<i64>(0)? as u64), row.get(1)?);
            if !held.contains(&(block, span)) {
                report.add_problem(|| format!("span {span} of trace {id} is not in its block {block}"));
            }
        }
        report.spans += count;
        if count != counted {
            report.add_problem(|| format!("trace {id} says it has {counted} spans, and has {count}"));
        }
    }
    Ok(())
}

/// Every trajectory and every outcome must be readable JSON, and every outcome must have its trajectory.
fn check_verdicts(sql: &SqlConnection, report: &mut CheckReport) -> Result<(), StoreError> {
    let mut statement = sql.prepare("SELECT trajectory_id, body FROM trajectory")?;
    let mut rows = statement.query(())?;
    while let Some(row) = rows.next()? {
        report.trajectories += 1;
        let body: Vec<u8> = row.get(1)?;
        let read = decompress_bytes(&body)
            .map_err(|error| error.to_string())
            .and_then(|json| serde_json::from_slice::<serde::de::IgnoredAny>(&json).map_err(|error| error.to_string()));
        if let Err(reason) = read {
            let id: String = row.get(0)?;
            report.add_problem(|| format!("trajectory {id} cannot be read: {reason}"));
        }
    }
    let mut statement = sql.prepare(
        "SELECT outcome.trajectory, outcome.line, trajectory.no IS NULL FROM outcome \
         LEFT JOIN trajectory ON trajectory.no = outcome.trajectory",
    )?;
    let mut rows = statement.query(())?;
    while let Some(row) = rows.next()? {
        report.outcomes += 1;
        let (trajectory, line): (i64, String) = (row.get(0)?, row.get(1)?);
        if row.get(2)? {
            report.add_problem(|| format!("a verdict is about trajectory {trajectory}, which is not there"));
        } else if let Err(reason) = serde_json::from_str::<serde::de::IgnoredAny>(&line) {
            report.add_problem(|| format!("a verdict on trajectory {trajectory} cannot be read: {reason}"));
        }
    }
    Ok(())
}

/// Every reference between rows must be valid. Foreign keys of SQLite are off, because checking them on every write is
/// slow.
fn check_references(sql: &SqlConnection, report: &mut CheckReport) -> Result<(), StoreError> {
    // Table, column, and the table that the column refers to.
    const REFERENCES: &[(&str, &str, &str)] = &[
        ("block", "trace", "trace"),
        ("span", "trace", "trace"),
        ("link", "trace", "trace"),
        ("facet", "trace", "trace"),
        ("trajectory", "trace", "trace"),
        ("annotation", "trace", "trace"),
        ("ungraded", "trajectory", "trajectory"),
        ("failure", "trajectory", "trajectory"),
        ("failure", "failure_group", "failure_group"),
        ("outcome", "failure_group", "failure_group"),
        ("trace", "project", "project"),
        ("trajectory", "project", "project"),
    ];
    for (table, column, of) in REFERENCES {
        let count: i64 = sql.query_row(
            &format!(
                "SELECT count(*) FROM {table} WHERE {column} IS NOT NULL \
                 AND NOT EXISTS (SELECT 1 FROM {of} named WHERE named.no = {table}.{column})"
            ),
            (),
            |row| row.get(0),
        )?;
        if count > 0 {
            report.add_problem(|| format!("{count} rows of {table} name a {of} that is not there"));
        }
    }
    Ok(())
}
