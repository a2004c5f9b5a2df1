//! Lists annotations for Phoenix clients: by target, by identifier, or both.

use std::collections::HashSet;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use gradus_core::span::{SpanId, TraceId};
use gradus_phoenix::span_view::format_iso_time;
use gradus_store::{AnnotationQuery, AnnotationRecord};
use serde_json::{Value, json};

use super::error::{PhoenixApiError, run_short_query};
use super::request::{self, PhoenixQueryParams};
use super::{ids, verdicts};
use crate::phoenix::annotation_subject::PhoenixAnnotationTarget;
use crate::signature;
use crate::state::ServerState;

/// Maximum number of distinct ids, and of distinct identifiers, in one request. The message is Phoenix's.
const MAX_IDS: usize = 1000;

/// `GET /v1/projects/{project}/span_annotations`.
pub(super) async fn list_span_annotations(
    server: State<Arc<ServerState>>,
    project: Path<String>,
    params: PhoenixQueryParams,
) -> Result<Json<Value>, PhoenixApiError> {
    list_annotations(PhoenixAnnotationTarget::Span, "span_id", &server, &project, &params).await
}

/// `GET /v1/projects/{project}/trace_annotations`.
pub(super) async fn list_trace_annotations(
    server: State<Arc<ServerState>>,
    project: Path<String>,
    params: PhoenixQueryParams,
) -> Result<Json<Value>, PhoenixApiError> {
    list_annotations(PhoenixAnnotationTarget::Trace, "trace_id", &server, &project, &params).await
}

/// `GET /v1/projects/{project}/session_annotations`.
pub(super) async fn list_session_annotations(
    server: State<Arc<ServerState>>,
    project: Path<String>,
    params: PhoenixQueryParams,
) -> Result<Json<Value>, PhoenixApiError> {
    list_annotations(PhoenixAnnotationTarget::Session, "session_id", &server, &project, &params).await
}

/// Lists annotations. `field` is the name of the id in parameters and in the response, such as `span_id`. Cursors are
/// row numbers, and lists go from new to old.
async fn list_annotations(
    subject: PhoenixAnnotationTarget,
    field: &'static str,
    server: &Arc<ServerState>,
    project: &str,
    params: &PhoenixQueryParams,
) -> Result<Json<Value>, PhoenixApiError> {
    let distinct = |name: &str| {
        let values: HashSet<String> = params.all_values(name).into_iter().filter(|value| !value.is_empty()).collect();
        match values.len() {
            0..=MAX_IDS => Ok(values.into_iter().collect::<Vec<String>>()),
            many => Err(PhoenixApiError::unprocessable(format!("Too many {name} supplied: {many} (max {MAX_IDS})"))),
        }
    };
    let (wanted, identifiers) = (distinct(&format!("{field}s"))?, distinct("identifier")?);
    if wanted.is_empty() && identifiers.is_empty() {
        return Err(PhoenixApiError::unprocessable(format!("At least one of {field}s or identifier must be supplied")));
    }
    let limit = params.parse_limit(10, 10_000)?;
    let up_to = match params.last_value("cursor") {
        Some(cursor) => Some(
            ids::decode_numeric_id(subject.node_type(), cursor)
                .ok_or_else(|| PhoenixApiError::unprocessable("Invalid cursor value"))?,
        ),
        None => None,
    };
    let project = request::find_project(server, project).await?.no;
    let query = AnnotationQuery {
        project,
        kind: subject.prefix(),
        targets: wanted.iter().map(|id| subject.format_target(id)).collect(),
        identifiers,
        names: params.all_values("include_annotation_names"),
        other_names: params.all_values("exclude_annotation_names"),
        up_to,
        limit: limit + 1,
    };
    run_short_query(server, move |server| {
        let mut rows = server.store.query_annotations(&query)?;
        let next = rows.get(limit).map(|row| ids::encode_node_id(subject.node_type(), row.no));
        rows.truncate(limit);
        let mut data: Vec<Value> = rows.iter().map(|row| annotation_to_json(row, subject, field)).collect();
        if next.is_none() {
            // Gradus's own verdicts are not rows of this table, so they follow after the last page.
            data.extend(verdicts::list_requested_verdicts(server, subject, &query)?);
        }
        // Phoenix answers 404 only if none of the targets exists, and an empty list otherwise.
        if data.is_empty() && query.identifiers.is_empty() && !any_target_exists(server, subject, project, &wanted)? {
            return Err(PhoenixApiError::not_found(format!("None of the supplied {field}s exist in this project")));
        }
        Ok(Json(json!({"data": data, "next_cursor": next})))
    })
    .await
}

/// Whether at least one of the targets exists in the project.
fn any_target_exists(
    server: &ServerState,
    subject: PhoenixAnnotationTarget,
    project: i64,
    wanted: &[String],
) -> Result<bool, PhoenixApiError> {
    for id in wanted {
        let trace = match subject {
            PhoenixAnnotationTarget::Trace => Some(TraceId::parse(id)),
            PhoenixAnnotationTarget::Session => crate::phoenix::session_lookup::find_first_trace(server, id)?,
            PhoenixAnnotationTarget::Span | PhoenixAnnotationTarget::Document => {
                server.store.trace_of_span(SpanId::parse(id))?
            }
        };
        if let Some(trace) = trace
            && server.store.trace_position(project, trace)?.is_some()
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Converts to Phoenix's representation. The name of the API key is removed from the metadata.
fn annotation_to_json(row: &AnnotationRecord, subject: PhoenixAnnotationTarget, field: &str) -> Value {
    let time = |ns: i64| format_iso_time(ns / 1000);
    let mut shown = json!({
        "id": ids::encode_node_id(subject.node_type(), row.no),
        "created_at": time(row.created_ns),
        "updated_at": time(row.updated_ns),
        "source": "API",
        "user_id": null,
        "name": row.name,
        "annotator_kind": row.annotator,
        "result": {"label": row.label, "score": row.score, "explanation": row.explanation},
        "metadata": signature::split_signed_metadata(&row.metadata).0,
        "identifier": row.identifier,
    });
    shown[field] = Value::from(row.target.strip_prefix(subject.prefix()).unwrap_or(&row.target));
    shown
}
