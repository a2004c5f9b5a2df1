//! One value as models write it: JSON, or what looks like it in Python: single quotes, `True` and `None`, commas behind
//! the last element, comments, line breaks inside texts. Linear in the text's length, and not deeper than a bound.

use serde_json::{Map, Number, Value};

/// Arguments are not nested deeper than this.
const MAX_ARGUMENT_DEPTH: usize = 64;

/// The value that a text begins with, and what stands behind it.
pub(super) fn at_start(text: &str) -> Option<(Value, &str)> {
    let text = text.trim_start();
    // What is JSON is read as JSON.
    let mut strict = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    if let Some(Ok(value)) = strict.next() {
        return Some((value, &text[strict.byte_offset()..]));
    }
    let mut rest = text;
    let value = parse_literal_value(&mut rest, 0)?;
    Some((value, rest))
}

/// The value that a text is.
pub(super) fn parse_literal(text: &str) -> Option<Value> {
    let (value, rest) = at_start(text)?;
    rest.trim().is_empty().then_some(value)
}

fn parse_literal_value(rest: &mut &str, depth: usize) -> Option<Value> {
    if depth > MAX_ARGUMENT_DEPTH {
        return None;
    }
    pass_space(rest);
    match rest.chars().next()? {
        '{' => parse_object_literal(rest, depth),
        '[' => parse_list_literal(rest, ']', depth),
        '(' => parse_list_literal(rest, ')', depth),
        '"' | '\'' => parse_string_literal(rest).map(Value::String),
        c if c.is_ascii_digit() || matches!(c, '-' | '+' | '.') => parse_number_literal(rest),
        _ => parse_keyword_literal(rest),
    }
}

fn parse_object_literal(rest: &mut &str, depth: usize) -> Option<Value> {
    let mut object = Map::new();
    consume_char(rest, '{');
    loop {
        pass_space(rest);
        if consume_char(rest, '}') {
            return Some(Value::Object(object));
        }
        // Python has keys that are no texts; as JSON they become such.
        let key = match parse_literal_value(rest, depth + 1)? {
            Value::String(key) => key,
            other => other.to_string(),
        };
        pass_space(rest);
        if !consume_char(rest, ':') {
            return None;
        }
        object.insert(key, parse_literal_value(rest, depth + 1)?);
        pass_space(rest);
        if !consume_char(rest, ',') && !rest.starts_with('}') {
            return None;
        }
    }
}

fn parse_list_literal(rest: &mut &str, close: char, depth: usize) -> Option<Value> {
    let mut items = Vec::new();
    *rest = &rest[1..];
    loop {
        pass_space(rest);
        if consume_char(rest, close) {
            return Some(Value::Array(items));
        }
        items.push(parse_literal_value(rest, depth + 1)?);
        pass_space(rest);
        if !consume_char(rest, ',') && !rest.starts_with(close) {
            return None;
        }
    }
}

fn parse_string_literal(rest: &mut &str) -> Option<String> {
    let quote = rest.chars().next()?;
    let triple = if quote == '"' { "\"\"\"" } else { "'''" };
    if let Some(body) = rest.strip_prefix(triple) {
        let (text, behind) = body.split_once(triple)?;
        *rest = behind;
        return Some(text.to_owned());
    }
    *rest = &rest[1..];
    let mut text = String::new();
    loop {
        let stop = rest.find([quote, '\\'])?;
        text.push_str(&rest[..stop]);
        *rest = &rest[stop..];
        if consume_char(rest, quote) {
            return Some(text);
        }
        parse_escape_sequence(rest, &mut text)?;
    }
}

/// A backslash, and what it stands for.
fn parse_escape_sequence(rest: &mut &str, text: &mut String) -> Option<()> {
    let mut characters = rest.strip_prefix('\\')?.chars();
    let kind = characters.next()?;
    *rest = characters.as_str();
    match kind {
        'n' => text.push('\n'),
        't' => text.push('\t'),
        'r' => text.push('\r'),
        'b' => text.push('\u{8}'),
        'f' => text.push('\u{c}'),
        '\n' => {}
        '\\' | '"' | '\'' | '/' => text.push(kind),
        'x' => text.push(char::from_u32(parse_hex_digits(rest, 2)?)?),
        'U' => text.push(char::from_u32(parse_hex_digits(rest, 8)?)?),
        'u' => {
            let written = *rest;
            let first = u16::try_from(parse_hex_digits(rest, 4)?).ok()?;
            // Two halves of one character.
            let mut behind = rest.strip_prefix("\\u").unwrap_or_default();
            let second = parse_hex_digits(&mut behind, 4).and_then(|code| u16::try_from(code).ok());
            let mut pair = char::decode_utf16([first].into_iter().chain(second));
            match pair.next()? {
                Ok(c) => {
                    text.push(c);
                    *rest = if c.len_utf16() == 2 { behind } else { *rest };
                }
                // One half is no character, and what was meant is not known: it stays as it is written.
                Err(_) => text.extend(["\\u", &written[..4]]),
            }
        }
        // Python leaves an escape that it does not know as it stands.
        other => text.extend(['\\', other]),
    }
    Some(())
}

