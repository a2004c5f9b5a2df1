//! Where a store is: in a file (SQLite), or in a PostgreSQL database that several servers share.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::error::StoreError;
use crate::sql::SqlConnection;

/// The engine of a store, and where its data is.
#[derive(Clone)]
pub(crate) enum StoreEngine {
    File(PathBuf),
    #[cfg(feature = "postgres")]
    Postgres(Box<crate::postgres_server::PostgresServer>),
}

impl StoreEngine {
    /// Opens a connection for reading.
    pub(crate) fn open_reader(&self) -> Result<SqlConnection, StoreError> {
        match self {
            StoreEngine::File(path) => crate::connection::open_reader(path).map(SqlConnection::Sqlite),
            #[cfg(feature = "postgres")]
            StoreEngine::Postgres(server) => server.open_reader().map(SqlConnection::from),
        }
    }

    /// Opens a connection for writing, in addition to that of the writer.
    pub(crate) fn open_writer(&self) -> Result<SqlConnection, StoreError> {
        match self {
            StoreEngine::File(path) => crate::connection::open_writer(path).map(SqlConnection::Sqlite),
            #[cfg(feature = "postgres")]
            StoreEngine::Postgres(server) => server.open_writer().map(SqlConnection::from),
        }
    }

    /// Keeps everything else from writing to a database while the connection is open; `None` for a file, whose folder is
    /// locked instead. Fails with [`StoreError::ServersRunning`] if something can write to it already.
    pub(crate) fn lock_for_copy(&self) -> Result<Option<SqlConnection>, StoreError> {
        match self {
            StoreEngine::File(_) => Ok(None),
            #[cfg(feature = "postgres")]
            StoreEngine::Postgres(server) => Ok(Some(SqlConnection::from(server.lock_for_copy()?))),
        }
    }

    /// Returns the engine for the copy that holds this lock itself.
    pub(crate) fn into_copy_lock_holder(self) -> StoreEngine {
        match self {
            StoreEngine::File(path) => StoreEngine::File(path),
            #[cfg(feature = "postgres")]
            StoreEngine::Postgres(server) => StoreEngine::Postgres(Box::new(server.into_copy_lock_holder())),
        }
    }

    /// The database file; `None` for a database server.
    pub(crate) fn file(&self) -> Option<&Path> {
        match self {
            StoreEngine::File(path) => Some(path),
            #[cfg(feature = "postgres")]
            StoreEngine::Postgres(_) => None,
        }
    }
}

/// For messages; without a password.
impl fmt::Display for StoreEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreEngine::File(path) => path.display().fmt(f),
            #[cfg(feature = "postgres")]
            StoreEngine::Postgres(server) => server.fmt(f),
        }
    }
}
