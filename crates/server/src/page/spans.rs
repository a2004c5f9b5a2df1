//! The raw spans of a trace: a tree with a waterfall beside it, and the attributes of one span when they are wanted.

use std::collections::HashMap;
use std::sync::Arc;

use askama::Template;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::Response;
use gradus_core::span::{Span, SpanId, StatusCode, TraceId, Value};
use gradus_store::Story;

use super::answer::{self, PageError};
use super::words::{duration, size};
use super::{Frame, opened};
use crate::http_error::ApiError;
use crate::span_export::visit_spans;
use crate::state::Server;
use gradus_core::visible::printable;
use gradus_report::html::number::count;
use gradus_report::html::svg::Svg;
use gradus_report::html::text;

/// Spans of one page.
const MAX_ROWS: usize = 1_000;
/// Deeper spans are not moved in any further.
const MAX_INDENT: usize = 12;
/// Of one attribute's value.
const MAX_VALUE: usize = 20_000;
const MAX_ATTRIBUTES: usize = 500;
const MAX_EVENTS: usize = 100;

struct Row {
    href: String,
    id: String,
    depth: usize,
    name: String,
    kind: String,
    took: String,
    /// Where it stands in the time of the whole.
    bar: Svg,
    error: Option<String>,
}

struct Tree {
    rows: Vec<Row>,
    omitted: Option<String>,
    whole: String,
}

#[derive(Template)]
#[template(path = "spans.html")]
struct Page {
    frame: Frame,
    trace_id: String,
    tree: Tree,
}

#[derive(Template)]
#[template(path = "span_rows.html")]
struct RowsPart {
    tree: Tree,
}

struct Attribute {
    name: String,
    value: String,
    is_long: bool,
    note: Option<String>,
}

struct Event {
    name: String,
    at: String,
    attributes: Vec<Attribute>,
}

struct Detail {
    name: String,
    id: String,
    scope: String,
    status: String,
    attributes: Vec<Attribute>,
    /// What is left out.
    more_attributes: Option<String>,
    events: Vec<Event>,
    more_events: Option<String>,
    resource: Vec<Attribute>,
}

#[derive(Template)]
#[template(path = "span.html")]
struct DetailPage {
    frame: Frame,
    trace_id: String,
    span: Detail,
}

#[derive(Template)]
#[template(path = "span_detail.html")]
struct DetailPart {
    span: Detail,
}

pub(super) async fn page(
    State(server): State<Arc<Server>>,
    headers: HeaderMap,
    Path(id): Path<String>,
) -> Result<Response, PageError> {
    answer::of_large(&server, move |server| {
        let (trace_id, project, tree) = tree(server, &id)?;
        Ok(Page { frame: Frame::of("/traces", Some(&project), &headers), trace_id, tree })
    })
    .await
}

/// The rows alone, for a page that shows them when they are wanted.
pub(super) async fn rows(
    State(server): State<Arc<Server>>,
    headers: HeaderMap,
    Path(id): Path<String>,
) -> Result<Response, PageError> {
    answer::part_of_large(&server, headers, move |server| Ok(RowsPart { tree: tree(server, &id)?.2 })).await
}

pub(super) async fn one(
    State(server): State<Arc<Server>>,
    headers: HeaderMap,
    Path((id, span)): Path<(String, String)>,
) -> Result<Response, PageError> {
    answer::of_large(&server, move |server| {
        let (trace_id, project, span) = detail(server, &id, &span)?;
        Ok(DetailPage { frame: Frame::of("/traces", Some(&project), &headers), trace_id, span })
    })
    .await
}

pub(super) async fn one_part(
    State(server): State<Arc<Server>>,
    headers: HeaderMap,
    Path((id, span)): Path<(String, String)>,
) -> Result<Response, PageError> {
    let make = move |server: &Server| Ok(DetailPart { span: detail(server, &id, &span)?.2 });
    answer::part_of_large(&server, headers, make).await
}

