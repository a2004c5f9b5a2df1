//! Iterates over the decoded spans of a trace group, for exports.

use gradus_core::dialect;
use gradus_core::span::Span;
use gradus_otlp::{RecordLimits, TelemetrySignal, decode_span, read_export};
use gradus_store::{BlockSignal, StoredTraceGroup};

/// Visits the current version of each span with its kind, optionally of one kind only. Blocks and spans that cannot be
/// decoded are skipped.
pub(crate) fn visit_spans(
    trace_group: &StoredTraceGroup,
    kind: Option<&str>,
    visit: &mut dyn FnMut(&Span<'_>, Option<&str>),
) {
    let limits = RecordLimits::default();
    for block in trace_group.blocks.iter().filter(|block| block.signal == BlockSignal::Spans) {
        let _ = read_export(&block.export, &limits, &mut |record| {
            if record.signal != TelemetrySignal::Span {
                return Ok(());
            }
            let Ok(span) = decode_span(record.body, &record.scope.resource, &record.scope.name, &limits) else {
                // Spans that were stored under older limits may exceed the current ones. The others are still exported.
                return Ok(());
            };
            if !trace_group.is_current_version(block, span.span_id) {
                return Ok(());
            }
            let found = span_kind(&span);
            if kind.is_none_or(|wanted| found.is_some_and(|found| found.eq_ignore_ascii_case(wanted))) {
                visit(&span, found);
            }
            Ok(())
        });
    }
}

/// Returns the recorded OpenInference kind, or the one that the span's dialect implies. `None` for other operations.
pub(super) fn span_kind<'s>(span: &'s Span<'_>) -> Option<&'s str> {
    span.attribute_text("openinference.span.kind").or_else(|| match dialect::normalize_span(span).kind {
        dialect::OperationKind::Model => Some("LLM"),
        dialect::OperationKind::Tool => Some("TOOL"),
        dialect::OperationKind::Agent => Some("AGENT"),
        _ => None,
    })
}
