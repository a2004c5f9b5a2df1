//! The neutral span: one recorded operation, independent of the wire format.
//!
//! Texts are borrowed from the bytes they were decoded from wherever possible: most of a trace is never read, so it
//! should not be copied either. Decoding is in `gradus-otlp` and in `span_json`.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// A trace's 16-byte identifier. All zero means "none", as in OTLP.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct TraceId(pub u128);

/// A span's 8-byte identifier. All zero means "none", as in OTLP.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct SpanId(pub u64);

/// One recorded operation. Fields of OTLP that no dialect needs (kind, links, trace state, dropped counts) are not
/// here.
#[derive(Clone, Debug, Default)]
pub struct Span<'a> {
    pub trace_id: TraceId,
    pub span_id: SpanId,
    pub parent_id: Option<SpanId>,
    pub name: Cow<'a, str>,
    /// Times are nanoseconds since the Unix epoch by the clock of the sender. Zero if they are missing, and the end can
    /// be before the start.
    pub start_ns: u64,
    pub end_ns: u64,
    pub status: SpanStatus<'a>,
    pub attributes: AttributeList<'a>,
    pub events: Vec<SpanEvent<'a>>,
    /// Name of the instrumentation that made the span.
    pub scope: Cow<'a, str>,
    pub resource: Arc<SpanResource>,
}

/// The origin of a span: a service with its version. Shared by all spans of one request, hence the `Arc`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SpanResource {
    pub attributes: AttributeList<'static>,
}

/// An event of a span at one moment. Log records that name a span become events of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SpanEvent<'a> {
    pub name: Cow<'a, str>,
    pub time_ns: u64,
    pub attributes: AttributeList<'a>,
    /// The body of a log record; events of spans have none.
    pub body: Option<AttributeValue<'a>>,
}

/// The outcome of the operation as the instrumentation set it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SpanStatus<'a> {
    pub code: StatusCode,
    pub message: Cow<'a, str>,
}

/// OTLP's status codes. Most instrumentations leave a success unset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StatusCode {
    #[default]
    Unset,
    Ok,
    Error,
}

/// The value of an attribute, as `AnyValue` in OTLP. A map keeps its order and may have duplicate keys.
#[derive(Clone, Debug, PartialEq)]
pub enum AttributeValue<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Double(f64),
    Str(Cow<'a, str>),
    Bytes(Cow<'a, [u8]>),
    Array(Vec<AttributeValue<'a>>),
    Map(Vec<(Cow<'a, str>, AttributeValue<'a>)>),
}

/// Attributes in the order in which they were recorded. Keys should be unique, but nothing guarantees that; the first
/// wins. A list and not a map: spans have few attributes, and most are read once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AttributeList<'a>(pub Vec<(Cow<'a, str>, AttributeValue<'a>)>);

impl PartialEq for Span<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.trace_id == other.trace_id
            && self.span_id == other.span_id
            && self.parent_id == other.parent_id
            && self.name == other.name
            && self.start_ns == other.start_ns
            && self.end_ns == other.end_ns
            && self.status == other.status
            && self.attributes == other.attributes
            && self.events == other.events
            && self.scope == other.scope
            // Spans of one request share their resource, so pointers are compared first.
            && (Arc::ptr_eq(&self.resource, &other.resource) || self.resource == other.resource)
    }
}

impl<'a> Span<'a> {
    /// The text of an attribute; `None` if it is missing, empty or not a text.
    pub fn attribute_text(&self, key: &str) -> Option<&str> {
        self.attributes.get_text(key)
    }

    /// By the status of the span. Tools that report errors in their result have the status OK.
    pub fn is_error(&self) -> bool {
        self.status.code == StatusCode::Error
    }

    /// Number of values of its attributes and events, including those inside lists and maps. A measure of its memory.
    pub fn value_count(&self) -> usize {
        self.attributes.value_count() + self.events.iter().map(SpanEvent::value_count).sum::<usize>()
    }

