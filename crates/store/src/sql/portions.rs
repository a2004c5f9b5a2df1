//! Reads of many rows. SQLite computes a row when it is asked for. PostgreSQL computes all rows of a statement before the
//! first one can be read: one statement would hold a whole table in memory. There the rows come in portions, each from
//! behind the last key.

use std::borrow::Cow;
use std::ops::ControlFlow;

use super::{SqlConnection, SqlError, SqlParam, SqlRow, params_from_iter};

/// Where a read begins, and its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyStart {
    /// This key and larger ones, in ascending order.
    AtLeast(i64),
    /// This key and smaller ones, in descending order.
    AtMost(i64),
}

impl KeyStart {
    /// All keys in ascending order.
    pub(crate) const FIRST: KeyStart = KeyStart::AtLeast(i64::MIN);

    fn key(self) -> i64 {
        match self {
            KeyStart::AtLeast(key) | KeyStart::AtMost(key) => key,
        }
    }

    /// The start behind a key; `None` if no key can follow.
    fn resume_after(self, last: i64) -> Option<KeyStart> {
        match self {
            KeyStart::AtLeast(_) => last.checked_add(1).map(KeyStart::AtLeast),
            KeyStart::AtMost(_) => last.checked_sub(1).map(KeyStart::AtMost),
        }
    }
}

/// Sizes of portions.
#[derive(Clone, Copy, Debug)]
struct PortionLimits {
    /// Maximum number of rows of the first portion. It is small, because many reads end early.
    first_rows: i64,
    /// Maximum number of rows of every other portion, which are larger and larger.
    max_rows: i64,
    /// Size of bodies at which a portion ends. The body that reaches it is still included.
    body_bytes: Option<usize>,
}

/// Growth factor of the number of rows in the next portion.
const PORTION_GROWTH: i64 = 4;
/// The portions of PostgreSQL.
const BOUNDED: PortionLimits = PortionLimits { first_rows: 64, max_rows: 1_000, body_bytes: None };
/// One portion with all rows, for SQLite.
const UNBOUNDED: PortionLimits = PortionLimits { first_rows: i64::MAX, max_rows: i64::MAX, body_bytes: None };
/// Size of the bodies of one portion.
const PORTION_BODY_BYTES: usize = 4 << 20;

impl SqlConnection {
    /// Maximum number of rows that one statement of a read without an integer key should return.
    pub(crate) fn portion_rows(&self) -> i64 {
        self.choose(UNBOUNDED, BOUNDED).max_rows
    }

