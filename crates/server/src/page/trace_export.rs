//! Export of the traces that were selected in the list, or of all that match its filter: JSON Lines with the runs and
//! their verdicts, or a table of the list.

use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::http::HeaderValue;
use axum::http::header::{CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use gradus_report::csv::sanitize_csv_cell;
use gradus_store::{Store, StoreError, TraceFilter, TraceRow, TrajectoryRow};
use serde_json::json;

use super::loaded_trace::trace_id;
use super::render::{PageError, PageQuery};
use super::trace_list_query::TraceListQuery;
use crate::http_error::ApiError;
use crate::queries::QueryKind;
use crate::state::ServerState;
use crate::stream::{self, ResponseSink};
use crate::time_text::format_rfc3339;

/// Maximum number of traces in one export; the latest, if nothing is selected.
pub(super) const MAX_EXPORTED: usize = 1_000;
/// Number of traces that are read at once.
const TRACES_PER_PAGE: usize = 100;
/// Columns of the table; those of the evaluators follow.
const COLUMNS: [&str; 13] = [
    "trace_id",
    "trajectory_id",
    "project",
    "agent",
    "version",
    "model",
    "start",
    "seconds",
    "steps",
    "tokens",
    "cost_usd",
    "is_error",
    "request",
];

/// `GET /traces/export`: `trace` may occur many times; `format` is `jsonl` or `csv`; everything else is the filter of
/// the list.
pub(super) async fn export_traces(
    State(server): State<Arc<ServerState>>,
    RawQuery(raw): RawQuery,
    PageQuery(choice): PageQuery<TraceListQuery>,
) -> Result<Response, PageError> {
    let pairs: Vec<(String, String)> = serde_urlencoded::from_str(&raw.unwrap_or_default()).unwrap_or_default();
    let (mut selected, mut format, mut is_selection) = (Vec::new(), "jsonl".to_owned(), false);
    for (name, value) in pairs {
        match name.as_str() {
            "trace" => selected.push(value),
            "format" => format = value,
            // Sent by the buttons below the list.
            "selection" => is_selection = true,
            _ => {}
        }
    }
    let (is_table, kind, disposition) = match format.as_str() {
        "jsonl" => (false, "application/x-ndjson", "attachment; filename=traces.jsonl"),
        "csv" => (true, "text/csv; charset=utf-8", "attachment; filename=traces.csv"),
        other => return Err(ApiError::bad_request(format!("format={other}: jsonl or csv")).into()),
    };
    let choice = choice.without_blanks();
    let filter = choice.to_trace_filter()?;
    if is_selection && selected.is_empty() {
        let all = if choice.condition.is_none() { ", or export all matches" } else { "" };
        let reason = format!("No trace is selected. Go back and tick the traces to export{all}.");
        return Err(ApiError::bad_request(reason).into());
    }
    if choice.condition.is_some() && selected.is_empty() {
        let reason = "Select traces to export: with a span filter, the list is not searched as a whole.";
        return Err(ApiError::bad_request(reason).into());
    }
    let permit = server.queries.admit(QueryKind::Download).await.map_err(ApiError::from)?;
    let (queries, stall_timeout) = (Arc::clone(&server.queries), server.settings.timeouts.stall);
    let body = stream::stream_query_body(&queries, permit, stall_timeout, move |sink| {
        let rows = load_rows(&server.store, &filter, &selected)?;
        match is_table {
            true => write_run_csv(&rows, sink),
            false => write_run_lines(&server.store, &rows, sink)?,
        }
        Ok(())
    });
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static(kind)),
        (CACHE_CONTROL, HeaderValue::from_static("private, no-cache")),
        (CONTENT_DISPOSITION, HeaderValue::from_static(disposition)),
    ];
    Ok((headers, body).into_response())
}

