//! Phoenix data frames: one row a span, with columns such as `context.span_id` and `attributes.llm.input_messages`, as
//! rows of CSV or Parquet and as pandas writes them to JSON.

use gradus_core::literal;
use gradus_core::span_json::read_phoenix_span;
use serde_json::{Map, Value as Json};

use super::span_record::{read_time_ns, text_under};
use crate::import_sink::{ImportError, ImportSink};

/// Columns that every such table has.
pub(crate) const SPAN_COLUMN: &str = "context.span_id";
const TRACE_COLUMN: &str = "context.trace_id";
const ATTRIBUTE_PREFIX: &str = "attributes.";

/// Whether these columns are those of a table of spans. The column of the span ids may be the index of the data frame.
pub(crate) fn has_span_columns<'c>(columns: impl Iterator<Item = &'c str>) -> bool {
    let (mut has_trace, mut has_attributes) = (false, false);
    for column in columns {
        has_trace |= column == TRACE_COLUMN;
        has_attributes |= column.starts_with(ATTRIBUTE_PREFIX) || column == "span_kind";
    }
    has_trace && has_attributes
}

/// Whether an object is a row: of `orient="records"`, or a line.
pub(crate) fn matches_row(object: &Map<String, Json>) -> bool {
    has_span_columns(object.keys().map(String::as_str)) && object.get(TRACE_COLUMN).is_some_and(Json::is_string)
}

/// Whether an object is a whole table, as pandas writes it by default (by column), or with `orient` `index`, `split` or
/// `table`.
pub(crate) fn matches_frame(object: &Map<String, Json>) -> bool {
    let is_by_column =
        has_span_columns(object.keys().map(String::as_str)) && object.get(TRACE_COLUMN).is_some_and(Json::is_object);
    let is_by_row = || object.values().next().and_then(Json::as_object).is_some_and(matches_row);
    is_by_column || is_by_row() || split_columns(object).is_some() || is_table_schema(object)
}

/// Returns the columns of `orient="split"`.
fn split_columns(object: &Map<String, Json>) -> Option<Vec<&str>> {
    let columns: Vec<&str> = object.get("columns")?.as_array()?.iter().filter_map(Json::as_str).collect();
    let is_split = object.get("data").is_some_and(Json::is_array) && object.contains_key("index");
    (is_split && has_span_columns(columns.iter().copied())).then_some(columns)
}

/// Whether an object is a table of `orient="table"`, whose rows repeat the index.
fn is_table_schema(object: &Map<String, Json>) -> bool {
    let fields = object.get("schema").and_then(|schema| schema.get("fields")).and_then(Json::as_array);
    let names = fields.into_iter().flatten().filter_map(|field| field.get("name")?.as_str());
    object.get("data").is_some_and(Json::is_array) && has_span_columns(names)
}

/// Reads a whole table.
pub(crate) fn read_frame(mut object: Map<String, Json>, sink: &mut dyn ImportSink) -> Result<(), ImportError> {
    if is_table_schema(&object) {
        for row in take_list(&mut object, "data") {
            add_json_row(row, None, sink);
        }
        return Ok(());
    }
    if let Some(columns) = split_columns(&object) {
        let columns: Vec<String> = columns.into_iter().map(str::to_owned).collect();
        let (labels, rows) = (take_list(&mut object, "index"), take_list(&mut object, "data"));
        for (position, cells) in rows.into_iter().enumerate() {
            let Json::Array(cells) = cells else {
                sink.report_bad_record("a row of the table is no list");
                continue;
            };
            let row: Map<String, Json> = columns.iter().cloned().zip(cells).collect();
            add_json_row(Json::Object(row), labels.get(position).and_then(Json::as_str), sink);
        }
        return Ok(());
    }
    if object.get(TRACE_COLUMN).is_some_and(Json::is_object) {
        for (label, row) in transpose_columns(object) {
            add_json_row(Json::Object(row), Some(&label), sink);
        }
        return Ok(());
    }
    for (label, row) in object {
        add_json_row(row, Some(&label), sink);
    }
    Ok(())
}

fn take_list(object: &mut Map<String, Json>, key: &str) -> Vec<Json> {
    match object.remove(key) {
        Some(Json::Array(items)) => items,
        _ => Vec::new(),
    }
}

/// Converts columns with cells by row to rows with cells by column, in the order of the first column.
fn transpose_columns(object: Map<String, Json>) -> Vec<(String, Map<String, Json>)> {
    let traces = object.get(TRACE_COLUMN).and_then(Json::as_object).into_iter().flatten();
    let mut rows: Vec<(String, Map<String, Json>)> = traces.map(|(label, _)| (label.clone(), Map::new())).collect();
    for (column, cells) in object {
        let Json::Object(mut cells) = cells else { continue };
        for (label, row) in &mut rows {
            if let Some(cell) = cells.remove(label.as_str()) {
                row.insert(column.clone(), cell);
            }
        }
    }
    rows
}

