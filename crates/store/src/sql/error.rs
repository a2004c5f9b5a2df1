//! Errors of the engines.

/// Why a statement failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SqlError {
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    #[cfg(feature = "postgres")]
    #[error("{}", describe_postgres_error(.0))]
    Postgres(#[from] ::postgres::Error),
    #[error(transparent)]
    Stopped(#[from] crate::monitor::QueryStop),
    #[error("the query returned no row")]
    NoRow,
    /// A value has another type than the program expects.
    #[error("column {column}: {reason}")]
    WrongType { column: usize, reason: String },
}

impl SqlError {
    /// Whether a lock of PostgreSQL was not obtained within `lock_timeout`.
    pub(crate) fn is_lock_timeout(&self) -> bool {
        match self {
            #[cfg(feature = "postgres")]
            SqlError::Postgres(error) => error.code() == Some(&::postgres::error::SqlState::LOCK_NOT_AVAILABLE),
            _ => false,
        }
    }
}

/// Turns a missing row into `None`.
pub(crate) trait OptionalRow<T> {
    fn optional(self) -> Result<Option<T>, SqlError>;
}

impl<T> OptionalRow<T> for Result<T, SqlError> {
    fn optional(self) -> Result<Option<T>, SqlError> {
        match self {
            Ok(value) => Ok(Some(value)),
            Err(SqlError::NoRow) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// The reason in one line.
#[cfg(feature = "postgres")]
pub(crate) fn describe_postgres_error(error: &::postgres::Error) -> String {
    match error.as_db_error() {
        Some(reported) => reported.message().to_owned(),
        // The outer error only says that there was one.
        None => std::error::Error::source(error).map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}")),
    }
}
