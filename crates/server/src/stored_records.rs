//! Stored blocks as the OTLP export requests that they were received as.

use gradus_core::span::SpanId;
use gradus_otlp::{RecordLimits, TelemetrySignal, regroup_export};
use gradus_store::{BlockSignal, StoredBlock, StoredTraceGroup};

/// Returns the ids of the spans in a block, for `gradus store check`, which compares them with the index. The error
/// is the reason that a block cannot be read; the signature is the one that `Store::check` takes.
pub fn span_ids(block: &StoredBlock) -> Result<Vec<SpanId>, String> {
    let signal = match block.signal {
        BlockSignal::Spans => TelemetrySignal::Span,
        BlockSignal::Logs => TelemetrySignal::Log,
    };
    let request = regroup_export(&block.export, signal, &RecordLimits::default()).map_err(|error| error.to_string())?;
    if let Some(reason) = request.rejected.reason {
        return Err(reason);
    }
    Ok(request.parts.iter().flat_map(|part| &part.records).map(|record| record.record_outline.span_id).collect())
}

/// Writes the records of a trace group as OTLP export requests. Of a span that was received in several versions, only
/// the version that counts is written.
pub fn write_otlp(trace_group: &StoredTraceGroup, out: &mut dyn FnMut(&[u8])) {
    trace_group.blocks.iter().for_each(|block| write_block(trace_group, block, out));
}

/// As [`write_otlp`], but frees each block after it was written, so that a large group is not in memory twice.
pub fn write_otlp_and_free(mut trace_group: StoredTraceGroup, out: &mut dyn FnMut(&[u8])) {
    for block in std::mem::take(&mut trace_group.blocks) {
        write_block(&trace_group, &block, out);
    }
}

/// Passes a block on unchanged where no span has several versions, which is nearly always. Otherwise it is decoded and
/// filtered. A block that cannot be decoded is skipped, as everywhere else.
fn write_block(trace_group: &StoredTraceGroup, block: &StoredBlock, out: &mut dyn FnMut(&[u8])) {
    if trace_group.versions.is_empty() || block.signal == BlockSignal::Logs {
        return out(&block.export);
    }
    if let Ok(mut request) = regroup_export(&block.export, TelemetrySignal::Span, &RecordLimits::default()) {
        let mut parts = std::mem::take(&mut request.parts);
        for part in &mut parts {
            part.records.retain(|record| trace_group.is_current_version(block, record.record_outline.span_id));
            let mut export = Vec::new();
            request.write(part, &mut export);
            out(&export);
        }
    }
}
