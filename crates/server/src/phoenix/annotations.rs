//! Annotations and notes as Phoenix clients log them. An annotation is identified by target, name and identifier: a
//! later one replaces the earlier one completely.
//!
//! A request is stored before it is answered, even with `sync=false`. An annotation of a span that has not arrived yet
//! waits in the store, because exporters often send spans some seconds after an application has annotated them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, StatusCode};
use gradus_core::span::{SpanId, TraceId};
use gradus_store::NewAnnotation;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::data_list::visit_data_list;
use super::error::{PhoenixApiError, run_outside_pool};
use super::ids;
use super::request::{self, PhoenixQueryParams};
use crate::annotation_limits::check_annotation_size;
use crate::caller::RequestCaller;
use crate::phoenix::annotation_subject::PhoenixAnnotationTarget;
use crate::receive::{ReceiveRefusal, parse_body};
use crate::state::ServerState;

/// Maximum number of annotations that wait for their targets. More are refused, so that annotations of spans that
/// never arrive cannot fill the disk.
const MAX_WAITING_ANNOTATIONS: u64 = 100_000;

/// Maximum number of annotations in one request.
pub(super) const MAX_ROWS: usize = 100_000;

/// Estimated memory of one annotation in addition to its texts.
pub(super) const ROW_BYTES: usize = 500;

/// The reserved name of notes, which have routes of their own.
pub(super) const NOTE: &str = "note";

/// Phoenix wraps single objects in `data`.
#[derive(Deserialize)]
struct PhoenixEnvelope<T> {
    data: T,
}

/// All fields are optional: Phoenix accepts an annotation without a result.
#[derive(Default, Deserialize)]
struct ResultData {
    label: Option<String>,
    score: Option<f64>,
    explanation: Option<String>,
}

/// Phoenix's enumeration. Another value is an error of the body.
#[derive(Clone, Copy, Deserialize)]
enum PhoenixAnnotatorKind {
    #[serde(rename = "LLM")]
    Llm,
    #[serde(rename = "CODE")]
    Code,
    #[serde(rename = "HUMAN")]
    Human,
}

/// One annotation of a request. Which of the ids is required depends on the route.
#[derive(Deserialize)]
struct AnnotationData<'a> {
    name: String,
    annotator_kind: PhoenixAnnotatorKind,
    result: Option<ResultData>,
    /// Stored as the client wrote it, without parsing.
    #[serde(borrow)]
    metadata: Option<&'a RawValue>,
    identifier: Option<String>,
    span_id: Option<String>,
    trace_id: Option<String>,
    session_id: Option<String>,
    document_position: Option<u32>,
}

/// An annotation and the target's id as the client wrote it, for error messages.
pub(super) struct ReceivedAnnotation {
    pub(super) id: String,
    pub(super) annotation: NewAnnotation,
}

