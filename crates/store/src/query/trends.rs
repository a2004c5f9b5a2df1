//! Sums for a page about many trajectories: from hours and days where one name at most is asked for, else from the sums of
//! five minutes, of which only so many are read.

use std::collections::BTreeMap;

use rusqlite::{Connection, params};

use super::metrics::{moments, numbers_of_projects};
use super::{BUCKET_NS, MetricFilter, Moments, project_number};
use crate::Store;
use crate::error::StoreError;
use crate::long::{ALL_PROJECTS, HOUR_NS, NameKind};

/// What an evaluator came to in a period.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricPeriod {
    pub evaluator: String,
    /// When the period began.
    pub start_ns: i64,
    pub moments: Moments,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct MetricPeriods {
    /// By evaluator, and in order of time.
    pub rows: Vec<MetricPeriod>,
    /// More would have had to be read, or there are more evaluators or projects than are looked at: these are the latest.
    pub is_cut: bool,
}

/// What an evaluator came to with each tool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolSums {
    pub tools: BTreeMap<String, Moments>,
    /// There are more tools, projects or sums than were looked at.
    pub is_cut: bool,
}

/// What trajectories took and cost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    pub trajectories: i64,
    pub errors: i64,
    pub steps: i64,
    pub tokens: i64,
    pub took_ns: f64,
    /// Those whose cost is known.
    pub costed: i64,
    pub cost_usd: f64,
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Usage) {
        self.trajectories += other.trajectories;
        self.errors += other.errors;
        self.steps += other.steps;
        self.tokens = self.tokens.saturating_add(other.tokens);
        self.took_ns += other.took_ns;
        self.costed += other.costed;
        self.cost_usd += other.cost_usd;
    }
}

/// Sums of five minutes that one question reads, all together.
const LOOKED_AT: usize = 20_000;
/// Sums of five minutes that are read of one tool in one project.
const LOOKED_AT_OF_A_TOOL: usize = 2_000;
/// A smaller share than this is not worth the way to it.
const LEAST_SHARE: usize = 100;
/// What the way to the first of some sums costs, in sums: looking where nothing is does not come for free.
const WAY: usize = 4;
const MOST_EVALUATORS: usize = 50;
const MOST_TOOLS: usize = 500;
/// Names that are looked at for those of the time that is asked for.
const MOST_NAMES: usize = 2_000;
/// Projects that are gone through one by one.
const MOST_PROJECTS: usize = 300;

const SUMS: &str =
    "trajectories, scored_trajectories, scored, sum, sum_sum, sum_n, n_n, failed, not_applicable";
const TOTAL: &str = "sum(trajectories), sum(scored_trajectories), sum(scored), sum(sum), sum(sum_sum), sum(sum_n), \
                     sum(n_n), sum(failed), sum(not_applicable)";

impl Store {
    /// What evaluators came to, by period. Of the filter all counts but the tool; times are of whole hours.
    pub fn metric_periods(&self, filter: &MetricFilter, period_ns: i64) -> Result<MetricPeriods, StoreError> {
        let reader = self.readers.take()?;
        let sql: &Connection = &*reader.unchecked_transaction()?;
        let Some(project) = project_or_all(sql, filter)? else { return Ok(MetricPeriods::default()) };
        let mut evaluators = match &filter.evaluator {
            Some(evaluator) => vec![evaluator.clone()],
            None => steps_through(sql, &next_evaluator(), &[&project], MOST_EVALUATORS + 1)?,
        };
        let mut found =
            MetricPeriods { is_cut: evaluators.len() > MOST_EVALUATORS, ..MetricPeriods::default() };
        evaluators.truncate(MOST_EVALUATORS);
        let mut short = match one_name(filter) {
            Some(_) => None,
            None => Some(Short::of(sql, filter, project, evaluators.len(), LOOKED_AT)?),
        };
        for evaluator in evaluators {
            let mut periods: BTreeMap<i64, Moments> = BTreeMap::new();
            let mut add = |at_ns: i64, moments| {
                *periods.entry(at_ns.div_euclid(period_ns) * period_ns).or_default() += moments;
            };
            if let Some((kind, name)) = one_name(filter) {
                let (size, from, to) = hours(filter, period_ns);
                let mut statement = sql.prepare_cached(&long_periods())?;
                let mut rows =
                    statement.query(params![size, project, evaluator, kind as i64, name, from, to])?;
                while let Some(row) = rows.next()? {
                    add(row.get::<_, i64>(0)?.saturating_mul(size * HOUR_NS), moments(row, 1)?);
                }
            } else if let Some(short) = &mut short {
                short
                    .read(&evaluator, "", |bucket, moments| add(bucket.saturating_mul(BUCKET_NS), moments))?;
            }
            let row = |(start_ns, moments)| MetricPeriod { evaluator: evaluator.clone(), start_ns, moments };
            found.rows.extend(periods.into_iter().map(row));
        }
        found.is_cut |= short.is_some_and(|short| short.is_cut);
        Ok(found)
    }

