//! Plain ReAct transcripts. A file is one run.

use std::io::{BufRead, Read};

use crate::error::ReadError;
use crate::intake::RecordIntake;

/// Reads the whole file, up to the limit of a record. Bytes that are not UTF-8 become replacement characters.
pub(crate) fn read_transcript(input: &mut dyn BufRead, intake: &mut RecordIntake<'_>) -> Result<(), ReadError> {
    let limit = intake.limits().record.record_bytes;
    let mut bytes = Vec::new();
    input.take(limit as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > limit {
        return Err(ReadError::new(format!(
            "a transcript of more than {limit} bytes is over the limit of {limit} bytes"
        )));
    }
    intake.add_transcript(&String::from_utf8_lossy(&bytes));
    Ok(())
}
