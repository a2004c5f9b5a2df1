//! Reads one value written as JSON or as a Python literal, the two ways in which models write arguments.
//!
//! Linear time, bounded depth, never panics. Strict JSON goes to `serde_json`; this reader is for the rest: single
//! quotes, `True`/`None`, trailing commas, comments, tuples and text behind the value.

use serde_json::{Map, Number, Value as Json};

use crate::bounded_json::{self, BoundedJsonError, MAX_JSON_NODES};

/// Maximum nesting depth. A deeper value is not an argument list.
const MAX_DEPTH: usize = 64;

/// Reads a value and requires that nothing follows it.
pub fn parse_lenient_json(text: &str) -> Option<Json> {
    let text = text.trim();
    match bounded_json::parse_with_node_limit(text, MAX_JSON_NODES) {
        Ok((json, _)) => return Some(json),
        Err(BoundedJsonError::TooManyNodes) => return None,
        Err(BoundedJsonError::Malformed) => {}
    }
    let (value, rest) = parse_prefix(text)?;
    rest.trim().is_empty().then_some(value)
}

/// Reads the value that `text` begins with, and returns it with the text after it.
pub fn parse_prefix(text: &str) -> Option<(Json, &str)> {
    // A value that is JSON is read as JSON, also with text after it: the reader below reads `-0` as `0`.
    let start = text.len() - text.trim_start().len();
    match bounded_json::parse_prefix(&text[start..]) {
        Ok(read) => return Some(read),
        Err(BoundedJsonError::TooManyNodes) => return None,
        Err(BoundedJsonError::Malformed) => {}
    }
    let mut reader = LenientJsonReader { text, at: 0, nodes_left: MAX_JSON_NODES };
    let value = reader.read_value(0)?;
    Some((value, &text[reader.at..]))
}

struct LenientJsonReader<'a> {
    text: &'a str,
    at: usize,
    /// Values that may still be built.
    nodes_left: usize,
}

impl<'a> LenientJsonReader<'a> {
    fn read_value(&mut self, depth: usize) -> Option<Json> {
        if depth > MAX_DEPTH {
            return None;
        }
        self.nodes_left = self.nodes_left.checked_sub(1)?;
        self.skip_space();
        match self.peek()? {
            b'{' => self.read_object(depth),
            b'[' => self.read_list(b']', depth),
            b'(' => self.read_list(b')', depth),
            b'"' | b'\'' => self.read_string().map(Json::String),
            b'-' | b'+' | b'.' | b'0'..=b'9' => self.read_number(),
            _ => self.read_keyword(),
        }
    }

    fn read_object(&mut self, depth: usize) -> Option<Json> {
        self.at += 1;
        let mut object = Map::new();
        loop {
            self.skip_space();
            if self.eat(b'}') {
                return Some(Json::Object(object));
            }
            let key = match self.peek()? {
                b'"' | b'\'' => self.read_string()?,
                _ => match self.read_value(depth + 1)? {
                    Json::String(key) => key,
                    key if is_hashable(&key) => key.to_string(),
                    _ => return None,
                },
            };
            self.skip_space();
            if !self.eat(b':') {
                return None;
            }
            let value = self.read_value(depth + 1)?;
            object.insert(key, value);
            self.skip_space();
            if !self.eat(b',') && self.peek()? != b'}' {
                return None;
            }
        }
    }

    fn read_list(&mut self, close: u8, depth: usize) -> Option<Json> {
        self.at += 1;
        let mut items = Vec::new();
        loop {
            self.skip_space();
            if self.eat(close) {
                return Some(Json::Array(items));
            }
            items.push(self.read_value(depth + 1)?);
            self.skip_space();
            if !self.eat(b',') && self.peek()? != close {
                return None;
            }
        }
    }

    fn read_string(&mut self) -> Option<String> {
        let quote = self.peek()?;
        let triple = if quote == b'"' { "\"\"\"" } else { "'''" };
        if self.text[self.at..].starts_with(triple) {
            return self.read_triple_quoted(triple);
        }
        self.at += 1;
        let mut out = String::new();
        loop {
            let rest = &self.text[self.at..];
            let stop = rest.find(|c: char| c == '\\' || c as u32 == u32::from(quote))?;
            out.push_str(&rest[..stop]);
            self.at += stop;
            if self.eat(quote) {
                return Some(out);
            }
            self.at += 1;
            self.read_escape(&mut out)?;
        }
    }

