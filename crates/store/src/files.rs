//! The files of an open store. Data written to a file that was removed or replaced would be lost, so nothing is
//! acknowledged any more once one of the files is not what it was at opening.

use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::Connection;
use rusqlite::config::DbConfig;

use crate::error::StoreError;

/// Length of the header of a SQLite database.
const HEADER_BYTES: u64 = 100;

/// The database, its write-ahead log and the index of that log, as they were when the store was opened.
#[derive(Debug)]
pub(crate) struct StoreFiles {
    database: KnownFile,
    log: KnownFile,
    log_index: KnownFile,
    /// Kept open as long as SQLite has it open: closing any handle of a file releases all POSIX locks of this process
    /// on it, and another process would take the index for abandoned and truncate it.
    open_log_index: Option<File>,
}

/// A file with its identity at opening.
#[derive(Debug)]
struct KnownFile {
    path: PathBuf,
    /// Device and inode. `None` if it did not exist at opening: then it cannot be checked.
    identity: Option<(u64, u64)>,
}

impl KnownFile {
    /// Remembers the identity of a file that may not exist.
    fn new(path: PathBuf) -> KnownFile {
        let identity = std::fs::metadata(&path).ok().as_ref().map(file_identity);
        KnownFile { path, identity }
    }

    /// The metadata of the file, or an error if the path now names another file.
    fn check_identity(&self) -> Result<Option<Metadata>, StoreError> {
        if self.identity.is_none() {
            return Ok(None);
        }
        let found = std::fs::metadata(&self.path).ok();
        if found.as_ref().map(file_identity) != self.identity {
            return Err(StoreError::Gone { path: self.path.clone() });
        }
        Ok(found)
    }
}

/// Device and inode.
#[cfg(unix)]
fn file_identity(data: &Metadata) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt as _;
    // While the file is open, its inode number is not reused.
    (data.dev(), data.ino())
}

/// Other systems have no stable identity here, so all files compare as equal.
#[cfg(not(unix))]
fn file_identity(_: &Metadata) -> (u64, u64) {
    (0, 0)
}

impl StoreFiles {
    /// Must be called with a connection that has read something: only then do all files exist.
    pub(crate) fn new(connection: &Connection) -> StoreFiles {
        let path = PathBuf::from(connection.path().unwrap_or_default());
        let log_index = KnownFile::new(append_path_suffix(&path, "-shm"));
        StoreFiles {
            log: KnownFile::new(append_path_suffix(&path, "-wal")),
            open_log_index: File::open(&log_index.path).ok(),
            log_index,
            database: KnownFile::new(path),
        }
    }

    /// Checks that all files are unchanged. Returns the size of the write-ahead log. Called before every
    /// acknowledgement, so it makes a few system calls only.
    pub(crate) fn check(&self) -> Result<u64, StoreError> {
        self.check_database()?;
        self.log_index.check_identity()?;
        let bytes = self.log.check_identity()?.map_or(0, |data| data.len());
        if !self.is_log_whole() {
            return Err(StoreError::Gone { path: self.log.path.clone() });
        }
        Ok(bytes)
    }

    /// The database must exist and not be empty.
    fn check_database(&self) -> Result<(), StoreError> {
        match self.database.check_identity()? {
            Some(data) if data.len() == 0 => Err(StoreError::Gone { path: self.database.path.clone() }),
            _ => Ok(()),
        }
    }

    /// Whether the log has all frames that its index lists. It could have been truncated in place.
    fn is_log_whole(&self) -> bool {
        let is_short = || {
            let frames = read_log_index(self.open_log_index.as_ref()?)?;
            if frames.bytes == 0 {
                return None;
            }
            // SQLite locks the index and not the log, so this handle may be closed.
            let log = File::open(&self.log.path).ok()?;
            let has_header = starts_with_log_magic(&log);
            (!has_header || log.metadata().ok()?.len() < frames.bytes).then_some(frames)
        };
        // A checkpoint empties the log after its index, and looks the same for a moment. Only a state that lasts is an
        // error.
        let Some(first) = is_short() else { return true };
        std::thread::sleep(MAX_LOG_RESET_TIME);
        is_short() != Some(first)
    }

    /// Whether the content of the write-ahead log can be moved into the database: the database exists, and nobody else
    /// has begun another log for it. A log that was removed is still open here, with everything that was acknowledged.
    fn can_checkpoint(&self) -> bool {
        let is_free = |file: &KnownFile| file.check_identity().is_ok() || !file.path.exists();
        self.check_database().is_ok()
            && is_free(&self.log)
            && is_free(&self.log_index)
            && (!self.log.path.exists() || self.is_log_whole())
    }

