//! Rewrites a statement of this crate, which SQLite understands as it is, for PostgreSQL.
//!
//! Only what has the same meaning in other words is rewritten: the marks of parameters (`?` and `?3` become `$1` and
//! `$3`), hints for SQLite's planner (`INDEXED BY`, `CROSS JOIN … ON`), `OR FAIL`, and
//! the operator of the full-text index. Everything else that differs is
//! written so that both engines understand it, or exists twice ([`super::SqlConnection::choose`]).

/// Words that are left out.
const DROPPED_WORDS: [&str; 1] = ["OR FAIL "];

/// Rewrites a statement for PostgreSQL.
pub(crate) fn to_postgres(sql: &str) -> String {
    let mut sql = sql
        .replace("CROSS JOIN", "JOIN")
        // A plus hides a column from SQLite's planner.
        .replace("+a.", "a.")
        .replace("words MATCH ?", "words.text @@ CAST(CAST(? AS TEXT) AS TSQUERY)");
    for words in DROPPED_WORDS {
        sql = sql.replace(words, "");
    }
    number_parameters(&type_null_checks(&drop_index_hints(&sql)))
}

/// An `INSERT … VALUES (?, …)` whose rows come from arrays, one for each column. `types` are those of the columns.
pub(crate) fn insert_from_arrays(sql: &str, types: &[&str]) -> String {
    let sql = to_postgres(sql);
    let (into, values) = sql.split_once("VALUES (").expect("the statement inserts values");
    let (_, behind) = values.split_once(')').expect("the values end");
    let arrays: Vec<String> =
        types.iter().enumerate().map(|(index, name)| format!("${}::{name}[]", index + 1)).collect();
    format!("{into}SELECT * FROM unnest({}){behind}", arrays.join(", "))
}

/// A query that is run for each row of arrays, one for each parameter. `types` are those of the parameters. Behind the columns of
/// the query, the result has the position of that row from 1.
pub(crate) fn query_for_arrays(sql: &str, types: &[&str]) -> String {
    let mut query = to_postgres(sql);
    let mut arrays = Vec::new();
    let mut names = Vec::new();
    // From the last one on: `$1` is the beginning of `$10`.
    for (number, name) in types.iter().enumerate().map(|(index, name)| (index + 1, name)).rev() {
        query = query.replace(&format!("${number}"), &format!("each.p{number}"));
        arrays.insert(0, format!("${number}::{name}[]"));
        names.insert(0, format!("p{number}"));
    }
    format!(
        "SELECT part.*, each.position FROM unnest({}) WITH ORDINALITY AS each ({}, position) CROSS JOIN LATERAL ({query}) AS part",
        arrays.join(", "),
        names.join(", ")
    )
}

/// PostgreSQL cannot know the type of a parameter that is only compared with null. All of ours are texts.
fn type_null_checks(sql: &str) -> String {
    let mut rewritten = String::with_capacity(sql.len() + 32);
    let mut rest = sql;
    while let Some(at) = rest.find(" IS NULL") {
        let (before, behind) = rest.split_at(at);
        let mark = before.rfind('?').filter(|mark| before[mark + 1..].chars().all(|c| c.is_ascii_digit()));
        match mark {
            Some(mark) => {
                rewritten.push_str(&before[..mark]);
                rewritten.push_str(&format!("CAST({} AS TEXT)", &before[mark..]));
            }
            None => rewritten.push_str(before),
        }
        let (check, tail) = behind.split_at(" IS NULL".len());
        rewritten.push_str(check);
        rest = tail;
    }
    rewritten.push_str(rest);
    rewritten
}

/// Leaves out every `INDEXED BY name`.
fn drop_index_hints(sql: &str) -> String {
    const HINT: &str = " INDEXED BY ";
    let mut parts = sql.split(HINT);
    let mut rewritten = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(part.len());
        rewritten.push_str(&part[end..]);
    }
    rewritten
}

/// `?` is the parameter behind the highest so far, as in SQLite. Marks inside of quoted texts stay.
fn number_parameters(sql: &str) -> String {
    let mut rewritten = String::with_capacity(sql.len() + 16);
    let mut highest = 0;
    let mut is_quoted = false;
    let mut rest = sql.chars().peekable();
    while let Some(c) = rest.next() {
        if c == '\'' {
            is_quoted = !is_quoted;
        }
        if c != '?' || is_quoted {
            rewritten.push(c);
            continue;
        }
        let mut digits = String::new();
        while let Some(digit) = rest.next_if(char::is_ascii_digit) {
            digits.push(digit);
        }
        let number: usize = digits.parse().unwrap_or(highest + 1);
        highest = highest.max(number);
        rewritten.push('$');
        rewritten.push_str(&number.to_string());
    }
    rewritten
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_become_columns_of_arrays() {
        assert_eq!(
            query_for_arrays("SELECT a FROM t WHERE b = ? AND c = ? LIMIT 3", &["text", "int8"]),
            "SELECT part.*, each.position FROM unnest($1::text[], $2::int8[]) WITH ORDINALITY AS each (p1, p2, position) \
             CROSS JOIN LATERAL (SELECT a FROM t WHERE b = each.p1 AND c = each.p2 LIMIT 3) AS part"
        );
    }

    #[test]
    fn hints_and_marks_are_rewritten() {
        let sql =
            "SELECT a FROM t INDEXED BY t_by_a CROSS JOIN u ON u.a = t.a WHERE a = ?2 AND b = '?' AND c = ? LIMIT ?1";
        let expected = "SELECT a FROM t JOIN u ON u.a = t.a WHERE a = $2 AND b = '?' AND c = $3 LIMIT $1";
        assert_eq!(to_postgres(sql), expected);
        assert_eq!(to_postgres("INSERT OR FAIL INTO t VALUES (?, ?)"), "INSERT INTO t VALUES ($1, $2)");
        assert_eq!(to_postgres("SELECT 1 FROM t INDEXED BY x"), "SELECT 1 FROM t");
        let sql = "SELECT 1 WHERE a IS NULL OR ?1 IS NULL OR ? IS NULL";
        assert_eq!(
            to_postgres(sql),
            "SELECT 1 WHERE a IS NULL OR CAST($1 AS TEXT) IS NULL OR CAST($2 AS TEXT) IS NULL"
        );
    }
}