/// Loads the selected traces, or the latest that match. Unknown ids are left out: retention may have deleted them.
fn load_rows(store: &Store, filter: &TraceFilter, selected: &[String]) -> Result<Vec<TraceRow>, StoreError> {
    let mut rows = Vec::new();
    if !selected.is_empty() {
        for id in selected.iter().take(MAX_EXPORTED).filter_map(|text| trace_id(text)) {
            rows.extend(store.trace(id)?);
        }
        return Ok(rows);
    }
    let mut cursor = None;
    loop {
        let page = store.traces(filter, cursor, TRACES_PER_PAGE.min(MAX_EXPORTED - rows.len()))?;
        rows.extend(page.traces);
        gradus_store::check_query()?;
        cursor = page.next;
        if cursor.is_none() || rows.len() >= MAX_EXPORTED {
            return Ok(rows);
        }
    }
}

/// Writes one run a line, with its verdicts.
fn write_run_lines(store: &Store, rows: &[TraceRow], sink: &mut ResponseSink) -> Result<(), StoreError> {
    for row in rows {
        for run in &row.trajectories {
            if sink.is_gone() {
                return Ok(());
            }
            let json = store.trajectory_json(&run.trajectory_id)?.unwrap_or_default();
            let trajectory: serde_json::Value = serde_json::from_slice(&json).unwrap_or_default();
            let verdicts: Vec<serde_json::Value> = store
                .verdict_lines(&run.trajectory_id)?
                .iter()
                .filter_map(|stored| serde_json::from_str(&stored.line).ok())
                .collect();
            let line = json!({
                "trace_id": row.trace_id.to_string(),
                "project": row.project,
                "trajectory": trajectory,
                "verdicts": verdicts,
            });
            sink.write(format!("{line}\n").as_bytes());
        }
        sink.flush();
    }
    Ok(())
}

/// Writes one run a row, with the mean score of each evaluator.
fn write_run_csv(rows: &[TraceRow], sink: &mut ResponseSink) {
    let mut evaluators: Vec<&str> = rows
        .iter()
        .flat_map(|row| &row.trajectories)
        .flat_map(|run| &run.scores)
        .map(|score| score.evaluator.as_str())
        .collect();
    evaluators.sort_unstable();
    evaluators.dedup();
    let mut table = csv::Writer::from_writer(Vec::new());
    // Writing to memory cannot fail.
    let _ = table.write_record(COLUMNS.iter().copied().chain(evaluators.iter().copied()).map(sanitize_csv_cell));
    for row in rows {
        for run in &row.trajectories {
            let scores = evaluators.iter().map(|name| format_mean_score(run, name));
            let _ = table.write_record(build_run_cells(row, run).into_iter().chain(scores));
        }
    }
    sink.write(&table.into_inner().unwrap_or_default());
}

/// Returns the cells in the order of [`COLUMNS`]. Texts are sanitized against formula injection in spreadsheets.
fn build_run_cells(row: &TraceRow, run: &TrajectoryRow) -> [String; 13] {
    [
        row.trace_id.to_string(),
        sanitize_csv_cell(&run.trajectory_id),
        sanitize_csv_cell(&row.project),
        sanitize_csv_cell(&run.agent),
        sanitize_csv_cell(&run.version),
        sanitize_csv_cell(&run.model),
        format_rfc3339(run.start_ns),
        format!("{:.3}", run.end_ns.saturating_sub(run.start_ns) as f64 / 1e9),
        run.steps.to_string(),
        run.tokens.to_string(),
        run.cost_usd.map(|cost| cost.to_string()).unwrap_or_default(),
        run.is_error.to_string(),
        sanitize_csv_cell(&run.query),
    ]
}

/// Formats the mean score; empty if the evaluator gave none.
fn format_mean_score(run: &TrajectoryRow, evaluator: &str) -> String {
    let score = run.scores.iter().find(|score| score.evaluator == evaluator && score.scored > 0);
    score.map(|score| (score.sum / score.scored as f64).to_string()).unwrap_or_default()
}
