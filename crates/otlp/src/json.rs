//! OTLP as JSON. The specification's form (camelCase, hexadecimal ids, 64-bit integers as texts) and the forms senders
//! really use: snake_case, base64 ids, integers as numbers. Spans are handed on one by one while the document is still
//! being read, so a document larger than memory is no problem.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use gradus_core::span::{Attributes, Event, Resource, Span, SpanId, Status, StatusCode, TraceId, Value};
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::encode::encode_attributes;
use crate::limits::Limits;
use crate::record::LogEvent;
use crate::wire::{write_bytes, write_fixed32, write_number};

/// What an export document yields.
#[derive(Debug)]
pub enum ExportJson {
    /// A span, and what it says that the neutral span has no place for, as fields of a protobuf span.
    Span(Box<Span<'static>>, Vec<u8>),
    Log(LogEvent<'static>),
    /// A record that is none, with the reason.
    Bad(String),
}

/// Reads one export document and hands its spans and log records to `sink`. Other keys are passed over.
pub fn read_export_json<'de, D: Deserializer<'de>>(
    deserializer: D,
    sink: &mut dyn FnMut(ExportJson),
) -> Result<(), D::Error> {
    deserializer.deserialize_map(Document { sink })
}

/// Reads one span in OTLP's JSON form that stands alone, as Phoenix's `otlpv1` listing has them.
pub fn span_from_json(json: serde_json::Value) -> Result<Span<'static>, serde_json::Error> {
    Ok(SpanJson::deserialize(json)?.into_span(&Arc::default(), ""))
}

struct Document<'s> {
    sink: &'s mut dyn FnMut(ExportJson),
}

impl<'de> Visitor<'de> for Document<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an OTLP export document")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<Cow<'_, str>>()? {
            match key.as_ref() {
                key if is_export_key(key) => map.next_value_seed(ExportList::new(self.sink))?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// Whether a key of an export document holds its records.
pub fn is_export_key(key: &str) -> bool {
    matches!(key, "resourceSpans" | "resource_spans" | "resourceLogs" | "resource_logs")
}

/// Reads what stands under such a key, and hands the records on while they are read.
#[allow(missing_debug_implementations, reason = "holds the caller's closure")]
pub struct ExportList<'s> {
    sink: &'s mut dyn FnMut(ExportJson),
}

impl<'s> ExportList<'s> {
    pub fn new(sink: &'s mut dyn FnMut(ExportJson)) -> Self {
        ExportList { sink }
    }
}

impl<'de> DeserializeSeed<'de> for ExportList<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for ExportList<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of resource spans or resource logs")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while list.next_element_seed(ResourceRecords { sink: self.sink })?.is_some() {}
        Ok(())
    }
}

struct ResourceRecords<'s> {
    sink: &'s mut dyn FnMut(ExportJson),
}

impl<'de> DeserializeSeed<'de> for ResourceRecords<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for ResourceRecords<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with a resource and its scopes")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut resource = None;
        // Scopes that came before their resource have to wait for it.
        let mut waiting: Vec<Box<RawValue>> = Vec::new();
        while let Some(key) = map.next_key::<Cow<'_, str>>()? {
            match key.as_ref() {
                "resource" => {
                    let json = map.next_value::<Box<RawValue>>()?;
                    let read = serde_json::from_str::<Option<ResourceJson>>(json.get());
                    let read = read.unwrap_or_else(|error| {
                        (self.sink)(ExportJson::Bad(format!("a resource: {error}")));
                        None
                    });
                    resource = Some(Arc::new(read.unwrap_or_default().into_resource()));
                }
                "scopeSpans" | "scope_spans" | "instrumentationLibrarySpans" | "scopeLogs" | "scope_logs" => {
                    match &resource {
                        Some(resource) => map.next_value_seed(ScopeList { resource, sink: self.sink })?,
                        None => waiting.push(map.next_value()?),
                    }
                }
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        let resource = resource.unwrap_or_default();
        for scopes in waiting {
            let seed = ScopeList { resource: &resource, sink: self.sink };
            if let Err(error) = seed.deserialize(&mut serde_json::Deserializer::from_str(scopes.get())) {
                (self.sink)(ExportJson::Bad(format!("a scope: {error}")));
            }
        }
        Ok(())
    }
}

struct ScopeList<'s> {
    resource: &'s Arc<Resource>,
    sink: &'s mut dyn FnMut(ExportJson),
}

