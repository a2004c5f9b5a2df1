//! Holds the rows of a table until all of them are known, because an Arrow stream begins with the types of its columns.
//! Rows are in an unlinked temporary file, so that a long table takes no memory and is a consistent snapshot.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;

use serde_json::{Map, Number, Value};

use crate::phoenix::dataframe_rows::DataFrameCell;

/// A row: the values of its index, and the other cells by column number.
pub(super) struct SpooledRow {
    pub(super) index: Vec<DataFrameCell>,
    pub(super) cells: Vec<(usize, DataFrameCell)>,
}

/// Written first and then read once. The format is private to this process, and each row has its length in front.
pub(super) struct ArrowRowSpool {
    file: BufWriter<File>,
    row: Vec<u8>,
    bytes: u64,
}

/// Maximum size of a table. The disk is for spans.
const MAX_SPOOL_BYTES: u64 = 8 << 30;
const SPOOL_BUFFER_BYTES: usize = 1 << 18;

impl ArrowRowSpool {
    /// Creates the file in the data folder, because the system's folder for temporary files may be in memory.
    pub(super) fn new(folder: &Path) -> io::Result<ArrowRowSpool> {
        let file = BufWriter::with_capacity(SPOOL_BUFFER_BYTES, tempfile::tempfile_in(folder)?);
        Ok(ArrowRowSpool { file, row: Vec::new(), bytes: 0 })
    }

    /// Fails if the disk is full or the table exceeds [`MAX_SPOOL_BYTES`].
    pub(super) fn add(&mut self, row: &SpooledRow) -> io::Result<()> {
        self.row.clear();
        put_number(row.index.len(), &mut self.row);
        row.index.iter().for_each(|cell| put_cell(cell, &mut self.row));
        put_number(row.cells.len(), &mut self.row);
        for (column, cell) in &row.cells {
            put_number(*column, &mut self.row);
            put_cell(cell, &mut self.row);
        }
        self.bytes += self.row.len() as u64;
        if self.bytes > MAX_SPOOL_BYTES {
            return Err(io::Error::other("a table is over 8 GB; ask for fewer spans with limit"));
        }
        self.file.write_all(&(self.row.len() as u64).to_le_bytes())?;
        self.file.write_all(&self.row)
    }

    /// Passes the rows on in their order until `take` returns false.
    pub(super) fn read(self, mut take: impl FnMut(SpooledRow) -> bool) -> io::Result<()> {
        let mut file = self.file.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.seek(SeekFrom::Start(0))?;
        let mut file = BufReader::with_capacity(SPOOL_BUFFER_BYTES, file);
        let (mut length, mut row) = ([0; 8], Vec::new());
        loop {
            match file.read_exact(&mut length) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                Err(error) => return Err(error),
            }
            row.resize(usize::try_from(u64::from_le_bytes(length)).map_err(io::Error::other)?, 0);
            file.read_exact(&mut row)?;
            let read = get_row(&mut row.as_slice());
            if !take(read.ok_or_else(|| io::Error::other("a row is not as it was written"))?) {
                return Ok(());
            }
        }
    }
}

fn put_number(number: usize, out: &mut Vec<u8>) {
    out.extend((number as u64).to_le_bytes());
}

fn put_text(text: &str, out: &mut Vec<u8>) {
    put_number(text.len(), out);
    out.extend(text.as_bytes());
}

/// Tags of values.
const TIME: u8 = 0;
const NULL: u8 = 1;
const FALSE: u8 = 2;
const TRUE: u8 = 3;
const INT: u8 = 4;
const LARGE_INT: u8 = 5;
const FLOAT: u8 = 6;
const TEXT: u8 = 7;
const LIST: u8 = 8;
const OBJECT: u8 = 9;

fn put_cell(cell: &DataFrameCell, out: &mut Vec<u8>) {
    match cell {
        DataFrameCell::Time(us) => {
            out.push(TIME);
            out.extend(us.to_le_bytes());
        }
        DataFrameCell::Json(value) => put_value(value, out),
    }
}

/// Writes a compact binary form of JSON. Integers keep their sign and size, because the type of the column depends on
/// them.
fn put_value(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.push(NULL),
        Value::Bool(is_true) => out.push(if *is_true { TRUE } else { FALSE }),
        Value::Number(number) => {
            let (kind, bytes) = match (number.as_i64(), number.as_u64()) {
                (Some(number), _) => (INT, number.to_le_bytes()),
                (None, Some(number)) => (LARGE_INT, number.to_le_bytes()),
                (None, None) => (FLOAT, number.as_f64().unwrap_or_default().to_le_bytes()),
            };
            out.push(kind);
            out.extend(bytes);
        }
        Value::String(text) => {
            out.push(TEXT);
            put_text(text, out);
        }
        Value::Array(items) => {
            out.push(LIST);
            put_number(items.len(), out);
            items.iter().for_each(|item| put_value(item, out));
        }
        Value::Object(entries) => {
            out.push(OBJECT);
            put_number(entries.len(), out);
            for (key, value) in entries {
                put_text(key, out);
                put_value(value, out);
            }
        }
    }
}

