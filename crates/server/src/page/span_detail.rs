//! One span with everything that it recorded: a model call as a conversation, attributes, events and resource.

use gradus_core::dialect::normalize_span;
use gradus_core::span::{AttributeValue, Span, StatusCode};
use gradus_core::visible::make_printable;
use gradus_report::html::number::{format_count, format_counted_noun};
use gradus_report::html::text;

use super::display_text::{format_byte_size, format_duration};
use super::model_call::ModelCallView;

/// Maximum number of bytes of one attribute value that are shown.
const MAX_ATTRIBUTE_VALUE_BYTES: usize = 20_000;
/// Maximum number of attributes and events of one span that are shown.
const MAX_ATTRIBUTES: usize = 500;
const MAX_EVENTS: usize = 100;

/// An attribute. `note` tells how much of a long value is missing.
pub(super) struct SpanAttributeRow {
    pub(super) name: String,
    pub(super) value: String,
    /// Shown as a block below the name instead of beside it.
    pub(super) is_long: bool,
    pub(super) note: Option<String>,
}

/// An event of a span, with its time after the start of the span.
pub(super) struct SpanEventRow {
    pub(super) name: String,
    pub(super) at: String,
    pub(super) attributes: Vec<SpanAttributeRow>,
}

/// One span with attributes, events and resource.
pub(super) struct SpanDetailView {
    pub(super) name: String,
    pub(super) trace: String,
    pub(super) id: String,
    pub(super) scope: String,
    pub(super) status: String,
    pub(super) duration: String,
    /// The conversation, if it is a model call.
    pub(super) call: Option<ModelCallView>,
    pub(super) attributes: Vec<SpanAttributeRow>,
    /// Number of attributes, in words.
    pub(super) attribute_count: String,
    /// How many attributes are left out, as a sentence.
    pub(super) more_attributes: Option<String>,
    pub(super) events: Vec<SpanEventRow>,
    pub(super) more_events: Option<String>,
    pub(super) resource: Vec<SpanAttributeRow>,
}

impl SpanDetailView {
    /// Attributes, events and resource are bounded each; names and values are any text of the sender.
    pub(super) fn from_span(span: &Span<'_>) -> SpanDetailView {
        let status = match span.status.code {
            StatusCode::Unset => "unset",
            StatusCode::Ok => "ok",
            StatusCode::Error => "error",
        };
        let message = text::format_display_line(&span.status.message);
        let event = |event: &gradus_core::span::SpanEvent<'_>| SpanEventRow {
            name: text::format_display_line(&event.name),
            at: format_duration(event.time_ns.saturating_sub(span.start_ns) as i64),
            attributes: build_attribute_rows(event.attributes.iter()),
        };
        SpanDetailView {
            name: text::format_display_line(&span.name),
            trace: span.trace_id.to_string(),
            id: span.span_id.to_string(),
            scope: text::format_display_line(&span.scope),
            status: if message.is_empty() { status.to_owned() } else { format!("{status}: {message}") },
            duration: format_duration(span.end_ns.saturating_sub(span.start_ns) as i64),
            call: ModelCallView::from_span(&normalize_span(span)),
            attribute_count: format_counted_noun(span.attributes.iter().count() as u64, "attribute", "attributes"),
            attributes: build_attribute_rows(span.attributes.iter()),
            more_attributes: describe_omitted_count(span.attributes.iter().count(), MAX_ATTRIBUTES),
            events: span.events.iter().take(MAX_EVENTS).map(event).collect(),
            more_events: describe_omitted_count(span.events.len(), MAX_EVENTS),
            resource: build_attribute_rows(span.resource.attributes.iter()),
        }
    }
}

/// Describes how many items are left out; None if all are shown.
fn describe_omitted_count(all: usize, most: usize) -> Option<String> {
    let more = all.checked_sub(most).filter(|more| *more > 0)?;
    Some(format!("And {} more; the API has all of them.", format_count(more as u64)))
}

/// Builds the rows. Truncated before sorting, since a span begins with the attributes that its instrumentation set
/// first.
fn build_attribute_rows<'a, 's: 'a>(
    all: impl Iterator<Item = (&'a str, &'a AttributeValue<'s>)>,
) -> Vec<SpanAttributeRow> {
    let mut shown: Vec<SpanAttributeRow> =
        all.take(MAX_ATTRIBUTES).map(|(name, value)| build_attribute_row(name, value)).collect();
    shown.sort_by(|a, b| a.name.cmp(&b.name));
    shown
}

/// Builds a row. JSON in strings is indented, because instrumentations record messages and arguments that way. The
/// value is truncated after formatting, at a character boundary.
fn build_attribute_row(name: &str, value: &AttributeValue<'_>) -> SpanAttributeRow {
    let whole = match value {
        AttributeValue::Str(text) => text.to_string(),
        AttributeValue::Null => String::new(),
        other => other.to_json().to_string(),
    };
    let shown = text::indent_whole_json(&whole).unwrap_or_else(|| whole.clone());
    let end = shown.floor_char_boundary(MAX_ATTRIBUTE_VALUE_BYTES);
    SpanAttributeRow {
        name: text::format_display_line(name),
        note: (end < shown.len()).then(|| format!("Truncated: the full value has {}.", format_byte_size(whole.len()))),
        is_long: shown.len() > 120 || shown.contains('\n'),
        value: make_printable(&shown[..end].replace("\r\n", "\n")).into_owned(),
    }
}
