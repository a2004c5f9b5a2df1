//! Reads the columns of an Arrow stream that evaluations need: texts and numbers. The stream comes from the network,
//! so lengths, offsets and counts are checked against the received bytes.

use super::flat::FlatbufferTable;

/// Why a stream cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::phoenix) enum ArrowError {
    #[error("this is no Arrow stream: {0}")]
    Broken(&'static str),
    #[error("the Arrow stream has {0}, which cannot be read here; send columns of texts and numbers, uncompressed")]
    Unsupported(&'static str),
    #[error("more than {limit} rows in one request; send fewer at once")]
    TooMany { limit: usize },
}

/// The values of one column. Values of other types than texts and numbers are skipped.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::phoenix) enum ArrowColumnValues {
    Texts(Vec<Option<String>>),
    Numbers(Vec<Option<f64>>),
    /// Nothing but nulls.
    Nulls,
    /// Another type, which evaluations do not use.
    Others,
}

/// All batches of a stream in one table. Columns of texts and numbers have `rows` values.
#[derive(Debug, Default)]
pub(in crate::phoenix) struct ArrowTable {
    pub(in crate::phoenix) metadata: Vec<(String, String)>,
    pub(in crate::phoenix) columns: Vec<(String, ArrowColumnValues)>,
    pub(in crate::phoenix) rows: usize,
}

impl ArrowTable {
    /// Returns a text; `None` for null, for a missing column, and for a column of another type.
    pub(in crate::phoenix) fn text(&self, name: &str, row: usize) -> Option<&str> {
        match self.column(name)? {
            ArrowColumnValues::Texts(texts) => texts.get(row)?.as_deref(),
            _ => None,
        }
    }

    pub(in crate::phoenix) fn number(&self, name: &str, row: usize) -> Option<f64> {
        match self.column(name)? {
            ArrowColumnValues::Numbers(numbers) => *numbers.get(row)?,
            _ => None,
        }
    }

    pub(in crate::phoenix) fn column(&self, name: &str) -> Option<&ArrowColumnValues> {
        self.columns.iter().find(|(known, _)| known == name).map(|(_, values)| values)
    }
}

/// Types that are distinguished. Of other types, only the number of buffers is needed, to skip them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ArrowFieldKind {
    Null,
    Int {
        bits: i32,
        is_signed: bool,
    },
    Float {
        precision: i16,
    },
    Bool,
    Text {
        is_large: bool,
    },
    /// Skipped, with this many buffers of its own in addition to those of its children.
    Other {
        buffers: usize,
    },
}

/// A column of the schema. Children are skipped, but their buffers must be counted.
struct ArrowField {
    name: String,
    kind: ArrowFieldKind,
    children: Vec<ArrowField>,
}

/// Maximum nesting of columns, which bounds the recursion.
const MAX_DEPTH: usize = 16;
/// Maximum number of columns, nested ones included. An evaluation has three columns and an index. One bit in the
/// stream becomes sixteen bytes in memory, so columns multiply memory.
const MAX_FIELDS: usize = 100;
/// Maximum size of a column name, which is copied.
const MAX_COLUMN_NAME_BYTES: usize = 4096;
/// `MessageHeader` of Arrow's `Message.fbs`: 1 schema, 2 dictionary batch, 3 record batch.
const SCHEMA_MESSAGE: u8 = 1;
const BATCH_MESSAGE: u8 = 3;

/// Reads a whole stream of up to `most_rows` rows.
pub(in crate::phoenix) fn read_arrow_stream(mut bytes: &[u8], most_rows: usize) -> Result<ArrowTable, ArrowError> {
    let mut fields: Option<Vec<ArrowField>> = None;
    let mut found = ArrowTable::default();
    while let Some((message, body)) = next_message(&mut bytes)? {
        let header = message.table(2).ok_or(ArrowError::Broken("a message without content"))?;
        match (message.u8(1), &fields) {
            (SCHEMA_MESSAGE, None) => {
                let read = parse_arrow_schema(&header)?;
                found.metadata = parse_schema_metadata(&header);
                let empty = |field: &ArrowField| (field.name.clone(), create_empty_column(field.kind));
                found.columns = read.iter().map(empty).collect();
                fields = Some(read);
            }
            (BATCH_MESSAGE, Some(fields)) => read_record_batch(&header, body, fields, most_rows, &mut found)?,
            (2, _) => return Err(ArrowError::Unsupported("categories")),
            _ => return Err(ArrowError::Broken("messages in a wrong order")),
        }
    }
    if fields.is_none() {
        return Err(ArrowError::Broken("it has no schema"));
    }
    Ok(found)
}

