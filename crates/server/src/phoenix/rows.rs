//! Executes a data frame query: a row for each matching span, or for each item of a list in it.

use std::ops::ControlFlow;

use gradus_phoenix::filter::FilterBounds;
use gradus_phoenix::span_view::PhoenixSpan;
use gradus_store::StoreError;
use serde_json::{Map, Value};

use super::dataframe_rows::{DataFrameCell, DataFrameRow};
use super::filter_context::StoreFilterContext;
use super::query::{SpanListProjection, SpanQuery};
use super::scan::{SpanScan, TraceView};
use crate::state::ServerState;

/// Where a query searches. Times are microseconds since 1970, and `to_us` is exclusive.
#[derive(Clone, Debug)]
pub(super) struct SpanQueryBounds {
    /// `None` if the project does not exist: the table is empty then.
    pub(super) project: Option<i64>,
    pub(super) from_us: Option<i64>,
    pub(super) to_us: Option<i64>,
    /// Limits spans, not rows: an exploded span counts once, as in Phoenix.
    pub(super) limit: Option<usize>,
    pub(super) roots: RootSpanFilter,
}

/// Whether only root spans are returned, and which spans count as roots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RootSpanFilter {
    All,
    /// Spans that name no parent.
    WithoutParent,
    /// Also spans whose parent was not received.
    WithOrphans,
}

/// Columns of a query without projections, in Phoenix's order. `list_all_span_cells` has the values in the same order.
pub(super) const BASE_COLUMNS: [&str; 10] = [
    "name",
    "span_kind",
    "parent_id",
    "start_time",
    "end_time",
    "status_code",
    "status_message",
    "events",
    "context.span_id",
    "context.trace_id",
];

/// Receives one row. `Break` ends the query, e.g. because the client disconnected.
type DataFrameRowVisitor<'t> = dyn FnMut(DataFrameRow) -> ControlFlow<()> + 't;

/// Passes the rows of a query to `take`, the latest spans first.
pub(super) fn visit_query_rows(
    server: &ServerState,
    query: &SpanQuery,
    bounds: &SpanQueryBounds,
    take: &mut DataFrameRowVisitor<'_>,
) -> Result<(), StoreError> {
    let Some(project) = bounds.project else { return Ok(()) };
    let mut scan = SpanScan { from_us: bounds.from_us, to_us: bounds.to_us, ..SpanScan::for_project(project) };
    if let Some(filter) = &query.filter {
        narrow_span_scan(server, &mut scan, &filter.requirements().bounds)?;
    }
    let mut left = bounds.limit;
    // Filters return no errors, so a failed lookup is collected from the context after each evaluation.
    let mut failed = None;
    scan.visit(server, &mut |trace, index| {
        if left == Some(0) {
            return ControlFlow::Break(());
        }
        let span = PhoenixSpan::new(&trace.spans[index]);
        let around = StoreFilterContext::new(server, trace, index);
        let is_wanted = match bounds.roots {
            RootSpanFilter::All => true,
            RootSpanFilter::WithoutParent => span.span().parent_id.is_none(),
            RootSpanFilter::WithOrphans => !around.was_parent_received(),
        };
        let fits = is_wanted && query.filter.as_ref().is_none_or(|filter| filter.matches(&span, &around));
        if let Some(error) = around.take_error() {
            failed = Some(error);
            return ControlFlow::Break(());
        }
        if !fits {
            return ControlFlow::Continue(());
        }
        let rows = span_rows(query, trace, index, &span);
        if !rows.is_empty() {
            left = left.map(|left| left - 1);
        }
        rows.into_iter().try_for_each(&mut *take)
    })?;
    failed.map_or(Ok(()), Err)
}

