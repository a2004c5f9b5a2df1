//! `POST /v1/evaluations`: how older Phoenix clients log evaluations, as a table in Arrow's stream format. Each row
//! becomes an annotation.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use gradus_store::NewAnnotation;
use serde::Deserialize;

use super::annotations::{MAX_ROWS, ROW_BYTES, ReceivedAnnotation, store_annotations};
use super::arrow::{self, ArrowColumnValues, ArrowTable};
use super::error::PhoenixApiError;
use crate::caller::RequestCaller;
use crate::phoenix::annotation_subject::PhoenixAnnotationTarget;
use crate::receive::{ReceiveRefusal, parse_body};
use crate::state::ServerState;

/// Maximum length of a name, which is copied into every annotation of the table.
const MAX_NAME_BYTES: usize = 1000;

/// The schema metadata `arize` of the table: the name of the evaluation and the kind of its targets.
#[derive(Deserialize)]
struct EvaluationTableMetadata {
    eval_name: String,
    eval_type: String,
}

/// Stores a table of evaluations. Rows of spans that have not arrived wait for them, as with other annotations.
pub(super) async fn log_evaluations(
    State(server): State<Arc<ServerState>>,
    Extension(caller): Extension<RequestCaller>,
    headers: HeaderMap,
    body: Body,
) -> Result<StatusCode, PhoenixApiError> {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if kind.split(';').next().unwrap_or_default().trim() != arrow::ARROW_CONTENT_TYPE {
        return Err(PhoenixApiError::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            format!("content type {kind:?} is not known here; send {}", arrow::ARROW_CONTENT_TYPE),
        ));
    }
    let by = caller.clone();
    let ((subject, said), _lease) = parse_body(&server, &headers, body, move |bytes, lease| {
        // The texts are copied out of the body.
        lease.grow(bytes.len()).map_err(ReceiveRefusal::from)?;
        let table = arrow::read_arrow_stream(&bytes, MAX_ROWS)
            .map_err(|error| PhoenixApiError::unprocessable(error.to_string()))?;
        drop(bytes);
        lease.grow(table.rows * ROW_BYTES).map_err(ReceiveRefusal::from)?;
        parse_evaluation_table(&table, &by).map_err(|error| PhoenixApiError::unprocessable(error.to_string()))
    })
    .await?;
    store_annotations(&server, subject, said, &caller, false).await?;
    Ok(StatusCode::OK)
}

/// Why a readable Arrow table is not a table of evaluations. Rows are counted from 1.
#[derive(Debug, thiserror::Error)]
enum EvaluationTableError {
    #[error("the table does not say what was evaluated: its schema has no metadata \"arize\"")]
    MissingMetadata,
    #[error("the metadata \"arize\" cannot be read: {0}")]
    InvalidMetadata(#[source] serde_json::Error),
    #[error("the name of an evaluation has at most {limit} bytes", limit = MAX_NAME_BYTES)]
    NameTooLong,
    #[error("{0:?} is not known here; there are SpanEvaluations and TraceEvaluations")]
    UnknownKind(String),
    #[error("the table has no column of ids {0:?}")]
    MissingIdColumn(&'static str),
    #[error("row {row} has no id")]
    MissingId { row: usize },
    #[error("row {row} has no document_position")]
    MissingDocumentPosition { row: usize },
}

/// Reads the kind of target, and one annotation for each row. All rows are read before anything is stored, so that a
/// table with one bad row leaves nothing behind.
fn parse_evaluation_table(
    table: &ArrowTable,
    caller: &RequestCaller,
) -> Result<(PhoenixAnnotationTarget, Vec<ReceivedAnnotation>), EvaluationTableError> {
    let about = table.metadata.iter().find(|(key, _)| key == "arize").map(|(_, about)| about);
    let about = about.ok_or(EvaluationTableError::MissingMetadata)?;
    let about: EvaluationTableMetadata = serde_json::from_str(about).map_err(EvaluationTableError::InvalidMetadata)?;
    // The name is copied into every row.
    if about.eval_name.len() > MAX_NAME_BYTES {
        return Err(EvaluationTableError::NameTooLong);
    }
    let (subject, ids) = match about.eval_type.as_str() {
        "SpanEvaluations" => (PhoenixAnnotationTarget::Span, ["context.span_id", "span_id"]),
        "TraceEvaluations" => (PhoenixAnnotationTarget::Trace, ["context.trace_id", "trace_id"]),
        "DocumentEvaluations" => (PhoenixAnnotationTarget::Document, ["context.span_id", "span_id"]),
        other => return Err(EvaluationTableError::UnknownKind(other.to_owned())),
    };
    // pandas names the index column with or without its prefix, depending on the client's version.
    let id = ids.into_iter().find(|name| matches!(table.column(name), Some(ArrowColumnValues::Texts(_))));
    let id = id.ok_or(EvaluationTableError::MissingIdColumn(ids[0]))?;
    let mut said = Vec::with_capacity(table.rows);
    for row in 0..table.rows {
        let id = table.text(id, row).ok_or(EvaluationTableError::MissingId { row: row + 1 })?;
        let mut target = subject.format_target(id);
        if subject == PhoenixAnnotationTarget::Document {
            let positions = ["document_position", "position"];
            let position = positions.into_iter().find_map(|name| table.number(name, row));
            let position = position.filter(|position| *position >= 0.0 && position.fract() == 0.0);
            let position = position.ok_or(EvaluationTableError::MissingDocumentPosition { row: row + 1 })?;
            target = format!("{target}#{position}");
        }
        let text = |name: &str| table.text(name, row).map(str::to_owned);
        // pandas turns a column of numeric labels into numbers.
        let label = text("label").or_else(|| table.number("label", row).map(|label| label.to_string()));
        said.push(ReceivedAnnotation {
            id: id.to_owned(),
            annotation: NewAnnotation {
                target,
                name: about.eval_name.clone(),
                annotator: "LLM".to_owned(),
                label,
                score: table.number("score", row),
                explanation: text("explanation"),
                metadata: "{}".to_owned(),
                author: caller.name.clone(),
                ..NewAnnotation::default()
            },
        });
    }
    Ok((subject, said))
}