fn parse_hex_digits(rest: &mut &str, digits: usize) -> Option<u32> {
    let written = rest.get(..digits)?;
    // A sign is no digit.
    let is_hex = written.bytes().all(|byte| byte.is_ascii_hexdigit());
    let code = u32::from_str_radix(written, 16).ok().filter(|_| is_hex)?;
    *rest = &rest[digits..];
    Some(code)
}

fn parse_number_literal(rest: &mut &str) -> Option<Value> {
    let is_part = |c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.' | 'e' | 'E' | '_');
    let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
    let written = rest[..end].replace('_', "");
    *rest = &rest[end..];
    let whole = written.parse::<i64>().map(Number::from).or_else(|_| written.parse::<u64>().map(Number::from));
    match whole {
        Ok(whole) => Some(Value::Number(whole)),
        Err(_) => Number::from_f64(written.parse().ok()?).map(Value::Number),
    }
}

fn parse_keyword_literal(rest: &mut &str) -> Option<Value> {
    let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
    let value = match &rest[..end] {
        "true" | "True" => Value::Bool(true),
        "false" | "False" => Value::Bool(false),
        "null" | "None" | "undefined" => Value::Null,
        _ => return None,
    };
    *rest = &rest[end..];
    Some(value)
}

/// White space and comments.
fn pass_space(rest: &mut &str) {
    loop {
        *rest = rest.trim_start();
        let end = if rest.starts_with("/*") {
            rest.find("*/").map(|end| end + 2)
        } else if rest.starts_with("//") || rest.starts_with('#') {
            Some(rest.find('\n').unwrap_or(rest.len()))
        } else {
            None
        };
        match end {
            Some(end) => *rest = &rest[end..],
            None => return,
        }
    }
}

fn consume_char(rest: &mut &str, c: char) -> bool {
    let behind = rest.strip_prefix(c);
    *rest = behind.unwrap_or(rest);
    behind.is_some()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_read_as_models_write_them() {
        let wanted = json!({"path": "a b", "list": [1, null, true], "x": -1.5});
        for text in [
            r#"{"path": "a b", "list": [1, null, true], "x": -1.5}"#,
            r#"{"path": "a b", "list": [1, null, true,], "x": -1.5,}"#,
            "{'path': 'a b', 'list': (1, None, True), 'x': -1.5}",
            "{'path': '''a b''', # here\n 'list': [1, null, true], /* there */ \"x\": -1.5}",
        ] {
            assert_eq!(parse_literal(text), Some(wanted.clone()), "{text}");
        }
        assert_eq!(parse_literal("{\"a\": \"one\ntwo\"}"), Some(json!({"a": "one\ntwo"})));
        assert_eq!(parse_literal(r"'it\'s \u00e9 \x41 \ud83d\udc1b \d'"), Some(json!("it's é A 🐛 \\d")));
        assert_eq!(parse_literal("{1: 'a', 1.5: 2, True: 3}"), Some(json!({"1": "a", "1.5": 2, "true": 3})));
        assert_eq!(parse_literal("{'a': 18446744073709551615}"), Some(json!({"a": u64::MAX})));
        assert_eq!(
            parse_literal(r#"["\ud83d\u0041", "\ud83d", "\udc1b!"]"#),
            Some(json!([r"\ud83dA", r"\ud83d", r"\udc1b!"]))
        );
        assert_eq!(at_start("{'a': 1}, and so on"), Some((json!({"a": 1}), ", and so on")));
    }

    #[test]
    fn what_is_no_value_is_refused() {
        for text in
            ["", "{", "{'a' 1}", "{a: 1}", "[1, 2", "octo/demo", "'open", "{\"a\": \"cut", "-", "'\\u1'", "'\\u+041'"]
        {
            assert_eq!(parse_literal(text), None, "{text}");
        }
        for open in ["[", "{'a':", "("] {
            assert_eq!(parse_literal(&open.repeat(100_000)), None, "{open}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[\\[\\]{}(),:'\"\\\\#/*a-z0-9xuU\n .é-]{0,60}") {
            if let Some((_, rest)) = at_start(&text) {
                prop_assert!(text.ends_with(rest));
            }
        }

        #[test]
        fn json_is_read_as_json(text in "\\PC{0,20}", number in any::<i64>(), float in -1e9..1e9f64) {
            let value = json!({"text": text, "number": number, "list": [float, {"deep": text}]});
            prop_assert_eq!(parse_literal(&value.to_string()), Some(value.clone()));
            // With a comma too much it is no JSON any more, and still the same.
            let written = value.to_string();
            let loose = format!("{},}}", &written[..written.len() - 1]);
            prop_assert_eq!(parse_literal(&loose), Some(value));
        }
    }
}
