//! Schemas of arguments, in the few words of JSON Schema that every model provider takes, and checking against them:
//! all that is wrong is told at once, so that a model can mend it in one go.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

/// How much of a wrong value is repeated.
const MOST_SHOWN: usize = 60;
/// More than these are not told.
const MOST_PROBLEMS: usize = 10;

/// What a type says of itself: its description, and the schema without it.
pub(super) fn of<T: JsonSchema>() -> (String, Value) {
    let mut settings = SchemaSettings::draft2020_12();
    settings.meta_schema = None;
    settings.inline_subschemas = true;
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    simplify(&mut schema);
    let description = match schema.as_object_mut().and_then(|object| object.shift_remove("description")) {
        Some(Value::String(text)) => text,
        _ => String::new(),
    };
    if let Some(object) = schema.as_object_mut() {
        // Without arguments, too: some providers want it said.
        object.entry("properties").or_insert_with(|| Value::Object(Map::new()));
    }
    (description, schema)
}

/// An argument that need not be there need not be null either; formats and titles say nothing to a model.
fn simplify(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            if let Some(Value::Array(types)) = object.get_mut("type") {
                types.retain(|one| one != "null");
                if let [only] = types.as_slice() {
                    let only = only.clone();
                    object.insert("type".to_owned(), only);
                }
            }
            if let Some(Value::Array(choices)) = object.get_mut("anyOf") {
                choices.retain(|one| one["type"] != "null");
                if let [Value::Object(only)] = choices.as_slice() {
                    let only = only.clone();
                    object.shift_remove("anyOf");
                    for (key, value) in only {
                        object.entry(key).or_insert(value);
                    }
                }
            }
            if let Some(Value::Array(values)) = object.get_mut("enum") {
                values.retain(|one| !one.is_null());
            }
            if let Some(Value::String(text)) = object.get_mut("description") {
                *text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            }
            if let Some(Value::Object(properties)) = object.get_mut("properties") {
                properties.values_mut().for_each(simplify);
            }
            object.shift_remove("format");
            object.shift_remove("title");
            object.shift_remove("default");
            if let Some(items) = object.get_mut("items") {
                simplify(items);
            }
        }
        Value::Array(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// What does not fit, each in a line that names the argument. Knows the words that `of` writes, and lets others pass.
pub fn problems(schema: &Value, arguments: &Value) -> Vec<String> {
    let mut found = Vec::new();
    check(schema, arguments, "", &mut found);
    let more = found.len().saturating_sub(MOST_PROBLEMS);
    found.truncate(MOST_PROBLEMS);
    if more > 0 {
        found.push(format!("and {more} more"));
    }
    found
}

/// Takes out arguments that are null and need not be there: many models write them so.
pub(crate) fn without_nulls(schema: &Value, arguments: &Value) -> Value {
    let mut arguments = arguments.clone();
    if let Some(object) = arguments.as_object_mut() {
        object.retain(|name, value| {
            !value.is_null() || is_required(schema, name) || schema["properties"].get(name).is_none()
        });
    }
    arguments
}

fn is_required(schema: &Value, name: &str) -> bool {
    schema["required"].as_array().is_some_and(|names| names.iter().any(|one| one == name))
}

fn check(schema: &Value, value: &Value, path: &str, found: &mut Vec<String>) {
    let place = if path.is_empty() { "the arguments" } else { path };
    if let Some(wanted) = schema["type"].as_str()
        && !has_type(value, wanted)
    {
        found.push(format!("{place}: expected {}, got {}", article(wanted), shown(value)));
        return;
    }
    if let Some(choices) = schema["enum"].as_array()
        && !choices.contains(value)
    {
        let choices: Vec<_> = choices.iter().map(Value::to_string).collect();
        found.push(format!("{place}: expected one of {}, got {}", choices.join(", "), shown(value)));
    }
    match value {
        Value::Object(object) => check_object(schema, object, path, found),
        Value::Array(items) => {
            if let Some(of_items) = schema.get("items") {
                for (at, item) in items.iter().enumerate() {
                    check(of_items, item, &format!("{place}[{at}]"), found);
                }
            }
            if let Some(least) = schema["minItems"].as_u64()
                && (items.len() as u64) < least
            {
                found.push(format!("{place}: expected at least {least}, got {}", items.len()));
            }
        }
        Value::Number(number) => {
            let number = number.as_f64().unwrap_or(f64::NAN);
            if let Some(least) = schema["minimum"].as_f64()
                && number < least
            {
                found.push(format!("{place}: expected at least {least}, got {number}"));
            }
            if let Some(most) = schema["maximum"].as_f64()
                && number > most
            {
                found.push(format!("{place}: expected at most {most}, got {number}"));
            }
        }
        Value::String(text) => {
            if text.is_empty() && schema["minLength"].as_u64().is_some_and(|least| least > 0) {
                found.push(format!("{place}: must not be empty"));
            }
        }
        Value::Null | Value::Bool(_) => {}
    }
}

fn check_object(schema: &Value, object: &Map<String, Value>, path: &str, found: &mut Vec<String>) {
    let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    let none = Map::new();
    let properties = schema["properties"].as_object().unwrap_or(&none);
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !object.contains_key(name) {
            let wanted = properties.get(name).and_then(|one| one["type"].as_str()).unwrap_or("value");
            found.push(format!("{}: missing, expected {}", below(name), article(wanted)));
        }
    }
    for (name, value) in object {
        match properties.get(name) {
            Some(schema) => check(schema, value, &below(name), found),
            // Names may be told by patterns, too, which only others' schemas do.
            None if schema["additionalProperties"] == false && schema.get("patternProperties").is_none() => {
                let known: Vec<&str> = properties.keys().map(String::as_str).collect();
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                found.push(format!("{}: no such argument; there are: {known}", below(&clipped(name))));
            }
            None => {}
        }
    }
}

