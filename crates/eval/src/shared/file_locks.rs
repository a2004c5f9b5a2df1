//! Advisory locks on files. The operating system releases the locks of a process that dies, on NFS also those of a
//! machine, so there are no leases and no clocks to compare.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::Path;

use crate::run::RunFileError;

/// Opens or creates a file to lock. It stays empty.
pub(super) fn open_lock_file(path: &Path) -> Result<File, RunFileError> {
    let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
    opened.map_err(|reason| RunFileError::new(path, reason))
}

/// Locks without waiting. Returns false if another process, or another handle of this one, has the lock.
pub(super) fn try_lock(file: &File, path: &Path) -> Result<bool, RunFileError> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(reason)) => Err(RunFileError::new(path, explain_missing_locks(reason))),
    }
}

/// Waits for the lock. Only for locks that are held briefly.
pub(super) fn wait_for_lock(path: &Path) -> Result<File, RunFileError> {
    let file = open_lock_file(path)?;
    file.lock().map_err(|reason| RunFileError::new(path, explain_missing_locks(reason)))?;
    Ok(file)
}

/// Explains a failed lock: mounted object stores support files but not locks, which the message of the operating
/// system does not say.
fn explain_missing_locks(reason: std::io::Error) -> std::io::Error {
    match reason.kind() {
        std::io::ErrorKind::Unsupported => std::io::Error::new(
            reason.kind(),
            format!("this file system has no locks ({reason}); use a local disk or NFS, not a mounted object store"),
        ),
        _ => reason,
    }
}
