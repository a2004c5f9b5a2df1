//! A tool call that the model asked for, before it is joined with its result.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value as Json;

use crate::message::ArgumentsText;
use crate::{bounded_json, literal};

/// A tool call that the model asked for.
#[derive(Debug, Default)]
pub(super) struct RequestedCall {
    pub thought: Option<String>,
    pub tool: String,
    pub id: Option<String>,
    /// The id by which the history of later requests names it, if that is another one.
    pub other_id: Option<String>,
    /// Parsed within the budget; `None` if they are missing, malformed or too large.
    pub arguments: Option<Json>,
    /// The arguments as text, also if they are malformed.
    pub raw: Option<String>,
    /// Asked for in the same reply as the call before.
    pub parallel: bool,
    /// Index of the model call in its run. For calls from the history: of the call whose request shows it.
    pub call: Option<usize>,
    /// Only the history of a later request shows it; its own reply was not recorded.
    pub from_history: bool,
    /// The text of the reply, for calls that are written as text. All calls of one reply share it.
    pub reply: Option<Arc<str>>,
    /// The result that a later request shows.
    pub seen: Option<String>,
    pub seen_is_error: bool,
    /// Whether that result named the call by its id.
    pub seen_by_id: bool,
    /// Nodes of the tool's spans. Several if the framework retried it.
    pub runs: Vec<usize>,
}

/// Maximum number of calls of one reply that are read. All of them share the text of the reply, and no agent makes
/// more.
pub(super) const MAX_CALLS_PER_REPLY: usize = 256;

/// Calls by their id. Ids may repeat, because some models number the calls of each reply anew.
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

    /// The latest call with this id.
    pub(super) fn last(&self, id: &str) -> Option<usize> {
        self.0.get(id)?.last().copied()
    }

    /// The nth call with this id, counted from 0: the nth result in a history belongs to it.
    pub(super) fn nth(&self, id: &str, nth: usize) -> Option<usize> {
        self.0.get(id)?.get(nth).copied()
    }
}

/// Arguments as JSON and as text, and whether they are malformed. Text that does not begin like JSON is a plain
/// argument, not a malformed one.
pub(super) fn read_arguments(arguments: Option<&ArgumentsText<'_>>) -> (Option<Json>, Option<String>, bool) {
    match arguments {
        None => (None, None, false),
        Some(ArgumentsText::Json(text)) => match bounded_json::parse_bounded_json(text) {
            Some(Json::Null) => (None, None, false),
            Some(json) => {
                let written = json.to_string();
                (Some(json), Some(written), false)
            }
            None => (None, Some(text.to_string()), false),
        },
        Some(ArgumentsText::Text(text)) => {
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
