//! OTLP protobuf inputs.

use std::io::BufRead;

use gradus_otlp::{MessageFraming, StreamError, stream_export};

use crate::error::ReadError;
use crate::intake::RecordIntake;

/// Reads all messages of an input. Fails if nothing could be read; after the first record, errors are reported as bad
/// records.
pub fn read_protobuf_export(
    input: &mut dyn BufRead,
    framing: MessageFraming,
    intake: &mut RecordIntake<'_>,
) -> Result<(), ReadError> {
    let limits = intake.limits().record;
    let before = intake.record_count();
    let read = stream_export(input, framing, &limits, &mut |record| match record {
        Ok(record) => intake.add_record(&record),
        Err((offset, reason)) => {
            intake.bad_record(&format!("byte {offset}: {reason}"));
            Ok(())
        }
    });
    match read {
        Ok(()) => Ok(()),
        Err(StreamError::Io(error)) => Err(error.into()),
        // Records before the point where the input is cut are kept. An input without any record is an error.
        Err(error) if intake.record_count() > before => {
            intake.bad_record(&error.to_string());
            Ok(())
        }
        Err(error) => Err(ReadError::new(error.to_string())),
    }
}
