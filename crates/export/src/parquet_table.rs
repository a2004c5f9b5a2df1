//! Writes the rows of a [`FlatTable`] as Parquet.
//!
//! Rows arrive as lines of JSON, as those of every export do, so that all formats are scrubbed alike. They are
//! collected up to the size of a row group, which bounds memory.

use std::io::{self, Write};
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, TimeUnit, Type as PhysicalType, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::{Type, TypePtr};
use serde_json::{Map, Value as Json};

use crate::flat_tables::{ColumnKind, FlatTable};

/// Maximum number of rows of a row group.
const MAX_GROUP_ROWS: usize = 20_000;
/// Maximum size of the rows of a row group, in bytes of JSON.
const MAX_GROUP_BYTES: usize = 64 << 20;

/// A table that is being written. It is complete after [`finish`](Self::finish).
pub struct ParquetTableWriter<W: Write + Send> {
    writer: SerializedFileWriter<W>,
    table: FlatTable,
    /// The line that is being received.
    line: Vec<u8>,
    rows: Vec<Map<String, Json>>,
    row_bytes: usize,
}

impl<W: Write + Send> std::fmt::Debug for ParquetTableWriter<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ParquetTable").field("table", &self.table).finish_non_exhaustive()
    }
}

impl<W: Write + Send> ParquetTableWriter<W> {
    pub fn new(table: FlatTable, out: W) -> io::Result<Self> {
        let level = ZstdLevel::try_new(3).map_err(io::Error::other)?;
        let properties = WriterProperties::builder().set_compression(Compression::ZSTD(level)).build();
        let schema = build_schema(table).map_err(io::Error::other)?;
        let writer = SerializedFileWriter::new(out, schema, Arc::new(properties)).map_err(io::Error::other)?;
        Ok(ParquetTableWriter { writer, table, line: Vec::new(), rows: Vec::new(), row_bytes: 0 })
    }

    /// Writes what is left, and the footer without which the file cannot be read.
    pub fn finish(mut self) -> io::Result<W> {
        self.write_group()?;
        self.writer.into_inner().map_err(io::Error::other)
    }

    fn add_row(&mut self) -> io::Result<()> {
        let line = std::mem::take(&mut self.line);
        self.row_bytes += line.len();
        self.rows.push(serde_json::from_slice(&line)?);
        if self.rows.len() >= MAX_GROUP_ROWS || self.row_bytes >= MAX_GROUP_BYTES {
            self.write_group()?;
        }
        Ok(())
    }

    fn write_group(&mut self) -> io::Result<()> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let rows = std::mem::take(&mut self.rows);
        self.row_bytes = 0;
        self.write_columns(&rows).map_err(io::Error::other)
    }

    fn write_columns(&mut self, rows: &[Map<String, Json>]) -> Result<(), ParquetError> {
        let mut group = self.writer.next_row_group()?;
        for (name, kind) in self.table.columns() {
            let Some(mut column) = group.next_column()? else { break };
            let cells = rows.iter().map(|row| row.get(*name).unwrap_or(&Json::Null));
            match kind {
                ColumnKind::Text => write_cells::<ByteArrayType>(&mut column, cells, text_cell),
                ColumnKind::Integer => write_cells::<Int64Type>(&mut column, cells, integer_cell),
                ColumnKind::Number => write_cells::<DoubleType>(&mut column, cells, Json::as_f64),
                ColumnKind::Flag => write_cells::<BoolType>(&mut column, cells, Json::as_bool),
                ColumnKind::Time => write_cells::<Int64Type>(&mut column, cells, time_cell),
            }?;
            column.close()?;
        }
        group.close()?;
        Ok(())
    }
}

