//! OTLP in JSON. Reads the form of the specification (camelCase, hexadecimal ids, 64-bit integers as texts) and the
//! forms that senders really use: snake_case, base64 ids, integers as numbers. Records are handed on one by one while
//! the document is still being read, so a document may be larger than memory.

mod records;
mod values;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use gradus_core::span::{Span, SpanResource};
use serde::Deserialize as _;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use self::records::{LogJson, ResourceJson, ScopeJson, SpanJson};
use self::values::{WireJsonError, check_value_count};
use crate::log_event::LogEvent;

/// A record of an export document, in the order of the document.
#[derive(Debug)]
pub enum JsonRecord {
    Span(Box<Span<'static>>, RecordExtras),
    /// A log record, with the resource and the name of the scope it came under.
    Log(Box<LogEvent<'static>>, Arc<SpanResource>, String, RecordExtras),
    /// A record that cannot be read, with the reason.
    Bad(String),
}

/// Parts of a record that have no field in `Span` or `LogEvent`.
#[derive(Debug, Default)]
pub struct RecordExtras {
    /// Fields that `Span` does not have, already encoded as protobuf, so that they survive storing.
    pub fields: Vec<u8>,
    /// Why an id is not in the form that OTLP demands, if it is not. Files with such ids are accepted; a sender gets
    /// the reason as a rejection.
    pub odd_id: Option<&'static str>,
}

/// Reads one export document and hands its spans and log records to `sink`. Unknown keys are ignored, as the
/// specification demands. Fails only if the document is not JSON or its outer levels have other types; a malformed
/// record becomes [`JsonRecord::Bad`] and the rest is still read.
pub fn read_export_json<'de, D: Deserializer<'de>>(
    deserializer: D,
    sink: &mut dyn FnMut(JsonRecord),
) -> Result<(), D::Error> {
    deserializer.deserialize_map(ExportVisitor { sink })
}

/// Reads one standalone span in OTLP's JSON form, as in Phoenix's `otlpv1` listing. It has no resource and no scope.
pub fn span_from_json(json: serde_json::Value) -> Result<Span<'static>, serde_json::Error> {
    Ok(SpanJson::deserialize(json)?.into_span(&Arc::default(), ""))
}

/// The document: an object with `resourceSpans`, `resourceLogs` or both.
struct ExportVisitor<'s> {
    sink: &'s mut dyn FnMut(JsonRecord),
}

impl<'de> Visitor<'de> for ExportVisitor<'_> {
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

/// Whether the value of this key is a list of `ResourceSpans` or `ResourceLogs`. Both spellings of protobuf's JSON
/// mapping are accepted.
pub fn is_export_key(key: &str) -> bool {
    matches!(key, "resourceSpans" | "resource_spans" | "resourceLogs" | "resource_logs")
}

/// Deserialises the value of an export key ([`is_export_key`]), and hands the records on while they are read. For
/// callers that walk the outer object themselves.
#[allow(missing_debug_implementations, reason = "holds the caller's closure")]
pub struct ExportList<'s> {
    sink: &'s mut dyn FnMut(JsonRecord),
}

impl<'s> ExportList<'s> {
    pub fn new(sink: &'s mut dyn FnMut(JsonRecord)) -> Self {
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

/// One `ResourceSpans` or `ResourceLogs` object.
struct ResourceRecords<'s> {
    sink: &'s mut dyn FnMut(JsonRecord),
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
        // Keys of an object have no order. Scopes that precede their resource are kept as text until it is known.
        let mut waiting: Vec<Box<RawValue>> = Vec::new();
        while let Some(key) = map.next_key::<Cow<'_, str>>()? {
            match key.as_ref() {
                "resource" => {
                    let json = map.next_value::<Box<RawValue>>()?;
                    let read = read_record::<Option<ResourceJson>>(&json);
                    let read = read.unwrap_or_else(|error| {
                        (self.sink)(JsonRecord::Bad(format!("a resource: {error}")));
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
                (self.sink)(JsonRecord::Bad(format!("a scope: {error}")));
            }
        }
        Ok(())
    }
}

/// The list of scopes of a resource. `instrumentationLibrarySpans` is its name in OTLP before 0.15.
struct ScopeList<'s> {
    resource: &'s Arc<SpanResource>,
    sink: &'s mut dyn FnMut(JsonRecord),
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
        while list.next_element_seed(ScopeRecords { resource: self.resource, sink: self.sink })?.is_some() {}
        Ok(())
    }
}

/// One scope with its spans or log records. The scope has to precede its records, as all senders write it.
struct ScopeRecords<'s> {
    resource: &'s Arc<SpanResource>,
    sink: &'s mut dyn FnMut(JsonRecord),
}

impl<'de> DeserializeSeed<'de> for ScopeRecords<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for ScopeRecords<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a scope with its spans or log records")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut scope = String::new();
        while let Some(key) = map.next_key::<Cow<'_, str>>()? {
            match key.as_ref() {
                "scope" | "instrumentationLibrary" => {
                    scope = map.next_value::<Option<ScopeJson>>()?.and_then(|scope| scope.name).unwrap_or_default();
                }
                "spans" => map.next_value_seed(RecordListVisitor(|raw: &RawValue| {
                    (self.sink)(match read_record::<SpanJson>(raw) {
                        Ok(span) => {
                            let record_extras =
                                RecordExtras { fields: span.encode_extra_fields(), odd_id: span.odd_id() };
                            JsonRecord::Span(Box::new(span.into_span(self.resource, &scope)), record_extras)
                        }
                        Err(error) => JsonRecord::Bad(format!("a span: {error}")),
                    });
                }))?,
                "logRecords" | "log_records" => map.next_value_seed(RecordListVisitor(|raw: &RawValue| {
                    (self.sink)(match read_record::<LogJson>(raw) {
                        Ok(log) => {
                            let resource = Arc::clone(self.resource);
                            let record_extras = RecordExtras { fields: Vec::new(), odd_id: log.odd_id() };
                            JsonRecord::Log(Box::new(log.into_event()), resource, scope.clone(), record_extras)
                        }
                        Err(error) => JsonRecord::Bad(format!("a log record: {error}")),
                    });
                }))?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// Parses one record after its number of values was checked against the limit.
fn read_record<T: serde::de::DeserializeOwned>(raw: &RawValue) -> Result<T, WireJsonError> {
    check_value_count(raw.get())?;
    Ok(serde_json::from_str(raw.get())?)
}

/// Splits a list into records that are still text, so that a malformed one does not affect the others. Accepts null as
/// an empty list.
struct RecordListVisitor<F: FnMut(&RawValue)>(F);

impl<'de, F: FnMut(&RawValue)> DeserializeSeed<'de> for RecordListVisitor<F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, F: FnMut(&RawValue)> Visitor<'de> for RecordListVisitor<F> {
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
