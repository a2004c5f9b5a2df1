//! Changes the texts of a protobuf record in place, for redaction. Everything else stays as it came, byte for byte: ids,
//! times, and the fields that nobody here knows, unless there is something in them that must not stay. A record without
//! anything to change is not copied.

use std::fmt::Write;

use crate::decode::text;
use crate::limits::Limits;
use crate::record::Signal;
use crate::wire::{Field, Fields, WireError, write_bytes};

/// What a text is, so that whoever changes it can tell what may be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextKind {
    /// A value, a name, a message, a body; also a bytes value if it is UTF-8.
    Text,
    /// The name of an attribute, or of an entry of a map.
    Key,
    /// A number in decimal digits. What it is changed to becomes a text.
    Number,
    /// A bytes value that is not UTF-8, as it would be decoded. What it is changed to takes its place.
    Binary,
    /// The content of a field that no message has. If it is changed, the whole field is left out.
    Unknown,
}

/// Decides about each text: what to put in its place, or `None` to leave it.
pub type TextChange<'c> = &'c mut dyn FnMut(TextKind, &str) -> Option<String>;

/// Hands every text of one `Span` or `LogRecord` body that its sender could choose to `change`. `None` if nothing was
/// changed. Text that is not UTF-8 is shown as it would be decoded.
pub fn rewrite_texts(
    record: &[u8],
    signal: Signal,
    limits: &Limits,
    change: TextChange<'_>,
) -> Result<Option<Vec<u8>>, WireError> {
    Rewriter::new(limits, change).rewrite(Message::of(signal), record, 0)
}

/// As [`rewrite_texts`], for the body of one `Resource`.
pub fn rewrite_resource_texts(
    resource: &[u8],
    limits: &Limits,
    change: TextChange<'_>,
) -> Result<Option<Vec<u8>>, WireError> {
    Rewriter::new(limits, change).rewrite(Message::Resource, resource, 0)
}

/// As [`rewrite_texts`], for the body of one `InstrumentationScope`.
pub fn rewrite_scope_texts(
    scope: &[u8],
    limits: &Limits,
    change: TextChange<'_>,
) -> Result<Option<Vec<u8>>, WireError> {
    Rewriter::new(limits, change).rewrite(Message::Scope, scope, 0)
}

/// Walks one `Span` or `LogRecord` body, checks that it is what it should be, within the limits, and shows its own fields
/// to `see`: what passes here can be decoded.
pub(crate) fn check_record<'r>(
    record: &'r [u8],
    signal: Signal,
    limits: &Limits,
    mut see: impl FnMut(u32, Field<'r>) -> Result<(), WireError>,
) -> Result<(), WireError> {
    if record.len() > limits.record_bytes {
        let (size, limit) = (record.len() as u64, limits.record_bytes);
        return Err(WireError::RecordTooLarge { size, limit });
    }
    let (mut budget, message) = (Budget::new(limits), Message::of(signal));
    let mut fields = Fields::new(record);
    while let Some((number, field)) = fields.next()? {
        budget.check_field(message, number, field, 0)?;
        see(number, field)?;
    }
    Ok(())
}

/// The messages that texts are in.
#[derive(Clone, Copy)]
enum Message {
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

/// What is in a length-delimited field.
enum Content {
    Text,
    Key,
    /// Text if it is UTF-8, something else if not.
    Bytes,
    Inside(Message),
    /// An id of a trace or a span.
    Id,
    Unknown,
}

impl Message {
    fn of(signal: Signal) -> Message {
        match signal {
            Signal::Span => Message::Span,
            Signal::Log => Message::Log,
        }
    }

