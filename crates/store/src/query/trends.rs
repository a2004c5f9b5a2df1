//! Sums over periods from the coarse rollups, for pages about many trajectories. If several names are given, the rows
//! of all combinations that have them are added up; the number of combinations that are read is bounded.

use crate::buckets::TrajectoryUsage;
use std::collections::BTreeMap;

use crate::sql::{SqlConnection, SqlRow, params};

use super::metrics::moments_from_row;
use super::{MetricFilter, ScoreMoments, project_number};
use crate::Store;
use crate::coarse_rollup::{ALL_PROJECTS, HOUR_NS, NameKind, decode_dimensions, encode_dimensions};
use crate::error::StoreError;

/// Scores of an evaluator in a period.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricPeriod {
    pub evaluator: String,
    /// Start of the period.
    pub start_ns: i64,
    pub moments: ScoreMoments,
}

/// Scores by evaluator and period.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MetricPeriods {
    /// By evaluator, then by time.
    pub rows: Vec<MetricPeriod>,
    /// Whether there are more evaluators, or combinations of names, than were read.
    pub is_cut: bool,
}

/// Scores of an evaluator by tool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolSums {
    pub tools: BTreeMap<String, ScoreMoments>,
    /// Whether there are more tools, or combinations of names, than were read.
    pub is_cut: bool,
}

/// Usage by period, in order of time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UsagePeriods {
    pub rows: Vec<(i64, TrajectoryUsage)>,
    /// Whether there are more combinations of names than were read.
    pub is_cut: bool,
}

/// Maximum number of rows that one query reads if several names are given.
const MAX_READ_ROWS: usize = 20_000;
/// Cost of one index lookup, in rows: lookups that find nothing are not free.
const LOOKUP_COST_ROWS: usize = 4;
/// Maximum number of evaluators that are read if the filter names none.
const MAX_EVALUATORS: usize = 50;
/// Maximum number of tools that are read for one evaluator.
const MAX_TOOLS: usize = 500;
/// Maximum number of names that are examined for those in the requested time.
const MAX_NAMES: usize = 2_000;
/// Maximum number of combinations of names that are examined if two names are given.
const MAX_COMBINATIONS: usize = 5_000;

/// The sums of a row, in the order that `moments_from_row` reads.
const SUMS: &str =
    "trajectories, scored_trajectories, scored, sum, sum_sum, sum_n, n_n, failed, not_applicable, abstained";
/// The same, added up over several rows.
const TOTAL: &str = "sum(trajectories), sum(scored_trajectories), sum(scored), sum(sum), sum(sum_sum), sum(sum_n), \
                     sum(n_n), sum(failed), sum(not_applicable), sum(abstained), count(*)";

impl Store {
    /// Scores by evaluator and period. The tool of the filter is ignored, and times are rounded to hours.
    pub fn metric_periods(&self, filter: &MetricFilter, period_ns: i64) -> Result<MetricPeriods, StoreError> {
        let reader = self.readers.take_reader()?;
        let sql: &SqlConnection = &*reader.snapshot()?;
        let Some(project) = project_or_all(sql, filter)? else { return Ok(MetricPeriods::default()) };
        let mut evaluators = match &filter.evaluator {
            Some(evaluator) => vec![evaluator.clone()],
            None => list_distinct_values(sql, &next_evaluator_sql(), "", &[&project], MAX_EVALUATORS + 1)?,
        };
        let mut found = MetricPeriods { is_cut: evaluators.len() > MAX_EVALUATORS, ..MetricPeriods::default() };
        evaluators.truncate(MAX_EVALUATORS);
        let buckets = split_into_buckets(filter, period_ns);
        let mut asked = RollupSelection::for_filter(sql, filter, project)?;
        let mut statement = sql.prepare_cached(&coarse_periods_sql())?;
        for evaluator in evaluators {
            let mut periods: BTreeMap<i64, ScoreMoments> = BTreeMap::new();
            asked.for_each_name(|kind, name| {
                let mut read = 0;
                for BucketRange { size, from, to } in &buckets {
                    let mut rows = statement.query(params![size, project, evaluator, kind as i64, name, from, to])?;
                    while let Some(row) = rows.next()? {
                        let at_ns = row.get::<i64>(0)?.saturating_mul(size * HOUR_NS);
                        *periods.entry(at_ns.div_euclid(period_ns) * period_ns).or_default() +=
                            moments_from_row(&row, 1)?;
                        read += 1;
                    }
                }
                Ok(read)
            })?;
            let row = |(start_ns, moments)| MetricPeriod { evaluator: evaluator.clone(), start_ns, moments };
            found.rows.extend(periods.into_iter().map(row));
        }
        found.is_cut |= asked.is_cut;
        Ok(found)
    }

