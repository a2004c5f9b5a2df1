//! Reads tables in CSV.

use std::io::Read;

use serde_json::{Map, Value as Json};

use super::{describe_unreadable_table, table_format};
use crate::import_sink::{ImportError, ImportSink};

/// Reads a table of spans, row by row. Fails if the header proves no known format; a table is never a transcript.
pub fn read_csv_table(input: &mut dyn Read, sink: &mut dyn ImportSink) -> Result<(), ImportError> {
    let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(input);
    let header = reader.headers().map_err(|error| ImportError::new(error.to_string()))?.clone();
    // A byte order mark before the first name, as Excel writes it.
    let columns: Vec<&str> = header.iter().map(|name| name.trim_start_matches('\u{feff}')).collect();
    let format = table_format(&columns).ok_or_else(|| ImportError::new(describe_unreadable_table(&columns)))?;
    for record in reader.records() {
        let record = match record {
            Ok(record) => record,
            Err(error) => {
                sink.report_bad_record(&error.to_string());
                // After an error of the input itself, every further row would fail as well.
                if error.is_io_error() {
                    break;
                }
                continue;
            }
        };
        if record.len() != columns.len() {
            let line = record.position().map_or(0, csv::Position::line);
            let (cells, expected) = (record.len(), columns.len());
            sink.report_bad_record(&format!("row at line {line}: {cells} cells in a table of {expected} columns"));
            continue;
        }
        let cells = columns.iter().zip(record.iter());
        let row: Map<String, Json> =
            cells.map(|(column, cell)| ((*column).to_owned(), Json::String(cell.to_owned()))).collect();
        if let Err(error) = format.read_row(row, sink) {
            let line = record.position().map_or(0, csv::Position::line);
            sink.report_bad_record(&format!("row at line {line}: {error}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradus_core::span::Span;

    #[derive(Default)]
    struct CountingSink {
        spans: usize,
        bad: Vec<String>,
    }

    impl ImportSink for CountingSink {
        fn add_span(&mut self, _: &Span<'_>) {
            self.spans += 1;
        }
        fn add_turn(&mut self, _: crate::ImportedTurn) {}
        fn report_bad_record(&mut self, reason: &str) {
            self.bad.push(reason.to_owned());
        }
    }

    #[test]
    fn tables_of_other_kinds_are_named() {
        let mut sink = CountingSink::default();
        let error = read_csv_table(&mut "Thought,Action,Observation\na,b,c\n".as_bytes(), &mut sink);
        assert!(error.is_err_and(|error| error.reason.contains("Thought, Action")));
        let table = "span_id,annotation_name,annotator_kind\n";
        let error = read_csv_table(&mut table.as_bytes(), &mut sink);
        assert!(error.is_err_and(|error| error.reason.contains("annotations")));
        assert_eq!(sink.spans, 0);
    }

    #[test]
    fn rows_of_other_backends_are_objects() {
        let tables = [
            concat!(
                "id,trace_id,parent_run_id,dotted_order,name,run_type,inputs,outputs\n",
                "r1,t1,,,look,tool,\"{\"\"a\"\": 1}\",\"{\"\"output\"\": \"\"b\"\"}\"\n",
            ),
            concat!(
                "id,traceId,type,name,startTime,parentObservationId,level,input,output\n",
                "o1,t1,TOOL,look,2026-01-01T00:00:00Z,,DEFAULT,\"{\"\"a\"\": 1}\",b\n",
            ),
            concat!(
                "id,span_id,root_span_id,span_parents,span_attributes,input,output\n",
                "1,s1,t1,[],\"{\"\"name\"\": \"\"look\"\", \"\"type\"\": \"\"tool\"\"}\",\"{\"\"a\"\": 1}\",b\n",
            ),
        ];
        for table in tables {
            let mut sink = CountingSink::default();
            read_csv_table(&mut table.as_bytes(), &mut sink).expect("a table");
            assert_eq!((sink.spans, sink.bad), (1, Vec::new()), "{table}");
        }
    }

    #[test]
    fn a_cut_row_is_reported() {
        let table = "context.span_id,context.trace_id,span_kind\na1,b1,TOOL\na2,\"b2\n";
        let mut sink = CountingSink::default();
        read_csv_table(&mut table.as_bytes(), &mut sink).expect("a table");
        assert_eq!((sink.spans, sink.bad.len()), (1, 1));
    }
}
