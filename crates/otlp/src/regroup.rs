//! Splits an export request by trace. Each part is a valid export request again, with the bytes of its records
//! unchanged. The server stores these parts, so that one trace can be read without reading its neighbours.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use gradus_core::span::{AttributeValue, SpanId, SpanResource, TraceId};

use crate::decode::{decode_resource, decode_text, span_id, trace_id};
use crate::limits::RecordLimits;
use crate::record::{TelemetrySignal, scope_name};
use crate::rewrite::check_record;
use crate::wire::{WireError, WireFields, WireValue, write_bytes, write_head};

/// An export request split by trace. Parts are in the order in which their traces first appear.
#[derive(Debug)]
pub struct RegroupedExport<'a> {
    /// Indexed by [`WireScope::resource`].
    signal: TelemetrySignal,
    resources: Vec<WireResource<'a>>,
    /// Indexed by [`WireRecord::scope`].
    scopes: Vec<WireScope<'a>>,
    pub parts: Vec<TracePart<'a>>,
    /// Records that were left out.
    pub rejected: RejectedRecords,
}

/// Number of rejected records, and the reason for the first of them. These are the two values of `partial_success`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RejectedRecords {
    pub count: u64,
    pub reason: Option<String>,
}

impl RejectedRecords {
    /// Counts rejected records. `reason` is called for the first of them only.
    pub fn add(&mut self, count: u64, reason: impl FnOnce() -> String) {
        if count > 0 && self.reason.is_none() {
            self.reason = Some(reason());
        }
        self.count += count;
    }
}

/// The records of one trace in a request, in the order of the request.
#[derive(Debug)]
pub struct TracePart<'a> {
    pub trace_id: TraceId,
    pub records: Vec<WireRecord<'a>>,
}

/// One record with the outline that a receiver needs.
#[derive(Debug)]
pub struct WireRecord<'a> {
    /// The bytes of the message. Owned after redaction, otherwise borrowed from the request.
    pub body: Cow<'a, [u8]>,
    pub scope: u32,
    pub record_outline: RecordOutline<'a>,
}

/// The fields of a record that are read before it is stored. For a log record: the id of its span, and its time as
/// start and end.
#[derive(Clone, Debug, Default)]
pub struct RecordOutline<'a> {
    pub span_id: SpanId,
    pub parent_id: Option<SpanId>,
    pub name: Cow<'a, str>,
    /// Times in nanoseconds since the Unix epoch, by the clock of the sender.
    pub start_ns: u64,
    pub end_ns: u64,
    pub is_error: bool,
}

/// A resource in its wire form, and decoded.
#[derive(Debug, Default)]
pub struct WireResource<'a> {
    pub body: Option<Cow<'a, [u8]>>,
    pub resource: Arc<SpanResource>,
    /// The `schema_url`, not decoded.
    pub schema: Option<Cow<'a, [u8]>>,
}

/// A scope in its wire form. One resource may have many.
#[derive(Debug)]
pub struct WireScope<'a> {
    pub body: Option<Cow<'a, [u8]>>,
    pub schema: Option<Cow<'a, [u8]>>,
    pub name: Cow<'a, str>,
    resource: u32,
}

/// Splits a request. Records that cannot be kept are counted in `rejected`. A body that is not a request at all, or
/// whose resources cannot be decoded, is an error.
pub fn regroup_export<'a>(
    bytes: &'a [u8],
    signal: TelemetrySignal,
    limits: &RecordLimits,
) -> Result<RegroupedExport<'a>, WireError> {
    regroup_with_budget(bytes, signal, limits, &mut |_| true)
}

/// As [`regroup_export`], and asks `take` for the memory that records need in addition to their bytes, because small
/// records need more than they have. If it refuses, the result is [`WireError::NoRoom`]. Memory is never given back
/// through `take`: the caller frees all of it with the request.
pub fn regroup_with_budget<'a>(
    bytes: &'a [u8],
    signal: TelemetrySignal,
    limits: &RecordLimits,
    take: &mut dyn FnMut(usize) -> bool,
) -> Result<RegroupedExport<'a>, WireError> {
    let request = RegroupedExport {
        signal,
        resources: Vec::new(),
        scopes: Vec::new(),
        parts: Vec::new(),
        rejected: RejectedRecords::default(),
    };
    let mut reading = ExportRegrouper { request, index: HashMap::new(), limits, take, unreserved_bytes: 0 };
    let mut fields = WireFields::new(bytes);
    while let Some((number, field)) = fields.next()? {
        if let (1, WireValue::Bytes(body)) = (number, field) {
            reading.add_resource(body)?;
        }
    }
    Ok(reading.request)
}

