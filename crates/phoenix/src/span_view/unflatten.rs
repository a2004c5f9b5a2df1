//! Dotted keys as a tree, built as Phoenix does.
//!
//! A number inside a key is an index into a list, unless a key ends with it or the list's own key has a value; then it
//! is a name like any other. Below a key that has a value, longer keys stay dotted beside it.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json};

/// Maximum number of times that a key is split; the rest stays one name. No convention nests deeper, and trees are
/// walked and dropped recursively.
const MAX_DEPTH: usize = 64;

/// A trie over the segments of keys.
#[derive(Default)]
pub(super) struct AttributeTree {
    root: AttributeNode,
}

/// A value, children, or both.
#[derive(Default)]
struct AttributeNode {
    /// The value of the key that ends here.
    value: Option<Json>,
    below: BTreeMap<KeySegment, AttributeBranch>,
}

/// One segment of a key. Indexes sort before names and numerically, which gives lists their order.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum KeySegment {
    /// A segment of digits. Whether it is an index or a name is decided when the tree is converted.
    Index(u64),
    Name(String),
}

/// A child with how it was reached.
#[derive(Default)]
struct AttributeBranch {
    /// A key ended here, so that a number is a name and not an index.
    is_end: bool,
    node: AttributeNode,
}

impl AttributeTree {
    /// Inserts a value. A later value for the same key replaces the earlier one; null is ignored.
    pub(super) fn insert(&mut self, key: &str, value: Json) {
        self.insert_by(key, value, |key| key.split_once('.'));
    }

    /// The same with another way to split a key into its first name and the rest; none if it is one name.
    pub(super) fn insert_by(&mut self, key: &str, value: Json, split: impl Fn(&str) -> Option<(&str, &str)>) {
        if value.is_null() {
            return;
        }
        let mut node = &mut self.root;
        let mut rest = key;
        for depth in 1.. {
            let (first, behind) = match split(rest) {
                Some(parts) if depth < MAX_DEPTH => parts,
                _ => (rest, ""),
            };
            let child = node.below.entry(KeySegment::parse(first)).or_default();
            child.is_end |= behind.is_empty();
            node = &mut child.node;
            if behind.is_empty() {
                break;
            }
            rest = behind;
        }
        node.value = Some(value);
    }

    /// Consumes the tree; values are moved, not copied.
    pub(super) fn into_map(self) -> Map<String, Json> {
        self.root.into_map()
    }
}

impl KeySegment {
    /// Trims white space, as Phoenix does. Only unsigned digits are an index.
    fn parse(text: &str) -> KeySegment {
        let text = text.trim();
        match text.parse() {
            // Signs are not digits.
            Ok(index) if text.bytes().all(|b| b.is_ascii_digit()) => KeySegment::Index(index),
            _ => KeySegment::Name(text.to_owned()),
        }
    }

    fn into_name(self) -> String {
        match self {
            KeySegment::Index(index) => index.to_string(),
            KeySegment::Name(name) => name,
        }
    }
}

impl AttributeNode {
    fn into_map(self) -> Map<String, Json> {
        let mut map = Map::new();
        self.write_under_prefix("", &mut map);
        map
    }

    /// Adds the node under `prefix`, and below it what cannot be nested because the prefix has a value or a list.
    fn write_under_prefix(self, prefix: &str, out: &mut Map<String, Json>) {
        let has_value = self.value.is_some();
        let (indices, names): (Vec<_>, Vec<_>) =
            self.below.into_iter().partition(|(segment, child)| is_index(segment, child) && !has_value);
        if let Some(value) = self.value {
            out.insert(prefix.to_owned(), value);
        // At the top level there is no list: numbers are names.
        } else if prefix.is_empty() {
            for (segment, child) in indices {
                child.node.write_under_prefix(&segment.into_name(), out);
            }
        } else if !indices.is_empty() {
            let items = indices.into_iter().map(|(_, child)| Json::Object(child.node.into_map()));
            out.insert(prefix.to_owned(), Json::Array(items.collect()));
        } else {
            let mut inside = Map::new();
            add_named_children(names, "", &mut inside);
            out.insert(prefix.to_owned(), Json::Object(inside));
            return;
        }
        add_named_children(names, prefix, out);
    }
}