fn has_type(value: &Value, wanted: &str) -> bool {
    match wanted {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "null" => value.is_null(),
        _ => true,
    }
}

fn article(wanted: &str) -> String {
    match wanted {
        "object" => "a JSON object".to_owned(),
        "array" => "a list".to_owned(),
        "integer" => "a whole number".to_owned(),
        "boolean" => "true or false".to_owned(),
        other => format!("a {other}"),
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Object(_) => "an object".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::String(text) => format!("the string {}", Value::from(clipped(text))),
        other => other.to_string(),
    }
}

fn clipped(text: &str) -> String {
    match text.char_indices().nth(MOST_SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[derive(Debug, serde::Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "only its schema is wanted")]
    /// Does a thing.
    /// On two lines.
    struct Thing {
        /// Whose.
        #[schemars(length(min = 1))]
        owner: String,
        number: u64,
        kind: Option<Kind>,
        tags: Option<Vec<String>>,
        #[schemars(range(min = 1, max = 100))]
        per_page: Option<u32>,
    }

    #[derive(Debug, serde::Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    enum Kind {
        Open,
        Closed,
    }

    #[test]
    fn schemas_are_plain() {
        let (description, schema) = of::<Thing>();
        assert_eq!(description, "Does a thing. On two lines.");
        assert_eq!(
            schema,
            json!({
                "type": "object",
                "additionalProperties": false,
                "properties": {
                    "owner": {"type": "string", "description": "Whose.", "minLength": 1},
                    "number": {"type": "integer", "minimum": 0},
                    "kind": {"type": "string", "enum": ["open", "closed"]},
                    "tags": {"type": "array", "items": {"type": "string"}},
                    "per_page": {"type": "integer", "minimum": 1, "maximum": 100},
                },
                "required": ["owner", "number"],
            })
        );
    }

    #[test]
    fn all_problems_are_told_at_once() {
        let (_, schema) = of::<Thing>();
        let told = problems(
            &schema,
            &json!({"owner": "", "kind": "ajar", "tags": ["a", 5], "per_page": 200, "nunber": "7"}),
        );
        assert_eq!(
            told,
            [
                "number: missing, expected a whole number",
                "owner: must not be empty",
                "kind: expected one of \"open\", \"closed\", got the string \"ajar\"",
                "tags[1]: expected a string, got 5",
                "per_page: expected at most 100, got 200",
                "nunber: no such argument; there are: owner, number, kind, tags, per_page",
            ]
        );
        assert_eq!(
            problems(&schema, &json!("x")),
            ["the arguments: expected a JSON object, got the string \"x\""]
        );
        assert!(problems(&schema, &json!({"owner": "a", "number": 1})).is_empty());
        let patterns = json!({"patternProperties": {"^x-": {}}, "additionalProperties": false});
        assert!(problems(&patterns, &json!({"x-a": 1})).is_empty());
    }

    #[test]
    fn null_is_not_given() {
        let (_, schema) = of::<Thing>();
        let given = without_nulls(&schema, &json!({"owner": null, "number": 1, "kind": null, "other": null}));
        assert_eq!(given, json!({"owner": null, "number": 1, "other": null}));
    }
}
