//! Arrow's IPC stream format, which older Phoenix clients use: tables are sent in it, and evaluations are received in
//! it. It is implemented here because little of it is needed and because received streams are untrusted
//! (`docs/adr/0011-arrow-by-hand.md`).

mod flat;
mod read;
mod spool;
mod types;
mod write;

use std::collections::HashMap;
use std::io;
use std::ops::ControlFlow;

use gradus_store::StoreError;
use serde_json::json;

pub(super) use read::{ArrowColumnValues, ArrowTable, read_arrow_stream};

use super::dataframe_rows::DataFrameCell;
use super::frame_json::{list_declared_columns, list_projected_columns};
use super::query::SpanQuery;
use super::rows::{self, SpanQueryBounds};
use crate::state::ServerState;
use crate::stream::ResponseSink;
use spool::{ArrowRowSpool, SpooledRow};
use types::ArrowColumnType;

/// Maximum number of rows, and approximate number of bytes, in one record batch.
const BATCH_ROWS: usize = 1000;
const BATCH_BYTES: usize = 4 << 20;
/// Maximum number of cells in one record batch. Empty cells take memory as well, and spans can have any number of
/// attributes.
const BATCH_CELLS: usize = 1 << 18;
/// The content type of Arrow tables in both directions.
pub(super) const ARROW_CONTENT_TYPE: &str = "application/x-pandas-arrow";

/// The columns of a table with the narrowest types that fit all rows so far.
struct ArrowTableSchema {
    index: Vec<(String, ArrowColumnType)>,
    columns: Vec<(String, ArrowColumnType)>,
    by_name: HashMap<String, usize>,
    rows: usize,
}

