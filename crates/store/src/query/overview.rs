//! Data of the overview page: how many trajectories, how long, how expensive, and which tasks fail most. Percentiles
//! cannot be computed from rollups, so the latest trajectories themselves are read, up to a bound.

use crate::sql::{SqlConnection, SqlParam, params};

use super::MetricFilter;
use super::latest::{LatestTrajectory, find_latest_trajectories};
use crate::Store;
use crate::error::StoreError;

/// Sums over trajectories; if there are many, over the latest.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OverviewTotals {
    pub trajectories: u64,
    pub errors: u64,
    /// Trajectories whose cost is known.
    pub costed: u64,
    pub cost_usd: f64,
    /// Durations in ascending order, for percentiles.
    pub durations_ns: Vec<i64>,
}

/// Totals of one version.
#[derive(Clone, Debug, PartialEq)]
pub struct VersionRow {
    pub version: String,
    pub totals: OverviewTotals,
}

/// Trajectories with the same query.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskRow {
    /// The beginning of the query.
    pub query: String,
    pub trajectories: u64,
    /// Outcomes below the best score, and all with a score.
    pub wrong: u64,
    pub scored: u64,
    /// The latest trajectory with a wrong outcome, and its first wrong step; `None` if only the trajectory as a whole
    /// is wrong.
    pub trace_id: u128,
    pub trajectory_id: String,
    pub step: Option<u32>,
}

/// Trajectories that ended in the same way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunEndingRow {
    /// The label that the evaluator gave the whole trajectory.
    pub label: String,
    pub trajectories: u64,
    /// Whether it is below the best label.
    pub is_wrong: bool,
    /// Whether it has a score; a label without one is neither good nor bad.
    pub is_scored: bool,
}

/// Overview of the latest matching trajectories.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LatestOverview {
    pub totals: OverviewTotals,
    /// Versions, those with the latest trajectories first.
    pub versions: Vec<VersionRow>,
    /// The tasks with the highest share of outcomes below the best.
    pub tasks: Vec<TaskRow>,
    /// How the trajectories ended, most frequent first.
    pub endings: Vec<RunEndingRow>,
    /// Whether there are more trajectories than were examined.
    pub is_cut: bool,
}

/// Maximum number of trajectories whose outcomes are read.
const MAX_TRAJECTORIES_WITH_OUTCOMES: usize = 500;
impl OverviewTotals {
    /// Adds a trajectory. Durations are sorted by the caller, once all are added.
    fn add(&mut self, seen: &LatestTrajectory) {
        self.trajectories += 1;
        self.errors += u64::from(seen.is_error);
        self.costed += u64::from(seen.cost_usd.is_some());
        self.cost_usd += seen.cost_usd.unwrap_or(0.0);
        self.durations_ns.push(seen.took_ns);
    }
}

impl Store {
    /// Overview of the latest matching trajectories. Evaluator and tool of the filter are ignored. `ending_evaluator` is
    /// the one whose labels say how a trajectory ended.
    pub fn latest_overview(
        &self,
        filter: &MetricFilter,
        most_tasks: usize,
        ending_evaluator: &str,
    ) -> Result<LatestOverview, StoreError> {
        let reader = self.readers.take_reader()?;
        let sql: &SqlConnection = &*reader.snapshot()?;
        let (seen, is_cut) = find_latest_trajectories(sql, filter)?;
        let mut latest = LatestOverview { is_cut, ..LatestOverview::default() };
        for one in &seen {
            latest.totals.add(one);
            let known = latest.versions.iter().position(|row| row.version == one.version);
            match known {
                Some(at) => latest.versions[at].totals.add(one),
                None if latest.versions.len() == MAX_VERSIONS => {}
                None => {
                    let mut totals = OverviewTotals::default();
                    totals.add(one);
                    latest.versions.push(VersionRow { version: one.version.clone(), totals });
                }
            }
        }
        latest.totals.durations_ns.sort_unstable();
        latest.versions.iter_mut().for_each(|row| row.totals.durations_ns.sort_unstable());
        let numbers: Vec<i64> = seen.iter().take(MAX_TRAJECTORIES_WITH_OUTCOMES).map(|one| one.no).collect();
        latest.tasks = worst_tasks(sql, &numbers, most_tasks)?;
        latest.endings = count_endings(sql, seen.iter().map(|one| one.no), ending_evaluator)?;
        Ok(latest)
    }
}

