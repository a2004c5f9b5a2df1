//! Writes annotations in synchronous batches, and finds out which rows of a refused batch Phoenix does not accept.
//! Phoenix rejects a batch as a whole, so that one bad row would lose the others.

use std::collections::HashSet;

use reqwest::StatusCode;
use serde_json::{Value as Json, json};

use super::error::PhoenixClientError;
use super::rest_client::PhoenixClient;
use gradus_eval::annotation::{OutcomeAnnotation, OutcomeTarget};
use gradus_http::HttpResponse;

/// The result of one [`AnnotationUploader::write`].
#[derive(Debug, Default)]
pub struct AnnotationUploadResult {
    /// Rows that Phoenix confirmed with an id.
    pub written: usize,
    /// Rows that Phoenix does not accept, each with the reason. They are reported and kept in the run folder.
    pub refused: Vec<(OutcomeAnnotation, String)>,
}

/// Maximum number of rows per request.
const ROWS_PER_REQUEST: usize = 100;
const WHAT: &str = "writing annotations";

/// Collects annotations and writes them in batches. Spans and traces have different routes and therefore different
/// batches.
#[derive(Debug)]
pub struct AnnotationUploader {
    client: PhoenixClient,
    spans: Vec<OutcomeAnnotation>,
    traces: Vec<OutcomeAnnotation>,
}

impl AnnotationUploader {
    pub fn new(client: PhoenixClient) -> AnnotationUploader {
        AnnotationUploader { client, spans: Vec::new(), traces: Vec::new() }
    }

    /// Whether Phoenix is reachable and accepts the key. Called before anything is spent on judging.
    pub async fn check_connection(client: &PhoenixClient) -> Result<(), PhoenixClientError> {
        client.with_short_retry().get::<Json>("/v1/projects?limit=1", WHAT).await.map(drop)
    }

    /// Adds an annotation. Returns true when a batch is full and should be written.
    pub fn add(&mut self, annotation: OutcomeAnnotation) -> bool {
        let list = match annotation.target {
            OutcomeTarget::Span { .. } => &mut self.spans,
            OutcomeTarget::Trace { .. } => &mut self.traces,
        };
        list.push(annotation);
        list.len() >= ROWS_PER_REQUEST
    }

    /// Annotations that were added and not written yet.
    pub fn pending(&self) -> Vec<OutcomeAnnotation> {
        [self.spans.as_slice(), &self.traces].concat()
    }

    /// Discards pending annotations, after they were recorded as unwritten elsewhere.
    pub fn clear(&mut self) {
        self.spans.clear();
        self.traces.clear();
    }

    /// Writes everything that was added. The error is one that concerns all rows, such as a lost connection; it comes
    /// with the annotations that were not written.
    pub async fn write(&mut self) -> (AnnotationUploadResult, Option<(PhoenixClientError, Vec<OutcomeAnnotation>)>) {
        let mut batch = AnnotationUploadResult::default();
        let mut left = Vec::new();
        for (path, list) in [
            ("/v1/span_annotations?sync=true", std::mem::take(&mut self.spans)),
            ("/v1/trace_annotations?sync=true", std::mem::take(&mut self.traces)),
        ] {
            left.extend((!list.is_empty()).then_some((path, list)));
        }
        while let Some((path, list)) = left.pop() {
            if let Err((error, unwritten)) = self.write_list(path, list, &mut batch).await {
                let rest = left.into_iter().flat_map(|(_, list)| list);
                return (batch, Some((error, unwritten.into_iter().chain(rest).collect())));
            }
        }
        (batch, None)
    }

