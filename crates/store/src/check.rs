//! `gradus store check`: verifies the structure of the file, the readability of every row, and references between rows.

use std::collections::HashSet;
use std::ops::ControlFlow;

use crate::sql::{KeyStart, SqlConnection, SqlParam, params};
use gradus_core::span::SpanId;

use crate::Store;
use crate::compress::decompress_bytes;
use crate::connection::schema_difference;
use crate::error::StoreError;
use crate::query::{BLOCKS_OF_TRACE, SPANS_OF_TRACE, StoredBlock, signal_from_number};

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

const TRACES: &str = "SELECT no, hex(trace_id), spans FROM trace WHERE no >= ? ORDER BY no LIMIT ?";
const TRAJECTORIES: &str = "SELECT no, body, trajectory_id FROM trajectory WHERE no >= ? ORDER BY no LIMIT ?";
// LIMIT and OFFSET keep PostgreSQL from reading all trajectories into a hash table for each portion.
const OUTCOMES: &str = "SELECT trajectory, evaluator, step, line, \
     NOT EXISTS (SELECT 1 FROM trajectory WHERE no = outcome.trajectory LIMIT 1 OFFSET 0) FROM outcome \
     WHERE (trajectory, evaluator, step) > (?, ?, ?) ORDER BY trajectory, evaluator, step LIMIT ?";

