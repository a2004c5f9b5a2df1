//! JSON that is passed on as text. Every model call carries its tool schemas, which are rarely read: keeping them as
//! text avoids parsing each one.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use serde_json::value::RawValue;

/// Well-formed JSON on one line. Equality compares the text, so the order of keys matters.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct RawJson(Box<RawValue>);

impl RawJson {
    /// Takes JSON text that `serde_json` has already checked.
    pub fn from_raw(raw: &RawValue) -> RawJson {
        if !raw.get().contains(['\n', '\r']) {
            return RawJson(raw.to_owned());
        }
        // A line of output must stay one line. JSON allows line breaks only between tokens, where they are
        // whitespace.
        let one_line = raw.get().replace(['\n', '\r'], " ");
        RawJson(RawValue::from_string(one_line).unwrap_or_else(|_| RawValue::NULL.to_owned()))
    }

    /// Serialises a tree. Serialising a `Value` cannot fail; null is an unreachable fallback.
    pub fn from_value(json: &Json) -> RawJson {
        let raw = serde_json::value::to_raw_value(json);
        RawJson(raw.unwrap_or_else(|_| RawValue::NULL.to_owned()))
    }

    /// Parses text; `None` if it is not a JSON object.
    pub fn parse_object(text: &str) -> Option<RawJson> {
        let raw: &RawValue = serde_json::from_str(text).ok()?;
        raw.get().starts_with('{').then(|| RawJson::from_raw(raw))
    }

    pub fn as_str(&self) -> &str {
        self.0.get()
    }

    /// Parses the text into a tree.
    pub fn to_value(&self) -> Json {
        serde_json::from_str(self.as_str()).unwrap_or_default()
    }
}

impl PartialEq for RawJson {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl<'de> Deserialize<'de> for RawJson {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::<RawValue>::deserialize(deserializer).map(|raw| RawJson::from_raw(&raw))
    }
}

// Any JSON: the schema of a tool is not ours to describe.
impl JsonSchema for RawJson {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Json".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        Schema::default()
    }
}
