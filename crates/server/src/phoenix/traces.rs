//! `/v1/projects/{project}/traces`: traces page by page, by start or by latency; and deletion of a trace.

use std::ops::ControlFlow;
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse as _, Response};
use gradus_core::span::{StatusCode as SpanStatusCode, TraceId};
use gradus_phoenix::span_view::{PhoenixSpan, format_iso_time};
use gradus_store::{ProjectPosition, StoreError};
use serde_json::{Value, json};

use super::error::{PhoenixApiError, run_short_query};
use super::ids;
use super::request::{self, PhoenixQueryParams};
use super::scan::{SpanScan, SpanScanPosition, TraceView};
use super::trace_order::{self, TraceLatencyRanking};
use crate::phoenix::trace_totals::{compute_trace_extent, sum_trace_tokens};
use crate::queries::QueryKind;
use crate::state::ServerState;
use crate::stream::{self, ResponseSink};

/// Conditions of a list. A trace belongs to a time range by its start.
struct PhoenixTraceFilter {
    from_us: Option<i64>,
    to_us: Option<i64>,
    has_error: Option<bool>,
    latency_ms: (Option<f64>, Option<f64>),
}

impl PhoenixTraceFilter {
    /// Returns the latency of the trace in microseconds if it matches the filter, and `None` otherwise.
    fn took_us(&self, trace: &TraceView<'_>) -> Option<i64> {
        let (start_us, end_us) = compute_trace_extent(trace)?;
        let took_us = end_us.saturating_sub(start_us);
        let took_ms = took_us as f64 / 1000.0;
        let has_error = || trace.spans.iter().any(|span| span.status.code == SpanStatusCode::Error);
        let fits = self.from_us.is_none_or(|from| start_us >= from)
            && self.to_us.is_none_or(|to| start_us < to)
            && self.has_error.is_none_or(|wanted| wanted == has_error())
            && self.latency_ms.0.is_none_or(|least| took_ms >= least)
            && self.latency_ms.1.is_none_or(|most| took_ms <= most);
        fits.then_some(took_us)
    }
}

/// Lists traces. The response is streamed: a thousand traces with their spans may be large.
pub(super) async fn list_traces(
    State(server): State<Arc<ServerState>>,
    Path(project): Path<String>,
    params: PhoenixQueryParams,
) -> Result<Response, PhoenixApiError> {
    if params.last_value("filter").is_some() {
        let message = "the filter language for traces is not known here";
        return Err(PhoenixApiError::new(StatusCode::NOT_IMPLEMENTED, message));
    }
    let by_start = params.is_first_option("sort", ["start_time", "latency_ms"], "start_time")?;
    let is_descending = params.is_first_option("order", ["desc", "asc"], "desc")?;
    let limit = params.parse_limit(100, 1000)?;
    let with_spans = params.parse_flag("include_spans")?.unwrap_or(false);
    let wanted = PhoenixTraceFilter {
        from_us: params.parse_time_us("start_time")?,
        to_us: params.parse_time_us("end_time")?,
        has_error: params.parse_flag("error")?,
        latency_ms: (params.parse_number("min_latency_ms")?, params.parse_number("max_latency_ms")?),
    };
    let session_names = params.all_values("session_identifier");
    let wrong = || PhoenixApiError::unprocessable("Invalid cursor");
    let (mut at, mut rank) = (None, None);
    match params.last_value("cursor") {
        Some(cursor) if by_start => at = Some(read_cursor(cursor).ok_or_else(wrong)?),
        Some(cursor) => rank = Some(trace_order::read_cursor(cursor).ok_or_else(wrong)?),
        None => {}
    }
    let project = request::find_project(&server, &project).await?;
    let project_id = ids::encode_node_id("Project", project.no);
    // The times restrict traces, not single spans.
    let (from_us, to_us) = (wanted.from_us, wanted.to_us);
    let mut scan =
        SpanScan { newest_first: is_descending || !by_start, at, from_us, to_us, ..SpanScan::for_project(project.no) };
    if !session_names.is_empty() {
        let traces = run_short_query(&server, move |server| {
            Ok(crate::phoenix::session_lookup::find_session_traces(server, project.no, &session_names)?)
        });
        scan.traces = Some(traces.await?);
    }
    let permit = server.queries.admit(QueryKind::Download).await?;
    let queries = Arc::clone(&server.queries);
    // Sent while it is found: with their spans, a thousand traces can be large.
    let body = stream::stream_query_body(&queries, permit, server.settings.timeouts.stall, move |sink| {
        let mut page = TraceListWriter { server: &server, project_id, with_spans, sent: 0, sink };
        page.sink.write(b"{\"data\":[");
        let next = if by_start {
            page.write_by_start(&scan, &wanted, limit)?
        } else {
            page.write_by_latency(&scan, &wanted, TraceLatencyRanking::new(is_descending, rank, limit))?
        };
        page.sink.write(format!("],\"next_cursor\":{}}}", json!(next)).as_bytes());
        Ok(())
    });
    Ok(([(CONTENT_TYPE, "application/json")], body).into_response())
}

/// Writes the list while it is found.
struct TraceListWriter<'p> {
    server: &'p ServerState,
    project_id: String,
    with_spans: bool,
    sent: usize,
    sink: &'p mut ResponseSink,
}

