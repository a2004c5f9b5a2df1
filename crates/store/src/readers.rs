//! The pool of reading connections. Readers never wait for the writer, nor the writer for them (SQLite's write-ahead
//! log). Queries of clients, which have a monitor, use connections of their own, so that the work of the server never
//! waits behind them.

use std::ops::Deref;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::engine::StoreEngine;
use crate::error::StoreError;
use crate::monitor::{OPERATIONS_PER_CHECK, QueryInterrupt, QueryMonitor, check_query, current_monitor};
use crate::sql::SqlConnection;

/// The pool.
pub(crate) struct ReaderPool {
    engine: StoreEngine,
    state: Mutex<ReaderState>,
    returned: Condvar,
}

/// The state under the lock.
struct ReaderState {
    idle: Vec<SqlConnection>,
    /// Connections that may still be opened for the work of the server.
    left: usize,
    /// Idle connections of queries. The query pool of the server limits how many are in use.
    idle_for_queries: Vec<SqlConnection>,
    /// Whether new queries have to wait: running ones keep the write-ahead log from being reset.
    is_held: bool,
}

/// Maximum number of connections for the work of the server.
const MAX_READERS: usize = 8;
/// Maximum number of idle connections of queries.
const MAX_IDLE_QUERY_READERS: usize = 8;
/// Maximum time that a query waits for the reset of the write-ahead log.
const MAX_QUERY_HOLD: Duration = Duration::from_secs(5);

impl ReaderPool {
    pub(crate) fn new(engine: StoreEngine) -> ReaderPool {
        let state = ReaderState { idle: Vec::new(), left: MAX_READERS, idle_for_queries: Vec::new(), is_held: false };
        ReaderPool { engine, state: Mutex::new(state), returned: Condvar::new() }
    }

    /// Takes a connection. Without a monitor, waits until one is free; must not be called while the same thread holds
    /// one.
    pub(crate) fn take_reader(&self) -> Result<PooledReader<'_>, StoreError> {
        match current_monitor() {
            Some(monitor) => self.take_for_query(monitor),
            None => self.take_unmonitored(),
        }
    }

    /// For the work of the server itself. Waits for a free connection, without a time limit: such work is short.
    fn take_unmonitored(&self) -> Result<PooledReader<'_>, StoreError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(connection) = state.idle.pop() {
                if !connection.check_alive() {
                    state.left += 1;
                    continue;
                }
                return Ok(PooledReader { readers: self, connection: Some(connection), query: None });
            }
            if state.left > 0 {
                state.left -= 1;
                drop(state);
                return match self.engine.open_reader() {
                    Ok(connection) => Ok(PooledReader { readers: self, connection: Some(connection), query: None }),
                    Err(error) => {
                        self.state.lock().unwrap_or_else(PoisonError::into_inner).left += 1;
                        self.returned.notify_one();
                        Err(error)
                    }
                };
            }
            state = self.returned.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// For the query of a client. Installs the monitor as SQLite's progress handler.
    fn take_for_query(&self, monitor: Arc<dyn QueryMonitor>) -> Result<PooledReader<'_>, StoreError> {
        monitor.check()?;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_held = |state: &mut ReaderState| state.is_held;
        if state.is_held {
            state = self
                .returned
                .wait_timeout_while(state, MAX_QUERY_HOLD, is_held)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        let idle = state.idle_for_queries.pop();
        drop(state);
        // The wait above can be long; the client may have left.
        check_query()?;
        let mut connection = match idle.filter(SqlConnection::check_alive) {
            Some(connection) => connection,
            None => self.engine.open_reader()?,
        };
        let interrupt = Arc::new(install_monitor(&mut connection, &monitor)?);
        monitor.attach(&interrupt);
        Ok(PooledReader { readers: self, connection: Some(connection), query: Some((monitor, interrupt)) })
    }

    /// Holds new queries back, or releases them.
    pub(crate) fn hold_queries(&self, is_held: bool) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).is_held = is_held;
        if !is_held {
            self.returned.notify_all();
        }
    }

    #[cfg(test)]
    pub(crate) fn are_queries_held(&self) -> bool {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).is_held
    }

    /// Returns a connection to the pool, or closes it if it cannot be reused.
    fn return_connection(&self, mut connection: SqlConnection, is_for_query: bool) {
        if is_for_query {
            let is_reusable = remove_monitor(&mut connection);
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            if is_reusable && state.idle_for_queries.len() < MAX_IDLE_QUERY_READERS {
                state.idle_for_queries.push(connection);
            }
            return;
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if connection.is_broken() {
            state.left += 1;
        } else {
            state.idle.push(connection);
        }
        drop(state);
        self.returned.notify_all();
    }
}

/// Lets the monitor of a query stop it while the engine works.
fn install_monitor(
    connection: &mut SqlConnection,
    monitor: &Arc<dyn QueryMonitor>,
) -> Result<QueryInterrupt, StoreError> {
    match connection {
        SqlConnection::Sqlite(connection) => {
            let checked = Arc::clone(monitor);
            connection.progress_handler(OPERATIONS_PER_CHECK, Some(move || checked.check().is_err()))?;
            let handle = connection.get_interrupt_handle();
            Ok(QueryInterrupt::new(move || handle.interrupt()))
        }
        #[cfg(feature = "postgres")]
        SqlConnection::Postgres(connection) => {
            let handle = connection.cancel_handle();
            Ok(QueryInterrupt::new(move || handle.cancel()))
        }
    }
}

/// Removes the monitor. Returns whether another query may use the connection.
fn remove_monitor(connection: &mut SqlConnection) -> bool {
    match connection {
        SqlConnection::Sqlite(connection) => connection.progress_handler(0, None::<fn() -> bool>).is_ok(),
        // A cancellation may still be under way, and would stop the next query.
        #[cfg(feature = "postgres")]
        SqlConnection::Postgres(connection) => !connection.is_closed() && !connection.was_cancelled(),
    }
}

/// A connection that returns to the pool when it is dropped.
pub(crate) struct PooledReader<'r> {
    readers: &'r ReaderPool,
    connection: Option<SqlConnection>,
    /// The monitor, if it was taken for a query.
    query: Option<(Arc<dyn QueryMonitor>, Arc<QueryInterrupt>)>,
}

impl Deref for PooledReader<'_> {
    type Target = SqlConnection;

    fn deref(&self) -> &SqlConnection {
        match &self.connection {
            Some(connection) => connection,
            None => unreachable!("it is there until the reader is dropped"),
        }
    }
}

impl Drop for PooledReader<'_> {
    fn drop(&mut self) {
        if let Some((monitor, interrupt)) = &self.query {
            monitor.detach(interrupt);
        }
        if let Some(connection) = self.connection.take() {
            self.readers.return_connection(connection, self.query.is_some());
        }
    }
}
