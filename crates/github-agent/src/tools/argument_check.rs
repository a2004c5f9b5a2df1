//! Validates arguments against a schema. All problems are reported at once, so that a model can correct them together.
//! Schemas may come from others and arguments come from a model, so the report is bounded.

use serde_json::{Map, Number, Value};

/// Maximum number of characters of a quoted value, wrong or allowed.
const MAX_SHOWN_VALUE_CHARS: usize = 60;
/// Maximum number of characters of a list of allowed values.
const MAX_LISTED_VALUES_CHARS: usize = 1_000;
/// Maximum number of reported problems. Further ones are counted.
const MAX_REPORTED_PROBLEMS: usize = 10;
/// 2^53: up to here a float represents every whole number exactly. A larger one may have been another number before
/// parsing.
const MAX_EXACT_FLOAT_INTEGER: f64 = 9_007_199_254_740_992.0;

#[derive(Default)]
struct ArgumentProblems {
    reported_lines: Vec<String>,
    more: usize,
}

impl ArgumentProblems {
    fn add(&mut self, tell: impl FnOnce() -> String) {
        if self.reported_lines.len() < MAX_REPORTED_PROBLEMS {
            self.reported_lines.push(tell());
        } else {
            self.more += 1;
        }
    }
}

/// Returns all violations, one line each that names the argument. Knows the keywords that `describe_arguments` keeps,
/// and ignores others. A whole number must be written as one: later readers of the call look for `5`, not `5.0`.
pub fn find_argument_problems(schema: &Value, arguments: &Value) -> Vec<String> {
    let mut found = ArgumentProblems::default();
    check_value(schema, arguments, "", &mut found);
    if found.more > 0 {
        found.reported_lines.push(format!("and {} more", found.more));
    }
    found.reported_lines
}

/// Removes optional arguments that are null where null is not allowed. Many models write absent arguments so.
pub fn remove_needless_nulls(schema: &Value, arguments: &Value) -> Value {
    let mut arguments = arguments.clone();
    if let Some(object) = arguments.as_object_mut() {
        object.retain(|name, value| {
            !value.is_null() || is_required(schema, name) || !schema["properties"].get(name).is_some_and(refuses_null)
        });
    }
    arguments
}

/// Converts `5.0` to `5` where an integer is required. To JSON Schema they are the same; to many servers they are
/// not.
pub(crate) fn convert_whole_floats(schema: &Value, mut arguments: Value) -> Value {
    make_whole(schema, &mut arguments);
    arguments
}

