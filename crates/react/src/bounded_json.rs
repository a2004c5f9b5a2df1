//! JSON inside attributes, read within a node budget.
//!
//! A parsed `serde_json::Value` takes up to 90 times the memory of its text (`[[0],[0],…]`), so a small compressed
//! request could ask for gigabytes. Every reader of recorded JSON goes through here: text with more than
//! [`MAX_JSON_NODES`] values is treated like text that is no JSON at all, and stays available as text.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value as Json};

/// Maximum number of values in one JSON text: scalars, arrays, objects. A conversation of 10,000 messages has fewer,
/// and a tree of this many takes at most 25 MB.
pub const MAX_JSON_NODES: usize = 100_000;

/// Why a text was not read as JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoundedJsonError {
    Malformed,
    /// Well-formed so far, but larger than the budget.
    TooManyNodes,
}

/// Parses a whole text.
pub fn parse_bounded_json(text: &str) -> Option<Json> {
    parse_with_node_limit(text, MAX_JSON_NODES).ok().map(|(json, _)| json)
}

/// Parses a whole text that may have up to `max_nodes` values. Returns the tree and its number of values.
pub fn parse_with_node_limit(text: &str, max_nodes: usize) -> Result<(Json, usize), BoundedJsonError> {
    let budget = NodeBudget(Cell::new(max_nodes));
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let json = ValueSeed(&budget).deserialize(&mut deserializer).and_then(|json| deserializer.end().map(|()| json));
    json.map(|json| (json, max_nodes - budget.0.get())).map_err(|_| budget.classify_error())
}

/// Parses the value that `text` begins with. Returns it and the text after it.
pub fn parse_prefix(text: &str) -> Result<(Json, &str), BoundedJsonError> {
    let budget = NodeBudget(Cell::new(MAX_JSON_NODES));
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let json = ValueSeed(&budget).deserialize(&mut deserializer).map_err(|_| budget.classify_error())?;
    // The deserializer does not say how far it came, but the stream over the same text does.
    let mut stream = serde_json::Deserializer::from_str(text).into_iter::<IgnoredAny>();
    match stream.next() {
        Some(Ok(_)) => Ok((json, &text[stream.byte_offset()..])),
        _ => Err(BoundedJsonError::Malformed),
    }
}

/// The items of an array, not parsed any further.
pub fn raw_items(text: &str) -> Option<Vec<&RawValue>> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let items = deserializer.deserialize_seq(RawItems).ok()?;
    deserializer.end().ok()?;
    Some(items)
}

/// The fields of an object, not parsed any further.
pub fn raw_fields(text: &str) -> Option<Vec<(Cow<'_, str>, &RawValue)>> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let fields = deserializer.deserialize_map(RawFields).ok()?;
    deserializer.end().ok()?;
    Some(fields)
}

/// Counts the values of a tree.
pub fn count_nodes(json: &Json) -> usize {
    match json {
        Json::Array(items) => 1 + items.iter().map(count_nodes).sum::<usize>(),
        Json::Object(fields) => 1 + fields.values().map(count_nodes).sum::<usize>(),
        _ => 1,
    }
}

/// The number of values that may still be built.
struct NodeBudget(Cell<usize>);

impl NodeBudget {
    fn take_node<E: Error>(&self) -> Result<(), E> {
        match self.0.get().checked_sub(1) {
            Some(left) => {
                self.0.set(left);
                Ok(())
            }
            None => {
                // Marks the budget as exceeded: a budget that was used up exactly is no error.
                self.0.set(usize::MAX);
                Err(E::custom("too many values"))
            }
        }
    }

    fn classify_error(&self) -> BoundedJsonError {
        if self.0.get() == usize::MAX { BoundedJsonError::TooManyNodes } else { BoundedJsonError::Malformed }
    }
}

#[derive(Clone, Copy)]
struct ValueSeed<'b>(&'b NodeBudget);

impl<'de> DeserializeSeed<'de> for ValueSeed<'_> {
    type Value = Json;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Json, D::Error> {
        self.0.take_node()?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueSeed<'_> {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
        Ok(Json::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
        Ok(Json::from(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Json, E> {
        Ok(Json::from(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Json, E> {
        Ok(Json::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Json, E> {
        Ok(Json::String(value))
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Json, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = sequence.next_element_seed(self)? {
            items.push(item);
        }
        Ok(Json::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json, A::Error> {
        let mut object = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            object.insert(key, map.next_value_seed(self)?);
        }
        Ok(Json::Object(object))
    }
}

struct RawItems;

impl<'de> Visitor<'de> for RawItems {
    type Value = Vec<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = sequence.next_element()? {
            if items.len() == MAX_JSON_NODES {
                return Err(A::Error::custom("too many items"));
            }
            items.push(item);
        }
        Ok(items)
    }
}

struct RawFields;

impl<'de> Visitor<'de> for RawFields {
    type Value = Vec<(Cow<'de, str>, &'de RawValue)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = Vec::new();
        while let Some(BorrowedKey(key)) = map.next_key()? {
            if fields.len() == MAX_JSON_NODES {
                return Err(A::Error::custom("too many fields"));
            }
            fields.push((key, map.next_value()?));
        }
        Ok(fields)
    }
}

/// serde copies a plain `Cow`; this one borrows where the text has no escapes.
#[derive(serde::Deserialize)]
struct BorrowedKey<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_dense_text_is_refused_before_it_is_built() {
        let dense = format!("[{}[0]]", "[0],".repeat(1_000_000));
        assert_eq!(parse_with_node_limit(&dense, MAX_JSON_NODES), Err(BoundedJsonError::TooManyNodes));
        assert_eq!(parse_bounded_json(&dense), None);
        let wide = format!("{{\"a\":[{}0]}}", "0,".repeat(MAX_JSON_NODES));
        assert_eq!(parse_with_node_limit(&wide, MAX_JSON_NODES), Err(BoundedJsonError::TooManyNodes));
        assert!(raw_items(&format!("[{}0]", "0,".repeat(MAX_JSON_NODES))).is_none());
        let objects = format!("{{{}\"z\":0}}", "\"\":0,".repeat(MAX_JSON_NODES));
        assert!(raw_fields(&objects).is_none());
    }

    #[test]
    fn a_budget_that_is_used_up_exactly_is_enough() {
        assert_eq!(parse_with_node_limit("[1,2]", 3), Ok((serde_json::json!([1, 2]), 3)));
        assert_eq!(parse_with_node_limit("[1,2]", 2), Err(BoundedJsonError::TooManyNodes));
        assert_eq!(parse_with_node_limit("[1,", 2), Err(BoundedJsonError::Malformed));
    }

    #[test]
    fn a_prefix_ends_where_its_value_ends() {
        let (json, rest) = parse_prefix(" {\"a\": [1]} and text").unwrap();
        assert_eq!((json, rest), (serde_json::json!({"a": [1]}), " and text"));
        assert_eq!(parse_prefix("12 13").unwrap(), (serde_json::json!(12), " 13"));
    }

    proptest! {
        #[test]
        fn reads_what_serde_json_reads(text in r#"[\[\]{}:,"a0-9.e\- ]{0,24}"#) {
            prop_assert_eq!(parse_bounded_json(&text), serde_json::from_str::<Json>(&text).ok());
        }
    }
}