/// Counts the labels that an evaluator gave these trajectories as a whole.
fn count_endings(
    sql: &SqlConnection,
    numbers: impl Iterator<Item = i64>,
    evaluator: &str,
) -> Result<Vec<RunEndingRow>, StoreError> {
    let sets: Vec<[SqlParam<'_>; 2]> =
        numbers.map(|number| [SqlParam::Integer(number), SqlParam::Text(evaluator)]).collect();
    let found = sql.query_each(
        "SELECT label, is_wrong, score IS NOT NULL FROM outcome WHERE trajectory = ? AND evaluator = ? AND step = 0",
        &sets,
        |row| Ok((row.get::<Option<String>>(0)?, row.get::<bool>(1)?, row.get::<bool>(2)?)),
    )?;
    let mut endings: Vec<RunEndingRow> = Vec::new();
    for (label, is_wrong, is_scored) in found.into_iter().flatten() {
        let Some(label) = label else { continue };
        match endings.iter_mut().find(|known| known.label == label) {
            Some(known) => known.trajectories += 1,
            None => endings.push(RunEndingRow { label, trajectories: 1, is_wrong, is_scored }),
        }
    }
    endings.sort_by(|a, b| b.trajectories.cmp(&a.trajectories).then_with(|| a.label.cmp(&b.label)));
    Ok(endings)
}

/// Maximum number of versions that are listed separately.
const MAX_VERSIONS: usize = 20;

/// Groups the outcomes of these trajectories by query, worst share first.
fn worst_tasks(sql: &SqlConnection, numbers: &[i64], limit: usize) -> Result<Vec<TaskRow>, StoreError> {
    let listed = sql.choose("json_each(?) j", "json_array_elements_text(CAST(? AS JSON)) AS j (value)");
    let mut statement = sql.prepare_cached(&format!(
        "SELECT query, count(DISTINCT no), count(CASE WHEN is_wrong THEN score END) AS wrong, count(score), \
         max(CASE WHEN is_wrong THEN no END) \
         FROM (SELECT t.query, t.no, o.is_wrong, o.score FROM {listed} \
         CROSS JOIN trajectory t ON t.no = CAST(j.value AS BIGINT) \
         CROSS JOIN outcome o ON o.trajectory = t.no AND o.kind = 0 WHERE t.query <> '') AS judged \
         GROUP BY query HAVING count(CASE WHEN is_wrong THEN score END) > 0 \
         ORDER BY 1.0 * count(CASE WHEN is_wrong THEN score END) / count(score) DESC, wrong DESC LIMIT ?"
    ))?;
    let rows: Vec<(String, u64, u64, u64, i64)> = statement
        .query_map(params![serde_json::json!(numbers).to_string(), limit as i64], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?))
        })?
        .collect::<Result<_, _>>()?;
    let mut find = sql.prepare_cached(
        "SELECT trace.trace_id, trajectory_id, \
         (SELECT min(step) FROM outcome WHERE trajectory = trajectory.no AND is_wrong AND step > 0) \
         FROM trajectory JOIN trace ON trace.no = trajectory.trace WHERE trajectory.no = ?",
    )?;
    let mut tasks = Vec::with_capacity(rows.len());
    for (query, trajectories, wrong, scored, last) in rows {
        let (trace_id, trajectory_id, step): ([u8; 16], String, Option<u32>) =
            find.query_row([last], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        let trace_id = u128::from_be_bytes(trace_id);
        tasks.push(TaskRow { query, trajectories, wrong, scored, trace_id, trajectory_id, step });
    }
    Ok(tasks)
}

#[cfg(test)]
mod tests {
    use gradus_core::span::TraceId;

    use super::*;
    use crate::query::latest::{LatestScan, LatestWalk};
    use crate::query::project_number;
    use crate::records::FacetKind;
    use crate::sql::SqlValue;
    use crate::{
        AssembledTraceGroup, BlockSignal, OutcomeRecord, RecordedKind, StoreOptions, TraceChunk, TrajectoryRecord,
    };

