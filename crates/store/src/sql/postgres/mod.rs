//! The PostgreSQL engine: how it is reached, its connections, and the conversion of its values.

mod address;
mod connection;
mod migration;
mod value;

pub(crate) use address::PostgresServer;
pub(crate) use connection::{CancelHandle, PostgresConnection, PostgresStatement};
pub(crate) use value::{clean_text, read_value};

use std::error::Error as _;

use ::postgres::error::SqlState;

use crate::error::StoreError;

/// The reason in one line.
pub(crate) fn describe_error(error: &::postgres::Error) -> String {
    match error.as_db_error() {
        Some(reported) => reported.message().to_owned(),
        // The outer error only says that there was one.
        None => error.source().map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}")),
    }
}

/// Whether the same transaction may succeed when it is repeated: another one was in the way.
pub(crate) fn is_conflict(error: &::postgres::Error) -> bool {
    let conflicts = [&SqlState::T_R_SERIALIZATION_FAILURE, &SqlState::T_R_DEADLOCK_DETECTED];
    error.code().is_some_and(|code| conflicts.contains(&code))
}

/// Maps an error. A cancelled statement gets the reason of the monitor that cancelled it.
pub(crate) fn to_store_error(error: &::postgres::Error) -> StoreError {
    let reason = describe_error(error);
    if is_conflict(error) {
        return StoreError::Conflict { reason };
    }
    let Some(code) = error.code() else {
        return if error.is_closed() || error.source().is_some() {
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
        // Classes 08 and 57P: the server closes the connection, starts or stops.
        code if code.code().starts_with("08") || code.code().starts_with("57P") => StoreError::Unreachable { reason },
        _ => StoreError::Sql(reason),
    }
}
