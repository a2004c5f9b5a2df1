//! Reads the formats of other tools: `gradus-import` knows the formats, this module the files and the intake.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use gradus_core::span::{Span, SpanId, TraceId};
use gradus_core::trajectory::RecordedAnnotation;
use gradus_import::{
    ArchiveLimits, DOCUMENT_FORMATS, DocumentFormat, ImportError, ImportSink, ImportedTurn, SESSION_FORMATS,
    SessionFormat, SessionReader, UNREADABLE_FORMATS, UnreadableFormat, describe_unreadable_table,
    is_personal_document, matches_span_table, read_csv_table, read_first_records, read_inspect_archive,
    read_table_header,
};
use serde::de::{DeserializeSeed, Deserializer, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value as Json};

use crate::bounded_lines::{BoundedLines, skip_byte_order_mark};
use crate::detect::{SourceFormat, detect_format};
use crate::document_error::describe_json_error;
use crate::error::ReadError;
use crate::intake::RecordIntake;
use crate::limits::SourceLimits;
use crate::open::{InputReader, expand_source, open_input};
use crate::records::FoundRecord;
use crate::trace_source::FilesOnly;

/// The format of a session, by the first bytes of its file.
pub(crate) fn detect_session(head: &[u8]) -> Option<&'static SessionFormat> {
    let records = read_first_records(head);
    SESSION_FORMATS.iter().find(|format| (format.matches)(&records))
}

/// Returns the name of the format of the first personal session in a file or folder. Reads the beginning of every
/// file until one is found: the caller asks for consent and must not miss one.
pub fn find_personal_session(source: &str) -> Option<&'static str> {
    let files = expand_source(source, &FilesOnly).unwrap_or_default();
    let limits = SourceLimits::default();
    files.iter().find_map(|file| {
        let mut reader = open_input(file, &limits).ok()?;
        let head = reader.fill_head().ok()?;
        let is_json = matches!(detect_format(head.first_part().bytes, head.whole), Some(SourceFormat::Json));
        let session = is_json.then(|| find_session(&mut reader).ok()).flatten()?;
        let SessionHead { bytes, format } = session;
        if let Some(format) = format {
            return format.is_personal.then_some(format.name);
        }
        let head = if bytes.is_empty() { reader.fill_head().ok()?.bytes.to_vec() } else { bytes };
        let first = read_first_records(&head).into_iter().next()?;
        first.as_object().is_some_and(is_personal_document).then_some("session of a coding agent")
    })
}

/// The result of inspecting an input that may be a session.
pub(crate) struct SessionHead {
    /// The bytes that had to be read. They come before the rest of the reader.
    pub(crate) bytes: Vec<u8>,
    pub(crate) format: Option<&'static SessionFormat>,
}

/// Maximum bytes that are read to recognise a session whose first records are long: a picture in the first message.
const MAX_SESSION_HEAD: usize = 32 << 20;
/// Minimum number of records that identify a format.
const MIN_RECORDS: usize = 3;

/// The format of the session that a reader begins with. Reads on while its first records are longer than the head.
pub(crate) fn find_session(reader: &mut InputReader) -> io::Result<SessionHead> {
    let head = reader.fill_head()?;
    let format = detect_session(head.bytes);
    let complete = head.bytes.iter().filter(|byte| **byte == b'\n').count();
    let is_lines = head.bytes.trim_ascii_start().starts_with(b"{");
    if format.is_some() || head.whole || complete >= MIN_RECORDS || !is_lines {
        return Ok(SessionHead { bytes: Vec::new(), format });
    }
    let mut bytes = Vec::new();
    for _ in 0..MIN_RECORDS {
        let left = MAX_SESSION_HEAD.saturating_sub(bytes.len()) as u64;
        if reader.by_ref().take(left).read_until(b'\n', &mut bytes)? == 0 {
            break;
        }
    }
    let format = detect_session(&bytes);
    Ok(SessionHead { bytes, format })
}

/// The format of a document that other tools write.
pub(crate) fn detect_document(object: &Map<String, Json>) -> Option<&'static DocumentFormat> {
    DOCUMENT_FORMATS.iter().find(|format| (format.matches)(object))
}

/// The kind of a document that is known and holds no runs.
pub(crate) fn detect_unreadable(object: &Map<String, Json>) -> Option<&'static UnreadableFormat> {
    UNREADABLE_FORMATS.iter().find(|format| (format.matches)(object))
}

/// Reads a document of a known format. An error is one of the whole document.
pub(crate) fn read_document(
    object: Map<String, Json>,
    format: &DocumentFormat,
    intake: &mut RecordIntake<'_>,
) -> Result<(), ImportError> {
    intake.count_document();
    let mut sink = IntakeSink { intake, line: None };
    (format.read)(object, &mut sink).map_err(|error| ImportError::new(format!("{}: {error}", format.name)))
}

