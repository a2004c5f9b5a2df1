//! The tree of attributes as dotted keys again, as Phoenix lists spans. Lists are flattened only if they contain
//! objects, and then only their objects are listed; other elements of such a list are lost, in Phoenix as here.

use serde_json::{Map, Value as Json};

use gradus_core::path_budget::PathBudget;

/// Bounded by a [`PathBudget`]: nested keys multiply in length, so a small span could otherwise have a huge listing.
pub(super) fn flatten_attributes(attributes: &Map<String, Json>) -> Map<String, Json> {
    let mut flat = Map::new();
    flatten_object("", attributes, &mut PathBudget::default(), &mut flat);
    flat
}

/// Values that exceed the budget stay as JSON under their path.
fn flatten_object(prefix: &str, object: &Map<String, Json>, budget: &mut PathBudget, out: &mut Map<String, Json>) {
    for (key, value) in object {
        let path = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        match value {
            Json::Null => {}
            Json::Object(below) if budget.try_open_path(&path, below.len()) => {
                flatten_object(&path, below, budget, out);
            }
            Json::Array(items)
                if items.iter().any(Json::is_object) && budget.try_open_path(&path, count_list_values(items)) =>
            {
                for (index, item) in items.iter().enumerate() {
                    if let Json::Object(below) = item {
                        flatten_object(&format!("{path}.{index}"), below, budget, out);
                    }
                }
            }
            other => {
                out.insert(path, other.clone());
            }
        }
    }
}

/// Counts the values in the objects of a list, which the budget charges.
pub(super) fn count_list_values(items: &[Json]) -> usize {
    items.iter().filter_map(Json::as_object).map(Map::len).sum()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lists_are_opened_where_objects_are() {
        let tree = json!({
            "a": {"b": 1, "none": null, "empty": {}},
            "messages": [{"role": "user"}, "lost", {"role": "tool", "parts": [{"n": 1}]}],
            "tags": ["x", null],
            "lists": [[{"kept": true}]],
        });
        let flat = flatten_attributes(tree.as_object().unwrap());
        let wanted = json!({
            "a.b": 1,
            "messages.0.role": "user",
            "messages.2.role": "tool",
            "messages.2.parts.0.n": 1,
            "tags": ["x", null],
            "lists": [[{"kept": true}]],
        });
        assert_eq!(Json::Object(flat), wanted);
    }
}
