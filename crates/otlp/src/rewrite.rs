//! Changes the texts of a protobuf record, for redaction. Everything else stays byte for byte: ids, times, and unknown
//! fields, unless redaction finds something in them. A record without anything to change is not copied.

use std::fmt::Write;

use crate::decode::decode_text;
use crate::limits::RecordLimits;
use crate::record::TelemetrySignal;
use crate::wire::{WireError, WireFields, WireValue, write_bytes};

/// The kind of a text, so that the caller can decide whether and how it may be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextKind {
    /// A value, a name, a message, a body; also a bytes value if it is UTF-8.
    Text,
    /// The name of an attribute, or of an entry of a map.
    Key,
    /// A number in decimal digits. Its replacement is a text.
    Number,
    /// A bytes value that is not UTF-8, in its decoded form. Its replacement is written as UTF-8.
    Binary,
    /// The content of an unknown field. If it is changed, the whole field is left out.
    Unknown,
}

/// Decides about each text: its replacement, or `None` to keep it.
pub type TextChange<'c> = &'c mut dyn FnMut(TextKind, &str) -> Option<String>;

/// Hands every text in the body of one `Span` or `LogRecord` that its sender could choose to `change`. `None` if
/// nothing was changed. Bytes that are not UTF-8 are passed in their decoded form, with replacement characters.
pub fn rewrite_texts(
    record: &[u8],
    signal: TelemetrySignal,
    limits: &RecordLimits,
    change: TextChange<'_>,
) -> Result<Option<Vec<u8>>, WireError> {
    RecordRewriter::new(limits, change).rewrite_message(TextBearingMessage::for_signal(signal), record, 0)
}

/// As [`rewrite_texts`], for the body of one `Resource`.
pub fn rewrite_resource_texts(
    resource: &[u8],
    limits: &RecordLimits,
    change: TextChange<'_>,
) -> Result<Option<Vec<u8>>, WireError> {
    RecordRewriter::new(limits, change).rewrite_message(TextBearingMessage::Resource, resource, 0)
}

/// As [`rewrite_texts`], for the body of one `InstrumentationScope`.
pub fn rewrite_scope_texts(
    scope: &[u8],
    limits: &RecordLimits,
    change: TextChange<'_>,
) -> Result<Option<Vec<u8>>, WireError> {
    RecordRewriter::new(limits, change).rewrite_message(TextBearingMessage::Scope, scope, 0)
}

/// Walks the body of one `Span` or `LogRecord`, checks its structure and the limits, and passes its own fields to
/// `see`. A record that passes can be decoded: both count against the same limits.
pub(crate) fn check_record<'r>(
    record: &'r [u8],
    signal: TelemetrySignal,
    limits: &RecordLimits,
    mut see: impl FnMut(u32, WireValue<'r>) -> Result<(), WireError>,
) -> Result<(), WireError> {
    if record.len() > limits.record_bytes {
        let (size, limit) = (record.len() as u64, limits.record_bytes);
        return Err(WireError::RecordTooLarge { size, limit });
    }
    let (mut budget, message) = (RecordBudget::new(limits), TextBearingMessage::for_signal(signal));
    let mut fields = WireFields::new(record);
    while let Some((number, field)) = fields.next()? {
        budget.check_field(message, number, field, 0)?;
        see(number, field)?;
    }
    Ok(())
}

/// The messages of OTLP that contain texts, directly or further inside.
#[derive(Clone, Copy)]
enum TextBearingMessage {
    Span,
    Log,
    Resource,
    Scope,
    EntityRef,
    Event,
    Link,
    Status,
    KeyValue,
    AnyValue,
    Array,
    Map,
}

/// Content of a length-delimited field.
enum FieldContent {
    Text,
    Key,
    /// Text if it is UTF-8, something else if not.
    Bytes,
    Inside(TextBearingMessage),
    /// An id of a trace or a span.
    Id,
    Unknown,
}