/// Reads the next message and its body; `None` at the end of the stream, which may be explicit (length 0) or the end
/// of the bytes.
fn next_message<'b>(bytes: &mut &'b [u8]) -> Result<Option<(FlatbufferTable<'b>, &'b [u8])>, ArrowError> {
    /// The continuation marker. Streams of Arrow before 0.15 do not have it.
    const CONTINUES: u32 = u32::MAX;
    let number = |bytes: &mut &'b [u8]| {
        let (four, rest) = bytes.split_first_chunk::<4>()?;
        *bytes = rest;
        Some(u32::from_le_bytes(*four))
    };
    let Some(mut length) = number(bytes) else { return Ok(None) };
    if length == CONTINUES {
        length = number(bytes).ok_or(ArrowError::Broken("it breaks off"))?;
    }
    if length == 0 {
        return Ok(None);
    }
    let (head, rest) = bytes.split_at_checked(length as usize).ok_or(ArrowError::Broken("it breaks off"))?;
    let message = FlatbufferTable::parse_root(head).ok_or(ArrowError::Broken("a message cannot be read"))?;
    let body = usize::try_from(message.i64(3)).map_err(|_| ArrowError::Broken("a length below zero"))?;
    let (body, rest) = rest.split_at_checked(body).ok_or(ArrowError::Broken("it breaks off"))?;
    *bytes = rest;
    Ok(Some((message, body)))
}

/// Parses the schema. Its field 0 is the byte order: only little-endian data is supported.
fn parse_arrow_schema(header: &FlatbufferTable<'_>) -> Result<Vec<ArrowField>, ArrowError> {
    if header.i16(0) != 0 {
        return Err(ArrowError::Unsupported("numbers with their bytes turned round"));
    }
    let mut left = MAX_FIELDS;
    parse_arrow_fields(header, 1, 0, &mut left)
}

/// Parses columns. `left` counts the remaining columns over all levels of nesting.
fn parse_arrow_fields(
    table: &FlatbufferTable<'_>,
    number: usize,
    depth: usize,
    left: &mut usize,
) -> Result<Vec<ArrowField>, ArrowError> {
    let tables = table.tables(number).ok_or(ArrowError::Broken("columns cannot be read"))?;
    *left = left.checked_sub(tables.len()).ok_or(ArrowError::Unsupported("too many columns"))?;
    if depth > MAX_DEPTH {
        return Err(ArrowError::Unsupported("columns that are nested too deep"));
    }
    let mut read = Vec::with_capacity(tables.len());
    for field in tables {
        // Field 4 of `Field` is the dictionary encoding, which pandas uses for categories.
        if field.has_field(4) {
            return Err(ArrowError::Unsupported("categories"));
        }
        let kind = parse_field_kind(&field)?;
        let children = parse_arrow_fields(&field, 5, depth + 1, left)?;
        let name = field.text(0).unwrap_or_default();
        if name.len() > MAX_COLUMN_NAME_BYTES {
            return Err(ArrowError::Broken("a column's name is too long"));
        }
        read.push(ArrowField { name: name.to_owned(), kind, children });
    }
    Ok(read)
}

/// Parses the type, which is numbered as in the union `Type` of Arrow's `Schema.fbs`. Unions and newer types are
/// refused, because their buffers differ.
fn parse_field_kind(field: &FlatbufferTable<'_>) -> Result<ArrowFieldKind, ArrowError> {
    let details = field.table(3);
    let number = |place: usize| details.as_ref().map_or(0, |table| table.i32(place));
    Ok(match field.u8(2) {
        1 => ArrowFieldKind::Null,
        2 => ArrowFieldKind::Int { bits: number(0), is_signed: details.is_some_and(|table| table.u8(1) != 0) },
        3 => ArrowFieldKind::Float { precision: details.map_or(0, |table| table.i16(0)) },
        5 => ArrowFieldKind::Text { is_large: false },
        20 => ArrowFieldKind::Text { is_large: true },
        6 => ArrowFieldKind::Bool,
        4 | 19 => ArrowFieldKind::Other { buffers: 3 },
        7..=12 | 15 | 17 | 18 | 21 => ArrowFieldKind::Other { buffers: 2 },
        13 | 16 => ArrowFieldKind::Other { buffers: 1 },
        _ => return Err(ArrowError::Unsupported("a type of columns that is not known")),
    })
}

fn create_empty_column(kind: ArrowFieldKind) -> ArrowColumnValues {
    match kind {
        ArrowFieldKind::Null => ArrowColumnValues::Nulls,
        ArrowFieldKind::Int { .. } | ArrowFieldKind::Float { .. } | ArrowFieldKind::Bool => {
            ArrowColumnValues::Numbers(Vec::new())
        }
        ArrowFieldKind::Text { .. } => ArrowColumnValues::Texts(Vec::new()),
        ArrowFieldKind::Other { .. } => ArrowColumnValues::Others,
    }
}

