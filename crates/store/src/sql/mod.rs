//! A thin layer over the two engines. The rest of this crate prepares statements, binds values and reads rows through
//! it, so that every query exists once. Statements are written in the SQL that both engines share; [`dialect`] rewrites
//! the few things that differ, and [`SqlConnection::choose`] covers statements that must differ.

#[cfg(feature = "postgres")]
pub(crate) mod dialect;
mod error;
mod portions;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
mod query_each;
mod statement;
mod values;

#[cfg(feature = "postgres")]
pub(crate) use error::describe_postgres_error;
pub(crate) use error::{OptionalRow, SqlError};
pub(crate) use portions::KeyStart;
pub(crate) use statement::{BulkInsert, SqlRow, SqlStatement};
pub(crate) use values::{SqlParam, SqlParams, SqlValue, SqlValueRef, ToSqlParam, params, params_from_iter};

/// A connection to one of the engines.
pub(crate) enum SqlConnection {
    Sqlite(rusqlite::Connection),
    #[cfg(feature = "postgres")]
    Postgres(Box<postgres::PostgresConnection>),
}

impl From<rusqlite::Connection> for SqlConnection {
    fn from(connection: rusqlite::Connection) -> SqlConnection {
        SqlConnection::Sqlite(connection)
    }
}

#[cfg(feature = "postgres")]
impl From<postgres::PostgresConnection> for SqlConnection {
    fn from(connection: postgres::PostgresConnection) -> SqlConnection {
        SqlConnection::Postgres(Box::new(connection))
    }
}

