//! Encodes spans and log records as protobuf, so that every source ends in one form: records that came in as JSON are
//! spooled and stored just like those that came in as protobuf.

use gradus_core::span::{AttributeList, AttributeValue, Span, SpanEvent, StatusCode};

use crate::log_event::LogEvent;
use crate::wire::{write_bytes, write_fixed64, write_number};

/// Appends the body of a `Span` message. Decoding it gives the same span, resource and scope aside: those are in the
/// messages around it.
pub fn encode_span(span: &Span<'_>, out: &mut Vec<u8>) {
    write_bytes(out, 1, &span.trace_id.0.to_be_bytes());
    write_bytes(out, 2, &span.span_id.0.to_be_bytes());
    if let Some(parent) = span.parent_id {
        write_bytes(out, 4, &parent.0.to_be_bytes());
    }
    write_bytes(out, 5, span.name.as_bytes());
    write_fixed64(out, 7, span.start_ns);
    write_fixed64(out, 8, span.end_ns);
    encode_attributes(&span.attributes, 9, out);
    for event in &span.events {
        write_message(out, 11, |out| encode_event(event, out));
    }
    write_message(out, 15, |out| {
        write_bytes(out, 2, span.status.message.as_bytes());
        let code = match span.status.code {
            StatusCode::Unset => 0,
            StatusCode::Ok => 1,
            StatusCode::Error => 2,
        };
        write_number(out, 3, code);
    });
}

/// Appends the body of a `LogRecord` message. The name goes into `event_name`, wherever it came from.
pub fn encode_log(log: &LogEvent<'_>, out: &mut Vec<u8>) {
    // Always written, also if it is 0: it distinguishes a log record from a span.
    write_fixed64(out, 1, log.event.time_ns);
    if let Some(body) = &log.event.body {
        write_message(out, 5, |out| encode_value(body, out));
    }
    encode_attributes(&log.event.attributes, 6, out);
    write_bytes(out, 9, &log.trace_id.0.to_be_bytes());
    write_bytes(out, 10, &log.span_id.0.to_be_bytes());
    write_bytes(out, 12, log.event.name.as_bytes());
}

/// Appends the body of a `Span.Event` message.
fn encode_event(event: &SpanEvent<'_>, out: &mut Vec<u8>) {
    write_fixed64(out, 1, event.time_ns);
    write_bytes(out, 2, event.name.as_bytes());
    encode_attributes(&event.attributes, 3, out);
}

/// Appends each attribute as a `KeyValue` message in the given field, in order and with duplicates.
pub(crate) fn encode_attributes(attributes: &AttributeList<'_>, field: u32, out: &mut Vec<u8>) {
    for (key, value) in attributes.iter() {
        write_message(out, field, |out| encode_key_value(key, value, out));
    }
}

/// Appends the body of a `KeyValue` message.
fn encode_key_value(key: &str, value: &AttributeValue<'_>, out: &mut Vec<u8>) {
    write_bytes(out, 1, key.as_bytes());
    write_message(out, 2, |out| encode_value(value, out));
}

/// Appends the content of an `AnyValue` message. Null is the empty message.
fn encode_value(value: &AttributeValue<'_>, out: &mut Vec<u8>) {
    match value {
        AttributeValue::Null => {}
        AttributeValue::Str(text) => write_bytes(out, 1, text.as_bytes()),
        AttributeValue::Bool(flag) => write_number(out, 2, u64::from(*flag)),
        AttributeValue::Int(integer) => write_number(out, 3, *integer as u64),
        AttributeValue::Double(double) => write_fixed64(out, 4, double.to_bits()),
        AttributeValue::Bytes(bytes) => write_bytes(out, 7, bytes),
        AttributeValue::Array(items) => write_message(out, 5, |out| {
            for item in items {
                write_message(out, 1, |out| encode_value(item, out));
            }
        }),
        AttributeValue::Map(entries) => write_message(out, 6, |out| {
            for (key, value) in entries {
                write_message(out, 1, |out| encode_key_value(key, value, out));
            }
        }),
    }
}

/// Writes a submessage through a buffer of its own, since its length precedes it.
fn write_message(out: &mut Vec<u8>, field: u32, write: impl FnOnce(&mut Vec<u8>)) {
    let mut body = Vec::new();
    write(&mut body);
    write_bytes(out, field, &body);
}