/// Estimated memory per item. Vectors double when they are full, hence the factors; a trace also needs an entry in
/// the index and a row in the store.
const RESOURCE_MEMORY_BYTES: usize = 2 * size_of::<WireResource<'_>>() + size_of::<SpanResource>();
const SCOPE_MEMORY_BYTES: usize = 2 * size_of::<WireScope<'_>>();
const RECORD_MEMORY_BYTES: usize = 3 * size_of::<WireRecord<'_>>();
const TRACE_MEMORY_BYTES: usize = 1024;
const ATTRIBUTE_MEMORY_BYTES: usize = 2 * size_of::<(Cow<'_, str>, AttributeValue<'_>)>();
/// Memory is requested in steps of this size, not for every record.
const MEMORY_STEP_BYTES: usize = 64 << 10;

/// Reads a request. Resources and scopes are added only when they have an accepted record.
struct ExportRegrouper<'a, 'r> {
    request: RegroupedExport<'a>,
    index: HashMap<TraceId, usize>,
    limits: &'r RecordLimits,
    take: &'r mut dyn FnMut(usize) -> bool,
    /// Bytes that were used and not requested yet: less than a step.
    unreserved_bytes: usize,
}

impl<'a> ExportRegrouper<'a, '_> {
    /// Reads one `ResourceSpans` or `ResourceLogs` message in two passes.
    fn add_resource(&mut self, bytes: &'a [u8]) -> Result<(), WireError> {
        let mut resource = WireResource::default();
        // Protobuf allows fields in any order: resource and schema are looked up before the records are read.
        let mut fields = WireFields::new(bytes);
        while let Some((number, field)) = fields.next()? {
            match (number, field) {
                (1, WireValue::Bytes(body)) => {
                    let decoded = decode_resource(body, self.limits)?;
                    self.reserve_bytes(decoded.attributes.value_count() * ATTRIBUTE_MEMORY_BYTES)?;
                    resource.resource = Arc::new(decoded);
                    resource.body = Some(Cow::Borrowed(body));
                }
                (3, WireValue::Bytes(url)) => resource.schema = Some(Cow::Borrowed(url)),
                _ => {}
            }
        }
        let scopes_before = self.request.scopes.len();
        let mut fields = WireFields::new(bytes);
        while let Some((number, field)) = fields.next()? {
            if let (2, WireValue::Bytes(body)) = (number, field) {
                self.add_scope(body)?;
            }
        }
        // Resources without accepted records are dropped.
        if self.request.scopes.len() > scopes_before {
            self.reserve_bytes(RESOURCE_MEMORY_BYTES)?;
            self.request.resources.push(resource);
        }
        Ok(())
    }

    /// Adds a scope of the resource that is being read.
    fn add_scope(&mut self, bytes: &'a [u8]) -> Result<(), WireError> {
        let (mut scope_body, mut schema) = (None, None);
        let mut fields = WireFields::new(bytes);
        while let Some((number, field)) = fields.next()? {
            match (number, field) {
                (1, WireValue::Bytes(body)) => scope_body = Some(body),
                (3, WireValue::Bytes(url)) => schema = Some(Cow::Borrowed(url)),
                _ => {}
            }
        }
        let name = scope_body.map_or(Ok(Cow::Borrowed("")), scope_name)?;
        let resource = self.request.resources.len() as u32;
        let mut scope = Some(WireScope { name, body: scope_body.map(Cow::Borrowed), schema, resource });
        let mut last: Option<(TraceId, usize)> = None;
        let mut fields = WireFields::new(bytes);
        while let Some((field_number, field)) = fields.next()? {
            let (2, WireValue::Bytes(body)) = (field_number, field) else { continue };
            let (trace_id, record_outline) = match read_record_outline(body, self.request.signal, self.limits) {
                Ok(read) => read,
                Err(rejection) => {
                    self.request.rejected.add(1, || rejection.to_string());
                    continue;
                }
            };
            // Scopes without accepted records are dropped, so the scope is added with its first record.
            if let Some(scope) = scope.take() {
                self.reserve_bytes(SCOPE_MEMORY_BYTES)?;
                self.request.scopes.push(scope);
            }
            // Spans of one trace are usually neighbours: the map is asked only when the trace changes.
            let part = match last {
                Some((known, part)) if known == trace_id => part,
                _ => self.trace_part_index(trace_id)?,
            };
            last = Some((trace_id, part));
            self.reserve_bytes(RECORD_MEMORY_BYTES)?;
            let scope = self.request.scopes.len() as u32 - 1;
            self.request.parts[part].records.push(WireRecord { body: Cow::Borrowed(body), scope, record_outline });
        }
        Ok(())
    }

    /// Index of the part of a trace, which is created if necessary.
    fn trace_part_index(&mut self, trace_id: TraceId) -> Result<usize, WireError> {
        if let Some(part) = self.index.get(&trace_id) {
            return Ok(*part);
        }
        self.reserve_bytes(TRACE_MEMORY_BYTES)?;
        let part = self.request.parts.len();
        self.request.parts.push(TracePart { trace_id, records: Vec::new() });
        self.index.insert(trace_id, part);
        Ok(part)
    }

    /// Accounts for memory before it is allocated.
    fn reserve_bytes(&mut self, bytes: usize) -> Result<(), WireError> {
        self.unreserved_bytes += bytes;
        if self.unreserved_bytes < MEMORY_STEP_BYTES {
            return Ok(());
        }
        if (self.take)(std::mem::take(&mut self.unreserved_bytes)) { Ok(()) } else { Err(WireError::NoRoom) }
    }
}