/// Adds a row of pandas JSON. Its label is the id of the span where that is the index of the data frame.
fn add_json_row(row: Json, label: Option<&str>, sink: &mut dyn ImportSink) {
    let Json::Object(mut row) = row else {
        return sink.report_bad_record("a row of the table is no object");
    };
    if !row.contains_key(SPAN_COLUMN)
        && let Some(label) = label.filter(|label| is_span_id(label))
    {
        row.insert(SPAN_COLUMN.to_owned(), Json::from(label));
    }
    if let Err(error) = read_row(row, sink) {
        sink.report_bad_record(&error.reason);
    }
}

/// Whether a label of a row is the id of a span and not its position.
fn is_span_id(label: &str) -> bool {
    label.len() == 16 && label.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Reads one row.
pub(crate) fn read_row(row: Map<String, Json>, sink: &mut dyn ImportSink) -> Result<(), ImportError> {
    let Some(span_id) = text_under(&row, &[SPAN_COLUMN]).map(str::to_owned) else {
        return Err(ImportError::new(
            "the row has no span id: it was the index of the data frame and was not written; export `df.reset_index()`",
        ));
    };
    let trace_id = text_under(&row, &[TRACE_COLUMN]).unwrap_or_default().to_owned();
    let mut object = Map::new();
    let mut attributes = Map::new();
    for (column, cell) in row {
        if is_missing(&cell) {
            continue;
        }
        if let Some(key) = column.strip_prefix(ATTRIBUTE_PREFIX) {
            attributes.insert(key.to_owned(), read_cell(key, cell));
        } else if matches!(column.as_str(), "start_time" | "end_time") {
            object.insert(column, time_text(&cell));
        } else if column == "events" {
            object.insert(column, read_structure(cell));
        } else {
            object.insert(column, cell);
        }
    }
    object.insert("context".to_owned(), serde_json::json!({"trace_id": trace_id, "span_id": span_id}));
    object.insert("attributes".to_owned(), Json::Object(attributes));
    sink.add_span(&read_phoenix_span(&object));
    Ok(())
}

/// Whether a cell is empty. Tables have a cell for each attribute of any span.
fn is_missing(cell: &Json) -> bool {
    match cell {
        Json::Null => true,
        Json::String(text) => text.is_empty() || text == "nan" || text == "NaN" || text == "None" || text == "NaT",
        _ => false,
    }
}

/// Reads the value of an attribute. Texts that an agent wrote stay texts, even if they look like a structure.
fn read_cell(key: &str, cell: Json) -> Json {
    let is_text = key.ends_with(".value") || key.ends_with(".content") || key.ends_with("json_schema");
    if is_text { cell } else { read_structure(cell) }
}

/// Reads a list or an object in a cell: JSON, or Python's literals, as CSV has them.
fn read_structure(cell: Json) -> Json {
    match cell {
        Json::String(text) if text.starts_with(['[', '{']) => {
            let parsed = gradus_core::bounded_json::parse_bounded_json(&text);
            parsed.or_else(|| literal::parse_lenient_json(&text)).unwrap_or(Json::String(text))
        }
        other => other,
    }
}

/// Returns a time as RFC 3339, which `read_phoenix_span` reads. Pandas writes milliseconds, nanoseconds or texts.
fn time_text(cell: &Json) -> Json {
    let time = i128::from(read_time_ns(cell));
    jiff::Timestamp::from_nanosecond(time).map_or(Json::Null, |time| Json::from(time.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_label_of_a_row_can_be_its_span() {
        assert!(is_span_id("00f067aa0ba902b7"));
        assert!(!is_span_id("12"));
        let frame = json!({"context.trace_id": {"00f067aa0ba902b7": "t"}, "span_kind": {"00f067aa0ba902b7": "TOOL"}});
        let Json::Object(frame) = frame else { panic!() };
        assert!(matches_frame(&frame));
        let rows = transpose_columns(frame);
        assert_eq!(rows[0].1["span_kind"], "TOOL");
    }

    #[test]
    fn texts_of_the_agent_stay_texts() {
        assert_eq!(read_cell("input.value", json!("{'a': 1}")), json!("{'a': 1}"));
        assert_eq!(
            read_cell("llm.input_messages", json!("[{'message.role': 'user'}]")),
            json!([{"message.role": "user"}])
        );
    }
}
