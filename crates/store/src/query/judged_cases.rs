//! The verdicts of one evaluator, for corrections of its numbers and for random samples of them.

use crate::sql::{SqlConnection, params_from_iter};
use crate::sql::{SqlValue, params};

use super::{MetricFilter, project_number};
use crate::Store;
use crate::error::StoreError;

/// Maximum number of trajectories that one request examines, the latest ones.
const MAX_JUDGED_TRAJECTORIES: i64 = 20_000;
/// Maximum number of outcomes that one request reads. The caller keeps them in memory.
const MAX_JUDGED_OUTCOMES: u64 = 100_000;

/// An outcome of the evaluator: a verdict, or a question that the judge could not answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JudgedCaseRow {
    pub start_ns: i64,
    /// Number of the trajectory in the store.
    pub trajectory: i64,
    pub trajectory_id: String,
    pub trace_id: u128,
    /// `None` for the trajectory as a whole.
    pub step: Option<u32>,
    /// `None` if the judge could not answer, or gave a label without a score.
    pub label: Option<String>,
    /// The outcome as JSON.
    pub line: String,
}

impl Store {
    /// Visits the outcomes of an evaluator that were stored before a time, newest trajectories first, steps in order.
    /// Questions that do not apply are left out. Of the filter, project, names and times are used; the time of a
    /// trajectory is its start. Returns whether there were more than were examined.
    pub fn visit_judged_cases(
        &self,
        filter: &MetricFilter,
        evaluator: &str,
        judged_before_ns: i64,
        mut take: impl FnMut(JudgedCaseRow),
    ) -> Result<bool, StoreError> {
        let reader = self.readers.take_reader()?;
        let sql: &SqlConnection = &*reader.snapshot()?;
        // Names are no condition of the list: with rare ones, everything would be examined.
        let names = [("agent = ?", &filter.agent), ("version = ?", &filter.version), ("model = ?", &filter.model)];
        let wanted: Vec<(&str, &String)> =
            names.iter().filter_map(|(term, name)| Some((*term, name.as_ref()?))).collect();
        let is_wanted: Vec<&str> = wanted.iter().map(|(term, _)| *term).chain(["TRUE"]).collect();
        let mut values: Vec<SqlValue> = wanted.iter().map(|(_, name)| SqlValue::Text((*name).clone())).collect();
        let mut terms = Vec::new();
        let index = match &filter.project {
            None => "trajectory_by_start",
            Some(name) => match project_number(sql, name)? {
                Some(project) => {
                    terms.push("project = ?");
                    values.push(SqlValue::Integer(project));
                    "trajectory_by_project"
                }
                None => return Ok(false),
            },
        };
        terms.push("start_ns >= ? AND start_ns < ?");
        values.extend([filter.from_ns.unwrap_or(i64::MIN), filter.to_ns.unwrap_or(i64::MAX)].map(SqlValue::Integer));
        values.push(SqlValue::Integer(MAX_JUDGED_TRAJECTORIES + 1));
        let list = judged_trajectories_sql(index, &is_wanted.join(" AND "), &terms.join(" AND "));
        let mut trajectories = sql.prepare_cached(&list)?;
        let mut outcomes = sql.prepare_cached(OUTCOMES)?;
        let mut rows = trajectories.query(params_from_iter(values))?;
        let (mut examined, mut outcome_count) = (0, 0);
        while let Some(row) = rows.next()? {
            examined += 1;
            if examined > MAX_JUDGED_TRAJECTORIES || outcome_count >= MAX_JUDGED_OUTCOMES {
                return Ok(true);
            }
            if !row.get::<bool>(4)? {
                continue;
            }
            let (start_ns, trajectory, trajectory_id): (i64, i64, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
            let trace_id = u128::from_be_bytes(row.get(3)?);
            let mut found = outcomes.query(params![trajectory, evaluator, judged_before_ns])?;
            while let Some(outcome) = found.next()? {
                outcome_count += 1;
                let step: u32 = outcome.get(0)?;
                take(JudgedCaseRow {
                    start_ns,
                    trajectory,
                    trajectory_id: trajectory_id.clone(),
                    trace_id,
                    step: (step > 0).then_some(step),
                    label: outcome.get(1)?,
                    line: outcome.get(2)?,
                });
            }
        }
        Ok(false)
    }
}

/// The verdicts on one trajectory, and what could not be judged (2 failed, 3 abstained).
const OUTCOMES: &str = "SELECT step, CASE WHEN kind = 0 AND score IS NOT NULL THEN label END, line FROM outcome \
                        WHERE trajectory = ? AND evaluator = ? AND judged_ns < ? AND kind IN (0, 2, 3) ORDER BY step";

fn judged_trajectories_sql(index: &str, is_wanted: &str, terms: &str) -> String {
    format!(
        "SELECT start_ns, no, trajectory_id, (SELECT trace_id FROM trace WHERE trace.no = trajectory.trace), {is_wanted} \
         FROM trajectory INDEXED BY {index} WHERE {terms} ORDER BY start_ns DESC, no DESC LIMIT ?"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::{assert_plan, open_writer};

    #[test]
    fn lists_go_through_indexes() {
        let folder = tempfile::tempdir().unwrap();
        let sql = open_writer(&folder.path().join("store.db")).unwrap();
        let list = judged_trajectories_sql("trajectory_by_start", "agent = ? AND 1", "start_ns >= ? AND start_ns < ?");
        assert_plan(&sql, &list, "trajectory_by_start (start_ns>? AND start_ns<?)");
        let list =
            judged_trajectories_sql("trajectory_by_project", "1", "project = ? AND start_ns >= ? AND start_ns < ?");
        assert_plan(&sql, &list, "trajectory_by_project (project=? AND start_ns>? AND start_ns<?)");
        assert_plan(&sql, OUTCOMES, "PRIMARY KEY (trajectory=? AND evaluator=?)");
    }
}
