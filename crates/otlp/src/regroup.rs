//! Takes an export request apart by trace: one part a trace, each again a valid export request with the bytes of its
//! records untouched. A receiver stores parts, so that a trace is read without reading its neighbours.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use gradus_core::span::{Resource, SpanId, TraceId};

use crate::decode::{decode_resource, span_id, text, trace_id};
use crate::limits::Limits;
use crate::record::{Signal, scope_name};
use crate::wire::{Field, Fields, WireError, write_bytes, write_varint};

/// An export request by trace, in order of first appearance.
#[derive(Debug)]
pub struct Regrouped<'a> {
    signal: Signal,
    scopes: Vec<WireScope<'a>>,
    pub parts: Vec<TracePart<'a>>,
    /// Records that were left out.
    pub rejected: Rejected,
}

/// How many records cannot be kept, and why the first of them cannot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rejected {
    pub count: u64,
    pub reason: Option<String>,
}

impl Rejected {
    pub fn add(&mut self, count: u64, reason: impl FnOnce() -> String) {
        if count > 0 && self.reason.is_none() {
            self.reason = Some(reason());
        }
        self.count += count;
    }
}

/// What one trace has in a request.
#[derive(Debug)]
pub struct TracePart<'a> {
    pub trace_id: TraceId,
    pub records: Vec<WireRecord<'a>>,
}

/// One record with what a receiver has to know of it.
#[derive(Debug)]
pub struct WireRecord<'a> {
    pub body: Cow<'a, [u8]>,
    pub scope: u32,
    pub mark: Mark<'a>,
}

/// The little of a record that is read before it is stored.
#[derive(Clone, Debug, Default)]
pub struct Mark<'a> {
    pub span_id: SpanId,
    pub parent_id: Option<SpanId>,
    pub name: Cow<'a, str>,
    pub start_ns: u64,
    pub end_ns: u64,
    pub is_error: bool,
}

/// A resource and a scope, as they came.
#[derive(Clone, Debug)]
pub struct WireScope<'a> {
    pub resource_body: Option<Cow<'a, [u8]>>,
    pub resource: Arc<Resource>,
    resource_schema: Option<&'a [u8]>,
    pub body: Option<Cow<'a, [u8]>>,
    schema: Option<&'a [u8]>,
    pub name: Cow<'a, str>,
}

/// Takes a request apart. Records that cannot be kept are counted; a body that is no request at all is an error.
pub fn regroup<'a>(bytes: &'a [u8], signal: Signal, limits: &Limits) -> Result<Regrouped<'a>, WireError> {
    let mut request =
        Regrouped { signal, scopes: Vec::new(), parts: Vec::new(), rejected: Rejected::default() };
    let mut index: HashMap<TraceId, usize> = HashMap::new();
    let mut fields = Fields::new(bytes);
    while let Some((number, field)) = fields.next()? {
        if let (1, Field::Bytes(body)) = (number, field) {
            request.add_resource(body, limits, &mut index)?;
        }
    }
    Ok(request)
}

impl<'a> Regrouped<'a> {
    fn add_resource(
        &mut self,
        bytes: &'a [u8],
        limits: &Limits,
        index: &mut HashMap<TraceId, usize>,
    ) -> Result<(), WireError> {
        let mut scope = WireScope {
            resource_body: None,
            resource: Arc::default(),
            resource_schema: None,
            body: None,
            schema: None,
            name: Cow::Borrowed(""),
        };
        // Field order is free in protobuf: what is said of all spans is looked up before they are read.
        let mut fields = Fields::new(bytes);
        while let Some((number, field)) = fields.next()? {
            match (number, field) {
                (1, Field::Bytes(body)) => {
                    scope.resource = Arc::new(decode_resource(body, limits)?);
                    scope.resource_body = Some(Cow::Borrowed(body));
                }
                (3, Field::Bytes(url)) => scope.resource_schema = Some(url),
                _ => {}
            }
        }
        let mut fields = Fields::new(bytes);
        while let Some((number, field)) = fields.next()? {
            if let (2, Field::Bytes(body)) = (number, field) {
                self.add_scope(scope.clone(), body, limits, index)?;
            }
        }
        Ok(())
    }

    fn add_scope(
        &mut self,
        mut scope: WireScope<'a>,
        bytes: &'a [u8],
        limits: &Limits,
        index: &mut HashMap<TraceId, usize>,
    ) -> Result<(), WireError> {
        let mut fields = Fields::new(bytes);
        while let Some((number, field)) = fields.next()? {
            match (number, field) {
                (1, Field::Bytes(body)) => {
                    scope.name = scope_name(body)?;
                    scope.body = Some(Cow::Borrowed(body));
                }
                (3, Field::Bytes(url)) => scope.schema = Some(url),
                _ => {}
            }
        }
        let number = self.scopes.len() as u32;
        self.scopes.push(scope);
        let mut last: Option<(TraceId, usize)> = None;
        let mut fields = Fields::new(bytes);
        while let Some((field_number, field)) = fields.next()? {
            let (2, Field::Bytes(body)) = (field_number, field) else { continue };
            if body.len() > limits.record_bytes {
                let (size, limit) = (body.len() as u64, limits.record_bytes);
                self.rejected.add(1, || WireError::RecordTooLarge { size, limit }.to_string());
                continue;
            }
            let (trace_id, mark) = match mark(body, self.signal) {
                Ok(read) => read,
                Err(reason) => {
                    self.rejected.add(1, || reason);
                    continue;
                }
            };
            let part = match last {
                Some((known, part)) if known == trace_id => part,
                _ => *index.entry(trace_id).or_insert_with(|| {
                    self.parts.push(TracePart { trace_id, records: Vec::new() });
                    self.parts.len() - 1
                }),
            };
            last = Some((trace_id, part));
            self.parts[part].records.push(WireRecord { body: Cow::Borrowed(body), scope: number, mark });
        }
        Ok(())
    }

