//! Attributes, numbers and ids, in all the ways that senders write them.

use std::borrow::Cow;
use std::fmt;

use base64::Engine as _;
use gradus_core::span::{AttributeList, AttributeValue, SpanId, TraceId};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::limits::RecordLimits;

/// A list of `KeyValue` objects. The number is bounded, null is an empty list, and duplicates are kept in order.
#[derive(Default)]
pub(super) struct KeyValues(pub(super) AttributeList<'static>);

/// `KeyValue`. A missing value is null.
#[derive(Deserialize)]
struct KeyValueJson {
    #[serde(default)]
    key: String,
    #[serde(default)]
    value: Option<AnyValue>,
}

impl<'de> Deserialize<'de> for KeyValues {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KeyValuesVisitor;
        impl<'de> Visitor<'de> for KeyValuesVisitor {
            type Value = KeyValues;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of attributes")
            }

            fn visit_unit<E>(self) -> Result<KeyValues, E> {
                Ok(KeyValues::default())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<KeyValues, A::Error> {
                let limit = RecordLimits::default().attributes;
                let mut pairs = Vec::new();
                while let Some(KeyValueJson { key, value }) = list.next_element()? {
                    // The limit of one list. The number of values of the whole record was checked before.
                    if pairs.len() == limit {
                        return Err(A::Error::custom(format!("more than {limit} attributes (limit {limit})")));
                    }
                    pairs.push((Cow::Owned(key), value.map_or(AttributeValue::Null, |value| value.0)));
                }
                Ok(KeyValues(AttributeList(pairs)))
            }
        }
        deserializer.deserialize_any(KeyValuesVisitor)
    }
}

/// An `AnyValue` object. Null, an empty object and an unknown type of value are all null.
pub(super) struct AnyValue(pub(super) AttributeValue<'static>);

impl<'de> Deserialize<'de> for AnyValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnyValueVisitor;
        impl<'de> Visitor<'de> for AnyValueVisitor {
            type Value = AnyValue;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with one of stringValue, intValue, ...")
            }

            fn visit_unit<E>(self) -> Result<AnyValue, E> {
                Ok(AnyValue(AttributeValue::Null))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<AnyValue, A::Error> {
                let mut value = AttributeValue::Null;
                while let Some(key) = map.next_key::<Cow<'_, str>>()? {
                    value = match key.as_ref() {
                        "stringValue" | "string_value" => map
                            .next_value::<Option<String>>()?
                            .map_or(AttributeValue::Null, |text| AttributeValue::Str(Cow::Owned(text))),
                        "boolValue" | "bool_value" => AttributeValue::Bool(map.next_value()?),
                        "intValue" | "int_value" => AttributeValue::Int(map.next_value::<I64>()?.0),
                        "doubleValue" | "double_value" => AttributeValue::Double(map.next_value::<FloatJson>()?.0),
                        "bytesValue" | "bytes_value" => {
                            AttributeValue::Bytes(Cow::Owned(base64_bytes(&map.next_value::<String>()?)))
                        }
                        "arrayValue" | "array_value" => {
                            let list = map.next_value::<ArrayJson>()?.values;
                            AttributeValue::Array(list.into_iter().map(|item| item.0).collect())
                        }
                        "kvlistValue" | "kvlist_value" => AttributeValue::Map(map.next_value::<MapJson>()?.values.0.0),
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                            value
                        }
                    };
                }
                Ok(AnyValue(value))
            }
        }
        deserializer.deserialize_any(AnyValueVisitor)
    }
}

/// `ArrayValue`. Its depth is bounded by serde_json's recursion limit of 128.
#[derive(Deserialize)]
struct ArrayJson {
    #[serde(default)]
    values: Vec<AnyValue>,
}

/// `KeyValueList`.
#[derive(Deserialize)]
struct MapJson {
    #[serde(default)]
    values: KeyValues,
}

/// An enum of protobuf: its number (the specification) or its name (protobuf's own JSON mapping). A value of another
/// type is ignored, so that an odd `kind` does not cost a span.
pub(super) enum ProtoEnumJson {
    Number(u64),
    Text(String),
    Other,
}

impl<'de> Deserialize<'de> for ProtoEnumJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ProtoEnumVisitor;
        impl<'de> Visitor<'de> for ProtoEnumVisitor {
            type Value = ProtoEnumJson;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number or a name")
            }

            fn visit_u64<E>(self, number: u64) -> Result<ProtoEnumJson, E> {
                Ok(ProtoEnumJson::Number(number))
            }

            fn visit_i64<E>(self, _: i64) -> Result<ProtoEnumJson, E> {
                Ok(ProtoEnumJson::Other)
            }

            fn visit_f64<E>(self, _: f64) -> Result<ProtoEnumJson, E> {
                Ok(ProtoEnumJson::Other)
            }

            fn visit_bool<E>(self, _: bool) -> Result<ProtoEnumJson, E> {
                Ok(ProtoEnumJson::Other)
            }

            fn visit_unit<E>(self) -> Result<ProtoEnumJson, E> {
                Ok(ProtoEnumJson::Other)
            }

            fn visit_str<E>(self, text: &str) -> Result<ProtoEnumJson, E> {
                Ok(ProtoEnumJson::Text(text.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<ProtoEnumJson, A::Error> {
                while list.next_element::<IgnoredAny>()?.is_some() {}
                Ok(ProtoEnumJson::Other)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ProtoEnumJson, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(ProtoEnumJson::Other)
            }
        }
        deserializer.deserialize_any(ProtoEnumVisitor)
    }
}

