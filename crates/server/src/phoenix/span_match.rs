//! Evaluates a Phoenix filter on a trace, for Gradus's own lists.

use std::ops::ControlFlow;

use gradus_core::span::TraceId;
use gradus_phoenix::filter::FilterExpression;
use gradus_phoenix::span_view::PhoenixSpan;
use gradus_store::StoreError;

use super::filter_context::StoreFilterContext;
use super::scan::SpanScan;
use crate::state::ServerState;

/// Whether any span of the trace matches. It stops at the first match. False if the project does not exist.
pub(crate) fn has_matching_span(
    server: &ServerState,
    project: &str,
    trace: TraceId,
    filter: &FilterExpression,
) -> Result<bool, StoreError> {
    let Some(project) = server.store.project_named(project)? else { return Ok(false) };
    let scan = SpanScan { traces: Some(vec![trace]), ..SpanScan::for_project(project.no) };
    let (mut holds, mut failed) = (false, None);
    scan.visit(server, &mut |trace, index| {
        let around = StoreFilterContext::new(server, trace, index);
        holds = filter.matches(&PhoenixSpan::new(&trace.spans[index]), &around);
        failed = around.take_error();
        if holds || failed.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    failed.map_or(Ok(holds), Err)
}
