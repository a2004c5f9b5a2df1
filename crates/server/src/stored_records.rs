//! What a store keeps, as the OTLP it came as.

use gradus_core::span::SpanId;
use gradus_otlp::{RecordLimits, TelemetrySignal, regroup_export};
use gradus_store::{BlockSignal, StoredBlock, StoredTraceGroup};

/// The ids of the spans in a block, for checking a store.
pub fn span_ids(block: &StoredBlock) -> Result<Vec<SpanId>, String> {
    let signal = match block.signal {
        BlockSignal::Spans => TelemetrySignal::Span,
        BlockSignal::Logs => TelemetrySignal::Log,
    };
    let request = regroup_export(&block.export, signal, &RecordLimits::default()).map_err(|error| error.to_string())?;
    if let Some(reason) = request.rejected.reason {
        return Err(reason);
    }
    Ok(request.parts.iter().flat_map(|part| &part.records).map(|record| record.mark.span_id).collect())
}

/// The records of a trace group as OTLP export requests: of spans in several versions, the one that counts.
pub fn write_otlp(trace_group: &StoredTraceGroup, out: &mut dyn FnMut(&[u8])) {
    trace_group.blocks.iter().for_each(|block| write_block(trace_group, block, out));
}

/// The same, of a trace group that nobody needs any more: each block is let go when it was written.
pub fn take_otlp(mut trace_group: StoredTraceGroup, out: &mut dyn FnMut(&[u8])) {
    for block in std::mem::take(&mut trace_group.blocks) {
        write_block(&trace_group, &block, out);
    }
}

fn write_block(trace_group: &StoredTraceGroup, block: &StoredBlock, out: &mut dyn FnMut(&[u8])) {
    if trace_group.versions.is_empty() || block.signal == BlockSignal::Logs {
        return out(&block.export);
    }
    if let Ok(mut request) = regroup_export(&block.export, TelemetrySignal::Span, &RecordLimits::default()) {
        let mut parts = std::mem::take(&mut request.parts);
        for part in &mut parts {
            part.records.retain(|record| trace_group.is_current_version(block, record.mark.span_id));
            let mut export = Vec::new();
            request.write(part, &mut export);
            out(&export);
        }
    }
}
