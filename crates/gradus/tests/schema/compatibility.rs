//! Which changes of a JSON Schema break programs that were written for it. `docs/reference/compatibility.md` has the
//! promise: fields are added; they are neither removed nor renamed, and their types stay.

#![allow(dead_code, reason = "each test binary that has this file uses what it needs")]

use std::collections::{BTreeMap, BTreeSet, HashSet};

use serde_json::Value as Json;

/// Whose programs must not break.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum SchemaUse {
    /// Gradus writes the document and others read it: a field that was always there must stay, and no type may be added.
    Written,
    /// Others write the document and Gradus reads it: no field may become required, and no type may be refused.
    Read,
}

/// The changes from `before` to `after` that break somebody; one line each.
pub(crate) fn find_breaking_changes(before: &Json, after: &Json, usage: SchemaUse) -> Vec<String> {
    let mut comparison = SchemaComparison { before, after, usage, open: HashSet::new() };
    comparison.compare_nodes(before, after, "")
}

/// The same for two OpenAPI descriptions: operations, parameters, bodies and responses.
pub(crate) fn find_breaking_operations(before: &Json, after: &Json) -> Vec<String> {
    let mut found = Vec::new();
    for (path, operations) in objects(&before["paths"]) {
        for (method, operation) in objects(operations).filter(|(_, operation)| operation.is_object()) {
            let name = format!("{} {path}", method.to_uppercase());
            let now = &after["paths"][path][method];
            if now.is_null() {
                found.push(format!("{name}: removed"));
                continue;
            }
            let parameters = |operation: &Json| -> BTreeSet<String> {
                let named = operation["parameters"].as_array().into_iter().flatten();
                named.map(|parameter| parameter["name"].to_string()).collect()
            };
            let removed = &parameters(operation) - &parameters(now);
            found.extend(removed.iter().map(|parameter| format!("{name}: parameter {parameter} removed")));
            let mut compare = |pointer: &str, usage: SchemaUse| {
                let Some(schema) = operation.pointer(pointer) else { return };
                let mut comparison = SchemaComparison { before, after, usage, open: HashSet::new() };
                let now = now.pointer(pointer).unwrap_or(&Json::Null);
                found.extend(
                    comparison.compare_nodes(schema, now, "").into_iter().map(|line| format!("{name}: {line}")),
                );
            };
            compare("/requestBody/content/application~1json/schema", SchemaUse::Read);
            compare("/responses/200/content/application~1json/schema", SchemaUse::Written);
        }
    }
    found
}

struct SchemaComparison<'a> {
    before: &'a Json,
    after: &'a Json,
    usage: SchemaUse,
    /// References that are being compared: types may contain themselves.
    open: HashSet<(String, String)>,
}

impl<'a> SchemaComparison<'a> {
    fn compare_nodes(&mut self, before: &'a Json, after: &'a Json, path: &str) -> Vec<String> {
        let place = if path.is_empty() { "the document" } else { path };
        let references = before["$ref"].as_str().zip(after["$ref"].as_str());
        let references = references.map(|(before, after)| (before.to_owned(), after.to_owned()));
        if let Some(references) = &references
            && !self.open.insert(references.clone())
        {
            return Vec::new();
        }
        if after.is_null() {
            return vec![format!("{place}: removed")];
        }
        let before = Alternatives::collect(self.before, before);
        let after = Alternatives::collect(self.after, after);
        let mut found = Vec::new();
        let gone = &before.values - &after.values;
        // A value is removed only if the field still lists its values: free text allows all of them.
        if !after.values.is_empty() {
            found.extend(gone.iter().map(|value| format!("{place}: value {value} removed")));
        }
        let (narrow, wide) = match self.usage {
            SchemaUse::Written => (&after.types, &before.types),
            SchemaUse::Read => (&before.types, &after.types),
        };
        let is_covered = |kind: &&String| wide.contains(*kind) || *kind == "integer" && wide.contains("number");
        let is_retyped = !wide.is_empty() && (narrow.is_empty() || !narrow.iter().all(|kind| is_covered(&kind)))
            || before.types.iter().any(|kind| kind != "null") && after.types.iter().all(|kind| kind == "null");
        if is_retyped && !(before.types.is_empty() && after.types.is_empty()) {
            found.push(format!("{place}: type {:?} became {:?}", before.types, after.types));
            return found;
        }
        for object in &before.objects {
            // Of several shapes, the one that fits best is the one it became.
            let changes = after.objects.iter().map(|now| self.compare_objects(object, now, path));
            found.extend(changes.min_by_key(Vec::len).unwrap_or_default());
        }
        if let Some(references) = references {
            self.open.remove(&references);
        }
        found
    }

