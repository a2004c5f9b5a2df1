//! Writes Arrow's IPC stream format: a schema message, record batches, and an end marker.

use serde_json::Value;

use super::flat::{self, FlatbufferField, FlatbufferNode};
use super::types::ArrowColumnType;
use crate::phoenix::dataframe_rows::DataFrameCell;

/// `MetadataVersion.V5`, which is number 4.
const METADATA_VERSION: i16 = 4;
const SCHEMA_MESSAGE: u8 = 1;
const BATCH_MESSAGE: u8 = 3;
/// The end of a stream: a continuation marker and a length of 0.
pub(super) const END_OF_STREAM: [u8; 8] = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];

/// Encodes the first message of a stream.
pub(super) fn encode_schema_message(columns: &[(String, ArrowColumnType)], metadata: &[(&str, String)]) -> Vec<u8> {
    let fields = columns.iter().map(|(name, kind)| build_field_node(name, kind)).collect();
    let pairs = metadata.iter().map(|(key, value)| {
        FlatbufferNode::Table(vec![
            FlatbufferField::Node(FlatbufferNode::Text((*key).to_owned())),
            FlatbufferField::Node(FlatbufferNode::Text(value.clone())),
        ])
    });
    let header = FlatbufferNode::Table(vec![
        FlatbufferField::I16(0),
        FlatbufferField::Node(FlatbufferNode::List(fields)),
        FlatbufferField::Node(FlatbufferNode::List(pairs.collect())),
    ]);
    encode_ipc_message(SCHEMA_MESSAGE, header, &[])
}

/// Builds the table `Field` of Arrow's `Schema.fbs`: name, nullable, type number, type, dictionary, children.
fn build_field_node(name: &str, kind: &ArrowColumnType) -> FlatbufferNode {
    let int = |bits: i32| FlatbufferNode::Table(vec![FlatbufferField::I32(bits), FlatbufferField::U8(1)]);
    let nothing = || FlatbufferNode::Table(Vec::new());
    let (number, details, children) = match kind {
        ArrowColumnType::Null => (1, nothing(), Vec::new()),
        ArrowColumnType::Bool => (6, nothing(), Vec::new()),
        ArrowColumnType::Int => (2, int(64), Vec::new()),
        ArrowColumnType::Float => (3, FlatbufferNode::Table(vec![FlatbufferField::I16(2)]), Vec::new()),
        ArrowColumnType::Text | ArrowColumnType::Mixed => (5, nothing(), Vec::new()),
        ArrowColumnType::Time => (
            10,
            FlatbufferNode::Table(vec![
                FlatbufferField::I16(3),
                FlatbufferField::Node(FlatbufferNode::Text("UTC".to_owned())),
            ]),
            Vec::new(),
        ),
        ArrowColumnType::List(item) => (12, nothing(), vec![build_field_node("item", item)]),
        ArrowColumnType::Struct(fields) => {
            (13, nothing(), fields.iter().map(|(name, kind)| build_field_node(name, kind)).collect())
        }
    };
    FlatbufferNode::Table(vec![
        FlatbufferField::Node(FlatbufferNode::Text(name.to_owned())),
        FlatbufferField::U8(1),
        FlatbufferField::U8(number),
        FlatbufferField::Node(details),
        FlatbufferField::Empty,
        FlatbufferField::Node(FlatbufferNode::List(children)),
    ])
}

/// Encodes a record batch. Every column has `rows` cells, and a missing cell is null.
pub(super) fn encode_batch_message(
    columns: &[(&ArrowColumnType, Vec<Option<&DataFrameCell>>)],
    rows: usize,
) -> Vec<u8> {
    let mut arrays = ArrowBatchBuilder::default();
    for (kind, cells) in columns {
        match kind {
            ArrowColumnType::Time => arrays.push_timestamps(cells),
            kind => {
                let values: Vec<Option<&Value>> = cells.iter().map(|cell| get_cell_json(*cell)).collect();
                arrays.push_column(kind, &values);
            }
        }
    }
    let header = FlatbufferNode::Table(vec![
        FlatbufferField::I64(rows as i64),
        FlatbufferField::Node(FlatbufferNode::Pairs(arrays.nodes)),
        FlatbufferField::Node(FlatbufferNode::Pairs(arrays.buffers)),
    ]);
    encode_ipc_message(BATCH_MESSAGE, header, &arrays.body)
}

/// Returns the JSON value of a cell. JSON null and a missing cell are both null in Arrow.
fn get_cell_json(cell: Option<&DataFrameCell>) -> Option<&Value> {
    match cell {
        Some(DataFrameCell::Json(value)) if !value.is_null() => Some(value),
        _ => None,
    }
}

/// Encodes a message in the encapsulated format: a marker, the length of the metadata padded to 8 bytes, the
/// metadata, the body.
fn encode_ipc_message(kind: u8, header: FlatbufferNode, body: &[u8]) -> Vec<u8> {
    let root = FlatbufferNode::Table(vec![
        FlatbufferField::I16(METADATA_VERSION),
        FlatbufferField::U8(kind),
        FlatbufferField::Node(header),
        FlatbufferField::I64(body.len() as i64),
    ]);
    let mut head = flat::encode_flatbuffer(&root);
    while !head.len().is_multiple_of(8) {
        head.push(0);
    }
    let mut out = vec![0xff; 4];
    out.extend((head.len() as u32).to_le_bytes());
    out.extend(head);
    out.extend(body);
    out
}