/// Parses a bounded number of key-value pairs of the schema. Long ones are left out.
fn parse_schema_metadata(header: &FlatbufferTable<'_>) -> Vec<(String, String)> {
    const MAX_METADATA_ENTRIES: usize = 100;
    const MAX_METADATA_BYTES: usize = 64 << 10;
    let pairs = header.tables(2).unwrap_or_default();
    let texts = |pair: &FlatbufferTable<'_>| {
        let (key, value) = (pair.text(0).unwrap_or_default(), pair.text(1).unwrap_or_default());
        // pandas' description of a wide frame is long, and is not used here.
        (key.len().max(value.len()) <= MAX_METADATA_BYTES).then(|| (key.to_owned(), value.to_owned()))
    };
    pairs.iter().take(MAX_METADATA_ENTRIES).filter_map(texts).collect()
}

/// Takes the nodes and buffers of a record batch in order. Columns have no names here and are identified by their
/// position.
struct ArrowBatchReader<'b> {
    body: &'b [u8],
    nodes: std::vec::IntoIter<(i64, i64)>,
    buffers: std::vec::IntoIter<(i64, i64)>,
    /// The end of the last buffer.
    used: usize,
}

impl<'b> ArrowBatchReader<'b> {
    /// Reads the number of values of the next column.
    fn next_length(&mut self) -> Result<usize, ArrowError> {
        let (length, _) = self.nodes.next().ok_or(ArrowError::Broken("a column is missing"))?;
        usize::try_from(length).map_err(|_| ArrowError::Broken("a length below zero"))
    }

    /// Returns the bytes of the next buffer, which must lie inside of the body and after the last one.
    fn next_buffer(&mut self) -> Result<&'b [u8], ArrowError> {
        let outside = || ArrowError::Broken("a column lies outside");
        let (offset, length) = self.buffers.next().ok_or(ArrowError::Broken("a column is missing"))?;
        let offset = usize::try_from(offset).map_err(|_| outside())?;
        let end = usize::try_from(length).ok().and_then(|length| offset.checked_add(length));
        let end = end.ok_or_else(outside)?;
        let buffer = self.body.get(offset..end).ok_or_else(outside)?;
        // Writers put buffers one after another. Buffers that share bytes would be copied for each column, which
        // multiplies memory.
        if !buffer.is_empty() {
            if offset < self.used {
                return Err(ArrowError::Broken("columns lie over each other"));
            }
            self.used = end;
        }
        Ok(buffer)
    }

    /// Skips a column and its children.
    fn skip_column(&mut self, field: &ArrowField) -> Result<(), ArrowError> {
        self.next_length()?;
        let own = match field.kind {
            ArrowFieldKind::Null => 0,
            ArrowFieldKind::Text { .. } => 3,
            ArrowFieldKind::Int { .. } | ArrowFieldKind::Float { .. } | ArrowFieldKind::Bool => 2,
            ArrowFieldKind::Other { buffers } => buffers,
        };
        for _ in 0..own {
            self.next_buffer()?;
        }
        field.children.iter().try_for_each(|child| self.skip_column(child))
    }
}

/// Appends the rows of a batch to the table. The row limit is checked before anything is allocated.
fn read_record_batch(
    header: &FlatbufferTable<'_>,
    body: &[u8],
    fields: &[ArrowField],
    most_rows: usize,
    found: &mut ArrowTable,
) -> Result<(), ArrowError> {
    if header.has_field(3) {
        return Err(ArrowError::Unsupported("compressed columns"));
    }
    let rows = usize::try_from(header.i64(0)).map_err(|_| ArrowError::Broken("a length below zero"))?;
    let after = found.rows.checked_add(rows).filter(|after| *after <= most_rows);
    found.rows = after.ok_or(ArrowError::TooMany { limit: most_rows })?;
    let pairs = |number| header.i64_pairs(number).ok_or(ArrowError::Broken("a batch cannot be read"));
    let mut parts = ArrowBatchReader { body, nodes: pairs(1)?.into_iter(), buffers: pairs(2)?.into_iter(), used: 0 };
    for (field, (_, values)) in fields.iter().zip(&mut found.columns) {
        match (field.kind, values) {
            (ArrowFieldKind::Text { is_large }, ArrowColumnValues::Texts(texts)) => {
                texts.extend(read_texts(&mut parts, is_large, rows)?);
            }
            (
                kind @ (ArrowFieldKind::Int { .. } | ArrowFieldKind::Float { .. } | ArrowFieldKind::Bool),
                ArrowColumnValues::Numbers(numbers),
            ) => {
                numbers.extend(read_numbers(&mut parts, kind, rows)?);
            }
            _ => parts.skip_column(field)?,
        }
    }
    Ok(())
}

/// Whether a row has a value, by the validity bitmap. Without a bitmap every row has one.
fn is_value_present(validity: &[u8], row: usize) -> Result<bool, ArrowError> {
    if validity.is_empty() {
        return Ok(true);
    }
    let byte = validity.get(row / 8).ok_or(ArrowError::Broken("a column is too short"))?;
    Ok(byte >> (row % 8) & 1 == 1)
}

