//! What a page about many trajectories says: how many, how long, how dear, and which tasks go wrong most.

use rusqlite::types::Value;
use rusqlite::{Connection, params};

use super::metrics::numbers_of_projects;
use super::{MetricFilter, project_number};
use crate::Store;
use crate::error::StoreError;
use crate::facets::FacetKind;

/// Sums over trajectories; of many, the latest.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Totals {
    pub trajectories: u64,
    pub errors: u64,
    /// Of those whose cost is known.
    pub costed: u64,
    pub cost_usd: f64,
    /// How long they took, shortest first.
    pub durations_ns: Vec<i64>,
}

/// What the trajectories of a version came to.
#[derive(Clone, Debug, PartialEq)]
pub struct VersionRow {
    pub version: String,
    pub totals: Totals,
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
    /// The latest of them in which something was wrong, and the first step that was; none where it is the whole.
    pub trace_id: u128,
    pub trajectory_id: String,
    pub step: Option<u32>,
}

/// The latest trajectories that fit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Latest {
    pub totals: Totals,
    /// Those whose trajectories came last first.
    pub versions: Vec<VersionRow>,
    /// The tasks with the greatest share of verdicts below the best.
    pub tasks: Vec<TaskRow>,
    /// There are more than were looked at.
    pub is_cut: bool,
}

/// Trajectories that totals are taken of.
const MOST: usize = 2_000;
/// Trajectories that are looked at for those that fit, in all projects together.
const LOOKED_AT: usize = 8_000;
/// Trajectories whose verdicts are looked at.
const MOST_JUDGED: usize = 500;
/// A name is sought in each project, or, when there are more, among all trajectories.
const MOST_WALKS: usize = 16;

struct Seen {
    no: i64,
    start_ns: i64,
    took_ns: i64,
    is_error: bool,
    cost_usd: Option<f64>,
    version: String,
}

impl Totals {
    fn add(&mut self, seen: &Seen) {
        self.trajectories += 1;
        self.errors += u64::from(seen.is_error);
        self.costed += u64::from(seen.cost_usd.is_some());
        self.cost_usd += seen.cost_usd.unwrap_or(0.0);
        self.durations_ns.push(seen.took_ns);
    }
}

impl Store {
    /// The latest trajectories that fit, and the tasks among them that go wrong most; the filter's evaluator and tool are
    /// passed over.
    pub fn latest(&self, filter: &MetricFilter, most_tasks: usize) -> Result<Latest, StoreError> {
        let reader = self.readers.take()?;
        let sql: &Connection = &*reader.unchecked_transaction()?;
        let (seen, is_cut) = seen(sql, filter)?;
        let mut latest = Latest { is_cut, ..Latest::default() };
        for one in &seen {
            latest.totals.add(one);
            let known = latest.versions.iter().position(|row| row.version == one.version);
            match known {
                Some(at) => latest.versions[at].totals.add(one),
                None if one.version.is_empty() || latest.versions.len() == MOST_VERSIONS => {}
                None => {
                    let mut totals = Totals::default();
                    totals.add(one);
                    latest.versions.push(VersionRow { version: one.version.clone(), totals });
                }
            }
        }
        latest.totals.durations_ns.sort_unstable();
        latest.versions.iter_mut().for_each(|row| row.totals.durations_ns.sort_unstable());
        let numbers: Vec<i64> = seen.iter().take(MOST_JUDGED).map(|one| one.no).collect();
        latest.tasks = worst_tasks(sql, &numbers, most_tasks)?;
        Ok(latest)
    }
}

/// Versions that are told apart.
const MOST_VERSIONS: usize = 20;

