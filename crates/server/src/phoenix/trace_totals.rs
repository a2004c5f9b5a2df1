//! Totals of a trace: its time span and its tokens.

use gradus_phoenix::span_view::PhoenixSpan;

use super::scan::TraceView;

/// Computes the first start and the last end, in microseconds. `None` for a trace without spans, such as one of log
/// records only.
pub(super) fn compute_trace_extent(trace: &TraceView<'_>) -> Option<(i64, i64)> {
    let views = || trace.spans.iter().map(PhoenixSpan::new);
    Some((views().map(|span| span.start_us()).min()?, views().map(|span| span.end_us()).max()?))
}

/// Sums the prompt and completion tokens of all model calls. Sums that wrapper spans report are not counted again.
pub(super) fn sum_trace_tokens(trace: &TraceView<'_>) -> (i64, i64) {
    let calls = trace.spans.iter().filter_map(|span| PhoenixSpan::new(span).own_tokens());
    calls.fold((0, 0), |sum, call| (sum.0.saturating_add(call.0), sum.1.saturating_add(call.1)))
}