/// The records of a trace, and of those that belong together with it.
fn records(server: &Server, id: &str) -> Result<(TraceId, String, Story), ApiError> {
    let missing = || ApiError::missing("There is no trace with this id; it may be too old to be kept.");
    let id = opened::trace_id(id).ok_or_else(missing)?;
    let row = server.store.trace(id)?.ok_or_else(missing)?;
    Ok((id, row.project, server.store.story(row.story)?))
}

fn tree(server: &Server, id: &str) -> Result<(String, String, Tree), ApiError> {
    let (trace, project, story) = records(server, id)?;
    let mut spans = Vec::new();
    visit_spans(&story, None, &mut |span, kind| {
        if span.trace_id == trace {
            spans.push(Seen::of(span, kind));
        }
    });
    Ok((trace.to_string(), project, Tree::of(trace, spans)))
}

fn detail(server: &Server, id: &str, span: &str) -> Result<(String, String, Detail), ApiError> {
    let (trace, project, story) = records(server, id)?;
    let wanted = SpanId::parse(span);
    let mut found = None;
    visit_spans(&story, None, &mut |span, _| {
        if span.trace_id == trace && span.span_id == wanted {
            found = Some(Detail::of(span));
        }
    });
    let found = found.ok_or_else(|| ApiError::missing("There is no span with this id in this trace."))?;
    Ok((trace.to_string(), project, found))
}

/// What the tree needs of a span.
struct Seen {
    id: SpanId,
    parent: Option<SpanId>,
    name: String,
    kind: String,
    start_ns: u64,
    end_ns: u64,
    error: Option<String>,
}

impl Seen {
    fn of(span: &Span<'_>, kind: Option<&str>) -> Seen {
        let message = span.exception_message().unwrap_or(&span.status.message);
        Seen {
            id: span.span_id,
            parent: span.parent_id,
            name: text::line(&span.name),
            kind: text::line(kind.unwrap_or_default()),
            start_ns: span.start_ns,
            end_ns: span.end_ns.max(span.start_ns),
            error: span.is_error().then(|| text::line(message)),
        }
    }
}

impl Tree {
    fn of(trace: TraceId, mut spans: Vec<Seen>) -> Tree {
        spans.sort_by_key(|span| (span.start_ns, span.id));
        let from = spans.iter().map(|span| span.start_ns).min().unwrap_or(0);
        let to = spans.iter().map(|span| span.end_ns).max().unwrap_or(0);
        let length = (to - from).max(1) as f64;
        let rows: Vec<Row> = order(&spans)
            .into_iter()
            .take(MAX_ROWS)
            .map(|(at, depth)| {
                let span = &spans[at];
                let share = |ns: u64| (ns - from) as f64 / length;
                let took = duration((span.end_ns - span.start_ns) as i64);
                let began = duration((span.start_ns - from) as i64);
                Row {
                    href: format!("/traces/{trace}/spans/{}", span.id),
                    id: span.id.to_string(),
                    depth: depth.min(MAX_INDENT),
                    name: span.name.clone(),
                    kind: span.kind.clone(),
                    bar: bar(share(span.start_ns), share(span.end_ns), span, &began, &took),
                    took,
                    error: span.error.clone(),
                }
            })
            .collect();
        let more = spans.len().saturating_sub(MAX_ROWS);
        Tree { rows, omitted: (more > 0).then(|| count(more as u64)), whole: duration((to - from) as i64) }
    }
}

