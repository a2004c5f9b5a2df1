//! One page of spans. Spans are deserialised one by one, so that at most one of them is a JSON tree in memory.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value as Json};

/// Passes the objects in `data` to `take` and returns the cursor of the next page. Elements that are no objects are
/// skipped. An error of `take` becomes a JSON error and ends the page.
pub(super) fn read_span_page(
    body: &[u8],
    take: &mut dyn FnMut(Map<String, Json>) -> Result<(), std::io::Error>,
) -> Result<Option<String>, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let cursor = SpanPageVisitor { take }.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(cursor)
}

/// The cursor of the next page. Phoenix writes it at the end, where it is found without parsing the page. Quotation
/// marks in texts are escaped, so that a match at the end cannot be part of a text. Otherwise the whole page is parsed.
pub(super) fn next_cursor(body: &[u8]) -> Result<Option<String>, serde_json::Error> {
    const KEY: &[u8] = b"\"next_cursor\":";
    // Cursors are short base64 texts; a longer one is found by parsing the page.
    const MAX_CURSOR_BYTES: usize = 1024;
    let tail = &body[body.len().saturating_sub(MAX_CURSOR_BYTES)..];
    let at = tail.windows(KEY.len()).rposition(|window| window == KEY);
    let value = at.and_then(|at| tail[at + KEY.len()..].trim_ascii().strip_suffix(b"}"));
    if let Some(Ok(cursor)) = value.map(serde_json::from_slice::<Option<String>>) {
        return Ok(cursor.filter(|cursor| !cursor.is_empty()));
    }
    read_span_page(body, &mut |_| Ok(()))
}

/// Visits the page object.
struct SpanPageVisitor<'t> {
    take: &'t mut dyn FnMut(Map<String, Json>) -> Result<(), std::io::Error>,
}

impl<'de> DeserializeSeed<'de> for SpanPageVisitor<'_> {
    type Value = Option<String>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for SpanPageVisitor<'_> {
    type Value = Option<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a page with data and next_cursor")
    }

    /// `data` is required; without it the response is no page.
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut cursor = None;
        let mut has_data = false;
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "data" => {
                    has_data = true;
                    map.next_value_seed(SpanListVisitor { take: &mut *self.take })?;
                }
                "next_cursor" => cursor = map.next_value::<Option<String>>()?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        if !has_data {
            return Err(serde::de::Error::missing_field("data"));
        }
        Ok(cursor.filter(|cursor| !cursor.is_empty()))
    }
}

/// Visits the list of spans.
struct SpanListVisitor<'t> {
    take: &'t mut dyn FnMut(Map<String, Json>) -> Result<(), std::io::Error>,
}

impl<'de> DeserializeSeed<'de> for SpanListVisitor<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for SpanListVisitor<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    /// Each element is dropped before the next one is parsed.
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while let Some(element) = list.next_element::<Json>()? {
            if let Json::Object(object) = element {
                (self.take)(object).map_err(serde::de::Error::custom)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn names(body: &str) -> Option<(Vec<String>, Option<String>)> {
        let mut found = Vec::new();
        let cursor = read_span_page(body.as_bytes(), &mut |object| {
            found.push(object.get("name").and_then(Json::as_str).unwrap_or_default().to_owned());
            Ok(())
        });
        cursor.ok().map(|cursor| (found, cursor))
    }

    #[test]
    fn reads_spans_and_cursor_in_any_order() {
        let wanted = Some((vec!["a".to_owned(), "b".to_owned()], Some("c".to_owned())));
        assert_eq!(names(r#"{"data":[{"name":"a"},{"name":"b"}],"next_cursor":"c"}"#), wanted);
        assert_eq!(names(r#"{"next_cursor":"c","x":[1],"data":[{"name":"a"},5,{"name":"b"}]}"#), wanted);
        assert_eq!(names(r#"{"data":[],"next_cursor":null}"#), Some((vec![], None)));
        for wrong in ["", "{}", "[]", r#"{"data":null}"#, r#"{"data":[{"#, r#"{"data":[]} x"#] {
            assert_eq!(names(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_cursor_inside_a_span_is_none_of_the_page() {
        let body = r#"{"next_cursor":"right","data":[{"attributes":{"next_cursor":"wrong"}}]}"#;
        assert_eq!(next_cursor(body.as_bytes()).expect("a page").as_deref(), Some("right"));
        let body = r#"{"data":[{"name":"\"next_cursor\":\"wrong\"}"}],"next_cursor":null}"#;
        assert_eq!(next_cursor(body.as_bytes()).expect("a page"), None);
    }

    proptest! {
        /// The quick way and the long way agree on whatever stands in a page.
        #[test]
        fn the_end_says_what_the_whole_says(name in ".*", cursor in proptest::option::of(".{1,40}"), last in any::<bool>()) {
            let data = serde_json::json!([{"name": name, "attributes": {"next_cursor": name}}]);
            let (data, cursor_text) = (data.to_string(), serde_json::json!(cursor).to_string());
            let body = if last {
                format!("{{\"data\":{data},\"next_cursor\":{cursor_text}}}")
            } else {
                format!("{{\"next_cursor\":{cursor_text},\"data\":{data}}}")
            };
            prop_assert_eq!(next_cursor(body.as_bytes()).expect("a page"), cursor);
        }
    }
}
