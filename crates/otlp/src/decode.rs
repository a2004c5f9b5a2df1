//! Decodes protobuf spans, log records and resources into the types of `gradus-core`. Texts are borrowed from the
//! input. Fields that `Span` does not have (kind, links, dropped counts, trace state) are ignored.

use std::borrow::Cow;
use std::sync::Arc;

use gradus_core::span::{
    AttributeList, AttributeValue, Span, SpanEvent, SpanId, SpanResource, SpanStatus, StatusCode, TraceId,
};

use crate::limits::RecordLimits;
use crate::log_event::LogEvent;
use crate::wire::{WireError, WireFields, WireValue};

/// Decodes the body of one `Span` message. A field that occurs twice has its last value, as protobuf demands; repeated
/// fields keep their order.
pub fn decode_span<'a>(
    bytes: &'a [u8],
    resource: &Arc<SpanResource>,
    scope: &'a str,
    limits: &RecordLimits,
) -> Result<Span<'a>, WireError> {
    let mut span = Span { scope: Cow::Borrowed(scope), resource: Arc::clone(resource), ..Span::default() };
    // Most spans have about this many.
    span.attributes.0.reserve(16);
    let mut reader = ValueReader::new(limits);
    let mut fields = WireFields::new(bytes);
    while let Some((number, field)) = fields.next()? {
        match (number, field) {
            (1, WireValue::Bytes(id)) => span.trace_id = trace_id(id)?,
            (2, WireValue::Bytes(id)) => span.span_id = span_id(id)?,
            (4, WireValue::Bytes(id)) => span.parent_id = span_id(id)?.non_zero(),
            (5, WireValue::Bytes(name)) => span.name = decode_text(name),
            (7, WireValue::Fixed64(time)) => span.start_ns = time,
            (8, WireValue::Fixed64(time)) => span.end_ns = time,
            (9, WireValue::Bytes(pair)) => span.attributes.0.push(reader.key_value(pair)?),
            (11, WireValue::Bytes(event)) => span.events.push(reader.event(event)?),
            (15, WireValue::Bytes(status)) => span.status = self::decode_span_status(status)?,
            _ => {}
        }
    }
    Ok(span)
}

/// Ids and start of a span, read without its attributes: all that must be known before its trace is complete.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SpanHead {
    pub trace_id: TraceId,
    pub span_id: SpanId,
    pub parent_id: Option<SpanId>,
    /// Nanoseconds since the Unix epoch, by the clock of the sender.
    pub start_ns: u64,
}

/// Reads the head of one `Span` message. Checks only that the fields can be walked; limits apply when the span is
/// decoded.
pub fn decode_span_head(bytes: &[u8]) -> Result<SpanHead, WireError> {
    let mut head = SpanHead::default();
    let mut fields = WireFields::new(bytes);
    while let Some((number, field)) = fields.next()? {
        match (number, field) {
            (1, WireValue::Bytes(id)) => head.trace_id = trace_id(id)?,
            (2, WireValue::Bytes(id)) => head.span_id = span_id(id)?,
            (4, WireValue::Bytes(id)) => head.parent_id = span_id(id)?.non_zero(),
            (7, WireValue::Fixed64(time)) => head.start_ns = time,
            _ => {}
        }
    }
    Ok(head)
}

/// Decodes the body of one `LogRecord` message. The time is `time_unix_nano`, or `observed_time_unix_nano` where the
/// first is 0, as the logs data model recommends.
pub fn decode_log<'a>(bytes: &'a [u8], limits: &RecordLimits) -> Result<LogEvent<'a>, WireError> {
    let mut log = LogEvent::default();
    let mut reader = ValueReader::new(limits);
    let mut fields = WireFields::new(bytes);
    while let Some((number, field)) = fields.next()? {
        match (number, field) {
            (1, WireValue::Fixed64(time)) => log.event.time_ns = time,
            (11, WireValue::Fixed64(time)) if log.event.time_ns == 0 => log.event.time_ns = time,
            (5, WireValue::Bytes(body)) => log.event.body = Some(reader.any_value(body, 0)?),
            (6, WireValue::Bytes(pair)) => log.event.attributes.0.push(reader.key_value(pair)?),
            (9, WireValue::Bytes(id)) => log.trace_id = trace_id(id)?,
            (10, WireValue::Bytes(id)) => log.span_id = span_id(id)?,
            (12, WireValue::Bytes(name)) => log.event.name = decode_text(name),
            _ => {}
        }
    }
    log.take_name_from_attributes();
    Ok(log)
}