impl<W: Write + Send> Write for ParquetTableWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let end = bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |at| at + 1);
        self.line.extend_from_slice(&bytes[..end]);
        if self.line.ends_with(b"\n") {
            self.add_row()?;
        }
        Ok(end)
    }

    /// Rows wait for their group, so there is nothing to flush.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn build_schema(table: FlatTable) -> Result<TypePtr, ParquetError> {
    let columns = table.columns().iter().map(|(name, kind)| {
        let (physical, logical) = match kind {
            ColumnKind::Text => (PhysicalType::BYTE_ARRAY, Some(LogicalType::String)),
            ColumnKind::Integer => (PhysicalType::INT64, None),
            ColumnKind::Number => (PhysicalType::DOUBLE, None),
            ColumnKind::Flag => (PhysicalType::BOOLEAN, None),
            // Spark reads no nanoseconds.
            ColumnKind::Time => (PhysicalType::INT64, Some(LogicalType::timestamp(true, TimeUnit::MICROS))),
        };
        let column = Type::primitive_type_builder(name, physical).with_repetition(Repetition::OPTIONAL);
        column.with_logical_type(logical).build().map(Arc::new)
    });
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    Ok(Arc::new(Type::group_type_builder(table.name()).with_fields(columns).build()?))
}

/// Writes one column of a row group. A level of 1 means that there is a value, and only values are written.
fn write_cells<'r, T: DataType>(
    column: &mut SerializedColumnWriter<'_>,
    cells: impl Iterator<Item = &'r Json>,
    read_cell: impl Fn(&Json) -> Option<T::T>,
) -> Result<(), ParquetError> {
    let (mut values, mut levels) = (Vec::new(), Vec::new());
    for cell in cells {
        let value = read_cell(cell);
        levels.push(i16::from(value.is_some()));
        values.extend(value);
    }
    column.typed::<T>().write_batch(&values, Some(&levels), None)?;
    Ok(())
}

fn text_cell(cell: &Json) -> Option<ByteArray> {
    cell.as_str().map(|text| ByteArray::from(text.as_bytes().to_vec()))
}

/// Counts of a trace can be any number; Parquet's integers are signed.
fn integer_cell(cell: &Json) -> Option<i64> {
    cell.as_i64().or_else(|| cell.as_u64().map(|_| i64::MAX))
}

/// Returns microseconds since 1970; `None` for text that is not a time.
fn time_cell(cell: &Json) -> Option<i64> {
    Some(cell.as_str()?.parse::<jiff::Timestamp>().ok()?.as_microsecond())
}

#[cfg(test)]
mod tests {
    use parquet::file::reader::{FileReader, SerializedFileReader};

    use super::*;

    /// Values and nulls in every kind of column, over more than one row group.
    #[test]
    fn rows_come_back_as_they_were_written() {
        let file = tempfile::tempfile().unwrap();
        let mut table = ParquetTableWriter::new(FlatTable::Steps, file.try_clone().unwrap()).unwrap();
        for number in 0..MAX_GROUP_ROWS + 1 {
            let start = if number % 2 == 0 { "\"2026-11-17T10:00:00.25Z\"" } else { "null" };
            let row = format!(
                "{{\"trajectory_id\":\"t\",\"step_index\":{number},\"tool\":\"\\u00e9\\n\",\"is_error\":{},\
                 \"prompt_tokens\":18446744073709551615,\"start_time\":{start}}}\n",
                number % 3 == 0
            );
            table.write_all(row.as_bytes()).unwrap();
        }
        table.finish().unwrap();
        let reader = SerializedFileReader::new(file).unwrap();
        assert_eq!(reader.num_row_groups(), 2);
        let rows: Vec<Json> = reader.get_row_iter(None).unwrap().map(|row| row.unwrap().to_json_value()).collect();
        assert_eq!(rows.len(), MAX_GROUP_ROWS + 1);
        let row = &rows[3];
        assert_eq!((&row["step_index"], &row["tool"], &row["is_error"]), (&3.into(), &"é\n".into(), &true.into()));
        assert_eq!((&row["start_time"], &row["thought"]), (&Json::Null, &Json::Null));
        assert_eq!(row["prompt_tokens"], i64::MAX);
        assert!(rows[4]["start_time"].as_str().unwrap().starts_with("2026-11-17 10:00:00.25"), "{}", rows[4]);
    }

    #[test]
    fn a_table_without_rows_can_be_read() {
        let file = tempfile::tempfile().unwrap();
        ParquetTableWriter::new(FlatTable::Verdicts, file.try_clone().unwrap()).unwrap().finish().unwrap();
        assert_eq!(SerializedFileReader::new(file).unwrap().metadata().file_metadata().num_rows(), 0);
    }
}
