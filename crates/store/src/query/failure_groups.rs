//! Failure groups in a period: how many trajectories each has, and one to look at.

use std::ops::ControlFlow;

use crate::sql::SqlValue;
use crate::sql::{KeyStart, OptionalRow, SqlConnection, SqlParam, ToSqlParam, params_from_iter};
use gradus_core::span::TraceId;

use super::MetricFilter;
use super::project_number;
use crate::Store;
use crate::error::StoreError;

/// Maximum number of versions that are listed with a group.
const MAX_LISTED_VERSIONS: usize = 4;

/// A failure group with its numbers in a period.
#[derive(Clone, Debug, PartialEq)]
pub struct FailureGroupRow {
    pub key: String,
    pub evaluator: String,
    /// Empty for verdicts on whole trajectories.
    pub tool: String,
    /// Empty if a model decided.
    pub rule: String,
    pub label: String,
    pub reason: String,
    /// When the first trajectory with it began, in any period.
    pub first_seen_ns: i64,
    pub name: Option<String>,
    pub note: Option<String>,
    pub is_muted: bool,
    /// Trajectories of the period.
    pub trajectories: u64,
    /// Trajectories of the period before, if one was asked for.
    pub trajectories_before: u64,
    /// Wrong verdicts of the period.
    pub verdicts: u64,
    /// The most frequent versions with their trajectories. Without the empty name.
    pub versions: Vec<(String, u64)>,
    /// Number of versions, listed or not.
    pub version_count: u64,
    /// The trajectory of the period with the most such verdicts; the latest of several.
    pub example: Option<FailureTrajectoryRow>,
}

/// A trajectory of a failure group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailureTrajectoryRow {
    pub trace_id: TraceId,
    pub trajectory_id: String,
    pub query: String,
    /// The first step with such a verdict; `None` for the whole trajectory.
    pub step: Option<u32>,
    pub start_ns: i64,
}

/// Groups of a period, those with the most trajectories first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FailureGroupList {
    pub groups: Vec<FailureGroupRow>,
    /// All groups of the period, muted ones included.
    pub group_count: u64,
    pub muted_count: u64,
}

/// Which groups are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailureGroupOptions<'k> {
    /// Where the period before begins; it ends where the period of the filter begins.
    pub before_ns: Option<i64>,
    pub with_muted: bool,
    /// Only this group, which is returned even if it has no trajectory in the period.
    pub key: Option<&'k str>,
    pub limit: usize,
}

/// Counts of one group.
struct GroupCounts {
    no: i64,
    trajectories: u64,
    trajectories_before: u64,
    verdicts: u64,
    is_muted: bool,
}

impl Store {
    /// Failure groups of the trajectories that match a filter.
    pub fn failure_groups(
        &self,
        filter: &MetricFilter,
        options: FailureGroupOptions<'_>,
    ) -> Result<FailureGroupList, StoreError> {
        let reader = self.readers.take_reader()?;
        let sql: &SqlConnection = &*reader.snapshot()?;
        let project = match &filter.project {
            None => None,
            Some(name) => match project_number(sql, name)? {
                Some(number) => Some(number),
                None => return Ok(FailureGroupList::default()),
            },
        };
        let scope = FailureScope { filter, project };
        let mut counts = scope.count_groups(sql, &options)?;
        let group_count = counts.len() as u64;
        let muted_count = counts.iter().filter(|group| group.is_muted).count() as u64;
        counts.retain(|group| options.with_muted || options.key.is_some() || !group.is_muted);
        // Row numbers (`no`) grow with time: of groups of the same size, the newest first.
        counts.sort_by_key(|group| std::cmp::Reverse((group.trajectories, group.verdicts, group.no)));
        counts.truncate(options.limit);
        let groups = counts.iter().map(|counts| scope.load_group(sql, counts)).collect::<Result<_, _>>()?;
        Ok(FailureGroupList { groups, group_count, muted_count })
    }

