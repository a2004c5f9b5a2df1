//! Streams that pyarrow wrote, streams that were written here, and what becomes of both when bytes change.

#![allow(clippy::unwrap_used)]

use base64::Engine as _;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::phoenix::arrow::types::ArrowColumnType;
use crate::phoenix::arrow::write;
use crate::phoenix::dataframe_rows::DataFrameCell;

/// `log_evaluations(SpanEvaluations(...))` of an older client: three rows, made by pyarrow.
fn recorded() -> Vec<u8> {
    let text: String = include_str!("evaluations.base64").split_whitespace().collect();
    base64::engine::general_purpose::STANDARD.decode(text).unwrap()
}

fn written(rows: usize) -> Vec<u8> {
    let ids: Vec<DataFrameCell> = (0..rows).map(|row| DataFrameCell::Json(json!(format!("{row:016x}")))).collect();
    let scores: Vec<DataFrameCell> = (0..rows)
        .map(|row| DataFrameCell::Json(if row % 3 == 0 { json!(null) } else { json!(row as f64 / 2.0) }))
        .collect();
    let lists: Vec<DataFrameCell> = (0..rows).map(|row| DataFrameCell::Json(json!([{"a": row}, null]))).collect();
    let nested = ArrowColumnType::List(Box::new(ArrowColumnType::Struct(vec![("a".to_owned(), ArrowColumnType::Int)])));
    let columns = [
        ("id".to_owned(), ArrowColumnType::Text),
        ("nested".to_owned(), nested.clone()),
        ("score".to_owned(), ArrowColumnType::Float),
    ];
    let mut stream = write::encode_schema_message(&columns, &[("arize", "{}".to_owned())]);
    let batch = [
        (&ArrowColumnType::Text, ids.iter().map(Some).collect()),
        (&nested, lists.iter().map(Some).collect()),
        (&ArrowColumnType::Float, scores.iter().map(Some).collect()),
    ];
    stream.extend(write::encode_batch_message(&batch, rows));
    stream.extend(write::END_OF_STREAM);
    stream
}

#[test]
fn what_pyarrow_wrote() {
    let table = read_arrow_stream(&recorded(), 100).unwrap();
    assert_eq!(table.rows, 3);
    let about = table.metadata.iter().find(|(key, _)| key == "arize").unwrap();
    assert!(about.1.contains("\"eval_type\": \"SpanEvaluations\""), "{}", about.1);
    let label = |row| table.text("label", row);
    assert_eq!((label(0), label(1), label(2)), (Some("correct"), Some("incorrect"), None));
    let score = |row| table.number("score", row);
    assert_eq!((score(0), score(1), score(2)), (Some(1.0), Some(0.25), None));
    assert_eq!(table.text("explanation", 1), Some("ärgerlich"));
    assert_eq!(table.text("context.span_id", 2), Some("00000000000000a3"));
}

#[test]
fn what_was_written_here() {
    let table = read_arrow_stream(&written(10), 10).unwrap();
    assert_eq!(table.rows, 10);
    assert_eq!(table.text("id", 9), Some("0000000000000009"));
    assert_eq!((table.number("score", 3), table.number("score", 4)), (None, Some(2.0)));
    assert_eq!(table.column("nested"), Some(&ArrowColumnValues::Others));
    assert_eq!(read_arrow_stream(&written(11), 10).unwrap_err(), ArrowError::TooMany { limit: 10 });
}

/// Two columns of one text a row.
fn two_texts() -> Vec<u8> {
    let texts: Vec<DataFrameCell> = (0..4).map(|row| DataFrameCell::Json(json!(format!("{row:016x}")))).collect();
    let columns = [("a".to_owned(), ArrowColumnType::Text), ("b".to_owned(), ArrowColumnType::Text)];
    let mut stream = write::encode_schema_message(&columns, &[]);
    let column = || (&ArrowColumnType::Text, texts.iter().map(Some).collect());
    stream.extend(write::encode_batch_message(&[column(), column()], 4));
    stream.extend(write::END_OF_STREAM);
    stream
}

/// Bytes that several columns name would be copied for each of them.
#[test]
fn columns_share_no_bytes() {
    const TEXTS: u64 = 4 * 16;
    let mut stream = two_texts();
    assert_eq!(read_arrow_stream(&stream, 10).unwrap().text("b", 3), Some("0000000000000003"));
    // Where the batch says that texts are: a place and this length.
    let number = |at: usize| u64::from_le_bytes(stream[at..at + 8].try_into().unwrap());
    let places: Vec<usize> =
        (0..stream.len() - 16).filter(|at| number(at + 8) == TEXTS && number(*at) < stream.len() as u64).collect();
    let &[first, second] = places.as_slice() else { panic!("{places:?}") };
    stream.copy_within(first..first + 16, second);
    assert_eq!(read_arrow_stream(&stream, 10).unwrap_err(), ArrowError::Broken("columns lie over each other"));
}

#[test]
fn columns_are_few_and_have_short_names() {
    let stream = |names: &[String]| {
        let columns: Vec<_> = names.iter().map(|name| (name.clone(), ArrowColumnType::Float)).collect();
        [write::encode_schema_message(&columns, &[]), write::END_OF_STREAM.to_vec()].concat()
    };
    let many: Vec<String> = (0..MAX_FIELDS).map(|number| number.to_string()).collect();
    assert_eq!(read_arrow_stream(&stream(&many), 10).unwrap().columns.len(), MAX_FIELDS);
    assert!(read_arrow_stream(&stream(&[many, vec!["more".to_owned()]].concat()), 10).is_err());
    assert!(read_arrow_stream(&stream(&["x".repeat(MAX_COLUMN_NAME_BYTES)]), 10).is_ok());
    assert!(read_arrow_stream(&stream(&["x".repeat(MAX_COLUMN_NAME_BYTES + 1)]), 10).is_err());
}

#[test]
fn what_is_no_stream() {
    assert!(matches!(read_arrow_stream(b"", 10), Err(ArrowError::Broken(_))));
    assert!(matches!(read_arrow_stream(b"not arrow at all", 10), Err(ArrowError::Broken(_))));
    assert!(matches!(read_arrow_stream(&[0xff; 64], 10), Err(ArrowError::Broken(_))));
    let whole = recorded();
    for length in 0..whole.len() {
        // Half a stream is an error or fewer rows, never a panic.
        let _ = read_arrow_stream(&whole[..length], 10);
    }
}

proptest! {
    #[test]
    fn changed_bytes_never_panic(
        is_recorded: bool,
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
    ) {
        let mut bytes = if is_recorded { recorded() } else { written(5) };
        for (place, value) in changes {
            let place = place.index(bytes.len());
            bytes[place] = value;
        }
        if let Ok(table) = read_arrow_stream(&bytes, 100) {
            prop_assert!(table.rows <= 100);
        }
    }

    #[test]
    fn extreme_numbers_never_panic(place in any::<prop::sample::Index>(), value in prop_oneof![
        Just(u64::MAX), Just(i64::MIN as u64), Just(i64::MAX as u64), Just(u64::from(u32::MAX)), Just(1 << 31), any::<u64>(),
    ]) {
        let mut bytes = recorded();
        let place = place.index(bytes.len() - 8);
        bytes[place..place + 8].copy_from_slice(&value.to_le_bytes());
        let _ = read_arrow_stream(&bytes, 100);
    }

    #[test]
    fn any_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = read_arrow_stream(&bytes, 100);
    }
}