/// Writes the rows of a query as an Arrow stream. The stream begins with the types of all columns, so all rows are
/// found first and spooled to disk.
pub(super) fn write_arrow_frame(
    server: &ServerState,
    query: &SpanQuery,
    bounds: &SpanQueryBounds,
    sink: &mut ResponseSink,
) -> Result<(), StoreError> {
    let folder = &server.settings.data;
    let failed = |error: io::Error| StoreError::NotWritable { path: folder.clone(), reason: error.to_string() };
    let mut shape = ArrowTableSchema::new(query);
    let mut spool = ArrowRowSpool::new(folder).map_err(failed)?;
    let mut spooled = Ok(());
    rows::visit_query_rows(server, query, bounds, &mut |(index, cells)| {
        let row = shape.add_row(index, cells);
        spooled = spool.add(&row);
        if spooled.is_err() || sink.is_gone() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    spooled.map_err(failed)?;
    if sink.is_gone() {
        return Ok(());
    }
    if shape.rows == 0 {
        list_projected_columns(query).iter().for_each(|name| {
            shape.ensure_column(name);
        });
    }
    let fields = shape.fields();
    sink.write(&write::encode_schema_message(&fields, &[("pandas", shape.pandas_metadata(&fields))]));
    let mut batch = ArrowRowBatch::default();
    let read = spool.read(|row| {
        batch.add(row);
        if batch.is_full(&shape) {
            sink.write(&batch.drain_to_message(&shape));
        }
        !sink.is_gone()
    });
    read.map_err(failed)?;
    if !batch.rows.is_empty() {
        sink.write(&batch.drain_to_message(&shape));
    }
    sink.write(&write::END_OF_STREAM);
    Ok(())
}

impl ArrowTableSchema {
    fn new(query: &SpanQuery) -> ArrowTableSchema {
        let with_type = |name: String| (name, ArrowColumnType::default());
        let index = query.index_names().into_iter().map(with_type).collect();
        let mut shape = ArrowTableSchema { index, columns: Vec::new(), by_name: HashMap::new(), rows: 0 };
        list_declared_columns(query).iter().for_each(|name| {
            shape.ensure_column(name);
        });
        shape
    }

    /// Returns the number of a column, which is added if it is new.
    fn ensure_column(&mut self, name: &str) -> usize {
        if let Some(number) = self.by_name.get(name) {
            return *number;
        }
        self.columns.push((name.to_owned(), ArrowColumnType::default()));
        self.by_name.insert(name.to_owned(), self.columns.len() - 1);
        self.columns.len() - 1
    }

    /// Widens the types of the columns to fit a row, and returns the row with numbered columns.
    fn add_row(&mut self, index: Vec<DataFrameCell>, cells: Vec<(String, DataFrameCell)>) -> SpooledRow {
        self.rows += 1;
        for ((_, kind), cell) in self.index.iter_mut().zip(&index) {
            kind.widen(cell);
        }
        let mut numbered = Vec::with_capacity(cells.len());
        for (name, cell) in cells {
            let number = self.ensure_column(&name);
            self.columns[number].1.widen(&cell);
            numbered.push((number, cell));
        }
        SpooledRow { index, cells: numbered }
    }

    /// Returns all columns in the order of the stream: the index follows after the others, as pandas writes it.
    fn fields(&self) -> Vec<(String, ArrowColumnType)> {
        let is_taken = |name: &String| self.by_name.contains_key(name);
        let index = self.index.iter().enumerate().map(|(number, (name, kind))| {
            let name = if is_taken(name) { format!("__index_level_{number}__") } else { name.clone() };
            (name, kind.clone())
        });
        self.columns.iter().cloned().chain(index).collect()
    }

    /// Builds the schema metadata `pandas`, with which pandas restores the index and the types of columns.
    fn pandas_metadata(&self, fields: &[(String, ArrowColumnType)]) -> String {
        let names = self.columns.iter().chain(&self.index).map(|(name, _)| name);
        let columns: Vec<serde_json::Value> = names
            .zip(fields)
            .map(|(name, (field, kind))| {
                let (pandas_type, numpy_type) = kind.pandas_type_names();
                let metadata = if *kind == ArrowColumnType::Time { json!({"timezone": "UTC"}) } else { json!(null) };
                json!({"name": name, "field_name": field, "pandas_type": pandas_type, "numpy_type": numpy_type,
                       "metadata": metadata})
            })
            .collect();
        let index: Vec<&String> = fields[self.columns.len()..].iter().map(|(field, _)| field).collect();
        let names = json!([{"name": null, "field_name": null, "pandas_type": "unicode", "numpy_type": "object",
                            "metadata": {"encoding": "UTF-8"}}]);
        json!({"index_columns": index, "column_indexes": names, "columns": columns,
               "creator": {"library": "gradus", "version": env!("CARGO_PKG_VERSION")}, "pandas_version": "2.2.0"})
        .to_string()
    }
}

/// Rows of one record batch.
#[derive(Default)]
struct ArrowRowBatch {
    rows: Vec<SpooledRow>,
    bytes: usize,
}

impl ArrowRowBatch {
    fn add(&mut self, row: SpooledRow) {
        let cells = row.index.iter().chain(row.cells.iter().map(|(_, cell)| cell));
        self.bytes += cells.map(estimate_cell_size).sum::<usize>();
        self.rows.push(row);
    }

    fn is_full(&self, shape: &ArrowTableSchema) -> bool {
        let rows = self.rows.len();
        rows >= BATCH_ROWS || self.bytes >= BATCH_BYTES || rows * shape.columns.len() >= BATCH_CELLS
    }

    /// Transposes the rows into columns and encodes them. The batch is empty afterwards.
    fn drain_to_message(&mut self, shape: &ArrowTableSchema) -> Vec<u8> {
        let rows = std::mem::take(&mut self.rows);
        self.bytes = 0;
        let mut columns: Vec<(&ArrowColumnType, Vec<Option<&DataFrameCell>>)> =
            shape.columns.iter().chain(&shape.index).map(|(_, kind)| (kind, vec![None; rows.len()])).collect();
        for (place, row) in rows.iter().enumerate() {
            for (number, cell) in row.index.iter().enumerate() {
                columns[shape.columns.len() + number].1[place] = Some(cell);
            }
            for (number, cell) in &row.cells {
                columns[*number].1[place] = Some(cell);
            }
        }
        write::encode_batch_message(&columns, rows.len())
    }
}

/// Estimates the bytes of a cell in memory.
fn estimate_cell_size(cell: &DataFrameCell) -> usize {
    fn json_size(value: &serde_json::Value) -> usize {
        16 + match value {
            serde_json::Value::String(text) => text.len(),
            serde_json::Value::Array(items) => items.iter().map(json_size).sum(),
            serde_json::Value::Object(entries) => entries.iter().map(|(key, value)| key.len() + json_size(value)).sum(),
            _ => 0,
        }
    }
    match cell {
        DataFrameCell::Json(value) => json_size(value),
        DataFrameCell::Time(_) => 16,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_small_however_many_columns_there_are() {
        let mut shape = ArrowTableSchema { index: Vec::new(), columns: Vec::new(), by_name: HashMap::new(), rows: 0 };
        let mut batch = ArrowRowBatch::default();
        let many = (0..100_000).map(|number| (format!("c{number}"), DataFrameCell::Json(json!(null)))).collect();
        batch.add(shape.add_row(Vec::new(), many));
        let mut rows = 1;
        while !batch.is_full(&shape) {
            batch.add(shape.add_row(Vec::new(), vec![("c1".to_owned(), DataFrameCell::Json(json!(1)))]));
            rows += 1;
        }
        assert_eq!(rows, 3);
        assert!(batch.drain_to_message(&shape).len() < 32 << 20 && !batch.is_full(&shape));
    }
}
