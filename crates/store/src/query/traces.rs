//! Lists traces, newest first, by any combination of filters.
//!
//! One filter drives: its index is walked in the order of the list, and each trace is checked against the other
//! filters. A request examines a bounded number of traces. A rare combination therefore gives a short page and a cursor
//! to continue from, and never a long wait.

use crate::query::trace_filter::TraceFilter;
use crate::sql::SqlValue;
use crate::sql::{SqlConnection, params_from_iter};

use super::project_number;
use super::search::build_fts_query;
use super::trace_conditions::build_trace_conditions;
use super::trace_list_page::{FIRST_PORTION, MAX_EXAMINED_TRACES, PORTION_GROWTH, TraceListCursor, TraceNumberPage};
use super::trace_rows::{TraceRow, list_trace_rows};
use super::trace_search::search_trace_page;
use crate::Store;
use crate::error::StoreError;
use crate::records::FacetKind;

/// One page of a list.
#[derive(Clone, Debug, Default)]
pub struct TraceRowPage {
    pub traces: Vec<TraceRow>,
    /// Where the next page begins; `None` at the end.
    pub next: Option<TraceListCursor>,
}

/// Maximum number of projects in each of which a facet is walked. If there are more, all traces are examined by time
/// instead.
const MAX_WALKS: usize = 16;

/// Where a walk begins and when it ends.
#[derive(Clone, Copy)]
pub(super) struct WalkLimits {
    /// Exclusive upper bound (start, number): only traces before it are examined.
    before: (i64, i64),
    /// Maximum number of matches in one page; one more is searched for.
    limit: usize,
    /// Maximum number of traces that are examined.
    examined: usize,
}

/// The result of one walk: start and number of the traces that match.
struct MatchedTraces {
    found: Vec<(i64, i64)>,
    /// The last trace that was examined, if the walk stopped before its end.
    stopped: Option<(i64, i64)>,
}

impl Store {
    /// One page of matching traces, newest first. A page may be short or empty and still have a next one.
    pub fn traces(
        &self,
        filter: &TraceFilter,
        cursor: Option<TraceListCursor>,
        limit: usize,
    ) -> Result<TraceRowPage, StoreError> {
        let reader = self.readers.take_reader()?;
        let sql: &SqlConnection = &*reader.snapshot()?;
        let limit = limit.max(1);
        let projects = match &filter.project {
            None => None,
            Some(name) => match project_number(sql, name)? {
                Some(number) => Some(number),
                None => return Ok(TraceRowPage::default()),
            },
        };
        // A search drives the list if there is one: the full-text index has its own order.
        let (numbers, next) = match &filter.text {
            Some(text) => match build_fts_query(sql, text)? {
                Some(terms) => search_trace_page(sql, filter, projects, &terms, cursor, limit)?,
                None => return Ok(TraceRowPage::default()),
            },
            None => list_traces_by_time(sql, filter, projects, cursor, limit)?,
        };
        Ok(TraceRowPage { traces: list_trace_rows(sql, &numbers)?, next })
    }

    /// Returns the number of traces that began at a time or later, counted up to `most`.
    pub fn count_traces_since(&self, project: Option<&str>, from_ns: i64, most: usize) -> Result<u64, StoreError> {
        let reader = self.readers.take_reader()?;
        let project = match project {
            None => None,
            Some(name) => match project_number(&reader, name)? {
                Some(number) => Some(number),
                None => return Ok(0),
            },
        };
        let mut values: Vec<SqlValue> = project.map(SqlValue::Integer).into_iter().collect();
        values.extend([SqlValue::Integer(from_ns), SqlValue::Integer(most as i64)]);
        Ok(reader
            .prepare_cached(&format!("SELECT count(*) FROM ({})", since_walk_sql(project.is_some())))?
            .query_row(params_from_iter(values), |row| row.get(0))?)
    }
}

/// Numbers of matching traces, newest first, among those that were examined, and whether there may be more.
pub(super) fn find_trace_numbers(
    sql: &SqlConnection,
    filter: &TraceFilter,
    limit: usize,
    examined: usize,
) -> Result<(Vec<i64>, bool), StoreError> {
    let project = match &filter.project {
        None => None,
        Some(name) => match project_number(sql, name)? {
            Some(number) => Some(number),
            None => return Ok((Vec::new(), false)),
        },
    };
    let (numbers, next) = match &filter.text {
        Some(text) => match build_fts_query(sql, text)? {
            Some(terms) => search_trace_page(sql, filter, project, &terms, None, limit)?,
            None => return Ok((Vec::new(), false)),
        },
        None => {
            let before = (filter.to_ns.unwrap_or(i64::MAX), i64::MIN);
            merge_walks(sql, filter, project, WalkLimits { before, limit, examined })?
        }
    };
    Ok((numbers, next.is_some()))
}

