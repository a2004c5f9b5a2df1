//! Spans, log records, resources and scopes in JSON. Missing fields have their default, as in protobuf.

use std::borrow::Cow;
use std::sync::Arc;

use gradus_core::span::{Span, SpanEvent, SpanId, SpanResource, SpanStatus, StatusCode};
use serde::Deserialize;

use super::values::{AnyValue, KeyValues, ProtoEnumJson, SpanIdJson, TraceIdJson, U64};
use crate::encode::encode_attributes;
use crate::log_event::LogEvent;
use crate::wire::{write_bytes, write_fixed32, write_number};

/// `InstrumentationScope`; only its name is used.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct ScopeJson {
    pub(super) name: Option<String>,
}

/// `Resource`.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct ResourceJson {
    attributes: KeyValues,
}

impl ResourceJson {
    /// The neutral resource. `schemaUrl` and dropped counts are not used.
    pub(super) fn into_resource(self) -> SpanResource {
        SpanResource { attributes: self.attributes.0 }
    }
}

/// `Span`. The aliases are the snake_case names that some senders use.
#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct SpanJson {
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
    // Kept without being interpreted. No `flatten`, which would make serde buffer the whole span first.
    #[serde(alias = "trace_state")]
    trace_state: Option<String>,
    kind: Option<ProtoEnumJson>,
    flags: Option<u32>,
    #[serde(alias = "dropped_attributes_count")]
    dropped_attributes_count: Option<u32>,
    #[serde(alias = "dropped_events_count")]
    dropped_events_count: Option<u32>,
    #[serde(alias = "dropped_links_count")]
    dropped_links_count: Option<u32>,
    links: Option<Vec<LinkJson>>,
}

/// `Span.Link`.
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

/// Why an id is not in the form that OTLP demands. Part of the response to the sender.
const ODD_ID: &str = "an id that is not 32 (of a trace) or 16 (of a span) hexadecimal digits";

impl SpanJson {
    /// The reason if any id is malformed. A span id that decodes to zero counts as absent, not as malformed.
    pub(super) fn odd_id(&self) -> Option<&'static str> {
        let is_exact = self.trace_id.is_exact
            && (self.span_id.is_exact || self.span_id.id == SpanId::default())
            && (self.parent_span_id.is_exact || self.parent_span_id.id == SpanId::default());
        (!is_exact).then_some(ODD_ID)
    }

    /// Encodes the fields that `Span` does not have, as fields of a protobuf span: trace state, kind, dropped counts,
    /// links and flags.
    pub(super) fn encode_extra_fields(&self) -> Vec<u8> {
        let mut out = Vec::new();
        if let Some(state) = &self.trace_state {
            write_bytes(&mut out, 3, state.as_bytes());
        }
        if let Some(kind) = self.kind.as_ref().and_then(span_kind) {
            write_number(&mut out, 6, kind);
        }
        // Dropped counts say that the SDK cut the span, which matters to whoever exports the trace again.
        let counts =
            [(10, self.dropped_attributes_count), (12, self.dropped_events_count), (14, self.dropped_links_count)];
        for (field, count) in counts {
            if let Some(count) = count {
                write_number(&mut out, field, u64::from(count));
            }
        }
        for link in self.links.iter().flatten() {
            let mut body = Vec::new();
            write_bytes(&mut body, 1, &link.trace_id.id.0.to_be_bytes());
            write_bytes(&mut body, 2, &link.span_id.id.0.to_be_bytes());
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

/// A kind as a number, or as a name such as `SPAN_KIND_CLIENT` or `CLIENT`.
fn span_kind(kind: &ProtoEnumJson) -> Option<u64> {
    // In the order of the enum, so that the position is the number.
    const NAMES: [&str; 6] = ["UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER"];
    let by_name = |name: &str| NAMES.iter().position(|known| name.ends_with(known)).map(|kind| kind as u64);
    match kind {
        ProtoEnumJson::Number(number) => Some(*number),
        ProtoEnumJson::Text(name) => by_name(name),
        ProtoEnumJson::Other => None,
    }
}

impl SpanJson {
    /// The neutral span. `resource` and `scope` come from the objects around the record.
    pub(super) fn into_span(self, resource: &Arc<SpanResource>, scope: &str) -> Span<'static> {
        Span {
            trace_id: self.trace_id.id,
            span_id: self.span_id.id,
            parent_id: self.parent_span_id.id.non_zero(),
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

/// `Status`. The code comes as a number or as the name of the enum.
#[derive(Deserialize, Default)]
#[serde(default)]
struct StatusJson {
    message: Option<String>,
    code: Option<ProtoEnumJson>,
}

impl StatusJson {
    /// Unknown codes count as unset.
    fn into_status(self) -> SpanStatus<'static> {
        let code = match &self.code {
            Some(ProtoEnumJson::Number(1)) => StatusCode::Ok,
            Some(ProtoEnumJson::Text(code)) if code == "STATUS_CODE_OK" => StatusCode::Ok,
            Some(ProtoEnumJson::Number(2)) => StatusCode::Error,
            Some(ProtoEnumJson::Text(code)) if code == "STATUS_CODE_ERROR" => StatusCode::Error,
            _ => StatusCode::Unset,
        };
        SpanStatus { code, message: Cow::Owned(self.message.unwrap_or_default()) }
    }
}

/// `Span.Event`.
#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct EventJson {
    #[serde(alias = "time_unix_nano")]
    time_unix_nano: U64,
    name: Option<String>,
    attributes: KeyValues,
}

impl EventJson {
    /// The neutral event.
    fn into_event(self) -> SpanEvent<'static> {
        let Self { time_unix_nano, name, attributes } = self;
        SpanEvent {
            name: Cow::Owned(name.unwrap_or_default()),
            time_ns: time_unix_nano.0,
            attributes: attributes.0,
            body: None,
        }
    }
}

/// `LogRecord`. Severity is not kept: nothing here depends on it.
#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct LogJson {
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
    /// As for spans. A log record without a span id is fine, one without a trace id is rejected later.
    pub(super) fn odd_id(&self) -> Option<&'static str> {
        let is_exact = self.trace_id.is_exact && (self.span_id.is_exact || self.span_id.id == SpanId::default());
        (!is_exact).then_some(ODD_ID)
    }

    /// The neutral event, with the name from `event_name` or the attribute `event.name`.
    pub(super) fn into_event(self) -> LogEvent<'static> {
        // The observed time is used where the source had no clock, as the logs data model recommends.
        let time_ns = if self.time_unix_nano.0 != 0 { self.time_unix_nano.0 } else { self.observed_time_unix_nano.0 };
        let body = self.body.map(|body| body.0);
        let event = SpanEvent {
            name: Cow::Owned(self.event_name.unwrap_or_default()),
            time_ns,
            attributes: self.attributes.0,
            body,
        };
        let mut log = LogEvent { trace_id: self.trace_id.id, span_id: self.span_id.id, event };
        log.take_name_from_attributes();
        log
    }
}
