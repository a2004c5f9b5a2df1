//! What a store keeps, as the OTLP it came as.

use gradus_core::span::SpanId;
use gradus_otlp::{Limits, Signal, regroup};
use gradus_store::{Block, BlockSignal, Story};

/// The ids of the spans in a block, for checking a store.
pub(crate) fn span_ids(block: &Block) -> Result<Vec<SpanId>, String> {
    let signal = match block.signal {
        BlockSignal::Spans => Signal::Span,
        BlockSignal::Logs => Signal::Log,
    };
    let request = regroup(&block.export, signal, &Limits::default()).map_err(|error| error.to_string())?;
    if let Some(reason) = request.rejected.reason {
        return Err(reason);
    }
    Ok(request.parts.iter().flat_map(|part| &part.records).map(|record| record.mark.span_id).collect())
}

/// The records of a story as an OTLP export request: of spans in several versions, the one that counts.
pub(crate) fn write_otlp(story: &Story, out: &mut dyn FnMut(&[u8])) {
    for block in &story.blocks {
        if story.versions.is_empty() || block.signal == BlockSignal::Logs {
            out(&block.export);
            continue;
        }
        let Ok(mut request) = regroup(&block.export, Signal::Span, &Limits::default()) else { continue };
        let mut parts = std::mem::take(&mut request.parts);
        for part in &mut parts {
            part.records.retain(|record| story.counts(block, record.mark.span_id));
            let mut export = Vec::new();
            request.write(part, &mut export);
            out(&export);
        }
    }
}