    /// Trajectories of a group that match a filter, newest first.
    pub fn failure_trajectories(
        &self,
        filter: &MetricFilter,
        key: &str,
        limit: usize,
    ) -> Result<Vec<FailureTrajectoryRow>, StoreError> {
        let reader = self.readers.take_reader()?;
        let sql: &SqlConnection = &*reader.snapshot()?;
        let project = match &filter.project {
            None => None,
            Some(name) => match project_number(sql, name)? {
                Some(number) => Some(number),
                None => return Ok(Vec::new()),
            },
        };
        let no: Option<i64> = sql
            .prepare_cached("SELECT no FROM failure_group WHERE key = ?")?
            .query_row([key], |row| row.get(0))
            .optional()?;
        let Some(no) = no else { return Ok(Vec::new()) };
        let mut values = FailureScope { filter, project }.values(filter.from_ns);
        values.extend([SqlValue::Integer(no), SqlValue::Integer(i64::try_from(limit).unwrap_or(i64::MAX))]);
        let mut statement = sql.prepare_cached(&format!(
            "SELECT trajectory FROM failure WHERE failure_group = ?7 AND {} ORDER BY start_ns DESC LIMIT ?8",
            FailureScope::CONDITIONS
        ))?;
        let numbers: Vec<i64> =
            statement.query_map(params_from_iter(values), |row| row.get(0))?.collect::<Result<_, _>>()?;
        let examples = numbers.into_iter().map(|trajectory| load_example(sql, no, trajectory));
        Ok(examples.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
    }
}

/// Restricts rows of `failure` to the period, project, agent, version and model of a filter.
struct FailureScope<'f> {
    filter: &'f MetricFilter,
    project: Option<i64>,
}