    fn content(self, field: u32) -> Content {
        use Content::{Bytes, Id, Inside, Key, Text};
        match (self, field) {
            // Trace state and name.
            (Message::Span, 3 | 5) => Text,
            (Message::Span, 9) => Inside(Message::KeyValue),
            (Message::Span, 11) => Inside(Message::Event),
            (Message::Span, 13) => Inside(Message::Link),
            (Message::Span, 15) => Inside(Message::Status),
            // Severity and name.
            (Message::Log, 3 | 12) => Text,
            (Message::Log, 5) => Inside(Message::AnyValue),
            (Message::Log, 6) => Inside(Message::KeyValue),
            (Message::Resource, 1) => Inside(Message::KeyValue),
            (Message::Resource, 3) => Inside(Message::EntityRef),
            // Name and version.
            (Message::Scope, 1 | 2) => Text,
            (Message::Scope, 3) => Inside(Message::KeyValue),
            // Schema and type; its other texts are names of attributes.
            (Message::EntityRef, 1 | 2) => Text,
            (Message::EntityRef, 3 | 4) => Key,
            (Message::Event, 2) => Text,
            (Message::Event, 3) => Inside(Message::KeyValue),
            (Message::Link, 3) => Text,
            (Message::Link, 4) => Inside(Message::KeyValue),
            (Message::Status, 2) => Text,
            (Message::KeyValue, 1) => Key,
            (Message::KeyValue, 2) => Inside(Message::AnyValue),
            (Message::AnyValue, 1) => Text,
            (Message::AnyValue, 5) => Inside(Message::Array),
            (Message::AnyValue, 6) => Inside(Message::Map),
            (Message::AnyValue, 7) => Bytes,
            (Message::Array, 1) => Inside(Message::AnyValue),
            (Message::Map, 1) => Inside(Message::KeyValue),
            (Message::Span, 1 | 2 | 4) | (Message::Link, 1 | 2) | (Message::Log, 9 | 10) => Id,
            _ => Content::Unknown,
        }
    }

    /// Whether a number in this field is a time, a count, flags or a constant of the protocol.
    fn has_number(self, field: u32) -> bool {
        match self {
            Message::Span => matches!(field, 6..=8 | 10 | 12 | 14 | 16),
            Message::Log => matches!(field, 1 | 2 | 7 | 8 | 11),
            Message::Event => matches!(field, 1 | 4),
            Message::Link => matches!(field, 5 | 6),
            Message::Status => field == 3,
            Message::Resource => field == 2,
            Message::Scope => field == 4,
            // A truth value.
            Message::AnyValue => field == 2,
            Message::EntityRef | Message::KeyValue | Message::Array | Message::Map => false,
        }
    }
}

/// What one record may hold.
struct Budget {
    attributes_left: usize,
    limits: Limits,
}

impl Budget {
    fn new(limits: &Limits) -> Self {
        Budget { attributes_left: limits.attributes, limits: *limits }
    }

    /// The depth of arrays and maps inside a message.
    fn depth(&self, message: Message, depth: usize) -> Result<usize, WireError> {
        let depth = depth + usize::from(matches!(message, Message::Array | Message::Map));
        if matches!(message, Message::AnyValue) && depth > self.limits.nesting {
            return Err(WireError::TooDeep { limit: self.limits.nesting });
        }
        Ok(depth)
    }

    /// Counts what is an attribute, an event, a link, or a value among others: each takes memory, even if it is empty.
    fn count(&mut self, message: Message, inner: Message) -> Result<(), WireError> {
        use Message::{Array, Event, KeyValue, Link};
        if matches!((message, inner), (_, KeyValue | Event | Link) | (Array, _)) {
            self.attributes_left = self
                .attributes_left
                .checked_sub(1)
                .ok_or(WireError::TooManyAttributes { limit: self.limits.attributes })?;
        }
        Ok(())
    }

    fn check(&mut self, message: Message, bytes: &[u8], depth: usize) -> Result<(), WireError> {
        let depth = self.depth(message, depth)?;
        let mut fields = Fields::new(bytes);
        while let Some((number, field)) = fields.next()? {
            self.check_field(message, number, field, depth)?;
        }
        Ok(())
    }

    fn check_field(
        &mut self,
        message: Message,
        number: u32,
        field: Field<'_>,
        depth: usize,
    ) -> Result<(), WireError> {
        if let (Field::Bytes(content), Content::Inside(inner)) = (field, message.content(number)) {
            self.count(message, inner)?;
            self.check(inner, content, depth)?;
        }
        Ok(())
    }
}

/// Smaller numbers are counts, and name nobody.
const MIN_SECRET_NUMBER: u64 = 1_000;

/// What becomes of a field.
enum Change {
    Keep,
    /// Takes the place of its content, under this number.
    Replace(u32, Vec<u8>),
    LeaveOut,
}

struct Rewriter<'c> {
    change: TextChange<'c>,
    budget: Budget,
    /// Digits of the number at hand.
    digits: String,
}

