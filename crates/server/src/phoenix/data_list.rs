//! Reads `{"data": [...]}`, the form in which Phoenix clients send many items. Items are passed on one by one and
//! unparsed, so that only one of them is held as parsed values at a time.

use std::borrow::Cow;
use std::fmt;

use axum::http::StatusCode;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::error::PhoenixApiError;

/// Calls `visit` with each item and its index, until one is refused. Other keys are ignored.
pub(super) fn visit_data_list(
    text: &[u8],
    max_items: usize,
    visit: &mut dyn FnMut(usize, &RawValue) -> Result<(), PhoenixApiError>,
) -> Result<(), PhoenixApiError> {
    let mut refused = None;
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let mut list = DataList { max_items, visit, refused: &mut refused };
    let read = deserializer.deserialize_map(DataDocument(&mut list)).and_then(|()| deserializer.end());
    match (refused, read) {
        (Some(refused), _) => Err(refused),
        (None, Ok(())) => Ok(()),
        (None, Err(error)) => Err(PhoenixApiError::invalid_body(&[], &format!("the body cannot be read: {error}"))),
    }
}

/// The seed of the list. serde's errors are texts, so a refusal is carried out through `refused`.
struct DataList<'v> {
    max_items: usize,
    visit: &'v mut dyn FnMut(usize, &RawValue) -> Result<(), PhoenixApiError>,
    /// The refusal that ended the reading early.
    refused: &'v mut Option<PhoenixApiError>,
}

/// The visitor of the outer object.
struct DataDocument<'l, 'v>(&'l mut DataList<'v>);

impl<'de> Visitor<'de> for DataDocument<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with a list `data`")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut has_data = false;
        while let Some(key) = map.next_key::<Cow<'_, str>>()? {
            if key != "data" {
                map.next_value::<IgnoredAny>()?;
            // Two lists could be interpreted differently by client and server.
            } else if std::mem::replace(&mut has_data, true) {
                return Err(A::Error::duplicate_field("data"));
            } else {
                map.next_value_seed(&mut *self.0)?;
            }
        }
        if has_data { Ok(()) } else { Err(A::Error::missing_field("data")) }
    }
}

impl<'de> DeserializeSeed<'de> for &mut DataList<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for &mut DataList<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let mut index = 0;
        while let Some(item) = list.next_element::<&'de RawValue>()? {
            let visited = if index < self.max_items {
                (self.visit)(index, item)
            } else {
                let max = self.max_items;
                Err(PhoenixApiError::new(
                    StatusCode::PAYLOAD_TOO_LARGE,
                    format!("more than {max} items in one request; send at most {max} at a time"),
                ))
            };
            if let Err(error) = visited {
                *self.refused = Some(error);
                return Err(A::Error::custom("refused"));
            }
            index += 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_come_one_by_one() {
        let seen = |text: &str| {
            let mut seen = Vec::new();
            let read = visit_data_list(text.as_bytes(), 3, &mut |index, item| {
                seen.push(format!("{index}{}", item.get()));
                Ok(())
            });
            (seen, read.is_ok())
        };
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<String>>();
        assert_eq!(seen(r#"{"x": [1], "data": [{}, 2]}"#), (texts(&["0{}", "12"]), true));
        assert_eq!(seen(r#"{"data": []}"#), (Vec::new(), true));
        assert_eq!(seen(r#"{"data": [1, 2, 3, 4]}"#), (texts(&["01", "12", "23"]), false));
        for wrong in [r#"{"data": [1}"#, "{}", "[]", r#"{"data": {}}"#, r#"{"data": []} x"#, ""] {
            assert!(!seen(wrong).1, "{wrong}");
        }
    }
}
