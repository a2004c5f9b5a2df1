//! Spans as a table of comma-separated values.

use crate::api::span_line::SpanLine;
use gradus_report::csv::harmless;

const COLUMNS: [&str; 9] =
    ["trace_id", "span_id", "parent_id", "name", "kind", "start", "end", "status", "status_message"];
const ALL: &str = "attributes";

/// The names of the columns.
pub(super) fn head(attributes: &[String]) -> Vec<u8> {
    let own = COLUMNS.iter().map(|name| (*name).to_owned());
    if attributes.is_empty() {
        line(own.chain([ALL.to_owned()]))
    } else {
        line(own.chain(attributes.iter().map(|name| harmless(name))))
    }
}

pub(super) fn row(span: &SpanLine<'_>, attributes: &[String]) -> Vec<u8> {
    let own = [
        span.trace_id.clone(),
        span.span_id.clone(),
        span.parent_id.clone().unwrap_or_default(),
        harmless(span.name),
        harmless(span.kind.unwrap_or_default()),
        span.start.clone(),
        span.end.clone(),
        span.status.to_owned(),
        harmless(span.status_message.unwrap_or_default()),
    ];
    if attributes.is_empty() {
        let all = serde_json::to_string(&span.attributes).unwrap_or_default();
        line(own.into_iter().chain([all]))
    } else {
        line(own.into_iter().chain(attributes.iter().map(|name| harmless(&span.attributes.cell(name)))))
    }
}

fn line(cells: impl Iterator<Item = String>) -> Vec<u8> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    // Writing to memory cannot fail.
    let _ = writer.write_record(cells);
    writer.into_inner().unwrap_or_default()
}