    fn read_triple_quoted(&mut self, quotes: &str) -> Option<String> {
        let body = &self.text[self.at + 3..];
        let end = body.find(quotes)?;
        self.at += 3 + end + 3;
        Some(body[..end].to_owned())
    }

    /// Reads the rest of an escape after its backslash.
    fn read_escape(&mut self, out: &mut String) -> Option<()> {
        let c = self.text[self.at..].chars().next()?;
        self.at += c.len_utf8();
        match c {
            'n' => out.push('\n'),
            't' => out.push('\t'),
            'r' => out.push('\r'),
            'b' => out.push('\u{8}'),
            'f' => out.push('\u{c}'),
            'x' => out.push(self.read_code_point(2)?),
            'u' => {
                let first = self.read_code_unit(4)?;
                match char::from_u32(first).or_else(|| self.read_low_surrogate(first)) {
                    Some(c) => out.push(c),
                    // A lone surrogate has no character, so it stays as it was written.
                    None => out.extend(["\\u", &self.text[self.at - 4..self.at]]),
                }
            }
            'U' => out.push(self.read_code_point(8)?),
            '\n' => {}
            '\\' | '"' | '\'' | '/' => out.push(c),
            // Python keeps the backslash of an escape it does not know.
            other => out.extend(['\\', other]),
        }
        Some(())
    }

