//! The part of JSON Schema that `dataset.schema.json` uses. A keyword that it does not know fails the test, so that no
//! rule of the schema is silently ignored.

use serde_json::Value as Json;

/// The first rule that the value breaks.
pub(crate) fn find_violation(schema: &Json, value: &Json) -> Option<String> {
    check(schema, schema, value)
}

fn check(root: &Json, schema: &Json, value: &Json) -> Option<String> {
    let rules = schema.as_object().unwrap_or_else(|| panic!("not a schema: {schema}"));
    rules.iter().find_map(|(keyword, rule)| check_keyword(root, schema, keyword, rule, value))
}

fn check_keyword(root: &Json, schema: &Json, keyword: &str, rule: &Json, value: &Json) -> Option<String> {
    let broken = |is_broken: bool| is_broken.then(|| format!("{keyword} {rule}: {value}"));
    let list = || rule.as_array().unwrap();
    let number = || usize::try_from(rule.as_u64().unwrap()).unwrap();
    let matching = || list().iter().filter(|one| check(root, one, value).is_none()).count();
    match keyword {
        "$schema" | "$defs" | "title" | "description" | "default" => None,
        "$ref" => check(root, root.pointer(rule.as_str().unwrap().strip_prefix('#').unwrap()).unwrap(), value),
        "type" => broken(match rule.as_str().unwrap() {
            "object" => !value.is_object(),
            "array" => !value.is_array(),
            "string" => !value.is_string(),
            other => panic!("unknown type {other}"),
        }),
        "const" => broken(rule != value),
        "enum" => broken(!list().contains(value)),
        "anyOf" => broken(matching() == 0),
        "oneOf" => broken(matching() != 1),
        "required" => {
            broken(value.is_object() && list().iter().any(|name| value.get(name.as_str().unwrap()).is_none()))
        }
        "minLength" => broken(value.as_str().is_some_and(|text| text.chars().count() < number())),
        "maxLength" => broken(value.as_str().is_some_and(|text| text.chars().count() > number())),
        "minItems" => broken(value.as_array().is_some_and(|items| items.len() < number())),
        "items" => value.as_array().and_then(|items| items.iter().find_map(|item| check(root, rule, item))),
        "properties" => value.as_object().and_then(|fields| {
            fields.iter().find_map(|(name, field)| rule.get(name).and_then(|schema| check(root, schema, field)))
        }),
        "additionalProperties" => match rule {
            Json::Bool(true) => None,
            Json::Bool(false) => broken(
                value
                    .as_object()
                    .is_some_and(|fields| fields.keys().any(|name| schema["properties"].get(name).is_none())),
            ),
            other => panic!("additionalProperties {other}"),
        },
        other => panic!("unknown keyword {other}: {rule}"),
    }
}