/// A page in order of time: walks one index or, over several projects, merges one walk per project.
fn list_traces_by_time(
    sql: &SqlConnection,
    filter: &TraceFilter,
    project: Option<i64>,
    cursor: Option<TraceListCursor>,
    limit: usize,
) -> Result<TraceNumberPage, StoreError> {
    // One upper bound and not two: with two, SQLite might choose the wrong one to enter the index and read everything
    // in between.
    let before_ns = (filter.to_ns.unwrap_or(i64::MAX), i64::MIN);
    let before = match cursor {
        Some(TraceListCursor::Time { start_ns, trace }) => before_ns.min((start_ns, trace)),
        _ => before_ns,
    };
    merge_walks(sql, filter, project, WalkLimits { before, limit, examined: MAX_EXAMINED_TRACES })
}

/// The matches of all walks, merged.
fn merge_walks(
    sql: &SqlConnection,
    filter: &TraceFilter,
    project: Option<i64>,
    bounds: WalkLimits,
) -> Result<TraceNumberPage, StoreError> {
    let limit = bounds.limit;
    let walks = match (choose_driving_facet(filter), project) {
        (None, project) => vec![walk_traces(sql, filter, project, bounds)?],
        (Some((kind, value)), Some(project)) => {
            vec![walk_facet(sql, filter, project, kind, &value, bounds)?]
        }
        (Some((kind, value)), None) => {
            let projects: Vec<i64> = sql
                .prepare_cached("SELECT no FROM project LIMIT ?")?
                .query_map([MAX_WALKS as i64 + 1], |row| row.get(0))?
                .collect::<Result<_, _>>()?;
            if projects.len() > MAX_WALKS {
                vec![walk_traces(sql, filter, None, bounds)?]
            } else {
                let walk = |project| walk_facet(sql, filter, project, kind, &value, bounds);
                projects.into_iter().map(walk).collect::<Result<_, _>>()?
            }
        }
    };
    // Entries behind the point where the first walk stopped belong to a later page, because another walk may have
    // entries in between.
    let stopped = walks.iter().filter_map(|walk| walk.stopped).max();
    let mut found: Vec<(i64, i64)> = walks.into_iter().flat_map(|walk| walk.found).collect();
    found.sort_unstable_by(|a, b| b.cmp(a));
    found.retain(|place| stopped.is_none_or(|stopped| *place >= stopped));
    let has_more = found.len() > limit || stopped.is_some();
    found.truncate(limit);
    let last = if found.len() == limit { found.last().copied().or(stopped) } else { stopped };
    let next = last.filter(|_| has_more).map(|(start_ns, trace)| TraceListCursor::Time { start_ns, trace });
    Ok((found.into_iter().map(|(_, trace)| trace).collect(), next))
}

/// The filter that probably matches the fewest traces.
fn choose_driving_facet(filter: &TraceFilter) -> Option<(FacetKind, String)> {
    if let Some(key) = &filter.failure_group {
        return Some((FacetKind::FailureGroup, key.clone()));
    }
    if let Some(label) = &filter.label {
        return Some((FacetKind::Label, label.clone()));
    }
    if let Some(evaluator) = &filter.wrong {
        return Some((FacetKind::Wrong, evaluator.clone()));
    }
    if filter.error == Some(true) {
        return Some((FacetKind::Error, String::new()));
    }
    let named = [
        (FacetKind::Tool, &filter.tool),
        (FacetKind::Version, &filter.version),
        (FacetKind::Agent, &filter.agent),
        (FacetKind::Model, &filter.model),
    ];
    if let Some((kind, Some(value))) = named.into_iter().find(|(_, value)| value.is_some()) {
        return Some((kind, value.clone()));
    }
    filter.score.as_ref().map(|score| (FacetKind::Evaluator, score.evaluator.clone()))
}

/// Walks all traces, or those of a project, by time.
fn walk_traces(
    sql: &SqlConnection,
    filter: &TraceFilter,
    project: Option<i64>,
    bounds: WalkLimits,
) -> Result<MatchedTraces, StoreError> {
    let mut values = Vec::new();
    let mut fits = build_trace_conditions(filter, "trace.no", &mut values);
    if filter.is_folded && filter.error.is_none() {
        fits = format!("{fits} AND {HAS_OWN_ROW}");
    }
    values.extend(project.map(SqlValue::Integer));
    scan_trace_list(sql, &trace_walk_sql(&fits, project.is_some()), &values, filter, bounds)
}

/// Walks the traces of a project with one facet, by time.
fn walk_facet(
    sql: &SqlConnection,
    filter: &TraceFilter,
    project: i64,
    kind: FacetKind,
    value: &str,
    bounds: WalkLimits,
) -> Result<MatchedTraces, StoreError> {
    let mut values = Vec::new();
    let fits = build_trace_conditions(filter, "f.trace", &mut values);
    values.extend([SqlValue::Integer(project), SqlValue::Integer(kind as i64), SqlValue::Text(value.to_owned())]);
    scan_trace_list(sql, &facet_walk_sql(&fits), &values, filter, bounds)
}

