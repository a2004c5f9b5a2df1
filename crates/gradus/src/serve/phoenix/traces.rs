//! Traces of a project, page by page.

use std::ops::ControlFlow;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use gradus_core::phoenix_view::{PhoenixSpan, iso_time};
use gradus_core::span::{StatusCode as SpanStatus, TraceId};
use gradus_store::ProjectPosition;
use serde_json::{Value, json};

use super::error::{PhoenixError, blocking};
use super::ids;
use super::request::{self, Params};
use super::scan::{Place, Scan, TraceView};
use super::sessions;
use crate::serve::state::Server;

pub(super) async fn list(
    State(server): State<Arc<Server>>,
    Path(project): Path<String>,
    params: Params,
) -> Result<Json<Value>, PhoenixError> {
    let not_here =
        |what: &str| PhoenixError::new(StatusCode::NOT_IMPLEMENTED, format!("{what} is not kept here"));
    if params.one("filter").is_some() {
        return Err(not_here("the filter language for traces"));
    }
    if !params.choice("sort", ["start_time", "latency_ms"], "start_time")? {
        return Err(not_here("an order by latency"));
    }
    let newest_first = params.choice("order", ["desc", "asc"], "desc")?;
    let limit = params.limit(100, 1000)?;
    let (with_spans, error) = (params.flag("include_spans")?.unwrap_or(false), params.flag("error")?);
    let latency: (Option<f64>, Option<f64>) =
        (params.number("min_latency_ms")?, params.number("max_latency_ms")?);
    let (from_us, to_us) = (params.time("start_time")?, params.time("end_time")?);
    let session_names = params.all("session_identifier");
    let at = match params.one("cursor") {
        Some(cursor) => Some(read_cursor(cursor).ok_or_else(|| PhoenixError::invalid("Invalid cursor"))?),
        None => None,
    };
    let project = request::project(&server, &project).await?;
    let project_id = ids::encode("Project", project.no);
    let _turn = server.scans.acquire().await;
    blocking(&server, move |server| {
        // A trace begins when its first span does; spans are not narrowed, only traces.
        let mut scan = Scan { newest_first, at, ..Scan::of(project.no) };
        if !session_names.is_empty() {
            scan.traces = Some(sessions::traces(server, project.no, &session_names)?);
        }
        let (mut data, mut next) = (Vec::new(), None);
        scan.each_trace(server, &mut |trace| {
            let Some((start_us, end_us)) = extent(trace) else { return ControlFlow::Continue(()) };
            let has_error = trace.spans.iter().any(|span| span.status.code == SpanStatus::Error);
            let took_ms = (end_us - start_us) as f64 / 1000.0;
            let fits = from_us.is_none_or(|from| start_us >= from)
                && to_us.is_none_or(|to| start_us < to)
                && error.is_none_or(|error| error == has_error)
                && latency.0.is_none_or(|least| took_ms >= least)
                && latency.1.is_none_or(|most| took_ms <= most);
            if !fits {
                return ControlFlow::Continue(());
            }
            if data.len() >= limit {
                next = Some(write_cursor(trace.position));
                return ControlFlow::Break(());
            }
            data.push(shown(trace, &project_id, with_spans));
            ControlFlow::Continue(())
        })?;
        Ok(Json(json!({"data": data, "next_cursor": next})))
    })
    .await
}

/// When a trace began and ended.
pub(super) fn extent(trace: &TraceView<'_>) -> Option<(i64, i64)> {
    let views = || trace.spans.iter().map(PhoenixSpan::of);
    Some((views().map(|span| span.start_us()).min()?, views().map(|span| span.end_us()).max()?))
}

/// Tokens of all model calls in a trace.
pub(super) fn tokens(trace: &TraceView<'_>) -> (i64, i64) {
    let calls = trace.spans.iter().filter_map(|span| PhoenixSpan::of(span).own_tokens());
    calls.fold((0, 0), |sum, call| (sum.0.saturating_add(call.0), sum.1.saturating_add(call.1)))
}

fn shown(trace: &TraceView<'_>, project_id: &str, with_spans: bool) -> Value {
    let (start_us, end_us) = extent(trace).unwrap_or_default();
    let (prompt, completion) = tokens(trace);
    let spans = with_spans
        .then(|| trace.spans.iter().map(|span| span_shown(&PhoenixSpan::of(span))).collect::<Vec<Value>>());
    json!({
        "id": ids::encode("Trace", trace.trace_id),
        "trace_id": trace.trace_id.to_string(),
        "project_id": project_id,
        "start_time": iso_time(start_us),
        "end_time": iso_time(end_us),
        "token_count_prompt": prompt,
        "token_count_completion": completion,
        "token_count_total": prompt.saturating_add(completion),
        "spans": spans,
    })
}

fn span_shown(span: &PhoenixSpan<'_>) -> Value {
    let recorded = span.span();
    json!({
        "id": ids::encode("Span", recorded.span_id),
        "span_id": recorded.span_id.to_string(),
        "parent_id": recorded.parent_id.map(|id| id.to_string()),
        "name": recorded.name,
        "span_kind": span.kind().as_str(),
        "status_code": span.status_code(),
        "start_time": iso_time(span.start_us()),
        "end_time": iso_time(span.end_us()),
    })
}

fn write_cursor(position: ProjectPosition) -> String {
    ids::encode("Trace", format_args!("{}:{}", position.start_ns, position.trace))
}

fn read_cursor(cursor: &str) -> Option<Place> {
    let text = ids::decode("Trace", cursor)?;
    let (start_ns, trace) = text.split_once(':')?;
    let trace = ProjectPosition { start_ns: start_ns.parse().ok()?, trace: trace.parse().ok()? };
    Some(Place::of_trace(trace))
}

/// Removes a trace and all that was said of it.
pub(super) async fn remove(
    State(server): State<Arc<Server>>,
    Path(identifier): Path<String>,
) -> Result<StatusCode, PhoenixError> {
    // An id in Phoenix's form, or the trace's own.
    let id = TraceId::parse(&ids::decode("Trace", &identifier).unwrap_or_else(|| identifier.clone()));
    let was_there = server.store.remove_trace(id)?.done().await?;
    if was_there {
        Ok(StatusCode::NO_CONTENT)
    } else {
        Err(PhoenixError::missing(format!("Trace with trace_id '{identifier}' not found")))
    }
}
