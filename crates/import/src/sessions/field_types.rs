//! Field types for typed records. Each reads any JSON value, so that one field of an unexpected type does not cost the
//! whole record: what is not of the type counts as absent. Texts are borrowed from the record where they can be.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// A text, or nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TextField<'a>(pub(crate) Option<Cow<'a, str>>);

impl TextField<'_> {
    /// Returns the text; `None` if it is missing or empty.
    pub(crate) fn get(&self) -> Option<&str> {
        self.0.as_deref().filter(|text| !text.is_empty())
    }
}

/// A number that counts something. Negative numbers and other values count as 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CountField(pub(crate) u64);

/// A number, or nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct NumberField(pub(crate) Option<f64>);

/// `true`, or anything else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FlagField(pub(crate) bool);

/// What a JSON value is, as far as these fields care.
enum Scalar<'a> {
    Text(Cow<'a, str>),
    Number(f64),
    Count(u64),
    Flag(bool),
    Other,
}

struct ScalarVisitor;

impl<'de> Visitor<'de> for ScalarVisitor {
    type Value = Scalar<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Scalar::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Scalar::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_string<E>(self, text: String) -> Result<Self::Value, E> {
        Ok(Scalar::Text(Cow::Owned(text)))
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Self::Value, E> {
        Ok(Scalar::Flag(flag))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
        Ok(Scalar::Count(number))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Self::Value, E> {
        Ok(Scalar::Number(number as f64))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Self::Value, E> {
        Ok(Scalar::Number(number))
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Scalar::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Scalar::Other)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Scalar::Other)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for TextField<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let scalar = deserializer.deserialize_any(ScalarVisitor)?;
        Ok(TextField(match scalar {
            Scalar::Text(text) => Some(text),
            _ => None,
        }))
    }
}

impl<'de> Deserialize<'de> for CountField {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let scalar = deserializer.deserialize_any(ScalarVisitor)?;
        // `as` saturates, so a huge or negative number is harmless.
        Ok(CountField(match scalar {
            Scalar::Count(count) => count,
            Scalar::Number(number) => number as u64,
            _ => 0,
        }))
    }
}

impl<'de> Deserialize<'de> for NumberField {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let scalar = deserializer.deserialize_any(ScalarVisitor)?;
        Ok(NumberField(match scalar {
            Scalar::Count(count) => Some(count as f64),
            Scalar::Number(number) => Some(number),
            _ => None,
        }))
    }
}

impl<'de> Deserialize<'de> for FlagField {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let scalar = deserializer.deserialize_any(ScalarVisitor)?;
        Ok(FlagField(matches!(scalar, Scalar::Flag(true))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Deserialize)]
    #[serde(default)]
    #[derive(Default)]
    struct Record<'a> {
        #[serde(borrow)]
        text: TextField<'a>,
        count: CountField,
        flag: FlagField,
    }

    #[test]
    fn wrong_types_cost_only_their_field() {
        let line = r#"{"text": {"a": [1, {"b": 2}]}, "count": "7", "flag": 1}"#;
        let record: Record<'_> = serde_json::from_str(line).unwrap();
        assert_eq!((record.text.get(), record.count.0, record.flag.0), (None, 0, false));
        let line = r#"{"text": "plain", "count": 1e300, "flag": true}"#;
        let record: Record<'_> = serde_json::from_str(line).unwrap();
        assert!(matches!(record.text.0, Some(Cow::Borrowed("plain"))), "not copied");
        assert_eq!((record.count.0, record.flag.0), (u64::MAX, true));
    }
}