impl TextBearingMessage {
    fn for_signal(signal: TelemetrySignal) -> TextBearingMessage {
        match signal {
            TelemetrySignal::Span => TextBearingMessage::Span,
            TelemetrySignal::Log => TextBearingMessage::Log,
        }
    }

    /// What a length-delimited field of this message holds, by the field numbers of OTLP 1.x.
    fn field_content(self, field: u32) -> FieldContent {
        use FieldContent::{Bytes, Id, Inside, Key, Text};
        match (self, field) {
            // Trace state and name.
            (TextBearingMessage::Span, 3 | 5) => Text,
            (TextBearingMessage::Span, 9) => Inside(TextBearingMessage::KeyValue),
            (TextBearingMessage::Span, 11) => Inside(TextBearingMessage::Event),
            (TextBearingMessage::Span, 13) => Inside(TextBearingMessage::Link),
            (TextBearingMessage::Span, 15) => Inside(TextBearingMessage::Status),
            // Severity and name.
            (TextBearingMessage::Log, 3 | 12) => Text,
            (TextBearingMessage::Log, 5) => Inside(TextBearingMessage::AnyValue),
            (TextBearingMessage::Log, 6) => Inside(TextBearingMessage::KeyValue),
            (TextBearingMessage::Resource, 1) => Inside(TextBearingMessage::KeyValue),
            (TextBearingMessage::Resource, 3) => Inside(TextBearingMessage::EntityRef),
            // Name and version.
            (TextBearingMessage::Scope, 1 | 2) => Text,
            (TextBearingMessage::Scope, 3) => Inside(TextBearingMessage::KeyValue),
            // Schema and type; its other texts are names of attributes.
            (TextBearingMessage::EntityRef, 1 | 2) => Text,
            (TextBearingMessage::EntityRef, 3 | 4) => Key,
            (TextBearingMessage::Event, 2) => Text,
            (TextBearingMessage::Event, 3) => Inside(TextBearingMessage::KeyValue),
            (TextBearingMessage::Link, 3) => Text,
            (TextBearingMessage::Link, 4) => Inside(TextBearingMessage::KeyValue),
            (TextBearingMessage::Status, 2) => Text,
            (TextBearingMessage::KeyValue, 1) => Key,
            (TextBearingMessage::KeyValue, 2) => Inside(TextBearingMessage::AnyValue),
            (TextBearingMessage::AnyValue, 1) => Text,
            (TextBearingMessage::AnyValue, 5) => Inside(TextBearingMessage::Array),
            (TextBearingMessage::AnyValue, 6) => Inside(TextBearingMessage::Map),
            (TextBearingMessage::AnyValue, 7) => Bytes,
            (TextBearingMessage::Array, 1) => Inside(TextBearingMessage::AnyValue),
            (TextBearingMessage::Map, 1) => Inside(TextBearingMessage::KeyValue),
            (TextBearingMessage::Span, 1 | 2 | 4)
            | (TextBearingMessage::Link, 1 | 2)
            | (TextBearingMessage::Log, 9 | 10) => Id,
            _ => FieldContent::Unknown,
        }
    }

    /// Whether a number in this field is a time, a count, flags or an enum. Such numbers are never redacted: nobody can
    /// put a secret there without breaking the protocol.
    fn has_number(self, field: u32) -> bool {
        match self {
            TextBearingMessage::Span => matches!(field, 6..=8 | 10 | 12 | 14 | 16),
            TextBearingMessage::Log => matches!(field, 1 | 2 | 7 | 8 | 11),
            TextBearingMessage::Event => matches!(field, 1 | 4),
            TextBearingMessage::Link => matches!(field, 5 | 6),
            TextBearingMessage::Status => field == 3,
            TextBearingMessage::Resource => field == 2,
            TextBearingMessage::Scope => field == 4,
            // A truth value.
            TextBearingMessage::AnyValue => field == 2,
            TextBearingMessage::EntityRef
            | TextBearingMessage::KeyValue
            | TextBearingMessage::Array
            | TextBearingMessage::Map => false,
        }
    }
}

