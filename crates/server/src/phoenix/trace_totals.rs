//! When a trace was, and what it used.

use gradus_phoenix::span_view::PhoenixSpan;

use super::scan::TraceView;

/// When a trace began and ended.
pub(super) fn compute_trace_extent(trace: &TraceView<'_>) -> Option<(i64, i64)> {
    let views = || trace.spans.iter().map(PhoenixSpan::new);
    Some((views().map(|span| span.start_us()).min()?, views().map(|span| span.end_us()).max()?))
}

/// Tokens of all model calls in a trace.
pub(super) fn sum_trace_tokens(trace: &TraceView<'_>) -> (i64, i64) {
    let calls = trace.spans.iter().filter_map(|span| PhoenixSpan::new(span).own_tokens());
    calls.fold((0, 0), |sum, call| (sum.0.saturating_add(call.0), sum.1.saturating_add(call.1)))
}