    /// Writes one list. A refused part is split: rows that the response names are collected as refused, otherwise the
    /// part is halved until single rows are left.
    async fn write_list(
        &self,
        path: &str,
        list: Vec<OutcomeAnnotation>,
        batch: &mut AnnotationUploadResult,
    ) -> Result<(), (PhoenixClientError, Vec<OutcomeAnnotation>)> {
        let all = list.len();
        let mut refused = 0;
        let mut left = vec![list];
        while let Some(part) = left.pop() {
            let body = json!({"data": part.iter().map(to_annotation_row).collect::<Vec<Json>>()});
            let answer = match self.client.post(path, &body).await {
                Ok(answer) => answer,
                Err(error) => return Err((error, collect_unwritten(part, left))),
            };
            // A status of 200 proves nothing: any web server can send it. Phoenix returns an id for every stored row.
            let stored = count_stored_rows(&answer);
            if stored == Some(part.len()) {
                batch.written += part.len();
                continue;
            }
            let error = match stored {
                Some(_) => PhoenixClientError::from_refusal(self.client.base_url(), &answer),
                None => self.client.unexpected_response_error(&answer, path, WHAT),
            };
            let is_about_rows = matches!(error, PhoenixClientError::Refused { .. });
            if !is_about_rows {
                return Err((error, collect_unwritten(part, left)));
            }
            let text = String::from_utf8_lossy(&answer.body);
            let (missing, mut others) = partition_missing(part, answer.status, &text);
            let reason = describe_refusal(&answer, &text, &error);
            refused += missing.len();
            if missing.is_empty() && others.len() > 1 {
                // The response does not name the rows, so the part is halved.
                let half = others.split_off(others.len() / 2);
                left.extend([half, others]);
                continue;
            }
            if missing.is_empty() {
                refused += 1;
                batch.refused.extend(others.into_iter().map(|one| (one, reason.clone())));
                // If every row of a full batch is refused, the cause is not in the rows.
                if refused == ROWS_PER_REQUEST && all == ROWS_PER_REQUEST && answer.status != StatusCode::NOT_FOUND {
                    return Err((error, collect_unwritten(Vec::new(), left)));
                }
                continue;
            }
            batch.refused.extend(missing.into_iter().map(|one| (one, reason.clone())));
            left.extend((!others.is_empty()).then_some(others));
        }
        Ok(())
    }
}

/// Everything that was not written when an error ended the upload.
fn collect_unwritten(part: Vec<OutcomeAnnotation>, left: Vec<Vec<OutcomeAnnotation>>) -> Vec<OutcomeAnnotation> {
    part.into_iter().chain(left.into_iter().flatten()).collect()
}

/// Number of rows that the response confirms; none if it is not a response of a Phoenix.
fn count_stored_rows(answer: &HttpResponse) -> Option<usize> {
    #[derive(serde::Deserialize)]
    struct AnnotationInsertResponse {
        data: Vec<InsertedAnnotation>,
    }
    #[derive(serde::Deserialize)]
    struct InsertedAnnotation {
        #[serde(rename = "id")]
        _id: String,
    }
    let read = || serde_json::from_slice::<AnnotationInsertResponse>(&answer.body).ok();
    (answer.status == StatusCode::OK).then(read).flatten().map(|stored| stored.data.len())
}

/// The reason for one row, without the address that the full error repeats.
fn describe_refusal(answer: &HttpResponse, text: &str, error: &PhoenixClientError) -> String {
    match answer.status {
        StatusCode::OK => "Phoenix does not say that it has stored it".to_owned(),
        StatusCode::NOT_FOUND if text.contains("not exist") || text.contains("not found") => {
            "Phoenix does not have it".to_owned()
        }
        _ => error.to_string(),
    }
}

/// Splits a part into rows whose span or trace the 404 response names as missing, and the others.
fn partition_missing(
    part: Vec<OutcomeAnnotation>,
    status: StatusCode,
    text: &str,
) -> (Vec<OutcomeAnnotation>, Vec<OutcomeAnnotation>) {
    let named: HashSet<&str> = text.split(|c: char| !c.is_ascii_alphanumeric()).collect();
    let is_named = |one: &OutcomeAnnotation| {
        let (OutcomeTarget::Span { span_id: id, .. } | OutcomeTarget::Trace { trace_id: id }) = &one.target;
        status == StatusCode::NOT_FOUND && named.contains(id.as_str())
    };
    part.into_iter().partition(is_named)
}

/// The JSON of `POST /v1/span_annotations` and `/v1/trace_annotations`.
fn to_annotation_row(annotation: &OutcomeAnnotation) -> Json {
    let mut row = json!({
        "name": annotation.name,
        "annotator_kind": annotation.annotator.name(),
        "result": {
            "label": annotation.label,
            "score": annotation.score,
            "explanation": annotation.explanation,
        },
        "metadata": annotation.metadata,
        "identifier": annotation.identifier,
    });
    match &annotation.target {
        OutcomeTarget::Span { span_id, .. } => row["span_id"] = span_id.as_str().into(),
        OutcomeTarget::Trace { trace_id } => row["trace_id"] = trace_id.as_str().into(),
    }
    row
}
