//! Errors of the store. Each message says what to do about it.

use crate::monitor::QueryStop;
use crate::sql::SqlError;
#[cfg(feature = "postgres")]
use ::postgres::error::SqlState;
use std::path::{Path, PathBuf};

/// Why the store could not do something. Causes are kept as text, so that everyone who waited for one transaction gets
/// the same error.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    #[error("{path}: another gradus is using this store; stop it, or choose another folder with --data")]
    InUse { path: PathBuf },
    #[error("{path}: there is no store here; `gradus serve --data DIR` makes one")]
    Missing { path: PathBuf },
    #[error("{address}: there is no store in this database; `gradus serve --store ADDRESS` makes one")]
    NoTables { address: String },
    #[error("{address}: the schema \"gradus\" of this database belongs to another program; use another database")]
    ForeignSchema { address: String },
    /// Also a file of another program: SQLite cannot tell the two apart.
    #[error(
        "{path}: this is no Gradus store, or it is damaged ({reason}); restore a backup, or move it away to start anew"
    )]
    Damaged { path: PathBuf, reason: String },
    #[error("{path}: made by a newer Gradus (format {found}, this one knows {known}); use that version")]
    TooNew { path: PathBuf, found: i64, known: i64 },
    /// Only where nothing may be changed: otherwise an older store is migrated.
    #[error("{path}: made by an older Gradus (format {found}, this one has {known}); `gradus store check` upgrades it")]
    TooOld { path: PathBuf, found: i64, known: i64 },
    #[error("{path}: {reason}; the folder must exist and be writable")]
    NotWritable { path: PathBuf, reason: String },
    #[error("{path}: there is something already; choose another name")]
    Exists { path: PathBuf },
    #[error("{path}: the store is not empty; copy into an empty one")]
    NotEmpty { path: PathBuf },
    #[error("{path}: a copy into this store is not complete; run `gradus store copy` again, with the same source")]
    IncompleteCopy { path: PathBuf },
    #[error("{path}: an incomplete copy of {source_name} is here; go on with that one, or copy into an empty store")]
    OtherCopy { path: PathBuf, source_name: String },
    #[error(
        "{path}: servers or another copy are using this database; stop them (PostgreSQL notices within some seconds that one was killed)"
    )]
    ServersRunning { path: PathBuf },
    #[error("{path}: `gradus store copy` is reading or writing this database; wait until it ends")]
    CopyRunning { path: PathBuf },
    #[error(
        "{path}: table {table} differs from the source ({copied} rows, the source has {rows}), which was changed meanwhile; remove the target (its folder, or DROP SCHEMA gradus CASCADE), and copy again"
    )]
    CopyDiffers { table: &'static str, rows: u64, copied: u64, path: PathBuf },
    /// While the store is in use. The writer retries with the next batch.
    #[error("the disk is full; nothing that was acknowledged is lost, and writing goes on when there is room")]
    DiskFull,
    /// While the store is being opened.
    #[error("{path}: the disk is full; make room, or choose another folder with --data")]
    NoRoomToOpen { path: PathBuf },
    /// Writes would go to a file that nobody will ever read.
    #[error(
        "{path}: this file of the store is gone or was replaced; stop the server, restore the database from a backup if it is missing, and start again"
    )]
    Gone { path: PathBuf },
    /// Something that only one of the engines has.
    #[error("{what} is not available for a store in PostgreSQL; use {instead}")]
    NotSupported { what: &'static str, instead: &'static str },
    /// The address of a database server cannot be used.
    #[error("{address}: {reason}; write postgres://USER@HOST:PORT/DATABASE or sqlite:FOLDER")]
    BadAddress { address: String, reason: String },
    /// While the store is being opened.
    #[error("{address}: cannot use this PostgreSQL server ({reason}); {advice}")]
    NotReachable { address: String, reason: String, advice: &'static str },
    #[error("{address}: PostgreSQL {found} is too old; use version {needed} or later")]
    OldServer { address: String, found: String, needed: i32 },
    /// While the store is in use. Senders get 503 and try again.
    #[error(
        "PostgreSQL cannot be reached ({reason}); nothing that was acknowledged is lost, and writing goes on when it is back"
    )]
    Unreachable { reason: String },
    #[error("PostgreSQL is read-only; promote it, or connect to the primary (target_session_attrs=read-write)")]
    ReadOnlyServer,
    #[error("PostgreSQL refused it: {reason}; docs/how-to/several-servers.md lists the rights that the role needs")]
    MissingRights { reason: String },
    /// Another transaction was in the way. The writer tries again.
    #[error("PostgreSQL could not write beside other servers: {reason}")]
    Conflict { reason: String },
    /// The write queue is full. The caller should answer 503.
    #[error("the store is busy: more is waiting to be written than it takes")]
    Busy,
    #[error("the store is closed")]
    Closed,
    #[error("{0}")]
    Stopped(crate::monitor::QueryStop),
    /// The search text of a user cannot be used.
    #[error("search: {reason}")]
    BadSearch { reason: String },
    /// A stored row cannot be decoded.
    #[error("{what} is not what it should be: {reason}")]
    BadRow { what: String, reason: String },
    /// Any other error of SQLite.
    #[error("the store failed: {0}")]
    Sql(String),
}

