//! Log records as events of spans.

use gradus_core::span::{AttributeValue, SpanEvent, SpanId, TraceId};

/// A decoded log record: an event, and the span it belongs to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LogEvent<'a> {
    pub trace_id: TraceId,
    pub span_id: SpanId,
    pub event: SpanEvent<'a>,
}

impl LogEvent<'_> {
    /// Before `event_name` was a field, the name travelled as an attribute.
    pub(crate) fn take_name_from_attributes(&mut self) {
        if self.event.name.is_empty()
            && let Some(AttributeValue::Str(name)) = self.event.attributes.get("event.name")
        {
            self.event.name = name.clone();
        }
    }
}
