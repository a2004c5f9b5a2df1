//! Undoing the label that a person has just given. An earlier label of the same person is restored, and the verdict
//! is shown again.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::header::LOCATION;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use gradus_store::{AnnotationFilter, AnnotationRecord, NewAnnotation};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::{Value, json};

use super::address::parse_own_path;
use super::blind_sample::UNDECIDED_LABEL;
use super::label_authors::LabelAuthor;
use super::render::{self, PageError};
use super::review_query::ReviewQuery;
use super::unsent_text::UnsentTextPage;
use super::{PageLayout, form, review};
use crate::caller::{RequestCaller, RequiredScope};
use crate::http_error::{ApiError, run_large_query, run_outside_pool};
use crate::signature;
use crate::state::ServerState;

/// Metadata key of the label that this one replaced.
pub(super) const REPLACED_KEY: &str = "replaced";
/// Maximum size of a note that is put back into the form by a redirect, which passes it in the URL. A longer one would
/// exceed what proxies accept there.
const MAX_NOTE_BYTES_IN_URL: usize = 1_000;

/// Describes the replaced label, which is restored if the new one is undone. Its own replaced label is left out.
pub(super) fn describe_replaced(earlier: &AnnotationRecord) -> Value {
    let (mut metadata, _) = signature::split_signed_metadata(&earlier.metadata);
    if let Some(metadata) = metadata.as_object_mut() {
        metadata.remove(REPLACED_KEY);
    }
    json!({
        "label": earlier.label,
        "score": earlier.score,
        "note": earlier.explanation,
        "metadata": metadata,
    })
}

/// Body of `POST /labels/undo`.
#[derive(Deserialize)]
struct LabelUndoForm {
    number: i64,
    /// When the label was given, so that an old page cannot undo a later label.
    updated: i64,
    back: Option<String>,
}