/// `POST /v1/span_annotations`.
pub(super) async fn receive_span_annotations(
    server: State<Arc<ServerState>>,
    caller: Extension<RequestCaller>,
    params: PhoenixQueryParams,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Value>, PhoenixApiError> {
    receive_annotations(PhoenixAnnotationTarget::Span, &server, &caller, &params, &headers, body).await
}

/// `POST /v1/trace_annotations`.
pub(super) async fn receive_trace_annotations(
    server: State<Arc<ServerState>>,
    caller: Extension<RequestCaller>,
    params: PhoenixQueryParams,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Value>, PhoenixApiError> {
    receive_annotations(PhoenixAnnotationTarget::Trace, &server, &caller, &params, &headers, body).await
}

/// `POST /v1/session_annotations`.
pub(super) async fn receive_session_annotations(
    server: State<Arc<ServerState>>,
    caller: Extension<RequestCaller>,
    params: PhoenixQueryParams,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Value>, PhoenixApiError> {
    receive_annotations(PhoenixAnnotationTarget::Session, &server, &caller, &params, &headers, body).await
}

/// `POST /v1/document_annotations`.
pub(super) async fn receive_document_annotations(
    server: State<Arc<ServerState>>,
    caller: Extension<RequestCaller>,
    params: PhoenixQueryParams,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Value>, PhoenixApiError> {
    receive_annotations(PhoenixAnnotationTarget::Document, &server, &caller, &params, &headers, body).await
}

/// Receives annotations. With `sync=true` the targets must exist, and the response has the ids of the annotations.
/// Otherwise the list of ids is empty, as in Phoenix.
async fn receive_annotations(
    subject: PhoenixAnnotationTarget,
    server: &Arc<ServerState>,
    caller: &RequestCaller,
    params: &PhoenixQueryParams,
    headers: &HeaderMap,
    body: Body,
) -> Result<Json<Value>, PhoenixApiError> {
    let is_sync = params.parse_flag("sync")?.unwrap_or(false);
    let by = caller.clone();
    let (said, _lease) = parse_body(server, headers, body, move |text, lease| {
        let mut said = Vec::new();
        visit_data_list(&text, MAX_ROWS, &mut |index, item| {
            // The texts are copied out of the body.
            lease.grow(ROW_BYTES + item.get().len()).map_err(ReceiveRefusal::from)?;
            let one: AnnotationData<'_> = serde_json::from_str(item.get()).map_err(|error| {
                PhoenixApiError::invalid_body(&["data".into(), index.into()], &format!("it cannot be read: {error}"))
            })?;
            said.push(one.into_received(subject, index, &by)?);
            Ok(())
        })?;
        Ok::<_, PhoenixApiError>(said)
    })
    .await?;
    let numbers = store_annotations(server, subject, said, caller, is_sync).await?;
    let data: Vec<Value> = match is_sync {
        true => numbers.iter().map(|no| json!({"id": ids::encode_node_id(subject.node_type(), no)})).collect(),
        false => Vec::new(),
    };
    Ok(Json(json!({"data": data})))
}

impl AnnotationData<'_> {
    /// Checks one annotation. The error names its position in the request in FastAPI's form, which clients print.
    fn into_received(
        self,
        subject: PhoenixAnnotationTarget,
        index: usize,
        caller: &RequestCaller,
    ) -> Result<ReceivedAnnotation, PhoenixApiError> {
        let wrong = |field: &str, message: &str| {
            PhoenixApiError::invalid_body(&["data".into(), index.into(), field.into()], message)
        };
        if self.name == NOTE && subject != PhoenixAnnotationTarget::Document {
            let route = match subject {
                PhoenixAnnotationTarget::Trace => "/v1/trace_notes",
                PhoenixAnnotationTarget::Session => "/v1/session_notes",
                PhoenixAnnotationTarget::Span | PhoenixAnnotationTarget::Document => "/v1/span_notes",
            };
            return Err(PhoenixApiError::bad_request(format!(
                "The name 'note' is reserved for trace and span notes. Use POST {route} instead."
            )));
        }
        let (field, id) = match subject {
            PhoenixAnnotationTarget::Span | PhoenixAnnotationTarget::Document => ("span_id", self.span_id),
            PhoenixAnnotationTarget::Trace => ("trace_id", self.trace_id),
            PhoenixAnnotationTarget::Session => ("session_id", self.session_id),
        };
        let id = id.filter(|id| !id.trim().is_empty()).ok_or_else(|| wrong(field, "Field required"))?;
        let mut target = subject.format_target(&id);
        let identifier = self.identifier.unwrap_or_default();
        if subject == PhoenixAnnotationTarget::Document {
            if !identifier.trim().is_empty() {
                return Err(PhoenixApiError::unprocessable(format!(
                    "Non-empty identifier '{identifier}' is not supported"
                )));
            }
            let position = self.document_position.ok_or_else(|| wrong("document_position", "Field required"))?;
            target = format!("{target}#{position}");
        }
        let metadata = self.metadata.map_or("{}", RawValue::get);
        // `RawValue` has no leading whitespace, and serde has checked that it is JSON.
        if !metadata.starts_with('{') {
            return Err(wrong("metadata", "Input should be a valid dictionary"));
        }
        let result = self.result.unwrap_or_default();
        Ok(ReceivedAnnotation {
            id,
            annotation: NewAnnotation {
                target,
                trace_id: None,
                name: self.name,
                identifier,
                annotator: match self.annotator_kind {
                    PhoenixAnnotatorKind::Llm => "LLM",
                    PhoenixAnnotatorKind::Code => "CODE",
                    PhoenixAnnotatorKind::Human => "HUMAN",
                }
                .to_owned(),
                label: result.label,
                score: result.score,
                explanation: result.explanation,
                metadata: metadata.to_owned(),
                author: caller.name.clone(),
            },
        })
    }
}

/// Stores annotations, all or none, and returns their row numbers. With `must_be_known` a missing target is an error;
/// otherwise the annotation waits for it.
pub(super) async fn store_annotations(
    server: &Arc<ServerState>,
    subject: PhoenixAnnotationTarget,
    said: Vec<ReceivedAnnotation>,
    caller: &RequestCaller,
    must_be_known: bool,
) -> Result<Vec<i64>, PhoenixApiError> {
    if said.is_empty() {
        return Ok(Vec::new());
    }
    let caller = caller.clone();
    let signed = run_outside_pool(server, move |server| {
        said.iter()
            .try_for_each(|one| check_annotation_size(&one.annotation))
            .map_err(|error| PhoenixApiError::new(StatusCode::PAYLOAD_TOO_LARGE, error.to_string()))?;
        if let Some(reason) = server.explain_borrowed_name(&caller, said.iter().map(|one| &one.annotation))? {
            return Err(PhoenixApiError::new(StatusCode::FORBIDDEN, reason));
        }
        // The trace of each target, looked up only once for each id.
        let mut homes: HashMap<String, Option<TraceId>> = HashMap::new();
        for one in &said {
            if !homes.contains_key(&one.id) {
                homes.insert(one.id.clone(), find_target_trace(server, subject, &one.id)?);
            }
        }
        let missing = list_missing_ids(&said, &homes);
        if must_be_known && !missing.is_empty() {
            return Err(PhoenixApiError::not_found(format!(
                "{} with IDs {} do not exist.",
                subject.plural_name(),
                missing.join(", ")
            )));
        }
        let is_missing = |one: &&ReceivedAnnotation| homes.get(&one.id).is_some_and(Option::is_none);
        let more = said.iter().filter(is_missing).count() as u64;
        if more > 0 && server.store.count_waiting_annotations()? + more > MAX_WAITING_ANNOTATIONS {
            return Err(PhoenixApiError::new(
                StatusCode::INSUFFICIENT_STORAGE,
                format!("at most {MAX_WAITING_ANNOTATIONS} annotations wait for spans that have not come; send the spans first"),
            ));
        }
        let annotations = said.into_iter().map(|one| {
            let trace_id = homes.get(&one.id).copied().flatten().map(|id| id.0);
            NewAnnotation { trace_id, ..one.annotation }
        });
        let annotations: Vec<NewAnnotation> = annotations.collect();
        Ok(server.redact_and_sign(annotations, &caller))
    })
    .await?;
    Ok(server.store_annotations_in_batches(signed).await?)
}

/// Lists the ids without a target, each once, in the order of the request.
fn list_missing_ids<'s>(said: &'s [ReceivedAnnotation], homes: &HashMap<String, Option<TraceId>>) -> Vec<&'s str> {
    let mut seen = HashSet::new();
    let ids = said.iter().map(|one| one.id.as_str());
    ids.filter(|id| homes.get(*id).is_some_and(Option::is_none) && seen.insert(*id)).collect()
}

