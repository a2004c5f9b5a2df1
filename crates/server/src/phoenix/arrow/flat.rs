//! Flatbuffers, the encoding of Arrow's metadata: tables whose optional fields are found through a directory (vtable).
//! Reading trusts nothing: every offset is checked. Writing supports the shapes that Arrow needs.

/// A table in a buffer. Fields are numbered as in Arrow's `.fbs` files.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlatbufferTable<'b> {
    bytes: &'b [u8],
    at: usize,
    /// Where the vtable begins.
    directory: usize,
    /// Number of fields that the vtable lists. Later fields are absent and have their default.
    fields: usize,
}

impl<'b> FlatbufferTable<'b> {
    /// Parses the root table of a buffer; `None` if an offset leads outside.
    pub(super) fn parse_root(bytes: &'b [u8]) -> Option<FlatbufferTable<'b>> {
        FlatbufferTable::from_offset(bytes, follow_offset(bytes, 0)?)
    }

    /// Reads a table. It begins with the signed distance back to its vtable, which begins with its own length.
    fn from_offset(bytes: &'b [u8], at: usize) -> Option<FlatbufferTable<'b>> {
        let back = i64::from(i32::from_le_bytes(read_byte_array(bytes, at)?));
        let directory = usize::try_from(i64::try_from(at).ok()?.checked_sub(back)?).ok()?;
        let length = usize::from(u16::from_le_bytes(read_byte_array(bytes, directory)?));
        Some(FlatbufferTable { bytes, at, directory, fields: length.checked_sub(4)? / 2 })
    }

    /// Returns the position of a field; `None` if the field is absent, which an entry of 0 means.
    fn field_offset(&self, number: usize) -> Option<usize> {
        if number >= self.fields {
            return None;
        }
        let offset = usize::from(u16::from_le_bytes(read_byte_array(self.bytes, self.directory + 4 + 2 * number)?));
        if offset == 0 { None } else { self.at.checked_add(offset) }
    }

    /// Returns the bytes of a scalar field; `None` if it is absent or lies outside of the buffer.
    fn scalar_bytes<const N: usize>(&self, number: usize) -> Option<[u8; N]> {
        read_byte_array(self.bytes, self.field_offset(number)?)
    }

    /// Absent scalars have the default 0, as Arrow's schema defines for all that are read here.
    pub(super) fn u8(&self, number: usize) -> u8 {
        self.scalar_bytes(number).map_or(0, u8::from_le_bytes)
    }

    pub(super) fn i16(&self, number: usize) -> i16 {
        self.scalar_bytes(number).map_or(0, i16::from_le_bytes)
    }

    pub(super) fn i32(&self, number: usize) -> i32 {
        self.scalar_bytes(number).map_or(0, i32::from_le_bytes)
    }

    pub(super) fn i64(&self, number: usize) -> i64 {
        self.scalar_bytes(number).map_or(0, i64::from_le_bytes)
    }

    pub(super) fn has_field(&self, number: usize) -> bool {
        self.field_offset(number).is_some()
    }

    pub(super) fn table(&self, number: usize) -> Option<FlatbufferTable<'b>> {
        FlatbufferTable::from_offset(self.bytes, follow_offset(self.bytes, self.field_offset(number)?)?)
    }

    /// Returns a text; `None` if it is absent, lies outside of the buffer or is not UTF-8.
    pub(super) fn text(&self, number: usize) -> Option<&'b str> {
        let (start, length) = self.vector_bounds(number, 1)?;
        std::str::from_utf8(self.bytes.get(start..start + length)?).ok()
    }

    /// Returns a vector of tables; an absent one is empty. `None` if the vector or one of its tables lies outside of
    /// the buffer.
    pub(super) fn tables(&self, number: usize) -> Option<Vec<FlatbufferTable<'b>>> {
        let Some((start, count)) = self.vector_bounds(number, 4) else { return Some(Vec::new()) };
        (0..count)
            .map(|index| FlatbufferTable::from_offset(self.bytes, follow_offset(self.bytes, start + 4 * index)?))
            .collect()
    }

    /// Returns a vector of structs of two numbers, such as Arrow's `FieldNode` and `Buffer`.
    pub(super) fn i64_pairs(&self, number: usize) -> Option<Vec<(i64, i64)>> {
        let Some((start, count)) = self.vector_bounds(number, 16) else { return Some(Vec::new()) };
        let pair = |at: usize| {
            let one = |at| Some(i64::from_le_bytes(read_byte_array(self.bytes, at)?));
            Some((one(at)?, one(at + 8)?))
        };
        (0..count).map(|index| pair(start + 16 * index)).collect()
    }

    /// Returns the start and length of a vector. All of its items lie inside of the buffer, so `count` is safe to
    /// allocate for.
    fn vector_bounds(&self, number: usize, item: usize) -> Option<(usize, usize)> {
        let at = follow_offset(self.bytes, self.field_offset(number)?)?;
        let count = u32::from_le_bytes(read_byte_array(self.bytes, at)?) as usize;
        let start = at + 4;
        let end = count.checked_mul(item)?.checked_add(start)?;
        (end <= self.bytes.len()).then_some((start, count))
    }
}

/// All reads go through this function, so none can leave the buffer.
fn read_byte_array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

/// Returns the target of an unsigned forward reference.
fn follow_offset(bytes: &[u8], at: usize) -> Option<usize> {
    let ahead = u32::from_le_bytes(read_byte_array(bytes, at)?) as usize;
    at.checked_add(ahead).filter(|to| *to < bytes.len())
}