impl FailureScope<'_> {
    /// Conditions on a row of `failure`, with their values: `?1` to `?6`.
    const CONDITIONS: &'static str = "start_ns >= ?1 AND start_ns < ?2 AND (CAST(?3 AS BIGINT) IS NULL OR project = ?3) \
         AND (?4 IS NULL OR agent = ?4) AND (?5 IS NULL OR version = ?5) AND (?6 IS NULL OR model = ?6)";

    fn values(&self, from_ns: Option<i64>) -> Vec<SqlValue> {
        let text = |name: &Option<String>| name.clone().map_or(SqlValue::Null, SqlValue::Text);
        vec![
            SqlValue::Integer(from_ns.unwrap_or(i64::MIN)),
            SqlValue::Integer(self.filter.to_ns.unwrap_or(i64::MAX)),
            self.project.map_or(SqlValue::Null, SqlValue::Integer),
            text(&self.filter.agent),
            text(&self.filter.version),
            text(&self.filter.model),
        ]
    }

    /// Counts each group by its own range of the key of `failure`, so that only rows of the period are read.
    fn count_groups(
        &self,
        sql: &SqlConnection,
        options: &FailureGroupOptions<'_>,
    ) -> Result<Vec<GroupCounts>, StoreError> {
        let from_ns = self.filter.from_ns;
        let mut values = self.values(options.before_ns.or(from_ns));
        values.push(SqlValue::Integer(from_ns.unwrap_or(i64::MIN)));
        values.push(options.key.map_or(SqlValue::Null, |key| SqlValue::Text(key.to_owned())));
        let values: Vec<SqlParam<'_>> = values.iter().map(ToSqlParam::to_param).collect::<Result<_, _>>()?;
        let mut groups = Vec::new();
        sql.visit_rows(&count_groups_sql(), &values, KeyStart::FIRST, |row| -> Result<_, StoreError> {
            let group = GroupCounts {
                no: row.get(0)?,
                is_muted: row.get(1)?,
                trajectories: row.get(2)?,
                trajectories_before: row.get(3)?,
                verdicts: row.get(4)?,
            };
            if group.trajectories > 0 || options.key.is_some() {
                groups.push(group);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(groups)
    }

    fn load_group(&self, sql: &SqlConnection, counts: &GroupCounts) -> Result<FailureGroupRow, StoreError> {
        let mut statement = sql.prepare_cached(
            "SELECT key, evaluator, tool, rule, label, reason, first_seen_ns, name, note FROM failure_group WHERE no = ?",
        )?;
        let (versions, version_count) = self.count_versions(sql, counts.no)?;
        let example = self.find_example(sql, counts.no)?;
        Ok(statement.query_row([counts.no], |row| {
            Ok(FailureGroupRow {
                key: row.get(0)?,
                evaluator: row.get(1)?,
                tool: row.get(2)?,
                rule: row.get(3)?,
                label: row.get(4)?,
                reason: row.get(5)?,
                first_seen_ns: row.get(6)?,
                name: row.get(7)?,
                note: row.get(8)?,
                is_muted: counts.is_muted,
                trajectories: counts.trajectories,
                trajectories_before: counts.trajectories_before,
                verdicts: counts.verdicts,
                versions,
                version_count,
                example,
            })
        })?)
    }

    /// The most frequent versions, and how many there are.
    fn count_versions(&self, sql: &SqlConnection, no: i64) -> Result<(Vec<(String, u64)>, u64), StoreError> {
        let mut values = self.values(self.filter.from_ns);
        values.push(SqlValue::Integer(no));
        let statement = format!(
            "SELECT version, count(*), count(*) OVER () FROM failure WHERE failure_group = ?7 AND {} AND version <> '' GROUP BY version \
             ORDER BY count(*) DESC, version DESC LIMIT {MAX_LISTED_VERSIONS}",
            Self::CONDITIONS
        );
        let mut statement = sql.prepare_cached(&statement)?;
        let mut version_count = 0;
        let rows = statement.query_map(params_from_iter(values), |row| {
            version_count = row.get(2)?;
            Ok((row.get(0)?, row.get(1)?))
        })?;
        let versions = rows.collect::<Result<_, _>>()?;
        Ok((versions, version_count))
    }

    fn find_example(&self, sql: &SqlConnection, no: i64) -> Result<Option<FailureTrajectoryRow>, StoreError> {
        let mut values = self.values(self.filter.from_ns);
        values.push(SqlValue::Integer(no));
        let statement = format!(
            "SELECT trajectory FROM failure WHERE failure_group = ?7 AND {} ORDER BY verdicts DESC, start_ns DESC LIMIT 1",
            Self::CONDITIONS
        );
        let found: Option<i64> =
            sql.prepare_cached(&statement)?.query_row(params_from_iter(values), |row| row.get(0)).optional()?;
        found.map_or(Ok(None), |trajectory| load_example(sql, no, trajectory))
    }
}

/// Counts of all groups, or of the one with the key `?8`, from the number `?9` on. `?7` is where the period begins.
fn count_groups_sql() -> String {
    format!(
        "SELECT failure_group.no, muted_ns IS NOT NULL, count(CASE WHEN start_ns >= ?7 THEN 1 END), count(CASE WHEN start_ns < ?7 THEN 1 END), \
         coalesce(sum(CASE WHEN start_ns >= ?7 THEN verdicts END), 0) FROM failure_group LEFT JOIN failure \
         ON failure.failure_group = failure_group.no AND {} WHERE (?8 IS NULL OR key = ?8) AND failure_group.no >= ?9 \
         GROUP BY failure_group.no ORDER BY failure_group.no LIMIT ?10",
        FailureScope::CONDITIONS
    )
}

/// `None` if the trajectory is gone.
fn load_example(sql: &SqlConnection, group: i64, trajectory: i64) -> Result<Option<FailureTrajectoryRow>, StoreError> {
    let mut statement = sql.prepare_cached(
        "SELECT trace.trace_id, trajectory_id, query, trajectory.start_ns, \
         (SELECT min(step) FROM outcome INDEXED BY outcome_wrong \
         WHERE outcome.trajectory = trajectory.no AND is_wrong AND failure_group = ?2) \
         FROM trajectory JOIN trace ON trace.no = trajectory.trace WHERE trajectory.no = ?1",
    )?;
    let example = statement.query_row([trajectory, group], |row| {
        Ok(FailureTrajectoryRow {
            trace_id: TraceId(u128::from_be_bytes(row.get(0)?)),
            trajectory_id: row.get(1)?,
            query: row.get(2)?,
            start_ns: row.get(3)?,
            step: row.get::<Option<u32>>(4)?.filter(|step| *step > 0),
        })
    });
    Ok(example.optional()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::open_writer;

    #[test]
    fn only_rows_of_the_period_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let sql = open_writer(&folder.path().join("store.db")).unwrap();
        let mut plan = sql.prepare(&format!("EXPLAIN QUERY PLAN {}", count_groups_sql())).unwrap();
        let steps: Vec<String> =
            plan.query_map([rusqlite::types::Null; 10], |row| row.get(3)).unwrap().map(Result::unwrap).collect();
        // Groups are few; of their rows, only those of the period are read.
        let search = "SEARCH failure USING PRIMARY KEY (failure_group=? AND start_ns>? AND start_ns<?) LEFT-JOIN";
        assert_eq!(steps, ["SEARCH failure_group USING INTEGER PRIMARY KEY (rowid>?)", search]);
    }
}
