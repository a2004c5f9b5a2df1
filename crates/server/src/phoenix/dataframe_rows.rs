//! The schema of a table that grows row by row, in pandas' terms.

use std::collections::HashMap;

use serde_json::{Value, json};

/// One value of a row.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum DataFrameCell {
    Json(Value),
    /// Microseconds since 1970.
    Time(i64),
}

/// One row: the values of its index, and the other cells by column name.
pub(super) type DataFrameRow = (Vec<DataFrameCell>, Vec<(String, DataFrameCell)>);

/// The columns of a table in order of their first appearance, with the kinds of values that they hold so far.
#[derive(Debug)]
pub(super) struct DataFrameSchema {
    pub(super) index: Vec<DataFrameColumn>,
    pub(super) columns: Vec<DataFrameColumn>,
    by_name: HashMap<String, usize>,
    pub(super) rows: usize,
}

/// A column and a summary of its values. The values themselves are not kept.
#[derive(Clone, Debug)]
pub(super) struct DataFrameColumn {
    pub(super) name: String,
    /// A bit set of the kinds below.
    kinds: u8,
    /// Rows with a value in this column.
    filled: usize,
}

const BOOL: u8 = 1;
const INTEGER: u8 = 2;
const FLOAT: u8 = 4;
const TEXT: u8 = 8;
const TIME: u8 = 16;
const OTHER: u8 = 32;

impl DataFrameSchema {
    pub(super) fn new(index: &[String]) -> DataFrameSchema {
        let index = index.iter().map(|name| DataFrameColumn::new(name)).collect();
        DataFrameSchema { index, columns: Vec::new(), by_name: HashMap::new(), rows: 0 }
    }

    /// Returns the number of a column, which is added if it is new.
    pub(super) fn ensure_column(&mut self, name: &str) -> usize {
        if let Some(number) = self.by_name.get(name) {
            return *number;
        }
        self.columns.push(DataFrameColumn::new(name));
        self.by_name.insert(name.to_owned(), self.columns.len() - 1);
        self.columns.len() - 1
    }

    /// Updates the columns with the values of a row.
    pub(super) fn add_row(&mut self, row: &DataFrameRow) {
        self.rows += 1;
        for (column, cell) in self.index.iter_mut().zip(&row.0) {
            column.observe_cell(cell);
        }
        for (name, cell) in &row.1 {
            let number = self.ensure_column(name);
            self.columns[number].observe_cell(cell);
        }
    }
}

impl DataFrameColumn {
    fn new(name: &str) -> DataFrameColumn {
        DataFrameColumn { name: name.to_owned(), kinds: 0, filled: 0 }
    }

    /// Updates the summary with a cell. Nulls have no kind: they only make a column incomplete.
    fn observe_cell(&mut self, cell: &DataFrameCell) {
        let kind = match cell {
            DataFrameCell::Time(_) => TIME,
            DataFrameCell::Json(Value::Null) => return,
            DataFrameCell::Json(Value::Bool(_)) => BOOL,
            DataFrameCell::Json(Value::Number(number)) if number.is_f64() => FLOAT,
            DataFrameCell::Json(Value::Number(_)) => INTEGER,
            DataFrameCell::Json(Value::String(_)) => TEXT,
            DataFrameCell::Json(Value::Array(_) | Value::Object(_)) => OTHER,
        };
        self.kinds |= kind;
        self.filled += 1;
    }

    /// Builds the field of pandas' table schema; `field` is the name of the column there. Incomplete columns of
    /// integers become floats, as in pandas, which has no missing integers by default.
    pub(super) fn pandas_schema(&self, field: &str, rows: usize) -> Value {
        let is_full = self.filled == rows;
        match self.kinds {
            TIME => json!({"name": field, "type": "datetime", "tz": "UTC"}),
            TEXT => json!({"name": field, "type": "string", "extDtype": "str"}),
            BOOL if is_full => json!({"name": field, "type": "boolean"}),
            INTEGER if is_full => json!({"name": field, "type": "integer"}),
            kinds if kinds != 0 && kinds & !(INTEGER | FLOAT) == 0 => {
                json!({"name": field, "type": "number"})
            }
            _ => json!({"name": field, "type": "string"}),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_what_they_hold() {
        let mut columns = DataFrameSchema::new(&["id".to_owned()]);
        let row = |id: &str, cells: &[(&str, Value)]| {
            let cells = cells.iter().map(|(name, value)| ((*name).to_owned(), DataFrameCell::Json(value.clone())));
            (vec![DataFrameCell::Json(id.into())], cells.collect())
        };
        columns.add_row(&row("a", &[("n", json!(1)), ("t", json!("x")), ("b", json!(true)), ("m", json!(1))]));
        columns.add_row(&row("b", &[("n", json!(2)), ("t", Value::Null), ("late", json!(5)), ("m", json!("x"))]));
        let kinds: Vec<Value> =
            columns.columns.iter().map(|column| column.pandas_schema(&column.name, 2)["type"].clone()).collect();
        assert_eq!(kinds, ["integer", "string", "string", "string", "number"]);
        assert_eq!(
            columns.index[0].pandas_schema("0_id", 2),
            json!({"name": "0_id", "type": "string", "extDtype": "str"})
        );
    }
}
