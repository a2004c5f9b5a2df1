//! Lists in another order than by time, numbers of matches, and names to choose from. There is no index for these, so each
//! reads a bounded number of the latest traces and says whether that was all.

use crate::sql::{SqlConnection, params};

use super::trace_filter::TraceFilter;
use super::trace_rows::{TraceRow, list_trace_rows};
use super::traces::find_trace_numbers;
use crate::Store;
use crate::error::StoreError;
use crate::records::FacetKind;

/// Maximum number of traces that are sorted: the latest that match.
pub const MAX_SORTED_TRACES: usize = 2_000;
/// Maximum number of traces that are examined for a count.
const MAX_COUNTED: usize = 2_000;
/// Maximum number of projects whose tools are listed.
const MAX_PROJECTS: i64 = 50;

/// What a list is sorted by, largest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceOrder {
    Duration,
    Steps,
    Cost,
    /// Verdicts below the best.
    Wrong,
}

/// A page of a sorted list.
#[derive(Clone, Debug, Default)]
pub struct SortedTraces {
    pub traces: Vec<TraceRow>,
    /// How many were sorted.
    pub sorted_count: usize,
    /// Whether there are older matches, which were not sorted.
    pub is_cut: bool,
}

/// A number of matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceCount {
    pub count: u64,
    /// Whether there may be more.
    pub is_cut: bool,
}

impl Store {
    /// How many traces match, counted up to a bound.
    pub fn count_traces(&self, filter: &TraceFilter) -> Result<TraceCount, StoreError> {
        let reader = self.readers.take_reader()?;
        let sql: &SqlConnection = &*reader.snapshot()?;
        let (numbers, is_cut) = find_trace_numbers(sql, filter, MAX_COUNTED, MAX_COUNTED)?;
        Ok(TraceCount { count: numbers.len() as u64, is_cut })
    }

    /// The latest matches in another order, from a position on.
    pub fn sorted_traces(
        &self,
        filter: &TraceFilter,
        order: TraceOrder,
        skip: usize,
        limit: usize,
    ) -> Result<SortedTraces, StoreError> {
        let reader = self.readers.take_reader()?;
        let sql: &SqlConnection = &*reader.snapshot()?;
        let (numbers, is_cut) = find_trace_numbers(sql, filter, MAX_SORTED_TRACES, MAX_SORTED_TRACES)?;
        let sets: Vec<[i64; 1]> = numbers.iter().map(|number| [*number]).collect();
        let keys = sql.query_row_each(sort_key_sql(order), &sets, |row| row.get::<Option<f64>>(0))?;
        let mut keyed: Vec<(f64, i64)> = keys.into_iter().map(|key| key.unwrap_or(-1.0)).zip(numbers).collect();
        // Stable: equal ones stay newest first.
        keyed.sort_by(|one, other| other.0.total_cmp(&one.0));
        let page: Vec<i64> = keyed.iter().skip(skip).take(limit).map(|(_, number)| *number).collect();
        let traces = list_trace_rows(sql, &page)?;
        Ok(SortedTraces { traces, sorted_count: keyed.len(), is_cut })
    }

    /// Names of the tools that were called, in alphabetical order; the first ones if there are many.
    pub fn list_tools(&self, project: Option<&str>, limit: usize) -> Result<Vec<String>, StoreError> {
        let reader = self.readers.take_reader()?;
        let sql: &SqlConnection = &reader;
        let projects: Vec<i64> = sql
            .prepare_cached("SELECT no FROM project WHERE ?1 IS NULL OR name = ?1 LIMIT ?2")?
            .query_map(params![project, MAX_PROJECTS], |row| row.get(0))?
            .collect::<Result<_, _>>()?;
        let mut next = sql.prepare_cached(NEXT_FACET)?;
        let mut names = std::collections::BTreeSet::new();
        for project in projects {
            let mut last = String::new();
            for _ in 0..limit {
                let found: Option<String> =
                    next.query_row(params![project, FacetKind::Tool as i64, last], |row| row.get(0))?;
                let Some(name) = found else { break };
                names.insert(name.clone());
                last = name;
            }
        }
        Ok(names.into_iter().take(limit).collect())
    }
}

/// The traces of a trace group in which one run begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupTotals {
    pub traces: u64,
    pub spans: u64,
    pub errors: u64,
}