/// Whether the child is an element of a list.
fn is_index(segment: &KeySegment, child: &AttributeBranch) -> bool {
    matches!(segment, KeySegment::Index(_)) && !child.is_end
}

/// Adds named children, with the prefix and a dot before their names if there is a prefix.
fn add_named_children(names: Vec<(KeySegment, AttributeBranch)>, prefix: &str, out: &mut Map<String, Json>) {
    for (segment, child) in names {
        let name = segment.into_name();
        let prefix = if prefix.is_empty() { name } else { format!("{prefix}.{name}") };
        child.node.write_under_prefix(&prefix, out);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tree(pairs: &[(&str, Json)]) -> Json {
        let mut tree = AttributeTree::default();
        for (key, value) in pairs {
            tree.insert(key, value.clone());
        }
        Json::Object(tree.into_map())
    }

    #[test]
    fn numbers_inside_a_key_are_indices() {
        let documents = [("d.1.c", json!("b")), ("d.0.c", json!("a")), ("d.10.c", json!("z"))];
        assert_eq!(tree(&documents), json!({"d": [{"c": "a"}, {"c": "b"}, {"c": "z"}]}));
        assert_eq!(tree(&[("t.0", json!("x")), ("t.1", json!("y"))]), json!({"t": {"0": "x", "1": "y"}}));
        assert_eq!(tree(&[("a.00.b", json!(1)), ("a.0.c", json!(2))]), json!({"a": [{"b": 1, "c": 2}]}));
        assert_eq!(tree(&[("a.-1.b", json!(1)), ("a.1x.b", json!(2))]), json!({"a": {"-1": {"b": 1}, "1x": {"b": 2}}}));
        assert_eq!(tree(&[("0.a", json!(1))]), json!({"0": {"a": 1}}));
        assert_eq!(tree(&[("a.0.1.b", json!(1))]), json!({"a": [{"1": {"b": 1}}]}));
    }

    #[test]
    fn beside_a_value_longer_keys_stay_dotted() {
        assert_eq!(tree(&[("a", json!({"b": 1})), ("a.c", json!(2))]), json!({"a": {"b": 1}, "a.c": 2}));
        assert_eq!(tree(&[("a.0.b", json!(1)), ("a", json!(2))]), json!({"a": 2, "a.0": {"b": 1}}));
        assert_eq!(tree(&[("a.0.b", json!(1)), ("a.x", json!(2))]), json!({"a": [{"b": 1}], "a.x": 2}));
        assert_eq!(tree(&[("a.0.b", json!(1)), ("a.0", json!(2))]), json!({"a": {"0": 2, "0.b": 1}}));
    }

    #[test]
    fn empty_and_padded_names() {
        assert_eq!(tree(&[("a..b", json!(1)), (" c . d ", json!(2))]), json!({"a": {"b": 1}, "c": {"d": 2}}));
        assert_eq!(tree(&[("", json!(1)), ("a.", json!(2))]), json!({"": 1, "a": 2}));
        assert_eq!(tree(&[("a", Json::Null)]), json!({}));
    }

    #[test]
    fn a_key_of_dots_only_is_bounded() {
        let deep = "a.".repeat(100_000) + "b";
        let mut depth = 0;
        let tree = tree(&[(&deep, json!(1))]);
        let mut at = &tree;
        while let Some(below) = at.as_object().and_then(|object| object.values().next()) {
            (at, depth) = (below, depth + 1);
        }
        assert_eq!((at, depth), (&json!(1), MAX_DEPTH));
    }
}
