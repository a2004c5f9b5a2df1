//! An append-only file of lines. Lines are buffered and written in one call. Readers skip a line that a crash cut off.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::{QuestionKey, RunFileError};

/// Buffered lines and the file they go to. Dropping it discards lines that were not written.
#[derive(Debug)]
pub struct AppendLog {
    path: PathBuf,
    file: File,
    buffer: Vec<u8>,
}

impl AppendLog {
    /// Opens or creates a file for appending.
    pub fn open(path: &Path) -> Result<AppendLog, RunFileError> {
        let open = || -> std::io::Result<File> {
            let mut file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
            // A crash may have left an incomplete last line. A line feed separates it from the next line.
            let length = file.seek(SeekFrom::End(0))?;
            if length > 0 {
                let mut last = [0];
                file.seek(SeekFrom::End(-1))?;
                file.read_exact(&mut last)?;
                if last != *b"\n" {
                    file.write_all(b"\n")?;
                }
            }
            Ok(file)
        };
        let file = open().map_err(|reason| RunFileError::new(path, reason))?;
        Ok(AppendLog { path: path.to_owned(), file, buffer: Vec::new() })
    }

    /// Buffers a line. If it cannot be serialized, the buffer stays as it was.
    pub fn add<T: Serialize>(&mut self, line: &T) -> Result<(), RunFileError> {
        let start = self.buffer.len();
        if let Err(error) = serde_json::to_writer(&mut self.buffer, line) {
            self.buffer.truncate(start);
            return Err(RunFileError::new(&self.path, error.into()));
        }
        self.buffer.push(b'\n');
        Ok(())
    }

    /// Adds a line with a key before its fields, which `parse_line_key` finds without parsing the line.
    pub(crate) fn add_keyed<T: Serialize>(&mut self, key: QuestionKey, line: &T) -> Result<(), RunFileError> {
        let start = self.buffer.len();
        self.add(line)?;
        // A line is a JSON object with fields, so its first byte is a brace, which the new head replaces.
        let head = format!("{{\"k\":\"{key}\",");
        self.buffer.splice(start..=start, head.into_bytes());
        Ok(())
    }

    /// Adds a line unless its digest is in `known`. Returns whether it was known.
    pub(crate) fn add_unless_known<T: Serialize>(
        &mut self,
        line: &T,
        known: &HashSet<u128>,
    ) -> Result<bool, RunFileError> {
        let start = self.buffer.len();
        self.add(line)?;
        let end = self.buffer.len() - 1;
        let is_known = !known.is_empty() && known.contains(&gradus_core::stable_digest(&self.buffer[start..end]));
        if is_known {
            self.buffer.truncate(start);
        }
        Ok(is_known)
    }

    /// Bytes that the next write will append.
    pub fn buffered_bytes(&self) -> usize {
        self.buffer.len()
    }

    /// Passes all lines to the operating system; they then survive this process, but not a power failure. Returns the
    /// offset at which they begin.
    pub fn write(&mut self) -> Result<u64, RunFileError> {
        let length = self.buffer.len() as u64;
        let written = self.file.write_all(&self.buffer).and_then(|()| self.file.stream_position());
        self.buffer.clear();
        // Releases the memory of a long batch.
        self.buffer.shrink_to(1 << 20);
        written.map(|end| end.saturating_sub(length)).map_err(|reason| RunFileError::new(&self.path, reason))
    }

    /// A second handle, with which another thread calls `fsync`.
    pub fn clone_handle(&self) -> Result<File, RunFileError> {
        self.file.try_clone().map_err(|reason| RunFileError::new(&self.path, reason))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_off_line_costs_only_itself() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        std::fs::write(&path, "{\"a\":1}\n{\"a\":").expect("written");
        let mut log = AppendLog::open(&path).expect("opened");
        log.add(&serde_json::json!({"a": 3})).expect("added");
        log.write().expect("written");
        assert_eq!(std::fs::read_to_string(&path).expect("read"), "{\"a\":1}\n{\"a\":\n{\"a\":3}\n");
    }
}
