//! Annotations: statements of people, and of programs other than our judges, about spans, traces, trajectories and
//! steps.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{Extension, Path, State};
use axum::http::{HeaderMap, StatusCode};
use gradus_core::span::{SpanId, TraceId};
use gradus_store::{AnnotationFilter, AnnotationRecord, NewAnnotation};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::body::read_json_body;
use crate::annotation_limits::check_annotation_size;
use crate::caller::RequestCaller;
use crate::http_error::{ApiError, ApiQuery, run_outside_pool, run_short_query};
use crate::signature;
use crate::state::ServerState;
use crate::time_text as time;

/// A stored annotation.
#[derive(Serialize, ToSchema)]
pub(super) struct AnnotationBody {
    id: i64,
    /// `span:ID`, `trace:ID`, `trajectory:ID` or `trajectory:ID#STEP`.
    target: String,
    /// What the annotation is about. A label that agrees or disagrees with a verdict has the name of its evaluator.
    name: String,
    /// Distinguishes several annotations of one name on one target. May be empty.
    identifier: String,
    /// `HUMAN`, `LLM` or `CODE`.
    annotator: String,
    label: Option<String>,
    score: Option<f64>,
    explanation: Option<String>,
    #[schema(value_type = Object)]
    metadata: serde_json::Value,
    author: String,
    /// Name of the API key that it was written with; null if the server requires no key.
    key: Option<String>,
    created: String,
    updated: String,
}

impl AnnotationBody {
    /// Stored metadata also carries the signature of the key, which is taken out here: clients see their own metadata.
    pub(super) fn from_row(row: AnnotationRecord) -> AnnotationBody {
        let (metadata, key) = signature::split_signed_metadata(&row.metadata);
        AnnotationBody {
            id: row.no,
            target: row.target,
            name: row.name,
            identifier: row.identifier,
            annotator: row.annotator,
            label: row.label,
            score: row.score,
            explanation: row.explanation,
            metadata,
            author: row.author,
            key,
            created: time::format_rfc3339(row.created_ns),
            updated: time::format_rfc3339(row.updated_ns),
        }
    }
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct AnnotationParams {
    project: Option<String>,
    target: Option<String>,
    name: Option<String>,
    /// `next_cursor` of the page before.
    #[param(minimum = 0)]
    cursor: Option<i64>,
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<usize>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = Annotations)]
pub(super) struct AnnotationList {
    items: Vec<AnnotationBody>,
    next_cursor: Option<i64>,
}

/// Annotations, in the order in which they were first made.
#[utoipa::path(get, path = "/api/v1/annotations", tag = "annotations", params(AnnotationParams),
    responses((status = 200, body = AnnotationList), (status = 400, body = crate::http_error::ErrorBody)))]
pub(super) async fn search_annotations(
    State(server): State<Arc<ServerState>>,
    ApiQuery(params): ApiQuery<AnnotationParams>,
) -> Result<Json<AnnotationList>, ApiError> {
    let limit = params.limit.unwrap_or(100);
    if !(1..=1000).contains(&limit) {
        return Err(ApiError::bad_request(format!("limit={limit}: from 1 to 1000")));
    }
    let filter = AnnotationFilter {
        project: params.project,
        target: params.target,
        name: params.name,
        trace_id: None,
        annotator: None,
        after: params.cursor.unwrap_or(0),
        // One row more than the page shows whether there is a next page.
        limit: limit + 1,
    };
    run_short_query(&server, move |server| {
        let mut rows = server.store.annotations(&filter)?;
        let has_more = rows.len() > limit;
        rows.truncate(limit);
        let next_cursor = rows.last().filter(|_| has_more).map(|row| row.no);
        Ok(Json(AnnotationList { items: rows.into_iter().map(AnnotationBody::from_row).collect(), next_cursor }))
    })
    .await
}

/// A new annotation. It replaces the one with the same target, name and identifier.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AnnotationInput {
    /// `span:ID`, `trace:ID`, `trajectory:ID` or `trajectory:ID#STEP`.
    target: String,
    #[schema(min_length = 1)]
    name: String,
    /// Distinguishes several annotations of one name on one target. The default keeps labels of different people apart.
    identifier: Option<String>,
    /// `HUMAN` (the default), `LLM` or `CODE`.
    annotator: Option<String>,
    label: Option<String>,
    score: Option<f64>,
    explanation: Option<String>,
    #[schema(value_type = Option<Object>)]
    metadata: Option<serde_json::Map<String, serde_json::Value>>,
    /// Displayed author; by default the name of the API key.
    author: Option<String>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AnnotationsInput {
    /// Stored in one transaction: all of them or none.
    #[schema(max_items = 1000)]
    items: Vec<AnnotationInput>,
}

/// Ids of the stored annotations, in the order of the request.
#[derive(Serialize, ToSchema)]
pub(super) struct AnnotationIds {
    ids: Vec<i64>,
}

/// Adds annotations.
#[utoipa::path(post, path = "/api/v1/annotations", tag = "annotations", request_body = AnnotationsInput,
    responses((status = 200, body = AnnotationIds), (status = 400, body = crate::http_error::ErrorBody),
              (status = 404, body = crate::http_error::ErrorBody)))]
