//! Iterates over the spans of a project as Phoenix sees them, with only a few traces in memory.
//!
//! Traces are ordered by their start, and the spans of a trace by theirs. Phoenix orders all spans by start, which
//! differs where traces overlap.

use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::LazyLock;

use gradus_core::span::{Span, SpanId, TraceId};
use gradus_otlp::{RecordLimits, RegroupedExport, TelemetrySignal, WireError, decode_span, regroup_with_budget};
use gradus_phoenix::span_view::{cumulative_tokens, nanos_to_micros};
use gradus_store::{BlockSignal, ProjectPosition, StoreError, StoredBlock, TraceRecords, TraceWalk, check_query};

use super::verdicts::VerdictAnnotation;
use crate::state::ServerState;
use crate::throttled_log::ThrottledLog;

/// What to iterate over, and where to begin.
#[derive(Clone, Debug)]
pub(super) struct SpanScan {
    pub(super) project: i64,
    pub(super) newest_first: bool,
    /// Only spans that started at this time or later, in microseconds since 1970.
    pub(super) from_us: Option<i64>,
    /// Only spans that started before this time.
    pub(super) to_us: Option<i64>,
    /// Only these traces; all traces of the project without it.
    pub(super) traces: Option<Vec<TraceId>>,
    /// The first span of the page, from a cursor.
    pub(super) at: Option<SpanScanPosition>,
}

/// The position of a span in the order of a scan. It stays valid when other traces arrive or are deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SpanScanPosition {
    pub(super) trace: ProjectPosition,
    pub(super) start_ns: u64,
    pub(super) span: SpanId,
}

/// A decoded trace. Derived data is computed when it is first needed.
pub(super) struct TraceView<'t> {
    pub(super) trace_id: TraceId,
    pub(super) position: ProjectPosition,
    /// Ordered by start and span id.
    pub(super) spans: &'t [Span<'t>],
    /// Gradus's own verdicts on the trace, loaded when a filter asks for annotations.
    pub(super) verdicts: OnceCell<Vec<VerdictAnnotation>>,
    by_id: OnceCell<HashMap<SpanId, usize>>,
    /// Prompt and completion tokens of each span and its descendants.
    sums: OnceCell<Vec<(i64, i64)>>,
}

impl SpanScanPosition {
    /// Returns the position before all spans of a trace.
    pub(super) fn start_of_trace(trace: ProjectPosition) -> SpanScanPosition {
        SpanScanPosition { trace, start_ns: 0, span: SpanId(0) }
    }
}

/// Number of spans that are processed between two checks of the query's budget.
const SPANS_PER_CHECK: usize = 64;
/// Maximum number of attribute values of one trace that a query decodes, which bounds its memory.
const MAX_TRACE_VALUES: usize = 1_000_000;
/// Estimated bytes of one value.
const VALUE_BYTES: usize = 64;

/// `Break` ends the scan without an error.
type SpanVisitor<'v> = dyn FnMut(&TraceView<'_>, usize) -> ControlFlow<()> + 'v;
type TraceVisitor<'v> = dyn FnMut(&TraceView<'_>) -> ControlFlow<()> + 'v;

impl SpanScan {
    /// All spans of a project, from new to old.
    pub(super) fn for_project(project: i64) -> SpanScan {
        SpanScan { project, newest_first: true, from_us: None, to_us: None, traces: None, at: None }
    }

    /// Restricts the scan to the traces that contain these spans.
    pub(super) fn narrow_to_spans(&mut self, server: &ServerState, spans: &[SpanId]) -> Result<(), StoreError> {
        let mut traces = Vec::new();
        for span in spans {
            traces.extend(server.store.trace_of_span(*span)?);
        }
        if let Some(wanted) = &self.traces {
            let wanted: HashSet<&TraceId> = wanted.iter().collect();
            traces.retain(|trace| wanted.contains(trace));
        }
        self.traces = Some(traces);
        Ok(())
    }