/// The remaining limits of one record.
struct RecordBudget {
    attributes_left: usize,
    limits: RecordLimits,
}

impl RecordBudget {
    fn new(limits: &RecordLimits) -> Self {
        RecordBudget { attributes_left: limits.attributes, limits: *limits }
    }

    /// Checks the nesting of a message in arrays and maps, and returns the depth for what is inside of it.
    fn check_depth(&self, message: TextBearingMessage, depth: usize) -> Result<usize, WireError> {
        let depth = depth + usize::from(matches!(message, TextBearingMessage::Array | TextBearingMessage::Map));
        if matches!(message, TextBearingMessage::AnyValue) && depth > self.limits.nesting {
            return Err(WireError::TooDeep { limit: self.limits.nesting });
        }
        Ok(depth)
    }

    /// Counts attributes, events, links and items of arrays: each takes memory, even if it is empty.
    fn count_value(&mut self, message: TextBearingMessage, inner: TextBearingMessage) -> Result<(), WireError> {
        use TextBearingMessage::{Array, Event, KeyValue, Link};
        if matches!((message, inner), (_, KeyValue | Event | Link) | (Array, _)) {
            self.attributes_left = self
                .attributes_left
                .checked_sub(1)
                .ok_or(WireError::TooManyAttributes { limit: self.limits.attributes })?;
        }
        Ok(())
    }

    /// Checks all fields of a message. Recursion is bounded by `check_depth`.
    fn check_message(&mut self, message: TextBearingMessage, bytes: &[u8], depth: usize) -> Result<(), WireError> {
        let depth = self.check_depth(message, depth)?;
        let mut fields = WireFields::new(bytes);
        while let Some((number, field)) = fields.next()? {
            self.check_field(message, number, field, depth)?;
        }
        Ok(())
    }

    /// Checks one field: counts it and descends into submessages. Scalars need no check.
    fn check_field(
        &mut self,
        message: TextBearingMessage,
        number: u32,
        field: WireValue<'_>,
        depth: usize,
    ) -> Result<(), WireError> {
        if let (WireValue::Bytes(content), FieldContent::Inside(inner)) = (field, message.field_content(number)) {
            self.count_value(message, inner)?;
            self.check_message(inner, content, depth)?;
        }
        Ok(())
    }
}

/// Smaller numbers are counts and codes, not card or phone numbers. They are not passed to redaction.
const MIN_SECRET_NUMBER: u64 = 1_000;

/// The decision about one field.
enum FieldRewrite {
    Keep,
    /// A replacement for the content, under this field number.
    Replace(u32, Vec<u8>),
    LeaveOut,
}

/// Rewrites one record within the limits of its budget.
struct RecordRewriter<'c> {
    change: TextChange<'c>,
    budget: RecordBudget,
    /// Buffer for the digits of a number, reused to save allocations.
    digits: String,
}

impl<'c> RecordRewriter<'c> {
    fn new(limits: &RecordLimits, change: TextChange<'c>) -> Self {
        RecordRewriter { change, budget: RecordBudget::new(limits), digits: String::new() }
    }

    /// The message with its texts changed; `None` if nothing changed. `depth` counts arrays and maps around it.
    fn rewrite_message(
        &mut self,
        message: TextBearingMessage,
        bytes: &[u8],
        depth: usize,
    ) -> Result<Option<Vec<u8>>, WireError> {
        let depth = self.budget.check_depth(message, depth)?;
        let mut out: Option<Vec<u8>> = None;
        let mut copied = 0;
        let mut fields = WireFields::new(bytes);
        loop {
            let start = bytes.len() - fields.bytes_left();
            let Some((number, field)) = fields.next()? else { break };
            let change = match field {
                WireValue::Bytes(content) => self.rewrite_content(message, number, content, depth)?,
                field => self.rewrite_number(message, number, field),
            };
            if matches!(change, FieldRewrite::Keep) {
                continue;
            }
            let out = out.get_or_insert_with(|| Vec::with_capacity(bytes.len()));
            out.extend_from_slice(&bytes[copied..start]);
            if let FieldRewrite::Replace(number, changed) = change {
                write_bytes(out, number, &changed);
            }
            copied = bytes.len() - fields.bytes_left();
        }
        if let Some(out) = &mut out {
            out.extend_from_slice(&bytes[copied..]);
        }
        Ok(out)
    }

