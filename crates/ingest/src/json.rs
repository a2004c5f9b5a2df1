//! JSON inputs: one document per line, one for the whole file, or any number one behind the other. `shapes` recognises
//! what a document is.

use std::cell::Cell;
use std::fmt;
use std::io::{self, BufRead, BufReader, Read};
use std::rc::Rc;

use gradus_otlp::{ExportList, is_export_key};
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value as Json};

use crate::bounded_lines::{BoundedLines, skip_byte_order_mark};
use crate::document_error::{DocumentError, describe_json_error};
use crate::error::ReadError;
use crate::intake::RecordIntake;
use crate::shapes::{self, MessageBuffer};

mod span_lines;

/// Minimum bytes for which lines are parsed on several threads. For less, starting them takes longer.
const MIN_BYTES_IN_PARALLEL: usize = 256 << 10;

/// Reads an input as lines first. If its first document does not end on its line, reading continues with documents that
/// are spread over lines. An error means that nothing of the input could be read; otherwise bad lines are reported to
/// the intake.
pub(crate) fn read_json_input(input: &mut dyn BufRead, intake: &mut RecordIntake<'_>) -> Result<(), ReadError> {
    skip_byte_order_mark(input)?;
    let limit = intake.limits().record.record_bytes;
    let mut lines = BoundedLines::new(input, limit);
    let mut conversation = MessageBuffer::default();
    let before = intake.record_count();
    let mut first_failure: FirstFailure = None;
    let mut first_line: Option<Vec<u8>> = None;
    loop {
        // Lines of spans are independent of each other, so any thread can parse them. Lines of messages are not.
        let spans_alone = intake.record_count() > before && conversation.is_empty() && first_line.is_none();
        if intake.limits().threads > 1 && lines.read_bytes >= MIN_BYTES_IN_PARALLEL && spans_alone {
            let failed = span_lines::read_span_lines(&mut lines, intake, &mut conversation)?;
            first_failure = first_failure.or(failed);
            break;
        }
        let Some(complete) = lines.next()? else { break };
        let text = lines.line.trim_ascii();
        if text.is_empty() {
            continue;
        }
        let nothing_yet = intake.record_count() == before && conversation.is_empty() && first_failure.is_none();
        let read = match complete {
            true => shapes::ingest_document(text, intake, &mut conversation),
            false => Err(DocumentError::Incomplete),
        };
        if let Some(begun) = first_line.take() {
            // The first line was incomplete. If this one is complete, the file has one document per line after all, and
            // its first line was cut.
            if matches!(read, Err(DocumentError::Incomplete | DocumentError::Malformed(_))) {
                let head: Vec<u8> = [begun, std::mem::take(&mut lines.line)].concat();
                return read_whole_documents(head.chain(lines.input), intake);
            }
            let reason = format!("line {}: the JSON ends too early", lines.number - 1);
            first_failure.get_or_insert(ReadError::new(reason.clone()));
            intake.bad_record(&reason);
        }
        match read {
            Ok(()) => {}
            Err(DocumentError::Incomplete) if nothing_yet && !complete => {
                let head = std::mem::take(&mut lines.line);
                return read_whole_documents(head.chain(lines.input), intake);
            }
            Err(DocumentError::Incomplete) if nothing_yet => first_line = Some(lines.line.clone()),
            Err(failure) => {
                let failure = if complete { failure } else { lines.skip_rest()? };
                conversation.note_line_failure(&failure);
                report_line_failure(&failure, lines.number, intake, &mut first_failure);
            }
        }
    }
    if let Some(begun) = first_line {
        return read_whole_documents(begun.as_slice(), intake);
    }
    conversation.flush(intake);
    match first_failure {
        Some(failure) if intake.record_count() == before => Err(failure),
        _ => Ok(()),
    }
}

/// Why the first unreadable line could not be read.
type FirstFailure = Option<ReadError>;

fn report_line_failure(failure: &DocumentError, line: u64, intake: &mut RecordIntake<'_>, first: &mut FirstFailure) {
    let reason = failure.in_line(line);
    first.get_or_insert(match failure {
        DocumentError::Unrecognised => ReadError::Unrecognised(reason.clone()),
        DocumentError::NotRuns(..) => ReadError::NotRuns(failure.to_string()),
        _ => ReadError::new(reason.clone()),
    });
    intake.bad_record(&reason);
}

/// Reads documents that are spread over lines, while they are parsed. Memory is bounded by the largest record, not by
/// the document.
fn read_whole_documents(input: impl Read, intake: &mut RecordIntake<'_>) -> Result<(), ReadError> {
    let limit = intake.limits().record.record_bytes;
    let meter = RecordMeter { used: Rc::new(Cell::new(0)), limit };
    let input = BufReader::new(MeteredReader { inner: input, meter: meter.clone() });
    let mut deserializer = serde_json::Deserializer::from_reader(input);
    let mut conversation = MessageBuffer::default();
    let before = intake.record_count();
    let mut refusal = None;
    while deserializer.end().is_err() {
        let document =
            JsonDocumentVisitor { intake, conversation: &mut conversation, meter: &meter, refusal: &mut refusal };
        if let Err(error) = document.deserialize(&mut deserializer) {
            let reason = describe_json_error(&error, true);
            if intake.record_count() == before && conversation.is_empty() {
                return Err(ReadError::new(reason));
            }
            intake.bad_record(&reason);
            break;
        }
    }
    conversation.flush(intake);
    if intake.record_count() == before {
        let unrecognised = || DocumentError::Unrecognised.to_string();
        return Err(refusal.unwrap_or_else(|| ReadError::Unrecognised(unrecognised())));
    }
    Ok(())
}

