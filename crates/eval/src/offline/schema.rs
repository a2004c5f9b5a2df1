//! Validates arguments against a tool's JSON Schema, as leniently as tools do: unknown type names pass, floats
//! without a fraction are integers, and numbers and booleans pass for strings if the schema lists them as strings.
//!
//! Schemas come from traces and may be hostile (recursive, huge), so depth, visits and elements are bounded.

use serde_json::{Map, Value as Json};

use super::excerpt::quote_excerpt;

/// Maximum nesting of schemas that is checked.
const MAX_SCHEMA_DEPTH: usize = 12;
/// Maximum number of reported violations.
const MAX_VIOLATIONS: usize = 8;
/// Maximum number of schemas visited for one call: a schema may refer to itself many times.
const MAX_VISITS: usize = 5_000;
/// Maximum number of checked elements of one array, and fields of one object.
const MAX_ITEMS: usize = 200;

/// A violation of the tool's schema.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SchemaViolation {
    pub kind: ViolationKind,
    /// The parameter, with dots and indices for nested values.
    pub parameter: String,
    pub detail: String,
}

/// Kinds of violations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ViolationKind {
    Missing,
    Unknown,
    WrongType,
    /// A number or boolean written as a string, which many tools accept.
    TextForValue,
    NotListed,
    OutOfRange,
}

/// Validates the arguments of a call. An empty result means that no violation was found within the bounds.
pub(super) fn check_arguments(schema: &Json, arguments: &Json) -> Vec<SchemaViolation> {
    let mut check = ArgumentValidator { root: schema, violations: Vec::new(), visits: 0 };
    check.check_value(schema, arguments, "", 0);
    check.violations
}

/// The state of one validation.
struct ArgumentValidator<'s> {
    /// The whole schema, in which `$ref` is resolved.
    root: &'s Json,
    violations: Vec<SchemaViolation>,
    visits: usize,
}

impl<'s> ArgumentValidator<'s> {
    fn report(&mut self, kind: ViolationKind, parameter: &str, detail: String) {
        if self.violations.len() < MAX_VIOLATIONS {
            self.violations.push(SchemaViolation { kind, parameter: parameter.to_owned(), detail });
        }
    }

    /// Checks one value against one schema.
    fn check_value(&mut self, schema: &'s Json, value: &Json, path: &str, depth: usize) {
        let Some(schema) = schema.as_object() else { return };
        self.visits += 1;
        if depth > MAX_SCHEMA_DEPTH || self.visits > MAX_VISITS || self.violations.len() >= MAX_VIOLATIONS {
            return;
        }
        if let Some(target) = schema.get("$ref").and_then(Json::as_str).and_then(|name| self.resolve_ref(name)) {
            self.check_value(target, value, path, depth + 1);
        }
        if let Some(all) = schema.get("allOf").and_then(Json::as_array) {
            for part in all {
                self.check_value(part, value, path, depth + 1);
            }
        }
        for key in ["anyOf", "oneOf"] {
            if let Some(choices) = schema.get(key).and_then(Json::as_array).filter(|choices| !choices.is_empty()) {
                self.check_alternatives(choices, value, path, depth);
            }
        }
        if !self.check_type(schema, value, path) {
            return;
        }
        self.check_limits(schema, value, path);
        match value {
            Json::Object(fields) => self.check_object(schema, fields, path, depth),
            Json::Array(items) => {
                if let Some(each) = schema.get("items").filter(|each| each.is_object()) {
                    for (at, item) in items.iter().take(MAX_ITEMS).enumerate() {
                        self.check_value(each, item, &format!("{path}[{at}]"), depth + 1);
                    }
                }
            }
            _ => {}
        }
    }