    /// The message of a recorded exception, by the semantic conventions for exceptions.
    pub fn exception_message(&self) -> Option<&str> {
        let event = self.events.iter().find(|event| event.name == "exception")?;
        event.attributes.get_text("exception.message")
    }
}

impl SpanEvent<'_> {
    /// Number of values, including those inside lists and maps. The event itself counts as one.
    pub fn value_count(&self) -> usize {
        1 + self.attributes.value_count() + self.body.as_ref().map_or(0, AttributeValue::value_count)
    }
}

impl<'a> AttributeList<'a> {
    /// Linear search; the first of duplicate keys.
    pub fn get(&self, key: &str) -> Option<&AttributeValue<'a>> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// The text of an attribute; `None` when it is missing, empty or not a text.
    pub fn get_text(&self, key: &str) -> Option<&str> {
        match self.get(key) {
            Some(AttributeValue::Str(text)) if !text.is_empty() => Some(text),
            _ => None,
        }
    }

    /// Number of values, including those inside lists and maps.
    pub fn value_count(&self) -> usize {
        self.0.iter().map(|(_, value)| value.value_count()).sum()
    }

    /// In the order of recording, duplicates included.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &AttributeValue<'a>)> {
        self.0.iter().map(|(name, value)| (name.as_ref(), value))
    }

    pub fn into_owned(self) -> AttributeList<'static> {
        AttributeList(
            self.0.into_iter().map(|(key, value)| (Cow::Owned(key.into_owned()), value.into_owned())).collect(),
        )
    }
}

impl SpanResource {
    /// The project of the spans: Phoenix's resource attribute, otherwise the name of the service. SDKs set
    /// `unknown_service` when nobody configured a name, which says nothing.
    pub fn project(&self) -> Option<&str> {
        let project = self.attribute_text("openinference.project.name");
        project.or_else(|| self.attribute_text("service.name").filter(|name| !name.starts_with("unknown_service")))
    }

    /// The version of the service, by the semantic conventions for resources.
    pub fn version(&self) -> Option<&str> {
        self.attribute_text("service.version")
    }

    /// The text of an attribute. Called for every span, so the number of attributes that are searched is bounded: a
    /// resource has a few dozen.
    fn attribute_text(&self, key: &str) -> Option<&str> {
        const MAX_SEARCHED_ATTRIBUTES: usize = 1_000;
        let found = self.attributes.0.iter().take(MAX_SEARCHED_ATTRIBUTES).find(|(name, _)| name == key)?;
        found.1.as_str().filter(|text| !text.is_empty())
    }
}

impl<'a> AttributeValue<'a> {
    /// Counts itself and everything inside. The depth was bounded when it was decoded.
    fn value_count(&self) -> usize {
        match self {
            AttributeValue::Array(items) => 1 + items.iter().map(AttributeValue::value_count).sum::<usize>(),
            AttributeValue::Map(entries) => 1 + entries.iter().map(|(_, value)| value.value_count()).sum::<usize>(),
            _ => 1,
        }
    }

    pub fn as_str(&self) -> Option<&str> {
        match self {
            AttributeValue::Str(text) => Some(text),
            _ => None,
        }
    }

    /// A count. `None` for negative numbers.
    pub fn as_u64(&self) -> Option<u64> {
        match self {
            AttributeValue::Int(number) => u64::try_from(*number).ok(),
            // Some senders write counts as floats or as texts.
            AttributeValue::Double(number) if *number >= 0.0 => Some(*number as u64),
            AttributeValue::Str(text) => text.parse().ok(),
            _ => None,
        }
    }

    /// A finite number. Infinity and NaN would spoil every sum.
    pub fn as_f64(&self) -> Option<f64> {
        let number = match self {
            AttributeValue::Int(number) => Some(*number as f64),
            AttributeValue::Double(number) => Some(*number),
            AttributeValue::Str(text) => text.parse().ok(),
            _ => None,
        };
        number.filter(|number| number.is_finite())
    }