impl SqlConnection {
    /// Prepares a statement that is run again and again.
    pub(crate) fn prepare_cached(&self, sql: &str) -> Result<SqlStatement<'_>, SqlError> {
        Ok(match self {
            SqlConnection::Sqlite(connection) => SqlStatement::Cached(connection.prepare_cached(sql)?),
            #[cfg(feature = "postgres")]
            SqlConnection::Postgres(connection) => SqlStatement::Postgres(connection.prepare(sql)?),
        })
    }

    /// Prepares a statement that is rarely run, so that it does not push others out of the cache.
    pub(crate) fn prepare(&self, sql: &str) -> Result<SqlStatement<'_>, SqlError> {
        Ok(match self {
            SqlConnection::Sqlite(connection) => SqlStatement::Uncached(connection.prepare(sql)?),
            #[cfg(feature = "postgres")]
            SqlConnection::Postgres(connection) => SqlStatement::Postgres(connection.prepare(sql)?),
        })
    }

    pub(crate) fn execute(&self, sql: &str, params: impl SqlParams) -> Result<usize, SqlError> {
        self.prepare(sql)?.execute(params)
    }

    pub(crate) fn query_row<T>(
        &self,
        sql: &str,
        params: impl SqlParams,
        read: impl FnOnce(&SqlRow<'_>) -> Result<T, SqlError>,
    ) -> Result<T, SqlError> {
        self.prepare(sql)?.query_row(params, read)
    }

    /// Runs statements without parameters, separated by semicolons.
    pub(crate) fn execute_batch(&self, sql: &str) -> Result<(), SqlError> {
        match self {
            SqlConnection::Sqlite(connection) => Ok(connection.execute_batch(sql)?),
            #[cfg(feature = "postgres")]
            SqlConnection::Postgres(connection) => connection.execute_batch(sql),
        }
    }

    /// Prepares an `INSERT … VALUES (?, …)` for many rows. A statement for each row would cost PostgreSQL a round trip. With
    /// `ON CONFLICT … DO UPDATE` every row needs a key of its own.
    pub(crate) fn bulk_insert(&self, sql: &str) -> Result<BulkInsert<'_>, SqlError> {
        Ok(match self {
            SqlConnection::Sqlite(connection) => BulkInsert::Sqlite(connection.prepare_cached(sql)?),
            #[cfg(feature = "postgres")]
            SqlConnection::Postgres(connection) => {
                BulkInsert::Postgres(postgres::PostgresBulkInsert::new(connection, sql)?)
            }
        })
    }

    /// Inserts a row and returns the value that its column `no` got.
    pub(crate) fn insert_numbered(&self, sql: &str, params: impl SqlParams) -> Result<i64, SqlError> {
        match self {
            SqlConnection::Sqlite(connection) => {
                SqlStatement::Cached(connection.prepare_cached(sql)?).execute(params)?;
                Ok(connection.last_insert_rowid())
            }
            #[cfg(feature = "postgres")]
            SqlConnection::Postgres(connection) => {
                let returning = format!("{sql} RETURNING no");
                SqlStatement::Postgres(connection.prepare(&returning)?).query_row(params, |row| row.get(0))
            }
        }
    }

    /// Returns one of two statements or values, where the engines have nothing in common.
    pub(crate) fn choose<T>(&self, for_sqlite: T, for_postgres: T) -> T {
        match self {
            SqlConnection::Sqlite(_) => {
                drop(for_postgres);
                for_sqlite
            }
            #[cfg(feature = "postgres")]
            SqlConnection::Postgres(_) => for_postgres,
        }
    }

    /// Begins a transaction that sees the state of one moment. It ends when the guard is dropped.
    pub(crate) fn snapshot(&self) -> Result<SnapshotGuard<'_>, SqlError> {
        self.begin_snapshot()?;
        Ok(SnapshotGuard(self))
    }

    fn begin_snapshot(&self) -> Result<(), SqlError> {
        self.execute_batch(self.choose("BEGIN DEFERRED", "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"))
    }

    /// Ends the reading transaction.
    pub(crate) fn end_snapshot(&self) {
        // Nothing was written, so it does not matter how the transaction ends.
        let _ = self.execute_batch("ROLLBACK");
    }

    /// As [`SqlConnection::snapshot`], for a reader that waits for others between its statements. PostgreSQL ends
    /// transactions that are idle.
    pub(crate) fn patient_snapshot(&self) -> Result<SnapshotGuard<'_>, SqlError> {
        self.begin_patient_snapshot()?;
        Ok(SnapshotGuard(self))
    }

    /// Begins what [`SqlConnection::patient_snapshot`] guards. [`SqlConnection::end_snapshot`] ends it.
    pub(crate) fn begin_patient_snapshot(&self) -> Result<(), SqlError> {
        self.begin_snapshot()?;
        if self.sqlite().is_some() {
            return Ok(());
        }
        let patient = self.execute_batch("SET LOCAL idle_in_transaction_session_timeout = 0");
        patient.inspect_err(|_| self.end_snapshot())
    }

    /// Runs work in a transaction: all of it is committed, or nothing.
    pub(crate) fn transact<T, E: From<SqlError>>(&self, work: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        self.execute_batch("BEGIN")?;
        let done = work();
        self.execute_batch(if done.is_ok() { "COMMIT" } else { "ROLLBACK" })?;
        done
    }

    /// Whether no transaction is open, for example because an error ended it.
    pub(crate) fn is_autocommit(&self) -> bool {
        match self {
            SqlConnection::Sqlite(connection) => connection.is_autocommit(),
            #[cfg(feature = "postgres")]
            SqlConnection::Postgres(connection) => connection.is_closed(),
        }
    }

    /// Whether the connection to the database server is lost.
    pub(crate) fn is_broken(&self) -> bool {
        match self {
            SqlConnection::Sqlite(_) => false,
            #[cfg(feature = "postgres")]
            SqlConnection::Postgres(connection) => connection.is_closed(),
        }
    }

    /// Whether a pooled connection can still be used.
    pub(crate) fn check_alive(&self) -> bool {
        match self {
            SqlConnection::Sqlite(_) => true,
            #[cfg(feature = "postgres")]
            SqlConnection::Postgres(connection) => connection.check_alive(),
        }
    }

    /// Rows that were inserted, updated or deleted so far.
    pub(crate) fn total_changes(&self) -> u64 {
        match self {
            SqlConnection::Sqlite(connection) => connection.total_changes(),
            #[cfg(feature = "postgres")]
            SqlConnection::Postgres(connection) => connection.total_changes(),
        }
    }

    /// Returns SQLite's own connection, for what only that engine has; `None` for the other engine.
    pub(crate) fn sqlite(&self) -> Option<&rusqlite::Connection> {
        match self {
            SqlConnection::Sqlite(connection) => Some(connection),
            #[cfg(feature = "postgres")]
            SqlConnection::Postgres(_) => None,
        }
    }
}

/// A reading transaction.
pub(crate) struct SnapshotGuard<'c>(&'c SqlConnection);

impl std::ops::Deref for SnapshotGuard<'_> {
    type Target = SqlConnection;

    fn deref(&self) -> &SqlConnection {
        self.0
    }
}

impl Drop for SnapshotGuard<'_> {
    fn drop(&mut self) {
        self.0.end_snapshot();
    }
}