    /// Scores of one evaluator by tool.
    pub fn tool_sums(&self, filter: &MetricFilter) -> Result<ToolSums, StoreError> {
        let reader = self.readers.take_reader()?;
        let sql: &SqlConnection = &*reader.snapshot()?;
        let (Some(evaluator), Some(project)) = (&filter.evaluator, project_or_all(sql, filter)?) else {
            return Ok(ToolSums::default());
        };
        let mut tools = list_distinct_values(sql, &next_tool_sql(), "", &[&project, evaluator], MAX_TOOLS + 1)?;
        let mut found = ToolSums { is_cut: tools.len() > MAX_TOOLS, ..ToolSums::default() };
        tools.truncate(MAX_TOOLS);
        let buckets = split_into_buckets(filter, 24 * HOUR_NS);
        let mut asked = RollupSelection::for_filter(sql, filter, project)?;
        let mut statement = sql.prepare_cached(&coarse_tool_sql())?;
        for tool in tools {
            let mut sum = ScoreMoments::default();
            asked.for_each_name(|kind, name| {
                let mut read = 0;
                for BucketRange { size, from, to } in &buckets {
                    let values = params![size, project, evaluator, tool, kind as i64, name, from, to];
                    let mut rows = statement.query(values)?;
                    let Some(row) = rows.next()? else { continue };
                    sum += moments_from_row(&row, 0)?;
                    read += row.get::<usize>(10)?;
                }
                Ok(read)
            })?;
            if sum.trajectories > 0 {
                found.tools.insert(tool, sum);
            }
        }
        found.is_cut |= asked.is_cut;
        Ok(found)
    }

    /// Returns the names of trajectories in a time, in alphabetical order; the first ones if there are many. Of the
    /// filter, only project and times are used.
    pub fn list_names(&self, filter: &MetricFilter, kind: NameKind, limit: usize) -> Result<Vec<String>, StoreError> {
        let reader = self.readers.take_reader()?;
        let sql: &SqlConnection = &*reader.snapshot()?;
        let Some(project) = project_or_all(sql, filter)? else { return Ok(Vec::new()) };
        let all = list_distinct_values(sql, &next_name_sql(), "", &[&project, &(kind as i64)], MAX_NAMES)?;
        filter_names_by_time(sql, filter, project, kind, all, limit)
    }

    /// Names of the evaluators with scores, in alphabetical order; the first ones if there are many.
    pub fn list_evaluators(&self, project: Option<&str>) -> Result<Vec<String>, StoreError> {
        let reader = self.readers.take_reader()?;
        let filter = MetricFilter { project: project.map(str::to_owned), ..MetricFilter::default() };
        let Some(project) = project_or_all(&reader, &filter)? else { return Ok(Vec::new()) };
        list_distinct_values(&reader, &next_evaluator_sql(), "", &[&project], MAX_EVALUATORS)
    }

    /// Returns usage by period. Of the filter, names, project and times are used.
    pub fn usage_periods(&self, filter: &MetricFilter, period_ns: i64) -> Result<UsagePeriods, StoreError> {
        let reader = self.readers.take_reader()?;
        let sql: &SqlConnection = &*reader.snapshot()?;
        let Some(project) = project_or_all(sql, filter)? else { return Ok(UsagePeriods::default()) };
        let buckets = split_into_buckets(filter, period_ns);
        let mut asked = RollupSelection::for_filter(sql, filter, project)?;
        let mut statement = sql.prepare_cached(USAGE)?;
        let mut periods: BTreeMap<i64, TrajectoryUsage> = BTreeMap::new();
        asked.for_each_name(|kind, name| {
            let mut read = 0;
            for BucketRange { size, from, to } in &buckets {
                let mut rows = statement.query(params![size, project, kind as i64, name, from, to])?;
                while let Some(row) = rows.next()? {
                    let at_ns = row.get::<i64>(0)?.saturating_mul(size * HOUR_NS);
                    *periods.entry(at_ns.div_euclid(period_ns) * period_ns).or_default() += usage_from_row(&row)?;
                    read += 1;
                }
            }
            Ok(read)
        })?;
        Ok(UsagePeriods { rows: periods.into_iter().collect(), is_cut: asked.is_cut })
    }
}

