//! A connection and its prepared statements.

use std::cell::{Cell, RefCell, RefMut};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ::postgres::types::{ToSql, Type};
use ::postgres::{CancelToken, Client, Row, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::value::PostgresParam;
use crate::sql::dialect::{insert_from_arrays, query_for_arrays, to_postgres};
use crate::sql::{SqlError, SqlParams};

/// Runs work that waits for the server. The client has a runtime of its own, which must not be started inside of
/// another one: some callers of the store are asynchronous.
pub(crate) fn run_outside_runtime<T>(work: impl FnOnce() -> T) -> T {
    match tokio::runtime::Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(tokio::runtime::RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}

/// Maximum number of prepared statements that a connection caches. Some are built from a filter, so their number is
/// bounded.
const MAX_STATEMENTS: usize = 300;

/// Maximum number of rows that one statement inserts.
const MAX_BULK_ROWS: usize = 1_000;

/// How long a connection may be idle before it is tested.
const PING_AFTER_IDLE: Duration = Duration::from_millis(500);
/// Maximum time that the test may take.
const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// A connection, used by one thread at a time.
pub(crate) struct PostgresConnection {
    /// `None` only while it is dropped.
    client: RefCell<Option<Client>>,
    /// By the text of the statement before it was rewritten.
    statements: RefCell<HashMap<String, Statement>>,
    changes: Cell<u64>,
    tls: MakeRustlsConnect,
    was_cancelled: Arc<AtomicBool>,
    /// Whether the temporary tables of ingestion were created.
    has_staging: Cell<bool>,
    last_used: Cell<Instant>,
    last_task: Cell<i64>,
}

impl PostgresConnection {
    pub(crate) fn new(client: Client, tls: MakeRustlsConnect) -> PostgresConnection {
        PostgresConnection {
            client: RefCell::new(Some(client)),
            statements: RefCell::default(),
            changes: Cell::new(0),
            tls,
            was_cancelled: Arc::default(),
            has_staging: Cell::new(false),
            last_used: Cell::new(Instant::now()),
            last_task: Cell::new(0),
        }
    }

    /// Prepares a statement, or takes it from the cache.
    pub(crate) fn prepare(&self, sql: &str) -> Result<PostgresStatement<'_>, SqlError> {
        let mut statements = self.statements.borrow_mut();
        if let Some(statement) = statements.get(sql) {
            return Ok(PostgresStatement { connection: self, statement: statement.clone() });
        }
        let statement = run_outside_runtime(|| self.client().prepare(&to_postgres(sql)))?;
        if statements.len() >= MAX_STATEMENTS {
            statements.clear();
        }
        statements.insert(sql.to_owned(), statement.clone());
        Ok(PostgresStatement { connection: self, statement })
    }

    /// Prepares a statement that takes an array for each parameter instead of a value. `rewrite` gets the statement and the types
    /// of its parameters.
    fn prepare_for_arrays(
        &self,
        sql: &str,
        rewrite: impl FnOnce(&str, &[&str]) -> String,
    ) -> Result<PostgresStatement<'_>, SqlError> {
        let key = format!("arrays {sql}");
        if let Some(statement) = self.statements.borrow().get(&key) {
            return Ok(PostgresStatement { connection: self, statement: statement.clone() });
        }
        // The server knows the types of the columns.
        let of_values = self.prepare(sql)?;
        let types: Vec<&str> = of_values.statement.params().iter().map(Type::name).collect();
        let statement = run_outside_runtime(|| self.client().prepare(&rewrite(sql, &types)))?;
        self.statements.borrow_mut().insert(key, statement.clone());
        Ok(PostgresStatement { connection: self, statement })
    }

    /// Runs a query for each set of parameters. Returns its rows with the index of their set, set by set.
    pub(crate) fn query_each(&self, sql: &str, sets: &[impl SqlParams]) -> Result<Vec<(usize, Row)>, SqlError> {
        if sets.is_empty() {
            return Ok(Vec::new());
        }
        crate::monitor::check_query()?;
        self.last_used.set(Instant::now());
        let statement = self.prepare_for_arrays(sql, query_for_arrays)?.statement;
        let mut columns: Vec<Vec<PostgresParam>> = statement.params().iter().map(|_| Vec::new()).collect();
        for set in sets {
            set.visit(&mut |position, param| {
                columns[position - 1].push(PostgresParam::from(param));
                Ok(())
            })?;
        }
        let references: Vec<_> = columns.iter().map(|column| column as &(dyn ToSql + Sync)).collect();
        let rows = run_outside_runtime(|| self.client().query(&statement, &references))?;
        rows.into_iter()
            .map(|row| {
                let position: i64 = row.try_get(row.len() - 1)?;
                Ok((usize::try_from(position - 1).unwrap_or_default(), row))
            })
            .collect()
    }

    pub(crate) fn execute_batch(&self, sql: &str) -> Result<(), SqlError> {
        if sql.starts_with("ROLLBACK") {
            self.forget_staging();
        }
        Ok(run_outside_runtime(|| self.client().batch_execute(sql))?)
    }

    /// The client itself, for what only this engine has.
    pub(crate) fn client(&self) -> RefMut<'_, Client> {
        RefMut::map(self.client.borrow_mut(), |client| match client {
            Some(client) => client,
            None => unreachable!("it is there until the connection is dropped"),
        })
    }

    /// Returns whether the temporary tables of ingestion are still to be created, and marks them as created. If their
    /// transaction is rolled back, creating them again does no harm.
    pub(crate) fn begin_staging(&self) -> bool {
        !self.has_staging.replace(true)
    }

    /// After a rollback, which may have undone the temporary tables.
    pub(crate) fn forget_staging(&self) {
        self.has_staging.set(false);
    }

    /// Returns a number that no other task of this connection has.
    pub(crate) fn next_task_number(&self) -> i64 {
        self.last_task.set(self.last_task.get() + 1);
        self.last_task.get()
    }

    /// Whether the connection is lost.
    pub(crate) fn is_closed(&self) -> bool {
        self.client().is_closed()
    }

    pub(crate) fn total_changes(&self) -> u64 {
        self.changes.get()
    }

    /// Tests whether the connection can be used, with a statement if it was idle for a while: after a restart of the
    /// server, only a statement fails.
    pub(crate) fn check_alive(&self) -> bool {
        if self.last_used.get().elapsed() < PING_AFTER_IDLE {
            return !self.is_closed();
        }
        self.last_used.set(Instant::now());
        run_outside_runtime(|| self.client().is_valid(PING_TIMEOUT)).is_ok()
    }

    /// Counts rows that were changed by other means than a prepared statement.
    pub(crate) fn add_changes(&self, count: u64) {
        self.changes.set(self.changes.get() + count);
    }

    pub(crate) fn cancel_handle(&self) -> CancelHandle {
        CancelHandle {
            token: self.client().cancel_token(),
            tls: self.tls.clone(),
            was_cancelled: Arc::clone(&self.was_cancelled),
        }
    }

    /// Whether a cancellation was sent. It may still be under way and hit whatever runs next.
    pub(crate) fn was_cancelled(&self) -> bool {
        self.was_cancelled.load(Ordering::Relaxed)
    }
}