    /// Checks `anyOf` and `oneOf`: valid if any alternative is. Otherwise the violations of the best alternative are
    /// reported.
    fn check_alternatives(&mut self, choices: &'s [Json], value: &Json, path: &str, depth: usize) {
        let mut least: Option<Vec<SchemaViolation>> = None;
        for choice in choices.iter().take(20) {
            let mut check = ArgumentValidator { root: self.root, violations: Vec::new(), visits: self.visits };
            check.check_value(choice, value, path, depth + 1);
            self.visits = check.visits;
            if check.violations.is_empty() {
                return;
            }
            if least.as_ref().is_none_or(|least| check.violations.len() < least.len()) {
                least = Some(check.violations);
            }
        }
        for problem in least.unwrap_or_default() {
            self.report(problem.kind, &problem.parameter, problem.detail);
        }
    }

    /// Resolves references within the schema only; nothing is loaded.
    fn resolve_ref(&self, name: &str) -> Option<&'s Json> {
        self.root.pointer(name.strip_prefix('#')?)
    }

    /// Checks `type` and `enum`. Returns false after it has reported a violation.
    fn check_type(&mut self, schema: &Map<String, Json>, value: &Json, path: &str) -> bool {
        let listed = schema.get("enum").and_then(Json::as_array);
        if let Some(listed) = listed {
            // Schemas of arrays often list what the elements may be.
            let fits = match value {
                Json::Array(items) if !listed.iter().any(Json::is_array) => {
                    items.iter().all(|item| is_listed(listed, item))
                }
                _ => is_listed(listed, value),
            };
            if fits {
                return true;
            }
        }
        let fits = |name: &str| match_type(name, value);
        let fit = match schema.get("type") {
            Some(Json::String(name)) => fits(name),
            Some(Json::Array(names)) if !names.is_empty() => {
                names.iter().filter_map(Json::as_str).map(fits).max_by_key(|fit| *fit as u8).unwrap_or(TypeMatch::Yes)
            }
            _ => TypeMatch::Yes,
        };
        // A parameter with a default value accepts null, whatever its type is.
        let allowed_null =
            value.is_null() && (schema.get("nullable") == Some(&Json::Bool(true)) || schema.get("default").is_some());
        match fit {
            _ if allowed_null => true,
            TypeMatch::Yes if listed.is_some() => {
                let known: Vec<String> =
                    listed.into_iter().flatten().take(6).map(|known| quote_excerpt(&as_text(known))).collect();
                self.report(
                    ViolationKind::NotListed,
                    path,
                    format!("{} is none of {}", quote_excerpt(&as_text(value)), known.join(", ")),
                );
                false
            }
            TypeMatch::Yes => true,
            TypeMatch::AsText | TypeMatch::No => {
                let kind =
                    if fit == TypeMatch::AsText { ViolationKind::TextForValue } else { ViolationKind::WrongType };
                let wanted = match schema.get("type") {
                    Some(Json::String(name)) => name.clone(),
                    other => other.map(Json::to_string).unwrap_or_default(),
                };
                self.report(
                    kind,
                    path,
                    format!(
                        "{} is {}, not {}",
                        quote_excerpt(&as_text(value)),
                        json_type_name(value),
                        quote_excerpt(&wanted)
                    ),
                );
                false
            }
        }
    }

    /// Checks `const`, and bounds of numbers, lengths and element counts.
    fn check_limits(&mut self, schema: &Map<String, Json>, value: &Json, path: &str) {
        if let Some(constant) = schema.get("const")
            && !is_listed(std::slice::from_ref(constant), value)
        {
            self.report(
                ViolationKind::NotListed,
                path,
                format!("{} is not {}", quote_excerpt(&as_text(value)), quote_excerpt(&as_text(constant))),
            );
        }
        let limit = |key: &str| schema.get(key).and_then(Json::as_f64);
        let size = match value {
            Json::Number(number) => number.as_f64().map(|number| (number, "minimum", "maximum", "")),
            Json::String(text) => {
                let bound = limit("minLength").is_some() || limit("maxLength").is_some();
                bound.then(|| (text.chars().count() as f64, "minLength", "maxLength", " characters"))
            }
            Json::Array(items) => Some((items.len() as f64, "minItems", "maxItems", " elements")),
            _ => None,
        };
        let Some((size, least, most, unit)) = size else { return };
        if limit(least).is_some_and(|least| size < least) || limit(most).is_some_and(|most| size > most) {
            let bound = limit(least).filter(|least| size < *least).or(limit(most)).unwrap_or_default();
            self.report(ViolationKind::OutOfRange, path, format!("{size}{unit} is beyond the limit of {bound}"));
        }
    }

    /// Checks required, declared and unknown fields.
    fn check_object(&mut self, schema: &'s Map<String, Json>, fields: &Map<String, Json>, path: &str, depth: usize) {
        let within = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        if let Some(required) = schema.get("required").and_then(Json::as_array) {
            for name in
                required.iter().filter_map(Json::as_str).filter(|name| !fields.contains_key(*name)).take(MAX_VIOLATIONS)
            {
                self.report(ViolationKind::Missing, &within(name), "it is required".to_owned());
            }
        }
        let properties = schema.get("properties").and_then(Json::as_object);
        let composed =
            ["$ref", "allOf", "anyOf", "oneOf", "patternProperties"].iter().any(|key| schema.contains_key(*key));
        let open = match schema.get("additionalProperties") {
            Some(Json::Bool(open)) => *open,
            Some(_) => true,
            // JSON Schema allows unknown fields by default, but frameworks omit the keyword and their tools accept only
            // declared ones. Nested objects without declared fields are free-form maps.
            None => {
                composed || (properties.is_none_or(Map::is_empty) && (!path.is_empty() || !schema.contains_key("type")))
            }
        };
        for (name, value) in fields.iter().take(MAX_ITEMS) {
            match properties.and_then(|properties| properties.get(name)) {
                Some(declared) => self.check_value(declared, value, &within(name), depth + 1),
                None if !open => {
                    self.report(ViolationKind::Unknown, &within(name), "the tool has no such parameter".to_owned())
                }
                None => {}
            }
        }
    }
}

