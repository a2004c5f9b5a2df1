//! Searches the words of trajectories and lists their traces, latest arrival first.
//!
//! SQLite's full-text index has the order of the list. PostgreSQL's has none, and its statistics do not know rare words. So
//! the latest trajectories are examined one by one there, which fills a page for frequent words. For words that turn out to
//! be rare, the index is asked for the matches in a window of the latest trajectories, then in larger windows before it.

use std::ops::ControlFlow;

use crate::error::StoreError;
use crate::query::trace_filter::TraceFilter;
use crate::sql::{KeyStart, OptionalRow, SqlConnection, SqlParam, SqlValue, params, params_from_iter};

use super::trace_conditions::build_trace_conditions;
use super::trace_list_page::{FIRST_PORTION, MAX_EXAMINED_TRACES, PORTION_GROWTH, TraceListCursor, TraceNumberPage};

/// Trajectories that a search on PostgreSQL examines before it decides whether its words are rare.
const MIN_SAMPLED_TRAJECTORIES: usize = 300;
/// One of how many trajectories a rare word is in, at most.
const RARE_WORD_INTERVAL: usize = 20;
/// Trajectories of all projects in the first window in which the index is asked for matches. For rare words PostgreSQL
/// combines the index of words with that of numbers, and reads only the rows of matches: a window of 50,000 among 1,000,000
/// trajectories, 225 of them matches, took 3 to 6 ms.
const FIRST_WINDOW: usize = 4_096;
/// Maximum growth of a window from one to the next.
const WINDOW_GROWTH: usize = 16;
/// Maximum trajectories of a window: where words were frequent once, all of their matches are read and sorted.
const MAX_WINDOW: usize = 262_144;
/// Expected number of matches that are found at once, without a window: reading a row for each takes 5 to 10 us. Words that
/// were frequent before the windows that were examined have more matches than expected; the query's time limit ends those.
const MAX_SORTED_MATCHES: i128 = 2_000;

/// A page of search results, latest arrival first. A trace is listed once, for the latest of its trajectories that
/// match.
pub(super) fn search_trace_page(
    sql: &SqlConnection,
    filter: &TraceFilter,
    project: Option<i64>,
    terms: &str,
    cursor: Option<TraceListCursor>,
    limit: usize,
) -> Result<TraceNumberPage, StoreError> {
    let before = match cursor {
        Some(TraceListCursor::Found { trajectory }) => trajectory,
        _ => i64::MAX,
    };
    let mut own = Vec::new();
    let conditions = build_trace_conditions(filter, "trace.no", &mut own);
    own.extend(project.map(SqlValue::Integer));
    own.extend([
        SqlValue::Integer(filter.from_ns.unwrap_or(i64::MIN)),
        SqlValue::Integer(filter.to_ns.unwrap_or(i64::MAX)),
    ]);
    let columns = listed_columns_sql(&conditions, project.is_some());
    let mut search =
        TraceSearch { sql, terms, own, project, before, limit, numbers: Vec::new(), last: before, examined: 0 };
    let has_more = match sql.sqlite() {
        // SQLite computes rows as they are read.
        Some(_) => search.walk_index(&ordered_index_sql(&columns))?,
        None => {
            // A plan that is made without the words at hand may use the other index.
            sql.execute_batch("SET LOCAL plan_cache_mode = force_custom_plan")?;
            search.search_postgres(&columns)?
        }
    };
    let next = has_more.then_some(TraceListCursor::Found { trajectory: search.last });
    Ok((search.numbers, next))
}

/// What is listed of a match: the number of its trajectory, that of its trace, and whether the trace fits the filter.
fn listed_columns_sql(conditions: &str, of_project: bool) -> String {
    let within = if of_project { "AND trace.project = ?" } else { "" };
    format!("words.rowid, trace.no, {conditions} {within} AND trace.start_ns >= ? AND trace.start_ns < ?")
}

/// SQLite: matches by row number, which is the order of arrival. CROSS JOIN fixes the order of the join.
fn ordered_index_sql(columns: &str) -> String {
    format!(
        "SELECT {columns} FROM words \
         CROSS JOIN trajectory ON trajectory.no = words.rowid CROSS JOIN trace ON trace.no = trajectory.trace \
         WHERE words MATCH ? AND words.rowid < ? ORDER BY words.rowid DESC LIMIT ?"
    )
}

/// PostgreSQL: the trace of each trajectory. The limits keep it from reading the tables as a whole.
const TRACE_OF_TRAJECTORY: &str =
    "JOIN LATERAL (SELECT no, project, start_ns FROM trace WHERE no = trajectory.trace LIMIT 1) AS trace ON TRUE";

