//! One span or log record in its protobuf form, and how an export message is taken apart into them.

use std::borrow::Cow;
use std::sync::Arc;

use gradus_core::span::Resource;

use crate::decode::{decode_resource, text};
use crate::limits::Limits;
use crate::wire::{Field, Fields, WireError};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    Span,
    Log,
}

/// Who made a record: its resource and the name of its instrumentation scope.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    pub resource: Arc<Resource>,
    pub name: Arc<str>,
}

/// One record, not yet decoded.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    pub signal: Signal,
    pub scope: &'a Scope,
    pub body: &'a [u8],
}

/// Hands every record of an `ExportTraceServiceRequest` or `ExportLogsServiceRequest` to `sink`. The two have the same
/// shape; the signal is read off each record.
pub fn read_export(
    bytes: &[u8],
    limits: &Limits,
    sink: &mut dyn FnMut(Record<'_>) -> Result<(), WireError>,
) -> Result<(), WireError> {
    let mut fields = Fields::new(bytes);
    while let Some((number, field)) = fields.next()? {
        if let (1, Field::Bytes(resource_records)) = (number, field) {
            read_resource_records(resource_records, limits, sink)?;
        }
    }
    Ok(())
}

pub(crate) fn read_resource_records(
    bytes: &[u8],
    limits: &Limits,
    sink: &mut dyn FnMut(Record<'_>) -> Result<(), WireError>,
) -> Result<(), WireError> {
    let mut resource = Arc::new(Resource::default());
    // Field order is free in protobuf: the resource is looked up before its spans are read.
    let mut fields = Fields::new(bytes);
    while let Some((number, field)) = fields.next()? {
        if let (1, Field::Bytes(body)) = (number, field) {
            resource = Arc::new(decode_resource(body, limits)?);
            break;
        }
    }
    let mut fields = Fields::new(bytes);
    while let Some((number, field)) = fields.next()? {
        if let (2, Field::Bytes(body)) = (number, field) {
            read_scope_records(body, &resource, sink)?;
        }
    }
    Ok(())
}

pub(crate) fn read_scope_records(
    bytes: &[u8],
    resource: &Arc<Resource>,
    sink: &mut dyn FnMut(Record<'_>) -> Result<(), WireError>,
) -> Result<(), WireError> {
    let mut scope = Scope { resource: Arc::clone(resource), name: Arc::from("") };
    let mut fields = Fields::new(bytes);
    while let Some((number, field)) = fields.next()? {
        match (number, field) {
            (1, Field::Bytes(body)) => scope.name = Arc::from(scope_name(body)?.as_ref()),
            (2, Field::Bytes(body)) => sink(Record { signal: signal_of_record(body), scope: &scope, body })?,
            _ => {}
        }
    }
    Ok(())
}

pub(crate) fn scope_name(bytes: &[u8]) -> Result<Cow<'_, str>, WireError> {
    let mut fields = Fields::new(bytes);
    while let Some((number, field)) = fields.next()? {
        if let (1, Field::Bytes(name)) = (number, field) {
            return Ok(text(name));
        }
    }
    Ok(Cow::Borrowed(""))
}

/// A span's field 1 is its trace id (bytes), a log record's is its time (fixed64). A log record without a time has
/// fields where a span has none, or numbers: observed time (11), attributes (6), span id (10), name (12).
pub fn signal_of_record(body: &[u8]) -> Signal {
    let mut fields = Fields::new(body);
    while let Ok(Some((number, field))) = fields.next() {
        match (number, field) {
            (1 | 7 | 8, Field::Bytes(_)) | (7 | 8, Field::Fixed64(_)) => return Signal::Span,
            (1 | 11, Field::Fixed64(_)) | (2, Field::Varint(_)) | (6 | 10 | 12, Field::Bytes(_)) => {
                return Signal::Log;
            }
            _ => {}
        }
    }
    Signal::Span
}
