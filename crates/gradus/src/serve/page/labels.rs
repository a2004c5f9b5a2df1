//! What people say of verdicts: right, or wrong and what it should have been. Kept as annotations: of the step or the
//! trajectory, under the evaluator's name, with the label that the person gives, who it is and when.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::header::{LOCATION, SET_COOKIE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use gradus_store::NewAnnotation;
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde::Deserialize;
use serde_json::json;

use super::address::own_path;
use super::answer::PageError;
use super::sign_in::cookie;
use super::verdict::target;
use super::{form, words};
use crate::serve::api::{ApiError, blocking};
use crate::serve::auth::Caller;
use crate::serve::state::Server;

const AUTHOR_COOKIE: &str = "gradus_author";
const MOST_NAME: usize = 100;

/// Who looks: the name that was given last, else the key's.
pub(super) fn author(headers: &HeaderMap, caller: &Caller) -> String {
    let given = cookie(headers, AUTHOR_COOKIE)
        .and_then(|name| percent_decode_str(name).decode_utf8().ok().map(std::borrow::Cow::into_owned));
    given.filter(|name| !name.is_empty()).unwrap_or_else(|| caller.name.clone())
}

#[derive(Deserialize)]
struct Label {
    trajectory: String,
    step: Option<String>,
    evaluator: String,
    /// The label that the person gives.
    label: String,
    note: Option<String>,
    author: Option<String>,
    /// Where to go from here.
    back: Option<String>,
}

/// Stores a label, and goes on.
pub(super) async fn put(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, PageError> {
    let label: Label = form::read(&server, &headers, body).await?;
    let given = label.author.as_deref().map(str::trim).filter(|name| !name.is_empty());
    let author = given.map_or_else(|| author(&headers, &caller), str::to_owned);
    let author = author[..author.floor_char_boundary(MOST_NAME)].to_owned();
    if author.is_empty() {
        return Err(PageError::new(StatusCode::BAD_REQUEST, "Say who you are: a label is kept with a name."));
    }
    let back = own_path(label.back.as_deref()).unwrap_or("/").to_owned();
    let name = author.clone();
    let written = blocking(&server, move |server| {
        let new = label.annotation(server, author)?;
        Ok(server.annotate(vec![new])?)
    })
    .await?;
    written.done().await.map_err(ApiError::from)?;
    let mut response = StatusCode::SEE_OTHER.into_response();
    let name = utf8_percent_encode(&name, NON_ALPHANUMERIC);
    let cookie = format!("{AUTHOR_COOKIE}={name}; Path=/; HttpOnly; SameSite=Strict; Max-Age=31536000");
    for (name, value) in [(LOCATION, back), (SET_COOKIE, cookie)] {
        if let Ok(value) = HeaderValue::from_str(&value) {
            response.headers_mut().insert(name, value);
        }
    }
    Ok(response)
}

impl Label {
    fn annotation(self, server: &Server, author: String) -> Result<NewAnnotation, ApiError> {
        let step: Option<u32> = match self.step.as_deref().filter(|step| !step.is_empty()) {
            Some(step) => Some(step.parse().map_err(|_| ApiError::bad("step: this is no number"))?),
            None => None,
        };
        let missing = || ApiError::missing("There is no such verdict any more; the trace may be too old.");
        let trace_id = server.store.trace_of_trajectory(&self.trajectory)?.ok_or_else(missing)?;
        let verdict = server
            .store
            .verdict_on(&self.trajectory, &self.evaluator, step)?
            .and_then(|line| serde_json::from_str::<gradus_eval::outcome::OutcomeLine>(&line).ok())
            .ok_or_else(missing)?;
        let known = words::labels(&server.reloadable(), &self.evaluator);
        let given = known.iter().find(|(label, _)| *label == self.label);
        // A rubric that is not in the settings any more still has the label that was given.
        let score = match given {
            Some((_, score)) => Some(*score),
            None if verdict.label.as_ref() == Some(&self.label) => verdict.score,
            None => {
                return Err(ApiError::bad(format!("{:?} is no label of {}", self.label, self.evaluator)));
            }
        };
        // What the person saw, should the verdict change.
        let metadata = json!({
            "judge": verdict.judge,
            "judge_label": verdict.label,
            "rubric_hash": verdict.rubric_hash,
        });
        Ok(NewAnnotation {
            target: target(&self.trajectory, step),
            trace_id: Some(trace_id.0),
            name: self.evaluator,
            identifier: author.clone(),
            annotator: "HUMAN".to_owned(),
            label: Some(self.label),
            score,
            explanation: self.note.map(|note| note.trim().to_owned()).filter(|note| !note.is_empty()),
            metadata: metadata.to_string(),
            author,
        })
    }
}
