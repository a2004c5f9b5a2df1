//! Download of the results of a trial on many cases, as JSON lines or CSV.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::HeaderValue;
use axum::http::header::{CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use gradus_report::csv::sanitize_csv_cell;
use serde::Deserialize;
use serde_json::{Value, json};

use super::bulk_trial_results::CaseLabels;
use super::render::PageError;
use crate::bulk_trial::{BulkTrialCase, BulkTrialFolder, BulkTrialPlan, BulkTrialRecord};
use crate::http_error::{ApiError, ApiQuery, run_large_query};
use crate::state::ServerState;

/// Parameters of the download. Unknown ones are an error: programs use this URL.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct BulkTrialExportQuery {
    format: Option<String>,
}

/// Columns of the CSV and, under the same names, fields of the JSON lines. An interface: append only.
const COLUMNS: [&str; 15] = [
    "project",
    "trace_id",
    "trajectory_id",
    "step_index",
    "evaluator",
    "judge",
    "rubric_hash",
    "outcome",
    "label",
    "explanation",
    "reason",
    "present_label",
    "present_judge",
    "human_labels",
    "cost_usd",
];

/// `GET /rubrics/{rubric}/trials/{trial}/results`
pub(super) async fn export_bulk_trial(
    State(server): State<Arc<ServerState>>,
    Path((name, id)): Path<(String, String)>,
    ApiQuery(query): ApiQuery<BulkTrialExportQuery>,
) -> Result<Response, PageError> {
    let (kind, ending) = match query.format.as_deref() {
        None | Some("jsonl") => ("application/x-ndjson", "jsonl"),
        Some("csv") => ("text/csv; charset=utf-8", "csv"),
        Some(other) => return Err(ApiError::bad_request(format!("format={other}: jsonl or csv")).into()),
    };
    // Bounded: a trial has a limited number of cases, and each outcome is one answer of a judge.
    let body = run_large_query(&server, move |server| {
        let missing = || ApiError::not_found("No trial has this id. Old trials are deleted.");
        let folder = BulkTrialFolder::find(&server.settings.data, &id).ok_or_else(missing)?;
        let unreadable = |error: &dyn std::fmt::Display| {
            tracing::error!(%error, "failed to read a rubric trial");
            ApiError::new(axum::http::StatusCode::INTERNAL_SERVER_ERROR, "The files of this trial cannot be read.")
        };
        let plan = folder.load_plan().map_err(|error| unreadable(&error))?;
        if plan.rubric != name {
            return Err(missing());
        }
        let record = folder.load_record().map_err(|error| unreadable(&error))?;
        let people = CaseLabels::load(&server.store, &plan)?;
        Ok(write_results(&plan, &record, &people, ending == "csv"))
    })
    .await?;
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static(kind)),
        (CACHE_CONTROL, HeaderValue::from_static("private, no-cache")),
    ];
    let mut response = (headers, body).into_response();
    if let Ok(name) = HeaderValue::from_str(&format!("attachment; filename=rubric-trial.{ending}")) {
        response.headers_mut().insert(CONTENT_DISPOSITION, name);
    }
    Ok(response)
}

fn write_results(plan: &BulkTrialPlan, record: &BulkTrialRecord, people: &CaseLabels, is_csv: bool) -> Vec<u8> {
    let rows = plan.cases.iter().map(|case| describe_case(plan, case, record, people));
    if !is_csv {
        let mut body = Vec::new();
        for fields in rows {
            let line: serde_json::Map<String, Value> =
                COLUMNS.iter().map(|name| (*name).to_owned()).zip(fields).collect();
            body.extend_from_slice(Value::Object(line).to_string().as_bytes());
            body.push(b'\n');
        }
        return body;
    }
    let cell = |value: &Value| match value {
        Value::Null => String::new(),
        Value::String(text) => sanitize_csv_cell(text),
        Value::Array(all) => sanitize_csv_cell(&all.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("; ")),
        other => other.to_string(),
    };
    let mut writer = csv::Writer::from_writer(Vec::new());
    // Writing to memory cannot fail.
    let _ = writer.write_record(COLUMNS);
    for fields in rows {
        let _ = writer.write_record(fields.iter().map(cell));
    }
    writer.into_inner().unwrap_or_default()
}

/// Returns the fields of a case, in the order of the columns. A case that was not asked has no outcome.
fn describe_case(
    plan: &BulkTrialPlan,
    case: &BulkTrialCase,
    record: &BulkTrialRecord,
    people: &CaseLabels,
) -> [Value; COLUMNS.len()] {
    let line = record.outcome(&case.trajectory_id, case.step);
    let labels: Vec<&str> = people.on_case(case).iter().map(|row| row.label.as_str()).collect();
    [
        json!(plan.project),
        json!(case.trace_id),
        json!(case.trajectory_id),
        json!(case.step),
        json!(plan.rubric),
        json!(plan.judge),
        json!(plan.rubric_hash),
        json!(line.map(|line| line.outcome)),
        json!(line.and_then(|line| line.label.as_deref())),
        json!(line.and_then(|line| line.explanation.as_deref())),
        json!(line.and_then(|line| line.reason.as_deref())),
        json!(case.present.as_ref().map(|present| &present.label)),
        json!(case.present.as_ref().map(|present| &present.judge)),
        json!(labels),
        json!(line.and_then(|line| line.cost_usd)),
    ]
}
