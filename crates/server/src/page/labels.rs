//! Labels of people on verdicts: whether a verdict is right, and otherwise what it should have been. A label is stored
//! as an annotation of the step or the trajectory, with the evaluator's name, the label, the person and the time.

use super::label_authors::AUTHOR_COOKIE;
use axum::response::IntoResponse;
use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::header::{ACCEPT, LOCATION, SET_COOKIE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::Response;
use gradus_store::{AnnotationFilter, AnnotationRecord, NewAnnotation};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::json;

use super::address::parse_own_path;
use super::blind_sample::{BlindSample, UNDECIDED_LABEL};
use super::label_form::LabelForm;
use super::render::PageError;
use super::verdict::format_label_target;
use super::{form, label_retry, label_undo, verdict};
use crate::caller::{RequestCaller, RequiredScope};
use crate::evaluators;
use crate::http_error::{ApiError, run_outside_pool};
use crate::page::label_authors::{LabelAuthor, MAX_WRITTEN_NAME_BYTES};
use crate::state::ServerState;

/// `POST /labels`: stores a label and redirects back. The name of the person is kept in a cookie for a year. If the
/// label cannot be stored, the response is the form again with the submitted input.
pub(super) async fn submit_label(
    State(server): State<Arc<ServerState>>,
    Extension(caller): Extension<RequestCaller>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, PageError> {
    let label: LabelForm = form::read_form(&server, &headers, body).await?;
    let given = label.author.as_deref().map(str::trim).filter(|name| !name.is_empty());
    let person = given
        .map_or_else(|| LabelAuthor::from_headers(&headers, &caller), |name| LabelAuthor::from_name(name, &caller));
    let may_read = caller.has_scope(RequiredScope::Read);
    match store_label(&server, label.clone(), person.clone(), caller).await {
        Ok(to) => Ok(respond_stored(&server, &to, &person, wants_json(&headers))),
        // The script shows the message beside the form, which is still on the page.
        Err(error) if wants_json(&headers) => Ok(error.into_response()),
        Err(error) => Ok(label_retry::render_label_retry(&server, label, person, &headers, error, may_read).await),
    }
}

/// Whether the script sent the request. It asks for JSON and stays on the page if the label could not be stored.
pub(super) fn wants_json(headers: &HeaderMap) -> bool {
    headers.get(ACCEPT).is_some_and(|accept| accept.as_bytes().starts_with(b"application/json"))
}

/// Stores the label. Returns where to continue.
async fn store_label(
    server: &Arc<ServerState>,
    label: LabelForm,
    person: LabelAuthor,
    caller: RequestCaller,
) -> Result<String, ApiError> {
    // Without names, people could not be distinguished, and their agreement could not be computed.
    if person.name.is_empty() {
        return Err(ApiError::bad_request("Enter your name: a label is stored with the name of its author."));
    }
    if server.reloadable().redaction.apply(&person.name).is_some() {
        // The redacted form would be the same for everybody whose name is redacted, so their labels would replace each
        // other.
        return Err(ApiError::bad_request("The redaction of this server removes this name. Enter another name."));
    }
    let back = parse_own_path(label.back.as_deref()).unwrap_or("/").to_owned();
    let signed = run_outside_pool(server, move |server| {
        let new = label.into_annotation(server, person)?;
        Ok(server.redact_and_sign(vec![new], &caller))
    })
    .await?;
    let numbers = server.store_annotations_in_batches(signed).await?;
    Ok(match numbers.first() {
        // The review queue offers to undo the label. Elsewhere it is shown beside the verdict.
        Some(number) if back.starts_with("/review?") => format!("{back}&labelled={number}"),
        Some(number) if back == "/review" => format!("{back}?labelled={number}"),
        _ => back,
    })
}

fn respond_stored(server: &ServerState, to: &str, person: &LabelAuthor, is_json: bool) -> Response {
    let mut response = match is_json {
        true => Json(json!({ "next": to })).into_response(),
        false => StatusCode::SEE_OTHER.into_response(),
    };
    let name = utf8_percent_encode(&person.name, NON_ALPHANUMERIC);
    // Behind a TLS proxy the cookie must not travel over plain HTTP.
    let secure = if server.settings.public_url.starts_with("https://") { "; Secure" } else { "" };
    let cookie = format!("{AUTHOR_COOKIE}={name}; Path=/; HttpOnly; SameSite=Lax; Max-Age=31536000{secure}");
    let location = (!is_json).then(|| (LOCATION, to.to_owned()));
    for (name, value) in location.into_iter().chain([(SET_COOKIE, cookie)]) {
        if let Ok(value) = HeaderValue::from_str(&value) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

impl LabelForm {
    /// Checks the label against the verdict and the labels of the rubric. Answers 404 if the verdict is gone and 409 if
    /// it changed since the page was loaded: the person judged something else.
    fn into_annotation(self, server: &ServerState, person: LabelAuthor) -> Result<NewAnnotation, ApiError> {
        let step: Option<u32> = match self.step.as_deref().filter(|step| !step.is_empty()) {
            Some(step) => Some(step.parse().map_err(|_| ApiError::bad_request("step: not a number"))?),
            None => None,
        };
        let missing = || ApiError::not_found("This verdict no longer exists. Retention may have deleted its trace.");
        let trace_id = server.store.trace_of_trajectory(&self.trajectory)?.ok_or_else(missing)?;
        let verdict = server
            .store
            .find_verdict_line(&self.trajectory, &self.evaluator, step)?
            .and_then(|line| serde_json::from_str::<gradus_eval::outcome::OutcomeLine>(&line).ok())
            .ok_or_else(missing)?;
        let seen = self.seen.as_ref().filter(|seen| !seen.is_empty());
        if seen.is_some_and(|seen| *seen != verdict::fingerprint_verdict(&verdict)) {
            return Err(ApiError::new(
                StatusCode::CONFLICT,
                "The verdict changed after you opened the page, so the label was not stored. Look at it again.",
            ));
        }
        let known = evaluators::find_answer_labels(&server.reloadable(), &self.evaluator);
        let label = match self.label.as_str() {
            // An evaluator without a rubric and a rule has no known labels, so the person writes one.
            "" if known.is_empty() => self.other.as_deref().unwrap_or_default().trim(),
            given => given,
        };
        // The score of the label on the scale of the rubric. The label of the verdict is accepted even if the rubric
        // does not have it any more: agreeing must always be possible.
        let score = match known.iter().find(|(known, _)| known == label) {
            Some((_, score)) => *score,
            None if verdict.label.as_deref() == Some(label) => verdict.score,
            None if self.draw.as_deref().is_some_and(|draw| !draw.is_empty()) && label == UNDECIDED_LABEL => None,
            None if known.is_empty() && (1..=MAX_WRITTEN_NAME_BYTES).contains(&label.len()) => None,
            None if label.is_empty() => return Err(ApiError::bad_request("Enter the correct label.")),
            None => {
                return Err(ApiError::bad_request(format!("{label:?} is not a label of {}", self.evaluator)));
            }
        };
        let label = label.to_owned();
        // Records what the person saw, in case the verdict changes later.
        let mut metadata = json!({
            "judge": verdict.judge,
            "judge_label": verdict.label,
            "rubric_hash": verdict.rubric_hash,
        });
        let earlier = self.find_earlier_label(server, step, &person)?;
        if let Some(draw) = self.draw.as_deref().filter(|draw| !draw.is_empty()) {
            // A person who has labelled the case before has seen the verdict.
            metadata["sample"] = self.describe_draw(server, draw, step, earlier.is_none())?;
        }
        if let Some(earlier) = &earlier {
            metadata[label_undo::REPLACED_KEY] = label_undo::describe_replaced(earlier);
        }
        Ok(NewAnnotation {
            target: format_label_target(&self.trajectory, step),
            trace_id: Some(trace_id.0),
            name: self.evaluator,
            identifier: person.identifier,
            annotator: "HUMAN".to_owned(),
            label: Some(label),
            score,
            explanation: self.note.map(|note| note.trim().to_owned()).filter(|note| !note.is_empty()),
            metadata: metadata.to_string(),
            author: person.name,
        })
    }

    /// Finds the earlier label of this person on the verdict.
    fn find_earlier_label(
        &self,
        server: &ServerState,
        step: Option<u32>,
        person: &LabelAuthor,
    ) -> Result<Option<AnnotationRecord>, ApiError> {
        let filter = AnnotationFilter {
            target: Some(format_label_target(&self.trajectory, step)),
            name: Some(self.evaluator.clone()),
            limit: MAX_EARLIER_LABELS,
            ..AnnotationFilter::default()
        };
        let earlier = server.store.annotations(&filter)?;
        Ok(earlier.into_iter().find(|label| label.identifier == person.identifier))
    }

    /// Describes how the case was drawn. The form only names the draw; the probability is computed here.
    fn describe_draw(
        &self,
        server: &ServerState,
        draw: &str,
        step: Option<u32>,
        is_blind: bool,
    ) -> Result<serde_json::Value, ApiError> {
        let (draw, project) = draw.split_once(' ').unwrap_or((draw, ""));
        let draw = draw.parse().map_err(|()| ApiError::bad_request("draw: not a random sample"))?;
        let sample = BlindSample::load(server, &self.evaluator, Some(project).filter(|name| !name.is_empty()), draw)?;
        let position = sample.find_position(&self.trajectory, step).ok_or_else(|| {
            ApiError::new(
                StatusCode::CONFLICT,
                "The verdict is not part of this sample any more, so the label was not stored.",
            )
        })?;
        Ok(sample.describe_case(position, is_blind))
    }
}

/// Maximum number of labels on the same case that are searched.
const MAX_EARLIER_LABELS: usize = 1_000;

#[cfg(test)]
mod tests {
    use gradus_store::KeyScopes;

    use std::collections::HashSet;

    use super::*;
    use crate::page::label_authors::KeyNameSet;
    use crate::signature;

    #[test]
    fn with_keys_nobody_speaks_in_the_name_of_another() {
        let key = |name: &str| RequestCaller { name: name.to_owned(), ..RequestCaller::default() };
        let of = |given: &str, caller: &RequestCaller| {
            let LabelAuthor { identifier, name, .. } = LabelAuthor::from_name(given, caller);
            (identifier, name)
        };
        let own = |identifier: &str, name: &str| (identifier.to_owned(), name.to_owned());
        assert_eq!(of("ann", &key("")), own("ann", "ann"));
        assert_eq!(of("ann", &key("eve")), own("eve", "ann"));
        assert_eq!(of("  ", &key("eve")), own("eve", "eve"));
        assert_eq!(of("", &key("")), own("", ""));
        assert_eq!(of(&"é".repeat(200), &key("")).0.len(), MAX_WRITTEN_NAME_BYTES);
        // What is shown says whose key it was.
        let keys = KeyNameSet(HashSet::from(["ann".to_owned(), "eve".to_owned()]));
        let (identifier, name) = of("ann", &key("eve"));
        assert_eq!(keys.format_author(&name, &identifier, "{}"), "ann (key eve)");
        assert_eq!(keys.format_author("", "eve", "{}"), "someone (key eve)");
        assert_eq!([keys.format_author("ann", "ann", "{}"), keys.format_author("ann", "", "")], ["ann", "ann"]);
        assert_eq!(keys.format_author("ann", "second look", "{}"), "ann (second look)");
        let by_eve = signature::sign_metadata("{}", "eve").unwrap();
        assert_eq!(keys.format_author("ann", "second look", &by_eve), "ann (second look, key eve)");
        assert_eq!(keys.format_author("ann", "ann", &by_eve), "ann (key eve)");
        assert_eq!([keys.format_author("eve", "eve", &by_eve), keys.format_author("eve", "", &by_eve)], ["eve", "eve"]);
    }

    #[test]
    fn forms_are_shown_to_those_whose_labels_are_taken() {
        let of = |scopes: Option<&str>| {
            let scopes = scopes.map(|scopes| KeyScopes::parse(scopes).unwrap());
            LabelAuthor::from_name("ann", &RequestCaller { name: "ann".to_owned(), scopes }).may_label
        };
        assert_eq!([None, Some("read"), Some("read,ingest"), Some("admin")].map(of), [true, false, true, true]);
    }
}