/// PostgreSQL: the latest trajectories, of all projects or of one, whose words match. The inner limit bounds what is
/// examined.
fn recent_words_sql(columns: &str, of_project: bool) -> String {
    let within = if of_project { "project = ? AND" } else { "" };
    format!(
        "SELECT {columns} FROM (SELECT no, trace FROM trajectory WHERE {within} no < ? ORDER BY no DESC LIMIT ?) AS trajectory \
         JOIN LATERAL (SELECT rowid, words MATCH ? AS is_match FROM words WHERE rowid = trajectory.no LIMIT 1) AS words ON TRUE \
         {TRACE_OF_TRAJECTORY} WHERE words.is_match ORDER BY words.rowid DESC"
    )
}

/// PostgreSQL: the numbers of the matches in a window, latest first. The sum keeps it from walking the rows in their order.
const WINDOW_MATCHES: &str =
    "SELECT rowid FROM words WHERE words MATCH ? AND rowid < ? AND rowid >= ? ORDER BY rowid + 0 DESC LIMIT ?";

/// PostgreSQL: what is listed of the trajectories with these numbers. Those of other projects are found in an index, which
/// spares reading their rows.
fn listed_matches_sql(columns: &str, of_project: bool) -> String {
    let within = if of_project { "project = ? AND" } else { "" };
    format!(
        "SELECT {columns} FROM unnest(CAST(CAST(? AS TEXT) AS BIGINT[])) AS words (rowid) \
         JOIN LATERAL (SELECT trace FROM trajectory WHERE {within} no = words.rowid LIMIT 1) AS trajectory ON TRUE \
         {TRACE_OF_TRAJECTORY} ORDER BY words.rowid DESC"
    )
}

/// A page that is being filled.
struct TraceSearch<'s> {
    sql: &'s SqlConnection,
    terms: &'s str,
    /// The parameters of what is listed, which come first in every statement.
    own: Vec<SqlValue>,
    project: Option<i64>,
    /// The trajectory before which the page begins.
    before: i64,
    limit: usize,
    numbers: Vec<i64>,
    /// The last trajectory that was examined.
    last: i64,
    /// How many trajectories were read: walked ones, and matches of the index.
    examined: usize,
}

/// How a walk ended.
enum SearchEnd {
    /// With the page.
    Page { has_more: bool },
    /// Before that, because the words turned out to be rare, or frequent: another walk is faster.
    OtherWalk,
}

