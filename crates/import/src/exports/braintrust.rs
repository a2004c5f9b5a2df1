//! Braintrust rows: one object a span, of logs or of an experiment, as the API and the SDKs export them.

use gradus_core::span::{SpanId, TraceId};
use gradus_core::trajectory::RecordedAnnotation;
use serde_json::{Map, Value as Json};

use super::span_record::{
    ReportedUsage, SpanRecord, SpanRecordKind, count_under, decode_json_text, number_under, report_failure,
    span_id_from_text, strip_span_name_prefix, take_field, text_under, trace_id_from_text,
};
use crate::import_sink::{ImportError, ImportSink};

/// Whether an object is a row: only Braintrust has a root and a list of parents in addition to the id of the span.
/// Rows of datasets have these ids as well, but record no work.
pub(crate) fn matches_row(object: &Map<String, Json>) -> bool {
    let has = |key: &str| object.contains_key(key);
    if text_under(object, &["dataset_id"]).is_some() && !has("span_attributes") {
        return false;
    }
    text_under(object, &["span_id"]).is_some()
        && text_under(object, &["root_span_id"]).is_some()
        && (has("span_parents") || has("span_attributes") || has("_xact_id"))
}

/// Whether an object is a page of rows: `{"events": [...], "cursor"}` of the API.
pub(crate) fn matches_row_list(object: &Map<String, Json>) -> bool {
    let first = object.get("events").and_then(Json::as_array).and_then(|rows| rows.first());
    first.and_then(Json::as_object).is_some_and(matches_row)
}

/// Reads a page of rows.
pub(crate) fn read_row_list(mut object: Map<String, Json>, sink: &mut dyn ImportSink) -> Result<(), ImportError> {
    if let Json::Array(rows) = take_field(&mut object, &["events"]) {
        for row in rows {
            match row {
                Json::Object(row) if matches_row(&row) => {
                    let read = read_row(row, sink);
                    report_failure(read, sink);
                }
                _ => sink.report_bad_record("an element of `events` is no Braintrust row"),
            }
        }
    }
    Ok(())
}

/// Reads a row.
pub(crate) fn read_row(mut row: Map<String, Json>, sink: &mut dyn ImportSink) -> Result<(), ImportError> {
    let trace = trace_id_from_text(text_under(&row, &["root_span_id"]).unwrap_or_default());
    let id = text_under(&row, &["span_id"]).and_then(span_id_from_text);
    let id = id.ok_or_else(|| ImportError::new("a Braintrust row without an id"))?;
    // The wire log of the SDK sends a row in parts, which the server puts together.
    if row.get("_is_merge").is_some_and(|flag| flag == true) && !row.contains_key("span_attributes") {
        return Err(ImportError::new("a part of a row, as the SDK sends it; export the rows from the server"));
    }
    let attributes = decode_json_text(take_field(&mut row, &["span_attributes"]));
    // Scorers may call models themselves. Their work is not the agent's.
    if attributes.get("purpose").is_some_and(|purpose| purpose == "scorer") {
        return Ok(());
    }
    let name = attributes.get("name").and_then(Json::as_str).unwrap_or_default().to_owned();
    let mut span = SpanRecord::new(trace, id, &name);
    // A row can have several parents; the first is the one that called it.
    let parents = decode_json_text(take_field(&mut row, &["span_parents"]));
    let parent = parents.as_array().and_then(|parents| parents.first()?.as_str()).and_then(span_id_from_text);
    span.set_parent(parent);
    let metrics = decode_json_text(take_field(&mut row, &["metrics"]));
    span.set_times(metrics.get("start").or_else(|| row.get("created")), metrics.get("end"));
    match row.get("error") {
        None | Some(Json::Null) => {}
        Some(Json::String(error)) => span.set_error(error),
        Some(error) => span.set_error(&error.to_string()),
    }
    let metadata = decode_json_text(take_field(&mut row, &["metadata"]));
    for key in ["session_id", "conversation_id", "thread_id"] {
        if let Some(session) = metadata.get(key).and_then(Json::as_str) {
            span.set_text("session.id", session);
            break;
        }
    }
    let input = decode_json_text(take_field(&mut row, &["input"]));
    let output = decode_json_text(take_field(&mut row, &["output"]));
    match attributes.get("type").and_then(Json::as_str).unwrap_or_default() {
        "llm" => {
            span.set_kind(SpanRecordKind::Model);
            span.set_text("llm.model_name", metadata.get("model").and_then(Json::as_str).unwrap_or_default());
            span.set_content("llm.tools", metadata.get("tools").cloned().unwrap_or_default());
            span.set_usage(read_metrics(&metrics));
            span.set_model_content(input, output);
        }
        "tool" => {
            span.set_kind(SpanRecordKind::Tool);
            span.set_tool_content(strip_span_name_prefix(&name), input, output);
        }
        _ => {
            span.set_kind(SpanRecordKind::Chain);
            span.set_chain_content(input, output);
        }
    }
    span.add_to(sink);
    add_scores(&row, trace, id, sink);
    Ok(())
}

/// Reads the tokens of a model call. Braintrust counts cached tokens within `prompt_tokens`.
fn read_metrics(metrics: &Json) -> ReportedUsage {
    ReportedUsage {
        prompt: count_under(metrics, &["prompt_tokens"]),
        completion: count_under(metrics, &["completion_tokens"]),
        cached_prompt: count_under(metrics, &["prompt_cached_tokens"]),
        cost_usd: number_under(metrics, &["estimated_cost", "cost"]),
    }
}

/// Adds the scores of a row: numbers from 0 to 1, null where a scorer returned none.
fn add_scores(row: &Map<String, Json>, trace: TraceId, span: SpanId, sink: &mut dyn ImportSink) {
    let scores = decode_json_text(row.get("scores").cloned().unwrap_or_default());
    for (name, score) in scores.as_object().into_iter().flatten() {
        let score = match score {
            Json::Bool(passed) => Some(f64::from(u8::from(*passed))),
            other => other.as_f64(),
        };
        if score.is_some() {
            let annotation = RecordedAnnotation { name: name.clone(), score, ..RecordedAnnotation::default() };
            sink.add_annotation(trace, Some(span), annotation);
        }
    }
}
