//! Prepared statements and their rows.

use rusqlite::types::{ToSqlOutput, Value, ValueRef};

use super::values::FromSqlValue;
use super::{SqlError, SqlParam, SqlParams, SqlValueRef};

/// A prepared statement.
pub(crate) enum SqlStatement<'c> {
    Cached(rusqlite::CachedStatement<'c>),
    Uncached(rusqlite::Statement<'c>),
    #[cfg(feature = "postgres")]
    Postgres(super::postgres::PostgresStatement<'c>),
}

impl rusqlite::ToSql for SqlParam<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match *self {
            SqlParam::Null => ToSqlOutput::Owned(Value::Null),
            SqlParam::Bool(is_true) => ToSqlOutput::Owned(Value::Integer(i64::from(is_true))),
            SqlParam::Integer(number) => ToSqlOutput::Owned(Value::Integer(number)),
            SqlParam::Real(number) => ToSqlOutput::Owned(Value::Real(number)),
            SqlParam::Text(text) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
            SqlParam::Blob(bytes) => ToSqlOutput::Borrowed(ValueRef::Blob(bytes)),
        })
    }
}

/// Binds the parameters of a statement of SQLite.
fn bind_sqlite(statement: &mut rusqlite::Statement<'_>, params: &impl SqlParams) -> Result<(), SqlError> {
    let expected = statement.parameter_count();
    let mut bound = 0;
    params.visit(&mut |position, param| {
        bound = position;
        Ok(statement.raw_bind_parameter(position, param)?)
    })?;
    if bound != expected {
        return Err(SqlError::Sqlite(rusqlite::Error::InvalidParameterCount(bound, expected)));
    }
    Ok(())
}

// Taken by value, so that callers can pass array literals.
#[allow(clippy::needless_pass_by_value)]
impl<'c> SqlStatement<'c> {
    /// Runs a statement and returns the number of rows that it changed.
    pub(crate) fn execute(&mut self, params: impl SqlParams) -> Result<usize, SqlError> {
        let statement: &mut rusqlite::Statement<'c> = match self {
            SqlStatement::Cached(statement) => statement,
            SqlStatement::Uncached(statement) => statement,
            #[cfg(feature = "postgres")]
            SqlStatement::Postgres(statement) => return statement.execute(&params),
        };
        bind_sqlite(statement, &params)?;
        Ok(statement.raw_execute()?)
    }

    /// Runs a query.
    pub(crate) fn query(&mut self, params: impl SqlParams) -> Result<SqlRows<'_>, SqlError> {
        let statement: &mut rusqlite::Statement<'c> = match self {
            SqlStatement::Cached(statement) => statement,
            SqlStatement::Uncached(statement) => statement,
            #[cfg(feature = "postgres")]
            SqlStatement::Postgres(statement) => {
                return Ok(SqlRows::Postgres { rows: statement.query(&params)?, next: 0 });
            }
        };
        bind_sqlite(statement, &params)?;
        Ok(SqlRows::Sqlite(statement.raw_query()))
    }

    /// Runs a query and converts each of its rows.
    pub(crate) fn query_map<T, F>(&mut self, params: impl SqlParams, read: F) -> Result<MappedRows<'_, F>, SqlError>
    where
        F: FnMut(&SqlRow<'_>) -> Result<T, SqlError>,
    {
        Ok(MappedRows { rows: self.query(params)?, read })
    }

    /// Runs a query and converts its first row; [`SqlError::NoRow`] if it has none.
    pub(crate) fn query_row<T>(
        &mut self,
        params: impl SqlParams,
        read: impl FnOnce(&SqlRow<'_>) -> Result<T, SqlError>,
    ) -> Result<T, SqlError> {
        read(&self.query(params)?.next()?.ok_or(SqlError::NoRow)?)
    }

    /// Whether a query has any row.
    pub(crate) fn exists(&mut self, params: impl SqlParams) -> Result<bool, SqlError> {
        Ok(self.query(params)?.next()?.is_some())
    }

    /// Names of the columns of a query.
    pub(crate) fn column_names(&self) -> Vec<String> {
        match self {
            SqlStatement::Cached(statement) => statement.column_names().map(str::to_owned).collect(),
            SqlStatement::Uncached(statement) => statement.column_names().map(str::to_owned).collect(),
            #[cfg(feature = "postgres")]
            SqlStatement::Postgres(statement) => statement.column_names(),
        }
    }
}

/// Inserts many rows: one execution per row in SQLite, batches in PostgreSQL. Rows may not be written until `finish`
/// is called.
#[must_use = "what was not finished is not written"]
pub(crate) enum BulkInsert<'c> {
    Sqlite(rusqlite::CachedStatement<'c>),
    #[cfg(feature = "postgres")]
    Postgres(super::postgres::PostgresBulkInsert<'c>),
}

// Taken by value, so that callers can pass array literals.
#[allow(clippy::needless_pass_by_value)]
impl BulkInsert<'_> {
    /// Adds a row, which is written at the latest by [`BulkInsert::finish`].
    pub(crate) fn push(&mut self, params: impl SqlParams) -> Result<(), SqlError> {
        match self {
            BulkInsert::Sqlite(statement) => {
                bind_sqlite(statement, &params)?;
                statement.raw_execute()?;
                Ok(())
            }
            #[cfg(feature = "postgres")]
            BulkInsert::Postgres(insert) => insert.push(&params),
        }
    }

    /// Writes the rows that still wait.
    pub(crate) fn finish(self) -> Result<(), SqlError> {
        match self {
            BulkInsert::Sqlite(_) => Ok(()),
            #[cfg(feature = "postgres")]
            BulkInsert::Postgres(mut insert) => insert.write(),
        }
    }
}

/// The rows of a query.
pub(crate) enum SqlRows<'s> {
    Sqlite(rusqlite::Rows<'s>),
    #[cfg(feature = "postgres")]
    Postgres {
        rows: Vec<::postgres::Row>,
        next: usize,
    },
}

impl SqlRows<'_> {
    pub(crate) fn next(&mut self) -> Result<Option<SqlRow<'_>>, SqlError> {
        match self {
            SqlRows::Sqlite(rows) => Ok(rows.next()?.map(SqlRow::Sqlite)),
            #[cfg(feature = "postgres")]
            SqlRows::Postgres { rows, next } => {
                let row = rows.get(*next);
                *next += 1;
                Ok(row.map(SqlRow::Postgres))
            }
        }
    }
}

