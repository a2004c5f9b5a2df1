//! What a page about many trajectories says: how many, how long, how dear, and which tasks go wrong most.

use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};

use super::{MetricFilter, project_number};
use crate::Store;
use crate::error::StoreError;

/// Sums over trajectories; of many, the latest.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Totals {
    pub trajectories: u64,
    pub errors: u64,
    pub steps: u64,
    pub tokens: u64,
    /// Of those whose cost is known.
    pub cost_usd: Option<f64>,
    /// How long they took, shortest first.
    pub durations_ns: Vec<i64>,
    /// There are more than were looked at.
    pub is_cut: bool,
}

/// Trajectories that were asked the same.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskRow {
    /// Its beginning.
    pub query: String,
    pub trajectories: u64,
    /// Verdicts below the best, and all that have a score.
    pub wrong: u64,
    pub scored: u64,
    /// The latest of them in which something was wrong.
    pub trace_id: u128,
    pub trajectory_id: String,
}

/// Trajectories that totals are taken of.
const MOST: i64 = 2_000;
/// Trajectories whose verdicts are looked at.
const MOST_JUDGED: i64 = 500;

impl Store {
    /// Totals of the trajectories that fit; its evaluator and tool are passed over.
    pub fn totals(&self, filter: &MetricFilter) -> Result<Totals, StoreError> {
        let reader = self.readers.take()?;
        let Some((latest, values)) = latest(&reader, filter, MOST)? else { return Ok(Totals::default()) };
        let mut statement = reader.prepare_cached(&format!(
            "SELECT end_ns - start_ns, is_error, steps, tokens, cost_usd FROM trajectory WHERE no IN ({latest})"
        ))?;
        let mut rows = statement.query(params_from_iter(values))?;
        let mut totals = Totals::default();
        while let Some(row) = rows.next()? {
            totals.trajectories += 1;
            totals.durations_ns.push(row.get(0)?);
            totals.errors += u64::from(row.get::<_, bool>(1)?);
            totals.steps += row.get::<_, u64>(2)?;
            totals.tokens += row.get::<_, u64>(3)?;
            if let Some(cost) = row.get::<_, Option<f64>>(4)? {
                *totals.cost_usd.get_or_insert(0.0) += cost;
            }
        }
        totals.durations_ns.sort_unstable();
        totals.is_cut = totals.trajectories >= MOST as u64;
        Ok(totals)
    }

    /// The tasks with the greatest share of verdicts below the best, among the latest trajectories that fit.
    pub fn worst_tasks(&self, filter: &MetricFilter, limit: usize) -> Result<Vec<TaskRow>, StoreError> {
        let reader = self.readers.take()?;
        let Some((latest, mut values)) = latest(&reader, filter, MOST_JUDGED)? else { return Ok(Vec::new()) };
        values.push(Value::Integer(limit as i64));
        let mut statement = reader.prepare_cached(&format!(
            "SELECT t.query, count(DISTINCT t.no), sum(o.score < 1.0) AS wrong, count(o.score), \
             max(CASE WHEN o.score < 1.0 THEN t.no END) AS last \
             FROM trajectory t CROSS JOIN outcome o ON o.trajectory = t.no AND o.kind = 0 \
             WHERE t.no IN ({latest}) AND t.query <> '' GROUP BY t.query HAVING wrong > 0 \
             ORDER BY 1.0 * wrong / count(o.score) DESC, wrong DESC LIMIT ?"
        ))?;
        let rows: Vec<(String, u64, u64, u64, i64)> = statement
            .query_map(params_from_iter(values), |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?))
            })?
            .collect::<Result<_, _>>()?;
        let mut find = reader.prepare_cached(
            "SELECT trace.trace_id, trajectory_id FROM trajectory JOIN trace ON trace.no = trajectory.trace \
             WHERE trajectory.no = ?",
        )?;
        let mut tasks = Vec::with_capacity(rows.len());
        for (query, trajectories, wrong, scored, last) in rows {
            let (trace_id, trajectory_id): ([u8; 16], String) =
                find.query_row([last], |row| Ok((row.get(0)?, row.get(1)?)))?;
            let trace_id = u128::from_be_bytes(trace_id);
            tasks.push(TaskRow { query, trajectories, wrong, scored, trace_id, trajectory_id });
        }
        Ok(tasks)
    }
}

/// The numbers of the latest trajectories that fit, as a query; `None` when there is no such project.
fn latest(
    sql: &Connection,
    filter: &MetricFilter,
    most: i64,
) -> Result<Option<(String, Vec<Value>)>, StoreError> {
    let mut values = Vec::new();
    let mut terms = Vec::new();
    let mut index = "trajectory_by_start";
    if let Some(name) = &filter.project {
        let Some(project) = project_number(sql, name)? else { return Ok(None) };
        index = "trajectory_by_project";
        terms.push("project = ?".to_owned());
        values.push(Value::Integer(project));
    }
    terms.push("start_ns >= ? AND start_ns < ?".to_owned());
    values.push(Value::Integer(filter.from_ns.unwrap_or(i64::MIN)));
    values.push(Value::Integer(filter.to_ns.unwrap_or(i64::MAX)));
    for (column, value) in [("agent", &filter.agent), ("version", &filter.version), ("model", &filter.model)]
    {
        if let Some(value) = value {
            terms.push(format!("{column} = ?"));
            values.push(Value::Text(value.clone()));
        }
    }
    values.push(Value::Integer(most));
    let terms = terms.join(" AND ");
    let query =
        format!("SELECT no FROM trajectory INDEXED BY {index} WHERE {terms} ORDER BY start_ns DESC LIMIT ?");
    Ok(Some((query, values)))
}