    #[test]
    fn totals_and_worst_tasks_are_of_what_fits() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path(), StoreOptions::default()).unwrap();
        // A query, an agent, and the scores of its steps.
        let all: [(&str, &str, &[f64]); 4] = [
            ("refund", "a", &[5.0, 3.0]),
            ("refund", "a", &[5.0, 5.0]),
            ("stock", "b", &[1.0]),
            ("hello", "a", &[5.0]),
        ];
        for ((query, agent, scores), number) in all.iter().zip(1..) {
            let trace_id = TraceId(number);
            let mut chunk = TraceChunk::new(trace_id, "shop".into(), BlockSignal::Spans, b"");
            chunk.start_ns = number as u64 * 100;
            store.ingest(vec![chunk], 1).unwrap().wait().unwrap();
            let outcome = |(step, score): (usize, &f64)| OutcomeRecord {
                evaluator: "fit".to_owned(),
                step: Some(step as u32 + 1),
                kind: RecordedKind::Scored,
                label: None,
                score: Some(*score),
                is_wrong: *score < 5.0,
                tool: "look".to_owned(),
                run: String::new(),
                line: "{}".to_owned(),
                failure_group: None,
            };
            let record = TrajectoryRecord {
                trajectory_id: format!("t{number}"),
                trace_id,
                start_ns: number as i64 * 100,
                end_ns: number as i64 * 110,
                agent: (*agent).to_owned(),
                version: if number < 3 { "1" } else { "2" }.to_owned(),
                model: "m".to_owned(),
                query: (*query).to_owned(),
                steps: scores.len() as u32,
                is_error: number == 3,
                tokens: 10,
                cost_usd: (number == 1).then_some(0.5),
                outcomes: scores
                    .iter()
                    .enumerate()
                    .map(outcome)
                    .chain([OutcomeRecord {
                        evaluator: "end".to_owned(),
                        step: None,
                        label: Some(if number == 3 { "crashed" } else { "answered" }.to_owned()),
                        score: None,
                        is_wrong: number == 3,
                        ..outcome((0, &5.0))
                    }])
                    .collect(),
                ..TrajectoryRecord::default()
            };
            let trace_group = store.trace(trace_id).unwrap().unwrap().trace_group;
            let trace_groups = vec![AssembledTraceGroup { trace_group, due_ns: None, records: vec![record] }];
            store.store_assembled_groups(trace_groups, 2).unwrap().wait().unwrap();
        }
        let filter = MetricFilter { project: Some("shop".to_owned()), ..MetricFilter::default() };
        let latest = store.latest_overview(&filter, 5, "end").unwrap();
        let totals = &latest.totals;
        assert_eq!((totals.trajectories, totals.errors), (4, 1));
        assert_eq!((totals.costed, totals.cost_usd), (1, 0.5));
        assert_eq!((&totals.durations_ns, latest.is_cut), (&vec![10, 20, 30, 40], false));
        let ending = |label: &str, trajectories, is_wrong| RunEndingRow {
            label: label.to_owned(),
            trajectories,
            is_wrong,
            is_scored: false,
        };
        assert_eq!(latest.endings, [ending("answered", 3, false), ending("crashed", 1, true)]);
        let versions: Vec<_> = latest
            .versions
            .iter()
            .map(|row| (row.version.as_str(), row.totals.trajectories, &row.totals.durations_ns[..]))
            .collect();
        assert_eq!(versions, [("2", 2, &[30, 40][..]), ("1", 2, &[10, 20][..])]);
        let tasks = &latest.tasks;
        let shown: Vec<_> =
            tasks.iter().map(|task| (task.query.as_str(), task.trajectories, task.wrong, task.scored)).collect();
        assert_eq!(shown, [("stock", 1, 1, 1), ("refund", 2, 1, 4)]);
        assert_eq!((tasks[1].trace_id, tasks[1].trajectory_id.as_str(), tasks[1].step), (1, "t1", Some(2)));
        let later = MetricFilter { agent: Some("a".to_owned()), from_ns: Some(150), ..filter.clone() };
        let latest = store.latest_overview(&later, 5, "end").unwrap();
        assert_eq!((latest.totals.trajectories, latest.tasks), (2, vec![]));
        // In all projects, and by more than one name.
        let of_all =
            MetricFilter { agent: Some("a".to_owned()), version: Some("1".to_owned()), ..MetricFilter::default() };
        assert_eq!(store.latest_overview(&of_all, 5, "end").unwrap().totals.trajectories, 2);
        let nobody = MetricFilter { agent: Some("nobody".to_owned()), ..filter.clone() };
        assert_eq!(store.latest_overview(&nobody, 5, "end").unwrap(), LatestOverview::default());
        let none = MetricFilter { project: Some("none".to_owned()), ..filter.clone() };
        assert_eq!(store.latest_overview(&none, 5, "end").unwrap(), LatestOverview::default());
        // How far a way went that ended early is known.
        let reader = store.readers.take_reader().unwrap();
        let mut walks = LatestScan::default();
        let mut go = |most| {
            walks.scan_rows(&reader, &LatestWalk::by_time(false), &[], &filter, most).unwrap();
            (walks.seen.len(), walks.horizon)
        };
        assert_eq!(go(9), (4, None));
        assert_eq!(go(2), (6, Some(300)));
        assert_eq!(go(3), (9, Some(300)));
        // Every way finds the same in portions of every size.
        let project = project_number(&reader, "shop").unwrap().unwrap();
        let facet = [project, FacetKind::Agent as i64].map(SqlValue::Integer).into_iter();
        let of_facet: Vec<SqlValue> = facet.chain([SqlValue::Text("a".to_owned())]).collect();
        let ways = [
            (LatestWalk::by_time(false), Vec::new(), vec![4, 3, 2, 1]),
            (LatestWalk::by_time(true), vec![SqlValue::Integer(project)], vec![4, 3, 2, 1]),
            (LatestWalk::by_facet(), of_facet, vec![4, 2, 1]),
        ];
        for (way, own, expected) in ways {
            for portion in 1..6 {
                let mut scan = LatestScan::default();
                scan.scan_portions(&reader, &way, &own, &filter, 100, portion).unwrap();
                let starts: Vec<i64> = scan.seen.iter().map(|one| one.start_ns / 100).collect();
                assert_eq!((&starts, scan.horizon), (&expected, None), "portions of {portion}");
            }
        }
    }
}