/// Bytes that were read since the last record ended. Shared by the reader, which counts, and the visitor, which resets.
#[derive(Clone)]
struct RecordMeter {
    used: Rc<Cell<usize>>,
    limit: usize,
}

impl RecordMeter {
    /// A new record begins.
    fn reset(&self) {
        self.used.set(0);
    }
}

/// Refuses to read more bytes than one record may have. The deserialiser buffers ahead, so the limit is not exact.
struct MeteredReader<R> {
    inner: R,
    meter: RecordMeter,
}

impl<R: Read> Read for MeteredReader<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let RecordMeter { used, limit } = &self.meter;
        if used.get() > *limit {
            return Err(io::Error::other(format!("a record is over the limit of {limit} bytes")));
        }
        let read = self.inner.read(out)?;
        used.set(used.get() + read);
        Ok(read)
    }
}

/// Visits a document while it is parsed. Elements of its lists are handed on one by one.
struct JsonDocumentVisitor<'d, 'k> {
    intake: &'d mut RecordIntake<'k>,
    conversation: &'d mut MessageBuffer,
    meter: &'d RecordMeter,
    /// Why the first document that is known and not read was refused.
    refusal: &'d mut Option<ReadError>,
}

impl<'de> DeserializeSeed<'de> for JsonDocumentVisitor<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for JsonDocumentVisitor<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("spans or messages as a JSON object or list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<(), A::Error> {
        JsonListVisitor { document: self }.visit_seq(list).map(drop)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut rest = Map::new();
        let mut streamed = false;
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                key if is_export_key(key) => {
                    let mut sink = |record| {
                        self.meter.reset();
                        shapes::add_export_record(record, self.intake);
                    };
                    map.next_value_seed(ExportList::new(&mut sink))?;
                    streamed = true;
                }
                "data" | "spans" | "traces" if shapes::is_listing(&rest) => {
                    let document = JsonDocumentVisitor {
                        intake: self.intake,
                        conversation: self.conversation,
                        meter: self.meter,
                        refusal: self.refusal,
                    };
                    streamed |= map.next_value_seed(JsonListVisitor { document })?;
                }
                // Fields after a list of records are not needed, and may be long.
                _ if streamed => drop(map.next_value::<IgnoredAny>()?),
                _ => drop(rest.insert(key, map.next_value()?)),
            }
        }
        if !streamed {
            let json = Json::Object(rest);
            let source = json.to_string();
            if let Err(failure) = shapes::ingest_json_value(json, source.as_bytes(), self.intake, self.conversation) {
                report_document_failure(&failure, self.intake, self.refusal);
            }
        }
        self.meter.reset();
        Ok(())
    }
}

/// Reports a document that cannot be read, and stores the reason if it says more than that the document is unknown.
fn report_document_failure(failure: &DocumentError, intake: &mut RecordIntake<'_>, refusal: &mut Option<ReadError>) {
    let reason = failure.to_string();
    intake.bad_record(&reason);
    match failure {
        DocumentError::Unrecognised => {}
        DocumentError::NotRuns(..) => {
            refusal.get_or_insert(ReadError::NotRuns(reason));
        }
        _ => {
            refusal.get_or_insert(ReadError::Unrecognised(reason));
        }
    }
}

/// Visits the elements of a list one by one. Messages are collected, because together they are one conversation.
/// Returns false for an empty list and for a value that is no list.
struct JsonListVisitor<'d, 'k> {
    document: JsonDocumentVisitor<'d, 'k>,
}

impl<'de> DeserializeSeed<'de> for JsonListVisitor<'_, '_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for JsonListVisitor<'_, '_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of spans or messages")
    }

    fn visit_unit<E>(self) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<bool, A::Error> {
        let JsonDocumentVisitor { intake, conversation, meter, refusal } = self.document;
        let mut messages = Vec::new();
        let mut mlflow_spans = Vec::new();
        let mut any = false;
        while let Some(item) = list.next_element::<Json>()? {
            any = true;
            // Messages are held until their list ends, so together they count as one record.
            if item.as_object().is_some_and(shapes::is_message) {
                messages.push(item);
                continue;
            }
            if item.as_object().is_some_and(gradus_import::is_mlflow_span) {
                mlflow_spans.push(item);
                continue;
            }
            if messages.is_empty() && mlflow_spans.is_empty() {
                meter.reset();
            }
            let source = item.to_string();
            if let Err(failure) = shapes::ingest_json_value(item, source.as_bytes(), intake, conversation) {
                report_document_failure(&failure, intake, refusal);
            }
        }
        if !messages.is_empty() {
            shapes::ingest_conversation(messages, intake);
        }
        if !mlflow_spans.is_empty() {
            let trace = serde_json::json!({"spans": mlflow_spans});
            if let Err(failure) = shapes::ingest_json_value(trace, &[], intake, conversation) {
                report_document_failure(&failure, intake, refusal);
            }
        }
        meter.reset();
        Ok(any)
    }
}
