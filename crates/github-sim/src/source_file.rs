//! Files that people write (seeds and tasks), and precise errors about them: the line, the field, and the problem in
//! words that need no knowledge of Rust or serde:
//!
//! ```text
//! serde   invalid type: string "two", expected u32
//! here    line 12: checks[0].count: this is the text "two"; it must be a whole number, 0 or more
//! ```
//!
//! The benchmark uses this module for task files as well.

use std::path::Path;

use serde::de::DeserializeOwned;
use toml::de::{DeTable, DeValue};

/// A problem in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFileProblem {
    /// From 1.
    pub line: usize,
    /// `checks[0].count`; empty if the problem concerns the whole file.
    pub field: String,
    pub reason: String,
}

impl SourceFileProblem {
    /// Formats the problem: `checks[0].count: it must be ...`.
    pub fn format_message(&self) -> String {
        if self.field.is_empty() { self.reason.clone() } else { format!("{}: {}", self.field, self.reason) }
    }
}

/// Why a file cannot be read as text.
#[derive(Debug)]
pub enum TextFileError {
    Unreadable(std::io::Error),
    Mistake(SourceFileProblem),
}

/// Reads UTF-8. For other encodings, the error names the line of the first invalid byte.
pub fn read_text(path: &Path) -> Result<String, TextFileError> {
    let bytes = std::fs::read(path).map_err(TextFileError::Unreadable)?;
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let line = error.as_bytes()[..valid].iter().filter(|byte| **byte == b'\n').count() + 1;
        let reason = "there are bytes here that are no text; save the file as UTF-8".to_owned();
        TextFileError::Mistake(SourceFileProblem { line, field: String::new(), reason })
    })
}

/// Parses TOML. Errors carry the line and the path of the field.
pub fn from_toml<T: DeserializeOwned>(text: &str) -> Result<T, SourceFileProblem> {
    let line = |error: &toml::de::Error| error.span().map_or(1, |span| line_at(text, span.start));
    let reader = toml::Deserializer::parse(text).map_err(|error| SourceFileProblem {
        line: line(&error),
        field: String::new(),
        reason: simplify_serde_message(error.message()),
    })?;
    serde_path_to_error::deserialize(reader).map_err(|error| {
        let field = format_field_path(error.path());
        SourceFileProblem { line: line(error.inner()), field, reason: simplify_serde_message(error.inner().message()) }
    })
}

/// Parses JSON. Text after the document is an error.
pub fn from_json<T: DeserializeOwned>(text: &str) -> Result<T, SourceFileProblem> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let read = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let field = format_field_path(error.path());
        (field, error.into_inner())
    });
    let read = read.and_then(|value| reader.end().map(|()| value).map_err(|error| (String::new(), error)));
    read.map_err(|(field, error)| {
        let message = error.to_string();
        let message = message.rsplit_once(" at line ").map_or(message.as_str(), |(message, _)| message);
        SourceFileProblem { line: error.line().max(1), field, reason: simplify_serde_message(message) }
    })
}

/// Removes the marks of `serde_path_to_error` for the whole file and for an unreadable key.
fn format_field_path(path: &serde_path_to_error::Path) -> String {
    let path = path.to_string();
    // `.` is the whole file, `?` a key that could not be read.
    path.trim_end_matches('?').trim_end_matches('.').to_owned()
}

/// Returns the line of a field such as `oracle.steps[1].tool`, or of the longest part of it that exists. Text in
/// parentheses is a hint for people and is ignored.
pub fn line_of(text: &str, field: &str) -> usize {
    let mut field = field.to_owned();
    while let Some((begin, (_, end))) =
        field.split_once(" (").and_then(|(begin, rest)| Some((begin, rest.split_once(')')?)))
    {
        field = format!("{begin}{end}");
    }
    let Ok(root) = DeTable::parse(text) else { return 1 };
    let mut line = 1;
    let mut place: Option<&DeValue<'_>> = None;
    let keys = field.split(['.', '[']).map(|key| key.trim_end_matches(']')).filter(|key| !key.is_empty());
    for key in keys {
        let table = match place {
            None => Some(root.get_ref()),
            Some(value) => value.as_table(),
        };
        let found = if let Some((name, value)) = table.and_then(|table| table.get_key_value(key)) {
            // The heading of a table, the key of a value.
            Some((name.span().start, value))
        } else {
            let list = place.and_then(DeValue::as_array);
            let item = key.parse::<usize>().ok().and_then(|index| list?.get(index));
            item.map(|item| (item.span().start, item))
        };
        let Some((start, value)) = found else { break };
        line = line_at(text, start);
        place = Some(value.get_ref());
    }
    line
}

/// Returns the line of a byte offset, from 1.
fn line_at(text: &str, byte: usize) -> usize {
    text.as_bytes()[..byte.min(text.len())].iter().filter(|byte| **byte == b'\n').count() + 1
}

