//! Reads tables in Parquet, row by row. The rows of a group are decoded one after the other, so that memory does not
//! grow with the file.

use std::fs::File;

use parquet::file::reader::{FileReader, SerializedFileReader};
use serde_json::{Map, Value as Json};

use super::{describe_unreadable_table, table_format};
use crate::import_sink::{ImportError, ImportSink};

/// Reads a table of spans. Fails if its columns prove no known format.
pub fn read_parquet_table(file: File, sink: &mut dyn ImportSink) -> Result<(), ImportError> {
    let failed = |error: parquet::errors::ParquetError| ImportError::new(format!("unreadable Parquet file: {error}"));
    let reader = SerializedFileReader::new(file).map_err(failed)?;
    let schema = reader.metadata().file_metadata().schema().clone();
    let columns: Vec<&str> = schema.get_fields().iter().map(|field| field.name()).collect();
    let format = table_format(&columns).ok_or_else(|| ImportError::new(describe_unreadable_table(&columns)))?;
    for (number, row) in reader.get_row_iter(None).map_err(failed)?.enumerate() {
        // The pages after a broken one cannot be found.
        let row = row.map_err(failed)?;
        let Json::Object(row) = row.to_json_value() else { continue };
        if let Err(error) = format.read_row(restore_cells(row), sink) {
            sink.report_bad_record(&format!("row {}: {error}", number + 1));
        }
    }
    Ok(())
}

/// Undoes changes of Parquet. It has one schema for all rows, so objects have a null for each field of any other
/// object, and times are texts with a space before the zone.
fn restore_cells(row: Map<String, Json>) -> Map<String, Json> {
    let restored = row.into_iter().map(|(column, mut cell)| {
        remove_nulls(&mut cell);
        if let Json::String(text) = &mut cell
            && column.to_ascii_lowercase().ends_with("time")
        {
            *text = text.replacen(" +", "+", 1);
        }
        (column, cell)
    });
    restored.collect()
}

/// Removes null fields, at any depth. Recursion is bounded by the depth of the schema.
fn remove_nulls(value: &mut Json) {
    match value {
        Json::Object(object) => {
            object.retain(|_, field| !field.is_null());
            object.values_mut().for_each(remove_nulls);
        }
        Json::Array(items) => items.iter_mut().for_each(remove_nulls),
        _ => {}
    }
}