impl<'a> RegroupedExport<'a> {
    /// The scope of a record of this request.
    pub fn scope(&self, record: &WireRecord<'_>) -> &WireScope<'a> {
        &self.scopes[record.scope as usize]
    }

    /// The decoded resource of a record of this request.
    pub fn resource(&self, record: &WireRecord<'_>) -> &Arc<SpanResource> {
        &self.resources[self.resource_index(record)].resource
    }

    fn resource_index(&self, record: &WireRecord<'_>) -> usize {
        self.scope(record).resource as usize
    }

    /// For redaction, which changes the bytes of resources. The decoded resources do not follow.
    pub fn resources_mut(&mut self) -> &mut [WireResource<'a>] {
        &mut self.resources
    }

    /// For redaction, as [`Self::resources_mut`].
    pub fn scopes_mut(&mut self) -> &mut [WireScope<'a>] {
        &mut self.scopes
    }

    /// Length of the output of [`Self::write`]. Resource and scope are written once for every trace that has records of
    /// them, so all parts together may be longer than the request.
    pub fn written_length(&self, part: &TracePart<'_>) -> usize {
        self.resource_runs(part).map(|run| delimited_field_size(self.resource_length(run))).sum()
    }

    /// Writes one part as an export request of its own.
    pub fn write(&self, part: &TracePart<'_>, out: &mut Vec<u8>) {
        out.reserve(self.written_length(part));
        for records in self.resource_runs(part) {
            let resource = &self.resources[self.resource_index(&records[0])];
            write_head(out, 1, self.resource_length(records));
            write_optional(out, 1, resource.body.as_deref());
            for run in scope_runs(records) {
                let scope = self.scope(&run[0]);
                write_head(out, 2, self.scope_length(run));
                write_optional(out, 1, scope.body.as_deref());
                for record in run {
                    write_bytes(out, 2, &record.body);
                }
                write_optional(out, 3, scope.schema.as_deref());
            }
            write_optional(out, 3, resource.schema.as_deref());
        }
    }

    /// Runs of neighbouring records with the same resource. A resource that returns later is written again: sorting
    /// would change the order of log records with equal times.
    fn resource_runs<'p>(&self, part: &'p TracePart<'_>) -> impl Iterator<Item = &'p [WireRecord<'p>]> {
        part.records.chunk_by(|a, b| self.resource_index(a) == self.resource_index(b))
    }

    /// Length of a `ResourceSpans` message. Protobuf writes lengths before content, so they are computed first.
    fn resource_length(&self, records: &[WireRecord<'_>]) -> usize {
        let resource = &self.resources[self.resource_index(&records[0])];
        optional_field_size(resource.body.as_deref())
            + optional_field_size(resource.schema.as_deref())
            + scope_runs(records).map(|run| delimited_field_size(self.scope_length(run))).sum::<usize>()
    }

    /// Length of a `ScopeSpans` message.
    fn scope_length(&self, run: &[WireRecord<'_>]) -> usize {
        let scope = self.scope(&run[0]);
        optional_field_size(scope.body.as_deref())
            + optional_field_size(scope.schema.as_deref())
            + run.iter().map(|record| delimited_field_size(record.body.len())).sum::<usize>()
    }
}

/// Runs of neighbouring records with the same scope.
fn scope_runs<'p, 'a>(records: &'p [WireRecord<'a>]) -> impl Iterator<Item = &'p [WireRecord<'a>]> {
    records.chunk_by(|a, b| a.scope == b.scope)
}

/// Why one record is left out of the request that it came in. Its sender gets the first reason of a request in the partial
/// success response of OTLP.
#[derive(Debug, thiserror::Error)]
enum RecordRejection {
    #[error("{what}: {reason}")]
    Malformed {
        what: &'static str,
        #[source]
        reason: WireError,
    },
    #[error("a log record without a trace id is not kept")]
    LogWithoutTrace,
    #[error("a span without a trace id")]
    SpanWithoutTrace,
    #[error("a span without an id")]
    SpanWithoutId,
}

/// Reads what has to be known of a record before it is stored, and checks it against the limits.
fn read_record_outline<'a>(
    body: &'a [u8],
    signal: TelemetrySignal,
    limits: &RecordLimits,
) -> Result<(TraceId, RecordOutline<'a>), RecordRejection> {
    let mut record_outline = RecordOutline::default();
    let read = match signal {
        TelemetrySignal::Span => read_span_outline(body, limits, &mut record_outline),
        TelemetrySignal::Log => read_log_outline(body, limits, &mut record_outline),
    };
    let what = match signal {
        TelemetrySignal::Span => "a span",
        TelemetrySignal::Log => "a log record",
    };
    match read {
        Err(reason) => Err(RecordRejection::Malformed { what, reason }),
        Ok(TraceId(0)) if signal == TelemetrySignal::Log => Err(RecordRejection::LogWithoutTrace),
        Ok(TraceId(0)) => Err(RecordRejection::SpanWithoutTrace),
        Ok(_) if signal == TelemetrySignal::Span && record_outline.span_id == SpanId(0) => {
            Err(RecordRejection::SpanWithoutId)
        }
        Ok(trace_id) => Ok((trace_id, record_outline)),
    }
}

