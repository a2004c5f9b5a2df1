//! Metrics over time, from sums that are kept up to date while verdicts come in.

use rusqlite::params_from_iter;
use rusqlite::types::Value;

use super::project_number;
use crate::Store;
use crate::error::StoreError;

/// How long a bucket of the sums is.
pub const BUCKET_NS: i64 = 300 * 1_000_000_000;

#[derive(Clone, Debug, Default)]
pub struct MetricFilter {
    pub project: Option<String>,
    pub evaluator: Option<String>,
    pub agent: Option<String>,
    pub version: Option<String>,
    pub model: Option<String>,
    /// Steps that call this tool only.
    pub tool: Option<String>,
    /// Whole buckets: all that lie in the period, if only in part.
    pub from_ns: Option<i64>,
    pub to_ns: Option<i64>,
}

/// What the sums are grouped by, beside the evaluator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricGroup {
    All,
    /// Periods of this length.
    Time {
        period_ns: i64,
    },
    Agent,
    Version,
    Model,
    Tool,
}

/// Sums over trajectories: of the scores in each (`sum`), of how many there are (`scored`), and of their products.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Moments {
    pub trajectories: i64,
    pub scored: i64,
    pub sum: f64,
    pub sum_sum: f64,
    pub sum_n: f64,
    pub n_n: f64,
    pub failed: i64,
    pub not_applicable: i64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct MetricRow {
    pub evaluator: String,
    /// What it is grouped by: a time in nanoseconds, or a name.
    pub group: String,
    pub moments: Moments,
}

impl Store {
    pub fn metrics(&self, filter: &MetricFilter, group: MetricGroup) -> Result<Vec<MetricRow>, StoreError> {
        let reader = self.readers.take()?;
        let mut terms = vec!["1".to_owned()];
        let mut values = Vec::new();
        let key = match group {
            MetricGroup::All => "''".to_owned(),
            MetricGroup::Time { period_ns } => {
                values.push(Value::Integer((period_ns / BUCKET_NS).max(1)));
                values.push(Value::Integer((period_ns / BUCKET_NS).max(1) * BUCKET_NS));
                "bucket / ? * ?".to_owned()
            }
            MetricGroup::Agent => "agent".to_owned(),
            MetricGroup::Version => "version".to_owned(),
            MetricGroup::Model => "model".to_owned(),
            MetricGroup::Tool => "tool".to_owned(),
        };
        if let Some(project) = &filter.project {
            let Some(number) = project_number(&reader, project)? else { return Ok(Vec::new()) };
            terms.push("project = ?".to_owned());
            values.push(Value::Integer(number));
        }
        // Sums over all tools and sums of one tool lie side by side; only one kind may be added up.
        match (&filter.tool, group) {
            (Some(tool), _) => {
                terms.push("tool = ?".to_owned());
                values.push(Value::Text(tool.clone()));
            }
            (None, MetricGroup::Tool) => terms.push("tool <> ''".to_owned()),
            (None, _) => terms.push("tool = ''".to_owned()),
        }
        let named = [
            ("evaluator", &filter.evaluator),
            ("agent", &filter.agent),
            ("version", &filter.version),
            ("model", &filter.model),
        ];
        for (column, value) in named {
            if let Some(value) = value {
                terms.push(format!("{column} = ?"));
                values.push(Value::Text(value.clone()));
            }
        }
        // Of a bucket that lies in the period only partly, all counts: also of the one that is not over yet.
        let bounds = [(filter.from_ns, ">="), (filter.to_ns.map(|bound| bound.saturating_sub(1)), "<=")];
        for (bound, comparison) in bounds {
            if let Some(bound) = bound {
                terms.push(format!("bucket {comparison} ?"));
                values.push(Value::Integer(bound.div_euclid(BUCKET_NS)));
            }
        }
        let mut statement = reader.prepare_cached(&format!(
            "SELECT evaluator, CAST({key} AS TEXT) AS grouped, sum(trajectories), sum(scored), sum(sum), sum(sum_sum), \
             sum(sum_n), sum(n_n), sum(failed), sum(not_applicable) FROM rollup WHERE {} \
             GROUP BY evaluator, grouped HAVING sum(trajectories) > 0 ORDER BY evaluator, min(bucket), grouped",
            terms.join(" AND ")
        ))?;
        let rows = statement.query_map(params_from_iter(values), |row| {
            Ok(MetricRow {
                evaluator: row.get(0)?,
                group: row.get(1)?,
                moments: Moments {
                    trajectories: row.get(2)?,
                    scored: row.get(3)?,
                    sum: row.get(4)?,
                    sum_sum: row.get(5)?,
                    sum_n: row.get(6)?,
                    n_n: row.get(7)?,
                    failed: row.get(8)?,
                    not_applicable: row.get(9)?,
                },
            })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }
}