fn worst_tasks(sql: &Connection, numbers: &[i64], limit: usize) -> Result<Vec<TaskRow>, StoreError> {
    let mut statement = sql.prepare_cached(
        "SELECT t.query, count(DISTINCT t.no), sum(o.is_wrong) AS wrong, count(o.score), \
         max(CASE WHEN o.is_wrong THEN t.no END) AS last \
         FROM json_each(?) j CROSS JOIN trajectory t ON t.no = j.value \
         CROSS JOIN outcome o ON o.trajectory = t.no AND o.kind = 0 \
         WHERE t.query <> '' GROUP BY t.query HAVING wrong > 0 \
         ORDER BY 1.0 * wrong / count(o.score) DESC, wrong DESC LIMIT ?",
    )?;
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

/// The latest trajectories that fit, newest first, and whether there are more than were looked at.
fn seen(sql: &Connection, filter: &MetricFilter) -> Result<(Vec<Seen>, bool), StoreError> {
    let project = match &filter.project {
        None => None,
        Some(name) => match project_number(sql, name)? {
            Some(number) => Some(number),
            None => return Ok((Vec::new(), false)),
        },
    };
    let names = [
        (FacetKind::Agent, &filter.agent),
        (FacetKind::Version, &filter.version),
        (FacetKind::Model, &filter.model),
    ];
    let driver = names.into_iter().find_map(|(kind, name)| Some((kind, name.as_ref()?)));
    let mut walks = match (driver, project) {
        (None, project) => Walks::one(
            sql,
            &plain_walk(project.is_some()),
            project.map(Value::Integer).into_iter().collect(),
            filter,
        )?,
        (Some((kind, name)), project) => {
            let mut projects = project.map_or_else(|| numbers_of_projects(sql), |one| Ok(vec![one]))?;
            projects.truncate(MOST_WALKS + 1);
            if projects.len() > MOST_WALKS {
                Walks::one(sql, &plain_walk(false), Vec::new(), filter)?
            } else {
                let mut walks = Walks::default();
                for (project, left) in projects.iter().zip((1..=projects.len()).rev()) {
                    let first =
                        [Value::Integer(*project), Value::Integer(kind as i64), Value::Text(name.clone())];
                    // What one project has no use for is for the others.
                    let most = (LOOKED_AT - walks.looked_at) / left;
                    walks.go(sql, &facet_walk(), first.into(), filter, most)?;
                }
                walks
            }
        }
    };
    // Where one way ended early, nothing that is older is known of it: the others stop there too.
    if let Some(horizon) = walks.horizon {
        walks.seen.retain(|one| one.start_ns >= horizon);
    }
    let Walks { mut seen, horizon, .. } = walks;
    seen.sort_by_key(|one| std::cmp::Reverse((one.start_ns, one.no)));
    let is_cut = horizon.is_some() || seen.len() > MOST;
    seen.truncate(MOST);
    Ok((seen, is_cut))
}

const COLUMNS: &str = "t.no, t.start_ns, t.end_ns - t.start_ns, t.is_error, t.cost_usd, t.version, \
                       (:agent IS NULL OR t.agent = :agent) AND (:version IS NULL OR t.version = :version) \
                       AND (:model IS NULL OR t.model = :model)";

/// By time alone. Whether one fits is told and not asked for, so that the limit bounds what is looked at.
fn plain_walk(of_project: bool) -> String {
    let (index, within) =
        if of_project { ("trajectory_by_project", "t.project = ? AND") } else { ("trajectory_by_start", "") };
    format!(
        "SELECT {COLUMNS} FROM trajectory t INDEXED BY {index} WHERE {within} t.start_ns >= :from AND t.start_ns < :to \
         ORDER BY t.start_ns DESC LIMIT :most"
    )
}

/// By a name that a trace is found by.
fn facet_walk() -> String {
    format!(
        "SELECT {COLUMNS} FROM facet f CROSS JOIN trajectory t INDEXED BY trajectory_by_trace ON t.trace = f.trace \
         WHERE f.project = ? AND f.kind = ? AND f.value = ? AND f.start_ns >= :from AND f.start_ns < :to \
         ORDER BY f.start_ns DESC LIMIT :most"
    )
}

/// What was found on the way through one project after the other.
#[derive(Default)]
struct Walks {
    seen: Vec<Seen>,
    looked_at: usize,
    /// The latest time at which one of the ways ended before all was looked at.
    horizon: Option<i64>,
}

impl Walks {
    fn one(
        sql: &Connection,
        statement: &str,
        first: Vec<Value>,
        filter: &MetricFilter,
    ) -> Result<Walks, StoreError> {
        let mut walks = Walks::default();
        walks.go(sql, statement, first, filter, LOOKED_AT)?;
        Ok(walks)
    }

    /// The first values are those without a name in the statement.
    fn go(
        &mut self,
        sql: &Connection,
        statement: &str,
        first: Vec<Value>,
        filter: &MetricFilter,
        most: usize,
    ) -> Result<(), StoreError> {
        let mut statement = sql.prepare_cached(statement)?;
        let text = |name: &Option<String>| name.clone().map_or(Value::Null, Value::Text);
        let mut first = first.into_iter();
        for index in 1..=statement.parameter_count() {
            let value = match statement.parameter_name(index) {
                Some(":agent") => text(&filter.agent),
                Some(":version") => text(&filter.version),
                Some(":model") => text(&filter.model),
                Some(":from") => Value::Integer(filter.from_ns.unwrap_or(i64::MIN)),
                Some(":to") => Value::Integer(filter.to_ns.unwrap_or(i64::MAX)),
                Some(":most") => Value::Integer(most as i64),
                _ => first.next().unwrap_or(Value::Null),
            };
            statement.raw_bind_parameter(index, value)?;
        }
        let mut rows = statement.raw_query();
        let (mut found, mut looked_at, mut last) = (0, 0, None);
        while let Some(row) = rows.next()? {
            looked_at += 1;
            let start_ns = row.get(1)?;
            last = Some(start_ns);
            if row.get(6)? {
                found += 1;
                self.seen.push(Seen {
                    no: row.get(0)?,
                    start_ns,
                    took_ns: row.get(2)?,
                    is_error: row.get(3)?,
                    cost_usd: row.get(4)?,
                    version: row.get(5)?,
                });
            }
            if found > MOST {
                break;
            }
        }
        self.looked_at += looked_at;
        if looked_at == most || found > MOST {
            self.horizon = self.horizon.max(last);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use gradus_core::span::TraceId;

    use super::*;
    use crate::connection::{assert_plan, open_writer};
    use crate::{
        AssembledStory, BlockSignal, Chunk, OutcomeRecord, RecordedKind, StoreOptions, TrajectoryRecord,
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
            let mut chunk = Chunk::new(trace_id, "shop".into(), BlockSignal::Spans, b"");
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
                outcomes: scores.iter().enumerate().map(outcome).collect(),
                ..TrajectoryRecord::default()
            };
            let story = store.trace(trace_id).unwrap().unwrap().story;
            let stories = vec![AssembledStory { story, due_ns: None, records: vec![record] }];
            store.assembled(stories, 2).unwrap().wait().unwrap();
        }
        let filter = MetricFilter { project: Some("shop".to_owned()), ..MetricFilter::default() };
        let latest = store.latest(&filter, 5).unwrap();
        let totals = &latest.totals;
        assert_eq!((totals.trajectories, totals.errors), (4, 1));
        assert_eq!((totals.costed, totals.cost_usd), (1, 0.5));
        assert_eq!((&totals.durations_ns, latest.is_cut), (&vec![10, 20, 30, 40], false));
        let versions: Vec<_> = latest
            .versions
            .iter()
            .map(|row| (row.version.as_str(), row.totals.trajectories, &row.totals.durations_ns[..]))
            .collect();
        assert_eq!(versions, [("2", 2, &[30, 40][..]), ("1", 2, &[10, 20][..])]);
        let tasks = &latest.tasks;
        let shown: Vec<_> = tasks
            .iter()
            .map(|task| (task.query.as_str(), task.trajectories, task.wrong, task.scored))
            .collect();
        assert_eq!(shown, [("stock", 1, 1, 1), ("refund", 2, 1, 4)]);
        assert_eq!((tasks[1].trace_id, tasks[1].trajectory_id.as_str(), tasks[1].step), (1, "t1", Some(2)));
        let later = MetricFilter { agent: Some("a".to_owned()), from_ns: Some(150), ..filter.clone() };
        let latest = store.latest(&later, 5).unwrap();
        assert_eq!((latest.totals.trajectories, latest.tasks), (2, vec![]));
        // In all projects, and by more than one name.
        let of_all = MetricFilter {
            agent: Some("a".to_owned()),
            version: Some("1".to_owned()),
            ..MetricFilter::default()
        };
        assert_eq!(store.latest(&of_all, 5).unwrap().totals.trajectories, 2);
        let nobody = MetricFilter { agent: Some("nobody".to_owned()), ..filter.clone() };
        assert_eq!(store.latest(&nobody, 5).unwrap(), Latest::default());
        let none = MetricFilter { project: Some("none".to_owned()), ..filter.clone() };
        assert_eq!(store.latest(&none, 5).unwrap(), Latest::default());
        // How far a way went that ended early is known.
        let reader = store.readers.take().unwrap();
        let mut walks = Walks::default();
        let mut go = |most| {
            walks.go(&reader, &plain_walk(false), Vec::new(), &filter, most).unwrap();
            (walks.seen.len(), walks.looked_at, walks.horizon)
        };
        assert_eq!(go(9), (4, 4, None));
        assert_eq!(go(2), (6, 6, Some(300)));
        assert_eq!(go(3), (9, 9, Some(300)));
    }

    #[test]
    fn what_is_looked_at_has_a_bound_and_is_not_sorted() {
        let folder = tempfile::tempdir().unwrap();
        let sql = open_writer(&folder.path().join("store.db")).unwrap();
        assert_plan(
            &sql,
            &plain_walk(true),
            "trajectory_by_project (project=? AND start_ns>? AND start_ns<?)",
        );
        assert_plan(&sql, &plain_walk(false), "trajectory_by_start (start_ns>? AND start_ns<?)");
        let way = "PRIMARY KEY (project=? AND kind=? AND value=? AND start_ns>? AND start_ns<?)";
        assert_plan(&sql, &facet_walk(), way);
        // A name is told of a row, and no condition: nothing is passed over before it is counted.
        for statement in [plain_walk(true), plain_walk(false), facet_walk()] {
            let behind = statement.split(" WHERE ").nth(1).unwrap();
            assert!(!behind.contains(":agent") && behind.ends_with("LIMIT :most"), "{statement}");
        }
    }
}