/// Reads a `Span` message into `record_outline`, and checks all of it, so that a stored span can always be decoded.
fn read_span_outline<'a>(
    body: &'a [u8],
    limits: &RecordLimits,
    record_outline: &mut RecordOutline<'a>,
) -> Result<TraceId, WireError> {
    let mut trace = TraceId::default();
    check_record(body, TelemetrySignal::Span, limits, |number, field| {
        match (number, field) {
            (1, WireValue::Bytes(id)) => trace = trace_id(id)?,
            (2, WireValue::Bytes(id)) => record_outline.span_id = span_id(id)?,
            (4, WireValue::Bytes(id)) => record_outline.parent_id = span_id(id)?.non_zero(),
            (5, WireValue::Bytes(name)) => record_outline.name = decode_text(name),
            (7, WireValue::Fixed64(time)) => record_outline.start_ns = time,
            (8, WireValue::Fixed64(time)) => record_outline.end_ns = time,
            (15, WireValue::Bytes(status)) => record_outline.is_error = is_error(status)?,
            _ => {}
        }
        Ok(())
    })?;
    Ok(trace)
}

/// Reads a `LogRecord` message into `record_outline`, and checks all of it.
fn read_log_outline<'a>(
    body: &'a [u8],
    limits: &RecordLimits,
    record_outline: &mut RecordOutline<'a>,
) -> Result<TraceId, WireError> {
    let mut trace = TraceId::default();
    check_record(body, TelemetrySignal::Log, limits, |number, field| {
        match (number, field) {
            (1, WireValue::Fixed64(time)) => record_outline.start_ns = time,
            (11, WireValue::Fixed64(time)) if record_outline.start_ns == 0 => record_outline.start_ns = time,
            (9, WireValue::Bytes(id)) => trace = trace_id(id)?,
            (10, WireValue::Bytes(id)) => record_outline.span_id = span_id(id)?,
            _ => {}
        }
        Ok(())
    })?;
    record_outline.end_ns = record_outline.start_ns;
    Ok(trace)
}

