//! How the latest trajectories ended, by project: for metrics that are scraped.

use crate::sql::params;

use crate::Store;
use crate::error::StoreError;

/// Trajectories of one project that ended in one way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecentOutcomeRow {
    pub project: String,
    /// The label of the evaluator; `None` if it gave none.
    pub label: Option<String>,
    pub trajectories: u64,
    /// Number of these trajectories that have an error.
    pub errors: u64,
}

impl Store {
    /// Counts trajectories since a time by project and by what an evaluator said of the whole trajectory. At most the
    /// latest `limit` trajectories are read.
    pub fn recent_outcomes(
        &self,
        evaluator: &str,
        since_ns: i64,
        limit: usize,
    ) -> Result<Vec<RecentOutcomeRow>, StoreError> {
        let reader = self.readers.take_reader()?;
        let mut statement = reader.prepare_cached(
            "SELECT project.name, outcome.label, count(*), count(CASE WHEN latest.is_error THEN 1 END) FROM \
             (SELECT no, project, is_error FROM trajectory WHERE start_ns >= ?1 ORDER BY start_ns DESC LIMIT ?2) AS latest \
             JOIN project ON project.no = latest.project \
             LEFT JOIN outcome ON outcome.trajectory = latest.no AND outcome.evaluator = ?3 AND outcome.step = 0 \
             GROUP BY project.name, outcome.label ORDER BY project.name, outcome.label",
        )?;
        let rows = statement.query_map(params![since_ns, limit as i64, evaluator], |row| {
            let count = |value: i64| u64::try_from(value).unwrap_or(0);
            Ok(RecentOutcomeRow {
                project: row.get(0)?,
                label: row.get(1)?,
                trajectories: count(row.get(2)?),
                errors: count(row.get(3)?),
            })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }
}
