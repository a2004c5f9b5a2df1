//! The raw spans of a trace as a tree with a waterfall, and the attributes of one span.

use std::collections::HashMap;
use std::sync::Arc;

use askama::Template;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::Response;
use gradus_core::span::{Span, SpanId, TraceId};
use gradus_store::StoredTraceGroup;

use super::display_text::format_duration;
use super::render::{self, PageError};
use super::span_detail::SpanDetailView;
use super::time_bar::TimeScale;
use super::{PageLayout, loaded_trace};
use crate::http_error::ApiError;
use crate::span_export::visit_spans;
use crate::state::ServerState;
use gradus_report::html::number::format_count;
use gradus_report::html::svg::Svg;
use gradus_report::html::text;

/// Maximum number of spans on one page. Traces can have hundreds of thousands; the API returns all of them.
const MAX_ROWS: usize = 1_000;
/// Maximum number of spans with errors that are listed before the tree.
const MAX_ERRORS: usize = 20;
/// Maximum indentation. Deeper spans are not indented further, so that names stay visible.
const MAX_INDENT: usize = 12;

/// A row of the tree, ready to be displayed.
struct SpanTreeRow {
    href: String,
    id: String,
    depth: usize,
    name: String,
    kind: String,
    took: String,
    /// The waterfall bar: position and length within the duration of the trace.
    bar: Svg,
    /// Message of the exception or the status, if the span ended in an error.
    error: Option<String>,
}

/// The tree in depth-first order.
struct SpanTreeView {
    rows: Vec<SpanTreeRow>,
    /// Number of spans that are not shown.
    omitted: Option<String>,
    /// Duration from the first start to the last end.
    whole: String,
    /// Spans that ended in an error, in order of time: name, URL and message.
    errors: Vec<(String, String, String)>,
}

#[derive(Template)]
#[template(path = "spans.html")]
struct SpanTreePage {
    frame: PageLayout,
    trace_id: String,
    tree: SpanTreeView,
}

/// The tree without the page around it, which the script loads into the page of the trace.
#[derive(Template)]
#[template(path = "span_rows.html")]
struct SpanRowsPart {
    tree: SpanTreeView,
}

#[derive(Template)]
#[template(path = "span.html")]
struct SpanDetailPage {
    frame: PageLayout,
    trace_id: String,
    span: SpanDetailView,
}

/// The details without the page around them.
#[derive(Template)]
#[template(path = "span_detail.html")]
struct SpanDetailPart {
    span: SpanDetailView,
}

/// `GET /traces/{trace}/spans`
pub(super) async fn render_spans_page(
    State(server): State<Arc<ServerState>>,
    headers: HeaderMap,
    Path(id): Path<String>,
) -> Result<Response, PageError> {
    render::render_large_page(&server, move |server| {
        let (trace_id, project, tree) = load_span_tree(server, &id)?;
        Ok(SpanTreePage { frame: PageLayout::new("/traces", Some(&project), &headers), trace_id, tree })
    })
    .await
}

/// `GET /traces/{trace}/spans/rows`: the tree for the page of the trace, loaded when it is unfolded.
pub(super) async fn render_span_rows(
    State(server): State<Arc<ServerState>>,
    headers: HeaderMap,
    Path(id): Path<String>,
) -> Result<Response, PageError> {
    render::render_large_fragment(&server, headers, move |server| {
        Ok(SpanRowsPart { tree: load_span_tree(server, &id)?.2 })
    })
    .await
}

/// `GET /traces/{trace}/spans/{span}`
pub(super) async fn render_span_page(
    State(server): State<Arc<ServerState>>,
    headers: HeaderMap,
    Path((id, span)): Path<(String, String)>,
) -> Result<Response, PageError> {
    render::render_large_page(&server, move |server| {
        let (trace_id, project, span) = load_span_detail(server, &id, &span)?;
        Ok(SpanDetailPage { frame: PageLayout::new("/traces", Some(&project), &headers), trace_id, span })
    })
    .await
}