    /// What one evaluator came to with each tool.
    pub fn tool_sums(&self, filter: &MetricFilter) -> Result<ToolSums, StoreError> {
        let reader = self.readers.take()?;
        let sql: &Connection = &*reader.unchecked_transaction()?;
        let (Some(evaluator), Some(project)) = (&filter.evaluator, project_or_all(sql, filter)?) else {
            return Ok(ToolSums::default());
        };
        let mut tools = steps_through(sql, &next_tool(), &[&project, evaluator], MOST_TOOLS + 1)?;
        let mut found = ToolSums { is_cut: tools.len() > MOST_TOOLS, ..ToolSums::default() };
        tools.truncate(MOST_TOOLS);
        let mut short = match one_name(filter) {
            Some(_) => None,
            None => Some(Short::of(sql, filter, project, tools.len(), LOOKED_AT_OF_A_TOOL)?),
        };
        for tool in tools {
            let mut sum = Moments::default();
            if let Some((kind, name)) = one_name(filter) {
                let (size, from, to) = hours(filter, 24 * HOUR_NS);
                let values = params![size, project, evaluator, tool, kind as i64, name, from, to];
                let mut statement = sql.prepare_cached(&long_tool())?;
                let mut rows = statement.query(values)?;
                while let Some(row) = rows.next()? {
                    sum += moments(row, 0)?;
                }
            } else if let Some(short) = &mut short {
                short.read(evaluator, &tool, |_, moments| sum += moments)?;
            }
            if sum.trajectories > 0 {
                found.tools.insert(tool, sum);
            }
        }
        found.is_cut |= short.is_some_and(|short| short.is_cut);
        Ok(found)
    }

    /// The names that trajectories of a time have, in order of the alphabet; of many, the first. Of the filter, project and
    /// times count.
    pub fn names(
        &self,
        filter: &MetricFilter,
        kind: NameKind,
        limit: usize,
    ) -> Result<Vec<String>, StoreError> {
        let reader = self.readers.take()?;
        let sql: &Connection = &*reader.unchecked_transaction()?;
        let Some(project) = project_or_all(sql, filter)? else { return Ok(Vec::new()) };
        let all = steps_through(sql, &next_name(), &[&project, &(kind as i64)], MOST_NAMES)?;
        let (from, to) = bounds(filter, 24 * HOUR_NS);
        let mut is_there = sql.prepare_cached(NAME_IN_TIME)?;
        let mut found = Vec::new();
        for name in all {
            if found.len() == limit {
                break;
            }
            if is_there.exists(params![project, kind as i64, name, from, to])? {
                found.push(name);
            }
        }
        Ok(found)
    }

    /// What trajectories took and cost, by period and in order of time; `None` where more than one name is asked for.
    pub fn usage_periods(
        &self,
        filter: &MetricFilter,
        period_ns: i64,
    ) -> Result<Option<Vec<(i64, Usage)>>, StoreError> {
        let reader = self.readers.take()?;
        let Some((kind, name)) = one_name(filter) else { return Ok(None) };
        let Some(project) = project_or_all(&reader, filter)? else { return Ok(Some(Vec::new())) };
        let (size, from, to) = hours(filter, period_ns);
        let mut statement = reader.prepare_cached(USAGE)?;
        let mut rows = statement.query(params![size, project, kind as i64, name, from, to])?;
        let mut periods: BTreeMap<i64, Usage> = BTreeMap::new();
        while let Some(row) = rows.next()? {
            let at_ns = row.get::<_, i64>(0)?.saturating_mul(size * HOUR_NS);
            *periods.entry(at_ns.div_euclid(period_ns) * period_ns).or_default() += Usage {
                trajectories: row.get(1)?,
                errors: row.get(2)?,
                steps: row.get(3)?,
                tokens: row.get(4)?,
                took_ns: row.get(5)?,
                costed: row.get(6)?,
                cost_usd: row.get(7)?,
            };
        }
        Ok(Some(periods.into_iter().collect()))
    }
}