/// Finds the trace that contains the target; `None` if it has not arrived.
fn find_target_trace(
    server: &ServerState,
    subject: PhoenixAnnotationTarget,
    id: &str,
) -> Result<Option<TraceId>, PhoenixApiError> {
    Ok(match subject {
        PhoenixAnnotationTarget::Span | PhoenixAnnotationTarget::Document => {
            server.store.trace_of_span(SpanId::parse(id.trim()))?
        }
        PhoenixAnnotationTarget::Trace => server.store.trace(TraceId::parse(id.trim()))?.map(|row| row.trace_id),
        // Sessions are stored under their redacted names.
        PhoenixAnnotationTarget::Session => {
            let name = crate::phoenix::session_lookup::resolve_session_name(id);
            let kept = server.reloadable().redaction.apply(&name);
            crate::phoenix::session_lookup::find_first_trace(server, kept.as_deref().unwrap_or(id))?
        }
    })
}

/// A note of a person: an annotation with a text only.
#[derive(Deserialize)]
struct NoteData {
    span_id: Option<String>,
    trace_id: Option<String>,
    session_id: Option<String>,
    note: String,
    identifier: Option<String>,
}

/// `POST /v1/span_notes`.
pub(super) async fn receive_span_note(
    server: State<Arc<ServerState>>,
    caller: Extension<RequestCaller>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Value>, PhoenixApiError> {
    receive_note(PhoenixAnnotationTarget::Span, &server, &caller, &headers, body).await
}

/// `POST /v1/trace_notes`.
pub(super) async fn receive_trace_note(
    server: State<Arc<ServerState>>,
    caller: Extension<RequestCaller>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Value>, PhoenixApiError> {
    receive_note(PhoenixAnnotationTarget::Trace, &server, &caller, &headers, body).await
}

/// `POST /v1/session_notes`.
pub(super) async fn receive_session_note(
    server: State<Arc<ServerState>>,
    caller: Extension<RequestCaller>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Value>, PhoenixApiError> {
    receive_note(PhoenixAnnotationTarget::Session, &server, &caller, &headers, body).await
}

/// Receives a note. Unless the client names one, it gets a random identifier, so that notes do not replace each
/// other.
async fn receive_note(
    subject: PhoenixAnnotationTarget,
    server: &Arc<ServerState>,
    caller: &RequestCaller,
    headers: &HeaderMap,
    body: Body,
) -> Result<Json<Value>, PhoenixApiError> {
    let (PhoenixEnvelope { data }, _lease): (PhoenixEnvelope<NoteData>, _) =
        request::parse_json_body(server, headers, body).await?;
    let (field, kind, id) = match subject {
        PhoenixAnnotationTarget::Trace => ("trace_id", "trace", data.trace_id),
        PhoenixAnnotationTarget::Session => ("session_id", "session", data.session_id),
        PhoenixAnnotationTarget::Span | PhoenixAnnotationTarget::Document => ("span_id", "span", data.span_id),
    };
    let wrong = |field: &str| PhoenixApiError::invalid_body(&["data".into(), field.into()], "it is missing, or empty");
    let id = id.map(|id| id.trim().to_owned()).filter(|id| !id.is_empty()).ok_or_else(|| wrong(field))?;
    let text = data.note.trim().to_owned();
    if text.is_empty() {
        return Err(wrong("note"));
    }
    let identifier = data.identifier.filter(|identifier| !identifier.is_empty());
    let annotation = NewAnnotation {
        target: subject.format_target(&id),
        name: NOTE.to_owned(),
        identifier: identifier.unwrap_or_else(|| format!("px-{kind}-note:{}", ids::generate_random_id())),
        annotator: "HUMAN".to_owned(),
        explanation: Some(text),
        metadata: "{}".to_owned(),
        author: caller.name.clone(),
        ..NewAnnotation::default()
    };
    let numbers = store_annotations(server, subject, vec![ReceivedAnnotation { id, annotation }], caller, true).await?;
    let id = numbers.first().map(|no| ids::encode_node_id(subject.node_type(), no));
    Ok(Json(json!({"data": {"id": id}})))
}