impl<'de> DeserializeSeed<'de> for ScopeList<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for ScopeList<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of scopes")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while list.next_element_seed(OneScope { resource: self.resource, sink: self.sink })?.is_some() {}
        Ok(())
    }
}

struct OneScope<'s> {
    resource: &'s Arc<Resource>,
    sink: &'s mut dyn FnMut(ExportJson),
}

impl<'de> DeserializeSeed<'de> for OneScope<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for OneScope<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a scope with its spans or log records")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut scope = String::new();
        while let Some(key) = map.next_key::<Cow<'_, str>>()? {
            match key.as_ref() {
                "scope" | "instrumentationLibrary" => {
                    scope = map
                        .next_value::<Option<ScopeJson>>()?
                        .and_then(|scope| scope.name)
                        .unwrap_or_default();
                }
                "spans" => map.next_value_seed(Records(|raw: &RawValue| {
                    (self.sink)(match serde_json::from_str::<SpanJson>(raw.get()) {
                        Ok(span) => {
                            let rest = span.encode_rest();
                            ExportJson::Span(Box::new(span.into_span(self.resource, &scope)), rest)
                        }
                        Err(error) => ExportJson::Bad(format!("a span: {error}")),
                    });
                }))?,
                "logRecords" | "log_records" => map.next_value_seed(Records(|raw: &RawValue| {
                    (self.sink)(match serde_json::from_str::<LogJson>(raw.get()) {
                        Ok(log) => ExportJson::Log(log.into_event()),
                        Err(error) => ExportJson::Bad(format!("a log record: {error}")),
                    });
                }))?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// Takes a list apart into records, each still as text: one that is bad spoils no other.
struct Records<F: FnMut(&RawValue)>(F);

impl<'de, F: FnMut(&RawValue)> DeserializeSeed<'de> for Records<F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, F: FnMut(&RawValue)> Visitor<'de> for Records<F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of records")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        while let Some(record) = list.next_element::<Box<RawValue>>()? {
            (self.0)(&record);
        }
        Ok(())
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ScopeJson {
    name: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ResourceJson {
    attributes: KeyValues,
}

impl ResourceJson {
    fn into_resource(self) -> Resource {
        Resource { attributes: self.attributes.0 }
    }
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct SpanJson {
    #[serde(alias = "trace_id")]
    trace_id: TraceIdJson,
    #[serde(alias = "span_id")]
    span_id: SpanIdJson,
    #[serde(alias = "parent_span_id")]
    parent_span_id: SpanIdJson,
    name: Option<String>,
    #[serde(alias = "start_time_unix_nano")]
    start_time_unix_nano: U64,
    #[serde(alias = "end_time_unix_nano")]
    end_time_unix_nano: U64,
    attributes: KeyValues,
    events: Option<Vec<EventJson>>,
    status: Option<StatusJson>,
    // What is kept without being looked at; no `flatten`, which would make serde copy the whole span first.
    #[serde(alias = "trace_state")]
    trace_state: Option<String>,
    kind: Option<serde_json::Value>,
    flags: Option<u32>,
    #[serde(alias = "dropped_attributes_count")]
    dropped_attributes_count: Option<u32>,
    #[serde(alias = "dropped_events_count")]
    dropped_events_count: Option<u32>,
    #[serde(alias = "dropped_links_count")]
    dropped_links_count: Option<u32>,
    links: Option<Vec<LinkJson>>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct LinkJson {
    #[serde(alias = "trace_id")]
    trace_id: TraceIdJson,
    #[serde(alias = "span_id")]
    span_id: SpanIdJson,
    #[serde(alias = "trace_state")]
    trace_state: Option<String>,
    attributes: KeyValues,
    flags: Option<u32>,
}

impl SpanJson {
    /// What the neutral span has no place for, as fields of a protobuf span.
    fn encode_rest(&self) -> Vec<u8> {
        let mut out = Vec::new();
        if let Some(state) = &self.trace_state {
            write_bytes(&mut out, 3, state.as_bytes());
        }
        if let Some(kind) = self.kind.as_ref().and_then(span_kind) {
            write_number(&mut out, 6, kind);
        }
        let counts = [
            (10, self.dropped_attributes_count),
            (12, self.dropped_events_count),
            (14, self.dropped_links_count),
        ];
        for (field, count) in counts {
            if let Some(count) = count {
                write_number(&mut out, field, u64::from(count));
            }
        }
        for link in self.links.iter().flatten() {
            let mut body = Vec::new();
            write_bytes(&mut body, 1, &link.trace_id.0.0.to_be_bytes());
            write_bytes(&mut body, 2, &link.span_id.0.0.to_be_bytes());
            write_bytes(&mut body, 3, link.trace_state.as_deref().unwrap_or_default().as_bytes());
            encode_attributes(&link.attributes.0, 4, &mut body);
            write_fixed32(&mut body, 6, link.flags.unwrap_or_default());
            write_bytes(&mut out, 13, &body);
        }
        if let Some(flags) = self.flags {
            write_fixed32(&mut out, 16, flags);
        }
        out
    }
}

/// A kind is a number, or a name that ends in one of these.
fn span_kind(json: &serde_json::Value) -> Option<u64> {
    const NAMES: [&str; 6] = ["UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER"];
    let by_name = |name: &str| NAMES.iter().position(|known| name.ends_with(known)).map(|kind| kind as u64);
    json.as_u64().or_else(|| json.as_str().and_then(by_name))
}

impl SpanJson {
    fn into_span(self, resource: &Arc<Resource>, scope: &str) -> Span<'static> {
        Span {
            trace_id: self.trace_id.0,
            span_id: self.span_id.0,
            parent_id: self.parent_span_id.0.non_zero(),
            name: Cow::Owned(self.name.unwrap_or_default()),
            start_ns: self.start_time_unix_nano.0,
            end_ns: self.end_time_unix_nano.0,
            status: self.status.unwrap_or_default().into_status(),
            attributes: self.attributes.0,
            events: self.events.unwrap_or_default().into_iter().map(EventJson::into_event).collect(),
            scope: Cow::Owned(scope.to_owned()),
            resource: Arc::clone(resource),
        }
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct StatusJson {
    message: Option<String>,
    code: Option<serde_json::Value>,
}

impl StatusJson {
    fn into_status(self) -> Status<'static> {
        let code = match &self.code {
            Some(code) if code == 1 || code == "STATUS_CODE_OK" => StatusCode::Ok,
            Some(code) if code == 2 || code == "STATUS_CODE_ERROR" => StatusCode::Error,
            _ => StatusCode::Unset,
        };
        Status { code, message: Cow::Owned(self.message.unwrap_or_default()) }
    }
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct EventJson {
    #[serde(alias = "time_unix_nano")]
    time_unix_nano: U64,
    name: Option<String>,
    attributes: KeyValues,
}

impl EventJson {
    fn into_event(self) -> Event<'static> {
        let Self { time_unix_nano, name, attributes } = self;
        Event {
            name: Cow::Owned(name.unwrap_or_default()),
            time_ns: time_unix_nano.0,
            attributes: attributes.0,
            body: None,
        }
    }
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct LogJson {
    #[serde(alias = "time_unix_nano")]
    time_unix_nano: U64,
    #[serde(alias = "observed_time_unix_nano")]
    observed_time_unix_nano: U64,
    #[serde(alias = "event_name")]
    event_name: Option<String>,
    #[serde(alias = "trace_id")]
    trace_id: TraceIdJson,
    #[serde(alias = "span_id")]
    span_id: SpanIdJson,
    body: Option<AnyValue>,
    attributes: KeyValues,
}

impl LogJson {
    fn into_event(self) -> LogEvent<'static> {
        let time_ns =
            if self.time_unix_nano.0 != 0 { self.time_unix_nano.0 } else { self.observed_time_unix_nano.0 };
        let body = self.body.map(|body| body.0);
        let event = Event {
            name: Cow::Owned(self.event_name.unwrap_or_default()),
            time_ns,
            attributes: self.attributes.0,
            body,
        };
        let mut log = LogEvent { trace_id: self.trace_id.0, span_id: self.span_id.0, event };
        log.take_name_from_attributes();
        log
    }
}

/// Attributes: a list of key-value pairs, bounded in number.
#[derive(Default)]
struct KeyValues(Attributes<'static>);

#[derive(Deserialize)]
struct KeyValueJson {
    #[serde(default)]
    key: String,
    #[serde(default)]
    value: Option<AnyValue>,
}

impl<'de> Deserialize<'de> for KeyValues {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = KeyValues;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of attributes")
            }

            fn visit_unit<E>(self) -> Result<KeyValues, E> {
                Ok(KeyValues::default())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<KeyValues, A::Error> {
                let limit = Limits::default().attributes;
                let mut pairs = Vec::new();
                while let Some(KeyValueJson { key, value }) = list.next_element()? {
                    if pairs.len() == limit {
                        return Err(A::Error::custom(format!(
                            "more than {limit} attributes (limit {limit})"
                        )));
                    }
                    pairs.push((Cow::Owned(key), value.map_or(Value::Null, |value| value.0)));
                }
                Ok(KeyValues(Attributes(pairs)))
            }
        }
        deserializer.deserialize_any(Pairs)
    }
}

struct AnyValue(Value<'static>);

impl<'de> Deserialize<'de> for AnyValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOf;
        impl<'de> Visitor<'de> for OneOf {
            type Value = AnyValue;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with one of stringValue, intValue, ...")
            }

            fn visit_unit<E>(self) -> Result<AnyValue, E> {
                Ok(AnyValue(Value::Null))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<AnyValue, A::Error> {
                let mut value = Value::Null;
                while let Some(key) = map.next_key::<Cow<'_, str>>()? {
                    value = match key.as_ref() {
                        "stringValue" | "string_value" => map
                            .next_value::<Option<String>>()?
                            .map_or(Value::Null, |text| Value::Str(Cow::Owned(text))),
                        "boolValue" | "bool_value" => Value::Bool(map.next_value()?),
                        "intValue" | "int_value" => Value::Int(map.next_value::<I64>()?.0),
                        "doubleValue" | "double_value" => Value::Double(map.next_value::<F64>()?.0),
                        "bytesValue" | "bytes_value" => {
                            Value::Bytes(Cow::Owned(base64_bytes(&map.next_value::<String>()?)))
                        }
                        "arrayValue" | "array_value" => {
                            let list = map.next_value::<ArrayJson>()?.values;
                            Value::Array(list.into_iter().map(|item| item.0).collect())
                        }
                        "kvlistValue" | "kvlist_value" => Value::Map(map.next_value::<MapJson>()?.values.0.0),
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                            value
                        }
                    };
                }
                Ok(AnyValue(value))
            }
        }
        deserializer.deserialize_any(OneOf)
    }
}