/// Restricts the scan to the times, traces and spans that the filter can match. Times are widened by the rounding
/// error of microseconds: the filter, which is exact, decides afterwards.
fn narrow_span_scan(server: &ServerState, scan: &mut SpanScan, bounds: &FilterBounds) -> Result<(), StoreError> {
    let us = |ns: u64| i64::try_from(ns / 1000).unwrap_or(i64::MAX);
    scan.from_us = scan.from_us.max(bounds.start_from_ns.map(|ns| us(ns).saturating_sub(1)));
    if let Some(to_us) = bounds.start_to_ns.map(|ns| us(ns).saturating_add(2)) {
        scan.to_us = Some(scan.to_us.map_or(to_us, |known| known.min(to_us)));
    }
    scan.traces = bounds.trace_ids.clone();
    match &bounds.span_ids {
        Some(spans) => scan.narrow_to_spans(server, spans),
        None => Ok(()),
    }
}

/// Returns the rows of one span. Semantics follow Phoenix's `SpanQuery`: `select` and `concat` cells repeat in every
/// row that `explode` produces.
fn span_rows(query: &SpanQuery, trace: &TraceView<'_>, index: usize, span: &PhoenixSpan<'_>) -> Vec<DataFrameRow> {
    let key = query.index.extract_cell(trace, index, span);
    if query.wants_all_attributes() {
        return vec![(vec![key], list_all_span_cells(span))];
    }
    let exploded = query.explode.as_ref().and_then(|explode| explode.list.resolve_list(span));
    let joined = query.concat.as_ref().and_then(|concat| Some((concat, concat.list.resolve_list(span)?)));
    // As in Phoenix, spans without the list have no row.
    if (query.explode.is_some() || query.concat.is_some()) && exploded.is_none() && joined.is_none() {
        return Vec::new();
    }
    let mut cells: Vec<(String, DataFrameCell)> = Vec::new();
    for (name, projection) in &query.select {
        // The index is not repeated as a column.
        if *name != query.index.key {
            cells.push((query.output_column_name(name).to_owned(), projection.extract_cell(trace, index, span)));
        }
    }
    if let Some((concat, items)) = joined {
        for (name, text) in concat_list_items(concat, items) {
            cells.push((query.output_column_name(&name).to_owned(), DataFrameCell::Json(text.into())));
        }
    }
    let Some(explode) = &query.explode else { return vec![(vec![key], cells)] };
    let items = exploded.into_iter().flatten().enumerate();
    let rows: Vec<DataFrameRow> = items
        .filter_map(|(position, item)| {
            let mut cells = cells.clone();
            for (name, value) in explode_item(explode, item.as_object()?) {
                let name = query.output_column_name(&name).to_owned();
                match cells.iter_mut().find(|(known, _)| *known == name) {
                    // A selected value of the span has priority over the item's.
                    Some((_, cell)) if *cell == DataFrameCell::Json(Value::Null) => *cell = DataFrameCell::Json(value),
                    Some(_) => {}
                    None => cells.push((name, DataFrameCell::Json(value))),
                }
            }
            Some((vec![key.clone(), DataFrameCell::Json(position.into())], cells))
        })
        .collect();
    // An empty list still gives the span one row, with a null position.
    if rows.is_empty() {
        return vec![(vec![key, DataFrameCell::Json(Value::Null)], cells)];
    }
    rows
}

/// Lists all columns of a span: the base columns and one for each attribute.
fn list_all_span_cells(span: &PhoenixSpan<'_>) -> Vec<(String, DataFrameCell)> {
    let recorded = span.span();
    let values = [
        DataFrameCell::Json(recorded.name.as_ref().into()),
        DataFrameCell::Json(span.kind().as_str().into()),
        DataFrameCell::Json(recorded.parent_id.map(|id| id.to_string()).into()),
        DataFrameCell::Time(span.start_us()),
        DataFrameCell::Time(span.end_us()),
        DataFrameCell::Json(span.status_code().into()),
        DataFrameCell::Json(recorded.status.message.as_ref().into()),
        DataFrameCell::Json(span.events().into()),
        DataFrameCell::Json(recorded.span_id.to_string().into()),
        DataFrameCell::Json(recorded.trace_id.to_string().into()),
    ];
    let mut cells: Vec<(String, DataFrameCell)> =
        BASE_COLUMNS.iter().map(|name| (*name).to_owned()).zip(values).collect();
    let attributes = span.frame_attributes().into_iter();
    cells.extend(attributes.map(|(name, value)| (format!("attributes.{name}"), DataFrameCell::Json(value))));
    cells
}

