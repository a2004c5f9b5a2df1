//! A call that the model asked for.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value as Json;

use crate::message::RecordedArguments;
use crate::{bounded_json, literal};

/// A tool call that the model asked for.
#[derive(Debug, Default)]
pub(super) struct RequestedCall {
    pub thought: Option<String>,
    pub tool: String,
    pub id: Option<String>,
    pub arguments: Option<Json>,
    pub raw: Option<String>,
    pub parallel: bool,
    /// The number of the model call in its run; the one that repeats it, for calls out of the history.
    pub call: Option<usize>,
    /// Only the history of a later request shows it.
    pub from_history: bool,
    /// The reply's text, for requested calls written as text. All requested calls of one reply share it.
    pub reply: Option<Arc<str>>,
    /// What a later request shows as the result.
    pub seen: Option<String>,
    pub seen_is_error: bool,
    /// The result named the call it answers.
    pub seen_by_id: bool,
    /// Nodes of the tool's spans.
    pub runs: Vec<usize>,
}

/// More calls than this in one reply are not an agent at work; all of them would share its text.
pub(super) const MAX_CALLS: usize = 256;

/// Requested calls by the id of their call. Ids may come again.
#[derive(Debug, Default)]
pub(super) struct RequestedCallIds(HashMap<String, Vec<usize>>);

impl RequestedCallIds {
    pub(super) fn from_calls(requested_calls: &[RequestedCall]) -> RequestedCallIds {
        let mut ids = RequestedCallIds::default();
        for (index, requested_call) in requested_calls.iter().enumerate() {
            if let Some(id) = &requested_call.id {
                ids.add(id, index);
            }
        }
        ids
    }

    pub(super) fn add(&mut self, id: &str, requested_call: usize) {
        self.0.entry(id.to_owned()).or_default().push(requested_call);
    }

    pub(super) fn count(&self, id: &str) -> usize {
        self.0.get(id).map_or(0, Vec::len)
    }

    pub(super) fn last(&self, id: &str) -> Option<usize> {
        self.0.get(id)?.last().copied()
    }

    pub(super) fn nth(&self, id: &str, nth: usize) -> Option<usize> {
        self.0.get(id)?.get(nth).copied()
    }
}

/// Arguments as JSON, as text, and whether they are malformed.
pub(super) fn read_arguments(arguments: Option<&RecordedArguments<'_>>) -> (Option<Json>, Option<String>, bool) {
    match arguments {
        None => (None, None, false),
        Some(RecordedArguments::Json(text)) => match bounded_json::parse_bounded_json(text) {
            Some(Json::Null) => (None, None, false),
            Some(json) => {
                let written = json.to_string();
                (Some(json), Some(written), false)
            }
            None => (None, Some(text.to_string()), false),
        },
        Some(RecordedArguments::Text(text)) => {
            let raw = text.trim();
            let mut json = literal::parse_lenient_json(raw);
            // Some instrumentations encode the arguments twice.
            let mut written = raw.to_owned();
            if let Some(Json::String(inner)) = &json
                && inner.trim_start().starts_with('{')
            {
                written = inner.clone();
                json = literal::parse_lenient_json(inner).or(json.clone());
            }
            if json == Some(Json::Null) {
                return (None, None, false);
            }
            let malformed = json.is_none() && raw.starts_with(['{', '[']);
            if json.is_none() && !malformed && !raw.is_empty() {
                json = Some(Json::String(raw.to_owned()));
            }
            (json, Some(written).filter(|raw| !raw.is_empty()), malformed)
        }
    }
}