/// Sums of five minutes, of which all that one question asks for have one budget.
struct Short<'s> {
    sql: &'s Connection,
    filter: &'s MetricFilter,
    projects: Vec<i64>,
    /// Sums that are read of each project each time, at most.
    share: usize,
    left: usize,
    is_cut: bool,
}

impl<'s> Short<'s> {
    /// For so many times of reading.
    fn of(
        sql: &'s Connection,
        filter: &'s MetricFilter,
        project: i64,
        times: usize,
        most: usize,
    ) -> Result<Short<'s>, StoreError> {
        let mut projects = match project {
            ALL_PROJECTS => numbers_of_projects(sql)?,
            one => vec![one],
        };
        let is_cut = projects.len() > MOST_PROJECTS;
        projects.truncate(MOST_PROJECTS);
        let share = LOOKED_AT / (times * projects.len()).max(1);
        Ok(Short { sql, filter, projects, share: share.clamp(LEAST_SHARE, most), left: LOOKED_AT, is_cut })
    }

    /// Sums of a tool, or of all together, with the buckets that they are of; nothing when the budget is spent.
    fn read(
        &mut self,
        evaluator: &str,
        tool: &str,
        mut add: impl FnMut(i64, Moments),
    ) -> Result<(), StoreError> {
        let (from, to) = bounds(self.filter, BUCKET_NS);
        let MetricFilter { agent, version, model, .. } = self.filter;
        let days = bounds(self.filter, 24 * HOUR_NS);
        let mut statement = self.sql.prepare_cached(&short_periods())?;
        let mut is_there = self.sql.prepare_cached(SUMS_OF_A_NAME)?;
        for project in &self.projects {
            let most = self.share.min(self.left);
            if most == 0 {
                self.is_cut = true;
                break;
            }
            // Of a name that never came here nothing is found, however much is looked at.
            let mut is_known = true;
            for (kind, name) in names(self.filter) {
                let values = params![project, evaluator, tool, kind as i64, name, days.0, days.1];
                is_known = is_known && is_there.exists(values)?;
            }
            if !is_known {
                self.left = self.left.saturating_sub(WAY);
                continue;
            }
            let limit = most as i64;
            let mut rows =
                statement.query(params![project, evaluator, tool, from, to, agent, version, model, limit])?;
            let mut looked_at = 0;
            while let Some(row) = rows.next()? {
                looked_at += 1;
                if row.get(1)? {
                    add(row.get(0)?, moments(row, 2)?);
                }
            }
            self.is_cut |= looked_at == most;
            self.left = self.left.saturating_sub(looked_at + WAY);
        }
        Ok(())
    }
}

const USAGE: &str = "SELECT bucket, trajectories, errors, steps, tokens, took_ns, costed, cost_usd FROM usage_long \
                     WHERE size = ? AND project = ? AND kind = ? AND name = ? AND bucket >= ? AND bucket <= ?";
const SUMS_OF_A_NAME: &str = "SELECT 1 FROM rollup_long WHERE size = 24 AND project = ? AND evaluator = ? AND tool = ? \
                              AND kind = ? AND name = ? AND bucket >= ? AND bucket <= ? LIMIT 1";
const NAME_IN_TIME: &str = "SELECT 1 FROM usage_long WHERE size = 24 AND project = ? AND kind = ? AND name = ? \
                            AND bucket >= ? AND bucket <= ? LIMIT 1";

fn long_periods() -> String {
    format!(
        "SELECT bucket, {SUMS} FROM rollup_long WHERE size = ? AND project = ? AND evaluator = ? AND tool = '' \
         AND kind = ? AND name = ? AND bucket >= ? AND bucket <= ?"
    )
}

fn long_tool() -> String {
    format!(
        "SELECT {TOTAL} FROM rollup_long WHERE size = ? AND project = ? AND evaluator = ? AND tool = ? AND kind = ? \
         AND name = ? AND bucket >= ? AND bucket <= ? HAVING count(*) > 0"
    )
}