impl TraceListWriter<'_> {
    /// Writes matching traces in index order, and returns the cursor of the next page.
    fn write_by_start(
        &mut self,
        scan: &SpanScan,
        wanted: &PhoenixTraceFilter,
        limit: usize,
    ) -> Result<Option<String>, StoreError> {
        let mut next = None;
        scan.visit_traces(self.server, &mut |trace| {
            // Traces come in order of their start, so all following ones are too early as well. One microsecond is the
            // rounding of Phoenix's times.
            let is_too_early = |from: i64| trace.position.start_ns / 1000 + 1 < from;
            if scan.newest_first && wanted.from_us.is_some_and(is_too_early) {
                return ControlFlow::Break(());
            }
            if wanted.took_us(trace).is_none() {
                return self.stop_if_disconnected();
            }
            if self.sent >= limit {
                next = Some(write_cursor(trace.position));
                return ControlFlow::Break(());
            }
            self.write(trace);
            self.stop_if_disconnected()
        })?;
        Ok(next)
    }

    /// Writes matching traces by latency, in two passes: the first ranks all traces, the second writes those of the
    /// page.
    fn write_by_latency(
        &mut self,
        scan: &SpanScan,
        wanted: &PhoenixTraceFilter,
        mut ranking: TraceLatencyRanking,
    ) -> Result<Option<String>, StoreError> {
        scan.visit_traces(self.server, &mut |trace| {
            if let Some(took_us) = wanted.took_us(trace) {
                ranking.insert((took_us, trace.position), trace.trace_id);
            }
            self.stop_if_disconnected()
        })?;
        let (traces, next) = ranking.into_page();
        for trace in traces {
            // Read a second time, because keeping a thousand decoded traces would take too much memory.
            let one = SpanScan { traces: Some(vec![trace]), ..SpanScan::for_project(scan.project) };
            one.visit_traces(self.server, &mut |trace| {
                self.write(trace);
                self.stop_if_disconnected()
            })?;
        }
        Ok(next.map(trace_order::write_cursor))
    }

    /// Returns `Break` if the client has disconnected.
    fn stop_if_disconnected(&self) -> ControlFlow<()> {
        if self.sink.is_gone() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn write(&mut self, trace: &TraceView<'_>) {
        self.sink.write(if self.sent == 0 { b"" } else { b"," });
        write_trace(trace, &self.project_id, self.with_spans, self.sink);
        self.sent += 1;
    }
}

/// Writes a trace as JSON, span by span.
fn write_trace(trace: &TraceView<'_>, project_id: &str, with_spans: bool, sink: &mut ResponseSink) {
    let (start_us, end_us) = compute_trace_extent(trace).unwrap_or_default();
    let (prompt, completion) = sum_trace_tokens(trace);
    let about = json!({
        "id": ids::encode_node_id("Trace", trace.trace_id),
        "trace_id": trace.trace_id.to_string(),
        "project_id": project_id,
        "start_time": format_iso_time(start_us),
        "end_time": format_iso_time(end_us),
        "token_count_prompt": prompt,
        "token_count_completion": completion,
        "token_count_total": prompt.saturating_add(completion),
    });
    // Without its closing brace, since the spans follow.
    let about = about.to_string();
    sink.write(about.strip_suffix('}').unwrap_or(&about).as_bytes());
    if !with_spans {
        sink.write(b",\"spans\":null}");
        return;
    }
    sink.write(b",\"spans\":[");
    for (number, span) in trace.spans.iter().enumerate() {
        sink.write(if number == 0 { b"" } else { b"," });
        sink.write(trace_span_to_json(&PhoenixSpan::new(span)).to_string().as_bytes());
    }
    sink.write(b"]}");
}

fn trace_span_to_json(span: &PhoenixSpan<'_>) -> Value {
    let recorded = span.span();
    json!({
        "id": ids::encode_node_id("Span", recorded.span_id),
        "span_id": recorded.span_id.to_string(),
        "parent_id": recorded.parent_id.map(|id| id.to_string()),
        "name": recorded.name,
        "span_kind": span.kind().as_str(),
        "status_code": span.status_code(),
        "start_time": format_iso_time(span.start_us()),
        "end_time": format_iso_time(span.end_us()),
    })
}

fn write_cursor(position: ProjectPosition) -> String {
    ids::encode_node_id("Trace", format_args!("{}:{}", position.start_ns, position.trace))
}

fn read_cursor(cursor: &str) -> Option<SpanScanPosition> {
    let text = ids::decode_node_id("Trace", cursor)?;
    let (start_ns, trace) = text.split_once(':')?;
    let trace = ProjectPosition { start_ns: start_ns.parse().ok()?, trace: trace.parse().ok()? };
    Some(SpanScanPosition::start_of_trace(trace))
}

/// Deletes a trace with its trajectories, verdicts and annotations.
pub(super) async fn delete_trace(
    State(server): State<Arc<ServerState>>,
    Path(identifier): Path<String>,
) -> Result<StatusCode, PhoenixApiError> {
    // By Phoenix's global id, or by the trace id.
    let id = TraceId::parse(&ids::decode_node_id("Trace", &identifier).unwrap_or_else(|| identifier.clone()));
    let was_there = server.store.remove_trace(id)?.wait_async().await?;
    if was_there {
        Ok(StatusCode::NO_CONTENT)
    } else {
        Err(PhoenixApiError::not_found(format!("Trace with trace_id '{identifier}' not found")))
    }
}
