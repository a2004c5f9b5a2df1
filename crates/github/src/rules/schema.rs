//! As much of JSON Schema as tools' arguments need: types, properties, enums, ranges, alternatives, references. What it
//! does not know it lets pass.

use serde_json::Value;

/// Deeper schemas are not looked into.
const DEEPEST: usize = 32;

/// All that is wrong with a value, each with its place.
pub(super) fn problems(schema: &Value, value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    check(schema, schema, value, "", 0, &mut found);
    found
}

fn check(root: &Value, schema: &Value, value: &Value, place: &str, depth: usize, found: &mut Vec<String>) {
    let Some(rules) = schema.as_object().filter(|_| depth < DEEPEST) else {
        if schema == &Value::Bool(false) {
            found.push(format!("{} is not allowed", shown(place)));
        }
        return;
    };
    if let Some(target) =
        rules.get("$ref").and_then(Value::as_str).and_then(|path| root.pointer(path.strip_prefix('#')?))
    {
        check(root, target, value, place, depth + 1, found);
    }
    if let Some(wanted) = rules.get("type").filter(|wanted| !is_type(wanted, value)) {
        found.push(format!("{} should be {}", shown(place), type_names(wanted)));
        return;
    }
    if let Some(choices) =
        rules.get("enum").and_then(Value::as_array).filter(|choices| !choices.contains(value))
    {
        let names: Vec<String> = choices.iter().map(Value::to_string).collect();
        found.push(format!("{} should be one of {}", shown(place), names.join(", ")));
    }
    if rules.get("const").is_some_and(|wanted| wanted != value) {
        found.push(format!("{} should be {}", shown(place), rules["const"]));
    }
    for name in ["anyOf", "oneOf"] {
        let Some(choices) = rules.get(name).and_then(Value::as_array) else { continue };
        let fits = |choice: &Value| {
            let mut problems = Vec::new();
            check(root, choice, value, place, depth + 1, &mut problems);
            problems.is_empty()
        };
        if !choices.iter().any(fits) {
            found.push(format!("{} fits none of its forms", shown(place)));
        }
    }
    for part in rules.get("allOf").and_then(Value::as_array).into_iter().flatten() {
        check(root, part, value, place, depth + 1, found);
    }
    check_range(rules, value, place, found);
    match value {
        Value::Object(fields) => check_fields(root, rules, fields, place, depth, found),
        Value::Array(items) => {
            if let Some(schema) = rules.get("items") {
                for (index, item) in items.iter().enumerate() {
                    check(root, schema, item, &format!("{place}/{index}"), depth + 1, found);
                }
            }
        }
        _ => {}
    }
}

type Fields = serde_json::Map<String, Value>;

fn check_fields(
    root: &Value,
    rules: &Fields,
    fields: &Fields,
    place: &str,
    depth: usize,
    found: &mut Vec<String>,
) {
    for name in
        rules.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
    {
        if !fields.contains_key(name) {
            found.push(format!("{} is missing", shown(&format!("{place}/{name}"))));
        }
    }
    let properties = rules.get("properties").and_then(Value::as_object);
    for (name, value) in fields {
        let place = format!("{place}/{name}");
        match (properties.and_then(|properties| properties.get(name)), rules.get("additionalProperties")) {
            (Some(schema), _) => check(root, schema, value, &place, depth + 1, found),
            (None, Some(Value::Bool(false))) => found.push(format!("{} is no parameter", shown(&place))),
            (None, Some(schema)) => check(root, schema, value, &place, depth + 1, found),
            (None, None) => {}
        }
    }
}

fn check_range(rules: &Fields, value: &Value, place: &str, found: &mut Vec<String>) {
    let limit = |name: &str| rules.get(name).and_then(Value::as_f64);
    let size = match value {
        Value::Number(number) => number.as_f64().map(|number| (number, "minimum", "maximum")),
        Value::String(text) => Some((text.chars().count() as f64, "minLength", "maxLength")),
        Value::Array(items) => Some((items.len() as f64, "minItems", "maxItems")),
        _ => None,
    };
    let Some((size, least, most)) = size else { return };
    if limit(least).is_some_and(|least| size < least) || limit(most).is_some_and(|most| size > most) {
        found.push(format!("{} is out of range", shown(place)));
    }
}

fn is_type(wanted: &Value, value: &Value) -> bool {
    let is = |name: &str| match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "number" => value.is_number(),
        "integer" => {
            value.as_i64().is_some()
                || value.as_u64().is_some()
                || value.as_f64().is_some_and(|one| one.fract() == 0.0)
        }
        _ => true,
    };
    match wanted {
        Value::String(name) => is(name),
        Value::Array(names) => names.iter().filter_map(Value::as_str).any(is),
        _ => true,
    }
}

fn type_names(wanted: &Value) -> String {
    let names =
        wanted.as_array().into_iter().flatten().filter_map(Value::as_str).collect::<Vec<_>>().join(" or ");
    wanted.as_str().map_or(names, str::to_owned)
}

fn shown(place: &str) -> String {
    if place.is_empty() { "the whole".to_owned() } else { place.trim_start_matches('/').replace('/', ".") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_does_not_fit_is_named() {
        let schema = json!({
            "type": "object", "required": ["owner", "number"], "additionalProperties": false,
            "properties": {
                "owner": {"type": "string", "minLength": 1},
                "number": {"type": "integer", "minimum": 0},
                "labels": {"type": ["array", "null"], "items": {"type": "string"}},
                "reason": {"anyOf": [{"$ref": "#/$defs/Reason"}, {"type": "null"}]},
            },
            "$defs": {"Reason": {"type": "string", "enum": ["completed", "not_planned"]}},
        });
        assert_eq!(
            problems(&schema, &json!({"owner": "octo", "number": 5, "labels": null, "reason": "completed"})),
            [] as [&str; 0]
        );
        assert_eq!(problems(&schema, &json!({"owner": "octo"})), ["number is missing"]);
        assert_eq!(problems(&schema, &json!({"owner": "octo", "number": "5"})), ["number should be integer"]);
        assert_eq!(
            problems(&schema, &json!({"owner": "", "number": 5, "x": 1})),
            ["owner is out of range", "x is no parameter"]
        );
        assert_eq!(
            problems(&schema, &json!({"owner": "o", "number": 5, "labels": [1]})),
            ["labels.0 should be string"]
        );
        assert_eq!(
            problems(&schema, &json!({"owner": "o", "number": 5, "reason": "bored"})),
            ["reason fits none of its forms"]
        );
        assert_eq!(problems(&schema, &json!("text")), ["the whole should be object"]);
    }
}