/// Sums of five minutes, the latest first: whether one is asked for is told, so that what is looked at has a bound.
fn short_periods() -> String {
    format!(
        "SELECT bucket, (?6 IS NULL OR agent = ?6) AND (?7 IS NULL OR version = ?7) AND (?8 IS NULL OR model = ?8), {SUMS} \
         FROM rollup WHERE project = ?1 AND evaluator = ?2 AND tool = ?3 AND bucket >= ?4 AND bucket <= ?5 \
         ORDER BY bucket DESC LIMIT ?9"
    )
}

fn next_evaluator() -> String {
    "SELECT min(evaluator) FROM rollup_long WHERE size = 24 AND project = ?2 AND evaluator > ?1".to_owned()
}

fn next_tool() -> String {
    "SELECT min(tool) FROM rollup_long WHERE size = 24 AND project = ?2 AND evaluator = ?3 AND tool > ?1"
        .to_owned()
}

fn next_name() -> String {
    "SELECT min(name) FROM usage_long WHERE size = 24 AND project = ?2 AND kind = ?3 AND name > ?1".to_owned()
}

/// From one text of an index to the next, not row by row.
fn steps_through(
    sql: &Connection,
    next: &str,
    within: &[&dyn rusqlite::ToSql],
    most: usize,
) -> Result<Vec<String>, StoreError> {
    let mut next = sql.prepare_cached(next)?;
    let mut all: Vec<String> = Vec::new();
    while all.len() < most {
        let last = all.last().cloned().unwrap_or_default();
        let mut values: Vec<&dyn rusqlite::ToSql> = vec![&last];
        values.extend(within);
        match next.query_row(values.as_slice(), |row| row.get::<_, Option<String>>(0))? {
            Some(name) => all.push(name),
            None => break,
        }
    }
    Ok(all)
}

/// All names that are asked for.
fn names(filter: &MetricFilter) -> impl Iterator<Item = (NameKind, &str)> {
    let named = [
        (NameKind::Agent, &filter.agent),
        (NameKind::Version, &filter.version),
        (NameKind::Model, &filter.model),
    ];
    named.into_iter().filter_map(|(kind, name)| Some((kind, name.as_deref()?)))
}

/// The one name that is asked for, or nobody's; `None` when there are several.
fn one_name(filter: &MetricFilter) -> Option<(NameKind, &str)> {
    let mut given = names(filter);
    match (given.next(), given.next()) {
        (None, _) => Some((NameKind::All, "")),
        (Some(one), None) => Some(one),
        (Some(_), Some(_)) => None,
    }
}

/// `None` when there is no such project.
fn project_or_all(sql: &Connection, filter: &MetricFilter) -> Result<Option<i64>, StoreError> {
    match &filter.project {
        Some(name) => project_number(sql, name),
        None => Ok(Some(ALL_PROJECTS)),
    }
}

/// The longest buckets that periods and times are made of, and the first and last of them.
fn hours(filter: &MetricFilter, period_ns: i64) -> (i64, i64, i64) {
    let is_whole = |ns: Option<i64>| ns.is_none_or(|ns| ns % (24 * HOUR_NS) == 0);
    let size = if period_ns % (24 * HOUR_NS) == 0 && is_whole(filter.from_ns) && is_whole(filter.to_ns) {
        24
    } else {
        1
    };
    let (from, to) = bounds(filter, size * HOUR_NS);
    (size, from, to)
}