/// Ordered, so that the best match among several types can be chosen.
#[derive(Clone, Copy, PartialEq)]
enum TypeMatch {
    No = 0,
    AsText = 1,
    Yes = 2,
}

/// Matches a value with a type name. Also accepts the type names of Python frameworks.
fn match_type(name: &str, value: &Json) -> TypeMatch {
    let written = |fits: bool| if fits { TypeMatch::AsText } else { TypeMatch::No };
    let fits = match name.to_ascii_lowercase().as_str() {
        "string" | "str" => value.is_string(),
        "integer" | "int" => match value {
            Json::Number(number) => number.as_f64().is_some_and(|number| number.fract() == 0.0),
            Json::String(text) => return written(text.trim().parse::<i64>().is_ok()),
            _ => false,
        },
        "number" | "float" | "double" => match value {
            Json::String(text) => return written(text.trim().parse::<f64>().is_ok_and(f64::is_finite)),
            _ => value.is_number(),
        },
        "boolean" | "bool" => match value {
            Json::String(text) => {
                return written(matches!(text.to_ascii_lowercase().as_str(), "true" | "false"));
            }
            _ => value.is_boolean(),
        },
        "object" | "dict" => value.is_object(),
        "array" | "list" | "tuple" => value.is_array(),
        "null" | "none" => value.is_null(),
        _ => true,
    };
    if fits { TypeMatch::Yes } else { TypeMatch::No }
}

/// Whether a value is in an enum. Numbers and booleans also match their string: schemas list "1" and "True" for what
/// models send as values.
fn is_listed(listed: &[Json], value: &Json) -> bool {
    listed.iter().any(|known| {
        known == value
            || match (known, value) {
                (Json::String(known), Json::Number(_) | Json::Bool(_)) => {
                    known.eq_ignore_ascii_case(&value.to_string())
                }
                (Json::Number(_) | Json::Bool(_), Json::String(value)) => {
                    value.eq_ignore_ascii_case(&known.to_string())
                }
                // Models and tools often ignore case: "high" is accepted for "HIGH".
                (Json::String(known), Json::String(value)) => known.eq_ignore_ascii_case(value),
                (Json::Number(known), Json::Number(value)) => known.as_f64() == value.as_f64(),
                _ => false,
            }
    })
}