/// Reads a row of [`USAGE`], whose first column is the bucket.
fn usage_from_row(row: &SqlRow<'_>) -> Result<TrajectoryUsage, StoreError> {
    Ok(TrajectoryUsage {
        trajectories: row.get(1)?,
        errors: row.get(2)?,
        steps: row.get(3)?,
        tokens: row.get(4)?,
        took_ns: row.get(5)?,
        costed: row.get(6)?,
        cost_usd: row.get(7)?,
    })
}

/// The names of the rows that a query reads, and how many rows it may still read.
struct RollupSelection {
    names: Vec<(NameKind, String)>,
    left: usize,
    is_cut: bool,
}

impl RollupSelection {
    /// None or one name has rows of its own, and so have all three together. For two names, the combinations are
    /// searched.
    fn for_filter(sql: &SqlConnection, filter: &MetricFilter, project: i64) -> Result<RollupSelection, StoreError> {
        let wanted = [&filter.agent, &filter.version, &filter.model].map(|name| name.as_deref());
        let all = |names, is_cut| RollupSelection { names, left: MAX_READ_ROWS, is_cut };
        let one = |kind, name: &str| Ok(all(vec![(kind, name.to_owned())], false));
        match wanted {
            [None, None, None] => return one(NameKind::All, ""),
            [Some(agent), None, None] => return one(NameKind::Agent, agent),
            [None, Some(version), None] => return one(NameKind::Version, version),
            [None, None, Some(model)] => return one(NameKind::Model, model),
            [Some(agent), Some(version), Some(model)] => {
                return one(NameKind::Combination, &encode_dimensions([agent, version, model]));
            }
            _ => {}
        }
        let kind = NameKind::Combination;
        // Texts with the same leading names are neighbours in the index.
        let prefix = match wanted {
            [Some(agent), Some(version), _] => {
                ["[", &encode_json_name(agent), ",", &encode_json_name(version), ","].concat()
            }
            [Some(agent), ..] => ["[", &encode_json_name(agent), ","].concat(),
            _ => String::new(),
        };
        let within: [&dyn crate::sql::ToSqlParam; 2] = [&project, &(kind as i64)];
        let mut found = list_distinct_values(sql, &next_name_sql(), &prefix, &within, MAX_COMBINATIONS + 1)?;
        let is_cut = found.len() > MAX_COMBINATIONS;
        found.truncate(MAX_COMBINATIONS);
        found.retain(|text| {
            decode_dimensions(text).is_some_and(|names| {
                names.iter().zip(wanted).all(|(name, wanted)| wanted.is_none_or(|wanted| wanted == name))
            })
        });
        let found = filter_names_by_time(sql, filter, project, kind, found, MAX_COMBINATIONS)?;
        Ok(all(found.into_iter().map(|name| (kind, name)).collect(), is_cut))
    }

    /// Calls `read` for each name. `read` returns the number of rows that it read, which is charged to the limit.
    fn for_each_name(
        &mut self,
        mut read: impl FnMut(NameKind, &str) -> Result<usize, StoreError>,
    ) -> Result<(), StoreError> {
        for (kind, name) in &self.names {
            if self.left == 0 {
                self.is_cut = true;
                break;
            }
            let rows = read(*kind, name)?;
            // A query for one name reads only rows that it shows.
            if self.names.len() > 1 {
                self.left = self.left.saturating_sub(rows + LOOKUP_COST_ROWS);
            }
        }
        Ok(())
    }
}

/// A name as it is written inside a combination.
fn encode_json_name(name: &str) -> String {
    serde_json::Value::from(name).to_string()
}

/// Returns the names that have trajectories in the time of the filter.
fn filter_names_by_time(
    sql: &SqlConnection,
    filter: &MetricFilter,
    project: i64,
    kind: NameKind,
    names: Vec<String>,
    limit: usize,
) -> Result<Vec<String>, StoreError> {
    let (from, to) = compute_bucket_bounds(filter, 24 * HOUR_NS);
    let mut is_there = sql.prepare_cached(NAME_IN_TIME)?;
    let mut found = Vec::new();
    for name in names {
        if found.len() == limit {
            break;
        }
        if is_there.exists(params![project, kind as i64, name, from, to])? {
            found.push(name);
        }
    }
    Ok(found)
}

/// Usage of one name in a range of buckets.
const USAGE: &str = "SELECT bucket, trajectories, errors, steps, tokens, took_ns, costed, cost_usd FROM usage_long \
                     WHERE size = ? AND project = ? AND kind = ? AND name = ? AND bucket >= ? AND bucket <= ?";