impl<'c> Rewriter<'c> {
    fn new(limits: &Limits, change: TextChange<'c>) -> Self {
        Rewriter { change, budget: Budget::new(limits), digits: String::new() }
    }

    /// The message with its texts changed; `None` if it stays as it is. `depth` is that of arrays and maps.
    fn rewrite(
        &mut self,
        message: Message,
        bytes: &[u8],
        depth: usize,
    ) -> Result<Option<Vec<u8>>, WireError> {
        let depth = self.budget.depth(message, depth)?;
        let mut out: Option<Vec<u8>> = None;
        let mut copied = 0;
        let mut fields = Fields::new(bytes);
        loop {
            let start = bytes.len() - fields.bytes_left();
            let Some((number, field)) = fields.next()? else { break };
            let change = match field {
                Field::Bytes(content) => self.rewrite_content(message, number, content, depth)?,
                field => self.rewrite_number(message, number, field),
            };
            if matches!(change, Change::Keep) {
                continue;
            }
            let out = out.get_or_insert_with(|| Vec::with_capacity(bytes.len()));
            out.extend_from_slice(&bytes[copied..start]);
            if let Change::Replace(number, changed) = change {
                write_bytes(out, number, &changed);
            }
            copied = bytes.len() - fields.bytes_left();
        }
        if let Some(out) = &mut out {
            out.extend_from_slice(&bytes[copied..]);
        }
        Ok(out)
    }

    fn rewrite_content(
        &mut self,
        message: Message,
        number: u32,
        content: &[u8],
        depth: usize,
    ) -> Result<Change, WireError> {
        let changed = match message.content(number) {
            Content::Text => self.changed(TextKind::Text, &text(content)).map(String::into_bytes),
            Content::Key => self.changed(TextKind::Key, &text(content)).map(String::into_bytes),
            Content::Bytes => match simdutf8::basic::from_utf8(content) {
                Ok(text) => self.changed(TextKind::Text, text).map(String::into_bytes),
                Err(_) => self.changed(TextKind::Binary, &text(content)).map(String::into_bytes),
            },
            Content::Inside(inner) => {
                self.budget.count(message, inner)?;
                self.rewrite(inner, content, depth)?
            }
            Content::Id => None,
            // What its parts are is not known, so nothing can be put in their place.
            Content::Unknown if self.changed(TextKind::Unknown, &text(content)).is_some() => {
                return Ok(Change::LeaveOut);
            }
            Content::Unknown => None,
        };
        Ok(changed.map_or(Change::Keep, |changed| Change::Replace(number, changed)))
    }

    fn rewrite_number(&mut self, message: Message, number: u32, field: Field<'_>) -> Change {
        if message.has_number(number) {
            return Change::Keep;
        }
        let mut digits = std::mem::take(&mut self.digits);
        digits.clear();
        // Writing into a string cannot fail.
        let _ = match (message, number, field) {
            (Message::AnyValue, 3, Field::Varint(value))
                if value.cast_signed().unsigned_abs() >= MIN_SECRET_NUMBER =>
            {
                write!(digits, "{}", value.cast_signed())
            }
            (Message::AnyValue, 4, Field::Fixed64(bits)) => {
                let value = f64::from_bits(bits);
                if value.is_finite() && value.abs() >= MIN_SECRET_NUMBER as f64 {
                    write!(digits, "{value}")
                } else {
                    Ok(())
                }
            }
            (Message::AnyValue, 3, _) => Ok(()),
            (_, _, Field::Varint(value) | Field::Fixed64(value)) if value >= MIN_SECRET_NUMBER => {
                write!(digits, "{value}")
            }
            (_, _, Field::Fixed32(value)) if u64::from(value) >= MIN_SECRET_NUMBER => {
                write!(digits, "{value}")
            }
            _ => Ok(()),
        };
        let is_value = matches!((message, number), (Message::AnyValue, 3 | 4));
        let kind = if is_value { TextKind::Number } else { TextKind::Unknown };
        let changed = if digits.is_empty() { None } else { self.changed(kind, &digits) };
        self.digits = digits;
        match changed {
            // The text that a value can be instead.
            Some(changed) if is_value => Change::Replace(1, changed.into_bytes()),
            Some(_) => Change::LeaveOut,
            None => Change::Keep,
        }
    }

    fn changed(&mut self, kind: TextKind, text: &str) -> Option<String> {
        (self.change)(kind, text).filter(|changed| changed != text)
    }
}