    /// Changes a length-delimited field, or what is inside of it.
    fn rewrite_content(
        &mut self,
        message: TextBearingMessage,
        number: u32,
        content: &[u8],
        depth: usize,
    ) -> Result<FieldRewrite, WireError> {
        let changed = match message.field_content(number) {
            FieldContent::Text => self.change_text(TextKind::Text, &decode_text(content)).map(String::into_bytes),
            FieldContent::Key => self.change_text(TextKind::Key, &decode_text(content)).map(String::into_bytes),
            FieldContent::Bytes => match simdutf8::basic::from_utf8(content) {
                Ok(text) => self.change_text(TextKind::Text, text).map(String::into_bytes),
                Err(_) => self.change_text(TextKind::Binary, &decode_text(content)).map(String::into_bytes),
            },
            FieldContent::Inside(inner) => {
                self.budget.count_value(message, inner)?;
                self.rewrite_message(inner, content, depth)?
            }
            FieldContent::Id => None,
            // The structure of an unknown field is unknown, so a part of it cannot be replaced: the whole field goes.
            FieldContent::Unknown if self.change_text(TextKind::Unknown, &decode_text(content)).is_some() => {
                return Ok(FieldRewrite::LeaveOut);
            }
            FieldContent::Unknown => None,
        };
        Ok(changed.map_or(FieldRewrite::Keep, |changed| FieldRewrite::Replace(number, changed)))
    }

    /// Changes a number: card numbers and phone numbers are also sent as integers and floats.
    fn rewrite_number(&mut self, message: TextBearingMessage, number: u32, field: WireValue<'_>) -> FieldRewrite {
        if message.has_number(number) {
            return FieldRewrite::Keep;
        }
        let mut digits = std::mem::take(&mut self.digits);
        digits.clear();
        // Writing into a string cannot fail.
        let _ = match (message, number, field) {
            (TextBearingMessage::AnyValue, 3, WireValue::Varint(value))
                if value.cast_signed().unsigned_abs() >= MIN_SECRET_NUMBER =>
            {
                write!(digits, "{}", value.cast_signed())
            }
            (TextBearingMessage::AnyValue, 4, WireValue::Fixed64(bits)) => {
                let value = f64::from_bits(bits);
                if value.is_finite() && value.abs() >= MIN_SECRET_NUMBER as f64 {
                    write!(digits, "{value}")
                } else {
                    Ok(())
                }
            }
            (TextBearingMessage::AnyValue, 3, _) => Ok(()),
            (_, _, WireValue::Varint(value) | WireValue::Fixed64(value)) if value >= MIN_SECRET_NUMBER => {
                write!(digits, "{value}")
            }
            (_, _, WireValue::Fixed32(value)) if u64::from(value) >= MIN_SECRET_NUMBER => {
                write!(digits, "{value}")
            }
            _ => Ok(()),
        };
        let is_value = matches!((message, number), (TextBearingMessage::AnyValue, 3 | 4));
        let kind = if is_value { TextKind::Number } else { TextKind::Unknown };
        let changed = if digits.is_empty() { None } else { self.change_text(kind, &digits) };
        self.digits = digits;
        match changed {
            // Field 1 of `AnyValue` is `string_value`: the replacement is a text.
            Some(changed) if is_value => FieldRewrite::Replace(1, changed.into_bytes()),
            Some(_) => FieldRewrite::LeaveOut,
            None => FieldRewrite::Keep,
        }
    }

    /// A replacement that equals the text counts as no change, which avoids the copy.
    fn change_text(&mut self, kind: TextKind, text: &str) -> Option<String> {
        (self.change)(kind, text).filter(|changed| changed != text)
    }
}
