//! `POST /v1/projects/{project}/spans`: spans in Phoenix's JSON form. All spans of a request are stored, or none.

use std::collections::HashSet;
use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use gradus_core::span::{Span, SpanId};
use gradus_core::span_json::read_phoenix_span;
use gradus_otlp::export_from_spans;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::data_list::visit_data_list;
use super::error::{PhoenixApiError, run_outside_pool};
use super::{ids, request};
use crate::json_size::estimate_parsed_size;
use crate::memory::MemoryLease;
use crate::receive::{ReceiveRefusal, parse_body, prepare_spans, store_spans};
use crate::state::ServerState;

/// Maximum number of spans in one request.
const MAX_SPANS: usize = 100_000;
/// Estimated memory of a span's ids while its request is processed.
const SPAN_ID_BYTES: usize = 300;
/// Spans are converted to OTLP in batches of this many bytes of text, to bound the parsed values in memory.
const BATCH_BYTES: usize = 1 << 20;

/// Stores the spans of a request. Answers 400 with a list of duplicates if a span exists already or twice in the
/// request, as Phoenix does.
pub(super) async fn create_spans(
    State(server): State<Arc<ServerState>>,
    Path(project): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<(StatusCode, Json<Value>), PhoenixApiError> {
    // A project is created if the path has its name. If the path has an id, the project must exist.
    let name = match ids::decode_numeric_id("Project", &project) {
        Some(_) => request::find_project(&server, &project).await?.name,
        None => project,
    };
    let preparing = Arc::clone(&server);
    let ((ids, prepared), lease) = parse_body(&server, &headers, body, move |text, lease| {
        let mut reader = SpanReader::default();
        visit_data_list(&text, MAX_SPANS, &mut |index, item| reader.read(index, item, lease))?;
        drop(text);
        let (ids, export) = reader.finish();
        let prepared = prepare_spans(&preparing, export, name.into(), lease)?;
        Ok::<_, PhoenixApiError>((ids, prepared))
    })
    .await?;
    let total = ids.len();
    let known = run_outside_pool(&server, move |server| {
        let mut known = Vec::new();
        let mut seen = HashSet::new();
        for (trace_id, span_id) in &ids {
            let id = SpanId::parse(span_id);
            if !seen.insert(id) || server.store.trace_of_span(id)?.is_some() {
                known.push(json!({"trace_id": trace_id, "span_id": span_id}));
            }
        }
        Ok(known)
    })
    .await?;
    if !known.is_empty() {
        let error = json!({
            "error": "Request contains invalid or duplicate spans", "total_received": total, "total_queued": 0,
            "total_duplicates": known.len(), "total_invalid": 0, "duplicate_spans": known, "invalid_spans": [],
        });
        return Err(PhoenixApiError::with_json_body(StatusCode::BAD_REQUEST, &error));
    }
    store_spans(&server, prepared, lease).await?;
    Ok((StatusCode::ACCEPTED, Json(json!({"total_received": total, "total_queued": total}))))
}

/// The trace id and span id as the client wrote them, for the response.
type WrittenIds = (String, String);

/// Parses spans one by one and converts them to an OTLP export request.
#[derive(Default)]
struct SpanReader {
    ids: Vec<WrittenIds>,
    batch: Vec<Span<'static>>,
    /// Bytes of text of the spans in the batch, and the memory leased for them.
    batch_text: usize,
    batch_memory: usize,
    export: Vec<u8>,
}

impl SpanReader {
    /// Leases memory for the parsed value before parsing, and for the flattened attributes before flattening.
    fn read(&mut self, index: usize, item: &RawValue, lease: &mut MemoryLease) -> Result<(), PhoenixApiError> {
        let text = item.get();
        let parsed = estimate_parsed_size(text.as_bytes());
        lease.grow(parsed + SPAN_ID_BYTES).map_err(ReceiveRefusal::from)?;
        let span: Map<String, Value> = serde_json::from_str(text).map_err(|error| {
            PhoenixApiError::invalid_body(&["data".into(), index.into()], &format!("it cannot be read: {error}"))
        })?;
        validate_span(&span).map_err(|(place, message)| {
            let mut at: Vec<Value> = vec!["data".into(), index.into()];
            at.extend(place.iter().map(|name| Value::from(*name)));
            PhoenixApiError::invalid_body(&at, &message)
        })?;
        let flat = estimate_flattened_size(0, span.get("attributes").unwrap_or(&Value::Null))
            .saturating_add(estimate_flattened_size(0, span.get("events").unwrap_or(&Value::Null)));
        lease.grow(flat).map_err(ReceiveRefusal::from)?;
        let id = |name: &str| span["context"][name].as_str().unwrap_or_default().to_owned();
        self.ids.push((id("trace_id"), id("span_id")));
        self.batch.push(read_phoenix_span(&span));
        drop(span);
        lease.shrink_to(lease.bytes() - parsed);
        self.batch_text += text.len();
        self.batch_memory += flat;
        if self.batch_text >= BATCH_BYTES {
            let before = self.export.len();
            self.write_batch();
            // The batch is freed; the export holds its bytes now.
            let (held, grown) = (std::mem::take(&mut self.batch_memory), self.export.len() - before);
            lease.shrink_to(lease.bytes() - held.saturating_sub(grown));
        }
        Ok(())
    }

    /// Concatenated export requests are one valid export request, so batches are simply appended.
    fn write_batch(&mut self) {
        self.export.extend(export_from_spans(&self.batch));
        self.batch.clear();
        self.batch_text = 0;
    }

    fn finish(mut self) -> (Vec<WrittenIds>, Vec<u8>) {
        self.write_batch();
        (self.ids, self.export)
    }
}

/// Estimates the memory of attributes after flattening. Each value gets its whole path as its name, so a long name
/// around many values is repeated for each of them.
fn estimate_flattened_size(path: usize, value: &Value) -> usize {
    // Estimated bytes of one attribute, and digits of a list index in its name.
    const VALUE: usize = 120;
    const INDEX_DIGITS: usize = 8;
    let inner = |name: usize, value: &Value| estimate_flattened_size(path.saturating_add(name + 1), value);
    let nested: usize = match value {
        Value::Object(entries) => {
            entries.iter().fold(0, |sum, (key, value)| sum.saturating_add(inner(key.len(), value)))
        }
        Value::Array(items) if items.iter().any(Value::is_object) => {
            items.iter().fold(0, |sum, item| sum.saturating_add(inner(INDEX_DIGITS, item)))
        }
        Value::Array(items) => {
            items.len().saturating_mul(VALUE).saturating_add(items.iter().map(estimate_text_size).sum())
        }
        other => estimate_text_size(other),
    };
    nested.saturating_add(path + VALUE)
}

/// Estimates the bytes of a value inside of a list, which is not flattened further.
fn estimate_text_size(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(|item| 120 + estimate_text_size(item)).sum(),
        Value::Object(entries) => entries.iter().map(|(key, value)| 120 + key.len() + estimate_text_size(value)).sum(),
        _ => 0,
    }
}

/// Checks the required fields. The error is the path of the field and Pydantic's message for it, which clients print.
fn validate_span(span: &Map<String, Value>) -> Result<(), (Vec<&'static str>, String)> {
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
