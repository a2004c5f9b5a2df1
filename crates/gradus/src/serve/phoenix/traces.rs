//! Traces of a project, page by page.

use std::ops::ControlFlow;
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse as _, Response};
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
use crate::serve::stream::{self, Sink};

pub(super) async fn list(
    State(server): State<Arc<Server>>,
    Path(project): Path<String>,
    params: Params,
) -> Result<Response, PhoenixError> {
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
    // A trace begins when its first span does; spans are not narrowed, only traces.
    let mut scan = Scan { newest_first, at, from_us, to_us, ..Scan::of(project.no) };
    if !session_names.is_empty() {
        let traces =
            blocking(&server, move |server| Ok(sessions::traces(server, project.no, &session_names)?));
        scan.traces = Some(traces.await?);
    }
    let turn = Arc::clone(&server.scans).acquire_owned().await;
    // Sent while it is found: with their spans, a thousand traces can be large.
    let body = stream::body(move |sink| {
        let _turn = turn;
        let (mut sent, mut next) = (0, None);
        sink.write(b"{\"data\":[");
        scan.each_trace(&server, &mut |trace| {
            let Some((start_us, end_us)) = extent(trace) else { return ControlFlow::Continue(()) };
            // Those behind it began earlier still, give or take what Phoenix rounds.
            if newest_first && from_us.is_some_and(|from| trace.position.start_ns / 1000 + 1 < from) {
                return ControlFlow::Break(());
            }
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
            if sent >= limit {
                next = Some(write_cursor(trace.position));
                return ControlFlow::Break(());
            }
            sink.write(if sent == 0 { b"" } else { b"," });
            write_trace(trace, &project_id, with_spans, sink);
            sent += 1;
            if sink.is_gone() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        sink.write(format!("],\"next_cursor\":{}}}", json!(next)).as_bytes());
        Ok(())
    });
    Ok(([(CONTENT_TYPE, "application/json")], body).into_response())
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

/// Writes a trace, its spans one by one.
fn write_trace(trace: &TraceView<'_>, project_id: &str, with_spans: bool, sink: &mut Sink) {
    let (start_us, end_us) = extent(trace).unwrap_or_default();
    let (prompt, completion) = tokens(trace);
    let about = json!({
        "id": ids::encode("Trace", trace.trace_id),
        "trace_id": trace.trace_id.to_string(),
        "project_id": project_id,
        "start_time": iso_time(start_us),
        "end_time": iso_time(end_us),
        "token_count_prompt": prompt,
        "token_count_completion": completion,
        "token_count_total": prompt.saturating_add(completion),
    });
    // All but the brace at its end.
    let about = about.to_string();
    sink.write(about.strip_suffix('}').unwrap_or(&about).as_bytes());
    if !with_spans {
        sink.write(b",\"spans\":null}");
        return;
    }
    sink.write(b",\"spans\":[");
    for (number, span) in trace.spans.iter().enumerate() {
        sink.write(if number == 0 { b"" } else { b"," });
        sink.write(span_shown(&PhoenixSpan::of(span)).to_string().as_bytes());
    }
    sink.write(b"]}");
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