    /// Visits every span in order, with its trace and its index there, until `visit` returns `Break`.
    pub(super) fn visit(&self, server: &ServerState, visit: &mut SpanVisitor<'_>) -> Result<(), StoreError> {
        let mut stopped = Ok(());
        self.visit_traces(server, &mut |trace| self.visit_spans(trace, &mut stopped, visit))?;
        stopped
    }

    /// Visits every trace in order. The spans of a trace are not filtered by time here.
    pub(super) fn visit_traces(&self, server: &ServerState, visit: &mut TraceVisitor<'_>) -> Result<(), StoreError> {
        let ns = |us: i64| us.saturating_mul(1000);
        // Times are compared in Phoenix's resolution, so the index search is widened by its rounding.
        const ROUNDING_NS: i64 = 2000;
        let mut walk = TraceWalk {
            newest_first: self.newest_first,
            at: self.at.map(|at| at.trace),
            before_ns: self.to_us.map_or(i64::MAX, |us| ns(us).saturating_add(ROUNDING_NS)),
            ended_from_ns: self.from_us.map_or(i64::MIN, |us| ns(us).saturating_sub(ROUNDING_NS)),
        };
        if let Some(traces) = &self.traces {
            let mut places = Vec::with_capacity(traces.len());
            for id in traces {
                places.extend(server.store.trace_position(self.project, *id)?.map(|place| (place, *id)));
            }
            // Sorted as the index would return them, so that cursors work the same way.
            places.sort_unstable();
            places.dedup();
            if self.newest_first {
                places.reverse();
            }
            for (place, id) in places {
                let is_before = |at: &SpanScanPosition| {
                    if self.newest_first { place > at.trace } else { place < at.trace }
                };
                if self.at.as_ref().is_some_and(is_before) {
                    continue;
                }
                let Some(trace) = server.store.trace_records(self.project, id)? else { continue };
                if visit_decoded_trace(&trace, visit)?.is_break() {
                    return Ok(());
                }
            }
            return Ok(());
        }
        loop {
            let page = server.store.read_walk_page(self.project, &walk)?;
            let Some(last) = page.last() else { return Ok(()) };
            walk = walk.resume_after(last.position);
            for trace in &page {
                if visit_decoded_trace(trace, visit)?.is_break() {
                    return Ok(());
                }
            }
        }
    }

    /// Visits the spans of one trace that are within the time range and not before the cursor.
    fn visit_spans(
        &self,
        view: &TraceView<'_>,
        stopped: &mut Result<(), StoreError>,
        visit: &mut SpanVisitor<'_>,
    ) -> ControlFlow<()> {
        let mut look = |index: usize| {
            if index.is_multiple_of(SPANS_PER_CHECK)
                && let Err(error) = check_query()
            {
                *stopped = Err(error.into());
                return ControlFlow::Break(());
            }
            let span = &view.spans[index];
            let us = nanos_to_micros(span.start_ns);
            let is_out = self.from_us.is_some_and(|from| us < from) || self.to_us.is_some_and(|to| us >= to);
            if is_out || self.at.is_some_and(|at| self.is_before(view, span, &at)) {
                return ControlFlow::Continue(());
            }
            visit(view, index)
        };
        if self.newest_first {
            (0..view.spans.len()).rev().try_for_each(&mut look)
        } else {
            (0..view.spans.len()).try_for_each(&mut look)
        }
    }

    /// Whether a span precedes the cursor in the order of the scan.
    fn is_before(&self, view: &TraceView<'_>, span: &Span<'_>, at: &SpanScanPosition) -> bool {
        let here = (span.start_ns, span.span_id);
        let there = (at.start_ns, at.span);
        view.position == at.trace && if self.newest_first { here > there } else { here < there }
    }
}

