//! Arrow's stream format, as older clients of Phoenix speak it: tables go out in it, evaluations come in. Written by hand,
//! because it is little and because what comes in is not to be trusted (`docs/adr/0011-arrow-by-hand.md`).

mod flat;
mod read;
mod types;
mod write;

use std::collections::HashMap;
use std::ops::ControlFlow;

use gradus_store::StoreError;
use serde_json::json;

pub(super) use read::{Columns, Values, read};

use super::frame::{Cell, Row};
use super::frame_json::{declared, named};
use super::query::SpanQuery;
use super::rows::{self, Bounds};
use crate::serve::state::Server;
use crate::serve::stream::Sink;
use types::Type;

/// Rows of one batch, and about how many bytes.
const BATCH_ROWS: usize = 1000;
const BATCH_BYTES: usize = 4 << 20;

/// A table's columns and their types.
struct Shape {
    index: Vec<(String, Type)>,
    columns: Vec<(String, Type)>,
    by_name: HashMap<String, usize>,
    rows: usize,
}

/// Writes the answer to a query as a stream that pandas reads. The types of columns stand at its beginning, so everything
/// is looked at twice: that takes time, not memory.
pub(super) fn write_frame(
    server: &Server,
    query: &SpanQuery,
    bounds: &Bounds,
    sink: &mut Sink,
) -> Result<(), StoreError> {
    let mut shape = Shape::new(query);
    rows::answer(server, query, bounds, &mut |row| {
        shape.see(&row);
        if sink.is_gone() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    if shape.rows == 0 {
        named(query).iter().for_each(|name| {
            shape.number(name);
        });
    }
    let fields = shape.fields();
    sink.write(&write::schema(&fields, &[("pandas", shape.pandas(&fields))]));
    let mut batch = Batch::default();
    let mut left = shape.rows;
    rows::answer(server, query, bounds, &mut |row| {
        // What came since the first look would not fit the types.
        if left == 0 || sink.is_gone() {
            return ControlFlow::Break(());
        }
        left -= 1;
        batch.add(row);
        if batch.is_full() {
            sink.write(&batch.take(&shape));
        }
        ControlFlow::Continue(())
    })?;
    if !batch.rows.is_empty() {
        sink.write(&batch.take(&shape));
    }
    sink.write(&write::END);
    Ok(())
}

impl Shape {
    fn new(query: &SpanQuery) -> Shape {
        let with_type = |name: String| (name, Type::default());
        let index = query.index_names().into_iter().map(with_type).collect();
        let mut shape = Shape { index, columns: Vec::new(), by_name: HashMap::new(), rows: 0 };
        declared(query).iter().for_each(|name| {
            shape.number(name);
        });
        shape
    }

    fn number(&mut self, name: &str) -> usize {
        if let Some(number) = self.by_name.get(name) {
            return *number;
        }
        self.columns.push((name.to_owned(), Type::default()));
        self.by_name.insert(name.to_owned(), self.columns.len() - 1);
        self.columns.len() - 1
    }

    fn see(&mut self, row: &Row) {
        self.rows += 1;
        for ((_, kind), cell) in self.index.iter_mut().zip(&row.0) {
            kind.widen(cell);
        }
        for (name, cell) in &row.1 {
            let number = self.number(name);
            self.columns[number].1.widen(cell);
        }
    }

    /// All columns as they are written, those that rows are counted by last.
    fn fields(&self) -> Vec<(String, Type)> {
        let is_taken = |name: &String| self.by_name.contains_key(name);
        let index = self.index.iter().enumerate().map(|(number, (name, kind))| {
            let name = if is_taken(name) { format!("__index_level_{number}__") } else { name.clone() };
            (name, kind.clone())
        });
        self.columns.iter().cloned().chain(index).collect()
    }

    /// What pandas has to know to make the same table again.
    fn pandas(&self, fields: &[(String, Type)]) -> String {
        let names = self.columns.iter().chain(&self.index).map(|(name, _)| name);
        let columns: Vec<serde_json::Value> = names
            .zip(fields)
            .map(|(name, (field, kind))| {
                let (pandas_type, numpy_type) = kind.names();
                let metadata = if *kind == Type::Time { json!({"timezone": "UTC"}) } else { json!(null) };
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

/// Rows that are written together.
#[derive(Default)]
struct Batch {
    rows: Vec<Row>,
    bytes: usize,
}

impl Batch {
    fn add(&mut self, row: Row) {
        self.bytes += row.0.iter().chain(row.1.iter().map(|(_, cell)| cell)).map(size).sum::<usize>();
        self.rows.push(row);
    }

    fn is_full(&self) -> bool {
        self.rows.len() >= BATCH_ROWS || self.bytes >= BATCH_BYTES
    }

    fn take(&mut self, shape: &Shape) -> Vec<u8> {
        let rows = std::mem::take(&mut self.rows);
        self.bytes = 0;
        let mut columns: Vec<(&Type, Vec<Option<&Cell>>)> = shape
            .columns
            .iter()
            .chain(&shape.index)
            .map(|(_, kind)| (kind, vec![None; rows.len()]))
            .collect();
        for (place, row) in rows.iter().enumerate() {
            for (number, cell) in row.0.iter().enumerate() {
                columns[shape.columns.len() + number].1[place] = Some(cell);
            }
            for (name, cell) in &row.1 {
                // A column that was not there at the first look is left out.
                if let Some(number) = shape.by_name.get(name) {
                    columns[*number].1[place] = Some(cell);
                }
            }
        }
        write::batch(&columns, rows.len())
    }
}

/// What a cell takes, about.
fn size(cell: &Cell) -> usize {
    fn of(value: &serde_json::Value) -> usize {
        16 + match value {
            serde_json::Value::String(text) => text.len(),
            serde_json::Value::Array(items) => items.iter().map(of).sum(),
            serde_json::Value::Object(entries) => {
                entries.iter().map(|(key, value)| key.len() + of(value)).sum()
            }
            _ => 0,
        }
    }
    match cell {
        Cell::Json(value) => of(value),
        Cell::Time(_) => 16,
    }
}