/// Rewrites a message of serde in plain words. Unknown messages are passed through.
fn simplify_serde_message(message: &str) -> String {
    let message = message.replace('\n', " ");
    let message = message.trim();
    for begin in ["invalid type: ", "invalid value: "] {
        if let Some((found, wanted)) = message.strip_prefix(begin).and_then(|rest| rest.split_once(", expected ")) {
            return format!("this is {}; it must be {}", describe_found_value(found), describe_expected_type(wanted));
        }
    }
    if let Some(rest) = message.strip_prefix("invalid length ")
        && let Some((found, wanted)) = rest.split_once(", expected ")
    {
        return format!("there are {found} of them; it must be {}", describe_expected_type(wanted));
    }
    if let Some((name, known)) = split_backticked_name(message, "unknown field ") {
        return format!("there is no field {name:?} here{}", format_expected_names(known, "; there are "));
    }
    if let Some((name, known)) = split_backticked_name(message, "unknown variant ") {
        return format!("{name:?} is none of those that there are{}", format_expected_names(known, ": "));
    }
    if let Some((name, _)) = split_backticked_name(message, "missing field ") {
        return format!("the field {name:?} is missing");
    }
    if let Some((name, _)) = split_backticked_name(message, "duplicate field ") {
        return format!("the field {name:?} is there twice");
    }
    match message {
        "wanted string or table" => "it must be a text".to_owned(),
        other => other.to_owned(),
    }
}

/// Returns the name in backticks after a prefix, and the rest of the message.
fn split_backticked_name<'m>(message: &'m str, begin: &str) -> Option<(&'m str, &'m str)> {
    message.strip_prefix(begin)?.strip_prefix('`')?.split_once('`')
}

/// Formats the names of ", expected one of `a`, `b`".
fn format_expected_names(rest: &str, before: &str) -> String {
    let names: Vec<&str> = rest.split('`').skip(1).step_by(2).collect();
    if names.is_empty() { String::new() } else { format!("{before}{}", names.join(", ")) }
}

/// Describes the found value.
fn describe_found_value(found: &str) -> String {
    // A number beyond 64 bits.
    if let Some(number) = found.strip_suffix(" as i128").or_else(|| found.strip_suffix(" as u128")) {
        return format!("{}, which is too large", describe_found_value(number));
    }
    let inner = |begin: &str| found.strip_prefix(begin).map(|rest| rest.trim_matches('`').to_owned());
    if let Some(text) = inner("string ") {
        return format!("the text {text}");
    }
    for begin in ["integer ", "floating point "] {
        if let Some(number) = inner(begin) {
            return format!("the number {number}");
        }
    }
    if let Some(value) = inner("boolean ") {
        return value;
    }
    match found {
        "sequence" => "a list".to_owned(),
        "map" => "a table".to_owned(),
        "null" | "unit value" => "nothing".to_owned(),
        "enum" | "unit variant" | "newtype variant" => "a choice".to_owned(),
        other => other.to_owned(),
    }
}

/// Describes the expected type.
fn describe_expected_type(wanted: &str) -> String {
    let is_struct = wanted.starts_with("struct ") || wanted.starts_with("internally tagged");
    match wanted {
        "usize" | "u8" | "u16" | "u32" | "u64" => "a whole number, 0 or more".to_owned(),
        "isize" | "i8" | "i16" | "i32" | "i64" => "a whole number".to_owned(),
        "f32" | "f64" => "a number".to_owned(),
        "a string" | "string" | "a borrowed string" => "a text".to_owned(),
        "a boolean" | "boolean" => "true or false".to_owned(),
        "a sequence" | "sequence" => "a list".to_owned(),
        "a map" | "map" => "a table".to_owned(),
        "string or table" | "variant identifier" => "a text".to_owned(),
        _ if is_struct => "a table".to_owned(),
        other => other.replace("a sequence", "a list").replace("a map", "a table").replace("a string", "a text"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_fields() {
        let text = "a = 1\n[b]\nc = [\n  1,\n  2,\n]\n[[d]]\nx = 1\n[[d]]\nx = 2\n[[d.e]]\ny = { z = 3 }\n";
        for (field, line) in [
            ("a", 1),
            ("b", 2),
            ("b.c[1]", 5),
            ("d[0].x", 8),
            ("d[1]", 9),
            ("d[1].x", 10),
            ("d[1].e[0].y.z", 12),
            ("d[1].missing", 9),
            ("d[1] (octo/a.b).x", 10),
            ("nothing", 1),
        ] {
            assert_eq!(line_of(text, field), line, "{field}");
        }
    }

    #[test]
    fn messages_are_in_plain_words() {
        for (message, wanted) in [
            (
                "invalid type: string \"one\", expected usize",
                "this is the text \"one\"; it must be a whole number, 0 or more",
            ),
            (
                "invalid value: integer `-6`, expected usize",
                "this is the number -6; it must be a whole number, 0 or more",
            ),
            (
                "invalid type: integer `99999999999999999999` as i128, expected u32",
                "this is the number 99999999999999999999, which is too large; it must be a whole number, 0 or more",
            ),
            ("invalid type: string \"x\", expected a sequence", "this is the text \"x\"; it must be a list"),
            ("unknown variant `9`, expected one of `1`, `2`", "\"9\" is none of those that there are: 1, 2"),
            ("unknown field `a`, expected `b` or `c`", "there is no field \"a\" here; there are b, c"),
            ("missing field `id`", "the field \"id\" is missing"),
        ] {
            assert_eq!(simplify_serde_message(message), wanted);
        }
    }
}