/// A value to write.
pub(super) enum FlatbufferNode {
    Table(Vec<FlatbufferField>),
    Text(String),
    List(Vec<FlatbufferNode>),
    Pairs(Vec<(i64, i64)>),
}

/// A field of a table to write; `Empty` leaves it out.
pub(super) enum FlatbufferField {
    Empty,
    U8(u8),
    I16(i16),
    I32(i32),
    I64(i64),
    Node(FlatbufferNode),
}

/// Encodes a buffer with this root table.
pub(super) fn encode_flatbuffer(root: &FlatbufferNode) -> Vec<u8> {
    let mut out = vec![0; 4];
    let at = write_node(root, &mut out);
    write_offset(&mut out, 0, at);
    out
}

/// Writes a node and returns where it begins. Vectors of pairs are aligned so that the pairs lie at multiples of 8.
fn write_node(node: &FlatbufferNode, out: &mut Vec<u8>) -> usize {
    match node {
        FlatbufferNode::Table(slots) => write_table(slots, out),
        FlatbufferNode::Text(text) => {
            pad_to_alignment(out, 4, 0);
            let at = out.len();
            out.extend((text.len() as u32).to_le_bytes());
            out.extend(text.as_bytes());
            out.push(0);
            at
        }
        FlatbufferNode::List(nodes) => {
            pad_to_alignment(out, 4, 0);
            let at = out.len();
            out.extend((nodes.len() as u32).to_le_bytes());
            let first = out.len();
            out.resize(first + 4 * nodes.len(), 0);
            for (index, node) in nodes.iter().enumerate() {
                let to = write_node(node, out);
                write_offset(out, first + 4 * index, to);
            }
            at
        }
        FlatbufferNode::Pairs(pairs) => {
            pad_to_alignment(out, 8, 4);
            let at = out.len();
            out.extend((pairs.len() as u32).to_le_bytes());
            for (a, b) in pairs {
                out.extend(a.to_le_bytes());
                out.extend(b.to_le_bytes());
            }
            at
        }
    }
}

impl FlatbufferField {
    fn size(&self) -> usize {
        match self {
            FlatbufferField::Empty => 0,
            FlatbufferField::U8(_) => 1,
            FlatbufferField::I16(_) => 2,
            FlatbufferField::I32(_) | FlatbufferField::Node(_) => 4,
            FlatbufferField::I64(_) => 8,
        }
    }
}

/// Writes the vtable, the table, and then the nodes that it refers to, because references lead forward only.
fn write_table(slots: &[FlatbufferField], out: &mut Vec<u8>) -> usize {
    // The largest fields first, so that each one is aligned to its size.
    let mut offsets = vec![0_usize; slots.len()];
    let mut length = 4;
    for size in [8, 4, 2, 1] {
        for (offset, _) in offsets.iter_mut().zip(slots).filter(|(_, slot)| slot.size() == size) {
            *offset = length;
            length += size;
        }
    }
    let directory_length = 4 + 2 * slots.len();
    while (out.len() + directory_length) % 8 != 4 {
        out.push(0);
    }
    let directory = out.len();
    out.extend((directory_length as u16).to_le_bytes());
    out.extend((length as u16).to_le_bytes());
    offsets.iter().for_each(|offset| out.extend((*offset as u16).to_le_bytes()));
    let at = out.len();
    out.extend(((at - directory) as i32).to_le_bytes());
    out.resize(at + length, 0);
    for (slot, offset) in slots.iter().zip(&offsets) {
        let place = at + offset;
        match slot {
            FlatbufferField::Empty => {}
            FlatbufferField::U8(value) => out[place] = *value,
            FlatbufferField::I16(value) => out[place..place + 2].copy_from_slice(&value.to_le_bytes()),
            FlatbufferField::I32(value) => out[place..place + 4].copy_from_slice(&value.to_le_bytes()),
            FlatbufferField::I64(value) => out[place..place + 8].copy_from_slice(&value.to_le_bytes()),
            FlatbufferField::Node(node) => {
                let to = write_node(node, out);
                write_offset(out, place, to);
            }
        }
    }
    at
}

/// Writes a reference, which is relative to its own position.
fn write_offset(out: &mut [u8], from: usize, to: usize) {
    out[from..from + 4].copy_from_slice(&((to - from) as u32).to_le_bytes());
}

/// Pads with zeros until the length is `rest` modulo `unit`.
fn pad_to_alignment(out: &mut Vec<u8>, unit: usize, rest: usize) {
    while out.len() % unit != rest {
        out.push(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let below = FlatbufferNode::Table(vec![
            FlatbufferField::U8(7),
            FlatbufferField::Node(FlatbufferNode::Text("below".to_owned())),
        ]);
        let root = FlatbufferNode::Table(vec![
            FlatbufferField::I16(-2),
            FlatbufferField::Empty,
            FlatbufferField::I64(1 << 40),
            FlatbufferField::Node(FlatbufferNode::List(vec![below])),
            FlatbufferField::Node(FlatbufferNode::Pairs(vec![(1, -1), (2, -2)])),
            FlatbufferField::I32(9),
        ]);
        let bytes = encode_flatbuffer(&root);
        let table = FlatbufferTable::parse_root(&bytes).unwrap();
        assert_eq!((table.i16(0), table.i64(2), table.i32(5)), (-2, 1 << 40, 9));
        assert!(!table.has_field(1) && !table.has_field(60) && table.has_field(2));
        let below = table.tables(3).unwrap();
        assert_eq!((below[0].u8(0), below[0].text(1)), (7, Some("below")));
        assert_eq!(table.i64_pairs(4).unwrap(), [(1, -1), (2, -2)]);
    }
}
