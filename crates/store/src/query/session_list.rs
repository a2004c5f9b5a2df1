//! Lists sessions, latest first: each one at the start of its last trajectory within the time of the filter.

use std::fmt;
use std::str::FromStr;

use crate::sql::{SqlConnection, SqlParam, SqlValue, params_from_iter};

use super::overview::RunEndingRow;
use super::project_number;
use super::session_turns::{SESSION_TOTALS_SQL, SessionTotals, sum_session, totals_from_row};
use super::trace_list_page::{FIRST_PORTION, PORTION_GROWTH};
use crate::Store;
use crate::error::StoreError;

/// Maximum number of index entries that one request examines.
const MAX_EXAMINED: usize = 20_000;
/// Maximum number of trajectories of each session that are summed up.
const MAX_SUMMED: i64 = 1_000;
/// Maximum number of different ending labels of a session.
const MAX_ENDINGS: i64 = 20;

/// A session is listed if one of its trajectories fits.
#[derive(Clone, Debug, Default)]
pub struct SessionFilter {
    pub project: Option<String>,
    /// Begins at this time or later.
    pub from_ns: Option<i64>,
    /// Begins before this time.
    pub to_ns: Option<i64>,
}

/// One page of the list.
#[derive(Clone, Debug, Default)]
pub struct SessionSummaryPage {
    pub sessions: Vec<SessionSummary>,
    /// Where the next page begins; `None` at the end.
    pub next: Option<SessionListCursor>,
}

/// A session with the totals of its trajectories. The same name in two projects is two sessions.
#[derive(Clone, Debug)]
pub struct SessionSummary {
    pub session: String,
    pub project: String,
    /// Request and agent of the first trajectory.
    pub query: String,
    pub agent: String,
    pub totals: SessionTotals,
    /// Whether the session has more trajectories than were summed up.
    pub is_cut: bool,
    /// Trajectories with a wrong verdict.
    pub flagged: i64,
    /// How the trajectories ended, most frequent first.
    pub endings: Vec<RunEndingRow>,
}

/// Position in the list: after this session. Its text is the cursor of the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionListCursor {
    start_ns: i64,
    project: i64,
    session: String,
}

impl fmt::Display for SessionListCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.start_ns, self.project, self.session)
    }
}

impl FromStr for SessionListCursor {
    type Err = ();

    fn from_str(text: &str) -> Result<SessionListCursor, ()> {
        let mut parts = text.splitn(3, '.');
        let mut part = || parts.next().ok_or(());
        let number = |digits: &str| digits.parse().map_err(drop);
        Ok(SessionListCursor {
            start_ns: number(part()?)?,
            project: number(part()?)?,
            // PostgreSQL refuses this character, and no stored name has it.
            session: Some(part()?).filter(|name| !name.contains('\0')).ok_or(())?.to_owned(),
        })
    }
}

impl Store {
    /// One page of sessions, latest first. A page may be short or empty and still have a next one. `ending_evaluator` is
    /// the one whose labels say how a trajectory ended.
    pub fn session_summaries(
        &self,
        filter: &SessionFilter,
        ending_evaluator: &str,
        cursor: Option<SessionListCursor>,
        limit: usize,
    ) -> Result<SessionSummaryPage, StoreError> {
        let reader = self.readers.take_reader()?;
        let sql: &SqlConnection = &*reader.snapshot()?;
        let project = match &filter.project {
            None => None,
            Some(name) => match project_number(sql, name)? {
                Some(number) => Some(number),
                None => return Ok(SessionSummaryPage::default()),
            },
        };
        let (found, next) = walk_sessions(sql, filter, project, cursor, limit.max(1))?;
        Ok(SessionSummaryPage { sessions: summarize_sessions(sql, &found, ending_evaluator)?, next })
    }
}