/// `POST /labels/undo`: undoes a label of this person and shows its verdict again.
pub(super) async fn undo_label(
    State(server): State<Arc<ServerState>>,
    Extension(caller): Extension<RequestCaller>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, PageError> {
    let undone: LabelUndoForm = form::read_form(&server, &headers, body).await?;
    let person = LabelAuthor::from_headers(&headers, &caller);
    let back = parse_own_path(undone.back.as_deref()).unwrap_or("/review").to_owned();
    let found = run_outside_pool(&server, move |server| find_own_label(server, &undone, &person)).await?;
    let note = found.explanation.clone().unwrap_or_default();
    match build_restored_label(&found) {
        Some(earlier) => drop(
            server
                .store_annotations_in_batches(server.redact_and_sign(vec![earlier], &caller))
                .await
                .map_err(ApiError::from)?,
        ),
        None => {
            let removed = server.store.remove_annotation(found.no).map_err(ApiError::from)?;
            removed.wait_async().await.map_err(ApiError::from)?;
        }
    }
    if note.len() > MAX_NOTE_BYTES_IN_URL {
        return Ok(render_review_with_note(&server, &caller, &headers, back, note).await);
    }
    let mark = if back.contains('?') { '&' } else { '?' };
    let to = match note.is_empty() {
        true => back,
        false => format!("{back}{mark}note={}", utf8_percent_encode(&note, NON_ALPHANUMERIC)),
    };
    let mut response = StatusCode::SEE_OTHER.into_response();
    if let Ok(to) = HeaderValue::from_str(&to) {
        response.headers_mut().insert(LOCATION, to);
    }
    Ok(response)
}

/// Responds with the page of the queue instead of a redirect to it, with the note in its form. If the page cannot be
/// built, the response has the note to copy.
async fn render_review_with_note(
    server: &Arc<ServerState>,
    caller: &RequestCaller,
    headers: &HeaderMap,
    back: String,
    note: String,
) -> Response {
    let query = back.split_once('?').map(|(_, query)| query.split('#').next().unwrap_or_default());
    let choice: Result<ReviewQuery, _> = serde_urlencoded::from_str(query.unwrap_or_default());
    let author = LabelAuthor::from_headers(headers, caller);
    let frame = |project: Option<&str>| PageLayout::new("/review", project, headers);
    let built = match choice {
        // A key that may label need not be one that may read.
        Ok(_) if !caller.has_scope(RequiredScope::Read) => {
            Err(ApiError::new(StatusCode::FORBIDDEN, "the key may not read"))
        }
        Ok(choice) => {
            let choice = ReviewQuery { note: Some(note.clone()), ..choice.without_blanks() };
            let (frame, address) = (frame(choice.project.as_deref()), back.clone());
            run_large_query(server, move |server| {
                let mut page = review::build_review_page(server, &choice, frame, author)?;
                page.address = Some(address);
                Ok(render::respond_with_page(&page))
            })
            .await
        }
        Err(_) => Err(ApiError::bad_request("back: not a page of the review queue")),
    };
    built.unwrap_or_else(|error| {
        let message = format!("The label was undone, but its verdict cannot be shown: {}", error.message());
        let page = UnsentTextPage::new(frame(None), "The label was undone", message, back, vec![("Your note", note)]);
        render::respond_with_status(error.status(), &page)
    })
}

/// Finds the label; 404 if this person has no such label, 409 if it was changed since.
fn find_own_label(
    server: &ServerState,
    undone: &LabelUndoForm,
    person: &LabelAuthor,
) -> Result<AnnotationRecord, ApiError> {
    let filter = AnnotationFilter { after: undone.number.saturating_sub(1), limit: 1, ..AnnotationFilter::default() };
    let found = server.store.annotations(&filter)?.into_iter().next();
    let is_own = |label: &AnnotationRecord| {
        label.no == undone.number && label.annotator == "HUMAN" && label.identifier == person.identifier
    };
    let found = found.filter(is_own).ok_or_else(|| ApiError::not_found("You have no such label any more."))?;
    if found.updated_ns != undone.updated {
        return Err(ApiError::new(StatusCode::CONFLICT, "The label was changed since, so it stays."));
    }
    Ok(found)
}

/// Builds the label that replaces an undone one; `None` if none does. A case of a blind sample becomes undecided: the
/// person has seen the verdict, and later labels must not count as blind.
fn build_restored_label(found: &AnnotationRecord) -> Option<NewAnnotation> {
    let (mut metadata, _) = signature::split_signed_metadata(&found.metadata);
    let replaced = metadata.as_object_mut().and_then(|kept| kept.remove(REPLACED_KEY));
    let restored =
        |label: Option<String>, score: Option<f64>, explanation: Option<String>, metadata: &Value| NewAnnotation {
            target: found.target.clone(),
            trace_id: None,
            name: found.name.clone(),
            identifier: found.identifier.clone(),
            annotator: found.annotator.clone(),
            label,
            score,
            explanation,
            metadata: metadata.to_string(),
            author: found.author.clone(),
        };
    if metadata.get("sample").is_some() {
        return Some(restored(Some(UNDECIDED_LABEL.to_owned()), None, None, &metadata));
    }
    let replaced = replaced?;
    let text = |name: &str| replaced[name].as_str().map(str::to_owned);
    Some(restored(text("label"), replaced["score"].as_f64(), text("note"), &replaced["metadata"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label(label: &str, metadata: &Value) -> AnnotationRecord {
        AnnotationRecord {
            no: 7,
            target: "trajectory:a#1".to_owned(),
            name: "fit".to_owned(),
            identifier: "ann".to_owned(),
            annotator: "HUMAN".to_owned(),
            label: Some(label.to_owned()),
            score: Some(0.0),
            explanation: Some("typed".to_owned()),
            metadata: metadata.to_string(),
            author: "Ann".to_owned(),
            created_ns: 1,
            updated_ns: 2,
        }
    }

    #[test]
    fn what_a_label_replaced_comes_back() {
        assert!(build_restored_label(&label("bad", &json!({"judge": "rules"}))).is_none());
        let first = label("good", &json!({"judge": "rules", "gradus_key": "ann", "replaced": {"label": "older"}}));
        let second = label("bad", &json!({"judge": "rules", "replaced": describe_replaced(&first)}));
        let back = build_restored_label(&second).unwrap();
        assert_eq!(
            (back.label.as_deref(), back.score, back.explanation.as_deref()),
            (Some("good"), Some(0.0), Some("typed"))
        );
        // Without the signature, which is added anew, and without what was before it.
        assert_eq!(back.metadata, r#"{"judge":"rules"}"#);
    }

    #[test]
    fn a_case_of_a_blind_sample_stays_seen() {
        let drawn = label("bad", &json!({"sample": {"draw": "uniform-0-5"}}));
        let back = build_restored_label(&drawn).unwrap();
        assert_eq!((back.label.as_deref(), back.score), (Some(UNDECIDED_LABEL), None));
        assert!(back.metadata.contains("uniform-0-5"));
    }
}
