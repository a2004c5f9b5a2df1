//! One span or log record in its protobuf form, and how an export message is taken apart into them.

use std::borrow::Cow;
use std::sync::Arc;

use gradus_core::span::SpanResource;

use crate::decode::{decode_resource, decode_text};
use crate::limits::RecordLimits;
use crate::wire::{WireError, WireFields, WireValue};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TelemetrySignal {
    Span,
    Log,
}

/// Who made a record: its resource and the name of its instrumentation scope.
#[derive(Clone, Debug, Default)]
pub struct RecordScope {
    pub resource: Arc<SpanResource>,
    pub name: Arc<str>,
}

/// One record, not yet decoded.
#[derive(Clone, Copy, Debug)]
pub struct ExportRecord<'a> {
    pub signal: TelemetrySignal,
    pub scope: &'a RecordScope,
    pub body: &'a [u8],
}

/// Hands every record of an `ExportTraceServiceRequest` or `ExportLogsServiceRequest` to `sink`. The two have the same
/// shape; the signal is read off each record.
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

pub(crate) fn read_resource_records(
    bytes: &[u8],
    limits: &RecordLimits,
    sink: &mut dyn FnMut(ExportRecord<'_>) -> Result<(), WireError>,
) -> Result<(), WireError> {
    let mut resource = Arc::new(SpanResource::default());
    // Field order is free in protobuf: the resource is looked up before its spans are read.
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
            (2, WireValue::Bytes(body)) => sink(ExportRecord { signal: signal_of_record(body), scope: &scope, body })?,
            _ => {}
        }
    }
    Ok(())
}

pub(crate) fn scope_name(bytes: &[u8]) -> Result<Cow<'_, str>, WireError> {
    let mut fields = WireFields::new(bytes);
    while let Some((number, field)) = fields.next()? {
        if let (1, WireValue::Bytes(name)) = (number, field) {
            return Ok(decode_text(name));
        }
    }
    Ok(Cow::Borrowed(""))
}

/// A span's field 1 is its trace id (bytes), a log record's is its time (fixed64). A log record without a time has
/// fields where a span has none, or numbers: observed time (11), attributes (6), span id (10), name (12).
pub fn signal_of_record(body: &[u8]) -> TelemetrySignal {
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
