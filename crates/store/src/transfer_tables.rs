//! Tables that are moved as a whole, from one store to another or to an export: read in the order of their keys, in
//! batches of bounded size, so that neither engine keeps a table in memory.

use crate::error::StoreError;
use crate::sql::{SqlConnection, SqlValue, params_from_iter};

/// Maximum number of rows in a batch.
const BATCH_ROWS: usize = 500;
/// Maximum bytes of the bodies in a batch. A single larger body is a batch of its own.
const BATCH_BYTES: i64 = 16 << 20;
/// Maximum number of rows in one `INSERT`. Both engines limit the number of parameters.
const INSERT_ROWS: usize = 100;

/// A table, and the columns that order its rows. Together they are unique, and both engines have an index of them.
#[derive(Debug)]
pub(crate) struct TransferTable {
    pub(crate) name: &'static str,
    key: &'static [&'static str],
    /// Whether rows contain a body, which can be large.
    has_body: bool,
}

const fn table(name: &'static str, key: &'static [&'static str]) -> TransferTable {
    TransferTable { name, key, has_body: false }
}

const fn table_with_bodies(name: &'static str, key: &'static [&'static str]) -> TransferTable {
    TransferTable { name, key, has_body: true }
}

/// All tables, in an order in which they can be written.
pub(crate) const TABLES: &[TransferTable] = &[
    table("project", &["no"]),
    table("trace", &["no"]),
    table_with_bodies("block", &["trace", "no"]),
    table("span", &["trace", "span_id"]),
    table("link", &["key", "kind", "trace"]),
    table("due", &["story"]),
    table_with_bodies("trajectory", &["no"]),
    table("facet", &["project", "kind", "value", "start_ns", "trace"]),
    table("outcome", &["trajectory", "evaluator", "step"]),
    table("failure_group", &["no"]),
    table("failure", &["failure_group", "start_ns", "trajectory"]),
    table("rollup", &["project", "evaluator", "tool", "bucket", "agent", "version", "model"]),
    table("rollup_long", &["size", "project", "evaluator", "tool", "kind", "name", "bucket"]),
    table("usage_long", &["size", "project", "kind", "name", "bucket"]),
    table("ungraded", &["trajectory"]),
    table("spend", &["bucket", "rule", "project"]),
    table("annotation", &["no"]),
    table("alert_state", &["rule"]),
    table("alert_event", &["no"]),
    table("alert_rule", &["name"]),
    table("alert_mute", &["rule"]),
    table("anchor_set", &["rule", "evaluator", "judge", "rubric_hash"]),
    API_KEY_TABLE,
];
/// Hashes of API keys. Moved to another store, but not exported: exports are given to other people.
pub(crate) const API_KEY_TABLE: TransferTable = table("api_key", &["no"]);

/// Columns of PostgreSQL's tables with the server that works on a row. They have no meaning in another store.
const LEASE_COLUMNS: [&str; 3] = ["owner", "leased_until", "fence"];
/// Columns of the table of projects that PostgreSQL counts in another table.
pub(crate) const COUNT_COLUMNS: [&str; 3] = ["traces", "spans", "trajectories"];

impl TransferTable {
    /// The columns that both engines have.
    pub(crate) fn shared_columns(&self, sql: &SqlConnection) -> Result<Vec<String>, StoreError> {
        let mut columns = sql.prepare_cached(&format!("SELECT * FROM {} LIMIT 0", self.name))?.column_names();
        columns.retain(|column| !LEASE_COLUMNS.contains(&column.as_str()));
        if self.name == "project" {
            columns.retain(|column| !COUNT_COLUMNS.contains(&column.as_str()));
        }
        Ok(columns)
    }

    pub(crate) fn is_empty(&self, sql: &SqlConnection) -> Result<bool, StoreError> {
        let statement = format!("SELECT NOT EXISTS (SELECT 1 FROM {})", self.name);
        Ok(sql.query_row(&statement, (), |row| row.get(0))?)
    }

    /// Inserts rows with the values of `columns`, whose names come from the schema.
    pub(crate) fn insert_rows(
        &self,
        sql: &SqlConnection,
        columns: &[String],
        rows: &[Vec<SqlValue>],
    ) -> Result<(), StoreError> {
        let marks = format!("({})", vec!["?"; columns.len()].join(", "));
        let head = format!("INSERT INTO {} ({}) VALUES ", self.name, columns.join(", "));
        let (many, one) = (head.clone() + &vec![marks.as_str(); INSERT_ROWS].join(", "), head + &marks);
        let chunks = rows.chunks_exact(INSERT_ROWS);
        let rest = chunks.remainder();
        for chunk in chunks {
            sql.prepare_cached(&many)?.execute(params_from_iter(chunk.iter().flatten()))?;
        }
        for row in rest {
            sql.prepare_cached(&one)?.execute(params_from_iter(row))?;
        }
        Ok(())
    }
}

/// Reads a table from its beginning, or from after a given row.
pub(crate) struct TableReader<'c> {
    sql: &'c SqlConnection,
    table: &'static TransferTable,
    /// The columns of the rows that it returns.
    pub(crate) columns: Vec<String>,
    /// The key of the last row that was read.
    after: Option<Vec<SqlValue>>,
}

impl<'c> TableReader<'c> {
    /// Reads the columns that both engines have.
    pub(crate) fn new(
        sql: &'c SqlConnection,
        table: &'static TransferTable,
        after: Option<Vec<SqlValue>>,
    ) -> Result<TableReader<'c>, StoreError> {
        Ok(TableReader { sql, table, columns: table.shared_columns(sql)?, after })
    }

    /// The key of the last row that was read; `None` before the first.
    pub(crate) fn position(&self) -> Option<&[SqlValue]> {
        self.after.as_deref()
    }

    /// The next rows; none at the end.
    pub(crate) fn next_batch(&mut self) -> Result<Vec<Vec<SqlValue>>, StoreError> {
        let limit = if self.table.has_body { self.count_bounded_rows()? } else { BATCH_ROWS };
        let mut statement = self.sql.prepare_cached(&self.select(&self.columns.join(", "), limit))?;
        let after = self.after.iter().flatten();
        let mut rows = statement.query(params_from_iter(after))?;
        let mut batch = Vec::new();
        while let Some(row) = rows.next()? {
            let values: Result<Vec<SqlValue>, _> = (0..self.columns.len()).map(|column| row.get(column)).collect();
            batch.push(values?);
        }
        drop(rows);
        if let Some(last) = batch.last() {
            let at = |name: &&str| self.columns.iter().position(|column| column == name);
            let key = self.table.key.iter().map(|name| at(name).map_or(SqlValue::Null, |index| last[index].clone()));
            self.after = Some(key.collect());
        }
        Ok(batch)
    }

    /// Returns the number of next rows whose bodies fit into a batch: at least one.
    fn count_bounded_rows(&self) -> Result<usize, StoreError> {
        let mut statement = self.sql.prepare_cached(&self.select("length(body)", BATCH_ROWS))?;
        let sizes = statement.query_map(params_from_iter(self.after.iter().flatten()), |row| row.get::<i64>(0))?;
        let (mut count, mut bytes) = (0, 0);
        for size in sizes {
            bytes += size?;
            if bytes > BATCH_BYTES {
                break;
            }
            count += 1;
        }
        Ok(count.max(1))
    }

    fn select(&self, columns: &str, limit: usize) -> String {
        let (name, key) = (self.table.name, self.table.key.join(", "));
        let condition = match &self.after {
            Some(after) => format!(" WHERE ({key}) > ({})", vec!["?"; after.len()].join(", ")),
            None => String::new(),
        };
        format!("SELECT {columns} FROM {name}{condition} ORDER BY {key} LIMIT {limit}")
    }
}
