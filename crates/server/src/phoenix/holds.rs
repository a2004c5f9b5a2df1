//! Whether a trace has a span that a filter is true of: for lists that are no list of Phoenix's.

use std::ops::ControlFlow;

use gradus_core::span::TraceId;
use gradus_phoenix::filter::Filter;
use gradus_phoenix::span_view::PhoenixSpan;
use gradus_store::StoreError;

use super::scan::Scan;
use super::surroundings::Around;
use crate::state::Server;

pub(crate) fn holds(
    server: &Server,
    project: &str,
    trace: TraceId,
    filter: &Filter,
) -> Result<bool, StoreError> {
    let Some(project) = server.store.project_named(project)? else { return Ok(false) };
    let scan = Scan { traces: Some(vec![trace]), ..Scan::of(project.no) };
    let (mut holds, mut failed) = (false, None);
    scan.visit(server, &mut |trace, index| {
        let around = Around::new(server, trace, index);
        holds = filter.matches(&PhoenixSpan::of(&trace.spans[index]), &around);
        failed = around.failed();
        if holds || failed.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    failed.map_or(Ok(holds), Err)
}