/// Reads a row; `None` if the bytes are corrupt, which means a defect of the disk.
fn get_row(bytes: &mut &[u8]) -> Option<SpooledRow> {
    let mut index = Vec::new();
    for _ in 0..get_number(bytes)? {
        index.push(get_cell(bytes)?);
    }
    let mut cells = Vec::new();
    for _ in 0..get_number(bytes)? {
        cells.push((get_number(bytes)?, get_cell(bytes)?));
    }
    Some(SpooledRow { index, cells })
}

fn get_word(bytes: &mut &[u8]) -> Option<[u8; 8]> {
    let (word, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*word)
}

fn get_number(bytes: &mut &[u8]) -> Option<usize> {
    usize::try_from(u64::from_le_bytes(get_word(bytes)?)).ok()
}

fn get_text(bytes: &mut &[u8]) -> Option<String> {
    let length = get_number(bytes)?;
    let (text, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    String::from_utf8(text.to_vec()).ok()
}

fn get_cell(bytes: &mut &[u8]) -> Option<DataFrameCell> {
    if bytes.first() == Some(&TIME) {
        *bytes = &bytes[1..];
        return Some(DataFrameCell::Time(i64::from_le_bytes(get_word(bytes)?)));
    }
    get_value(bytes).map(DataFrameCell::Json)
}

/// The inverse of [`put_value`]. The depth is bounded, since only values that were decoded within limits are written.
fn get_value(bytes: &mut &[u8]) -> Option<Value> {
    let (kind, rest) = bytes.split_first()?;
    *bytes = rest;
    Some(match *kind {
        NULL => Value::Null,
        FALSE => Value::Bool(false),
        TRUE => Value::Bool(true),
        INT => i64::from_le_bytes(get_word(bytes)?).into(),
        LARGE_INT => u64::from_le_bytes(get_word(bytes)?).into(),
        FLOAT => Value::Number(Number::from_f64(f64::from_le_bytes(get_word(bytes)?))?),
        TEXT => Value::String(get_text(bytes)?),
        LIST => {
            let mut items = Vec::new();
            for _ in 0..get_number(bytes)? {
                items.push(get_value(bytes)?);
            }
            Value::Array(items)
        }
        OBJECT => {
            let mut entries = Map::new();
            for _ in 0..get_number(bytes)? {
                entries.insert(get_text(bytes)?, get_value(bytes)?);
            }
            Value::Object(entries)
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>().prop_map(|number| json!(number)),
            ".{0,9}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 30, 5, |below| {
            prop_oneof![
                proptest::collection::vec(below.clone(), 0..5).prop_map(Value::from),
                proptest::collection::hash_map(".{0,4}", below, 0..5)
                    .prop_map(|entries| Value::Object(entries.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn rows_come_back_as_they_were(values in proptest::collection::vec(value(), 0..20), us in any::<i64>()) {
            let folder = tempfile::tempdir().expect("a folder");
            let mut spool = ArrowRowSpool::new(folder.path()).expect("a file");
            for (column, value) in values.iter().enumerate() {
                let row = SpooledRow {
                    index: vec![DataFrameCell::Time(us), DataFrameCell::Json(value.clone())],
                    cells: vec![(column, DataFrameCell::Json(value.clone())), (column + 7, DataFrameCell::Time(us))],
                };
                spool.add(&row).expect("added");
            }
            let mut at = 0;
            spool.read(|row| {
                let wanted = DataFrameCell::Json(values[at].clone());
                assert_eq!(row.index, [DataFrameCell::Time(us), wanted.clone()]);
                assert_eq!(row.cells, [(at, wanted), (at + 7, DataFrameCell::Time(us))]);
                at += 1;
                true
            })
            .expect("read");
            prop_assert_eq!(at, values.len());
        }
    }

    #[test]
    fn deep_values_come_back_too() {
        let mut deep = json!(1);
        for _ in 0..1000 {
            deep = json!([deep]);
        }
        let mut bytes = Vec::new();
        put_value(&deep, &mut bytes);
        assert_eq!(get_value(&mut bytes.as_slice()), Some(deep));
        assert_eq!(get_value(&mut [TEXT, 255, 255, 255, 255, 255, 255, 255, 255].as_slice()), None);
    }
}
