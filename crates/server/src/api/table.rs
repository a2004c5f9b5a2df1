//! Spans as CSV (RFC 4180). Text cells are sanitized against formula injection in spreadsheets.

use crate::api::span_line::SpanLine;
use gradus_report::csv::sanitize_csv_cell;

/// The fixed columns, in the order of the cells below. An interface: append only.
const COLUMNS: [&str; 9] =
    ["trace_id", "span_id", "parent_id", "name", "kind", "start", "end", "status", "status_message"];
/// Name of the column with all attributes as JSON, which is used if no attributes are selected.
const ALL_ATTRIBUTES_COLUMN: &str = "attributes";

/// Formats the header row: the fixed columns, then the selected attributes. Attribute names come from the caller.
pub(super) fn format_csv_header(attributes: &[String]) -> Vec<u8> {
    let own = COLUMNS.iter().map(|name| (*name).to_owned());
    if attributes.is_empty() {
        encode_csv_record(own.chain([ALL_ATTRIBUTES_COLUMN.to_owned()]))
    } else {
        encode_csv_record(own.chain(attributes.iter().map(|name| sanitize_csv_cell(name))))
    }
}

/// Formats one row. Ids and times need no sanitizing, because the server formats them.
pub(super) fn format_span_row(span: &SpanLine<'_>, attributes: &[String]) -> Vec<u8> {
    let own = [
        span.trace_id.clone(),
        span.span_id.clone(),
        span.parent_id.clone().unwrap_or_default(),
        sanitize_csv_cell(span.name),
        sanitize_csv_cell(span.kind.unwrap_or_default()),
        span.start.clone(),
        span.end.clone(),
        span.status.to_owned(),
        sanitize_csv_cell(span.status_message.unwrap_or_default()),
    ];
    if attributes.is_empty() {
        let all = serde_json::to_string(&span.attributes).unwrap_or_default();
        encode_csv_record(own.into_iter().chain([all]))
    } else {
        encode_csv_record(
            own.into_iter().chain(attributes.iter().map(|name| sanitize_csv_cell(&span.attributes.format_cell(name)))),
        )
    }
}

fn encode_csv_record(cells: impl Iterator<Item = String>) -> Vec<u8> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    // Writing to memory cannot fail.
    let _ = writer.write_record(cells);
    writer.into_inner().unwrap_or_default()
}
