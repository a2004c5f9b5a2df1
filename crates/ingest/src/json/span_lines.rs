//! Lines of spans, parsed on several threads and added in their order.

use std::io;

use super::{FirstFailure, report_line_failure};
use crate::bounded_lines::BoundedLines;
use crate::document_error::DocumentError;
use crate::intake::RecordIntake;
use crate::parallel::with_workers;
use crate::records::EncodedRecord;
use crate::shapes::{self, MessageBuffer, read_span_document};

/// Bytes of lines in one job of a thread.
const JOB_BYTES: usize = 256 << 10;

/// A line with its number in the file, counted from 1.
struct NumberedLine {
    number: u64,
    /// The failure if it is too long to be read.
    text: Result<Vec<u8>, DocumentError>,
}

/// The result of parsing a line.
struct ParsedLine {
    number: u64,
    records: Vec<EncodedRecord>,
    outcome: LineOutcome,
}

enum LineOutcome {
    Read,
    Failed(DocumentError),
    /// Not spans: its meaning depends on the lines around it, so it is read on the main thread.
    Other(Vec<u8>),
}

/// Reads the rest of a file. Returns the first line that failed; an error is one of reading the file.
pub(super) fn read_span_lines(
    lines: &mut BoundedLines<'_>,
    intake: &mut RecordIntake<'_>,
    conversation: &mut MessageBuffer,
) -> io::Result<FirstFailure> {
    let mut first_failure = None;
    let threads = intake.limits().threads;
    let mut take = |parsed: Vec<ParsedLine>| {
        for line in parsed {
            line.records.into_iter().for_each(|record| intake.add_encoded_record(record));
            let read = match line.outcome {
                LineOutcome::Read => Ok(()),
                LineOutcome::Failed(failure) => Err(failure),
                LineOutcome::Other(text) => shapes::ingest_document(text.trim_ascii(), intake, conversation),
            };
            if let Err(failure) = read {
                conversation.note_line_failure(&failure);
                report_line_failure(&failure, line.number, intake, &mut first_failure);
            }
        }
        Ok(())
    };
    with_workers(
        threads,
        || |job: Vec<NumberedLine>| job.into_iter().map(parse_span_line).collect::<Vec<_>>(),
        |jobs| {
            let (mut job, mut job_bytes) = (Vec::new(), 0);
            // Lines that were read before an error are still added.
            let ended = loop {
                let line = match next_line(lines) {
                    Ok(Some(line)) => line,
                    Ok(None) => break Ok(()),
                    Err(error) => break Err(error),
                };
                job_bytes += line.text.as_ref().map_or(0, Vec::len);
                job.push(line);
                if job_bytes >= JOB_BYTES {
                    jobs.submit(std::mem::take(&mut job_bytes), std::mem::take(&mut job), &mut take)?;
                }
            };
            jobs.submit(job_bytes, job, &mut take)?;
            jobs.finish(&mut take)?;
            ended
        },
    )?;
    Ok(first_failure)
}

fn next_line(lines: &mut BoundedLines<'_>) -> io::Result<Option<NumberedLine>> {
    let Some(is_complete) = lines.next()? else { return Ok(None) };
    let text = if is_complete { Ok(std::mem::take(&mut lines.line)) } else { Err(lines.skip_rest()?) };
    Ok(Some(NumberedLine { number: lines.number, text }))
}

fn parse_span_line(NumberedLine { number, text }: NumberedLine) -> ParsedLine {
    let mut records = Vec::new();
    let outcome = match text {
        Err(failure) => LineOutcome::Failed(failure),
        Ok(text) if text.trim_ascii().is_empty() => LineOutcome::Read,
        Ok(text) => {
            let mut take = |found: crate::records::FoundRecord<'_>| records.push(EncodedRecord::new(found));
            match read_span_document(text.trim_ascii(), &mut take) {
                Some(Ok(())) => LineOutcome::Read,
                Some(Err(failure)) => LineOutcome::Failed(failure),
                None => LineOutcome::Other(text),
            }
        }
    };
    ParsedLine { number, records, outcome }
}