    /// Moves acknowledged data out of a log that was removed, before it is lost with this process.
    pub(crate) fn rescue_log(&self, connection: &Connection) {
        if self.can_checkpoint() {
            let _ = connection.execute_batch("PRAGMA wal_checkpoint(PASSIVE)");
        }
    }

    /// Must be called before the connection is closed.
    pub(crate) fn prepare_close(&self, connection: &Connection) {
        if self.can_checkpoint() {
            let _ = connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)");
        } else {
            // Closing would checkpoint into files that belong to another process by now.
            let _ = connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
        }
    }
}

/// Maximum time that a checkpoint may take to empty the log.
const MAX_LOG_RESET_TIME: Duration = Duration::from_millis(20);

/// Content of the index of a write-ahead log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LogFrames {
    /// Changes with every transaction.
    change: u32,
    /// Minimum length of the log.
    bytes: u64,
}

/// Reads the header of the index, <https://www.sqlite.org/walformat.html>. It is in the byte order of the machine: the
/// counter of changes at 8, the page size at 14 (1 stands for 65536), the number of the last valid frame at 16.
fn read_log_index(index: &File) -> Option<LogFrames> {
    let mut header = [0; 20];
    read_beginning(index, &mut header)?;
    let number = |at: usize| u32::from_ne_bytes([0, 1, 2, 3].map(|offset| header[at + offset]));
    let page = match u16::from_ne_bytes([header[14], header[15]]) {
        1 => 65_536,
        bytes => u64::from(bytes),
    };
    let frames = u64::from(number(16));
    // The log has a header of 32 bytes, and 24 bytes before each page.
    let bytes = if frames == 0 { 0 } else { 32 + frames * (24 + page) };
    Some(LogFrames { change: number(8), bytes })
}

#[cfg(unix)]
fn read_beginning(file: &File, into: &mut [u8]) -> Option<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, into, 0).ok()
}

#[cfg(not(unix))]
fn read_beginning(_: &File, _: &mut [u8]) -> Option<()> {
    None
}

/// The two magic numbers of a write-ahead log, for the byte orders of its checksums.
fn starts_with_log_magic(log: &File) -> bool {
    let mut magic = [0; 4];
    read_beginning(log, &mut magic).is_some() && matches!(u32::from_be_bytes(magic), 0x377f_0682 | 0x377f_0683)
}

/// The path with some characters appended to its name.
pub(crate) fn append_path_suffix(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(ending);
    PathBuf::from(name)
}

/// Returns whether a database exists at this path. A truncated one is an error, because SQLite takes an empty file
/// for a new database and overwrites it.
pub(crate) fn check_database_file(path: &Path) -> Result<bool, StoreError> {
    let damaged = |reason: String| Err(StoreError::Damaged { path: path.to_owned(), reason });
    let log_bytes = std::fs::metadata(append_path_suffix(path, "-wal")).map_or(0, |data| data.len());
    let bytes = match std::fs::metadata(path) {
        Ok(data) => data.len(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            // The log alone cannot be read, and creating a database would delete it.
            return match log_bytes {
                0 => Ok(false),
                _ => damaged("the file is missing, but its write-ahead log is there".to_owned()),
            };
        }
        Err(error) => return Err(StoreError::not_writable(path, &error)),
    };
    match bytes {
        0 => return damaged("it has 0 bytes: it was truncated".to_owned()),
        1..HEADER_BYTES => return damaged("it is too short".to_owned()),
        _ => {}
    }
    // With a log, missing pages may be there.
    if log_bytes == 0
        && let Some(expected) = read_size_from_header(path)
        && bytes < expected
    {
        return damaged(format!("it has {bytes} of {expected} bytes: it was truncated"));
    }
    Ok(true)
}

/// The size that the header of a database states; `None` if it states none.
fn read_size_from_header(path: &Path) -> Option<u64> {
    let mut header = [0; HEADER_BYTES as usize];
    File::open(path).ok()?.read_exact(&mut header).ok()?;
    if !header.starts_with(b"SQLite format 3\0") {
        return None;
    }
    // <https://www.sqlite.org/fileformat.html>: page size at 16 (1 stands for 65536), size in pages at 28, which is
    // valid only if the change counters at 24 and 92 are equal.
    let number = |at: usize| u64::from(u32::from_be_bytes([0, 1, 2, 3].map(|offset| header[at + offset])));
    let page = match u16::from_be_bytes([header[16], header[17]]) {
        1 => 65_536,
        bytes => u64::from(bytes),
    };
    (number(24) == number(92)).then(|| number(28) * page)
}
