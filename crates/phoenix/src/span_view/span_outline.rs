//! Attribute lookup without the tree. A filter over a project reads one or two attributes of each span. Building the
//! tree of all messages for that, with their texts, would be most of the work.
//!
//! It answers only where the tree could not give another result: one plain key, no keys above or below it, and no
//! `gen_ai.*` that could add to it.

use serde_json::Number;

use super::{JSON_TEXTS, TOKEN_COUNTS};
use gradus_core::span::{AttributeValue, Span};

/// The value of a path as far as the recorded keys determine it.
#[derive(Clone, Debug, PartialEq)]
pub enum AttributeLookup<'a> {
    /// The attribute does not exist.
    Missing,
    /// Borrowed from the span, not copied.
    Text(&'a str),
    Number(Number),
    /// Only the tree can decide.
    Unknown,
}

/// One pass over the keys of the span, without allocation.
pub(super) fn peek_span_attribute<'a>(span: &'a Span<'_>, path: &str) -> AttributeLookup<'a> {
    let is_plain = |key: &str| {
        key.split('.').all(|name| {
            !name.is_empty()
                && !name.starts_with(|c: char| c.is_ascii_digit() || c.is_whitespace())
                && !name.ends_with(char::is_whitespace)
        })
    };
    // Phoenix rewrites an input that is not a text, and with it the MIME type.
    if !is_plain(path) || path == "input" || path == "input.mime_type" {
        return AttributeLookup::Unknown;
    }
    let first = path.split('.').next().unwrap_or_default();
    let mut found = AttributeLookup::Missing;
    for (key, value) in span.attributes.iter() {
        // A synthesised attribute could have this path.
        if key.starts_with("gen_ai.") {
            return AttributeLookup::Unknown;
        }
        // Padding and dots before a name are no part of it.
        if !key.trim_start_matches(|c: char| c == '.' || c.is_whitespace()).starts_with(first) {
            continue;
        }
        if key == path {
            found = plain_value(key, value);
        // The tree could merge or shadow such keys.
        } else if !is_plain(key) && !is_list_item(key, path) || is_below(key, path) || is_below(path, key) {
            return AttributeLookup::Unknown;
        }
    }
    found
}

/// `a.b.c` is below `a.b`.
fn is_below(path: &str, other: &str) -> bool {
    path.strip_prefix(other).is_some_and(|rest| rest.starts_with('.'))
}

/// Keys with indexes, such as those of messages, are harmless if they diverge from the path before the index.
fn is_list_item(key: &str, path: &str) -> bool {
    let mut wanted = path.split('.');
    for name in key.split('.') {
        if name.is_empty() || name.starts_with(char::is_whitespace) || name.ends_with(char::is_whitespace) {
            return false;
        }
        if wanted.next() != Some(name) {
            return !name.starts_with(|c: char| c.is_ascii_digit());
        }
    }
    false
}

/// Texts that Phoenix parses or converts are left to the tree.
fn plain_value<'a>(key: &str, value: &'a AttributeValue<'_>) -> AttributeLookup<'a> {
    if JSON_TEXTS.iter().any(|name| key.ends_with(name)) {
        return AttributeLookup::Unknown;
    }
    match value {
        AttributeValue::Str(_) if TOKEN_COUNTS.contains(&key) => AttributeLookup::Unknown,
        AttributeValue::Str(text) => AttributeLookup::Text(text),
        AttributeValue::Int(number) if key != "input.value" => AttributeLookup::Number(Number::from(*number)),
        _ => AttributeLookup::Unknown,
    }
}