pub(super) async fn add_annotations(
    State(server): State<Arc<ServerState>>,
    Extension(caller): Extension<RequestCaller>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<AnnotationIds>, ApiError> {
    // The lease keeps the memory of the body reserved until the annotations are written.
    let (input, _lease) = read_json_body::<AnnotationsInput>(&server, &headers, body).await?;
    if input.items.len() > 1000 {
        return Err(ApiError::bad_request("at most 1000 annotations at once"));
    }
    let signed = run_outside_pool(&server, move |server| {
        let items = input.items.into_iter().map(|item| item.resolve(server, &caller));
        let items: Vec<NewAnnotation> = items.collect::<Result<_, _>>()?;
        // A caller must not overwrite labels of another person by using that person's name.
        if let Some(reason) = server.explain_borrowed_name(&caller, &items)? {
            return Err(ApiError::new(StatusCode::FORBIDDEN, reason));
        }
        Ok(server.redact_and_sign(items, &caller))
    })
    .await?;
    Ok(Json(AnnotationIds { ids: server.store_annotations_in_batches(signed).await? }))
}

impl AnnotationInput {
    /// Checks the input and finds the trace that the target belongs to. A target that is not stored is an error: the
    /// annotation would never be shown or deleted with its trace.
    fn resolve(self, server: &ServerState, caller: &RequestCaller) -> Result<NewAnnotation, ApiError> {
        let annotator = self.annotator.as_deref().unwrap_or("HUMAN");
        if !matches!(annotator, "HUMAN" | "LLM" | "CODE") {
            return Err(ApiError::bad_request(format!("annotator {annotator:?}: HUMAN, LLM or CODE")));
        }
        if self.name.trim().is_empty() {
            return Err(ApiError::bad_request("an annotation needs a name"));
        }
        let score = self.score;
        if self.label.is_none() && score.is_none() && self.explanation.is_none() {
            return Err(ApiError::bad_request("an annotation needs a label, a score or an explanation"));
        }
        let metadata = serde_json::Value::Object(self.metadata.unwrap_or_default()).to_string();
        let trace_id = resolve_target_trace(server, &self.target)?
            .ok_or_else(|| ApiError::not_found(format!("{:?} is not there", self.target)))?;
        let author = self.author.unwrap_or_else(|| caller.name.clone());
        // The default identifier. With keys it is the name of the key, which nobody else can use, so a person cannot
        // replace the label of another by giving that name. Programs share the empty identifier.
        let own = match (annotator, caller.name.is_empty()) {
            ("HUMAN", true) => author.clone(),
            ("HUMAN", false) => caller.name.clone(),
            _ => String::new(),
        };
        let annotation = NewAnnotation {
            target: self.target,
            trace_id: Some(trace_id.0),
            name: self.name,
            identifier: self.identifier.unwrap_or(own),
            annotator: annotator.to_owned(),
            label: self.label,
            score,
            explanation: self.explanation,
            metadata,
            author,
        };
        check_annotation_size(&annotation)
            .map_err(|error| ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, error.to_string()))?;
        Ok(annotation)
    }
}

/// Finds the trace of a target; none if it is not stored. The error is for targets of an unknown form.
fn resolve_target_trace(server: &ServerState, target: &str) -> Result<Option<TraceId>, ApiError> {
    let wrong =
        || ApiError::bad_request(format!("target {target:?}: span:ID, trace:ID, trajectory:ID or trajectory:ID#STEP"));
    let (kind, id) = target.split_once(':').ok_or_else(wrong)?;
    Ok(match kind {
        "span" => {
            let id = u64::from_str_radix(id, 16).ok().filter(|_| id.len() == 16).ok_or_else(wrong)?;
            server.store.trace_of_span(SpanId(id))?
        }
        "trace" => {
            let id = u128::from_str_radix(id, 16).ok().filter(|_| id.len() == 32).ok_or_else(wrong)?;
            server.store.trace(TraceId(id))?.map(|row| row.trace_id)
        }
        "trajectory" => {
            let whole = server.store.trace_of_trajectory(id)?;
            // A trajectory id may contain `#`, so the whole text is tried as an id before the part behind the last `#`
            // is read as a step.
            match (whole, id.rsplit_once('#')) {
                (None, Some((id, step))) => {
                    let step: u32 = step.parse().map_err(|_| wrong())?;
                    match server.store.trajectory_step_count(id)? {
                        Some(steps) if !(1..=steps).contains(&step) => {
                            return Err(ApiError::not_found(format!(
                                "{id:?} has no step {step}: it has {steps}, and the first is 1"
                            )));
                        }
                        _ => server.store.trace_of_trajectory(id)?,
                    }
                }
                (found, _) => found,
            }
        }
        _ => return Err(wrong()),
    })
}

/// Deletes an annotation.
#[utoipa::path(delete, path = "/api/v1/annotations/{id}", tag = "annotations", params(("id" = i64, Path)),
    responses((status = 204), (status = 404, body = crate::http_error::ErrorBody)))]
pub(super) async fn delete_annotation(
    State(server): State<Arc<ServerState>>,
    Path(id): Path<String>,
) -> Result<StatusCode, ApiError> {
    let missing = || ApiError::not_found("there is no annotation with this id");
    let id: i64 = id.parse().map_err(|_| missing())?;
    let was_there = server.store.remove_annotation(id)?.wait_async().await?;
    if was_there { Ok(StatusCode::NO_CONTENT) } else { Err(missing()) }
}
