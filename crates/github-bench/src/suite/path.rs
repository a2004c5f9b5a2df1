//! Paths into JSON: segments with dots between, `items.0.number`, and `*` for each element of a list. A name that holds
//! a dot cannot be reached; no response of GitHub that checks read has one.

use serde_json::Value;

/// A text with an empty segment, such as `a..b`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no way into JSON: write names and numbers with dots between, `0.user.login`")]
pub(super) struct JsonPathError(String);

/// The segments of a path: names of fields, indexes from 0, or `*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JsonPath(Vec<String>);

impl JsonPath {
    /// Parses a path. Refuses empty segments, which are typing mistakes.
    pub(super) fn parse(text: &str) -> Result<JsonPath, JsonPathError> {
        let parts: Vec<String> = text.split('.').map(str::to_owned).collect();
        if parts.iter().any(String::is_empty) {
            return Err(JsonPathError(text.to_owned()));
        }
        Ok(JsonPath(parts))
    }

    /// Returns the value at the path. With a `*`, the list of values that the rest of the path finds; elements
    /// without one are left out. None if a segment does not exist or goes into a text or a number.
    pub(super) fn find(&self, value: &Value) -> Option<Value> {
        find_at_path(&self.0, value)
    }
}

fn find_at_path(parts: &[String], value: &Value) -> Option<Value> {
    let Some((first, rest)) = parts.split_first() else { return Some(value.clone()) };
    match value {
        Value::Array(items) if first == "*" => {
            Some(Value::Array(items.iter().filter_map(|item| find_at_path(rest, item)).collect()))
        }
        Value::Array(items) => find_at_path(rest, items.get(first.parse::<usize>().ok()?)?),
        Value::Object(fields) => find_at_path(rest, fields.get(first)?),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ways() {
        let value = json!({"items": [{"user": {"login": "octo"}, "n": 1}, {"n": 2}]});
        let find = |text: &str| JsonPath::parse(text).unwrap().find(&value);
        assert_eq!(find("items.0.user.login"), Some(json!("octo")));
        assert_eq!(find("items.*.n"), Some(json!([1, 2])));
        assert_eq!(find("items.*.user.login"), Some(json!(["octo"])), "what has none is left out");
        assert_eq!(find("items.2"), None);
        assert_eq!(find("items.x"), None);
        assert!(JsonPath::parse("a..b").is_err());
    }
}