/// Whether a trace is a row of a folded list: one in which a run begins, or one that belongs to no run. Repeats
/// `PER_ROW` of its conditions literally.
const HAS_OWN_ROW: &str = "(EXISTS (SELECT 1 FROM trajectory z INDEXED BY trajectory_by_trace \
       WHERE z.trace = trace.no LIMIT 1 OFFSET 0) \
     OR NOT EXISTS (SELECT 1 FROM trajectory z INDEXED BY trajectory_by_story \
       WHERE z.story = trace.story LIMIT 1 OFFSET 0))";

/// The condition is a column of the result, so that the limit bounds the rows that are examined. INDEXED BY makes
/// SQLite fail instead of choosing another plan.
fn trace_walk_sql(fits: &str, of_project: bool) -> String {
    let (index, within) = if of_project { ("trace_by_project", "project = ? AND") } else { ("trace_by_start", "") };
    format!(
        "SELECT start_ns, no, {fits} FROM trace INDEXED BY {index} WHERE {within} start_ns >= ? \
         AND (start_ns, no) < (?, ?) ORDER BY start_ns DESC, no DESC LIMIT ?"
    )
}

/// Counts by index only; the limit bounds what is counted.
fn since_walk_sql(of_project: bool) -> String {
    let (index, within) = if of_project { ("trace_by_project", "project = ? AND") } else { ("trace_by_start", "") };
    format!("SELECT 1 FROM trace INDEXED BY {index} WHERE {within} start_ns >= ? LIMIT ?")
}

/// As [`trace_walk_sql`], through the facets of one value.
fn facet_walk_sql(fits: &str) -> String {
    format!(
        "SELECT f.start_ns, f.trace, {fits} FROM facet f WHERE f.project = ? AND f.kind = ? AND f.value = ? \
         AND f.start_ns >= ? AND (f.start_ns, f.trace) < (?, ?) \
         ORDER BY f.start_ns DESC, f.trace DESC LIMIT ?"
    )
}

/// Walks a list until there is one entry more than a page, or the maximum number was examined. `own` are the
/// parameters of its conditions.
fn scan_trace_list(
    sql: &SqlConnection,
    statement: &str,
    own: &[SqlValue],
    filter: &TraceFilter,
    bounds: WalkLimits,
) -> Result<MatchedTraces, StoreError> {
    let WalkLimits { mut before, limit, examined } = bounds;
    let mut statement = sql.prepare_cached(statement)?;
    let mut walk = MatchedTraces { found: Vec::new(), stopped: None };
    let mut left = examined;
    let mut portion = FIRST_PORTION.max(limit + 1);
    loop {
        portion = portion.min(left);
        let mut values = own.to_vec();
        values.extend([
            SqlValue::Integer(filter.from_ns.unwrap_or(i64::MIN)),
            SqlValue::Integer(before.0),
            SqlValue::Integer(before.1),
            SqlValue::Integer(portion as i64),
        ]);
        let mut rows = statement.query(params_from_iter(values))?;
        let mut read = 0;
        while let Some(row) = rows.next()? {
            read += 1;
            before = (row.get(0)?, row.get(1)?);
            if row.get(2)? {
                walk.found.push(before);
            }
            if walk.found.len() > limit {
                return Ok(walk);
            }
        }
        if read < portion {
            return Ok(walk);
        }
        left -= read;
        if left == 0 {
            walk.stopped = Some(before);
            return Ok(walk);
        }
        portion *= PORTION_GROWTH;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ScoreBound;
    use crate::connection::{assert_plan, open_writer};

    #[test]
    fn lists_are_walked_through_indexes_and_never_sorted() {
        let folder = tempfile::tempdir().unwrap();
        let sql = open_writer(&folder.path().join("store.db")).unwrap();
        let name = || Some("x".to_owned());
        let score = ScoreBound { evaluator: "x".to_owned(), at_least: Some(0.0), below: Some(1.0) };
        let filter = TraceFilter {
            agent: name(),
            version: name(),
            model: name(),
            tool: name(),
            wrong: name(),
            label: name(),
            score: Some(score),
            error: Some(false),
            ..TraceFilter::default()
        };
        let fits = build_trace_conditions(&filter, "trace.no", &mut Vec::new());
        let fits = format!("{fits} AND {HAS_OWN_ROW}");
        assert_plan(&sql, &trace_walk_sql(&fits, true), "trace_by_project (project=? AND start_ns>? AND start_ns<?)");
        assert_plan(&sql, &trace_walk_sql(&fits, false), "trace_by_start (start_ns>? AND start_ns<?)");
        let fits_facet = build_trace_conditions(&filter, "f.trace", &mut Vec::new());
        assert_plan(&sql, &facet_walk_sql(&fits_facet), "PRIMARY KEY (project=? AND kind=? AND value=? AND start_ns>?");
        assert_plan(&sql, &since_walk_sql(true), "trace_by_project (project=? AND start_ns>?)");
        assert_plan(&sql, &since_walk_sql(false), "trace_by_start (start_ns>?)");
    }
}