fn as_text(value: &Json) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn json_type_name(value: &Json) -> &'static str {
    match value {
        Json::Null => "null",
        Json::Bool(_) => "a boolean",
        Json::Number(_) => "a number",
        Json::String(_) => "a text",
        Json::Array(_) => "a list",
        Json::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn kinds(schema: &Json, arguments: &Json) -> Vec<(ViolationKind, String)> {
        check_arguments(schema, arguments).into_iter().map(|problem| (problem.kind, problem.parameter)).collect()
    }

    fn trip() -> Json {
        json!({"type": "object", "required": ["from", "seats"], "properties": {
            "from": {"type": "string"}, "seats": {"type": "integer", "minimum": 1},
            "class": {"type": "string", "enum": ["eco", "first"]},
            "stops": {"type": "array", "items": {"$ref": "#/$defs/stop"}},
            "when": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
            "$defs": {"stop": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}})
    }

    #[test]
    fn sound_arguments_pass() {
        let sound = json!({"from": "Oslo", "seats": 2.0, "class": "eco", "stops": [{"city": "Bergen"}], "when": null});
        assert_eq!(kinds(&trip(), &sound), []);
    }

    #[test]
    fn each_kind_of_problem_is_found() {
        use ViolationKind::*;
        let found = |arguments| kinds(&trip(), &arguments);
        assert_eq!(found(json!({"from": "Oslo"})), [(Missing, "seats".into())]);
        assert_eq!(found(json!({"from": "Oslo", "seats": 1, "pets": 1})), [(Unknown, "pets".into())]);
        assert_eq!(found(json!({"from": 7, "seats": 1})), [(WrongType, "from".into())]);
        assert_eq!(found(json!({"from": "Oslo", "seats": "2"})), [(TextForValue, "seats".into())]);
        assert_eq!(found(json!({"from": "Oslo", "seats": 0})), [(OutOfRange, "seats".into())]);
        assert_eq!(found(json!({"from": "Oslo", "seats": 1, "class": "x"})), [(NotListed, "class".into())]);
        assert_eq!(found(json!({"from": "Oslo", "seats": 1, "stops": [{}]})), [(Missing, "stops[0].city".into())]);
        assert_eq!(found(json!({"from": "Oslo", "seats": 1, "when": 3})), [(WrongType, "when".into())]);
        assert_eq!(found(json!("Oslo")), [(WrongType, String::new())]);
    }

    #[test]
    fn unusual_schemas_are_taken_as_they_are_meant() {
        let schema = json!({"type": "dict", "properties": {
            "rooms": {"type": "string", "enum": ["1", "2"]}, "mode": {"type": "weird"},
            "tags": {"type": "array", "enum": ["a", "b"]}, "note": {"type": "string", "default": null}}});
        assert_eq!(kinds(&schema, &json!({"rooms": 2, "mode": [1], "tags": ["a", "b"], "note": null})), []);
        assert_eq!(kinds(&schema, &json!({"tags": ["c"]})), [(ViolationKind::NotListed, "tags".into())]);
    }

    #[test]
    fn a_schema_without_parameters_takes_none_unless_it_says_so() {
        let unknown = [(ViolationKind::Unknown, "x".to_owned())];
        assert_eq!(kinds(&json!({"type": "object", "properties": {}}), &json!({"x": 1})), unknown);
        assert_eq!(kinds(&json!({"type": "object", "additionalProperties": true}), &json!({"x": 1})), []);
    }

    #[test]
    fn schemas_that_refer_to_themselves_end() {
        let schema =
            json!({"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}]}}});
        check_arguments(&schema, &json!({"x": 1}));
    }
}