/// Decodes the body of one `Resource` message. Many spans share it, so it is owned and not borrowed.
pub fn decode_resource(bytes: &[u8], limits: &RecordLimits) -> Result<SpanResource, WireError> {
    let mut attributes = AttributeList::default();
    let mut reader = ValueReader::new(limits);
    let mut fields = WireFields::new(bytes);
    while let Some((number, field)) = fields.next()? {
        if let (1, WireValue::Bytes(pair)) = (number, field) {
            attributes.0.push(reader.key_value(pair)?);
        }
    }
    Ok(SpanResource { attributes: attributes.into_owned() })
}

/// An empty id becomes the zero id, which OTLP defines as invalid; other lengths are errors.
pub(crate) fn trace_id(bytes: &[u8]) -> Result<TraceId, WireError> {
    match <[u8; 16]>::try_from(bytes) {
        Ok(array) => Ok(TraceId(u128::from_be_bytes(array))),
        Err(_) if bytes.is_empty() => Ok(TraceId::default()),
        Err(_) => Err(WireError::IdLength { length: bytes.len(), expected: 16 }),
    }
}

/// As [`trace_id`], for eight bytes.
pub(crate) fn span_id(bytes: &[u8]) -> Result<SpanId, WireError> {
    match <[u8; 8]>::try_from(bytes) {
        Ok(array) => Ok(SpanId(u64::from_be_bytes(array))),
        Err(_) if bytes.is_empty() => Ok(SpanId::default()),
        Err(_) => Err(WireError::IdLength { length: bytes.len(), expected: 8 }),
    }
}

/// Protobuf texts must be UTF-8. Bytes that are not become replacement characters: one bad attribute should not cost a
/// span.
pub(crate) fn decode_text(bytes: &[u8]) -> Cow<'_, str> {
    match simdutf8::basic::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => String::from_utf8_lossy(bytes),
    }
}

/// Decodes a `Status` message. Codes other than 1 and 2 count as unset.
fn decode_span_status(bytes: &[u8]) -> Result<SpanStatus<'_>, WireError> {
    let mut status = SpanStatus::default();
    let mut fields = WireFields::new(bytes);
    while let Some((number, field)) = fields.next()? {
        match (number, field) {
            (2, WireValue::Bytes(message)) => status.message = decode_text(message),
            (3, WireValue::Varint(1)) => status.code = StatusCode::Ok,
            (3, WireValue::Varint(2)) => status.code = StatusCode::Error,
            _ => {}
        }
    }
    Ok(status)
}

/// Reads attribute values against a budget that all values of one record share, so that a small record cannot ask for
/// unbounded memory.
struct ValueReader {
    attributes_left: usize,
    limits: RecordLimits,
}

impl ValueReader {
    fn new(limits: &RecordLimits) -> Self {
        ValueReader { attributes_left: limits.attributes, limits: *limits }
    }

