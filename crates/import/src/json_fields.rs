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

/// Joins the texts of a list of parts, of one part, or of a plain text. The text of a part is the first of `keys` that it
/// has; a part without one is skipped.
pub(crate) fn join_part_texts(content: &Json, keys: &[&str], separator: &str) -> String {
    fn part_text<'p>(part: &'p Json, keys: &[&str]) -> Option<&'p str> {
        part.as_str().or_else(|| keys.iter().find_map(|key| text_field(part, key)))
    }
    match content {
        Json::Array(parts) => {
            let texts = parts.iter().filter_map(|part| part_text(part, keys));
            texts.collect::<Vec<_>>().join(separator)
        }
        part => part_text(part, keys).unwrap_or_default().to_owned(),
    }
}

/// Returns the text of a result: a plain text, or the text parts of a list, joined by line feeds. Other values as
/// JSON.
pub(crate) fn content_text(content: Json) -> String {
    gradus_core::message::result_text(content)
}
