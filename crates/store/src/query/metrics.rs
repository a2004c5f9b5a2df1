//! Metrics over time, from rollups that are kept up to date while outcomes are stored.

use crate::buckets::{BUCKET_NS, ScoreMoments, bucket_index};
use std::collections::BTreeSet;

use crate::sql::{SqlConnection, SqlRow, params, params_from_iter};
use crate::sql::{SqlError, SqlValue};

use super::project_number;
use crate::Store;
use crate::error::StoreError;

/// Selects rollups. All given conditions must hold.
#[derive(Clone, Debug, Default)]
pub struct MetricFilter {
    pub project: Option<String>,
    pub evaluator: Option<String>,
    pub agent: Option<String>,
    pub version: Option<String>,
    pub model: Option<String>,
    /// Only steps that call this tool.
    pub tool: Option<String>,
    /// Whole buckets count, also those that are only partly inside the period.
    pub from_ns: Option<i64>,
    pub to_ns: Option<i64>,
}

/// What the sums are grouped by, in addition to the evaluator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricGroup {
    All,
    /// By periods of this length in nanoseconds.
    Time {
        period_ns: i64,
    },
    Agent,
    Version,
    Model,
    Tool,
}

/// Sums of one evaluator in one group.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricRow {
    pub evaluator: String,
    /// The value of the group: a time in nanoseconds, or a name.
    pub group: String,
    pub moments: ScoreMoments,
}

impl Store {
    /// Sums of scores by evaluator and group. Reads the five-minute rollups, so it is meant for short periods;
    /// `metric_periods` reads the coarse ones.
    pub fn metrics(&self, filter: &MetricFilter, group: MetricGroup) -> Result<Vec<MetricRow>, StoreError> {
        let reader = self.readers.take_reader()?;
        let mut terms = Vec::new();
        let mut values = Vec::new();
        let key = match group {
            MetricGroup::All => "''".to_owned(),
            MetricGroup::Time { period_ns } => {
                values.push(SqlValue::Integer((period_ns / BUCKET_NS).max(1)));
                values.push(SqlValue::Integer((period_ns / BUCKET_NS).max(1) * BUCKET_NS));
                "bucket / ? * ?".to_owned()
            }
            MetricGroup::Agent => "agent".to_owned(),
            MetricGroup::Version => "version".to_owned(),
            MetricGroup::Model => "model".to_owned(),
            MetricGroup::Tool => "tool".to_owned(),
        };
        // All columns before the time in the order of the key are given, so that a period is found without reading the
        // rest.
        let projects = match &filter.project {
            Some(project) => project_number(&reader, project)?.into_iter().collect(),
            None => list_project_numbers(&reader)?,
        };
        let evaluators = match &filter.evaluator {
            Some(evaluator) => BTreeSet::from([evaluator.clone()]),
            None => list_rollup_evaluators(&reader, &projects)?,
        };
        let listed =
            reader.choose("SELECT value FROM json_each(?)", "SELECT json_array_elements_text(CAST(? AS JSON))");
        terms.push(reader.choose("project IN ({})", "project = ANY (ARRAY({})::BIGINT[])").replace("{}", listed));
        values.push(SqlValue::Text(serde_json::json!(projects).to_string()));
        terms.push(format!("evaluator IN ({listed})"));
        values.push(SqlValue::Text(serde_json::json!(evaluators).to_string()));
        // Sums over all tools (empty name) and sums of one tool are in the same table. Only one kind may be added up.
        match (&filter.tool, group) {
            (Some(tool), _) => {
                terms.push("tool = ?".to_owned());
                values.push(SqlValue::Text(tool.clone()));
            }
            (None, MetricGroup::Tool) => terms.push("tool <> ''".to_owned()),
            (None, _) => terms.push("tool = ''".to_owned()),
        }
        let named = [("agent", &filter.agent), ("version", &filter.version), ("model", &filter.model)];
        for (column, value) in named {
            if let Some(value) = value {
                terms.push(format!("{column} = ?"));
                values.push(SqlValue::Text(value.clone()));
            }
        }
        // A bucket that is only partly inside the period counts completely, also the present one.
        let bounds = [(filter.from_ns, ">="), (filter.to_ns.map(|bound| bound.saturating_sub(1)), "<=")];
        for (bound, comparison) in bounds {
            if let Some(bound) = bound {
                terms.push(format!("bucket {comparison} ?"));
                values.push(SqlValue::Integer(bucket_index(bound)));
            }
        }
        let mut statement = reader.prepare_cached(&format!(
            "SELECT evaluator, CAST({key} AS TEXT) AS grouped, sum(trajectories), sum(scored_trajectories), sum(scored), \
             sum(sum), sum(sum_sum), sum(sum_n), sum(n_n), sum(failed), sum(not_applicable), sum(abstained) FROM rollup \
             WHERE {} GROUP BY evaluator, grouped HAVING sum(trajectories) > 0 ORDER BY evaluator, min(bucket), grouped",
            terms.join(" AND ")
        ))?;
        let rows = statement.query_map(params_from_iter(values), |row| {
            Ok(MetricRow { evaluator: row.get(0)?, group: row.get(1)?, moments: moments_from_row(row, 2)? })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }
}

/// The sums of a row, from a column on, in the order of the table.
pub(super) fn moments_from_row(row: &SqlRow<'_>, from: usize) -> Result<ScoreMoments, SqlError> {
    Ok(ScoreMoments {
        trajectories: row.get(from)?,
        scored_trajectories: row.get(from + 1)?,
        scored: row.get(from + 2)?,
        sum: row.get(from + 3)?,
        sum_sum: row.get(from + 4)?,
        sum_n: row.get(from + 5)?,
        n_n: row.get(from + 6)?,
        failed: row.get(from + 7)?,
        not_applicable: row.get(from + 8)?,
        abstained: row.get(from + 9)?,
    })
}

/// Numbers of all projects, to look rollups up by their key, which begins with the project.
pub(super) fn list_project_numbers(sql: &SqlConnection) -> Result<Vec<i64>, StoreError> {
    let mut statement = sql.prepare_cached("SELECT no FROM project")?;
    Ok(statement.query_map((), |row| row.get(0))?.collect::<Result<_, _>>()?)
}

/// The evaluators that have rollups in these projects. Steps from one name to the next through the index, not row by
/// row.
fn list_rollup_evaluators(sql: &SqlConnection, projects: &[i64]) -> Result<BTreeSet<String>, StoreError> {
    let mut next = sql.prepare_cached("SELECT min(evaluator) FROM rollup WHERE project = ? AND evaluator > ?")?;
    let mut evaluators = BTreeSet::new();
    for project in projects {
        let mut last = String::new();
        while let Some(name) = next.query_row(params![project, last], |row| row.get::<Option<String>>(0))? {
            evaluators.insert(name.clone());
            last = name;
        }
    }
    Ok(evaluators)
}
