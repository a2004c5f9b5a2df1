//! A span as one line of JSON. Serializes from borrowed spans, since attributes may be megabytes.

use gradus_core::span::{AttributeList, AttributeValue};
use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Serialize, Serializer};
use utoipa::ToSchema;

/// A span; one line of the response.
#[derive(Serialize, ToSchema)]
pub(super) struct SpanLine<'a> {
    pub(super) trace_id: String,
    pub(super) span_id: String,
    pub(super) parent_id: Option<String>,
    pub(super) name: &'a str,
    /// Kind of the span as OpenInference names it: `LLM`, `TOOL`, `AGENT`, `CHAIN` and others.
    pub(super) kind: Option<&'a str>,
    /// RFC 3339.
    pub(super) start: String,
    pub(super) end: String,
    /// `OK`, `ERROR` or `UNSET`.
    pub(super) status: &'static str,
    pub(super) status_message: Option<&'a str>,
    #[schema(value_type = Object)]
    pub(super) attributes: AttributeMap<'a>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) events: Vec<EventLine<'a>>,
}

/// An event of a span.
#[derive(Serialize, ToSchema)]
pub(super) struct EventLine<'a> {
    pub(super) name: &'a str,
    pub(super) time: String,
    #[schema(value_type = Object)]
    pub(super) attributes: AttributeMap<'a>,
}

/// Attributes as a JSON object, serialized without a copy.
pub(super) struct AttributeMap<'a> {
    pub(super) attributes: &'a AttributeList<'a>,
    /// Names of the attributes to write; all if empty.
    pub(super) only: &'a [String],
}

impl AttributeMap<'_> {
    /// Formats one attribute as a CSV cell: strings unchanged, other values as JSON, empty if it is missing.
    pub(super) fn format_cell(&self, name: &str) -> String {
        match self.attributes.get(name) {
            None | Some(AttributeValue::Null) => String::new(),
            Some(AttributeValue::Str(text)) => text.to_string(),
            Some(other) => other.to_json().to_string(),
        }
    }
}

impl Serialize for AttributeMap<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, value) in self.attributes.iter() {
            if self.only.is_empty() || self.only.iter().any(|wanted| wanted == name) {
                map.serialize_entry(name, &SpanAttributeValue(value))?;
            }
        }
        map.end()
    }
}

/// Serializes a value of OTLP's `AnyValue`. Bytes become a string with replacement characters, since JSON has no bytes;
/// NaN and infinities become null.
pub(super) struct SpanAttributeValue<'a>(&'a AttributeValue<'a>);

impl Serialize for SpanAttributeValue<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            AttributeValue::Null => serializer.serialize_unit(),
            AttributeValue::Bool(value) => serializer.serialize_bool(*value),
            AttributeValue::Int(value) => serializer.serialize_i64(*value),
            AttributeValue::Double(value) => serializer.serialize_f64(*value),
            AttributeValue::Str(text) => serializer.serialize_str(text),
            AttributeValue::Bytes(bytes) => serializer.serialize_str(&String::from_utf8_lossy(bytes)),
            AttributeValue::Array(items) => {
                let mut list = serializer.serialize_seq(Some(items.len()))?;
                for item in items {
                    list.serialize_element(&SpanAttributeValue(item))?;
                }
                list.end()
            }
            AttributeValue::Map(entries) => {
                let mut map = serializer.serialize_map(Some(entries.len()))?;
                for (name, value) in entries {
                    map.serialize_entry(name, &SpanAttributeValue(value))?;
                }
                map.end()
            }
        }
    }
}