#[cfg(test)]
mod tests {
    use gradus_core::span::TraceId;

    use super::*;
    use crate::{
        AssembledStory, BlockSignal, Chunk, OutcomeRecord, RecordedKind, StoreOptions, TrajectoryRecord,
    };

    #[test]
    fn totals_and_worst_tasks_are_of_what_fits() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path(), StoreOptions::default()).unwrap();
        // A query, an agent, and the scores of its steps.
        let all: [(&str, &str, &[f64]); 4] = [
            ("refund", "a", &[0.0, 1.0]),
            ("refund", "a", &[1.0, 1.0]),
            ("stock", "b", &[0.0]),
            ("hello", "a", &[1.0]),
        ];
        for ((query, agent, scores), number) in all.iter().zip(1..) {
            let trace_id = TraceId(number);
            let chunk = Chunk::new(trace_id, "shop".into(), BlockSignal::Spans, b"");
            store.ingest(vec![chunk], 1).unwrap().wait().unwrap();
            let outcome = |(step, score): (usize, &f64)| OutcomeRecord {
                evaluator: "fit".to_owned(),
                step: Some(step as u32 + 1),
                kind: RecordedKind::Scored,
                label: None,
                score: Some(*score),
                tool: "look".to_owned(),
                run: String::new(),
                line: "{}".to_owned(),
            };
            let record = TrajectoryRecord {
                trajectory_id: format!("t{number}"),
                trace_id,
                start_ns: number as i64 * 100,
                end_ns: number as i64 * 110,
                agent: (*agent).to_owned(),
                query: (*query).to_owned(),
                steps: scores.len() as u32,
                is_error: number == 3,
                tokens: 10,
                cost_usd: (number == 1).then_some(0.5),
                outcomes: scores.iter().enumerate().map(outcome).collect(),
                ..TrajectoryRecord::default()
            };
            let story = store.trace(trace_id).unwrap().unwrap().story;
            let stories = vec![AssembledStory { story, due_ns: None, records: vec![record] }];
            store.assembled(stories, 2).unwrap().wait().unwrap();
        }
        let filter = MetricFilter { project: Some("shop".to_owned()), ..MetricFilter::default() };
        let totals = store.totals(&filter).unwrap();
        assert_eq!((totals.trajectories, totals.errors, totals.steps, totals.tokens), (4, 1, 6, 40));
        assert_eq!((totals.cost_usd, totals.durations_ns), (Some(0.5), vec![10, 20, 30, 40]));
        let tasks = store.worst_tasks(&filter, 5).unwrap();
        let shown: Vec<_> = tasks
            .iter()
            .map(|task| (task.query.as_str(), task.trajectories, task.wrong, task.scored))
            .collect();
        assert_eq!(shown, [("stock", 1, 1, 1), ("refund", 2, 1, 4)]);
        assert_eq!((tasks[1].trace_id, tasks[1].trajectory_id.as_str()), (1, "t1"));
        let later = MetricFilter { agent: Some("a".to_owned()), from_ns: Some(150), ..filter.clone() };
        assert_eq!(store.totals(&later).unwrap().trajectories, 2);
        assert_eq!(store.worst_tasks(&later, 5).unwrap(), []);
        let by_tool = MetricFilter { evaluator: Some("fit".to_owned()), ..filter.clone() };
        let rows = store.tool_metrics(&by_tool).unwrap();
        assert_eq!(rows, store.metrics(&by_tool, crate::MetricGroup::Tool).unwrap());
        assert_eq!(rows.iter().map(|row| row.moments.scored).sum::<i64>(), 6);
        let of_one = MetricFilter { agent: Some("b".to_owned()), ..by_tool };
        assert_eq!(store.tool_metrics(&of_one).unwrap()[0].moments.scored, 1);
        // What is added up in Rust is what SQL adds up.
        let cells = store.metric_cells(&filter, crate::BUCKET_NS).unwrap();
        let mut sums: Vec<(String, f64, i64)> = Vec::new();
        for cell in cells {
            match sums.iter_mut().find(|(agent, ..)| *agent == cell.agent) {
                Some((_, sum, count)) => {
                    (*sum, *count) = (*sum + cell.moments.sum, *count + cell.moments.scored)
                }
                None => sums.push((cell.agent, cell.moments.sum, cell.moments.scored)),
            }
        }
        let rows = store.metrics(&filter, crate::MetricGroup::Agent).unwrap();
        let wanted: Vec<_> =
            rows.iter().map(|row| (row.group.clone(), row.moments.sum, row.moments.scored)).collect();
        assert_eq!(sums, wanted);
        let none = MetricFilter { project: Some("none".to_owned()), ..filter };
        assert_eq!(store.totals(&none).unwrap(), Totals::default());
        assert_eq!(store.metric_cells(&none, crate::BUCKET_NS).unwrap(), []);
    }
}