    pub fn scope(&self, record: &WireRecord<'_>) -> &WireScope<'a> {
        &self.scopes[record.scope as usize]
    }

    pub fn scopes_mut(&mut self) -> &mut [WireScope<'a>] {
        &mut self.scopes
    }

    /// Writes one trace's part as an export request of its own.
    pub fn write(&self, part: &TracePart<'_>, out: &mut Vec<u8>) {
        for run in part.records.chunk_by(|a, b| a.scope == b.scope) {
            let scope = &self.scopes[run[0].scope as usize];
            let of_scope = optional(scope.body.as_deref())
                + optional(scope.schema)
                + run.iter().map(|record| delimited(record.body.len())).sum::<usize>();
            let of_resource = optional(scope.resource_body.as_deref())
                + optional(scope.resource_schema)
                + delimited(of_scope);
            out.reserve(of_resource + 16);
            write_head(out, 1, of_resource);
            write_optional(out, 1, scope.resource_body.as_deref());
            write_head(out, 2, of_scope);
            write_optional(out, 1, scope.body.as_deref());
            for record in run {
                write_bytes(out, 2, &record.body);
            }
            write_optional(out, 3, scope.schema);
            write_optional(out, 3, scope.resource_schema);
        }
    }
}

/// Reads what has to be known of a record before it is stored; the reason when it cannot be kept.
fn mark(body: &[u8], signal: Signal) -> Result<(TraceId, Mark<'_>), String> {
    let mut mark = Mark::default();
    let read = match signal {
        Signal::Span => span_mark(body, &mut mark),
        Signal::Log => log_mark(body, &mut mark),
    };
    let what = match signal {
        Signal::Span => "a span",
        Signal::Log => "a log record",
    };
    match read {
        Err(reason) => Err(format!("{what}: {reason}")),
        Ok(TraceId(0)) if signal == Signal::Log => {
            Err("a log record without a trace id is not kept".to_owned())
        }
        Ok(TraceId(0)) => Err("a span without a trace id".to_owned()),
        Ok(_) if signal == Signal::Span && mark.span_id == SpanId(0) => {
            Err("a span without an id".to_owned())
        }
        Ok(trace_id) => Ok((trace_id, mark)),
    }
}

fn span_mark<'a>(body: &'a [u8], mark: &mut Mark<'a>) -> Result<TraceId, WireError> {
    let mut trace = TraceId::default();
    let mut fields = Fields::new(body);
    while let Some((number, field)) = fields.next()? {
        match (number, field) {
            (1, Field::Bytes(id)) => trace = trace_id(id)?,
            (2, Field::Bytes(id)) => mark.span_id = span_id(id)?,
            (4, Field::Bytes(id)) => mark.parent_id = span_id(id)?.non_zero(),
            (5, Field::Bytes(name)) => mark.name = text(name),
            (7, Field::Fixed64(time)) => mark.start_ns = time,
            (8, Field::Fixed64(time)) => mark.end_ns = time,
            (15, Field::Bytes(status)) => mark.is_error = is_error(status)?,
            _ => {}
        }
    }
    Ok(trace)
}

fn log_mark<'a>(body: &'a [u8], mark: &mut Mark<'a>) -> Result<TraceId, WireError> {
    let mut trace = TraceId::default();
    let mut fields = Fields::new(body);
    while let Some((number, field)) = fields.next()? {
        match (number, field) {
            (1, Field::Fixed64(time)) => mark.start_ns = time,
            (11, Field::Fixed64(time)) if mark.start_ns == 0 => mark.start_ns = time,
            (9, Field::Bytes(id)) => trace = trace_id(id)?,
            (10, Field::Bytes(id)) => mark.span_id = span_id(id)?,
            _ => {}
        }
    }
    mark.end_ns = mark.start_ns;
    Ok(trace)
}

fn is_error(status: &[u8]) -> Result<bool, WireError> {
    let mut fields = Fields::new(status);
    while let Some((number, field)) = fields.next()? {
        if let (3, Field::Varint(2)) = (number, field) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn varint_length(value: usize) -> usize {
    (usize::BITS - (value | 1).leading_zeros()).div_ceil(7) as usize
}

/// The length of a field that holds `length` bytes. Field numbers below 16, which are all there are here, take one byte.
fn delimited(length: usize) -> usize {
    1 + varint_length(length) + length
}

fn optional(bytes: Option<&[u8]>) -> usize {
    bytes.map_or(0, |bytes| delimited(bytes.len()))
}

fn write_head(out: &mut Vec<u8>, field: u32, length: usize) {
    write_varint(out, u64::from(field) << 3 | 2);
    write_varint(out, length as u64);
}

fn write_optional(out: &mut Vec<u8>, field: u32, bytes: Option<&[u8]>) {
    if let Some(bytes) = bytes {
        write_bytes(out, field, bytes);
    }
}
