//! Short access to fields of JSON objects, for formats whose records differ too much for typed structures.

use serde_json::Value as Json;

/// Returns the text of a field; `None` if it is missing, empty or not a text.
pub(crate) fn text_field<'a>(record: &'a Json, key: &str) -> Option<&'a str> {
    record.get(key)?.as_str().filter(|text| !text.is_empty())
}

/// Returns the count in a field; 0 if it is missing or not a count.
pub(crate) fn count_field(record: &Json, key: &str) -> u64 {
    record.get(key).and_then(Json::as_u64).unwrap_or_default()
}

/// Whether a field is `true`.
pub(crate) fn is_true_field(record: &Json, key: &str) -> bool {
    record.get(key).and_then(Json::as_bool).unwrap_or_default()
}

/// Returns the text of a result: a plain text, or the text parts of a list, joined by line feeds. Other values as
/// JSON.
pub(crate) fn content_text(content: Json) -> String {
    gradus_core::message::result_text(content)
}
