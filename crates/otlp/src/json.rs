//! OTLP as JSON. The specification's form (camelCase, hexadecimal ids, 64-bit integers as texts) and the forms senders
//! really use: snake_case, base64 ids, integers as numbers. Spans are handed on one by one while the document is still
//! being read, so a document larger than memory is no problem.

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

/// What an export document yields.
#[derive(Debug)]
pub enum ExportJson {
    Span(Box<Span<'static>>, RecordExtras),
    /// A log record, with the resource and the name of the scope it came under.
    Log(Box<LogEvent<'static>>, Arc<SpanResource>, String, RecordExtras),
    /// A record that is none, with the reason.
    Bad(String),
}

/// What a record's JSON says beside the record.
#[derive(Debug, Default)]
pub struct RecordExtras {
    /// What the neutral span has no place for, as fields of a protobuf span.
    pub fields: Vec<u8>,
    /// Its ids are not as OTLP asks. Files from everywhere have such ids; a sender is told.
    pub odd_id: Option<&'static str>,
}

/// Reads one export document and hands its spans and log records to `sink`. Other keys are passed over.
pub fn read_export_json<'de, D: Deserializer<'de>>(
    deserializer: D,
    sink: &mut dyn FnMut(ExportJson),
) -> Result<(), D::Error> {
    deserializer.deserialize_map(ExportVisitor { sink })
}

/// Reads one span in OTLP's JSON form that stands alone, as Phoenix's `otlpv1` listing has them.
pub fn span_from_json(json: serde_json::Value) -> Result<Span<'static>, serde_json::Error> {
    Ok(SpanJson::deserialize(json)?.into_span(&Arc::default(), ""))
}

struct ExportVisitor<'s> {
    sink: &'s mut dyn FnMut(ExportJson),
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
                    let read = read_record::<Option<ResourceJson>>(&json);
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
    resource: &'s Arc<SpanResource>,
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
    resource: &'s Arc<SpanResource>,
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
                    scope = map.next_value::<Option<ScopeJson>>()?.and_then(|scope| scope.name).unwrap_or_default();
                }
                "spans" => map.next_value_seed(RecordListVisitor(|raw: &RawValue| {
                    (self.sink)(match read_record::<SpanJson>(raw) {
                        Ok(span) => {
                            let beside = RecordExtras { fields: span.encode_rest(), odd_id: span.odd_id() };
                            ExportJson::Span(Box::new(span.into_span(self.resource, &scope)), beside)
                        }
                        Err(error) => ExportJson::Bad(format!("a span: {error}")),
                    });
                }))?,
                "logRecords" | "log_records" => map.next_value_seed(RecordListVisitor(|raw: &RawValue| {
                    (self.sink)(match read_record::<LogJson>(raw) {
                        Ok(log) => {
                            let resource = Arc::clone(self.resource);
                            let beside = RecordExtras { fields: Vec::new(), odd_id: log.odd_id() };
                            ExportJson::Log(Box::new(log.into_event()), resource, scope.clone(), beside)
                        }
                        Err(error) => ExportJson::Bad(format!("a log record: {error}")),
                    });
                }))?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// Reads one record, if it has no more values than a record may have.
fn read_record<T: serde::de::DeserializeOwned>(raw: &RawValue) -> Result<T, WireJsonError> {
    check_value_count(raw.get())?;
    Ok(serde_json::from_str(raw.get())?)
}

/// Takes a list apart into records, each still as text: one that is bad spoils no other.
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