/// `GET /traces/{trace}/spans/{span}/part`: the details for the tree, loaded when a row is unfolded.
pub(super) async fn render_span_detail(
    State(server): State<Arc<ServerState>>,
    headers: HeaderMap,
    Path((id, span)): Path<(String, String)>,
) -> Result<Response, PageError> {
    let make = move |server: &ServerState| Ok(SpanDetailPart { span: load_span_detail(server, &id, &span)?.2 });
    render::render_large_fragment(&server, headers, make).await
}

/// Loads the records of the whole trace group, since the store keeps them together. Callers filter by trace.
fn load_trace_records(server: &ServerState, id: &str) -> Result<(TraceId, String, StoredTraceGroup), ApiError> {
    let missing = || ApiError::not_found("No trace has this id. Retention may have deleted it.");
    let id = loaded_trace::trace_id(id).ok_or_else(missing)?;
    let row = server.store.trace(id)?.ok_or_else(missing)?;
    Ok((id, row.project, server.store.trace_group(row.trace_group)?))
}

/// Loads the tree. Returns trace id, project and tree.
fn load_span_tree(server: &ServerState, id: &str) -> Result<(String, String, SpanTreeView), ApiError> {
    let (trace, project, trace_group) = load_trace_records(server, id)?;
    let mut spans = Vec::new();
    visit_spans(&trace_group, None, &mut |span, kind| {
        if span.trace_id == trace {
            spans.push(SpanTreeNode::from_span(span, kind));
        }
    });
    Ok((trace.to_string(), project, SpanTreeView::from_spans(trace, spans)))
}

/// Loads a span. Returns trace id, project and span. If the span was sent twice, the later record counts.
fn load_span_detail(server: &ServerState, id: &str, span: &str) -> Result<(String, String, SpanDetailView), ApiError> {
    let (trace, project, trace_group) = load_trace_records(server, id)?;
    let wanted = SpanId::parse(span);
    let mut found = None;
    visit_spans(&trace_group, None, &mut |span, _| {
        if span.trace_id == trace && span.span_id == wanted {
            found = Some(SpanDetailView::from_span(span));
        }
    });
    let found = found.ok_or_else(|| ApiError::not_found("This trace has no span with this id."))?;
    Ok((trace.to_string(), project, found))
}

/// The parts of a span that the tree needs. Owned, because the decoded span lives only during the visit.
struct SpanTreeNode {
    id: SpanId,
    parent: Option<SpanId>,
    name: String,
    kind: String,
    start_ns: u64,
    end_ns: u64,
    error: Option<String>,
}

impl SpanTreeNode {
    /// `kind` is the kind by OpenInference, derived from other conventions where the attribute is missing. The
    /// message of a recorded exception is more specific than the status of the span.
    fn from_span(span: &Span<'_>, kind: Option<&str>) -> SpanTreeNode {
        let message = span.exception_message().unwrap_or(&span.status.message);
        SpanTreeNode {
            id: span.span_id,
            parent: span.parent_id,
            name: text::format_display_line(&span.name),
            kind: text::format_display_line(kind.unwrap_or_default()),
            start_ns: span.start_ns,
            // Clocks of senders may run backwards; a negative duration would overflow.
            end_ns: span.end_ns.max(span.start_ns),
            error: span.is_error().then(|| text::format_display_line(message)),
        }
    }
}

impl SpanTreeView {
    /// Builds the tree from the spans of one trace, in any order.
    fn from_spans(trace: TraceId, mut spans: Vec<SpanTreeNode>) -> SpanTreeView {
        // Siblings are shown in order of time. The id makes the order of simultaneous spans stable.
        spans.sort_by_key(|span| (span.start_ns, span.id));
        let from = spans.iter().map(|span| span.start_ns).min().unwrap_or(0);
        let to = spans.iter().map(|span| span.end_ns).max().unwrap_or(0);
        let scale = TimeScale::from_times(from as i64, to as i64);
        let rows: Vec<SpanTreeRow> = order_span_tree(&spans)
            .into_iter()
            .take(MAX_ROWS)
            .map(|(at, depth)| {
                let span = &spans[at];
                SpanTreeRow {
                    href: format!("/traces/{trace}/spans/{}", span.id),
                    id: span.id.to_string(),
                    depth: depth.min(MAX_INDENT),
                    name: span.name.clone(),
                    kind: span.kind.clone(),
                    bar: scale.draw_bar(find_bar_class(span), span.start_ns as i64, span.end_ns as i64),
                    took: format_duration((span.end_ns - span.start_ns) as i64),
                    error: span.error.clone(),
                }
            })
            .collect();
        let more = spans.len().saturating_sub(MAX_ROWS);
        let error = |span: &SpanTreeNode| {
            let message = span.error.clone()?;
            Some((span.name.clone(), format!("/traces/{trace}/spans/{}", span.id), message))
        };
        SpanTreeView {
            errors: spans.iter().filter_map(error).take(MAX_ERRORS).collect(),
            rows,
            omitted: (more > 0).then(|| format_count(more as u64)),
            whole: format_duration((to - from) as i64),
        }
    }
}

