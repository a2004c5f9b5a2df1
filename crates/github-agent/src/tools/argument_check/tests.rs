//! Arguments that fit, and how the others are told.

use serde_json::json;

use super::*;
use crate::tools::all_tools;

fn thing() -> Value {
    json!({
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "owner": {"type": "string", "minLength": 1},
            "number": {"type": "integer", "minimum": 0},
            "kind": {"type": "string", "enum": ["open", "closed"]},
            "tags": {"type": "array", "items": {"type": "string"}},
            "per_page": {"type": "integer", "minimum": 1, "maximum": 100},
        },
        "required": ["owner", "number"],
    })
}

#[test]
fn all_problems_are_told_at_once() {
    let schema = thing();
    let told = find_argument_problems(
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
        find_argument_problems(&schema, &json!("x")),
        ["the arguments: expected a JSON object, got the string \"x\""]
    );
    assert!(find_argument_problems(&schema, &json!({"owner": "a", "number": 1})).is_empty());
    let patterns = json!({"patternProperties": {"^x-": {}}, "additionalProperties": false});
    assert!(find_argument_problems(&patterns, &json!({"x-a": 1})).is_empty());
}

#[test]
fn however_much_is_wrong_little_is_told() {
    let choices: Vec<String> = (0..2_000).map(|n| format!("choice {n}")).collect();
    let schema = json!({"properties": {"x": {"items": {"enum": choices}}}});
    let wrong: Vec<String> = (0..10_000).map(|n| format!("wrong {n}")).collect();
    let told = find_argument_problems(&schema, &json!({"x": wrong}));
    assert_eq!((told.len(), told[10].as_str()), (11, "and 9990 more"));
    assert!(told[0].starts_with("x[0]: expected one of \"choice 0\", \"choice 1\", "), "{}", told[0]);
    assert!(told[0].ends_with("…, got the string \"wrong 0\""), "{}", told[0]);
    let names: Map<String, Value> = (0..2_000).map(|n| (format!("name {n}"), json!({}))).collect();
    let schema = json!({"properties": names, "additionalProperties": false, "required": ["y".repeat(10)]});
    let told = [told, find_argument_problems(&schema, &json!({"z".repeat(100_000): 1}))].concat();
    assert!(told.iter().all(|one| one.len() < MAX_LISTED_VALUES_CHARS + 400), "{told:?}");
}

#[test]
fn problems_that_are_not_told_are_not_written_either() {
    let mut found = ArgumentProblems::default();
    let mut written = 0;
    for _ in 0..1_000 {
        found.add(|| {
            written += 1;
            String::new()
        });
    }
    assert_eq!((written, found.reported_lines.len(), found.more), (MAX_REPORTED_PROBLEMS, MAX_REPORTED_PROBLEMS, 990));
}

#[test]
fn whole_numbers_may_be_written_with_a_point() {
    let schema = json!({"properties": {
        "page": {"type": "integer"},
        "maybe": {"type": ["integer", "null"]},
        "ratio": {"type": "number"},
        "deep": {"items": {"properties": {"n": {"type": "integer"}}}},
        "one": {"enum": [1, [2, {"a": 3}]]},
    }});
    let given = json!({"page": 1.0, "maybe": -2e3, "ratio": 1.0, "deep": [{"n": 0.0}], "one": [2.0, {"a": 3.0}]});
    let whole = convert_whole_floats(&schema, given.clone());
    assert_eq!(whole, json!({"page": 1, "maybe": -2000, "ratio": 1.0, "deep": [{"n": 0}], "one": [2.0, {"a": 3.0}]}));
    assert_eq!(find_argument_problems(&schema, &whole), Vec::<String>::new());
    // As it is written, it is told how to write it.
    assert_eq!(
        find_argument_problems(&schema, &json!({"page": 1.0})),
        ["page: expected a whole number, got 1.0: write 1"]
    );
    for other in [json!({"page": 1.5}), json!({"page": 1e17}), json!({"one": 1.5}), json!({"one": [2.0]})] {
        let whole = convert_whole_floats(&schema, other.clone());
        assert_eq!((find_argument_problems(&schema, &whole).len(), &whole), (1, &other));
    }
}

#[test]
fn null_is_not_given_where_it_does_not_fit() {
    let given = remove_needless_nulls(&thing(), &json!({"owner": null, "number": 1, "kind": null, "other": null}));
    assert_eq!(given, json!({"owner": null, "number": 1, "other": null}));
    let schema = json!({"properties": {
        "clear": {"type": ["string", "null"]},
        "any": {},
        "none": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "text": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        "choice": {"enum": ["a"]},
        "number": {"type": ["integer", "string"]},
    }});
    let nulls = json!({"clear": null, "any": null, "none": null, "text": null, "choice": null, "number": null});
    assert_eq!(remove_needless_nulls(&schema, &nulls), json!({"clear": null, "any": null, "none": null}));
    // Our own tools want none.
    for (_, tool) in all_tools() {
        let properties = tool.definition.parameters["properties"].as_object().unwrap();
        assert!(properties.values().all(refuses_null), "{}", tool.definition.name);
    }
}