/// Returns the cells of one item by column name. Without named columns, all of its values are flattened.
fn explode_item(explode: &SpanListProjection, item: &Map<String, Value>) -> Vec<(String, Value)> {
    if explode.columns.is_empty() {
        let mut flat = Vec::new();
        flatten_object("", item, &mut flat);
        return flat;
    }
    let columns = explode.columns.iter();
    columns.filter_map(|(name, path)| Some((name.clone(), lookup_non_null(item, path)?.clone()))).collect()
}

/// Flattens an object: nested keys are joined with dots. Nulls are left out, so that they do not create columns.
fn flatten_object(prefix: &str, object: &Map<String, Value>, out: &mut Vec<(String, Value)>) {
    for (key, value) in object {
        let path = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        match value {
            Value::Object(below) => flatten_object(&path, below, out),
            Value::Null => {}
            other => out.push((path, other.clone())),
        }
    }
}

/// Joins the texts of a list's items, for each named column.
fn concat_list_items(concat: &SpanListProjection, items: &[Value]) -> Vec<(String, String)> {
    if concat.columns.is_empty() {
        let texts: Vec<String> = items.iter().map(python_str).collect();
        return vec![(concat.list.key.clone(), texts.join(&concat.separator))];
    }
    let mut columns = Vec::new();
    for (name, path) in &concat.columns {
        let found = items.iter().filter_map(|item| lookup_non_null(item.as_object()?, path));
        let texts: Vec<String> = found.map(python_str).collect();
        if !texts.is_empty() {
            columns.push((name.clone(), texts.join(&concat.separator)));
        }
    }
    columns
}

fn lookup_non_null<'v>(item: &'v Map<String, Value>, path: &str) -> Option<&'v Value> {
    gradus_phoenix::span_view::look_up_path(item, path).filter(|value| !value.is_null())
}

/// Formats a value as Python's `str(value)`, because Phoenix joins values in Python.
fn python_str(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => {
            let mut out = String::new();
            write_python_repr(other, &mut out);
            out
        }
    }
}

/// Writes a value as Python's `repr`, for values inside of lists and dictionaries. Control characters other than the
/// common ones are not escaped.
fn write_python_repr(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("None"),
        Value::Bool(true) => out.push_str("True"),
        Value::Bool(false) => out.push_str("False"),
        Value::Number(number) => out.push_str(&number.to_string()),
        Value::String(text) => {
            let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
            out.push(quote);
            for c in text.chars() {
                match c {
                    '\\' => out.push_str("\\\\"),
                    '\n' => out.push_str("\\n"),
                    '\r' => out.push_str("\\r"),
                    '\t' => out.push_str("\\t"),
                    c if c == quote => out.extend(['\\', c]),
                    c => out.push(c),
                }
            }
            out.push(quote);
        }
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                out.push_str(if index == 0 { "" } else { ", " });
                write_python_repr(item, out);
            }
            out.push(']');
        }
        Value::Object(entries) => {
            out.push('{');
            for (index, (key, value)) in entries.iter().enumerate() {
                out.push_str(if index == 0 { "" } else { ", " });
                write_python_repr(&Value::from(key.as_str()), out);
                out.push_str(": ");
                write_python_repr(value, out);
            }
            out.push('}');
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_as_python_writes_them() {
        assert_eq!(python_str(&json!("it's")), "it's");
        assert_eq!(
            python_str(&json!({"a": [1, 2.5, null, true, "it's", "x"]})),
            r#"{'a': [1, 2.5, None, True, "it's", 'x']}"#
        );
    }
}
