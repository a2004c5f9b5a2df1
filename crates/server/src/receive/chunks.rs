//! Turns the bytes of an OTLP request into chunks for the store: grouped by trace, redacted and compressed.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use gradus_core::assemble::TraceLink;
use gradus_otlp::{
    RecordLimits, RegroupedExport, RejectedRecords, TelemetrySignal, TracePart, WireError, WireRecord, decode_resource,
    decode_span, export_from_json, regroup_with_budget, rewrite_resource_texts, rewrite_scope_texts, rewrite_texts,
};
use gradus_store::{BlockSignal, RootSpan, SpanKey, TraceChunk};

use super::{MAX_BATCH_ROWS, ReceiveRefusal};
use crate::memory::{MemoryLease, MemoryRefusal};
use crate::redaction::Redaction;
use crate::trace_group::to_stored_link;
use gradus_ingest::MAX_LINKED_ON_ARRIVAL;

/// The project of spans that name none.
const DEFAULT_PROJECT: &str = "default";
/// Maximum length of a project name, which becomes a key of an index.
pub(crate) const MAX_PROJECT_NAME_BYTES: usize = 300;
/// Maximum length of the name of a trace or of its root span.
const MAX_SPAN_NAME_BYTES: usize = 300;
/// Maximum memory that the records of a small request take in addition to their bytes. A batch of the OpenTelemetry
/// collector, 8,192 spans, fits whatever traces they belong to.
const MAX_RECORD_OVERHEAD_BYTES: usize = 32 << 20;

/// Maximum number of bytes by which a request may grow through repetition: each trace is stored with the resources
/// and scopes of its records, and many traces with one large resource would multiply it.
const MAX_REPETITION_BYTES: usize = 128 << 20;

/// Maximum number of link keys of one trace in a request. The store looks up each of them.
const MAX_TRACE_LINKS: usize = 256;

/// The parts of the request head that preparation needs.
pub(super) struct OtlpHeadRef<'s> {
    pub(super) signal: TelemetrySignal,
    pub(super) is_json: bool,
    pub(super) project: Option<&'s Arc<str>>,
}

/// Prepares a whole request or refuses it. Single bad records are counted in [`RejectedRecords`], as OTLP's
/// `partial_success` demands. Redaction comes before anything is compressed or digested.
pub(super) fn prepare_trace_chunks(
    bytes: Vec<u8>,
    OtlpHeadRef { signal, is_json, project }: OtlpHeadRef<'_>,
    redaction: &Redaction,
    limits: &RecordLimits,
    lease: &mut MemoryLease,
) -> Result<(Vec<TraceChunk>, RejectedRecords), ReceiveRefusal> {
    let (bytes, unreadable) = if is_json {
        let (export, rejected) = export_from_json(&bytes, signal)
            .map_err(|error| ReceiveRefusal::Bad(format!("this is no OTLP request in JSON: {error}")))?;
        drop(bytes);
        lease.shrink_to(2 * export.capacity());
        (export, rejected)
    } else {
        (bytes, RejectedRecords::default())
    };
    // Real spans need a few times their bytes. Records that need more were built to exhaust memory.
    let most = MAX_RECORD_OVERHEAD_BYTES.max(4 * bytes.len());
    let (mut taken, mut refused) = (0, None);
    let mut take = |bytes: usize| {
        taken += bytes;
        refused = lease.grow(bytes).err();
        refused.is_none() && taken <= most
    };
    let mut request = match regroup_with_budget(&bytes, signal, limits, &mut take) {
        Ok(request) => request,
        Err(WireError::NoRoom) => {
            return Err(match refused {
                Some(refusal @ (MemoryRefusal::Full | MemoryRefusal::ClientShare)) => refusal.into(),
                _ => ReceiveRefusal::Bad(format!(
                    "its records would take more than {} MB beside their bytes; send smaller batches",
                    most >> 20
                )),
            });
        }
        // The magic bytes of gzip: a common mistake of hand-written senders, so the message names the remedy.
        Err(_) if bytes.starts_with(b"\x1f\x8b") => {
            return Err(ReceiveRefusal::Bad("this is packed with gzip: say so with content-encoding: gzip".to_owned()));
        }
        Err(error) => {
            return Err(ReceiveRefusal::Bad(format!("this is no OTLP request in protobuf: {error}")));
        }
    };
    request.rejected.add(unreadable.count, || unreadable.reason.unwrap_or_default());
    let redacted = project.and_then(|name| redaction.apply(name)).map(Arc::from);
    let project = redacted.as_ref().or(project);
    if !redaction.is_empty() {
        redact_export(&mut request, signal, redaction, limits, lease)?;
    }
    // Log records have no ids, so all of them are kept.
    if signal == TelemetrySignal::Span {
        request.parts.iter_mut().for_each(|part| keep_latest_ended(&mut part.records));
    }
    request.parts = std::mem::take(&mut request.parts).into_iter().flat_map(split_part).collect();
    let written: usize = request.parts.iter().map(|part| request.written_length(part)).sum();
    if written > bytes.len() + MAX_REPETITION_BYTES {
        return Err(ReceiveRefusal::Bad(format!(
            "its {} traces would store what they have in common (resource, scopes) in {written} bytes; hint: send fewer traces in a request, or smaller resources",
            request.parts.len()
        )));
    }
    let mut export = Vec::new();
    let mut chunks = Vec::with_capacity(request.parts.len());
    let mut packed = 0;
    for part in &request.parts {
        export.clear();
        request.write(part, &mut export);
        let chunk = build_trace_chunk(&request, part, signal, project, &export, limits);
        // The lease already covers the bytes of the request, and most chunks are smaller than those.
        let grown = (packed + chunk.memory_bytes()).saturating_sub(bytes.len().max(packed));
        packed += chunk.memory_bytes();
        if grown > 0 {
            lease.grow(grown)?;
        }
        chunks.push(chunk);
    }
    Ok((chunks, request.rejected))
}