/// Structural characters per value: an attribute has at least four of `{`, `[` and `,` around it.
const SIGNS_PER_VALUE: usize = 4;

/// Why a record in JSON is left out. The rest of its document is still read.
#[derive(Debug, thiserror::Error)]
pub(super) enum WireJsonError {
    #[error("more than {limit} attributes, events, links and values (limit {limit})")]
    TooManyValues { limit: usize },
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

/// Rejects a record with too many values before it is parsed: in memory, an empty object takes many times the bytes that
/// it is written in.
pub(super) fn check_value_count(json: &str) -> Result<(), WireJsonError> {
    let limit = RecordLimits::default().attributes;
    let (mut signs, mut is_text, mut is_escaped) = (0, false, false);
    for byte in json.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_text => is_escaped = true,
            b'"' => is_text = !is_text,
            // b'[' | b',' if !is_text => signs += 1, | Inside of texts these characters have no meaning.
            b'{' | b'[' | b',' if !is_text => signs += 1,
            _ => {}
        }
    }
    if signs > limit * SIGNS_PER_VALUE {
        return Err(WireJsonError::TooManyValues { limit });
    }
    Ok(())
}

/// A number as a JSON number, as a text (the form of the specification for 64-bit integers), or as a float (from
/// JavaScript). A number out of range becomes the nearest one; null is 0.
macro_rules! flexible_number {
    ($name:ident, $number:ty) => {
        #[derive(Default)]
        pub(super) struct $name(pub(super) $number);

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct NumberVisitor;
                impl Visitor<'_> for NumberVisitor {
                    type Value = $name;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str("a number, or a text with one")
                    }

                    fn visit_unit<E>(self) -> Result<$name, E> {
                        Ok($name::default())
                    }

                    fn visit_i64<E>(self, number: i64) -> Result<$name, E> {
                        Ok($name(<$number>::try_from(number).unwrap_or_default()))
                    }

                    fn visit_u64<E>(self, number: u64) -> Result<$name, E> {
                        Ok($name(<$number>::try_from(number).unwrap_or(<$number>::MAX)))
                    }

                    fn visit_f64<E>(self, number: f64) -> Result<$name, E> {
                        Ok($name(number as $number))
                    }

                    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<$name, E> {
                        text.parse().map($name).map_err(|_| E::custom(format!("{text:?} is not a number")))
                    }
                }
                deserializer.deserialize_any(NumberVisitor)
            }
        }
    };
}

flexible_number!(U64, u64);
flexible_number!(I64, i64);

/// A float as a number or as a text: `NaN` and `Infinity` have no form as a JSON number.
#[derive(Default)]
struct FloatJson(f64);

impl<'de> Deserialize<'de> for FloatJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        // serde tries the variants in order.
        enum FloatForm {
            Number(f64),
            Text(String),
        }
        match FloatForm::deserialize(deserializer)? {
            FloatForm::Number(number) => Ok(FloatJson(number)),
            FloatForm::Text(text) => {
                text.parse().map(FloatJson).map_err(|_| D::Error::custom(format!("{text:?} is not a number")))
            }
        }
    }
}

/// A trace id in hexadecimal (the specification) or in base64 (protobuf's own JSON mapping).
#[derive(Default)]
pub(super) struct TraceIdJson {
    pub(super) id: TraceId,
    /// Whether it has the right number of hexadecimal digits, or is base64 of the right length.
    pub(super) is_exact: bool,
}

/// As [`TraceIdJson`], for the eight bytes of a span id.
#[derive(Default)]
pub(super) struct SpanIdJson {
    pub(super) id: SpanId,
    pub(super) is_exact: bool,
}

impl<'de> Deserialize<'de> for TraceIdJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Option::<Cow<'_, str>>::deserialize(deserializer)?.unwrap_or_default();
        let (id, is_exact) = match <[u8; 16]>::try_from(base64_id(&text, 24)) {
            Ok(bytes) => (TraceId(u128::from_be_bytes(bytes)), true),
            Err(_) => (TraceId::parse(&text), is_hexadecimal(&text, 32)),
        };
        Ok(TraceIdJson { id, is_exact })
    }
}

impl<'de> Deserialize<'de> for SpanIdJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Option::<Cow<'_, str>>::deserialize(deserializer)?.unwrap_or_default();
        let (id, is_exact) = match <[u8; 8]>::try_from(base64_id(&text, 12)) {
            Ok(bytes) => (SpanId(u64::from_be_bytes(bytes)), true),
            Err(_) => (SpanId::parse(&text), is_hexadecimal(&text, 16)),
        };
        Ok(SpanIdJson { id, is_exact })
    }
}

/// An absent id is well-formed; whether it may be absent is checked elsewhere.
fn is_hexadecimal(text: &str, digits: usize) -> bool {
    text.is_empty() || (text.len() == digits && text.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Base64 and hexadecimal ids differ in length, which is enough to tell them apart. Empty if it is not base64.
fn base64_id(text: &str, length: usize) -> Vec<u8> {
    if text.len() == length { base64_bytes(text) } else { Vec::new() }
}

/// Standard alphabet with padding. Invalid text becomes empty.
fn base64_bytes(text: &str) -> Vec<u8> {
    base64::engine::general_purpose::STANDARD.decode(text).unwrap_or_default()
}
