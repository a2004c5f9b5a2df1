//! What people say of verdicts: right, or wrong and what it should have been. Kept as annotations: of the step or the
//! trajectory, under the evaluator's name, with the label that the person gives, who it is and when.

use std::collections::HashSet;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::header::{LOCATION, SET_COOKIE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use gradus_store::{NewAnnotation, Store, StoreError};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde::Deserialize;
use serde_json::json;

use super::address::own_path;
use super::answer::PageError;
use super::sign_in::cookie;
use super::verdict::target;
use super::{evaluators, form, verdict};
use crate::output::html::text;
use crate::serve::api::{ApiError, blocking_sender};
use crate::serve::auth::Caller;
use crate::serve::signature;
use crate::serve::state::Server;

const AUTHOR_COOKIE: &str = "gradus_author";
const MAX_NAME: usize = 100;

/// Who looks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Person {
    /// Whose labels are whose: the key's name, which nobody else can give himself; without keys, the name that was given.
    pub(super) identifier: String,
    /// As it is shown.
    pub(super) name: String,
    /// Whether labels are taken from this person.
    pub(super) may_label: bool,
}

/// The names of keys, for telling whose key somebody used under another name.
pub(super) struct Speakers(HashSet<String>);

impl Speakers {
    pub(super) fn of(store: &Store) -> Result<Speakers, StoreError> {
        Ok(Speakers(store.keys()?.into_iter().map(|key| key.name).collect()))
    }

    /// Who said something, as it is shown: the name that was given, which may be anybody's, what tells people apart where
    /// that is another, and whose key it was, where neither says so.
    pub(super) fn shown(&self, author: &str, identifier: &str, metadata: &str) -> String {
        let (_, key) = signature::signed(metadata);
        let mut more = Vec::new();
        if !identifier.is_empty() && identifier != author {
            let is_key = key.as_deref() == Some(identifier) || self.0.contains(identifier);
            more.push(if is_key { format!("key {identifier}") } else { identifier.to_owned() });
        }
        let hidden = key.filter(|key| key != identifier && key != author);
        more.extend(hidden.map(|key| format!("key {key}")));
        let name = if author.is_empty() { "someone" } else { author };
        text::line(&if more.is_empty() { name.to_owned() } else { format!("{name} ({})", more.join(", ")) })
    }
}

impl Person {
    /// Where nothing can be labelled.
    pub(super) fn nobody() -> Person {
        Person { identifier: String::new(), name: String::new(), may_label: false }
    }

    /// Who asks, by the name that was given last.
    pub(super) fn of(headers: &HeaderMap, caller: &Caller) -> Person {
        let given = cookie(headers, AUTHOR_COOKIE)
            .and_then(|name| percent_decode_str(name).decode_utf8().ok().map(std::borrow::Cow::into_owned));
        Person::named(given.as_deref().unwrap_or_default(), caller)
    }

    fn named(given: &str, caller: &Caller) -> Person {
        let given = given[..given.floor_char_boundary(MAX_NAME)].trim();
        let name = if given.is_empty() { &caller.name } else { given };
        let identifier = if caller.name.is_empty() { name } else { &caller.name };
        let may_label = caller.may_send("/labels");
        Person { identifier: identifier.to_owned(), name: name.to_owned(), may_label }
    }
}

#[derive(Deserialize)]
struct Label {
    trajectory: String,
    step: Option<String>,
    evaluator: String,
    /// The label that the person gives.
    #[serde(default)]
    label: String,
    /// The same in his own words, where nobody knows what labels there are.
    other: Option<String>,
    note: Option<String>,
    author: Option<String>,
    /// What the person saw of the verdict.
    seen: Option<String>,
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
    let person = given.map_or_else(|| Person::of(&headers, &caller), |name| Person::named(name, &caller));
    let wrong = |message: &str| Err(PageError::new(StatusCode::BAD_REQUEST, message));
    if person.name.is_empty() {
        return wrong("Say who you are: a label is kept with a name.");
    }
    if server.reloadable().redaction.apply(&person.name).is_some() {
        // It would be kept as another name, and as the same for everybody whose name is of this kind.
        return wrong(
            "This server does not keep names like this one (its redaction takes it out): give another.",
        );
    }
    let back = own_path(label.back.as_deref()).unwrap_or("/").to_owned();
    let name = person.name.clone();
    let signed = blocking_sender(&server, move |server| {
        let new = label.annotation(server, person)?;
        Ok(server.sign_annotations(vec![new], &caller))
    })
    .await?;
    server.annotate(signed).await.map_err(ApiError::from)?;
    let mut response = StatusCode::SEE_OTHER.into_response();
    let name = utf8_percent_encode(&name, NON_ALPHANUMERIC);
    let secure = if server.settings.public_url.starts_with("https://") { "; Secure" } else { "" };
    let cookie = format!("{AUTHOR_COOKIE}={name}; Path=/; HttpOnly; SameSite=Lax; Max-Age=31536000{secure}");
    for (name, value) in [(LOCATION, back), (SET_COOKIE, cookie)] {
        if let Ok(value) = HeaderValue::from_str(&value) {
            response.headers_mut().insert(name, value);
        }
    }
    Ok(response)
}