/// Every block must decompress and decode, every span row must be found in the block that it names, and the counters of
/// traces must agree.
fn check_traces<E: std::fmt::Display>(
    sql: &SqlConnection,
    report: &mut CheckReport,
    span_ids: &mut dyn FnMut(&StoredBlock) -> Result<Vec<SpanId>, E>,
) -> Result<(), StoreError> {
    sql.visit_rows(TRACES, &[], KeyStart::FIRST, |row| -> Result<_, StoreError> {
        let (trace, id, counted): (i64, String, u64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        report.traces += 1;
        let held = check_blocks(sql, report, span_ids, trace, &id)?;
        let count = check_spans(sql, report, &held, trace, &id)?;
        report.spans += count;
        if count != counted {
            report.add_problem(|| format!("trace {id} says it has {counted} spans, and has {count}"));
        }
        Ok(ControlFlow::Continue(()))
    })
}

/// Spans with the block that holds each, of one trace at a time, so that memory stays bounded.
type HeldSpans = HashSet<(i64, SpanId)>;

/// Reads the blocks of a trace, and returns the spans that they hold.
fn check_blocks<E: std::fmt::Display>(
    sql: &SqlConnection,
    report: &mut CheckReport,
    span_ids: &mut dyn FnMut(&StoredBlock) -> Result<Vec<SpanId>, E>,
    trace: i64,
    id: &str,
) -> Result<HeldSpans, StoreError> {
    let mut held = HeldSpans::new();
    sql.visit_bodies(BLOCKS_OF_TRACE, &[SqlParam::Integer(trace)], i64::MIN, |row| -> Result<_, StoreError> {
        report.blocks += 1;
        let no = row.get(0)?;
        let body: Vec<u8> = row.get(1)?;
        let signal = signal_from_number(row.get(2)?);
        let read = decompress_bytes(&body).map_err(|error| error.to_string()).and_then(|export| {
            let arrived_ns = row.get(3).unwrap_or_default();
            let block = StoredBlock { no, trace, signal, arrived_ns, export };
            span_ids(&block).map_err(|error| error.to_string())
        });
        match read {
            Ok(ids) => held.extend(ids.into_iter().map(|id| (no, id))),
            Err(reason) => report.add_problem(|| format!("block {no} of trace {id} cannot be read: {reason}")),
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(held)
}

/// Compares the span rows of a trace with what its blocks hold, and returns their number.
fn check_spans(
    sql: &SqlConnection,
    report: &mut CheckReport,
    held: &HeldSpans,
    trace: i64,
    id: &str,
) -> Result<u64, StoreError> {
    let mut count = 0;
    sql.visit_rows(SPANS_OF_TRACE, &[SqlParam::Integer(trace)], KeyStart::FIRST, |row| -> Result<_, StoreError> {
        count += 1;
        let (span, block) = (SpanId(row.get::<i64>(0)? as u64), row.get(1)?);
        if !held.contains(&(block, span)) {
            report.add_problem(|| format!("span {span} of trace {id} is not in its block {block}"));
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(count)
}

/// Every trajectory and every outcome must be readable JSON, and every outcome must have its trajectory.
fn check_verdicts(sql: &SqlConnection, report: &mut CheckReport) -> Result<(), StoreError> {
    sql.visit_bodies(TRAJECTORIES, &[], i64::MIN, |row| -> Result<_, StoreError> {
        report.trajectories += 1;
        let body: Vec<u8> = row.get(1)?;
        let read = decompress_bytes(&body)
            .map_err(|error| error.to_string())
            .and_then(|json| serde_json::from_slice::<serde::de::IgnoredAny>(&json).map_err(|error| error.to_string()));
        if let Err(reason) = read {
            let id: String = row.get(2)?;
            report.add_problem(|| format!("trajectory {id} cannot be read: {reason}"));
        }
        Ok(ControlFlow::Continue(()))
    })?;
    check_outcomes(sql, report, sql.portion_rows())
}

/// Checks the outcomes in the order of their key. One statement reads at most `portion_rows` of them.
fn check_outcomes(sql: &SqlConnection, report: &mut CheckReport, portion_rows: i64) -> Result<(), StoreError> {
    let mut statement = sql.prepare(OUTCOMES)?;
    // No stored key is as small as this one.
    let mut last = (i64::MIN, String::new(), i64::MIN);
    loop {
        let mut rows = statement.query(params![last.0, last.1, last.2, portion_rows])?;
        let mut row_count = 0;
        while let Some(row) = rows.next()? {
            row_count += 1;
            report.outcomes += 1;
            let (trajectory, line): (i64, String) = (row.get(0)?, row.get(3)?);
            if row_count == portion_rows {
                last = (trajectory, row.get(1)?, row.get(2)?);
            }
            if row.get(4)? {
                report.add_problem(|| format!("a verdict is about trajectory {trajectory}, which is not there"));
            } else if let Err(reason) = serde_json::from_str::<serde::de::IgnoredAny>(&line) {
                report.add_problem(|| format!("a verdict on trajectory {trajectory} cannot be read: {reason}"));
            }
        }
        if row_count < portion_rows {
            return Ok(());
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::{assert_plan, open_writer};

    #[test]
    fn rows_are_checked_in_the_order_of_their_keys() {
        let folder = tempfile::tempdir().unwrap();
        let sql = open_writer(&folder.path().join("store.db")).unwrap();
        assert_plan(&sql, TRACES, "trace USING INTEGER PRIMARY KEY (rowid>?)");
        assert_plan(&sql, TRAJECTORIES, "trajectory USING INTEGER PRIMARY KEY (rowid>?)");
        assert_plan(&sql, OUTCOMES, "outcome USING PRIMARY KEY ((trajectory,evaluator,step)>(?,?,?))");
        assert_plan(&sql, OUTCOMES, "trajectory USING INTEGER PRIMARY KEY (rowid=?)");
    }

    #[test]
    fn portions_of_every_size_find_the_same_problems() {
        let folder = tempfile::tempdir().unwrap();
        let sql = SqlConnection::from(open_writer(&folder.path().join("store.db")).unwrap());
        for (trajectory, evaluator, step) in [(7, "a", 0), (7, "a", 1), (7, "b", 1), (8, "a", 1), (9, "a", 0)] {
            let statement = "INSERT INTO outcome (trajectory, evaluator, step, kind, is_wrong, tool, judged_ns, run, line) \
                             VALUES (?, ?, ?, 0, 0, '', 0, '', '{}')";
            sql.execute(statement, params![trajectory, evaluator, step]).unwrap();
        }
        let mut all = CheckReport::default();
        check_outcomes(&sql, &mut all, i64::MAX).unwrap();
        assert_eq!((all.outcomes, all.problems.len()), (5, 5));
        assert_eq!(all.problems[3], "a verdict is about trajectory 8, which is not there");
        for portion_rows in 1..7 {
            let mut report = CheckReport::default();
            check_outcomes(&sql, &mut report, portion_rows).unwrap();
            assert_eq!(report, all, "{portion_rows}");
        }
    }
}