/// Whether a name occurs in a range of days.
const NAME_IN_TIME: &str = "SELECT 1 FROM usage_long WHERE size = 24 AND project = ? AND kind = ? AND name = ? \
                            AND bucket >= ? AND bucket <= ? LIMIT 1";

/// Scores of an evaluator over all tools, for one name in a range of buckets.
fn coarse_periods_sql() -> String {
    format!(
        "SELECT bucket, {SUMS} FROM rollup_long WHERE size = ? AND project = ? AND evaluator = ? AND tool = '' \
         AND kind = ? AND name = ? AND bucket >= ? AND bucket <= ?"
    )
}

/// Scores of an evaluator with one tool. No row instead of zeros if there is nothing.
fn coarse_tool_sql() -> String {
    format!(
        "SELECT {TOTAL} FROM rollup_long WHERE size = ? AND project = ? AND evaluator = ? AND tool = ? AND kind = ? \
         AND name = ? AND bucket >= ? AND bucket <= ? HAVING count(*) > 0"
    )
}

/// The next evaluator behind a name, for the loose index scan.
fn next_evaluator_sql() -> String {
    "SELECT min(evaluator) FROM rollup_long WHERE size = 24 AND project = ?2 AND evaluator > ?1".to_owned()
}

fn next_tool_sql() -> String {
    "SELECT min(tool) FROM rollup_long WHERE size = 24 AND project = ?2 AND evaluator = ?3 AND tool > ?1".to_owned()
}

fn next_name_sql() -> String {
    "SELECT min(name) FROM usage_long WHERE size = 24 AND project = ?2 AND kind = ?3 AND name > ?1".to_owned()
}

/// Distinct values of an indexed column with a prefix. Steps from one value to the next, not row by row (a loose index
/// scan).
fn list_distinct_values(
    sql: &SqlConnection,
    next: &str,
    prefix: &str,
    within: &[&dyn crate::sql::ToSqlParam],
    most: usize,
) -> Result<Vec<String>, StoreError> {
    let mut next = sql.prepare_cached(next)?;
    let mut all: Vec<String> = Vec::new();
    while all.len() < most {
        let last = all.last().map_or(prefix, String::as_str);
        let mut values: Vec<&dyn crate::sql::ToSqlParam> = vec![&last];
        values.extend(within);
        match next.query_row(values.as_slice(), |row| row.get::<Option<String>>(0))? {
            Some(name) if name.starts_with(prefix) => all.push(name),
            _ => break,
        }
    }
    Ok(all)
}

/// Returns the number of the filter's project, or that of all projects; `None` if the project does not exist.
fn project_or_all(sql: &SqlConnection, filter: &MetricFilter) -> Result<Option<i64>, StoreError> {
    match &filter.project {
        Some(name) => project_number(sql, name),
        None => Ok(Some(ALL_PROJECTS)),
    }
}

/// Buckets of one length in hours, from the first to the last, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BucketRange {
    size: i64,
    from: i64,
    to: i64,
}

/// Splits the time of a filter into the longest possible buckets: whole days, and hours at either end. Only hours if
/// the periods are not whole days.
fn split_into_buckets(filter: &MetricFilter, period_ns: i64) -> Vec<BucketRange> {
    let (from, to) = compute_bucket_bounds(filter, HOUR_NS);
    let hours = |from, to| (from <= to).then_some(BucketRange { size: 1, from, to });
    let first = if from == i64::MIN { from } else { from.saturating_add(23).div_euclid(24) };
    let last = if to == i64::MAX { to } else { to.saturating_add(1).div_euclid(24).saturating_sub(1) };
    if period_ns % (24 * HOUR_NS) != 0 || first > last {
        return hours(from, to).into_iter().collect();
    }
    let before = if from == i64::MIN { None } else { hours(from, first * 24 - 1) };
    let behind = if to == i64::MAX { None } else { hours((last + 1) * 24, to) };
    let days = Some(BucketRange { size: 24, from: first, to: last });
    [before, days, behind].into_iter().flatten().collect()
}

