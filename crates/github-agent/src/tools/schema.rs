//! JSON schemas of arguments, reduced to keywords that every model provider accepts.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

/// Returns the description of a type and its schema without the description. Definitions are inlined, as some
/// providers do not resolve references.
pub(super) fn describe_arguments<T: JsonSchema>() -> (String, Value) {
    let mut settings = SchemaSettings::draft2020_12();
    settings.meta_schema = None;
    settings.inline_subschemas = true;
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    simplify_schema(&mut schema);
    let description = match schema.as_object_mut().and_then(|object| object.shift_remove("description")) {
        Some(Value::String(text)) => text,
        _ => String::new(),
    };
    if let Some(object) = schema.as_object_mut() {
        // Also without arguments: some providers require the field.
        object.entry("properties").or_insert_with(|| Value::Object(Map::new()));
    }
    (description, schema)
}

/// Removes null from optional types, and keywords that do not help a model: formats, titles, defaults.
fn simplify_schema(schema: &mut Value) {
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
                properties.values_mut().for_each(simplify_schema);
            }
            object.shift_remove("format");
            object.shift_remove("title");
            object.shift_remove("default");
            if let Some(items) = object.get_mut("items") {
                simplify_schema(items);
            }
        }
        Value::Array(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
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
        let (description, schema) = describe_arguments::<Thing>();
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
}
