//! Changes the texts of a protobuf record in place, for redaction. Everything else stays as it came, byte for byte:
//! ids, numbers, keys, and the fields that nobody here knows. A record without anything to change is not copied.

use crate::decode::text;
use crate::limits::Limits;
use crate::record::Signal;
use crate::wire::{Field, Fields, WireError, write_bytes};

/// Hands every text of one `Span` or `LogRecord` body that its sender could choose to `change`: values of attributes
/// (bytes, too, if they are UTF-8), names, messages, the body. Keys are left alone, as they are what values are found by.
/// `None` if nothing was changed. Text that is not UTF-8 is shown as it would be decoded.
pub fn rewrite_texts(
    record: &[u8],
    signal: Signal,
    limits: &Limits,
    change: &mut dyn FnMut(&str) -> Option<String>,
) -> Result<Option<Vec<u8>>, WireError> {
    Rewriter::new(limits, change).rewrite(Message::of(signal), record, 0)
}

/// As [`rewrite_texts`], for the body of one `Resource`.
pub fn rewrite_resource_texts(
    resource: &[u8],
    limits: &Limits,
    change: &mut dyn FnMut(&str) -> Option<String>,
) -> Result<Option<Vec<u8>>, WireError> {
    Rewriter::new(limits, change).rewrite(Message::Resource, resource, 0)
}

/// As [`rewrite_texts`], for the body of one `InstrumentationScope`.
pub fn rewrite_scope_texts(
    scope: &[u8],
    limits: &Limits,
    change: &mut dyn FnMut(&str) -> Option<String>,
) -> Result<Option<Vec<u8>>, WireError> {
    Rewriter::new(limits, change).rewrite(Message::Scope, scope, 0)
}

/// Whether one `Span` or `LogRecord` body is what it should be, within the limits: what passes here can be decoded.
pub(crate) fn check_record(record: &[u8], signal: Signal, limits: &Limits) -> Result<(), WireError> {
    if record.len() > limits.record_bytes {
        let (size, limit) = (record.len() as u64, limits.record_bytes);
        return Err(WireError::RecordTooLarge { size, limit });
    }
    Budget::new(limits).check(Message::of(signal), record, 0)
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
    /// Text if it is UTF-8, something else if not.
    Bytes,
    Inside(Message),
    Other,
}

impl Message {
    fn of(signal: Signal) -> Message {
        match signal {
            Signal::Span => Message::Span,
            Signal::Log => Message::Log,
        }
    }

    fn content(self, field: u32) -> Content {
        use Content::{Bytes, Inside, Text};
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
            // Schema and type; its other texts are keys.
            (Message::EntityRef, 1 | 2) => Text,
            (Message::Event, 2) => Text,
            (Message::Event, 3) => Inside(Message::KeyValue),
            (Message::Link, 3) => Text,
            (Message::Link, 4) => Inside(Message::KeyValue),
            (Message::Status, 2) => Text,
            (Message::KeyValue, 2) => Inside(Message::AnyValue),
            (Message::AnyValue, 1) => Text,
            (Message::AnyValue, 5) => Inside(Message::Array),
            (Message::AnyValue, 6) => Inside(Message::Map),
            (Message::AnyValue, 7) => Bytes,
            (Message::Array, 1) => Inside(Message::AnyValue),
            (Message::Map, 1) => Inside(Message::KeyValue),
            _ => Content::Other,
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
            if let (Field::Bytes(content), Content::Inside(inner)) = (field, message.content(number)) {
                self.count(message, inner)?;
                self.check(inner, content, depth)?;
            }
        }
        Ok(())
    }
}

struct Rewriter<'c> {
    change: &'c mut dyn FnMut(&str) -> Option<String>,
    budget: Budget,
}

impl<'c> Rewriter<'c> {
    fn new(limits: &Limits, change: &'c mut dyn FnMut(&str) -> Option<String>) -> Self {
        Rewriter { change, budget: Budget::new(limits) }
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
            let Field::Bytes(content) = field else { continue };
            let changed = match message.content(number) {
                Content::Text => self.changed(&text(content)).map(String::into_bytes),
                Content::Bytes => match simdutf8::basic::from_utf8(content) {
                    Ok(text) => self.changed(text).map(String::into_bytes),
                    Err(_) => None,
                },
                Content::Inside(inner) => {
                    self.budget.count(message, inner)?;
                    self.rewrite(inner, content, depth)?
                }
                Content::Other => None,
            };
            if let Some(changed) = changed {
                let out = out.get_or_insert_with(|| Vec::with_capacity(bytes.len()));
                out.extend_from_slice(&bytes[copied..start]);
                write_bytes(out, number, &changed);
                copied = bytes.len() - fields.bytes_left();
            }
        }
        if let Some(out) = &mut out {
            out.extend_from_slice(&bytes[copied..]);
        }
        Ok(out)
    }

    fn changed(&mut self, text: &str) -> Option<String> {
        (self.change)(text).filter(|changed| changed != text)
    }
}
