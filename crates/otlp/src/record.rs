//! One span or log record in its protobuf form, and how an export message is split into them. Numbers in the code are
//! field numbers of `opentelemetry/proto/{trace,logs,resource,common}/v1`.

use std::borrow::Cow;
use std::sync::Arc;

use gradus_core::span::SpanResource;

use crate::decode::{decode_resource, decode_text};
use crate::limits::RecordLimits;
use crate::wire::{WireError, WireFields, WireValue};

/// The two signals of OTLP that are read. Metrics and profiles are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TelemetrySignal {
    Span,
    Log,
}

/// Origin of a record: its resource and the name of its instrumentation scope. Shared by all records of one
/// `ScopeSpans` message, hence the `Arc`s.
#[derive(Clone, Debug, Default)]
pub struct RecordScope {
    pub resource: Arc<SpanResource>,
    pub name: Arc<str>,
}

/// One record that is not decoded yet.
#[derive(Clone, Copy, Debug)]
pub struct ExportRecord<'a> {
    pub signal: TelemetrySignal,
    pub scope: &'a RecordScope,
    /// The bytes of the `Span` or `LogRecord` message, without tag and length.
    pub body: &'a [u8],
}

/// Hands every record of an `ExportTraceServiceRequest` or `ExportLogsServiceRequest` to `sink`. The two messages have
/// the same shape, so the signal is read off each record. Stops at the first malformed field and at the first error of
/// `sink`; the records before have been delivered then.
pub fn read_export(
    bytes: &[u8],
    limits: &RecordLimits,
    sink: &mut dyn FnMut(ExportRecord<'_>) -> Result<(), WireError>,
) -> Result<(), WireError> {
    let mut fields = WireFields::new(bytes);
    while let Some((number, field)) = fields.next()? {
        if let (1, WireValue::Bytes(resource_records)) = (number, field) {
            read_resource_records(resource_records, limits, sink)?;
        }
    }
    Ok(())
}

/// Reads one `ResourceSpans` or `ResourceLogs` message: field 1 is the resource, field 2 a scope with its records.
pub(crate) fn read_resource_records(
    bytes: &[u8],
    limits: &RecordLimits,
    sink: &mut dyn FnMut(ExportRecord<'_>) -> Result<(), WireError>,
) -> Result<(), WireError> {
    let mut resource = Arc::new(SpanResource::default());
    // Protobuf allows fields in any order, and the resource must be known before its records are delivered.
    let mut fields = WireFields::new(bytes);
    while let Some((number, field)) = fields.next()? {
        if let (1, WireValue::Bytes(body)) = (number, field) {
            resource = Arc::new(decode_resource(body, limits)?);
            break;
        }
    }
    let mut fields = WireFields::new(bytes);
    while let Some((number, field)) = fields.next()? {
        if let (2, WireValue::Bytes(body)) = (number, field) {
            read_scope_records(body, &resource, sink)?;
        }
    }
    Ok(())
}

/// Reads one `ScopeSpans` or `ScopeLogs` message. A scope that follows its records does not apply to them; exporters
/// write it first.
pub(crate) fn read_scope_records(
    bytes: &[u8],
    resource: &Arc<SpanResource>,
    sink: &mut dyn FnMut(ExportRecord<'_>) -> Result<(), WireError>,
) -> Result<(), WireError> {
    let mut scope = RecordScope { resource: Arc::clone(resource), name: Arc::from("") };
    let mut fields = WireFields::new(bytes);
    while let Some((number, field)) = fields.next()? {
        match (number, field) {
            (1, WireValue::Bytes(body)) => scope.name = Arc::from(scope_name(body)?.as_ref()),
            (2, WireValue::Bytes(body)) => sink(ExportRecord { signal: detect_signal(body), scope: &scope, body })?,
            _ => {}
        }
    }
    Ok(())
}

/// The `name` of an `InstrumentationScope` message; empty if it has none.
pub(crate) fn scope_name(bytes: &[u8]) -> Result<Cow<'_, str>, WireError> {
    let mut fields = WireFields::new(bytes);
    while let Some((number, field)) = fields.next()? {
        if let (1, WireValue::Bytes(name)) = (number, field) {
            return Ok(decode_text(name));
        }
    }
    Ok(Cow::Borrowed(""))
}

/// Detects spans and log records by the wire types of their fields. Field 1 of a span is its trace id (bytes), of a
/// log record its time (fixed64). A log record without a time has fields that a span does not have, or has with
/// another type: observed time (11), attributes (6), span id (10), name (12). A record that fits both counts as a
/// span.
pub fn detect_signal(body: &[u8]) -> TelemetrySignal {
    let mut fields = WireFields::new(body);
    while let Ok(Some((number, field))) = fields.next() {
        match (number, field) {
            (1 | 7 | 8, WireValue::Bytes(_)) | (7 | 8, WireValue::Fixed64(_)) => {
                return TelemetrySignal::Span;
            }
            (1 | 11, WireValue::Fixed64(_)) | (2, WireValue::Varint(_)) | (6 | 10 | 12, WireValue::Bytes(_)) => {
                return TelemetrySignal::Log;
            }
            _ => {}
        }
    }
    TelemetrySignal::Span
}
