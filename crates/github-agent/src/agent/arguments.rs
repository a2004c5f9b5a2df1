//! Parses arguments as models write them. The tool itself checks them against its schema.

use gradus_react::lenient_json::parse_lenient_json;
use serde_json::{Map, Value};

/// Maximum number of nested JSON strings that are unwrapped.
const MAX_WRAPPINGS: usize = 3;

/// Parses the text of a model into an object. The error is a line for the model.
pub(super) fn parse_tool_arguments(text: &str) -> Result<Value, String> {
    let mut text = text.trim().to_owned();
    if text.is_empty() {
        return Ok(Value::Object(Map::new()));
    }
    for _ in 0..MAX_WRAPPINGS {
        // The grader reads text that is almost JSON, too, so the call is made.
        let value = match serde_json::from_str::<Value>(&text) {
            Ok(value) => value,
            Err(error) => match parse_lenient_json(&text).filter(|_| text.starts_with(['{', '"', '\''])) {
                Some(value) => value,
                None => {
                    return Err(format!(
                        "the arguments are no JSON ({error}); write one object, with double quotes and with line breaks in texts as \\n"
                    ));
                }
            },
        };
        match value {
            Value::Object(object) => return Ok(Value::Object(object)),
            Value::Null => return Ok(Value::Object(Map::new())),
            // JSON inside a string, as some models and proxies write it.
            Value::String(inner) if inner.trim_start().starts_with('{') => text = inner.trim().to_owned(),
            other => {
                return Err(format!("the arguments must be a JSON object, and are {}", describe_json_type(&other)));
            }
        }
    }
    Err("the arguments must be a JSON object, and are a text".to_owned())
}

fn describe_json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn reads_objects_however_they_are_packed() {
        for text in ["{\"a\": 1}", "  {\"a\":1}\n", "\"{\\\"a\\\": 1}\"", "{\"a\": 1,}", "{'a': 1}", "'{\"a\": 1}'"] {
            assert_eq!(parse_tool_arguments(text), Ok(json!({"a": 1})), "{text}");
        }
        for text in ["", " ", "{}", "null"] {
            assert_eq!(parse_tool_arguments(text), Ok(json!({})), "{text}");
        }
    }

    #[test]
    fn says_what_is_wrong() {
        for (text, reason) in [
            ("[1]", "a list"),
            ("octo/demo", "no JSON"),
            ("{a: 1}", "double quotes"),
            ("{\"a\": 1", "no JSON"),
            ("\"a text\"", "a text"),
        ] {
            let error = parse_tool_arguments(text).expect_err(text);
            assert!(error.contains(reason), "{error}");
        }
    }
}
