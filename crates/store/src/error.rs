//! What can go wrong with a store, told so that the reader knows what to do.

use crate::monitor::QueryStop;
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("{path}: another gradus is using this store; stop it, or choose another folder with --data")]
    InUse { path: PathBuf },
    #[error("{path}: there is no store here; `gradus serve --data DIR` makes one")]
    Missing { path: PathBuf },
    #[error(
        "{path}: this is no Gradus store, or it is damaged ({reason}); restore a backup, or move it away to start anew"
    )]
    Damaged { path: PathBuf, reason: String },
    #[error("{path}: made by a newer Gradus (format {found}, this one knows {known}); use that version")]
    TooNew { path: PathBuf, found: i64, known: i64 },
    #[error("{path}: {reason}; the folder must exist and be writable")]
    NotWritable { path: PathBuf, reason: String },
    #[error("{path}: there is something already; choose another name")]
    Exists { path: PathBuf },
    #[error("the disk is full; nothing that was acknowledged is lost, and writing goes on when there is room")]
    DiskFull,
    #[error("{path}: the disk is full; make room, or choose another folder with --data")]
    NoRoomToOpen { path: PathBuf },
    #[error(
        "{path}: this file of the store is gone or was replaced; stop the server, restore the database from a backup if it is missing, and start again"
    )]
    Gone { path: PathBuf },
    #[error("the store is busy: more is waiting to be written than it takes")]
    Busy,
    #[error("the store is closed")]
    Closed,
    #[error("{0}")]
    Stopped(crate::monitor::QueryStop),
    #[error("search: {reason}")]
    BadSearch { reason: String },
    #[error("{what} is not what it should be: {reason}")]
    BadRow { what: String, reason: String },
    #[error("the store failed: {0}")]
    Sql(String),
}

impl StoreError {
    /// Whether the fault lies with what was asked for: anything else may work meanwhile.
    pub fn is_of_content(&self) -> bool {
        matches!(self, StoreError::BadRow { .. } | StoreError::Damaged { .. } | StoreError::Sql(_))
    }

    pub(crate) fn bad_row(what: impl Into<String>, reason: impl std::fmt::Display) -> StoreError {
        StoreError::BadRow { what: what.into(), reason: reason.to_string() }
    }

    pub(crate) fn not_writable(path: &Path, error: &std::io::Error) -> StoreError {
        let path = path.to_owned();
        match error.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => StoreError::NoRoomToOpen { path },
            _ => StoreError::NotWritable { path, reason: error.to_string() },
        }
    }

    /// Errors at opening, where the file's name helps.
    pub(crate) fn from_open_error(path: &Path, error: &rusqlite::Error) -> StoreError {
        use rusqlite::ErrorCode;
        let path = path.to_owned();
        let reason = error.to_string();
        match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => StoreError::Damaged { path, reason },
            Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
                StoreError::NotWritable { path, reason }
            }
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreError::InUse { path },
            Some(ErrorCode::DiskFull) => StoreError::NoRoomToOpen { path },
            _ => StoreError::from_sql(error),
        }
    }

    pub(crate) fn from_sql(error: &rusqlite::Error) -> StoreError {
        match error.sqlite_error_code() {
            Some(rusqlite::ErrorCode::DiskFull) => StoreError::DiskFull,
            Some(rusqlite::ErrorCode::OperationInterrupted) => match crate::monitor::current_stop() {
                Some(stop) => StoreError::Stopped(stop),
                None => StoreError::Sql(error.to_string()),
            },
            _ => StoreError::Sql(error.to_string()),
        }
    }
}

impl From<QueryStop> for StoreError {
    fn from(stop: QueryStop) -> StoreError {
        StoreError::Stopped(stop)
    }
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> StoreError {
        StoreError::from_sql(&error)
    }
}