    /// Reads the low surrogate after the high surrogate `first`, if it follows.
    fn read_low_surrogate(&mut self, first: u32) -> Option<char> {
        let hex = self.text[self.at..].strip_prefix("\\u")?.get(..4)?;
        let second = u32::from_str_radix(hex, 16).ok()?;
        if !(0xd800..0xdc00).contains(&first) || !(0xdc00..0xe000).contains(&second) {
            return None;
        }
        self.at += 6;
        char::from_u32(0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00))
    }

    fn read_code_unit(&mut self, digits: usize) -> Option<u32> {
        let hex = self.text.get(self.at..self.at + digits)?;
        if !hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        self.at += digits;
        u32::from_str_radix(hex, 16).ok()
    }

    fn read_code_point(&mut self, digits: usize) -> Option<char> {
        char::from_u32(self.read_code_unit(digits)?)
    }

    fn read_number(&mut self) -> Option<Json> {
        let rest = &self.text[self.at..];
        let end =
            rest.find(|c: char| !matches!(c, '0'..='9' | '+' | '-' | '.' | 'e' | 'E' | '_')).unwrap_or(rest.len());
        let digits = rest[..end].replace('_', "");
        let number = match (digits.parse::<i64>(), digits.parse::<u64>()) {
            (Ok(integer), _) => Number::from(integer),
            (_, Ok(integer)) => Number::from(integer),
            _ => Number::from_f64(digits.parse().ok()?)?,
        };
        self.at += end;
        Some(Json::Number(number))
    }

    fn read_keyword(&mut self) -> Option<Json> {
        let rest = &self.text[self.at..];
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        let value = match &rest[..end] {
            "true" | "True" => Json::Bool(true),
            "false" | "False" => Json::Bool(false),
            "null" | "None" | "undefined" => Json::Null,
            _ => return None,
        };
        self.at += end;
        Some(value)
    }

    /// Skips white space and comments.
    fn skip_space(&mut self) {
        loop {
            let rest = &self.text[self.at..];
            let trimmed = rest.trim_start();
            self.at += rest.len() - trimmed.len();
            let comment = if trimmed.starts_with("/*") {
                trimmed.find("*/").map(|end| end + 2)
            } else if trimmed.starts_with("//") || trimmed.starts_with('#') {
                Some(trimmed.find('\n').unwrap_or(trimmed.len()))
            } else {
                None
            };
            match comment {
                Some(length) => self.at += length,
                None => return,
            }
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn eat(&mut self, byte: u8) -> bool {
        let hit = self.peek() == Some(byte);
        self.at += usize::from(hit);
        hit
    }
}

/// Whether Python accepts a value as a key, which it does not for a dictionary. As the key of another dictionary, its
/// quotes would be escaped once more on each level, and a short text of nested keys would double 64 times.
fn is_hashable(key: &Json) -> bool {
    match key {
        Json::Object(_) => false,
        Json::Array(items) => items.iter().all(is_hashable),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn json_and_python_literals_mean_the_same() {
        let want = json!({"repo": "octo/api", "labels": ["bug"], "draft": true, "assignee": null, "n": 3, "x": 1.5});
        for text in [
            r#"{"repo": "octo/api", "labels": ["bug"], "draft": true, "assignee": null, "n": 3, "x": 1.5}"#,
            r"{'repo': 'octo/api', 'labels': ['bug'], 'draft': True, 'assignee': None, 'n': 3, 'x': 1.5}",
            r"{'repo': 'octo/api', 'labels': ('bug',), 'draft': True, 'assignee': None, 'n': 3, 'x': 1.5,}",
            "{'repo': 'octo/api', /* the label */ 'labels': ['bug'], # yes\n 'draft': True, 'assignee': None, 'n': 3, 'x': 1.5}",
        ] {
            assert_eq!(parse_lenient_json(text), Some(want.clone()), "{text}");
        }
    }

    #[test]
    fn escapes_are_read() {
        assert_eq!(parse_lenient_json(r"{'a': 'it\'s\n\u00e9 \x41 \ud83d\udc1b'}"), Some(json!({"a": "it's\né A 🐛"})));
        assert_eq!(parse_lenient_json("{'a': '''x\n'y' '''}"), Some(json!({"a": "x\n'y' "})));
    }

    #[test]
    fn halves_of_characters_are_kept() {
        let halves = r"['\ud83d\u0041', '\ud83d', '\udc1b!', '\ud83d\ue000', '\ud83d\u12']";
        assert_eq!(parse_lenient_json(halves), None, "an escape that is cut off is none");
        assert_eq!(
            parse_lenient_json(&halves.replace("\\u12", "")),
            Some(json!([r"\ud83dA", r"\ud83d", r"\udc1b!", "\\ud83d\u{e000}", r"\ud83d"]))
        );
    }

    #[test]
    fn text_behind_the_value_is_returned() {
        let (value, rest) = parse_prefix("{'a': 1}, along those lines.").unwrap();
        assert_eq!((value, rest), (json!({"a": 1}), ", along those lines."));
        assert_eq!(parse_lenient_json("{'a': 1}, along those lines."), None);
        let (value, _) = parse_prefix("{\"id\": 18446744073709551615, \"zero\": -0} and so on").unwrap();
        assert_eq!(value, json!({"id": u64::MAX, "zero": -0.0}));
        assert_eq!(parse_lenient_json("{'id': 18446744073709551615}"), Some(json!({"id": u64::MAX})));
        assert_eq!(parse_lenient_json("{1: 'a', None: 2}"), Some(json!({"1": "a", "null": 2})));
    }

    #[test]
    fn dictionaries_are_no_keys() {
        assert_eq!(parse_lenient_json("{(1, 'a'): 2}"), Some(json!({"[1,\"a\"]": 2})));
        for levels in [1, 2, 20] {
            let nested = "{".repeat(levels) + "{1: 1}" + &": 1}".repeat(levels);
            assert_eq!(parse_lenient_json(&nested), None, "{nested}");
        }
        assert_eq!(parse_lenient_json("{({1: 1},): 1}"), None);
    }

    #[test]
    fn what_is_no_value_is_refused() {
        for text in [
            "",
            "{",
            "{\"a\": ",
            "{'a' 1}",
            "[1, 2",
            "hello",
            "'open",
            "{\"a\": \"cut off",
            "\\",
            "-",
            "'\\u12'",
            "'\\u+041'",
        ] {
            assert_eq!(parse_lenient_json(text), None, "{text}");
        }
        assert_eq!(parse_lenient_json(&"[".repeat(100_000)), None);
    }
}
