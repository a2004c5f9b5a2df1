//! Tables of spans: CSV and, with the feature `parquet`, Parquet. A row is an object with a field for each column, and
//! is read by the [`DocumentFormat`](crate::DocumentFormat) that its columns prove.

mod csv_table;
#[cfg(feature = "parquet")]
mod parquet_table;

pub use csv_table::read_csv_table;
#[cfg(feature = "parquet")]
pub use parquet_table::read_parquet_table;

use serde_json::{Map, Value as Json};

use crate::exports::phoenix;
use crate::format_kinds::DocumentFormat;
use crate::format_list::DOCUMENT_FORMATS;
use crate::import_sink::{ImportError, ImportSink};

/// Columns of tables that are known and hold no spans, with the name of the table and what to export instead.
const UNREADABLE_TABLES: &[(&[&str], &str, &str)] = &[
    (
        &["annotation_name", "annotator_kind"],
        "a Phoenix table of annotations",
        "export the spans: `client.spans.get_spans_dataframe()`",
    ),
    (
        &["context.span_id", "document_position"],
        "a Phoenix table of retrieved documents",
        "export the spans: `client.spans.get_spans_dataframe()`",
    ),
    (
        &["context.span_id"],
        "the result of a Phoenix query without the ids of traces",
        "export the spans with all columns: `client.spans.get_spans_dataframe()`",
    ),
    (
        &["trace_id", "request_metadata", "spans"],
        "a table of MLflow traces",
        "export JSON: `mlflow.get_trace(id).to_json()`",
    ),
    (
        &["sessionId", "userId", "observationCount"],
        "a Langfuse table of traces",
        "export the observations: table `Tracing > Observations`, or the traces with their observations by the API",
    ),
];

/// Whether the header of a table proves that its rows are spans.
pub fn matches_span_table(header: &[&str]) -> bool {
    table_format(header).is_some()
}

/// Returns why a table is not read: its name, if it is a known one, or its first columns.
pub fn describe_unreadable_table(header: &[&str]) -> String {
    let has = |column: &&str| header.contains(column);
    match UNREADABLE_TABLES.iter().find(|(columns, ..)| columns.iter().all(has)) {
        Some((_, name, hint)) => format!("{name}, which holds no runs; {hint}"),
        None => {
            const MAX_NAMED: usize = 6;
            let named: Vec<&str> = header.iter().take(MAX_NAMED).copied().collect();
            format!("a table that is no known export of spans; its columns: {}", named.join(", "))
        }
    }
}

/// Returns the format of the rows of a table. Cells differ from row to row, columns do not, so the columns decide.
fn table_format(header: &[&str]) -> Option<TableFormat> {
    let has = |column: &str| header.contains(&column);
    let document = |name: &str| DOCUMENT_FORMATS.iter().find(|format| format.name == name).map(TableFormat::Document);
    if phoenix::has_span_columns(header.iter().copied()) {
        return Some(TableFormat::PhoenixSpans);
    }
    if has("run_type") && has("inputs") && (has("dotted_order") || has("parent_run_id")) {
        return document("LangSmith run");
    }
    if has("traceId") && has("type") && has("startTime") && has("input") && has("output") {
        return document("Langfuse observation");
    }
    if has("span_id") && has("root_span_id") && has("span_parents") {
        return document("Braintrust row");
    }
    None
}

/// What the rows of a table are.
#[derive(Clone, Copy, Debug)]
enum TableFormat {
    PhoenixSpans,
    /// Objects of another format, with JSON in the cells of structured fields.
    Document(&'static DocumentFormat),
}

impl TableFormat {
    /// Reads one row.
    fn read_row(self, mut row: Map<String, Json>, sink: &mut dyn ImportSink) -> Result<(), ImportError> {
        match self {
            TableFormat::PhoenixSpans => phoenix::read_row(row, sink),
            TableFormat::Document(format) => {
                // The columns prove the format even if this row is empty in them.
                if !(format.matches)(&row) {
                    return Err(ImportError::new(format!("the row is no {}", format.name)));
                }
                row.retain(|_, cell| !cell.is_null() && cell.as_str() != Some(""));
                (format.read)(row, sink)
            }
        }
    }
}

/// Returns the columns of a table, if `head` begins with one: a row of short names, and after it a row with as many
/// cells, or one that is cut off at the end. `whole` states that the head is the entire input. `None` for other text,
/// which may also contain commas.
pub fn read_table_header(head: &[u8], whole: bool) -> Option<Vec<String>> {
    const MIN_COLUMNS: usize = 2;
    const MAX_NAME_BYTES: usize = 120;
    let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(head);
    let mut rows = reader.records();
    let header = rows.next()?.ok()?;
    let is_letter =
        |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '.' | ' ' | '-' | '/' | '(' | ')');
    let is_name =
        |name: &str| name.len() <= MAX_NAME_BYTES && name.trim_start_matches('\u{feff}').chars().all(is_letter);
    // pandas leaves the name of the index empty.
    let names = header.iter().filter(|name| !name.is_empty()).count();
    if header.len() < MIN_COLUMNS || names < header.len() - 1 || !header.iter().all(is_name) {
        return None;
    }
    let second = rows.next().and_then(Result::ok)?;
    let is_cut = !whole && rows.next().is_none() && second.len() <= header.len();
    (second.len() == header.len() || is_cut)
        .then(|| header.iter().map(|name| name.trim_start_matches('\u{feff}').to_owned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_with_commas_is_no_table() {
        let header = |text: &str| read_table_header(text.as_bytes(), true);
        assert_eq!(header("id,text\n1,\"Thought: x\nAction: y\"\n").map(|names| names.len()), Some(2));
        assert_eq!(header("Question: what, where\nThought: well, then\n"), None);
        assert_eq!(header("Thought, it is\nAction: a\n"), None);
        assert_eq!(header("one column\n1\n"), None);
    }
}