/// Parents before their children, each with its depth. A span whose parent is not there is a root; spans that are each
/// other's parents are shown as roots, too.
fn order(spans: &[Seen]) -> Vec<(usize, usize)> {
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

fn bar(from: f64, to: f64, span: &Seen, began: &str, took: &str) -> Svg {
    const WIDTH: f64 = 400.0;
    let mut svg = Svg::stretched("waterfall", WIDTH, 12.0, &format!("begins after {began}, takes {took}"));
    let class = match span.kind.as_str() {
        _ if span.error.is_some() => "w-error",
        "LLM" => "w-model",
        "TOOL" => "w-tool",
        _ => "w-other",
    };
    svg.rect("w-track", 0.0, 5.5, WIDTH, 1.0);
    svg.rect(class, from * WIDTH, 1.0, ((to - from) * WIDTH).max(1.5), 10.0);
    svg.end()
}

impl Detail {
    fn of(span: &Span<'_>) -> Detail {
        let status = match span.status.code {
            StatusCode::Unset => "unset",
            StatusCode::Ok => "ok",
            StatusCode::Error => "error",
        };
        let message = text::line(&span.status.message);
        let event = |event: &gradus_core::span::Event<'_>| Event {
            name: text::line(&event.name),
            at: duration(event.time_ns.saturating_sub(span.start_ns) as i64),
            attributes: attributes(event.attributes.iter()),
        };
        Detail {
            name: text::line(&span.name),
            id: span.span_id.to_string(),
            scope: text::line(&span.scope),
            status: if message.is_empty() { status.to_owned() } else { format!("{status}: {message}") },
            attributes: attributes(span.attributes.iter()),
            more_attributes: left_out(span.attributes.iter().count(), MAX_ATTRIBUTES),
            events: span.events.iter().take(MAX_EVENTS).map(event).collect(),
            more_events: left_out(span.events.len(), MAX_EVENTS),
            resource: attributes(span.resource.attributes.iter()),
        }
    }
}

fn left_out(all: usize, most: usize) -> Option<String> {
    let more = all.checked_sub(most).filter(|more| *more > 0)?;
    Some(format!("And {} more; the API has all of them.", count(more as u64)))
}

fn attributes<'a, 's: 'a>(all: impl Iterator<Item = (&'a str, &'a Value<'s>)>) -> Vec<Attribute> {
    let mut shown: Vec<Attribute> =
        all.take(MAX_ATTRIBUTES).map(|(name, value)| attribute(name, value)).collect();
    shown.sort_by(|a, b| a.name.cmp(&b.name));
    shown
}

fn attribute(name: &str, value: &Value<'_>) -> Attribute {
    let whole = match value {
        Value::Str(text) => text.to_string(),
        Value::Null => String::new(),
        other => other.to_json().to_string(),
    };
    let shown = text::whole_json(&whole).unwrap_or_else(|| whole.clone());
    let end = shown.floor_char_boundary(MAX_VALUE);
    Attribute {
        name: text::line(name),
        note: (end < shown.len()).then(|| format!("Cut: the whole value has {}.", size(whole.len()))),
        is_long: shown.len() > 120 || shown.contains('\n'),
        value: printable(&shown[..end].replace("\r\n", "\n")).into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(id: u64, parent: u64, start_ns: u64) -> Seen {
        Seen {
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
        let tree = Tree::of(TraceId(1), spans);
        let rows: Vec<(&str, usize)> = tree.rows.iter().map(|row| (row.name.as_str(), row.depth)).collect();
        assert_eq!(rows, [("1", 0), ("3", 1), ("4", 2), ("5", 1), ("2", 0)]);
    }

    #[test]
    fn circles_and_deep_chains_come_to_an_end() {
        let circle = vec![seen(1, 2, 1), seen(2, 1, 2), seen(3, 3, 3)];
        assert_eq!(Tree::of(TraceId(1), circle).rows.len(), 3);
        let chain: Vec<Seen> = (1..=50_000).map(|id| seen(id, id - 1, id)).collect();
        let tree = Tree::of(TraceId(1), chain);
        assert_eq!((tree.rows.len(), tree.omitted.as_deref()), (MAX_ROWS, Some("49,000")));
        assert!(tree.rows.iter().all(|row| row.depth <= MAX_INDENT));
    }
}