fn make_whole(schema: &Value, value: &mut Value) {
    match value {
        Value::Number(number) if accepts_only_integers(schema) => *number = normalize_number(number),
        Value::Array(items) => {
            if let Some(of_items) = schema.get("items") {
                items.iter_mut().for_each(|item| make_whole(of_items, item));
            }
        }
        Value::Object(object) => {
            for (name, value) in object {
                if let Some(schema) = schema["properties"].get(name) {
                    make_whole(schema, value);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn accepts_only_integers(schema: &Value) -> bool {
    match &schema["type"] {
        Value::Array(types) => types.iter().any(|one| one == "integer") && types.iter().all(|one| one != "number"),
        only => only == "integer",
    }
}

/// Whether null is not allowed. A schema without a type allows it, since null can have a meaning, such as clearing a
/// field.
fn refuses_null(schema: &Value) -> bool {
    let all_refuse =
        |choices: &Value| choices.as_array().is_some_and(|all| !all.is_empty() && all.iter().all(refuses_null));
    let by_type = match &schema["type"] {
        Value::String(only) => only != "null",
        Value::Array(types) => types.iter().all(|one| one != "null"),
        _ => false,
    };
    let by_choice = schema["enum"].as_array().is_some_and(|choices| !choices.contains(&Value::Null));
    by_type || by_choice || all_refuse(&schema["anyOf"]) || all_refuse(&schema["oneOf"])
}

fn is_required(schema: &Value, name: &str) -> bool {
    schema["required"].as_array().is_some_and(|names| names.iter().any(|one| one == name))
}

fn check_value(schema: &Value, value: &Value, path: &str, found: &mut ArgumentProblems) {
    let place = if path.is_empty() { "the arguments" } else { path };
    if let Some(wanted) = schema["type"].as_str()
        && !has_type(value, wanted)
    {
        found.add(|| {
            let hint = match value {
                Value::Number(number) if wanted == "integer" => convert_to_integer(number),
                _ => None,
            };
            let hint = hint.map(|whole| format!(": write {whole}")).unwrap_or_default();
            format!("{place}: expected {}, got {}{hint}", describe_type(wanted), describe_value(value))
        });
        return;
    }
    if let Some(choices) = schema["enum"].as_array()
        && !choices.iter().any(|choice| equals_json(choice, value))
    {
        found.add(|| {
            let choices = join_clipped(choices.iter().map(Value::to_string));
            format!("{place}: expected one of {choices}, got {}", describe_value(value))
        });
    }
    match value {
        Value::Object(object) => check_object(schema, object, path, found),
        Value::Array(items) => {
            if let Some(of_items) = schema.get("items") {
                for (at, item) in items.iter().enumerate() {
                    check_value(of_items, item, &format!("{place}[{at}]"), found);
                }
            }
            if let Some(least) = schema["minItems"].as_u64()
                && (items.len() as u64) < least
            {
                found.add(|| format!("{place}: expected at least {least}, got {}", items.len()));
            }
        }
        Value::Number(number) => {
            let number = number.as_f64().unwrap_or(f64::NAN);
            if let Some(least) = schema["minimum"].as_f64()
                && number < least
            {
                found.add(|| format!("{place}: expected at least {least}, got {number}"));
            }
            if let Some(most) = schema["maximum"].as_f64()
                && number > most
            {
                found.add(|| format!("{place}: expected at most {most}, got {number}"));
            }
        }
        Value::String(text) => {
            if text.is_empty() && schema["minLength"].as_u64().is_some_and(|least| least > 0) {
                found.add(|| format!("{place}: must not be empty"));
            }
        }
        Value::Null | Value::Bool(_) => {}
    }
}

fn check_object(schema: &Value, object: &Map<String, Value>, path: &str, found: &mut ArgumentProblems) {
    let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    let none = Map::new();
    let properties = schema["properties"].as_object().unwrap_or(&none);
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !object.contains_key(name) {
            let wanted = properties.get(name).and_then(|one| one["type"].as_str()).unwrap_or("value");
            found.add(|| format!("{}: missing, expected {}", below(name), describe_type(wanted)));
        }
    }
    for (name, value) in object {
        match properties.get(name) {
            Some(schema) => check_value(schema, value, &below(name), found),
            // Patterns may allow further names, but only in schemas of other servers.
            None if schema["additionalProperties"] == false && schema.get("patternProperties").is_none() => {
                found.add(|| {
                    let known = join_clipped(properties.keys().cloned());
                    let known = if known.is_empty() { "none" } else { known.as_str() };
                    format!("{}: no such argument; there are: {known}", below(&clip_text(name)))
                });
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

/// Compares JSON values. Numbers are compared by value, not by notation.
fn equals_json(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => normalize_number(one) == normalize_number(other),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| equals_json(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            let is_in = |(name, one): (&String, &Value)| other.get(name).is_some_and(|other| equals_json(one, other));
            one.len() == other.len() && one.iter().all(is_in)
        }
        _ => one == other,
    }
}

fn normalize_number(number: &Number) -> Number {
    convert_to_integer(number).map_or_else(|| number.clone(), Number::from)
}

/// Returns a float without a fraction as an integer.
fn convert_to_integer(number: &Number) -> Option<i64> {
    let float = number.as_f64().filter(|_| number.is_f64())?;
    (float.fract() == 0.0 && float.abs() <= MAX_EXACT_FLOAT_INTEGER).then_some(float as i64)
}

fn describe_type(wanted: &str) -> String {
    match wanted {
        "object" => "a JSON object".to_owned(),
        "array" => "a list".to_owned(),
        "integer" => "a whole number".to_owned(),
        "boolean" => "true or false".to_owned(),
        other => format!("a {}", clip_text(other)),
    }
}

fn describe_value(value: &Value) -> String {
    match value {
        Value::Object(_) => "an object".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::String(text) => format!("the string {}", Value::from(clip_text(text))),
        other => other.to_string(),
    }
}

fn join_clipped(all: impl Iterator<Item = String>) -> String {
    let mut list = String::new();
    for one in all {
        if !list.is_empty() {
            list.push_str(", ");
        }
        if list.len() > MAX_LISTED_VALUES_CHARS {
            list.push('…');
            break;
        }
        list.push_str(&clip_text(&one));
    }
    list
}

fn clip_text(text: &str) -> String {
    match text.char_indices().nth(MAX_SHOWN_VALUE_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests;