/// Reads a session: lines, or the elements of one list.
pub(crate) fn read_session(
    input: &mut dyn BufRead,
    format: &SessionFormat,
    intake: &mut RecordIntake<'_>,
) -> Result<(), ReadError> {
    skip_byte_order_mark(input)?;
    intake.count_document();
    let mut reader = (format.open)();
    let mut sink = IntakeSink { intake, line: None };
    if begins_like_list(input)? {
        let mut deserializer = serde_json::Deserializer::from_reader(input);
        let list = SessionList { reader: &mut *reader, sink: &mut sink };
        if let Err(error) = list.deserialize(&mut deserializer) {
            sink.report_bad_record(&describe_json_error(&error, true));
        }
    } else if begins_with_whole_line(input)? {
        read_session_lines(input, &mut *reader, &mut sink)?;
    } else {
        // Records that are spread over lines.
        for record in serde_json::Deserializer::from_reader(input).into_iter::<Box<RawValue>>() {
            match record {
                Ok(record) => reader.read_record(record.get().as_bytes(), &mut sink),
                Err(error) => {
                    sink.report_bad_record(&describe_json_error(&error, true));
                    break;
                }
            }
        }
    }
    sink.line = None;
    reader.finish(&mut sink);
    Ok(())
}

/// Reads a table of spans. A table of another kind is named.
pub(crate) fn read_table(input: &mut dyn BufRead, intake: &mut RecordIntake<'_>) -> Result<(), ReadError> {
    let names = read_table_header(input.fill_buf()?, false).unwrap_or_default();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    if !matches_span_table(&names) {
        return Err(ReadError::Unrecognised(describe_unreadable_table(&names)));
    }
    let mut input = input;
    read_csv_table(&mut input, &mut IntakeSink { intake, line: None }).map_err(|error| ReadError::new(error.reason))
}

/// Reads a table of spans in Parquet.
#[cfg(feature = "parquet")]
pub(crate) fn read_parquet(path: &Path, intake: &mut RecordIntake<'_>) -> Result<(), ReadError> {
    let file = File::open(path)?;
    let read = gradus_import::read_parquet_table(file, &mut IntakeSink { intake, line: None });
    intake.end_input();
    read.map_err(|error| ReadError::Unrecognised(error.reason))
}

/// Reads a zip archive: only logs of Inspect are known.
pub(crate) fn read_zip_log(path: &Path, intake: &mut RecordIntake<'_>) -> Result<(), ReadError> {
    let file = BufReader::new(File::open(path)?);
    let before = intake.record_count();
    intake.count_document();
    let read = read_inspect_archive(file, ArchiveLimits::default(), &mut IntakeSink { intake, line: None });
    intake.end_input();
    read.map_err(|error| match intake.record_count() {
        count if count > before + 1 => ReadError::new(error.reason),
        _ => ReadError::Unrecognised(error.reason),
    })
}

/// Whether the first character that is not white space opens a list.
fn begins_like_list(input: &mut dyn BufRead) -> Result<bool, ReadError> {
    let head = input.fill_buf()?;
    Ok(head.trim_ascii_start().starts_with(b"["))
}

/// Whether the first line is a record of its own. A line that is longer than the buffer is one.
fn begins_with_whole_line(input: &mut dyn BufRead) -> Result<bool, ReadError> {
    let head = input.fill_buf()?;
    let text = head.trim_ascii_start();
    let Some(end) = text.iter().position(|byte| *byte == b'\n') else { return Ok(true) };
    Ok(serde_json::from_slice::<&RawValue>(text[..end].trim_ascii()).is_ok())
}

fn read_session_lines(
    input: &mut dyn BufRead,
    reader: &mut dyn SessionReader,
    sink: &mut IntakeSink<'_, '_>,
) -> Result<(), ReadError> {
    let limit = sink.intake.limits().record.record_bytes;
    let mut lines = BoundedLines::new(input, limit);
    while let Some(complete) = lines.next()? {
        sink.line = Some(lines.number);
        if !complete {
            let failure = lines.skip_rest()?;
            sink.report_bad_record(&failure.to_string());
            continue;
        }
        let text = lines.line.trim_ascii();
        // A session that is being written ends in the middle of a record.
        let is_being_written = !lines.line.ends_with(b"\n") && serde_json::from_slice::<&RawValue>(text).is_err();
        if is_being_written && !text.is_empty() {
            sink.intake.report_unfinished_record(lines.number);
        } else if !text.is_empty() {
            reader.read_record(text, sink);
        }
    }
    Ok(())
}

/// Passes the elements of a list to the reader of a session, one by one.
struct SessionList<'s, 'i, 'k> {
    reader: &'s mut dyn SessionReader,
    sink: &'s mut IntakeSink<'i, 'k>,
}

impl<'de> DeserializeSeed<'de> for SessionList<'_, '_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for SessionList<'_, '_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of records")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while let Some(record) = list.next_element::<Box<RawValue>>()? {
            self.reader.read_record(record.get().as_bytes(), self.sink);
        }
        Ok(())
    }
}

/// Passes what a reader finds to the intake.
struct IntakeSink<'i, 'k> {
    intake: &'i mut RecordIntake<'k>,
    /// The line that is being read.
    line: Option<u64>,
}

impl ImportSink for IntakeSink<'_, '_> {
    fn add_span(&mut self, span: &Span<'_>) {
        self.intake.add_found_record(FoundRecord::Span(span));
    }

    fn add_annotation(&mut self, trace_id: TraceId, span_id: Option<SpanId>, annotation: RecordedAnnotation) {
        self.intake.add_annotation(trace_id, span_id, annotation);
    }

    fn add_turn(&mut self, turn: ImportedTurn) {
        self.intake.add_imported_turn(turn);
    }

    fn count_unrequested_run(&mut self) {
        self.intake.count_unrequested_run();
    }

    fn report_bad_record(&mut self, reason: &str) {
        match self.line {
            Some(line) => self.intake.bad_record(&format!("line {line}: {reason}")),
            None => self.intake.bad_record(reason),
        }
    }
}