    /// Visits rows in the order of a unique integer key until `visit` breaks. The key is the first column of the query.
    /// The query ends in `key >= ? ORDER BY key LIMIT ?`, or in `key <= ? ORDER BY key DESC LIMIT ?`; `params` are those
    /// before the key. To read one state, the caller reads in one transaction.
    pub(crate) fn visit_rows<E: From<SqlError>>(
        &self,
        sql: &str,
        params: &[SqlParam<'_>],
        start: KeyStart,
        visit: impl FnMut(&SqlRow<'_>) -> Result<ControlFlow<()>, E>,
    ) -> Result<(), E> {
        self.visit_portions(sql, params, start, self.choose(UNBOUNDED, BOUNDED), visit)
    }

    /// As [`SqlConnection::visit_rows`], in ascending order, for rows with large bodies: the first columns are `no` (the
    /// key) and `body`.
    pub(crate) fn visit_bodies<E: From<SqlError>>(
        &self,
        sql: &str,
        params: &[SqlParam<'_>],
        first: i64,
        visit: impl FnMut(&SqlRow<'_>) -> Result<ControlFlow<()>, E>,
    ) -> Result<(), E> {
        let bounded = PortionLimits { body_bytes: Some(PORTION_BODY_BYTES), ..BOUNDED };
        let limits = self.choose(UNBOUNDED, bounded);
        let sql = limits.body_bytes.map_or(Cow::Borrowed(sql), |bytes| Cow::Owned(limit_body_bytes(sql, bytes)));
        self.visit_portions(&sql, params, KeyStart::AtLeast(first), limits, visit)
    }

    fn visit_portions<E: From<SqlError>>(
        &self,
        sql: &str,
        params: &[SqlParam<'_>],
        mut start: KeyStart,
        limits: PortionLimits,
        mut visit: impl FnMut(&SqlRow<'_>) -> Result<ControlFlow<()>, E>,
    ) -> Result<(), E> {
        let mut statement = self.prepare_cached(sql)?;
        let mut portion_rows = limits.first_rows;
        loop {
            let bounds = [SqlParam::Integer(start.key()), SqlParam::Integer(portion_rows)];
            let mut rows = statement.query(params_from_iter(params.iter().copied().chain(bounds)))?;
            let (mut row_count, mut body_bytes, mut last) = (0, 0, None);
            while let Some(row) = rows.next()? {
                row_count += 1;
                last = Some(row.get(0)?);
                if limits.body_bytes.is_some() {
                    body_bytes += row.get_ref(1)?.as_blob().len();
                }
                if visit(&row)?.is_break() {
                    return Ok(());
                }
            }
            // A portion that reached neither limit was the last one.
            let is_full = row_count == portion_rows || limits.body_bytes.is_some_and(|most| body_bytes >= most);
            match last.and_then(|last| start.resume_after(last)).filter(|_| is_full) {
                Some(next) => start = next,
                None => return Ok(()),
            }
            portion_rows = portion_rows.saturating_mul(PORTION_GROWTH).min(limits.max_rows);
        }
    }
}

/// Ends the rows of a query with the body that reaches a size. PostgreSQL stores large bodies beside their rows, together
/// with their length: of the rows that are left out, no body is read.
fn limit_body_bytes(sql: &str, bytes: usize) -> String {
    format!(
        "SELECT * FROM (SELECT *, sum(length(body)) OVER (ORDER BY no) - length(body) AS bytes_before \
         FROM ({sql}) AS part) AS sized WHERE bytes_before < {bytes} ORDER BY no"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::params;

    /// A table with these keys. Bodies have as many bytes as they have bodies before them.
    fn filled(keys: &[i64]) -> SqlConnection {
        let sql = SqlConnection::from(rusqlite::Connection::open_in_memory().unwrap());
        sql.execute_batch("CREATE TABLE t (no INTEGER PRIMARY KEY, body BLOB NOT NULL)").unwrap();
        for (size, key) in keys.iter().enumerate() {
            let body = vec![7_u8; size];
            sql.execute("INSERT INTO t VALUES (?, ?)", params![key, body]).unwrap();
        }
        sql
    }

    /// The keys that are visited in portions, up to a number of keys.
    fn visited(sql: &SqlConnection, start: KeyStart, limits: PortionLimits, most: usize) -> Vec<i64> {
        let (test, order) = match start {
            KeyStart::AtLeast(_) => (">=", "ASC"),
            KeyStart::AtMost(_) => ("<=", "DESC"),
        };
        let query = format!("SELECT no, body FROM t WHERE body <> ? AND no {test} ? ORDER BY no {order} LIMIT ?");
        let query = limits.body_bytes.map_or(query.clone(), |bytes| limit_body_bytes(&query, bytes));
        let mut keys = Vec::new();
        sql.visit_portions(&query, &[SqlParam::Blob(b"none")], start, limits, |row| -> Result<_, SqlError> {
            keys.push(row.get(0)?);
            Ok(if keys.len() == most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })
        .unwrap();
        keys
    }

    #[test]
    fn portions_of_every_size_visit_the_same_rows() {
        let keys = [i64::MIN, -5, 0, 1, 2, 3, 70, 71, i64::MAX];
        let reversed: Vec<i64> = keys.iter().rev().copied().collect();
        let sql = filled(&keys);
        for first_rows in [1, 2, 3, 8, 9, 10, i64::MAX] {
            for body_bytes in [None, Some(1), Some(5), Some(1_000)] {
                let limits = PortionLimits { first_rows, max_rows: first_rows.saturating_mul(2), body_bytes };
                assert_eq!(visited(&sql, KeyStart::FIRST, limits, usize::MAX), keys);
                assert_eq!(visited(&sql, KeyStart::AtLeast(1), limits, 4), keys[3..7]);
                if body_bytes.is_none() {
                    assert_eq!(visited(&sql, KeyStart::AtMost(i64::MAX), limits, usize::MAX), reversed);
                    assert_eq!(visited(&sql, KeyStart::AtMost(2), limits, 2), [2, 1]);
                }
            }
        }
        assert_eq!(visited(&filled(&[]), KeyStart::FIRST, BOUNDED, usize::MAX), Vec::<i64>::new());
    }

    #[test]
    fn a_portion_ends_with_the_body_that_reaches_its_size() {
        let sql = filled(&[1, 2, 3, 4, 5]);
        let keys = |bytes: usize| -> Vec<i64> {
            let query = limit_body_bytes("SELECT no, body FROM t WHERE no >= ? ORDER BY no LIMIT ?", bytes);
            let mut statement = sql.prepare(&query).unwrap();
            statement.query_map([1_i64, 100], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
        };
        // Sizes are 0, 1, 2, 3 and 4.
        assert_eq!(keys(1), [1, 2]);
        assert_eq!(keys(3), [1, 2, 3]);
        assert_eq!(keys(4), [1, 2, 3, 4]);
        assert_eq!(keys(1_000), [1, 2, 3, 4, 5]);
    }
}