/// Depth-first order with depths. A span whose parent is missing is a root. Spans in a cycle of parents have no root
/// and are listed at the end, starting with the first of them. Iterative, since the depth is up to the sender.
fn order_span_tree(spans: &[SpanTreeNode]) -> Vec<(usize, usize)> {
    let by_id: HashMap<SpanId, usize> = spans.iter().enumerate().map(|(at, span)| (span.id, at)).collect();
    let mut children: Vec<Vec<usize>> = vec![Vec::new(); spans.len()];
    let mut roots = Vec::new();
    for (at, span) in spans.iter().enumerate() {
        match span.parent.and_then(|parent| by_id.get(&parent)).filter(|parent| **parent != at) {
            Some(parent) => children[*parent].push(at),
            None => roots.push(at),
        }
    }
    let mut is_listed = vec![false; spans.len()];
    let mut listed = Vec::with_capacity(spans.len());
    // After the roots come all spans again, which adds only those that no root reaches.
    for root in roots.into_iter().chain(0..spans.len()) {
        let mut open = vec![(root, 0)];
        while let Some((at, depth)) = open.pop() {
            if std::mem::replace(&mut is_listed[at], true) {
                continue;
            }
            listed.push((at, depth));
            open.extend(children[at].iter().rev().map(|child| (*child, depth + 1)));
        }
    }
    listed
}

/// Returns the CSS class of the bar of a span.
fn find_bar_class(span: &SpanTreeNode) -> &'static str {
    match span.kind.as_str() {
        _ if span.error.is_some() => "w-error",
        "LLM" => "w-model",
        "TOOL" => "w-tool",
        _ => "w-other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(id: u64, parent: u64, start_ns: u64) -> SpanTreeNode {
        SpanTreeNode {
            id: SpanId(id),
            parent: (parent > 0).then_some(SpanId(parent)),
            name: id.to_string(),
            kind: String::new(),
            start_ns,
            end_ns: start_ns + 5,
            error: None,
        }
    }

    #[test]
    fn children_stand_below_their_parents_and_nothing_is_lost() {
        let spans = vec![seen(1, 0, 1), seen(2, 9, 2), seen(3, 1, 3), seen(4, 3, 4), seen(5, 1, 5)];
        let tree = SpanTreeView::from_spans(TraceId(1), spans);
        let rows: Vec<(&str, usize)> = tree.rows.iter().map(|row| (row.name.as_str(), row.depth)).collect();
        assert_eq!(rows, [("1", 0), ("3", 1), ("4", 2), ("5", 1), ("2", 0)]);
    }

    #[test]
    fn circles_and_deep_chains_come_to_an_end() {
        let circle = vec![seen(1, 2, 1), seen(2, 1, 2), seen(3, 3, 3)];
        assert_eq!(SpanTreeView::from_spans(TraceId(1), circle).rows.len(), 3);
        let chain: Vec<SpanTreeNode> = (1..=50_000).map(|id| seen(id, id - 1, id)).collect();
        let tree = SpanTreeView::from_spans(TraceId(1), chain);
        assert_eq!((tree.rows.len(), tree.omitted.as_deref()), (MAX_ROWS, Some("49,000")));
        assert!(tree.rows.iter().all(|row| row.depth <= MAX_INDENT));
    }
}