/// The columns of a batch in order. `nodes` are pairs of length and null count, `buffers` pairs of offset and length.
#[derive(Default)]
struct ArrowBatchBuilder {
    nodes: Vec<(i64, i64)>,
    buffers: Vec<(i64, i64)>,
    body: Vec<u8>,
}

impl ArrowBatchBuilder {
    /// Writes a buffer, padded to 8 bytes; the recorded length is without padding.
    fn push_buffer(&mut self, bytes: &[u8]) {
        self.buffers.push((self.body.len() as i64, bytes.len() as i64));
        self.body.extend(bytes);
        while !self.body.len().is_multiple_of(8) {
            self.body.push(0);
        }
    }

    /// Writes the node and the validity bitmap of a column. The bitmap is empty if there are no nulls.
    fn begin_column(&mut self, is_there: &[bool]) {
        let nulls = is_there.iter().filter(|is_there| !**is_there).count();
        self.nodes.push((is_there.len() as i64, nulls as i64));
        self.push_buffer(&if nulls == 0 { Vec::new() } else { pack_bits(is_there) });
    }

    /// Writes times in nanoseconds since 1970, which is the only resolution of older pandas.
    fn push_timestamps(&mut self, cells: &[Option<&DataFrameCell>]) {
        let times: Vec<Option<i64>> = cells
            .iter()
            .map(|cell| match cell {
                Some(DataFrameCell::Time(us)) => Some(us.saturating_mul(1000)),
                _ => None,
            })
            .collect();
        self.begin_column(&times.iter().map(Option::is_some).collect::<Vec<bool>>());
        self.push_buffer(&times.iter().flat_map(|ns| ns.unwrap_or(0).to_le_bytes()).collect::<Vec<u8>>());
    }

    /// Writes a column, with the items of lists and the fields of objects in the order of the schema.
    fn push_column(&mut self, kind: &ArrowColumnType, values: &[Option<&Value>]) {
        if *kind == ArrowColumnType::Null {
            self.nodes.push((values.len() as i64, values.len() as i64));
            return;
        }
        self.begin_column(&values.iter().map(Option::is_some).collect::<Vec<bool>>());
        match kind {
            ArrowColumnType::Null | ArrowColumnType::Time => {}
            ArrowColumnType::Bool => {
                let is_true = |value: &Option<&Value>| value.and_then(Value::as_bool).unwrap_or(false);
                self.push_buffer(&pack_bits(&values.iter().map(is_true).collect::<Vec<bool>>()));
            }
            ArrowColumnType::Int => {
                let number = |value: &Option<&Value>| value.and_then(Value::as_i64).unwrap_or(0).to_le_bytes();
                self.push_buffer(&values.iter().flat_map(number).collect::<Vec<u8>>());
            }
            ArrowColumnType::Float => {
                let number = |value: &Option<&Value>| value.and_then(Value::as_f64).unwrap_or(0.0).to_le_bytes();
                self.push_buffer(&values.iter().flat_map(number).collect::<Vec<u8>>());
            }
            ArrowColumnType::Text | ArrowColumnType::Mixed => self.push_texts(values),
            ArrowColumnType::List(item) => {
                let lists = values.iter().map(|value| value.and_then(Value::as_array).map_or(&[][..], Vec::as_slice));
                self.push_offsets(lists.clone().map(<[Value]>::len));
                let items: Vec<Option<&Value>> =
                    lists.flatten().map(|item| Some(item).filter(|item| !item.is_null())).collect();
                self.push_column(item, &items);
            }
            ArrowColumnType::Struct(fields) => {
                for (name, kind) in fields {
                    let below: Vec<Option<&Value>> = values
                        .iter()
                        .map(|value| value.and_then(|value| value.get(name)).filter(|value| !value.is_null()))
                        .collect();
                    self.push_column(kind, &below);
                }
            }
        }
    }

    /// Writes texts. Other values are written as JSON: columns of mixed types are text.
    fn push_texts(&mut self, values: &[Option<&Value>]) {
        let mut data = Vec::new();
        let mut lengths = Vec::with_capacity(values.len());
        for value in values {
            let before = data.len();
            match value {
                Some(Value::String(text)) => data.extend(text.as_bytes()),
                Some(other) => data.extend(other.to_string().as_bytes()),
                None => {}
            }
            lengths.push(data.len() - before);
        }
        self.push_offsets(lengths.into_iter());
        self.push_buffer(&data);
    }

    /// Writes the offsets of variable-length values: one more than values, starting at 0.
    fn push_offsets(&mut self, lengths: impl Iterator<Item = usize>) {
        let mut at = 0_i32;
        let mut offsets = at.to_le_bytes().to_vec();
        for length in lengths {
            // A batch has a few megabytes, so 32 bits are enough.
            at = at.saturating_add(i32::try_from(length).unwrap_or(i32::MAX));
            offsets.extend(at.to_le_bytes());
        }
        self.push_buffer(&offsets);
    }
}

/// Packs flags into bits, least significant bit first, as Arrow demands.
fn pack_bits(flags: &[bool]) -> Vec<u8> {
    let mut bytes = vec![0; flags.len().div_ceil(8)];
    for (index, _) in flags.iter().enumerate().filter(|(_, flag)| **flag) {
        bytes[index / 8] |= 1 << (index % 8);
    }
    bytes
}