impl Store {
    /// Sums over the trace group of each of these traces, if all runs of the group begin in this trace: then the other traces only
    /// continue them.
    pub fn list_group_totals(&self, traces: &[TraceRow]) -> Result<Vec<Option<GroupTotals>>, StoreError> {
        let reader = self.readers.take_reader()?;
        let sql: &SqlConnection = &*reader.snapshot()?;
        let groups: Vec<[i64; 1]> = traces.iter().map(|trace| [trace.trace_group]).collect();
        let others = sql.query_row_each(
            "SELECT count(*), coalesce(sum(spans), 0), coalesce(sum(errors), 0) FROM trace INDEXED BY trace_by_story \
             WHERE story = ? AND story <> no",
            &groups,
            |row| Ok(GroupTotals { traces: row.get(0)?, spans: row.get(1)?, errors: row.get(2)? }),
        )?;
        let mut totals: Vec<Option<GroupTotals>> = vec![None; traces.len()];
        let with_others = traces.iter().zip(others).enumerate().filter(|(_, (_, others))| others.traces > 0);
        let grouped: Vec<(usize, (&TraceRow, GroupTotals))> = with_others.collect();
        let sets: Vec<[i64; 2]> = grouped.iter().map(|(_, (trace, _))| [trace.trace_group, trace.no]).collect();
        let elsewhere = sql.query_each(
            "SELECT 1 FROM trajectory INDEXED BY trajectory_by_story WHERE story = ?1 AND trace <> ?2 LIMIT 1",
            &sets,
            |_| Ok(()),
        )?;
        let firsts: Vec<[i64; 1]> = sets.iter().map(|[group, _]| [*group]).collect();
        // The first trace has the number of the group.
        let first = sql.query_row_each("SELECT spans, errors FROM trace WHERE no = ?", &firsts, |row| {
            Ok((row.get::<u64>(0)?, row.get::<u64>(1)?))
        })?;
        for (((index, (trace, others)), elsewhere), first) in grouped.into_iter().zip(elsewhere).zip(first) {
            if elsewhere.is_empty() && !trace.trajectories.is_empty() {
                totals[index] = Some(GroupTotals {
                    traces: others.traces + 1,
                    spans: others.spans + first.0,
                    errors: others.errors + first.1,
                });
            }
        }
        Ok(totals)
    }
}

/// The next value of a facet, for the loose index scan.
const NEXT_FACET: &str = "SELECT min(value) FROM facet WHERE project = ? AND kind = ? AND value > ?";

/// The number that a trace is sorted by. Null if it is not known.
fn sort_key_sql(order: TraceOrder) -> &'static str {
    match order {
        TraceOrder::Duration => {
            "SELECT CAST(max(t.end_ns, coalesce((SELECT max(y.end_ns) FROM trajectory y WHERE y.trace = t.no), 0)) \
             - t.start_ns AS DOUBLE PRECISION) FROM trace t WHERE t.no = ?"
        }
        TraceOrder::Steps => "SELECT CAST(sum(steps) AS DOUBLE PRECISION) FROM trajectory WHERE trace = ?",
        TraceOrder::Cost => "SELECT sum(cost_usd) FROM trajectory WHERE trace = ?",
        TraceOrder::Wrong => {
            "SELECT CAST(count(*) AS DOUBLE PRECISION) FROM trajectory y CROSS JOIN outcome o INDEXED BY outcome_wrong \
             ON o.trajectory = y.no AND o.is_wrong WHERE y.trace = ?"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::open_writer;

    #[test]
    fn keys_and_names_are_found_through_indexes() {
        let folder = tempfile::tempdir().unwrap();
        let sql = open_writer(&folder.path().join("store.db")).unwrap();
        let orders = [TraceOrder::Duration, TraceOrder::Steps, TraceOrder::Cost, TraceOrder::Wrong];
        for statement in orders.map(sort_key_sql).into_iter().chain([NEXT_FACET]) {
            let mut plan = sql.prepare(&format!("EXPLAIN QUERY PLAN {statement}")).unwrap();
            let nulls = vec![rusqlite::types::Null; plan.parameter_count()];
            let steps: Vec<String> = plan
                .query_map(rusqlite::params_from_iter(nulls), |row| row.get(3))
                .unwrap()
                .map(Result::unwrap)
                .collect();
            assert!(!steps.iter().any(|step| step.starts_with("SCAN")), "{statement}: {steps:?}");
        }
    }
}
