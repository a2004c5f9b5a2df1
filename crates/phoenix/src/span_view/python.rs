//! Python's formatting and conversion of values. Phoenix is written in Python, and its clients see what Python prints.

use std::fmt::Write;

use serde_json::{Number, Value as Json};

/// The `ensure_ascii` parameter of `json.dumps`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum NonAsciiEscaping {
    Ascii,
    AsNeeded,
}

/// `json.dumps(value)`: a space after commas and colons, and Python's notation of floats.
pub(super) fn dump_python_json(value: &Json, escapes: NonAsciiEscaping) -> String {
    let mut out = String::new();
    write_value(value, escapes, &mut out);
    out
}

/// `str(value)`. Lists and objects are printed as JSON instead of Python's `repr`; no convention uses them here.
pub(super) fn format_python_str(value: &Json) -> String {
    match value {
        Json::Null => "None".to_owned(),
        Json::Bool(true) => "True".to_owned(),
        Json::Bool(false) => "False".to_owned(),
        Json::String(text) => text.clone(),
        other => dump_python_json(other, NonAsciiEscaping::AsNeeded),
    }
}

/// `int(value)`; none where Python raises an exception.
pub(super) fn parse_python_int(value: &Json) -> Option<i64> {
    match value {
        Json::Bool(value) => Some(i64::from(*value)),
        Json::Number(number) => number.as_i64().or_else(|| number.as_f64().map(|number| number.trunc() as i64)),
        Json::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

/// `bool(value)`.
pub(super) fn is_python_truthy(value: &Json) -> bool {
    match value {
        Json::Null => false,
        Json::Bool(value) => *value,
        Json::Number(number) => number.as_f64() != Some(0.0),
        Json::String(text) => !text.is_empty(),
        Json::Array(items) => !items.is_empty(),
        Json::Object(entries) => !entries.is_empty(),
    }
}

/// `repr(float)`: the shortest digits that round-trip, with an exponent outside of 10⁻⁴ to 10¹⁶.
pub(super) fn format_python_float(number: f64) -> String {
    let scientific = format!("{number:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if number != 0.0 && !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.abs());
    }
    let plain = number.to_string();
    if plain.contains('.') { plain } else { plain + ".0" }
}

/// Recursive; the depth of stored values is bounded by the JSON reader.
fn write_value(value: &Json, escapes: NonAsciiEscaping, out: &mut String) {
    match value {
        Json::Null => out.push_str("null"),
        Json::Bool(true) => out.push_str("true"),
        Json::Bool(false) => out.push_str("false"),
        Json::Number(number) => write_number(number, out),
        Json::String(text) => write_text(text, escapes, out),
        Json::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                out.push_str(if index == 0 { "" } else { ", " });
                write_value(item, escapes, out);
            }
            out.push(']');
        }
        Json::Object(entries) => {
            out.push('{');
            for (index, (key, value)) in entries.iter().enumerate() {
                out.push_str(if index == 0 { "" } else { ", " });
                write_text(key, escapes, out);
                out.push_str(": ");
                write_value(value, escapes, out);
            }
            out.push('}');
        }
    }
}

/// Integers as they are, floats as Python prints them.
fn write_number(number: &Number, out: &mut String) {
    match number.as_f64() {
        Some(float_number) if number.is_f64() => out.push_str(&format_python_float(float_number)),
        _ => {
            let _ = write!(out, "{number}");
        }
    }
}

/// Characters above U+FFFF are escaped as UTF-16 surrogate pairs, as JSON requires.
fn write_text(text: &str, escapes: NonAsciiEscaping, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if c < ' ' || (c > '~' && escapes == NonAsciiEscaping::Ascii) => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn dumps_as_python_does() {
        let value = json!({"a": [1, 2.0, 1e16, 1.5e-7, null, true], "ü": "é\"\\\n\u{1}\u{7f}😀", "o": {}, "l": []});
        let ascii = r#"{"a": [1, 2.0, 1e+16, 1.5e-07, null, true], "\u00fc": "\u00e9\"\\\n\u0001\u007f\ud83d\ude00", "o": {}, "l": []}"#;
        assert_eq!(dump_python_json(&value, NonAsciiEscaping::Ascii), ascii);
        assert_eq!(dump_python_json(&json!("é\u{7f}\u{1}"), NonAsciiEscaping::AsNeeded), "\"é\u{7f}\\u0001\"");
    }

    #[test]
    fn floats_as_python_writes_them() {
        let written = [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (0.1, "0.1"),
            (1.0, "1.0"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.25e300, "1.25e+300"),
        ];
        for (number, text) in written {
            assert_eq!(format_python_float(number), text);
        }
    }

    #[test]
    fn whole_numbers_and_truth() {
        assert_eq!(parse_python_int(&json!(" 12 ")), Some(12));
        assert_eq!(parse_python_int(&json!(12.9)), Some(12));
        assert_eq!(parse_python_int(&json!(true)), Some(1));
        assert_eq!(parse_python_int(&json!("12.0")), None);
        assert!(
            is_python_truthy(&json!("0"))
                && !is_python_truthy(&json!(0))
                && !is_python_truthy(&json!({}))
                && is_python_truthy(&json!([0]))
        );
    }
}