    /// Decodes an `Event` message of a span.
    fn event<'a>(&mut self, bytes: &'a [u8]) -> Result<SpanEvent<'a>, WireError> {
        // An empty event takes two bytes on the wire and a hundred in memory.
        self.count_attribute()?;
        let mut event = SpanEvent::default();
        let mut fields = WireFields::new(bytes);
        while let Some((number, field)) = fields.next()? {
            match (number, field) {
                (1, WireValue::Fixed64(time)) => event.time_ns = time,
                (2, WireValue::Bytes(name)) => event.name = decode_text(name),
                (3, WireValue::Bytes(pair)) => event.attributes.0.push(self.key_value(pair)?),
                _ => {}
            }
        }
        Ok(event)
    }

    /// Decodes an attribute of a record.
    fn key_value<'a>(&mut self, bytes: &'a [u8]) -> Result<(Cow<'a, str>, AttributeValue<'a>), WireError> {
        self.key_value_at(bytes, 0)
    }

    /// Decodes a `KeyValue` message. `depth` counts the arrays and maps around it.
    fn key_value_at<'a>(
        &mut self,
        bytes: &'a [u8],
        depth: usize,
    ) -> Result<(Cow<'a, str>, AttributeValue<'a>), WireError> {
        self.count_attribute()?;
        let (mut key, mut value) = (Cow::Borrowed(""), AttributeValue::Null);
        let mut fields = WireFields::new(bytes);
        while let Some((number, field)) = fields.next()? {
            match (number, field) {
                (1, WireValue::Bytes(name)) => key = decode_text(name),
                (2, WireValue::Bytes(any)) => value = self.any_value(any, depth)?,
                _ => {}
            }
        }
        Ok((key, value))
    }

    /// Decodes an `AnyValue` message. Recursive, so the depth is bounded: a stack overflow would end the process.
    fn any_value<'a>(&mut self, bytes: &'a [u8], depth: usize) -> Result<AttributeValue<'a>, WireError> {
        if depth > self.limits.nesting {
            return Err(WireError::TooDeep { limit: self.limits.nesting });
        }
        let mut value = AttributeValue::Null;
        let mut fields = WireFields::new(bytes);
        while let Some((number, field)) = fields.next()? {
            value = match (number, field) {
                (1, WireValue::Bytes(string)) => AttributeValue::Str(decode_text(string)),
                (2, WireValue::Varint(flag)) => AttributeValue::Bool(flag != 0),
                // Protobuf writes a negative `int64` as its two's complement, in ten bytes.
                (3, WireValue::Varint(integer)) => AttributeValue::Int(integer as i64),
                (4, WireValue::Fixed64(bits)) => AttributeValue::Double(f64::from_bits(bits)),
                (5, WireValue::Bytes(array)) => self.array(array, depth + 1)?,
                (6, WireValue::Bytes(map)) => self.map(map, depth + 1)?,
                (7, WireValue::Bytes(bytes)) => AttributeValue::Bytes(Cow::Borrowed(bytes)),
                // An unknown type of value keeps what was read before, as protobuf's oneof does.
                _ => value,
            };
        }
        Ok(value)
    }

    /// Decodes an `ArrayValue`. Every item counts, since even an empty one takes memory.
    fn array<'a>(&mut self, bytes: &'a [u8], depth: usize) -> Result<AttributeValue<'a>, WireError> {
        let mut items = Vec::new();
        let mut fields = WireFields::new(bytes);
        while let Some((number, field)) = fields.next()? {
            if let (1, WireValue::Bytes(item)) = (number, field) {
                self.count_attribute()?;
                items.push(self.any_value(item, depth)?);
            }
        }
        Ok(AttributeValue::Array(items))
    }

    /// Decodes a `KeyValueList`, in order and with duplicates.
    fn map<'a>(&mut self, bytes: &'a [u8], depth: usize) -> Result<AttributeValue<'a>, WireError> {
        let mut entries = Vec::new();
        let mut fields = WireFields::new(bytes);
        while let Some((number, field)) = fields.next()? {
            if let (1, WireValue::Bytes(pair)) = (number, field) {
                entries.push(self.key_value_at(pair, depth)?);
            }
        }
        Ok(AttributeValue::Map(entries))
    }

    /// Takes one value from the budget of the record.
    fn count_attribute(&mut self) -> Result<(), WireError> {
        let too_many = WireError::TooManyAttributes { limit: self.limits.attributes };
        self.attributes_left = self.attributes_left.checked_sub(1).ok_or(too_many)?;
        Ok(())
    }
}