    fn compare_objects(&mut self, before: &'a Json, after: &'a Json, path: &str) -> Vec<String> {
        let mut found = Vec::new();
        for (name, schema) in objects(&before["properties"]) {
            let now = &after["properties"][name];
            found.extend(self.compare_nodes(schema, now, &format!("{path}.{name}")));
        }
        let required = |object: &Json| -> BTreeSet<String> {
            object["required"].as_array().into_iter().flatten().filter_map(Json::as_str).map(str::to_owned).collect()
        };
        let (before_required, after_required) = (required(before), required(after));
        match self.usage {
            SchemaUse::Written => {
                let optional = before_required.difference(&after_required);
                let is_there = |name: &&String| after["properties"].get(name).is_some();
                found.extend(optional.filter(is_there).map(|name| format!("{path}.{name}: may be absent now")));
            }
            SchemaUse::Read => {
                let demanded = after_required.difference(&before_required);
                found.extend(demanded.map(|name| format!("{path}.{name}: required now")));
            }
        }
        for keyword in ["items", "additionalProperties"] {
            if before[keyword].is_object() {
                found.extend(self.compare_nodes(&before[keyword], &after[keyword], &format!("{path}[]")));
            }
        }
        for (index, item) in before["prefixItems"].as_array().into_iter().flatten().enumerate() {
            found.extend(self.compare_nodes(item, &after["prefixItems"][index], &format!("{path}[{index}]")));
        }
        found
    }
}

/// What a value may be, with references resolved and `anyOf` and `oneOf` spread out.
#[derive(Default)]
struct Alternatives<'a> {
    types: BTreeSet<String>,
    values: BTreeSet<String>,
    /// Those with fields or elements.
    objects: Vec<&'a Json>,
}

impl<'a> Alternatives<'a> {
    fn collect(root: &'a Json, node: &'a Json) -> Alternatives<'a> {
        let mut found = Alternatives::default();
        found.add(root, node, 0);
        found
    }

    fn add(&mut self, root: &'a Json, node: &'a Json, depth: usize) {
        assert!(depth < 32, "a reference that leads to itself: {node}");
        if let Some(target) = node["$ref"].as_str() {
            let target = root.pointer(target.trim_start_matches('#')).unwrap_or_else(|| panic!("no {target}"));
            self.add(root, target, depth + 1);
        }
        for keyword in ["anyOf", "oneOf", "allOf"] {
            node[keyword].as_array().into_iter().flatten().for_each(|one| self.add(root, one, depth + 1));
        }
        match &node["type"] {
            Json::String(kind) => self.types.extend([kind.clone()]),
            Json::Array(kinds) => self.types.extend(kinds.iter().filter_map(Json::as_str).map(str::to_owned)),
            _ => {}
        }
        self.values.extend(node.get("const").map(Json::to_string));
        self.values.extend(node["enum"].as_array().into_iter().flatten().map(Json::to_string));
        if ["properties", "items", "prefixItems", "additionalProperties"].iter().any(|name| node.get(name).is_some()) {
            self.objects.push(node);
        }
    }
}

fn objects(json: &Json) -> impl Iterator<Item = (&String, &Json)> {
    json.as_object().into_iter().flatten()
}

/// Removes, renames and retypes every field of a schema in turn, each in a copy. What each copy is called, and the copy.
pub(crate) fn break_each_field(schema: &Json) -> BTreeMap<String, Json> {
    let mut broken = BTreeMap::new();
    let mut pointers = Vec::new();
    find_property_tables(schema, "", &mut pointers);
    for pointer in pointers {
        let names: Vec<String> = objects(schema.pointer(&pointer).unwrap()).map(|(name, _)| name.clone()).collect();
        for name in names {
            let mut change = |what: &str, change: &dyn Fn(&mut serde_json::Map<String, Json>)| {
                let mut copy = schema.clone();
                change(copy.pointer_mut(&pointer).unwrap().as_object_mut().unwrap());
                broken.insert(format!("{pointer}/{name} {what}"), copy);
            };
            change("removed", &|table| drop(table.remove(&name)));
            change("renamed", &|table| {
                let schema = table.remove(&name).unwrap();
                table.insert(format!("{name}_renamed"), schema);
            });
            // A field that may be anything has no type to lose.
            let schema = &schema.pointer(&pointer).unwrap()[&name];
            if !["type", "$ref", "anyOf", "oneOf"].iter().any(|keyword| schema.get(keyword).is_some()) {
                continue;
            }
            change("retyped", &|table| {
                // No field of ours is an array of nulls.
                table.insert(name.clone(), serde_json::json!({"type": "array", "items": {"type": "null"}}));
            });
        }
    }
    broken
}

fn find_property_tables(node: &Json, pointer: &str, found: &mut Vec<String>) {
    if node["properties"].is_object() {
        found.push(format!("{pointer}/properties"));
    }
    for (name, child) in objects(node) {
        find_property_tables(child, &format!("{pointer}/{name}"), found);
    }
    for (index, child) in node.as_array().into_iter().flatten().enumerate() {
        find_property_tables(child, &format!("{pointer}/{index}"), found);
    }
}