fn bounds(filter: &MetricFilter, length_ns: i64) -> (i64, i64) {
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
            (long_periods(), format!("size=? AND project=? AND evaluator=? AND tool=? AND {by_name}")),
            (long_tool(), format!("size=? AND project=? AND evaluator=? AND tool=? AND {by_name}")),
            (
                SUMS_OF_A_NAME.to_owned(),
                format!("size=? AND project=? AND evaluator=? AND tool=? AND {by_name}"),
            ),
            (short_periods(), "project=? AND evaluator=? AND tool=? AND bucket>? AND bucket<?".to_owned()),
            (next_evaluator(), "size=? AND project=? AND evaluator>?".to_owned()),
            (next_tool(), "size=? AND project=? AND evaluator=? AND tool>?".to_owned()),
            (next_name(), "size=? AND project=? AND kind=? AND name>?".to_owned()),
            (USAGE.to_owned(), format!("size=? AND project=? AND {by_name}")),
            (NAME_IN_TIME.to_owned(), format!("size=? AND project=? AND {by_name}")),
        ] {
            assert_plan(&sql, &statement, &way);
        }
    }

    /// A store with so many projects, and evaluators and tools of each, of which only the names are there.
    fn named(projects: usize, evaluators: usize, tools: usize) -> (tempfile::TempDir, Store) {
        let folder = tempfile::tempdir().unwrap();
        let sql = open_writer(&folder.path().join(crate::FILE_NAME)).unwrap();
        let upto = |most: usize| {
            format!("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {most})")
        };
        let all = upto(projects);
        sql.execute_batch(&format!(
            "{all} INSERT INTO project (name, created_ns) SELECT 'p' || i, 1 FROM n;"
        ))
        .unwrap();
        for (most, evaluator, tool) in [(evaluators, "'e' || i", "''"), (tools, "'e1'", "'t' || i")] {
            let all = upto(most);
            sql.execute_batch(&format!(
                "{all} INSERT INTO rollup_long SELECT 24, {ALL_PROJECTS}, {evaluator}, {tool}, 0, '', 1, 1, 1, 1, 1, 1, 1, 1, 0, 0 \
                 FROM n;"
            ))
            .unwrap();
        }
        drop(sql);
        let store = Store::open(folder.path(), crate::StoreOptions::default()).unwrap();
        (folder, store)
    }

    #[test]
    fn one_question_has_one_budget_and_what_it_leaves_out_is_told() {
        let all = MetricFilter { evaluator: Some("e1".to_owned()), ..MetricFilter::default() };
        let two_names =
            MetricFilter { agent: Some("a".to_owned()), model: Some("m".to_owned()), ..all.clone() };
        let (_folder, store) = named(MOST_PROJECTS, 1, MOST_TOOLS);
        // Each tool in each project: more ways than one question goes.
        assert!(store.tool_sums(&two_names).unwrap().is_cut);
        assert!(!store.tool_sums(&all).unwrap().is_cut);
        assert!(!store.metric_periods(&two_names, HOUR_NS).unwrap().is_cut);
        let (_folder, store) = named(MOST_PROJECTS + 1, MOST_EVALUATORS + 1, 1);
        assert!(store.tool_sums(&two_names).unwrap().is_cut, "a project was left out");
        assert!(store.metric_periods(&two_names, HOUR_NS).unwrap().is_cut, "a project was left out");
        let every = MetricFilter { evaluator: None, ..all.clone() };
        let periods = store.metric_periods(&every, HOUR_NS).unwrap();
        assert!(periods.is_cut, "an evaluator was left out");
        assert!(!store.metric_periods(&all, HOUR_NS).unwrap().is_cut);
    }

    #[test]
    fn a_budget_that_is_spent_is_told() {
        let (_folder, store) = named(3, 1, 1);
        let reader = store.readers.take().unwrap();
        let filter = MetricFilter::default();
        let mut short = Short::of(&reader, &filter, ALL_PROJECTS, 10, LOOKED_AT_OF_A_TOOL).unwrap();
        assert_eq!((short.projects.len(), short.share, short.left), (3, LOOKED_AT / 30, LOOKED_AT));
        short.left = 2 * WAY;
        short.read("e1", "t1", |_, _| {}).unwrap();
        assert_eq!((short.left, short.is_cut), (0, true));
    }

    #[test]
    fn days_are_read_where_whole_days_are_asked_for() {
        let day = 24 * HOUR_NS;
        let of = |from_ns: Option<i64>, to_ns| MetricFilter { from_ns, to_ns, ..MetricFilter::default() };
        assert_eq!(hours(&of(Some(2 * day), Some(4 * day)), day), (24, 2, 3));
        assert_eq!(hours(&of(Some(2 * day), None), 6 * HOUR_NS), (1, 48, i64::MAX));
        assert_eq!(hours(&of(Some(HOUR_NS), None), day), (1, 1, i64::MAX));
        assert_eq!(hours(&of(None, None), HOUR_NS), (1, i64::MIN, i64::MAX));
    }
}