impl Label {
    fn annotation(self, server: &Server, person: Person) -> Result<NewAnnotation, ApiError> {
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
        if self.seen.as_ref().is_some_and(|seen| *seen != verdict::seen(&verdict)) {
            return Err(ApiError::new(
                StatusCode::CONFLICT,
                "The verdict is another one since you looked, so nothing was kept. Go back and look at it again.",
            ));
        }
        let known = evaluators::labels(&server.reloadable(), &self.evaluator);
        let label = match self.label.as_str() {
            // Of an evaluator that is in no rubric and no rule any more nobody knows the labels: people write what is right.
            "" if known.is_empty() => self.other.as_deref().unwrap_or_default().trim(),
            given => given,
        };
        let score = match known.iter().find(|(known, _)| known == label) {
            Some((_, score)) => Some(*score),
            None if verdict.label.as_deref() == Some(label) => verdict.score,
            None if known.is_empty() && (1..=MAX_NAME).contains(&label.len()) => None,
            None if label.is_empty() => return Err(ApiError::bad("Say what the label should be.")),
            None => return Err(ApiError::bad(format!("{label:?} is no label of {}", self.evaluator))),
        };
        let label = label.to_owned();
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
            identifier: person.identifier,
            annotator: "HUMAN".to_owned(),
            label: Some(label),
            score,
            explanation: self.note.map(|note| note.trim().to_owned()).filter(|note| !note.is_empty()),
            metadata: metadata.to_string(),
            author: person.name,
        })
    }
}

#[cfg(test)]
mod tests {
    use gradus_store::KeyScopes;

    use super::*;

    #[test]
    fn with_keys_nobody_speaks_in_the_name_of_another() {
        let key = |name: &str| Caller { name: name.to_owned(), ..Caller::default() };
        let of = |given: &str, caller: &Caller| {
            let Person { identifier, name, .. } = Person::named(given, caller);
            (identifier, name)
        };
        let own = |identifier: &str, name: &str| (identifier.to_owned(), name.to_owned());
        assert_eq!(of("ann", &key("")), own("ann", "ann"));
        assert_eq!(of("ann", &key("eve")), own("eve", "ann"));
        assert_eq!(of("  ", &key("eve")), own("eve", "eve"));
        assert_eq!(of("", &key("")), own("", ""));
        assert_eq!(of(&"é".repeat(200), &key("")).0.len(), MAX_NAME);
        // What is shown says whose key it was.
        let keys = Speakers(HashSet::from(["ann".to_owned(), "eve".to_owned()]));
        let (identifier, name) = of("ann", &key("eve"));
        assert_eq!(keys.shown(&name, &identifier, "{}"), "ann (key eve)");
        assert_eq!(keys.shown("", "eve", "{}"), "someone (key eve)");
        assert_eq!([keys.shown("ann", "ann", "{}"), keys.shown("ann", "", "")], ["ann", "ann"]);
        assert_eq!(keys.shown("ann", "second look", "{}"), "ann (second look)");
        let by_eve = signature::sign("{}", "eve").unwrap();
        assert_eq!(keys.shown("ann", "second look", &by_eve), "ann (second look, key eve)");
        assert_eq!(keys.shown("ann", "ann", &by_eve), "ann (key eve)");
        assert_eq!([keys.shown("eve", "eve", &by_eve), keys.shown("eve", "", &by_eve)], ["eve", "eve"]);
    }

    #[test]
    fn forms_are_shown_to_those_whose_labels_are_taken() {
        let of = |scopes: Option<&str>| {
            let scopes = scopes.map(|scopes| KeyScopes::parse(scopes).unwrap());
            Person::named("ann", &Caller { name: "ann".to_owned(), scopes }).may_label
        };
        assert_eq!(
            [None, Some("read"), Some("read,ingest"), Some("admin")].map(of),
            [true, false, true, true]
        );
    }
}
