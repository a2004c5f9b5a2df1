//! The protobuf wire format: tags, varints and length-delimited fields, read without copying. Groups, wire types 3 and
//! 4, are deprecated and not part of OTLP, so they are errors.

/// Why bytes are not the protobuf message that they should be, or are over a limit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    #[error("the message ends in the middle of a field")]
    Truncated,
    #[error("a number is longer than ten bytes")]
    LongVarint,
    #[error("field {field} has wire type {wire_type}, which protobuf does not use here")]
    WireType { field: u32, wire_type: u8 },
    /// Only a streaming reader finds this, because it knows the end of the enclosing message.
    #[error("a field is longer than the message it is in")]
    LongerThanParent,
    #[error("a record of {size} bytes is over the limit of {limit} bytes")]
    RecordTooLarge { size: u64, limit: usize },
    #[error("a span has more than {limit} attributes (limit {limit})")]
    TooManyAttributes { limit: usize },
    #[error("an attribute is nested more than {limit} levels deep (limit {limit})")]
    TooDeep { limit: usize },
    /// OTLP ids have 16 bytes (trace) or 8 bytes (span). Empty ids are allowed and mean that there is none.
    #[error("an id has {length} bytes instead of {expected}")]
    IdLength { length: usize, expected: usize },
    /// The caller refused the memory that the records need in decoded form.
    #[error("its records take more memory than there is; send smaller batches")]
    NoRoom,
}

/// The value of one field by its wire type. A signed number comes as its two's complement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum WireValue<'a> {
    Varint(u64),
    Fixed64(u64),
    Fixed32(u32),
    Bytes(&'a [u8]),
}

/// Iterates over the fields of one message. Unknown fields come out like known ones, so callers match on number and
/// type and ignore the rest: that is how protobuf stays compatible.
#[derive(Clone, Debug)]
pub(crate) struct WireFields<'a> {
    rest: &'a [u8],
}

impl<'a> WireFields<'a> {
    /// Fields of a message body, without its own tag and length.
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        WireFields { rest: bytes }
    }

    /// Number of bytes that are not read yet. The length of the message minus it is the end of the last field.
    pub(crate) fn bytes_left(&self) -> usize {
        self.rest.len()
    }

    /// The next field's number and value; `None` at the end of the message.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Option<(u32, WireValue<'a>)>, WireError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let (number, wire_type) = split_tag(read_varint(&mut self.rest)?);
        let field = match wire_type {
            0 => WireValue::Varint(read_varint(&mut self.rest)?),
            1 => WireValue::Fixed64(u64::from_le_bytes(self.take_array()?)),
            2 => {
                let length = usize::try_from(read_varint(&mut self.rest)?).map_err(|_| WireError::Truncated)?;
                WireValue::Bytes(self.take_bytes(length)?)
            }
            5 => WireValue::Fixed32(u32::from_le_bytes(self.take_array()?)),
            _ => return Err(WireError::WireType { field: number, wire_type }),
        };
        Ok(Some((number, field)))
    }

    /// The next N bytes of a fixed-width value.
    fn take_array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or(WireError::Truncated)?;
        self.rest = rest;
        Ok(*head)
    }

    /// The next bytes, borrowed. The length comes from the sender, so it is checked and never allocated.
    fn take_bytes(&mut self, length: usize) -> Result<&'a [u8], WireError> {
        let (head, rest) = self.rest.split_at_checked(length).ok_or(WireError::Truncated)?;
        self.rest = rest;
        Ok(head)
    }
}

/// Field number and wire type of a tag.
pub(crate) fn split_tag(tag: u64) -> (u32, u8) {
    ((tag >> 3) as u32, (tag & 7) as u8)
}

/// Reads one varint (LEB128) and advances `bytes` behind it.
#[inline]
pub(crate) fn read_varint(bytes: &mut &[u8]) -> Result<u64, WireError> {
    // Nearly all numbers in a trace (tags and short lengths) are one byte.
    if let Some((&first, rest)) = bytes.split_first()
        && first < 0x80
    {
        *bytes = rest;
        return Ok(u64::from(first));
    }
    let mut value = 0u64;
    for (index, &byte) in bytes.iter().enumerate().take(10) {
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte < 0x80 {
            *bytes = &bytes[index + 1..];
            return Ok(value);
        }
    }
    // A varint of 64 bits has at most ten bytes. Fewer bytes without an end are a message that was cut off.
    Err(if bytes.len() < 10 { WireError::Truncated } else { WireError::LongVarint })
}

/// Appends one varint in its shortest form.
pub(crate) fn write_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value as u8) | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Writes a length-delimited field (wire type 2): bytes, text or a submessage.
pub(crate) fn write_bytes(out: &mut Vec<u8>, field: u32, bytes: &[u8]) {
    write_head(out, field, bytes.len());
    out.extend_from_slice(bytes);
}

/// Writes tag and length of a field with `length` bytes, for content that is written piece by piece.
pub(crate) fn write_head(out: &mut Vec<u8>, field: u32, length: usize) {
    write_varint(out, u64::from(field) << 3 | 2);
    write_varint(out, length as u64);
}

/// Writes a field of wire type 1, little-endian: times and doubles.
pub(crate) fn write_fixed64(out: &mut Vec<u8>, field: u32, value: u64) {
    write_varint(out, u64::from(field) << 3 | 1);
    out.extend_from_slice(&value.to_le_bytes());
}

/// Writes a field of wire type 5, little-endian: flags.
pub(crate) fn write_fixed32(out: &mut Vec<u8>, field: u32, value: u32) {
    write_varint(out, u64::from(field) << 3 | 5);
    out.extend_from_slice(&value.to_le_bytes());
}

/// Writes a field of wire type 0. Also for `bool` and enums.
pub(crate) fn write_number(out: &mut Vec<u8>, field: u32, value: u64) {
    write_varint(out, u64::from(field) << 3);
    write_varint(out, value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_survive_a_round_trip() {
        for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            let mut bytes = Vec::new();
            write_varint(&mut bytes, value);
            assert_eq!(read_varint(&mut bytes.as_slice()), Ok(value));
        }
    }

    #[test]
    fn a_number_cut_short_and_one_too_long_are_told_apart() {
        assert_eq!(read_varint(&mut [0x80u8, 0x80].as_slice()), Err(WireError::Truncated));
        assert_eq!(read_varint(&mut [0x80u8; 11].as_slice()), Err(WireError::LongVarint));
    }

    #[test]
    fn a_length_past_the_end_is_refused() {
        let mut fields = WireFields::new(&[0x0a, 0x05, b'a']);
        assert_eq!(fields.next(), Err(WireError::Truncated));
    }
}