impl Drop for PostgresConnection {
    /// Closing waits for the server, too.
    fn drop(&mut self) {
        run_outside_runtime(|| {
            self.statements.borrow_mut().clear();
            drop(self.client.borrow_mut().take());
        });
    }
}

/// Cancels the statement that runs on a connection, from any thread.
pub(crate) struct CancelHandle {
    token: CancelToken,
    tls: MakeRustlsConnect,
    was_cancelled: Arc<AtomicBool>,
}

impl CancelHandle {
    /// Sends the cancellation over a connection of its own, which can take a moment, so nobody waits for it.
    pub(crate) fn cancel(&self) {
        self.was_cancelled.store(true, Ordering::Relaxed);
        let (token, tls) = (self.token.clone(), self.tls.clone());
        let sent = std::thread::Builder::new().name("cancel".to_owned()).spawn(move || token.cancel_query(tls));
        // Without a thread, the query ends by itself.
        drop(sent);
    }
}

/// A prepared statement.
pub(crate) struct PostgresStatement<'c> {
    connection: &'c PostgresConnection,
    statement: Statement,
}

impl PostgresStatement<'_> {
    pub(crate) fn execute(&self, params: &impl SqlParams) -> Result<usize, SqlError> {
        let params = collect_params(params)?;
        let references = as_references(&params);
        let count = run_outside_runtime(|| self.connection.client().execute(&self.statement, &references))?;
        self.connection.add_changes(count);
        Ok(usize::try_from(count).unwrap_or(usize::MAX))
    }

    /// All rows at once: the next statement can only begin when they are read.
    pub(crate) fn query(&self, params: &impl SqlParams) -> Result<Vec<Row>, SqlError> {
        crate::monitor::check_query()?;
        self.connection.last_used.set(Instant::now());
        let params = collect_params(params)?;
        let references = as_references(&params);
        Ok(run_outside_runtime(|| self.connection.client().query(&self.statement, &references))?)
    }

    pub(crate) fn column_names(&self) -> Vec<String> {
        self.statement.columns().iter().map(|column| column.name().to_owned()).collect()
    }
}

/// Rows for one statement, column by column.
pub(crate) struct PostgresBulkInsert<'c> {
    statement: PostgresStatement<'c>,
    columns: Vec<Vec<PostgresParam>>,
}

impl<'c> PostgresBulkInsert<'c> {
    pub(crate) fn new(connection: &'c PostgresConnection, sql: &str) -> Result<PostgresBulkInsert<'c>, SqlError> {
        let statement = connection.prepare_for_arrays(sql, insert_from_arrays)?;
        let columns = statement.statement.params().iter().map(|_| Vec::new()).collect();
        Ok(PostgresBulkInsert { statement, columns })
    }

    pub(crate) fn push(&mut self, params: &impl SqlParams) -> Result<(), SqlError> {
        params.visit(&mut |position, param| {
            self.columns[position - 1].push(PostgresParam::from(param));
            Ok(())
        })?;
        if self.columns[0].len() >= MAX_BULK_ROWS {
            self.write()?;
        }
        Ok(())
    }

    /// Sends the rows that were collected.
    pub(crate) fn write(&mut self) -> Result<(), SqlError> {
        if self.columns[0].is_empty() {
            return Ok(());
        }
        let PostgresStatement { connection, statement } = &self.statement;
        let references: Vec<_> = self.columns.iter().map(|column| column as &(dyn ToSql + Sync)).collect();
        let count = run_outside_runtime(|| connection.client().execute(statement, &references))?;
        connection.add_changes(count);
        self.columns.iter_mut().for_each(Vec::clear);
        Ok(())
    }
}

fn collect_params(params: &impl SqlParams) -> Result<Vec<PostgresParam>, SqlError> {
    let mut collected = Vec::new();
    params.visit(&mut |_, param| {
        collected.push(PostgresParam::from(param));
        Ok(())
    })?;
    Ok(collected)
}

fn as_references(params: &[PostgresParam]) -> Vec<&(dyn ToSql + Sync)> {
    params.iter().map(|param| param as &(dyn ToSql + Sync)).collect()
}
