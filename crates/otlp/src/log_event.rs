//! Log records as events of spans. Several instrumentations of the GenAI semantic conventions record messages as log
//! records instead of attributes.

use gradus_core::span::{AttributeValue, SpanEvent, SpanId, TraceId};

/// A decoded log record: an event, and the span that it belongs to. The zero span id means that it names none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LogEvent<'a> {
    pub trace_id: TraceId,
    pub span_id: SpanId,
    pub event: SpanEvent<'a>,
}

impl LogEvent<'_> {
    /// Takes the name from the attribute `event.name`, where it was before OTLP 1.5 added the field `event_name`.
    pub(crate) fn take_name_from_attributes(&mut self) {
        if self.event.name.is_empty()
            && let Some(AttributeValue::Str(name)) = self.event.attributes.get("event.name")
        {
            self.event.name = name.clone();
        }
    }
}
