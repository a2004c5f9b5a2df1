//! The connection of the writer and its transactions.

use crate::engine::StoreEngine;
use crate::error::StoreError;
use crate::project_numbers::ProjectNumberCache;
use crate::sql::SqlConnection;

/// The writer's connection, reopened after the database server was unreachable.
pub(crate) struct WriterConnection {
    engine: StoreEngine,
    pub(crate) connection: SqlConnection,
    /// Whether the last liveness check failed, although the connection is not closed.
    is_silent: bool,
    pub(crate) projects: ProjectNumberCache,
    pub(crate) node: String,
}

impl WriterConnection {
    pub(crate) fn open(engine: StoreEngine, node: String) -> Result<WriterConnection, StoreError> {
        let connection = engine.open_writer()?;
        let projects = ProjectNumberCache::read(&connection)?;
        Ok(WriterConnection { engine, connection, is_silent: false, projects, node })
    }

    /// Replaces the connection if it is lost; otherwise does nothing.
    pub(crate) fn reconnect_if_lost(&mut self) -> Result<(), StoreError> {
        if self.is_silent || self.connection.is_broken() {
            self.connection = self.engine.open_writer()?;
            self.is_silent = false;
            self.projects = ProjectNumberCache::read(&self.connection)?;
        }
        Ok(())
    }

    /// Checks that the database server answers, and stores the result for `reconnect_if_lost`. Always true for SQLite.
    pub(crate) fn check_alive(&mut self) -> bool {
        self.is_silent = !self.connection.check_alive();
        !self.is_silent
    }
}

/// IMMEDIATE takes the write lock at once, so that no task fails halfway because another process writes.
pub(crate) fn begin_transaction(connection: &SqlConnection) -> Result<(), StoreError> {
    connection
        .execute_batch(connection.choose("BEGIN IMMEDIATE", "BEGIN"))
        .map_err(|error| StoreError::from_sql(&error))
}

/// With `synchronous = FULL`, the data is on the disk when this returns.
pub(crate) fn commit_transaction(connection: &SqlConnection) -> Result<(), StoreError> {
    connection.execute_batch("COMMIT").map_err(|error| {
        let _ = connection.execute_batch("ROLLBACK");
        StoreError::from_sql(&error)
    })
}