/// Decodes one trace and visits it. A trace that exceeds the limits is visited partially and logged.
fn visit_decoded_trace(trace: &TraceRecords, visit: &mut TraceVisitor<'_>) -> Result<ControlFlow<()>, StoreError> {
    static CUT_TRACES: LazyLock<ThrottledLog> = LazyLock::new(ThrottledLog::default);
    let mut values_left = MAX_TRACE_VALUES;
    let requests = regroup_records(trace, &mut values_left);
    let spans = decode_trace_spans(trace, &requests, &mut values_left)?;
    if (trace.is_cut || values_left == 0)
        && let Some(times) = CUT_TRACES.record_occurrence()
    {
        tracing::warn!(
            trace_id = %trace.trace_id,
            times,
            "a trace exceeds what one query reads; Phoenix clients see only the spans that arrived first"
        );
    }
    Ok(visit(&TraceView {
        trace_id: trace.trace_id,
        position: trace.position,
        spans: &spans,
        verdicts: OnceCell::new(),
        by_id: OnceCell::new(),
        sums: OnceCell::new(),
    }))
}

/// Groups the records of a trace by resource and scope, as long as the values of their resources fit in the limit.
fn regroup_records<'t>(
    trace: &'t TraceRecords,
    values_left: &mut usize,
) -> Vec<(&'t StoredBlock, RegroupedExport<'t>)> {
    let mut take = |bytes: usize| {
        *values_left = values_left.saturating_sub(bytes.div_ceil(VALUE_BYTES));
        *values_left > 0
    };
    let mut sorted = Vec::new();
    for block in trace.blocks.iter().filter(|block| block.signal == BlockSignal::Spans) {
        match regroup_with_budget(&block.export, TelemetrySignal::Span, &RecordLimits::default(), &mut take) {
            Ok(request) => sorted.push((block, request)),
            Err(WireError::NoRoom) => break,
            // Blocks were decodable when they were stored. One that cannot be decoded now is skipped, as everywhere.
            Err(_) => {}
        }
    }
    sorted
}

/// Decodes the current version of each span, as long as the values fit in the limit.
fn decode_trace_spans<'r>(
    trace: &TraceRecords,
    requests: &'r [(&StoredBlock, RegroupedExport<'r>)],
    values_left: &mut usize,
) -> Result<Vec<Span<'r>>, StoreError> {
    let limits = RecordLimits::default();
    let mut spans = Vec::new();
    'blocks: for (block, request) in requests {
        check_query()?;
        for (number, record) in request.parts.iter().flat_map(|part| &part.records).enumerate() {
            if number % SPANS_PER_CHECK == 0 {
                check_query()?;
            }
            let scope = request.scope(record);
            if trace.is_current_version(block, record.record_outline.span_id)
                && let Ok(span) = decode_span(&record.body, request.resource(record), &scope.name, &limits)
            {
                *values_left = values_left.saturating_sub(span.value_count());
                spans.push(span);
                if *values_left == 0 {
                    break 'blocks;
                }
            }
        }
    }
    spans.sort_by_key(|span| (span.start_ns, span.span_id));
    Ok(spans)
}

impl<'t> TraceView<'t> {
    pub(super) fn span_position(&self, index: usize) -> SpanScanPosition {
        let span = &self.spans[index];
        SpanScanPosition { trace: self.position, start_ns: span.start_ns, span: span.span_id }
    }

    /// Returns the index of a span in this trace. The map is built on the first call.
    pub(super) fn find_span_index(&self, span: SpanId) -> Option<usize> {
        let by_id = self
            .by_id
            .get_or_init(|| self.spans.iter().enumerate().map(|(index, span)| (span.span_id, index)).collect());
        by_id.get(&span).copied()
    }

    /// Sums the prompt and completion tokens of a span and all of its descendants.
    pub(super) fn cumulative_tokens(&self, index: usize) -> (i64, i64) {
        self.sums.get_or_init(|| cumulative_tokens(self.spans))[index]
    }
}
