//! The lines of a text input.

use std::io::{self, BufRead, Read};

use crate::document_error::DocumentError;

/// Windows programs write UTF-8 with a byte order mark, which JSON does not allow.
pub(crate) fn skip_byte_order_mark(input: &mut dyn BufRead) -> io::Result<()> {
    if input.fill_buf()?.starts_with(b"\xef\xbb\xbf") {
        input.consume(3);
    }
    Ok(())
}

/// The lines of an input, bounded in length: a file without line breaks must not be read into memory as one line.
pub(crate) struct BoundedLines<'r> {
    pub(crate) input: &'r mut dyn BufRead,
    /// Number of the line, from 1.
    pub(crate) number: u64,
    pub(crate) line: Vec<u8>,
    limit: usize,
    pub(crate) read_bytes: usize,
}

impl<'r> BoundedLines<'r> {
    pub(crate) fn new(input: &'r mut dyn BufRead, limit: usize) -> Self {
        BoundedLines { input, number: 0, line: Vec::new(), limit, read_bytes: 0 }
    }

    /// Reads the next line into `line`; `None` at the end. `false` if it is longer than the limit: then only its
    /// beginning is there.
    pub(crate) fn next(&mut self) -> io::Result<Option<bool>> {
        self.line.clear();
        self.number += 1;
        let read = (&mut *self.input).take(self.limit as u64 + 1).read_until(b'\n', &mut self.line)?;
        self.read_bytes = self.read_bytes.saturating_add(read);
        Ok((read > 0).then_some(read <= self.limit))
    }

    /// Skips the rest of a line that is too long, and returns the failure to report.
    pub(crate) fn skip_rest(&mut self) -> io::Result<DocumentError> {
        loop {
            let buffer = self.input.fill_buf()?;
            let (length, ends) = match buffer.iter().position(|byte| *byte == b'\n') {
                Some(place) => (place + 1, true),
                None => (buffer.len(), buffer.is_empty()),
            };
            self.input.consume(length);
            if ends {
                return Ok(DocumentError::Malformed(format!("longer than the limit of {} bytes", self.limit)));
            }
        }
    }
}