/// Whether a `Status` message has the code of an error.
fn is_error(status: &[u8]) -> Result<bool, WireError> {
    let mut fields = WireFields::new(status);
    while let Some((number, field)) = fields.next()? {
        if let (3, WireValue::Varint(2)) = (number, field) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Bytes of a varint: seven bits each.
fn varint_length(value: usize) -> usize {
    (usize::BITS - (value | 1).leading_zeros()).div_ceil(7) as usize
}

/// The length of a field that holds `length` bytes. Field numbers below 16, which are all there are here, take one byte.
fn delimited_field_size(length: usize) -> usize {
    1 + varint_length(length) + length
}

fn optional_field_size(bytes: Option<&[u8]>) -> usize {
    bytes.map_or(0, |bytes| delimited_field_size(bytes.len()))
}

fn write_optional(out: &mut Vec<u8>, field: u32, bytes: Option<&[u8]>) {
    if let Some(bytes) = bytes {
        write_bytes(out, field, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(number: u32, body: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        write_bytes(&mut out, number, body);
        out
    }

    fn span(trace: u8, extra: &[u8]) -> Vec<u8> {
        let ids = [field(1, &[trace; 16]), field(2, &[1; 8])].concat();
        field(2, &[&ids, extra].concat())
    }

    #[test]
    fn what_takes_more_memory_than_it_has_bytes_is_asked_for() {
        let mut taken = 0;
        let mut run = |bytes: &[u8], most: usize| {
            taken = 0;
            let read = regroup_with_budget(bytes, TelemetrySignal::Span, &RecordLimits::default(), &mut |bytes| {
                taken += bytes;
                taken <= most
            });
            (read.map(|request| (request.scopes.len(), request.parts.len())), taken)
        };
        // Scopes without records need nothing.
        let empty = field(1, &[0x12, 0x00].repeat(100_000));
        assert_eq!(run(&empty, 0), (Ok((0, 0)), 0));
        let spans: Vec<u8> = (0..250).flat_map(|trace| span(trace + 1, &[])).collect();
        let (read, taken) = run(&field(1, &field(2, &spans)), usize::MAX);
        assert_eq!(read, Ok((1, 250)));
        assert!(taken > 250 * TRACE_MEMORY_BYTES, "{taken}");
        assert_eq!(run(&field(1, &field(2, &spans)), 100_000).0, Err(WireError::NoRoom));
        let attributes = field(1, &field(1, &[0x0a, 0x00].repeat(50_000)));
        assert_eq!(run(&attributes, 100_000).0, Err(WireError::NoRoom));
    }

    #[test]
    fn a_record_over_a_limit_is_left_out_alone() {
        let mut deep = Vec::new();
        for _ in 0..70 {
            deep = field(5, &field(1, &deep));
        }
        let nested = field(9, &field(2, &deep));
        let broken = field(9, &[0x0a, 0x7f]);
        let spans = [span(1, &[]), span(2, &nested), span(3, &broken), span(4, &[])].concat();
        let request = field(1, &field(2, &spans));
        let request = regroup_export(&request, TelemetrySignal::Span, &RecordLimits::default()).expect("a request");
        assert_eq!(request.parts.iter().map(|part| part.trace_id.0 as u8).collect::<Vec<_>>(), [1, 4]);
        assert_eq!(request.rejected.count, 2);
        assert!(request.rejected.reason.is_some_and(|reason| reason.contains("64 levels")));
    }
}