#[derive(Deserialize)]
struct ArrayJson {
    #[serde(default)]
    values: Vec<AnyValue>,
}

#[derive(Deserialize)]
struct MapJson {
    #[serde(default)]
    values: KeyValues,
}

/// A number that may travel as a number, as a text, or (from JavaScript) as a float; out of range is the nearest.
macro_rules! flexible_number {
    ($name:ident, $number:ty) => {
        #[derive(Default)]
        struct $name($number);

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Number;
                impl Visitor<'_> for Number {
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
                deserializer.deserialize_any(Number)
            }
        }
    };
}

flexible_number!(U64, u64);
flexible_number!(I64, i64);

/// The same for floats, which have names for what they cannot write.
#[derive(Default)]
struct F64(f64);

impl<'de> Deserialize<'de> for F64 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Number(f64),
            Text(String),
        }
        match Form::deserialize(deserializer)? {
            Form::Number(number) => Ok(F64(number)),
            Form::Text(text) => {
                text.parse().map(F64).map_err(|_| D::Error::custom(format!("{text:?} is not a number")))
            }
        }
    }
}

#[derive(Default)]
struct TraceIdJson(TraceId);

#[derive(Default)]
struct SpanIdJson(SpanId);

impl<'de> Deserialize<'de> for TraceIdJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Option::<Cow<'_, str>>::deserialize(deserializer)?.unwrap_or_default();
        Ok(TraceIdJson(match <[u8; 16]>::try_from(base64_id(&text, 24)) {
            Ok(bytes) => TraceId(u128::from_be_bytes(bytes)),
            Err(_) => TraceId::parse(&text),
        }))
    }
}

impl<'de> Deserialize<'de> for SpanIdJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Option::<Cow<'_, str>>::deserialize(deserializer)?.unwrap_or_default();
        Ok(SpanIdJson(match <[u8; 8]>::try_from(base64_id(&text, 12)) {
            Ok(bytes) => SpanId(u64::from_be_bytes(bytes)),
            Err(_) => SpanId::parse(&text),
        }))
    }
}

/// Base64 ids are told from hexadecimal ones by their length alone.
fn base64_id(text: &str, length: usize) -> Vec<u8> {
    if text.len() == length { base64_bytes(text) } else { Vec::new() }
}

fn base64_bytes(text: &str) -> Vec<u8> {
    base64::engine::general_purpose::STANDARD.decode(text).unwrap_or_default()
}
