//! Download of all labels with the verdicts that they are about, as JSON lines or CSV. Rows are streamed while they are
//! read.

use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderValue;
use axum::http::header::{CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use gradus_eval::outcome::OutcomeLine;
use gradus_store::{LabelRow, StoreError};
use serde::Deserialize;
use serde_json::json;

use super::render::PageError;
use crate::http_error::{ApiError, ApiQuery};
use crate::queries::QueryKind;
use crate::signature;
use crate::state::ServerState;
use crate::stream::{self, ResponseSink};
use crate::time_text::format_rfc3339 as show_time;
use gradus_report::csv::sanitize_csv_cell;

/// Number of labels in one query. Between two queries the store is free for others.
const LABELS_PER_QUERY: usize = 1_000;

/// Parameters of `GET /labels`. Unknown ones are an error: programs use this URL.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct LabelExportQuery {
    project: Option<String>,
    format: Option<String>,
}

/// `GET /labels`. The response is a download of bounded memory, whatever the number of labels.
pub(super) async fn export_labels(
    State(server): State<Arc<ServerState>>,
    ApiQuery(choice): ApiQuery<LabelExportQuery>,
) -> Result<Response, PageError> {
    let project = choice.project.filter(|name| !name.is_empty());
    let (form, kind, disposition) = match choice.format.as_deref() {
        None | Some("jsonl") => {
            (LabelExportFormat::JsonLines, "application/x-ndjson", "attachment; filename=labels.jsonl")
        }
        Some("csv") => (LabelExportFormat::Csv, "text/csv; charset=utf-8", "attachment; filename=labels.csv"),
        Some(other) => return Err(ApiError::bad_request(format!("format={other}: jsonl or csv")).into()),
    };
    let permit = server.queries.admit(QueryKind::Download).await.map_err(ApiError::from)?;
    let (queries, stall_timeout) = (Arc::clone(&server.queries), server.settings.timeouts.stall);
    let body = stream::stream_query_body(&queries, permit, stall_timeout, move |sink| {
        write_label_export(&server, project.as_deref(), form, sink)
    });
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static(kind)),
        (CACHE_CONTROL, HeaderValue::from_static("private, no-cache")),
        (CONTENT_DISPOSITION, HeaderValue::from_static(disposition)),
    ];
    Ok((headers, body).into_response())
}

/// JSON lines is the default.
#[derive(Clone, Copy)]
enum LabelExportFormat {
    JsonLines,
    Csv,
}

/// Pages by time of the last change and id (keyset), so no label is skipped; one that changes meanwhile appears again
/// at the end. Stops early if the client is gone.
fn write_label_export(
    server: &ServerState,
    project: Option<&str>,
    form: LabelExportFormat,
    sink: &mut ResponseSink,
) -> Result<(), StoreError> {
    if let LabelExportFormat::Csv = form {
        sink.write(&encode_label_record(COLUMNS.map(str::to_owned)));
    }
    let mut after = (i64::MIN, 0);
    while !sink.is_gone() {
        let rows = server.store.labels_after(project, after, LABELS_PER_QUERY)?;
        for row in &rows {
            match form {
                LabelExportFormat::JsonLines => sink.write(format_label_line(row).as_bytes()),
                LabelExportFormat::Csv => sink.write(&encode_label_record(build_label_cells(row))),
            }
        }
        match rows.last() {
            Some(last) if rows.len() == LABELS_PER_QUERY => after = (last.updated_ns, last.no),
            _ => break,
        }
    }
    Ok(())
}

/// Columns of the CSV and, under the same names, fields of the JSON lines. An interface: append only.
const COLUMNS: [&str; 17] = [
    "project",
    "trace_id",
    "trajectory_id",
    "step_index",
    "evaluator",
    "judge",
    "judge_label",
    "judge_label_then",
    "label",
    "author",
    "identifier",
    "key",
    "note",
    "at",
    "rubric_hash",
    "sample",
    "judge_then",
];

/// The context that was stored with a label, and the present judge.
struct LabelContext {
    judge: Option<String>,
    /// The judge, its label and its rubric when the person labelled.
    judge_then: Option<String>,
    judge_label_then: Option<String>,
    rubric_hash: Option<String>,
    /// How the case was drawn; null if it was not.
    sample: serde_json::Value,
    /// The API key that was used.
    key: Option<String>,
}

impl LabelContext {
    fn read(row: &LabelRow) -> LabelContext {
        let now = row.judged.as_deref().and_then(|line| serde_json::from_str::<OutcomeLine>(line).ok());
        let (kept, key) = signature::split_signed_metadata(&row.metadata);
        let text = |name: &str| kept.get(name).and_then(|value| Some(value.as_str()?.to_owned()));
        LabelContext {
            judge: now.map(|line| line.judge.to_string()),
            judge_then: text("judge"),
            judge_label_then: text("judge_label"),
            rubric_hash: text("rubric_hash"),
            sample: kept.get("sample").cloned().unwrap_or_default(),
            key,
        }
    }
}

/// The fields of `COLUMNS`, with null for missing values.
fn format_label_line(row: &LabelRow) -> String {
    let LabelContext { judge, judge_then, judge_label_then, rubric_hash, sample, key } = LabelContext::read(row);
    let line = json!({
        "project": row.project, "trace_id": format!("{:032x}", row.trace_id),
        "trajectory_id": row.trajectory_id, "step_index": row.step, "evaluator": row.evaluator,
        "judge": judge, "judge_label": row.judge_label, "judge_label_then": judge_label_then, "label": row.label,
        "author": row.author, "identifier": row.identifier, "key": key, "note": row.note,
        "at": show_time(row.updated_ns), "rubric_hash": rubric_hash, "sample": sample, "judge_then": judge_then,
    });
    format!("{line}\n")
}

/// Cells in the order of `COLUMNS`. Texts are sanitized against formula injection in spreadsheets.
fn build_label_cells(row: &LabelRow) -> [String; 17] {
    let text = |text: &Option<String>| sanitize_csv_cell(text.as_deref().unwrap_or_default());
    let LabelContext { judge, judge_then, judge_label_then, rubric_hash, sample, key } = LabelContext::read(row);
    [
        sanitize_csv_cell(&row.project),
        format!("{:032x}", row.trace_id),
        sanitize_csv_cell(&row.trajectory_id),
        row.step.map(|step| step.to_string()).unwrap_or_default(),
        sanitize_csv_cell(&row.evaluator),
        text(&judge),
        text(&row.judge_label),
        text(&judge_label_then),
        sanitize_csv_cell(&row.label),
        sanitize_csv_cell(&row.author),
        sanitize_csv_cell(&row.identifier),
        text(&key),
        text(&row.note),
        show_time(row.updated_ns),
        text(&rubric_hash),
        if sample.is_null() { String::new() } else { sanitize_csv_cell(&sample.to_string()) },
        text(&judge_then),
    ]
}

fn encode_label_record(cells: [String; 17]) -> Vec<u8> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    // Writing to memory cannot fail.
    let _ = writer.write_record(cells);
    writer.into_inner().unwrap_or_default()
}