/// First and last bucket of the filter's time, both included.
pub(super) fn compute_bucket_bounds(filter: &MetricFilter, length_ns: i64) -> (i64, i64) {
    let bucket = |bound: Option<i64>, default: i64| bound.map_or(default, |ns| ns.div_euclid(length_ns));
    (bucket(filter.from_ns, i64::MIN), bucket(filter.to_ns.map(|bound| bound.saturating_sub(1)), i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::{assert_plan, open_writer};

    #[test]
    fn sums_are_found_without_reading_others() {
        let folder = tempfile::tempdir().unwrap();
        let sql = open_writer(&folder.path().join("store.db")).unwrap();
        let by_name = "kind=? AND name=? AND bucket>? AND bucket<?";
        for (statement, way) in [
            (coarse_periods_sql(), format!("size=? AND project=? AND evaluator=? AND tool=? AND {by_name}")),
            (coarse_tool_sql(), format!("size=? AND project=? AND evaluator=? AND tool=? AND {by_name}")),
            (next_evaluator_sql(), "size=? AND project=? AND evaluator>?".to_owned()),
            (next_tool_sql(), "size=? AND project=? AND evaluator=? AND tool>?".to_owned()),
            (next_name_sql(), "size=? AND project=? AND kind=? AND name>?".to_owned()),
            (USAGE.to_owned(), format!("size=? AND project=? AND {by_name}")),
            (NAME_IN_TIME.to_owned(), format!("size=? AND project=? AND {by_name}")),
        ] {
            assert_plan(&sql, &statement, &way);
        }
    }

    /// A store with so many projects, and evaluators and tools of each, of which only the names are there.
    fn named(projects: usize, evaluators: usize, tools: usize) -> (tempfile::TempDir, Store) {
        let folder = tempfile::tempdir().unwrap();
        let sql = open_writer(&folder.path().join(crate::DATABASE_FILE_NAME)).unwrap();
        let upto =
            |most: usize| format!("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {most})");
        let all = upto(projects);
        sql.execute_batch(&format!("{all} INSERT INTO project (name, created_ns) SELECT 'p' || i, 1 FROM n;")).unwrap();
        for (most, evaluator, tool) in [(evaluators, "'e' || i", "''"), (tools, "'e1'", "'t' || i")] {
            let all = upto(most);
            sql.execute_batch(&format!(
                "{all} INSERT INTO rollup_long SELECT 24, {ALL_PROJECTS}, {evaluator}, {tool}, 0, '', 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0 \
                 FROM n;"
            ))
            .unwrap();
        }
        drop(sql);
        let store = Store::open(folder.path(), crate::StoreOptions::default()).unwrap();
        (folder, store)
    }

    /// Adds what came of some names on the first day: a trajectory each, with a score of 1.
    fn came(folder: &tempfile::TempDir, names: &[[&str; 3]]) {
        let sql = SqlConnection::Sqlite(open_writer(&folder.path().join(crate::DATABASE_FILE_NAME)).unwrap());
        for names in names {
            let name = encode_dimensions(*names);
            let kind = NameKind::Combination as i64;
            for tool in ["", "t1"] {
                sql.execute(
                    "INSERT INTO rollup_long VALUES (24, 0, 'e1', ?, ?, ?, 0, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0)",
                    params![tool, kind, name],
                )
                .unwrap();
            }
            sql.execute("INSERT INTO usage_long VALUES (24, 0, ?, ?, 0, 1, 0, 1, 1, 1, 0, 0)", params![kind, name])
                .unwrap();
        }
    }

    fn of_names(agent: Option<&str>, version: Option<&str>, model: Option<&str>) -> MetricFilter {
        let [agent, version, model] = [agent, version, model].map(|name| name.map(str::to_owned));
        MetricFilter { evaluator: Some("e1".to_owned()), agent, version, model, ..MetricFilter::default() }
    }

    #[test]
    fn several_names_are_those_that_all_fit() {
        let (folder, store) = named(1, 1, 1);
        let names = [
            ["a", "1", "m"],
            ["a", "1", "n"],
            ["a", "2", "m"],
            ["a\",\"1", "1", "m"],
            ["ab", "1", "m"],
            ["", "1", "m"],
        ];
        came(&folder, &names);
        for (filter, wanted) in [
            (of_names(Some("a"), Some("1"), None), 2),
            (of_names(Some("a"), None, Some("m")), 2),
            (of_names(None, Some("1"), Some("m")), 4),
            (of_names(Some("a"), Some("1"), Some("m")), 1),
            (of_names(Some("a\",\"1"), Some("1"), None), 1),
            (of_names(Some("b"), Some("1"), None), 0),
        ] {
            let day = 24 * HOUR_NS;
            let periods = store.metric_periods(&filter, day).unwrap();
            assert_eq!(periods.rows.iter().map(|row| row.moments.scored).sum::<i64>(), wanted, "{filter:?}");
            let tools = store.tool_sums(&filter).unwrap().tools;
            assert_eq!(tools.get("t1").map_or(0, |sum| sum.scored), wanted, "{filter:?}");
            let usage = store.usage_periods(&filter, day).unwrap().rows;
            assert_eq!(usage.iter().map(|(_, usage)| usage.trajectories).sum::<i64>(), wanted, "{filter:?}");
            let later = MetricFilter { from_ns: Some(day), ..filter };
            assert!(store.metric_periods(&later, day).unwrap().rows.is_empty());
        }
    }

    #[test]
    fn what_is_left_out_is_told() {
        let (_folder, store) = named(1, MAX_EVALUATORS + 1, MAX_TOOLS + 1);
        let all = MetricFilter::default();
        assert!(store.metric_periods(&all, HOUR_NS).unwrap().is_cut, "an evaluator was left out");
        let one = of_names(None, None, None);
        assert!(!store.metric_periods(&one, HOUR_NS).unwrap().is_cut);
        assert!(store.tool_sums(&one).unwrap().is_cut, "a tool was left out");
        let (folder, store) = named(1, 1, 1);
        let versions: Vec<String> = (0..MAX_COMBINATIONS).map(|n| n.to_string()).collect();
        let names: Vec<[&str; 3]> = versions.iter().map(|version| ["a", version, "m"]).collect();
        came(&folder, &names[..]);
        let is_cut = |filter: &MetricFilter| {
            let [periods, usage] = [
                store.metric_periods(filter, HOUR_NS).unwrap().is_cut,
                store.usage_periods(filter, HOUR_NS).unwrap().is_cut,
            ];
            assert_eq!(periods, usage);
            periods
        };
        let two = of_names(None, Some("x"), Some("m"));
        assert!(!is_cut(&two));
        came(&folder, &[["z", "x", "m"]]);
        assert!(is_cut(&two), "a combination was left out");
        // Whose agent is known is found at once.
        let found = store.metric_periods(&of_names(Some("z"), Some("x"), None), 24 * HOUR_NS).unwrap();
        assert_eq!((found.rows.len(), found.is_cut), (1, false));
    }

    #[test]
    fn several_names_have_one_budget_and_one_has_none() {
        let names: Vec<(NameKind, String)> = ["a", "b"].map(|name| (NameKind::Combination, name.to_owned())).into();
        let mut asked = RollupSelection { names: names.clone(), left: MAX_READ_ROWS, is_cut: false };
        asked.for_each_name(|_, _| Ok(MAX_READ_ROWS / 2)).unwrap();
        assert_eq!((asked.left, asked.is_cut), (0, false));
        asked.for_each_name(|_, _| panic!("nothing is left")).unwrap();
        assert!(asked.is_cut);
        let mut asked = RollupSelection { names: names[..1].into(), left: 1, is_cut: false };
        asked.for_each_name(|_, _| Ok(MAX_READ_ROWS)).unwrap();
        assert_eq!((asked.left, asked.is_cut), (1, false));
    }

    #[test]
    fn days_are_read_where_whole_days_are_asked_for() {
        let day = 24 * HOUR_NS;
        let of = |from_ns: Option<i64>, to_ns| MetricFilter { from_ns, to_ns, ..MetricFilter::default() };
        let found = |from, to, period| -> Vec<(i64, i64, i64)> {
            let all = split_into_buckets(&of(from, to), period);
            all.iter().map(|one| (one.size, one.from, one.to)).collect()
        };
        assert_eq!(found(Some(2 * day), Some(4 * day), day), [(24, 2, 3)]);
        assert_eq!(found(Some(2 * day), None, 6 * HOUR_NS), [(1, 48, i64::MAX)]);
        assert_eq!(found(Some(HOUR_NS), None, day), [(1, 1, 23), (24, 1, i64::MAX)]);
        assert_eq!(found(None, None, HOUR_NS), [(1, i64::MIN, i64::MAX)]);
        assert_eq!(found(None, Some(3 * day + HOUR_NS), day), [(24, i64::MIN, 2), (1, 72, 72)]);
        assert_eq!(
            found(Some(day - HOUR_NS), Some(3 * day + 2 * HOUR_NS), day),
            [(1, 23, 23), (24, 1, 2), (1, 72, 73)]
        );
        assert_eq!(found(Some(HOUR_NS), Some(5 * HOUR_NS), day), [(1, 1, 4)]);
        assert_eq!(found(Some(-day - HOUR_NS), Some(0), day), [(1, -25, -25), (24, -1, -1)]);
    }
}
