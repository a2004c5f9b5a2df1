//! Writes a table in the JSON form that pandas reads (`orient="table"`), row by row. The schema follows after the rows,
//! because it is known only then; readers find it by its key.

use std::ops::ControlFlow;

use gradus_store::StoreError;
use serde_json::{Value, json};

use super::dataframe_rows::{DataFrameCell, DataFrameRow, DataFrameSchema};
use super::query::SpanQuery;
use super::rows::{self, BASE_COLUMNS, SpanQueryBounds};
use crate::state::ServerState;
use crate::stream::ResponseSink;

/// Writes the rows of a query. Stops early without an error if the client has disconnected.
pub(super) fn write_json_frame(
    server: &ServerState,
    query: &SpanQuery,
    bounds: &SpanQueryBounds,
    sink: &mut ResponseSink,
) -> Result<(), StoreError> {
    let index = query.index_names();
    let mut columns = DataFrameSchema::new(&index);
    for name in list_declared_columns(query) {
        columns.ensure_column(&name);
    }
    sink.write(b"{\"data\":[");
    let mut line = Vec::new();
    rows::visit_query_rows(server, query, bounds, &mut |row| {
        line.clear();
        line.extend_from_slice(if columns.rows == 0 { b"" } else { b"," });
        columns.add_row(&row);
        write_row(&row, &mut columns, &mut line);
        sink.write(&line);
        if sink.is_gone() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    if columns.rows == 0 {
        for name in list_projected_columns(query) {
            columns.ensure_column(&name);
        }
    }
    let keys: Vec<String> = index.iter().enumerate().map(|(number, name)| format!("{number}_{name}")).collect();
    let mut fields: Vec<Value> = Vec::new();
    for (column, key) in columns.index.iter().zip(&keys) {
        fields.push(column.pandas_schema(key, columns.rows));
    }
    for (number, column) in columns.columns.iter().enumerate() {
        fields.push(column.pandas_schema(&format_field_name(index.len() + number, &column.name), columns.rows));
    }
    let schema = json!({"fields": fields, "primaryKey": keys, "pandas_version": "1.4.0"});
    sink.write(format!("],\"schema\":{schema}}}").as_bytes());
    Ok(())
}

/// Lists the columns that a table has even without rows.
pub(super) fn list_declared_columns(query: &SpanQuery) -> Vec<String> {
    if query.wants_all_attributes() {
        return BASE_COLUMNS.iter().map(|name| (*name).to_owned()).collect();
    }
    let selected = query.select.iter().filter(|(name, _)| *name != query.index.key);
    selected.map(|(name, _)| query.output_column_name(name).to_owned()).collect()
}

/// Lists the columns that `explode` and `concat` name. They are added only to empty tables, where no row defines
/// them.
pub(super) fn list_projected_columns(query: &SpanQuery) -> Vec<String> {
    let lists = [&query.explode, &query.concat].into_iter().flatten();
    lists.flat_map(|lists| &lists.columns).map(|(name, _)| query.output_column_name(name).to_owned()).collect()
}

/// Formats a field name. A number before the name distinguishes columns with the same name.
fn format_field_name(number: usize, name: &str) -> String {
    format!("{number}_{name}")
}

/// Writes a row, which the caller has added to `columns` before. They are mutable only to look up column numbers.
fn write_row(row: &DataFrameRow, columns: &mut DataFrameSchema, out: &mut Vec<u8>) {
    out.push(b'{');
    let count = columns.index.len();
    for (number, cell) in row.0.iter().enumerate() {
        out.extend_from_slice(if number == 0 { b"" } else { b"," });
        write_pair(&format_field_name(number, &columns.index[number].name), cell, out);
    }
    for (name, cell) in &row.1 {
        out.push(b',');
        write_pair(&format_field_name(count + columns.ensure_column(name), name), cell, out);
    }
    out.push(b'}');
}

fn write_pair(name: &str, cell: &DataFrameCell, out: &mut Vec<u8>) {
    // Writing to memory cannot fail.
    let _ = serde_json::to_writer(&mut *out, name);
    out.push(b':');
    let _ = match cell {
        DataFrameCell::Json(value) => serde_json::to_writer(&mut *out, value),
        DataFrameCell::Time(us) => serde_json::to_writer(&mut *out, &format_pandas_time(*us)),
    };
}

/// Formats RFC 3339 with nine digits, as pandas writes times. `None` if the time is out of range.
fn format_pandas_time(us: i64) -> Option<String> {
    let time = jiff::Timestamp::from_microsecond(us).ok()?;
    Some(format!("{time:.9}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_nine_digits() {
        assert_eq!(format_pandas_time(1_767_268_800_500_000).as_deref(), Some("2026-01-01T12:00:00.500000000Z"));
        assert_eq!(format_pandas_time(0).as_deref(), Some("1970-01-01T00:00:00.000000000Z"));
        assert_eq!(format_pandas_time(i64::MAX), None);
    }
}
