//! Short transactions outside of the writer. The writer puts many tasks into one transaction, so a lock that one of
//! them takes would be held until the last one is done, and servers would wait for each other in circles.

use std::sync::{Mutex, PoisonError};

use crate::Store;
use crate::engine::StoreEngine;
use crate::error::StoreError;
use crate::sql::SqlConnection;

/// A connection of its own, opened at first use. SQLite needs none, since it has one writer at a time anyway.
#[derive(Default)]
pub(crate) struct ShortWrites(Mutex<Option<SqlConnection>>);

impl ShortWrites {
    fn run<T>(
        &self,
        engine: &StoreEngine,
        work: impl FnOnce(&SqlConnection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let connection = match slot.take().filter(SqlConnection::check_alive) {
            Some(connection) => connection,
            None => engine.open_writer()?,
        };
        let done = connection.transact(|| work(&connection));
        if !connection.is_broken() {
            *slot = Some(connection);
        }
        done
    }
}

impl Store {
    /// Runs one short transaction and waits for its commit. Blocks the thread.
    pub(crate) fn run_short_transaction<T: Send + 'static>(
        &self,
        mut work: impl FnMut(&SqlConnection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let writer = self.writer()?;
        match self.engine.file() {
            Some(_) => writer.submit(0, move |writing| work(writing.sql))?.wait(),
            None => self.short_writes.run(&self.engine, work),
        }
    }
}