impl TraceSearch<'_> {
    /// PostgreSQL: fills the page by one walk after the other. Returns whether there may be more.
    fn search_postgres(&mut self, columns: &str) -> Result<bool, StoreError> {
        let of_project = self.project.is_some();
        let recent = recent_words_sql(columns, of_project);
        if let SearchEnd::Page { has_more } = self.walk_recent(&recent, Some(RARE_WORD_INTERVAL))? {
            return Ok(has_more);
        }
        if let SearchEnd::Page { has_more } = self.walk_windows(&listed_matches_sql(columns, of_project))? {
            return Ok(has_more);
        }
        // Frequent after all, in earlier trajectories or in other projects, whose matches are in the windows, too.
        let end = self.walk_recent(&recent, None)?;
        Ok(!matches!(end, SearchEnd::Page { has_more: false }))
    }

    /// Walks matches through SQLite's index. Returns whether there may be more.
    fn walk_index(&mut self, statement: &str) -> Result<bool, StoreError> {
        let bounds = [self.text_param(), SqlValue::Integer(self.last), SqlValue::Integer(MAX_EXAMINED_TRACES as i64)];
        let read = self.list_matches(statement, &bounds)?;
        Ok(self.is_full() || read == MAX_EXAMINED_TRACES)
    }

    /// Asks the index for the matches in one window after the other, as long as they are few.
    fn walk_windows(&mut self, listed: &str) -> Result<SearchEnd, StoreError> {
        let mut window = Some(FIRST_WINDOW);
        loop {
            let oldest = window.map(|window| self.find_end_of_portion(None, window)).transpose()?.flatten();
            let max_matches = MAX_EXAMINED_TRACES - self.examined;
            let bounds = params![self.terms, self.last, oldest.unwrap_or(i64::MIN), max_matches as i64];
            let matches: Vec<i64> = self
                .sql
                .prepare_cached(WINDOW_MATCHES)?
                .query_map(bounds, |row| row.get(0))?
                .collect::<Result<_, _>>()?;
            let listed_before = self.numbers.len();
            self.list_numbers(listed, &matches)?;
            if self.is_full() {
                return Ok(SearchEnd::Page { has_more: true });
            }
            // Also matches that are not listed were examined: those of other projects.
            self.last = matches.last().copied().unwrap_or(self.last);
            self.examined += matches.len();
            if matches.len() == max_matches {
                return Ok(SearchEnd::Page { has_more: true });
            }
            let (Some(size), Some(oldest)) = (window, oldest) else { return Ok(SearchEnd::Page { has_more: false }) };
            self.last = oldest;
            if matches.len() > size / RARE_WORD_INTERVAL {
                return Ok(SearchEnd::OtherWalk);
            }
            // As counted when the table was last analyzed; negative before that.
            let mut statement = self.sql.prepare_cached(
                "SELECT CAST(reltuples AS BIGINT) FROM pg_class WHERE oid = CAST(CAST('words' AS TEXT) AS REGCLASS)",
            )?;
            let known_rows: i64 = statement.query_row((), |row| row.get(0))?;
            let missing = self.limit - self.numbers.len();
            let found = WindowResult { size, matches: matches.len(), listed: self.numbers.len() - listed_before };
            window = found.choose_next_window(known_rows, missing);
        }
    }

    /// Lists trajectories that match, in portions that grow, until the page is full.
    fn list_numbers(&mut self, listed: &str, matches: &[i64]) -> Result<(), StoreError> {
        let mut portion = FIRST_PORTION.max(self.limit + 1);
        let mut remaining = matches;
        while !remaining.is_empty() && !self.is_full() {
            let (numbers, later) = remaining.split_at(portion.min(remaining.len()));
            let numbers: Vec<String> = numbers.iter().map(i64::to_string).collect();
            let mut bounds = vec![SqlValue::Text(format!("{{{}}}", numbers.join(",")))];
            bounds.extend(self.project.map(SqlValue::Integer));
            self.list_matches(listed, &bounds)?;
            remaining = later;
            portion *= PORTION_GROWTH;
        }
        Ok(())
    }

    /// Walks the latest trajectories. Ends with [`SearchEnd::OtherWalk`] where fewer than one of `rare_interval` match.
    fn walk_recent(&mut self, statement: &str, rare_interval: Option<usize>) -> Result<SearchEnd, StoreError> {
        let mut matches = 0;
        let mut portion = FIRST_PORTION.max(self.limit + 1);
        loop {
            portion = portion.min(MAX_EXAMINED_TRACES - self.examined);
            let end = self.find_end_of_portion(self.project, portion)?;
            let mut bounds: Vec<SqlValue> = self.project.map(SqlValue::Integer).into_iter().collect();
            bounds.extend([SqlValue::Integer(self.last), SqlValue::Integer(portion as i64), self.text_param()]);
            matches += self.list_matches(statement, &bounds)?;
            if self.is_full() {
                return Ok(SearchEnd::Page { has_more: true });
            }
            let Some(end) = end else { return Ok(SearchEnd::Page { has_more: false }) };
            self.last = end;
            self.examined += portion;
            if self.examined == MAX_EXAMINED_TRACES {
                return Ok(SearchEnd::Page { has_more: true });
            }
            let is_rare = rare_interval.is_some_and(|interval| matches <= self.examined / interval);
            if is_rare && self.examined >= MIN_SAMPLED_TRAJECTORIES {
                return Ok(SearchEnd::OtherWalk);
            }
            portion = self.estimate_portion(portion);
        }
    }

    /// How many trajectories to examine next: enough to fill the page, if the matches go on as they did. Those beyond it
    /// would be examined in vain.
    fn estimate_portion(&self, portion: usize) -> usize {
        let most = portion * PORTION_GROWTH;
        let missing = self.limit - self.numbers.len();
        let expected = (self.examined * missing).checked_div(self.numbers.len()).unwrap_or(most);
        (expected + expected / 4).clamp(FIRST_PORTION.min(most), most)
    }

    /// The last trajectory of the next portion or window, of all projects or of one; `None` if there are fewer.
    fn find_end_of_portion(&self, project: Option<i64>, portion: usize) -> Result<Option<i64>, StoreError> {
        let within = if project.is_some() { "project = ? AND" } else { "" };
        let mut values: Vec<SqlValue> = project.map(SqlValue::Integer).into_iter().collect();
        values.extend([SqlValue::Integer(self.last), SqlValue::Integer(portion as i64 - 1)]);
        let mut statement = self.sql.prepare_cached(&format!(
            "SELECT no FROM trajectory WHERE {within} no < ? ORDER BY no DESC LIMIT 1 OFFSET ?"
        ))?;
        Ok(statement.query_row(params_from_iter(values), |row| row.get(0)).optional()?)
    }

    fn text_param(&self) -> SqlValue {
        SqlValue::Text(self.terms.to_owned())
    }

    fn is_full(&self) -> bool {
        self.numbers.len() == self.limit
    }

    /// Adds the matches of a statement until the page is full. `bounds` are its parameters after those of what is listed.
    /// Returns how many were read.
    fn list_matches(&mut self, statement: &str, bounds: &[SqlValue]) -> Result<usize, StoreError> {
        let mut values = self.own.clone();
        values.extend_from_slice(bounds);
        let mut statement = self.sql.prepare_cached(statement)?;
        let mut rows = statement.query(params_from_iter(values))?;
        let mut read = 0;
        while let Some(row) = rows.next()? {
            read += 1;
            self.last = row.get(0)?;
            let trace: i64 = row.get(1)?;
            if row.get(2)? && !self.numbers.contains(&trace) && !self.was_listed(trace)? {
                self.numbers.push(trace);
            }
            if self.is_full() {
                break;
            }
        }
        Ok(read)
    }

    /// Whether a trace was on an earlier page, for another of its trajectories.
    fn was_listed(&self, trace: i64) -> Result<bool, StoreError> {
        // Nothing was listed before the first page.
        if self.before == i64::MAX {
            return Ok(false);
        }
        let mut matches = self.sql.prepare_cached("SELECT 1 FROM words WHERE words MATCH ? AND rowid = ?")?;
        let mut is_listed = false;
        let start = KeyStart::AtLeast(self.before);
        self.sql.visit_rows(
            LATER_TRAJECTORIES,
            &[SqlParam::Integer(trace)],
            start,
            |row| -> Result<_, StoreError> {
                let trajectory: i64 = row.get(0)?;
                is_listed = matches.exists(params![self.terms, trajectory])?;
                Ok(if is_listed { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            },
        )?;
        Ok(is_listed)
    }
}

/// What the index said about a window.
struct WindowResult {
    /// In trajectories.
    size: usize,
    matches: usize,
    listed: usize,
}

impl WindowResult {
    /// The size of the window that fills the page, if it is like this one; `None` if all `known_rows` have so few matches
    /// that they are asked for at once.
    fn choose_next_window(&self, known_rows: i64, missing: usize) -> Option<usize> {
        // No match in a small window says little about a large table.
        let expected = i128::from(known_rows) * self.matches.max(1) as i128 / self.size as i128;
        if known_rows > 0 && expected <= MAX_SORTED_MATCHES {
            return None;
        }
        let needed = (self.size * missing).checked_div(self.listed).unwrap_or(self.size * WINDOW_GROWTH);
        Some((needed + needed / 4).clamp(self.size, self.size * WINDOW_GROWTH).min(MAX_WINDOW))
    }
}

/// The trajectories of a trace from one on.
const LATER_TRAJECTORIES: &str = "SELECT no FROM trajectory INDEXED BY trajectory_by_trace \
                                  WHERE trace = ? AND no >= ? ORDER BY no LIMIT ?";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::{assert_plan, open_writer};

    #[test]
    fn windows_grow_until_so_few_matches_are_expected_that_all_are_asked_for() {
        let next = |size: usize, matches: usize, listed: usize, rows: i64| {
            WindowResult { size, matches, listed }.choose_next_window(rows, 40)
        };
        // Without statistics nothing is expected.
        for rows in [-1, 0] {
            assert_eq!(next(4_096, 0, 0, rows), Some(4_096 * WINDOW_GROWTH));
            assert_eq!(next(4_096, 20, 10, rows), Some(4_096 * 5));
        }
        assert_eq!(next(4_096, 8, 2, 1_000_000), None);
        assert_eq!(next(4_096, 20, 10, 1_000_000), Some(4_096 * 5));
        // Absent from 4,096 of 10,000,000 may still be in thousands.
        assert_eq!(next(4_096, 0, 0, 1_000_000), None);
        assert_eq!(next(4_096, 0, 0, 10_000_000), Some(65_536));
        assert_eq!(next(65_536, 0, 0, 10_000_000), None);
        assert_eq!(next(MAX_WINDOW, 500, 0, i64::MAX), Some(MAX_WINDOW));
    }

    #[test]
    fn a_search_is_walked_through_its_index_and_never_sorted() {
        let folder = tempfile::tempdir().unwrap();
        let sql = open_writer(&folder.path().join("store.db")).unwrap();
        let filter = TraceFilter { tool: Some("x".to_owned()), error: Some(false), ..TraceFilter::default() };
        let conditions = build_trace_conditions(&filter, "trace.no", &mut Vec::new());
        for of_project in [false, true] {
            let statement = ordered_index_sql(&listed_columns_sql(&conditions, of_project));
            assert_plan(&sql, &statement, "SCAN words VIRTUAL TABLE INDEX");
        }
        assert_plan(&sql, LATER_TRAJECTORIES, "trajectory_by_trace (trace=? AND rowid>?)");
    }
}
