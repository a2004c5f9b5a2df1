//! Reads inputs: opens each, detects its format, and passes it to the reader of that format.

use std::collections::VecDeque;
use std::io::{self, BufRead, Read};

use crate::detect::SourceFormat;
use crate::error::SourceError;
use crate::intake::RecordIntake;
use crate::open::{InputReader, InputSource, open_input, open_stream};
use crate::trace_source::{FilesOnly, SourceResolver};
use crate::{detect, imports, json, protobuf, text};

/// The first bytes of every SQLite database.
const SQLITE_MAGIC: &[u8] = b"SQLite format 3\0";

/// The first bytes of every zip archive.
const ZIP_MAGIC: &[u8] = b"PK\x03\x04";

/// Reads one input into the intake. Bad records are reported to the intake; an error means that nothing of the input
/// could be used.
pub fn read_input_source(
    input: &InputSource,
    resolver: &dyn SourceResolver,
    intake: &mut RecordIntake<'_>,
) -> Result<(), SourceError> {
    match input {
        InputSource::Source(source) => source.read(intake),
        InputSource::File { .. } | InputSource::StandardInput => {
            let reader = open_input(input, intake.limits())?;
            read_opened(input, resolver, reader, intake)
        }
    }
}

/// Reads bytes of any format that can be read without a file name: not databases, zip archives and Parquet.
pub fn read_stream(raw: Box<dyn Read + Send>, intake: &mut RecordIntake<'_>) -> Result<(), SourceError> {
    let input = InputSource::StandardInput;
    let reader = open_stream(raw, intake.limits()).map_err(|error| SourceError::from_io(input.name(), &error))?;
    read_opened(&input, &FilesOnly, reader, intake)
}

/// Reads files one after the other and passes the result of each to `report_result`. The next files are opened
/// meanwhile, so that they are decompressed on other threads.
pub fn read_files(
    files: &[InputSource],
    resolver: &dyn SourceResolver,
    intake: &mut RecordIntake<'_>,
    report_result: &mut dyn FnMut(&mut RecordIntake<'_>, Result<(), SourceError>),
) {
    let limits = *intake.limits();
    let ahead = if limits.threads > 1 { limits.threads } else { 0 };
    let mut unopened = files.iter();
    let mut opened = VecDeque::new();
    for file in files {
        let wanted = ahead + 1 - opened.len().min(ahead + 1);
        opened.extend(unopened.by_ref().take(wanted).map(|next| open_input(next, &limits)));
        let Some(reader) = opened.pop_front() else { return };
        let read = reader.and_then(|reader| read_opened(file, resolver, reader, intake));
        report_result(intake, read);
    }
}

/// Detects the format and reads. Standard input cannot be a database: SQLite needs a file.
fn read_opened(
    input: &InputSource,
    resolver: &dyn SourceResolver,
    mut reader: InputReader,
    intake: &mut RecordIntake<'_>,
) -> Result<(), SourceError> {
    intake.begin_input(input.name());
    let head = reader.fill_head().map_err(|error| SourceError::from_io(input.name(), &error))?;
    if let InputSource::File { path, .. } = input
        && head.bytes.starts_with(SQLITE_MAGIC)
        && let Some(database) = resolver.open_database(path)
    {
        return database.read(intake);
    }
    if let InputSource::File { path, .. } = input
        && head.bytes.starts_with(ZIP_MAGIC)
    {
        return imports::read_zip_log(path, intake).map_err(|error| error.in_source(input.name()));
    }
    #[cfg(feature = "parquet")]
    if let InputSource::File { path, .. } = input
        && head.bytes.starts_with(b"PAR1")
    {
        return imports::read_parquet(path, intake).map_err(|error| error.in_source(input.name()));
    }
    let first = head.first_part();
    let format = detect::detect_format(first.bytes, first.whole)
        .ok_or_else(|| SourceError::unrecognized(input.name(), head.bytes))?;
    let session = match format {
        SourceFormat::Json => {
            imports::find_session(&mut reader).map_err(|error| SourceError::from_io(input.name(), &error))?
        }
        _ => imports::SessionHead { bytes: Vec::new(), format: None },
    };
    if let Some(session) = session.format.filter(|format| format.is_personal)
        && matches!(input, InputSource::StandardInput)
        && !intake.limits().accepts_personal_stdin
    {
        return Err(SourceError::Unreadable {
            name: input.name().to_owned(),
            reason: format!("a {}: nothing was sent; name its file to be asked, or add --yes", session.name),
        });
    }
    let mut reader = io::Cursor::new(session.bytes).chain(reader);
    let session = session.format;
    let reader: &mut dyn BufRead = &mut reader;
    let mark = intake.checkpoint();
    let read = match format {
        _ if let Some(session) = session => imports::read_session(reader, session, intake),
        SourceFormat::Protobuf(framing) => protobuf::read_protobuf_export(reader, framing, intake),
        SourceFormat::Json => json::read_json_input(reader, intake),
        SourceFormat::Table => imports::read_table(reader, intake),
        SourceFormat::Transcript => text::read_transcript(reader, intake),
    };
    intake.end_input();
    read.map_err(|error| {
        // The input is reported as a whole, so its single records are not.
        intake.forget_bad_records(&mark);
        error.in_source(input.name())
    })
}