/// The positions of the sessions of a page, and where the next one begins.
fn walk_sessions(
    sql: &SqlConnection,
    filter: &SessionFilter,
    project: Option<i64>,
    cursor: Option<SessionListCursor>,
    limit: usize,
) -> Result<(Vec<SessionListCursor>, Option<SessionListCursor>), StoreError> {
    let to_ns = filter.to_ns.unwrap_or(i64::MAX);
    let top = (to_ns, i64::MIN, String::new());
    let mut before = match cursor {
        Some(cursor) => top.min((cursor.start_ns, cursor.project, cursor.session)),
        None => top,
    };
    let mut statement = sql.prepare_cached(&session_walk_sql(project.is_some()))?;
    let mut found: Vec<SessionListCursor> = Vec::new();
    let mut examined = 0;
    // PostgreSQL computes all rows of a statement before the first one is read.
    let mut portion = FIRST_PORTION.max(limit + 1);
    loop {
        portion = portion.min(MAX_EXAMINED - examined);
        let mut values = vec![SqlValue::Integer(to_ns)];
        values.extend(project.map(SqlValue::Integer));
        values.extend([
            SqlValue::Integer(filter.from_ns.unwrap_or(i64::MIN)),
            SqlValue::Integer(before.0),
            SqlValue::Integer(before.1),
            SqlValue::Text(before.2.clone()),
            SqlValue::Integer(portion as i64),
        ]);
        let mut rows = statement.query(params_from_iter(values))?;
        let mut read = 0;
        while let Some(row) = rows.next()? {
            read += 1;
            let place = SessionListCursor { start_ns: row.get(0)?, project: row.get(1)?, session: row.get(2)? };
            before = (place.start_ns, place.project, place.session.clone());
            // Trajectories of one session that began at the same time are adjacent.
            if row.get(3)? && found.last() != Some(&place) {
                if found.len() == limit {
                    let next = found.last().cloned();
                    return Ok((found, next));
                }
                found.push(place);
            }
        }
        if read < portion {
            return Ok((found, None));
        }
        examined += read;
        if examined == MAX_EXAMINED {
            let (start_ns, project, session) = before;
            return Ok((found, Some(SessionListCursor { start_ns, project, session })));
        }
        portion *= PORTION_GROWTH;
    }
}

/// Whether no later trajectory of the session fits is a column of the result, so that the limit bounds what is examined.
fn session_walk_sql(of_project: bool) -> String {
    let (index, within) = match of_project {
        true => ("trajectory_session_by_project", "t.project = ? AND"),
        false => ("trajectory_session_by_start", ""),
    };
    format!(
        "SELECT t.start_ns, t.project, t.session, NOT EXISTS (\
           SELECT 1 FROM trajectory y INDEXED BY trajectory_by_session WHERE y.session = t.session AND y.session <> '' \
           AND y.project = t.project AND y.start_ns > t.start_ns AND y.start_ns < ? LIMIT 1 OFFSET 0) \
         FROM trajectory t INDEXED BY {index} WHERE t.session <> '' AND {within} t.start_ns >= ? \
         AND (t.start_ns, t.project, t.session) < (?, ?, ?) \
         ORDER BY t.start_ns DESC, t.project DESC, t.session DESC LIMIT ?"
    )
}

/// The first trajectories of a session, up to a bound: parameters are its name, its project, and the bound.
const SUMMED: &str = "(SELECT no FROM trajectory INDEXED BY trajectory_by_session \
                      WHERE session = ? AND session <> '' AND project = ? ORDER BY start_ns LIMIT ?) AS part";

