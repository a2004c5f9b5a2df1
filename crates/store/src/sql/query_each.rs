//! One query for several sets of parameters.

use super::{SqlConnection, SqlError, SqlParams, SqlRow};

impl SqlConnection {
    /// Runs a query once for each set of parameters and returns the rows of each. On PostgreSQL this is one statement, because
    /// the round trip of a statement costs more than most of these queries. Rows keep the order of a query that has `LIMIT`.
    pub(crate) fn query_each<P: SqlParams + Copy, T>(
        &self,
        sql: &str,
        sets: &[P],
        mut read: impl FnMut(&SqlRow<'_>) -> Result<T, SqlError>,
    ) -> Result<Vec<Vec<T>>, SqlError> {
        match self {
            SqlConnection::Sqlite(_) => {
                let mut statement = self.prepare_cached(sql)?;
                sets.iter().map(|set| statement.query_map(*set, &mut read)?.collect()).collect()
            }
            #[cfg(feature = "postgres")]
            SqlConnection::Postgres(connection) => {
                let mut found: Vec<Vec<T>> = sets.iter().map(|_| Vec::new()).collect();
                for (set, row) in connection.query_each(sql, sets)? {
                    found[set].push(read(&SqlRow::Postgres(&row))?);
                }
                Ok(found)
            }
        }
    }

    /// As [`SqlConnection::query_each`], for queries that return one row.
    pub(crate) fn query_row_each<P: SqlParams + Copy, T>(
        &self,
        sql: &str,
        sets: &[P],
        read: impl FnMut(&SqlRow<'_>) -> Result<T, SqlError>,
    ) -> Result<Vec<T>, SqlError> {
        let rows = self.query_each(sql, sets, read)?;
        rows.into_iter().map(|rows| rows.into_iter().next().ok_or(SqlError::NoRow)).collect()
    }
}