/// Reads a column of texts. They are copied, so that the stream can be freed. `Utf8` has offsets of 32 bits and
/// `LargeUtf8` of 64.
fn read_texts(
    parts: &mut ArrowBatchReader<'_>,
    is_large: bool,
    rows: usize,
) -> Result<Vec<Option<String>>, ArrowError> {
    const SHORT: ArrowError = ArrowError::Broken("a column is too short");
    if parts.next_length()? != rows {
        return Err(ArrowError::Broken("a column has another length than its batch"));
    }
    let (validity, offsets, data) = (parts.next_buffer()?, parts.next_buffer()?, parts.next_buffer()?);
    let offset = |row: usize| -> Result<usize, ArrowError> {
        let number = if is_large {
            let bytes = offsets.get(row * 8..row * 8 + 8).and_then(|bytes| bytes.try_into().ok());
            i64::from_le_bytes(bytes.ok_or(SHORT)?)
        } else {
            let bytes = offsets.get(row * 4..row * 4 + 4).and_then(|bytes| bytes.try_into().ok());
            i64::from(i32::from_le_bytes(bytes.ok_or(SHORT)?))
        };
        usize::try_from(number).map_err(|_| ArrowError::Broken("a text lies outside"))
    };
    let mut texts = Vec::new();
    for row in 0..rows {
        let range = offset(row)?..offset(row + 1)?;
        let bytes = data.get(range).ok_or(ArrowError::Broken("a text lies outside"))?;
        let text = std::str::from_utf8(bytes).map_err(|_| ArrowError::Broken("a text is no UTF-8"))?;
        texts.push(is_value_present(validity, row)?.then(|| text.to_owned()));
    }
    Ok(texts)
}

/// Reads a column of integers, floats or booleans as `f64`; nulls and NaN are `None`.
fn read_numbers(
    parts: &mut ArrowBatchReader<'_>,
    kind: ArrowFieldKind,
    rows: usize,
) -> Result<Vec<Option<f64>>, ArrowError> {
    if parts.next_length()? != rows {
        return Err(ArrowError::Broken("a column has another length than its batch"));
    }
    let (validity, data) = (parts.next_buffer()?, parts.next_buffer()?);
    let mut numbers = Vec::new();
    for row in 0..rows {
        let number = decode_column_number(data, kind, row)?;
        // pandas writes missing numbers as NaN.
        let is_value_present = is_value_present(validity, row)? && !number.is_nan();
        numbers.push(is_value_present.then_some(number));
    }
    Ok(numbers)
}

/// Decodes a number as `f64`, in which scores and positions are exact.
fn decode_column_number(data: &[u8], kind: ArrowFieldKind, row: usize) -> Result<f64, ArrowError> {
    fn at<const N: usize>(data: &[u8], row: usize) -> Result<[u8; N], ArrowError> {
        let bytes = data.get(row * N..row * N + N).and_then(|bytes| bytes.try_into().ok());
        bytes.ok_or(ArrowError::Broken("a column is too short"))
    }
    Ok(match kind {
        ArrowFieldKind::Float { precision: 2 } => f64::from_le_bytes(at(data, row)?),
        ArrowFieldKind::Float { precision: 1 } => f64::from(f32::from_le_bytes(at(data, row)?)),
        ArrowFieldKind::Int { bits: 64, is_signed: true } => i64::from_le_bytes(at(data, row)?) as f64,
        ArrowFieldKind::Int { bits: 64, is_signed: false } => u64::from_le_bytes(at(data, row)?) as f64,
        ArrowFieldKind::Int { bits: 32, is_signed: true } => f64::from(i32::from_le_bytes(at(data, row)?)),
        ArrowFieldKind::Int { bits: 32, is_signed: false } => f64::from(u32::from_le_bytes(at(data, row)?)),
        ArrowFieldKind::Int { bits: 16, is_signed: true } => f64::from(i16::from_le_bytes(at(data, row)?)),
        ArrowFieldKind::Int { bits: 16, is_signed: false } => f64::from(u16::from_le_bytes(at(data, row)?)),
        ArrowFieldKind::Int { bits: 8, is_signed: true } => f64::from(i8::from_le_bytes(at(data, row)?)),
        ArrowFieldKind::Int { bits: 8, is_signed: false } => f64::from(u8::from_le_bytes(at(data, row)?)),
        ArrowFieldKind::Bool => {
            let byte = data.get(row / 8).ok_or(ArrowError::Broken("a column is too short"))?;
            f64::from(byte >> (row % 8) & 1)
        }
        _ => return Err(ArrowError::Unsupported("numbers of half the usual size")),
    })
}

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;