impl StoreError {
    /// Whether the requested data is at fault and not the store: other requests may succeed.
    pub fn is_data_error(&self) -> bool {
        matches!(self, StoreError::BadRow { .. } | StoreError::Damaged { .. } | StoreError::Sql(_))
    }

    /// Whether the store refused to be written to, so that other tasks would fail, too.
    pub(crate) fn is_write_refusal(&self) -> bool {
        matches!(
            self,
            StoreError::DiskFull
                | StoreError::Unreachable { .. }
                | StoreError::ReadOnlyServer
                | StoreError::MissingRights { .. }
        )
    }

    /// A stored row that cannot be decoded. `what` names it for the message.
    pub(crate) fn bad_row(what: impl Into<String>, reason: impl std::fmt::Display) -> StoreError {
        StoreError::BadRow { what: what.into(), reason: reason.to_string() }
    }

    /// A full disk has an error of its own, because the user can do something about it.
    pub(crate) fn not_writable(path: &Path, error: &std::io::Error) -> StoreError {
        let path = path.to_owned();
        match error.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => StoreError::NoRoomToOpen { path },
            _ => StoreError::NotWritable { path, reason: error.to_string() },
        }
    }

    /// Errors while a file is opened, where its path helps.
    pub(crate) fn from_open_error(path: &Path, error: &rusqlite::Error) -> StoreError {
        use rusqlite::ErrorCode;
        let path = path.to_owned();
        let reason = describe_sql_error(error);
        match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => StoreError::Damaged { path, reason },
            Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
                StoreError::NotWritable { path, reason }
            }
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreError::InUse { path },
            Some(ErrorCode::DiskFull) => StoreError::NoRoomToOpen { path },
            _ => StoreError::from_sqlite(error),
        }
    }

    /// Maps an error of either engine.
    pub(crate) fn from_sql(error: &SqlError) -> StoreError {
        match error {
            SqlError::Sqlite(error) => StoreError::from_sqlite(error),
            #[cfg(feature = "postgres")]
            SqlError::Postgres(error) => StoreError::from_postgres(error),
            SqlError::Stopped(stop) => StoreError::Stopped(*stop),
            SqlError::NoRow | SqlError::WrongType { .. } => StoreError::Sql(error.to_string()),
        }
    }

    /// Maps an error of PostgreSQL. A cancelled statement gets the reason of the monitor that cancelled it.
    #[cfg(feature = "postgres")]
    pub(crate) fn from_postgres(error: &::postgres::Error) -> StoreError {
        let reason = crate::sql::describe_postgres_error(error);
        if is_conflict(error) {
            return StoreError::Conflict { reason };
        }
        let Some(code) = error.code() else {
            return if error.is_closed() || std::error::Error::source(error).is_some() {
                StoreError::Unreachable { reason }
            } else {
                StoreError::Sql(reason)
            };
        };
        match code {
            code if *code == SqlState::QUERY_CANCELED => match crate::monitor::current_stop() {
                Some(stop) => StoreError::Stopped(stop),
                None => StoreError::Sql(reason),
            },
            code if *code == SqlState::DISK_FULL => StoreError::DiskFull,
            code if *code == SqlState::READ_ONLY_SQL_TRANSACTION => StoreError::ReadOnlyServer,
            code if *code == SqlState::INSUFFICIENT_PRIVILEGE => StoreError::MissingRights { reason },
            code if is_server_fault(code.code()) => StoreError::Unreachable { reason },
            _ => StoreError::Sql(reason),
        }
    }

    /// Maps an error of SQLite. An interrupted statement gets the reason of the monitor that interrupted it.
    pub(crate) fn from_sqlite(error: &rusqlite::Error) -> StoreError {
        match error.sqlite_error_code() {
            Some(rusqlite::ErrorCode::DiskFull) => StoreError::DiskFull,
            Some(rusqlite::ErrorCode::OperationInterrupted) => match crate::monitor::current_stop() {
                Some(stop) => StoreError::Stopped(stop),
                None => StoreError::Sql(describe_sql_error(error)),
            },
            _ => StoreError::Sql(describe_sql_error(error)),
        }
    }
}