    /// Copies borrowed texts.
    pub fn into_owned(self) -> AttributeValue<'static> {
        match self {
            AttributeValue::Null => AttributeValue::Null,
            AttributeValue::Bool(value) => AttributeValue::Bool(value),
            AttributeValue::Int(value) => AttributeValue::Int(value),
            AttributeValue::Double(value) => AttributeValue::Double(value),
            AttributeValue::Str(text) => AttributeValue::Str(Cow::Owned(text.into_owned())),
            AttributeValue::Bytes(bytes) => AttributeValue::Bytes(Cow::Owned(bytes.into_owned())),
            AttributeValue::Array(items) => {
                AttributeValue::Array(items.into_iter().map(AttributeValue::into_owned).collect())
            }
            AttributeValue::Map(entries) => AttributeValue::Map(
                entries.into_iter().map(|(key, value)| (Cow::Owned(key.into_owned()), value.into_owned())).collect(),
            ),
        }
    }

    /// The value as JSON. A text stays a text; the reader of the attribute knows whether it contains JSON. Infinity and
    /// NaN become null.
    pub fn to_json(&self) -> serde_json::Value {
        use serde_json::Value as Json;
        match self {
            AttributeValue::Null => Json::Null,
            AttributeValue::Bool(value) => Json::Bool(*value),
            AttributeValue::Int(value) => Json::from(*value),
            AttributeValue::Double(value) => Json::from(*value),
            AttributeValue::Str(text) => Json::String(text.to_string()),
            AttributeValue::Bytes(bytes) => Json::String(String::from_utf8_lossy(bytes).into_owned()),
            AttributeValue::Array(items) => Json::Array(items.iter().map(AttributeValue::to_json).collect()),
            AttributeValue::Map(entries) => {
                Json::Object(entries.iter().map(|(key, value)| (key.to_string(), value.to_json())).collect())
            }
        }
    }

    /// The reverse of `to_json`. Numbers beyond `i64` become floats.
    pub fn from_json(json: serde_json::Value) -> AttributeValue<'static> {
        use serde_json::Value as Json;
        match json {
            Json::Null => AttributeValue::Null,
            Json::Bool(value) => AttributeValue::Bool(value),
            Json::Number(number) => match number.as_i64() {
                Some(integer) => AttributeValue::Int(integer),
                None => AttributeValue::Double(number.as_f64().unwrap_or_default()),
            },
            Json::String(text) => AttributeValue::Str(Cow::Owned(text)),
            Json::Array(items) => AttributeValue::Array(items.into_iter().map(AttributeValue::from_json).collect()),
            Json::Object(entries) => AttributeValue::Map(
                entries.into_iter().map(|(key, value)| (Cow::Owned(key), AttributeValue::from_json(value))).collect(),
            ),
        }
    }
}

impl TraceId {
    /// Parses up to 32 hexadecimal digits. Any other text that is not empty is hashed, so that foreign ids stay
    /// distinct.
    pub fn parse(text: &str) -> TraceId {
        match u128::from_str_radix(text, 16) {
            Ok(number) if text.len() <= 32 => TraceId(number),
            _ if text.is_empty() => TraceId::default(),
            _ => TraceId(xxhash_rust::xxh3::xxh3_128(text.as_bytes())),
        }
    }
}

impl SpanId {
    /// Parses up to 16 hexadecimal digits. Any other text that is not empty is hashed, so that foreign ids stay
    /// distinct.
    pub fn parse(text: &str) -> SpanId {
        match u64::from_str_radix(text, 16) {
            Ok(number) if text.len() <= 16 => SpanId(number),
            _ if text.is_empty() => SpanId::default(),
            _ => SpanId(xxhash_rust::xxh3::xxh3_64(text.as_bytes())),
        }
    }

    /// `None` for the all-zero id, by which OTLP says that there is no parent.
    pub fn non_zero(self) -> Option<SpanId> {
        (self.0 != 0).then_some(self)
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TraceId({self})")
    }
}

impl fmt::Debug for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SpanId({self})")
    }
}
