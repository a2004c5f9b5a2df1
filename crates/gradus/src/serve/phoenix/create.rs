//! `POST /v1/projects/{project}/spans`: spans in Phoenix's own form, all of them or none.

use std::collections::HashSet;
use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use gradus_core::span::SpanId;
use gradus_core::span_json::phoenix_span;
use gradus_otlp::export_of_spans;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::error::{PhoenixError, blocking_sender};
use super::{ids, request};
use crate::serve::receive::accept_spans;
use crate::serve::state::Server;

#[derive(Deserialize)]
struct NewSpans {
    data: Vec<Map<String, Value>>,
}

pub(super) async fn add(
    State(server): State<Arc<Server>>,
    Path(project): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<(StatusCode, Json<Value>), PhoenixError> {
    // A project that is named and not there is made; one that is numbered is not.
    let name = match ids::decode_number("Project", &project) {
        Some(_) => request::project(&server, &project).await?.name,
        None => project,
    };
    let (NewSpans { data }, room): (NewSpans, _) = request::json(&server, &headers, body).await?;
    for (index, span) in data.iter().enumerate() {
        check(span).map_err(|(place, message)| {
            let mut at: Vec<Value> = vec!["data".into(), index.into()];
            at.extend(place.iter().map(|name| Value::from(*name)));
            PhoenixError::invalid_body(&at, &message)
        })?;
    }
    let total = data.len();
    let (data, known) = blocking_sender(&server, move |server| {
        let mut known = Vec::new();
        let mut seen = HashSet::new();
        for span in &data {
            let id = SpanId::parse(span["context"]["span_id"].as_str().unwrap_or_default());
            if !seen.insert(id) || server.store.trace_of_span(id)?.is_some() {
                known.push(span["context"].clone());
            }
        }
        Ok((data, known))
    })
    .await?;
    if !known.is_empty() {
        let error = json!({
            "error": "Request contains invalid or duplicate spans", "total_received": total, "total_queued": 0,
            "total_duplicates": known.len(), "total_invalid": 0, "duplicate_spans": known, "invalid_spans": [],
        });
        return Err(PhoenixError::with_json(StatusCode::BAD_REQUEST, &error));
    }
    let spans: Vec<_> = data.iter().map(phoenix_span).collect();
    let export = export_of_spans(&spans);
    accept_spans(&server, export, name.into(), room).await?;
    Ok((StatusCode::ACCEPTED, Json(json!({"total_received": total, "total_queued": total}))))
}

/// Looks for what a span must have; the error says where, and what is wrong.
fn check(span: &Map<String, Value>) -> Result<(), (Vec<&'static str>, String)> {
    let required = || "Field required".to_owned();
    for name in ["name", "span_kind", "status_code"] {
        if !span.get(name).is_some_and(Value::is_string) {
            return Err((vec![name], required()));
        }
    }
    for name in ["trace_id", "span_id"] {
        let id = span.get("context").and_then(|context| context.get(name)).and_then(Value::as_str);
        if id.is_none_or(str::is_empty) {
            return Err((vec!["context", name], required()));
        }
    }
    for name in ["start_time", "end_time"] {
        let text = span.get(name).and_then(Value::as_str).ok_or_else(|| (vec![name], required()))?;
        if text.parse::<jiff::Timestamp>().is_err() {
            let reason = format!("{name}: write it with its offset, as 2026-11-15T08:00:00+00:00");
            return Err((vec![name], reason));
        }
    }
    match span.get("attributes") {
        None | Some(Value::Null | Value::Object(_)) => Ok(()),
        Some(_) => Err((vec!["attributes"], "Input should be a valid dictionary".to_owned())),
    }
}