/// Whether the server is at fault, and not the statement: it closes the connection, starts or stops (classes 08 and 57P),
/// has no connection or memory left (53), fails to read its disk (58030), or ended a transaction that took too long (25P03,
/// 25P04).
#[cfg(feature = "postgres")]
fn is_server_fault(code: &str) -> bool {
    ["08", "57P", "53", "58030", "25P03", "25P04"].iter().any(|class| code.starts_with(class))
}

/// Whether the same transaction may succeed when it is repeated: another one was in the way.
#[cfg(feature = "postgres")]
fn is_conflict(error: &::postgres::Error) -> bool {
    let conflicts =
        [&SqlState::T_R_SERIALIZATION_FAILURE, &SqlState::T_R_DEADLOCK_DETECTED, &SqlState::LOCK_NOT_AVAILABLE];
    error.code().is_some_and(|code| conflicts.contains(&code))
}

/// Returns the reason in one line: otherwise, rusqlite also prints the whole statement.
fn describe_sql_error(error: &rusqlite::Error) -> String {
    match error {
        rusqlite::Error::SqlInputError { msg, .. } => msg.clone(),
        error => error.to_string(),
    }
}

impl From<QueryStop> for StoreError {
    fn from(stop: QueryStop) -> StoreError {
        StoreError::Stopped(stop)
    }
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> StoreError {
        StoreError::from_sqlite(&error)
    }
}

impl From<SqlError> for StoreError {
    fn from(error: SqlError) -> StoreError {
        StoreError::from_sql(&error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message() {
        let path = || PathBuf::from("data/gradus.db");
        let errors = [
            StoreError::InUse { path: path() },
            StoreError::Missing { path: path() },
            StoreError::NoTables { address: "postgres://me@db/shop".to_owned() },
            StoreError::ForeignSchema { address: "postgres://me@db/shop".to_owned() },
            StoreError::Damaged { path: path(), reason: "file is not a database".to_owned() },
            StoreError::TooNew { path: path(), found: 9, known: 4 },
            StoreError::TooOld { path: path(), found: 1, known: 4 },
            StoreError::not_writable(&path(), &std::io::ErrorKind::PermissionDenied.into()),
            StoreError::Exists { path: path() },
            StoreError::DiskFull,
            StoreError::not_writable(&path(), &std::io::ErrorKind::StorageFull.into()),
            StoreError::Gone { path: path() },
            StoreError::Busy,
            StoreError::Closed,
            StoreError::Stopped(QueryStop::Cancelled),
            StoreError::Stopped(QueryStop::TimedOut { limit_s: 30, setting: "serve.query_seconds" }),
            StoreError::Stopped(QueryStop::Overloaded),
            StoreError::Stopped(QueryStop::TooMuchUnread),
            StoreError::Stopped(QueryStop::ShuttingDown),
            StoreError::BadSearch { reason: "give at least three letters".to_owned() },
            StoreError::bad_row("trajectory 7", "EOF while parsing a value"),
            StoreError::Sql("no such table: spans".to_owned()),
        ];
        insta::assert_snapshot!(errors.map(|error| error.to_string()).join("\n"));
    }

    #[test]
    fn a_scope_that_is_unknown() {
        let error = crate::keys::KeyScopes::parse("ingest,write").expect_err("no such scope");
        insta::assert_snapshot!(error.to_string());
    }
}