/// Splits the records of a trace into chunks of up to [`MAX_BATCH_ROWS`], so that each fits in one transaction.
fn split_part(part: TracePart<'_>) -> Vec<TracePart<'_>> {
    if part.records.len() <= MAX_BATCH_ROWS {
        return vec![part];
    }
    let mut parts = Vec::with_capacity(part.records.len().div_ceil(MAX_BATCH_ROWS));
    let mut records = part.records.into_iter();
    while records.len() > 0 {
        let mut batch = Vec::with_capacity(MAX_BATCH_ROWS.min(records.len()));
        batch.extend(records.by_ref().take(MAX_BATCH_ROWS));
        parts.push(TracePart { trace_id: part.trace_id, records: batch });
    }
    parts
}

/// Keeps one version of a span that a request contains several times: the last one that has ended, or else the last
/// one. The store tells versions apart by their request, so a request must have one version only.
fn keep_latest_ended(records: &mut Vec<WireRecord<'_>>) {
    // Duplicates are rare: sorting ids is cheaper than a map for every request.
    let mut ids: Vec<u64> = records.iter().map(|record| record.record_outline.span_id.0).collect();
    ids.sort_unstable();
    if !ids.windows(2).any(|two| two[0] == two[1]) {
        return;
    }
    let mut latest: HashMap<u64, (usize, bool)> = HashMap::new();
    for (index, record) in records.iter().enumerate() {
        let has_ended = record.record_outline.end_ns > 0;
        let known = latest.entry(record.record_outline.span_id.0).or_insert((index, has_ended));
        if has_ended || !known.1 {
            *known = (index, has_ended);
        }
    }
    let mut index = 0;
    records.retain(|record| {
        index += 1;
        latest.get(&record.record_outline.span_id.0).is_some_and(|(latest, _)| *latest == index - 1)
    });
}

/// Builds a chunk. The root span, or else the first record, provides the name and the project of the trace.
fn build_trace_chunk(
    request: &RegroupedExport<'_>,
    part: &TracePart<'_>,
    signal: TelemetrySignal,
    project: Option<&Arc<str>>,
    export: &[u8],
    limits: &RecordLimits,
) -> TraceChunk {
    let root =
        part.records.iter().find(|record| signal == TelemetrySignal::Span && record.record_outline.parent_id.is_none());
    let speaker = root.or(part.records.first());
    let project = project.cloned().unwrap_or_else(|| {
        let said = speaker.and_then(|record| request.resource(record).project());
        said.unwrap_or(DEFAULT_PROJECT).into()
    });
    // `.` and `..` would be path segments in a URL.
    let project = if project.bytes().all(|byte| byte == b'.') { DEFAULT_PROJECT.into() } else { project };
    let project = if project.len() > MAX_PROJECT_NAME_BYTES {
        truncate_name(&project, MAX_PROJECT_NAME_BYTES).into()
    } else {
        project
    };
    let block = match signal {
        TelemetrySignal::Span => BlockSignal::Spans,
        TelemetrySignal::Log => BlockSignal::Logs,
    };
    let mut chunk = TraceChunk::new(part.trace_id, project, block, export);
    for record in &part.records {
        let record_outline = &record.record_outline;
        // A record without a start time does not tell when the trace began.
        if record_outline.start_ns > 0 {
            chunk.start_ns = chunk.start_ns.min(record_outline.start_ns);
        }
        chunk.end_ns = chunk.end_ns.max(record_outline.end_ns).max(record_outline.start_ns);
        if signal == TelemetrySignal::Log {
            continue;
        }
        chunk.spans.push(SpanKey {
            span_id: record_outline.span_id,
            digest: gradus_core::stable_digest(&record.body) as u64,
            has_ended: record_outline.end_ns > 0,
            is_error: record_outline.is_error,
        });
        // Only root spans link traces. Larger ones are linked when the trace is assembled, to keep ingest fast.
        if record_outline.parent_id.is_none()
            && record.body.len() <= MAX_LINKED_ON_ARRIVAL
            && chunk.links.len() < MAX_TRACE_LINKS
        {
            let scope = request.scope(record);
            if let Ok(span) = decode_span(&record.body, request.resource(record), &scope.name, limits)
                && let Some(link) = TraceLink::from_root_span(&span)
            {
                let left = MAX_TRACE_LINKS - chunk.links.len();
                chunk.links.extend(link.keys().into_iter().take(left).map(to_stored_link));
            }
        }
    }
    chunk.name =
        speaker.map(|record| truncate_name(&record.record_outline.name, MAX_SPAN_NAME_BYTES)).unwrap_or_default();
    chunk.root = root.map(|record| RootSpan {
        name: truncate_name(&record.record_outline.name, MAX_SPAN_NAME_BYTES),
        has_ended: record.record_outline.end_ns > 0,
    });
    chunk
}

/// Truncates a name at a character boundary.
fn truncate_name(text: &str, max_bytes: usize) -> String {
    text[..text.floor_char_boundary(max_bytes)].to_owned()
}

/// Redacts resources, scopes and records in place. Changed texts are copied, and the lease grows by the copies.
fn redact_export(
    request: &mut RegroupedExport<'_>,
    signal: TelemetrySignal,
    redaction: &Redaction,
    limits: &RecordLimits,
    lease: &mut MemoryLease,
) -> Result<(), ReceiveRefusal> {
    let mut change = |kind, text: &str| redaction.apply_in_record(kind, text);
    let redact_schema = |schema: &mut Option<Cow<'_, [u8]>>| {
        if let Some(schema) = schema
            && let Some(changed) = redaction.apply(&String::from_utf8_lossy(schema))
        {
            *schema = Cow::Owned(changed.into_bytes());
        }
    };
    for resource in request.resources_mut() {
        redact_schema(&mut resource.schema);
        if let Some(body) = &resource.body
            && let Some(changed) = rewrite_resource_texts(body, limits, &mut change)?
        {
            lease.grow(changed.len())?;
            resource.resource = Arc::new(decode_resource(&changed, limits)?);
            resource.body = Some(Cow::Owned(changed));
        }
    }
    for scope in request.scopes_mut() {
        redact_schema(&mut scope.schema);
        if let Some(body) = &scope.body
            && let Some(changed) = rewrite_scope_texts(body, limits, &mut change)?
        {
            lease.grow(changed.len())?;
            scope.body = Some(Cow::Owned(changed));
            if let Some(name) = redaction.apply(&scope.name) {
                scope.name = Cow::Owned(name);
            }
        }
    }
    for record in request.parts.iter_mut().flat_map(|part| &mut part.records) {
        if let Some(changed) = rewrite_texts(&record.body, signal, limits, &mut change)? {
            lease.grow(changed.len())?;
            record.body = Cow::Owned(changed);
            if let Some(name) = redaction.apply(&record.record_outline.name) {
                record.record_outline.name = Cow::Owned(name);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
    use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
    use prost::Message as _;

    use super::*;

    #[test]
    fn a_large_part_is_split_without_room_for_all_in_each() {
        let span = |id: u64| Span { trace_id: vec![1; 16], span_id: id.to_be_bytes().to_vec(), ..Span::default() };
        let count = 20 * MAX_BATCH_ROWS + 1;
        let spans = ScopeSpans { spans: (1..=count as u64).map(span).collect(), ..ScopeSpans::default() };
        let resource = ResourceSpans { scope_spans: vec![spans], ..ResourceSpans::default() };
        let bytes = ExportTraceServiceRequest { resource_spans: vec![resource] }.encode_to_vec();
        let request = gradus_otlp::regroup_export(&bytes, TelemetrySignal::Span, &RecordLimits::default()).unwrap();
        let parts: Vec<TracePart<'_>> = request.parts.into_iter().flat_map(split_part).collect();
        assert_eq!(parts.iter().map(|part| part.records.len()).sum::<usize>(), count);
        assert!(parts.iter().all(|part| part.records.len() <= MAX_BATCH_ROWS));
        let room: usize = parts.iter().map(|part| part.records.capacity()).sum();
        assert!(room < count + MAX_BATCH_ROWS, "{room}");
    }
}