fn summarize_sessions(
    sql: &SqlConnection,
    found: &[SessionListCursor],
    ending_evaluator: &str,
) -> Result<Vec<SessionSummary>, StoreError> {
    let keys: Vec<[SqlParam<'_>; 2]> =
        found.iter().map(|one| [SqlParam::Text(&one.session), SqlParam::Integer(one.project)]).collect();
    let with_limit =
        |limit: i64| keys.iter().map(|[name, project]| [*name, *project, SqlParam::Integer(limit)]).collect();
    let bounded: Vec<[SqlParam<'_>; 3]> = with_limit(MAX_SUMMED);
    let one_more: Vec<[SqlParam<'_>; 3]> = with_limit(MAX_SUMMED + 1);
    let totals = sql.query_row_each(SESSION_TOTALS_SQL, &one_more, totals_from_row)?;
    let first = sql.query_row_each(
        "SELECT t.query, t.agent, p.name FROM trajectory t INDEXED BY trajectory_by_session \
         JOIN project p ON p.no = t.project \
         WHERE t.session = ? AND t.session <> '' AND t.project = ? ORDER BY t.start_ns, t.no LIMIT 1",
        &keys,
        |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
    )?;
    let flagged = sql.query_row_each(
        &format!(
            "SELECT count(*) FROM {SUMMED} WHERE EXISTS (\
             SELECT 1 FROM outcome o INDEXED BY outcome_wrong WHERE o.trajectory = part.no AND o.is_wrong)"
        ),
        &bounded,
        |row| row.get(0),
    )?;
    let endings = list_session_endings(sql, &bounded, ending_evaluator)?;
    let mut summaries = Vec::with_capacity(found.len());
    let rows = found.iter().zip(totals).zip(first).zip(flagged).zip(endings);
    for ((((place, totals), (query, agent, project)), flagged), endings) in rows {
        let is_cut = totals.trajectories > MAX_SUMMED;
        let totals = if is_cut { sum_session(sql, &place.session, place.project, MAX_SUMMED)? } else { totals };
        let session = place.session.clone();
        summaries.push(SessionSummary { session, project, query, agent, totals, is_cut, flagged, endings });
    }
    Ok(summaries)
}

/// How the trajectories of each session ended. `sessions` are the parameters of [`SUMMED`].
fn list_session_endings(
    sql: &SqlConnection,
    sessions: &[[SqlParam<'_>; 3]],
    evaluator: &str,
) -> Result<Vec<Vec<RunEndingRow>>, StoreError> {
    let sets: Vec<[SqlParam<'_>; 4]> =
        sessions.iter().map(|[name, project, limit]| [*name, *project, *limit, SqlParam::Text(evaluator)]).collect();
    let endings = sql.query_each(
        &format!(
            "SELECT o.label, count(*), o.is_wrong, o.score IS NOT NULL AS is_scored \
             FROM {SUMMED} CROSS JOIN outcome o ON o.trajectory = part.no \
             WHERE o.evaluator = ? AND o.step = 0 AND o.label <> '' GROUP BY o.label, o.is_wrong, is_scored \
             ORDER BY count(*) DESC, o.label LIMIT {MAX_ENDINGS}"
        ),
        &sets,
        |row| {
            Ok(RunEndingRow {
                label: row.get(0)?,
                trajectories: row.get(1)?,
                is_wrong: row.get(2)?,
                is_scored: row.get(3)?,
            })
        },
    )?;
    Ok(endings)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::{assert_plan, open_writer};

    #[test]
    fn sessions_are_walked_through_indexes_and_never_sorted() {
        let folder = tempfile::tempdir().unwrap();
        let sql = open_writer(&folder.path().join("store.db")).unwrap();
        let by_project = "COVERING INDEX trajectory_session_by_project (project=? AND start_ns>? AND start_ns<?)";
        assert_plan(&sql, &session_walk_sql(true), by_project);
        let by_start = "COVERING INDEX trajectory_session_by_start (start_ns>? AND (start_ns,project,session)<(?,?,?))";
        assert_plan(&sql, &session_walk_sql(false), by_start);
        let later = "COVERING INDEX trajectory_by_session (session=? AND project=? AND start_ns>? AND start_ns<?)";
        assert_plan(&sql, &session_walk_sql(false), later);
    }

    #[test]
    fn a_cursor_is_read_as_it_is_written() {
        let cursor = SessionListCursor { start_ns: -7, project: 3, session: "a.b é".to_owned() };
        assert_eq!(cursor.to_string().parse(), Ok(cursor));
        for text in ["", "1", "1.2", "x.2.a", "1.2.a\0"] {
            assert!(text.parse::<SessionListCursor>().is_err(), "{text:?}");
        }
    }
}