/// Converted rows of a query.
pub(crate) struct MappedRows<'s, F> {
    rows: SqlRows<'s>,
    read: F,
}

impl<T, F: FnMut(&SqlRow<'_>) -> Result<T, SqlError>> Iterator for MappedRows<'_, F> {
    type Item = Result<T, SqlError>;

    fn next(&mut self) -> Option<Result<T, SqlError>> {
        match self.rows.next() {
            Ok(row) => row.map(|row| (self.read)(&row)),
            Err(error) => Some(Err(error)),
        }
    }
}

/// A row of a query.
pub(crate) enum SqlRow<'r> {
    Sqlite(&'r rusqlite::Row<'r>),
    #[cfg(feature = "postgres")]
    Postgres(&'r ::postgres::Row),
}

impl SqlRow<'_> {
    /// The value of a column, counted from 0.
    pub(crate) fn get<T: FromSqlValue>(&self, column: usize) -> Result<T, SqlError> {
        T::from_value(self.get_ref(column)?).map_err(|mismatch| SqlError::WrongType { column, reason: mismatch.0 })
    }

    /// The value of a column without a copy.
    pub(crate) fn get_ref(&self, column: usize) -> Result<SqlValueRef<'_>, SqlError> {
        match self {
            SqlRow::Sqlite(row) => Ok(match row.get_ref(column)? {
                ValueRef::Null => SqlValueRef::Null,
                ValueRef::Integer(number) => SqlValueRef::Integer(number),
                ValueRef::Real(number) => SqlValueRef::Real(number),
                ValueRef::Text(text) => SqlValueRef::Text(text),
                ValueRef::Blob(bytes) => SqlValueRef::Blob(bytes),
            }),
            #[cfg(feature = "postgres")]
            SqlRow::Postgres(row) => super::postgres::read_value(row, column),
        }
    }
}
