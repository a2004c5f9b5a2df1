//! The review queue: verdicts for people to check one after another, and the labels that people gave.

use std::fmt;
use std::ops::ControlFlow;
use std::str::FromStr;

use crate::sql::{OptionalRow, SqlConnection, SqlRow, SqlValue, params, params_from_iter};

use super::project_number;
use super::trace_list_page::{FIRST_PORTION, PORTION_GROWTH};
use crate::Store;
use crate::error::StoreError;

/// Selects verdicts for review.
#[derive(Clone, Debug, Default)]
pub struct ReviewFilter {
    pub project: Option<String>,
    pub agent: Option<String>,
    pub version: Option<String>,
    pub model: Option<String>,
    /// Trajectories that began at or after this time, and before `to_ns`.
    pub from_ns: Option<i64>,
    pub to_ns: Option<i64>,
    pub evaluator: Option<String>,
    /// Only those below the best score.
    pub only_wrong: bool,
    /// Outcomes that the judge could not judge, instead of verdicts.
    pub only_failed: bool,
    /// Only verdicts of this failure group, by its key.
    pub failure_group: Option<String>,
    /// Verdicts that this person has labelled already are skipped.
    pub author: String,
}

/// Position of a verdict in the review order: newest trajectories first, then by step and evaluator. Its text is the
/// cursor in addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReviewPosition {
    pub start_ns: i64,
    pub trajectory: i64,
    pub step: u32,
    pub evaluator: String,
}

/// A verdict to review.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReviewItem {
    pub place: ReviewPosition,
    pub trajectory_id: String,
    pub trace_id: u128,
}

/// A label that a person gave, and the present verdict of the judge.
#[derive(Clone, Debug, PartialEq)]
pub struct LabelRow {
    pub no: i64,
    pub project: String,
    pub trace_id: u128,
    /// Number of the trajectory in the store.
    pub trajectory: i64,
    pub trajectory_id: String,
    /// `None` for the trajectory as a whole.
    pub step: Option<u32>,
    pub evaluator: String,
    /// The name that the person entered; anyone can enter any name.
    pub author: String,
    /// Identifies the person. With API keys it is the name of the key, which others cannot use.
    pub identifier: String,
    pub label: String,
    pub note: Option<String>,
    pub updated_ns: i64,
    /// What was stored with the label, as a JSON object.
    pub metadata: String,
    /// `None` if there is no verdict, or no longer.
    pub judge_label: Option<String>,
    /// The present outcome as JSON; only if it was asked for.
    pub judged: Option<String>,
}

/// Maximum number of trajectories that one request examines.
const MAX_TRAJECTORIES: i64 = 5_000;

impl fmt::Display for ReviewPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}.{:x}.{:x}.{}", self.start_ns, self.trajectory, self.step, self.evaluator)
    }
}

impl FromStr for ReviewPosition {
    type Err = ();

    fn from_str(text: &str) -> Result<ReviewPosition, ()> {
        let mut parts = text.splitn(4, '.');
        let mut next = || parts.next().ok_or(());
        let number = |digits: &str| i64::from_str_radix(digits, 16).map_err(drop);
        Ok(ReviewPosition {
            start_ns: number(next()?)?,
            trajectory: number(next()?)?,
            step: u32::from_str_radix(next()?, 16).map_err(drop)?,
            evaluator: next()?.to_owned(),
        })
    }
}

impl Store {
    /// The next verdict behind a position. If there is none among the trajectories that one request examines, returns
    /// the position to continue from, if there is more.
    pub fn next_verdict(
        &self,
        filter: &ReviewFilter,
        after: Option<&ReviewPosition>,
    ) -> Result<(Option<ReviewItem>, Option<ReviewPosition>), StoreError> {
        let reader = self.readers.take_reader()?;
        let sql: &SqlConnection = &*reader.snapshot()?;
        let Some(walk) = ReviewWalk::new(sql, filter)? else { return Ok((None, None)) };
        let start = after.map_or((i64::MAX, i64::MAX), |place| (place.start_ns, place.trajectory));
        let (mut examined, mut last, mut item) = (0, None, None);
        walk.visit_trajectories(sql, start, MAX_TRAJECTORIES, |row| {
            examined += 1;
            let (start_ns, trajectory): (i64, i64) = (row.get(0)?, row.get(1)?);
            let trajectory_id: String = row.get(2)?;
            let passed = after.filter(|place| place.trajectory == trajectory);
            let mut found = None;
            walk.visit_verdicts(sql, row, |step, evaluator, is_labelled| {
                let is_passed = passed.is_some_and(|place| (step, evaluator) <= (place.step, &*place.evaluator));
                if is_passed || is_labelled()? {
                    return Ok(ControlFlow::Continue(()));
                }
                found = Some((step, evaluator.to_owned()));
                Ok(ControlFlow::Break(()))
            })?;
            if let Some((step, evaluator)) = found {
                let trace_id = load_trace_id(sql, row.get(3)?)?;
                let place = ReviewPosition { start_ns, trajectory, step, evaluator };
                item = Some(ReviewItem { place, trajectory_id, trace_id });
                return Ok(ControlFlow::Break(()));
            }
            last = Some(ReviewPosition { start_ns, trajectory, step: u32::MAX, evaluator: String::new() });
            Ok(ControlFlow::Continue(()))
        })?;
        if item.is_some() {
            return Ok((item, None));
        }
        Ok((None, last.filter(|_| examined == MAX_TRAJECTORIES)))
    }

    /// Labels, the latest first.
    pub fn labels(&self, project: Option<&str>, limit: usize) -> Result<Vec<LabelRow>, StoreError> {
        self.read_labels(project, None, limit)
    }

    /// The next labels behind a time and a number, in the order in which they were given, with the outcomes that they
    /// are about. A label that is changed meanwhile comes again with its new value.
    pub fn labels_after(
        &self,
        project: Option<&str>,
        after: (i64, i64),
        limit: usize,
    ) -> Result<Vec<LabelRow>, StoreError> {
        self.read_labels(project, Some(after), limit)
    }

    /// Reads labels in either order. The outcome itself is read only if the caller exports it.
    fn read_labels(
        &self,
        project: Option<&str>,
        after: Option<(i64, i64)>,
        limit: usize,
    ) -> Result<Vec<LabelRow>, StoreError> {
        let reader = self.readers.take_reader()?;
        let sql: &SqlConnection = &*reader.snapshot()?;
        let mut values = Vec::new();
        if let Some(name) = project {
            let Some(project) = project_number(sql, name)? else { return Ok(Vec::new()) };
            values.push(SqlValue::Integer(project));
        }
        match after {
            Some((updated_ns, no)) => values.extend([updated_ns, no].map(SqlValue::Integer)),
            None => values.push(SqlValue::Integer(i64::MAX)),
        }
        values.push(SqlValue::Integer(i64::try_from(limit).unwrap_or(i64::MAX)));
        let mut statement = sql.prepare_cached(&label_walk_sql(project.is_some(), after.is_some()))?;
        let mut rows = statement.query(params_from_iter(values))?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            let step: Option<i64> = row.get(9)?;
            found.push(LabelRow {
                no: row.get(0)?,
                evaluator: row.get(1)?,
                author: row.get(2)?,
                label: row.get(3)?,
                note: row.get(4)?,
                updated_ns: row.get(5)?,
                metadata: row.get(6)?,
                trajectory: row.get(7)?,
                trajectory_id: row.get(8)?,
                step: step.map(|step| u32::try_from(step).unwrap_or(u32::MAX)),
                trace_id: u128::from_be_bytes(row.get(10)?),
                project: row.get(11)?,
                judge_label: row.get(12)?,
                judged: row.get(13)?,
                identifier: row.get(14)?,
            });
        }
        Ok(found)
    }
}

/// Labels with the trajectory they are about and the present outcome. A target ends in `#` and the step, if it is about
/// one. Since an id may contain `#` as well, a trajectory whose id is the whole text takes precedence.
fn label_walk_sql(of_project: bool, in_order: bool) -> String {
    // A target without the digits at its end: what is before the number of the step.
    const STEM: &str = "rtrim(a.target, '0123456789')";
    // The number of the step. More digits than a step can have are part of an id.
    let step = format!(
        "CASE WHEN whole.no IS NULL AND length(a.target) - length({STEM}) BETWEEN 1 AND 9 \
         THEN CAST(substr(a.target, length({STEM}) + 1) AS BIGINT) END"
    );
    // By the index of names and not of projects: there are few labels.
    let within = if of_project { "+a.project = ? AND" } else { "" };
    let (line, bound, order) = match in_order {
        true => ("o.line", "(a.updated_ns, a.no) > (?, ?)", "a.updated_ns, a.no"),
        false => ("NULL", "a.updated_ns < ?", "a.updated_ns DESC, a.no DESC"),
    };
    format!(
        "SELECT a.no, a.name, a.author, a.label, a.explanation, a.updated_ns, a.metadata, t.no, t.trajectory_id, \
         {step}, trace.trace_id, \
         project.name, o.label, {line}, a.identifier \
         FROM annotation a \
         LEFT JOIN trajectory whole ON whole.trajectory_id = substr(a.target, 12) \
         CROSS JOIN trajectory t ON t.trajectory_id = CASE WHEN whole.no IS NOT NULL THEN substr(a.target, 12) \
         WHEN length({STEM}) > 12 THEN substr({STEM}, 12, length({STEM}) - 12) END \
         CROSS JOIN trace ON trace.no = t.trace CROSS JOIN project ON project.no = t.project \
         LEFT JOIN outcome o ON o.trajectory = t.no AND o.evaluator = a.name AND o.step = coalesce({step}, 0) \
         WHERE {within} {bound} AND a.annotator = 'HUMAN' AND a.label IS NOT NULL AND a.trace IS NOT NULL \
         AND +a.target >= 'trajectory:' AND +a.target < 'trajectory;' \
         AND (whole.no IS NOT NULL OR ({STEM} LIKE '%#' AND {STEM} <> a.target)) \
         ORDER BY {order} LIMIT ?"
    )
}

/// The trajectories of a queue in its order.
pub(super) struct ReviewWalk<'f> {
    filter: &'f ReviewFilter,
    /// Columns: start, number, id, trace, agent, version and model.
    statement: String,
    project: Option<i64>,
    group: Option<i64>,
}

impl<'f> ReviewWalk<'f> {
    /// `None` if the project or failure group does not exist: the queue is empty.
    pub(super) fn new(sql: &SqlConnection, filter: &'f ReviewFilter) -> Result<Option<ReviewWalk<'f>>, StoreError> {
        let project = match &filter.project {
            None => None,
            Some(name) => match project_number(sql, name)? {
                Some(number) => Some(number),
                None => return Ok(None),
            },
        };
        let group = match &filter.failure_group {
            None => None,
            Some(key) => {
                let mut find = sql.prepare_cached("SELECT no FROM failure_group WHERE key = ?")?;
                match find.query_row([key], |row| row.get::<i64>(0)).optional()? {
                    Some(number) => Some(number),
                    None => return Ok(None),
                }
            }
        };
        let statement = match group {
            Some(_) => group_walk_sql(project.is_some()),
            None => trajectory_walk_sql(project.is_some()),
        };
        Ok(Some(ReviewWalk { filter, statement, project, group }))
    }

    /// Visits the trajectories from a start and a number on until `visit` breaks, at most `most` of them.
    pub(super) fn visit_trajectories(
        &self,
        sql: &SqlConnection,
        start: (i64, i64),
        most: i64,
        visit: impl FnMut(&SqlRow<'_>) -> Result<ControlFlow<()>, StoreError>,
    ) -> Result<(), StoreError> {
        // SQLite computes rows as they are read, PostgreSQL all of a statement before the first one is read.
        self.visit_portions(sql, start, most, sql.choose(most, FIRST_PORTION as i64), visit)
    }

    /// As [`ReviewWalk::visit_trajectories`]. `portion` is the maximum number of rows of the first statement.
    fn visit_portions(
        &self,
        sql: &SqlConnection,
        start: (i64, i64),
        most: i64,
        mut portion: i64,
        mut visit: impl FnMut(&SqlRow<'_>) -> Result<ControlFlow<()>, StoreError>,
    ) -> Result<(), StoreError> {
        let mut statement = sql.prepare_cached(&self.statement)?;
        // The end of the period is exclusive, the position inclusive.
        let newest = self.filter.to_ns.map_or((i64::MAX, i64::MAX), |to| (to.saturating_sub(1), i64::MAX));
        let oldest_ns = self.filter.from_ns.unwrap_or(i64::MIN);
        let (mut from, mut left) = (start.min(newest), most);
        loop {
            portion = portion.min(left);
            let values = [self.group, self.project].into_iter().flatten().chain([from.0, from.1, portion]);
            let mut rows = statement.query(params_from_iter(values))?;
            let mut row_count = 0;
            while let Some(row) = rows.next()? {
                row_count += 1;
                // The bound is inclusive.
                from = (row.get(0)?, row.get::<i64>(1)?.saturating_sub(1));
                if from.0 < oldest_ns || visit(&row)?.is_break() {
                    return Ok(());
                }
            }
            left -= row_count;
            if left == 0 || row_count < portion {
                return Ok(());
            }
            portion *= PORTION_GROWTH as i64;
        }
    }

    /// Visits the verdicts on the trajectory of a row that match, by step and evaluator. `visit` gets both, and a function
    /// that says whether this person has labelled the verdict.
    pub(super) fn visit_verdicts(
        &self,
        sql: &SqlConnection,
        trajectory_row: &SqlRow<'_>,
        mut visit: impl FnMut(
            u32,
            &str,
            &mut dyn FnMut() -> Result<bool, StoreError>,
        ) -> Result<ControlFlow<()>, StoreError>,
    ) -> Result<(), StoreError> {
        let filter = self.filter;
        // Not conditions of the walk: how many trajectories it examines has to stay bounded where few match.
        for (column, name) in [(4, &filter.agent), (5, &filter.version), (6, &filter.model)] {
            if let Some(name) = name
                && trajectory_row.get::<String>(column)? != *name
            {
                return Ok(());
            }
        }
        let (trajectory, trajectory_id): (i64, String) = (trajectory_row.get(1)?, trajectory_row.get(2)?);
        let mut verdicts = sql.prepare_cached(
            "SELECT step, evaluator FROM outcome WHERE trajectory = ?1 \
             AND (?2 IS NULL OR evaluator = ?2) AND CASE WHEN ?4 THEN kind = 2 ELSE kind = 0 AND label IS NOT NULL END \
             AND (NOT ?3 OR is_wrong) AND (CAST(?5 AS BIGINT) IS NULL OR failure_group = ?5) ORDER BY step, evaluator",
        )?;
        let mut labelled =
            sql.prepare_cached("SELECT 1 FROM annotation WHERE target = ? AND name = ? AND identifier = ? LIMIT 1")?;
        let mut rows = verdicts.query(params![
            trajectory,
            filter.evaluator,
            filter.only_wrong && !filter.only_failed,
            filter.only_failed,
            self.group,
        ])?;
        while let Some(row) = rows.next()? {
            let (step, evaluator): (u32, String) = (row.get(0)?, row.get(1)?);
            let mut is_labelled = || {
                let target = match step {
                    0 => format!("trajectory:{trajectory_id}"),
                    step => format!("trajectory:{trajectory_id}#{step}"),
                };
                let is_known = !filter.author.is_empty();
                Ok(is_known && labelled.exists(params![target, evaluator, filter.author])?)
            };
            if visit(step, &evaluator, &mut is_labelled)?.is_break() {
                break;
            }
        }
        Ok(())
    }
}

pub(super) fn load_trace_id(sql: &SqlConnection, trace: i64) -> Result<u128, StoreError> {
    let mut find = sql.prepare_cached("SELECT trace_id FROM trace WHERE no = ?")?;
    Ok(u128::from_be_bytes(find.query_row([trace], |row| row.get(0))?))
}

/// Trajectories by start, newest first, from a position on.
fn trajectory_walk_sql(of_project: bool) -> String {
    let (index, within) = match of_project {
        true => ("trajectory_by_project", "project = ? AND"),
        false => ("trajectory_by_start", ""),
    };
    format!(
        "SELECT start_ns, no, trajectory_id, trace, agent, version, model FROM trajectory INDEXED BY {index} \
         WHERE {within} (start_ns, no) <= (?, ?) ORDER BY start_ns DESC, no DESC LIMIT ?"
    )
}

/// Trajectories of a failure group in the same order.
fn group_walk_sql(of_project: bool) -> String {
    let within = if of_project { "AND failure.project = ?" } else { "" };
    format!(
        "SELECT failure.start_ns, failure.trajectory, trajectory_id, trace, failure.agent, failure.version, failure.model \
         FROM failure \
         CROSS JOIN trajectory ON trajectory.no = failure.trajectory \
         WHERE failure_group = ? {within} AND (failure.start_ns, failure.trajectory) <= (?, ?) \
         ORDER BY failure.start_ns DESC, failure.trajectory DESC LIMIT ?"
    )
}

#[cfg(test)]
mod tests {
    use gradus_core::span::TraceId;

    use super::*;
    use crate::connection::{assert_plan, open_writer};
    use crate::{
        AssembledTraceGroup, BlockSignal, FailureGroupKey, NewAnnotation, OutcomeRecord, RecordedKind, ReviewProgress,
        StoreOptions, TraceChunk, TrajectoryRecord,
    };

    /// Trajectories `a` and `b#1` of two steps each, both judged; the second step of each was found wrong.
    fn store() -> (tempfile::TempDir, Store) {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path(), StoreOptions::default()).unwrap();
        for (id, number) in [("a", 1), ("b#1", 2)] {
            let trace_id = TraceId(number);
            let chunk = TraceChunk::new(trace_id, "shop".into(), BlockSignal::Spans, b"");
            store.ingest(vec![chunk], 1).unwrap().wait().unwrap();
            let outcome = |step: u32| OutcomeRecord {
                evaluator: "fit".to_owned(),
                step: Some(step),
                kind: RecordedKind::Scored,
                label: Some(if step == 2 { "bad" } else { "good" }.to_owned()),
                score: Some(if step == 2 { 0.0 } else { 1.0 }),
                is_wrong: step == 2,
                tool: String::new(),
                run: String::new(),
                line: r#"{"judge":"rules"}"#.to_owned(),
                failure_group: (step == 2).then(|| FailureGroupKey {
                    // Each trajectory fails for a reason of its own.
                    key: format!("group-{number}"),
                    evaluator: "fit".to_owned(),
                    ..FailureGroupKey::default()
                }),
            };
            let unsure = |step: u32| OutcomeRecord {
                evaluator: "hard".to_owned(),
                kind: RecordedKind::Failed,
                label: None,
                score: None,
                is_wrong: false,
                failure_group: None,
                ..outcome(step)
            };
            let record = TrajectoryRecord {
                trajectory_id: id.to_owned(),
                trace_id,
                start_ns: number as i64,
                end_ns: 10,
                steps: 2,
                outcomes: vec![outcome(1), outcome(2), unsure(2)],
                ..TrajectoryRecord::default()
            };
            let trace_group = store.trace(trace_id).unwrap().unwrap().trace_group;
            let trace_groups = vec![AssembledTraceGroup { trace_group, due_ns: None, records: vec![record] }];
            store.store_assembled_groups(trace_groups, 2).unwrap().wait().unwrap();
        }
        (folder, store)
    }

    fn label(store: &Store, target: &str, trace: u128, author: &str, label: &str) {
        // Each a moment later than the one before.
        static MOMENT: std::sync::atomic::AtomicI64 = std::sync::atomic::AtomicI64::new(5);
        let now = MOMENT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let new = NewAnnotation {
            target: target.to_owned(),
            trace_id: Some(trace),
            name: "fit".to_owned(),
            identifier: author.to_owned(),
            annotator: "HUMAN".to_owned(),
            label: Some(label.to_owned()),
            metadata: "{}".to_owned(),
            author: author.to_owned(),
            ..NewAnnotation::default()
        };
        store.annotate(vec![new], now).unwrap().wait().unwrap();
    }

    #[test]
    fn verdicts_come_one_after_another_without_those_that_were_labelled() {
        let (_folder, store) = store();
        let filter = |only_wrong| ReviewFilter { author: "ann".to_owned(), only_wrong, ..ReviewFilter::default() };
        let walk = |filter: &ReviewFilter| {
            let (mut found, mut after) = (Vec::new(), None);
            while let (Some(item), _) = store.next_verdict(filter, after.as_ref()).unwrap() {
                found.push((item.trajectory_id.clone(), item.place.step));
                assert_eq!(item.place.to_string().parse(), Ok(item.place.clone()));
                after = Some(item.place);
            }
            found
        };
        let own = |list: &[(&str, u32)]| -> Vec<(String, u32)> {
            list.iter().map(|(id, step)| ((*id).to_owned(), *step)).collect()
        };
        assert_eq!(walk(&filter(false)), own(&[("b#1", 1), ("b#1", 2), ("a", 1), ("a", 2)]));
        assert_eq!(walk(&filter(true)), own(&[("b#1", 2), ("a", 2)]));
        let failed = ReviewFilter { only_failed: true, ..filter(true) };
        assert_eq!(walk(&failed), own(&[("b#1", 2), ("a", 2)]));
        assert_eq!(walk(&ReviewFilter { evaluator: Some("fit".to_owned()), ..failed }), own(&[]));
        label(&store, "trajectory:b#1#2", 2, "ann", "good");
        label(&store, "trajectory:a#2", 1, "bob", "good");
        assert_eq!(walk(&filter(true)), own(&[("a", 2)]));
        assert_eq!(walk(&ReviewFilter { project: Some("none".to_owned()), ..filter(false) }), own(&[]));
        assert_eq!(walk(&ReviewFilter { evaluator: Some("other".to_owned()), ..filter(false) }), own(&[]));
    }

    #[test]
    fn a_queue_can_be_of_one_failure_group() {
        let (_folder, store) = store();
        let of_group = |key: &str| ReviewFilter { failure_group: Some(key.to_owned()), ..ReviewFilter::default() };
        for (key, id) in [("group-1", "a"), ("group-2", "b#1")] {
            let (item, _) = store.next_verdict(&of_group(key), None).unwrap();
            let item = item.unwrap();
            assert_eq!((item.trajectory_id.as_str(), item.place.step), (id, 2));
            assert_eq!(store.next_verdict(&of_group(key), Some(&item.place)).unwrap(), (None, None));
            let in_project = |name: &str| ReviewFilter { project: Some(name.to_owned()), ..of_group(key) };
            assert_eq!(store.next_verdict(&in_project("shop"), None).unwrap().0, Some(item));
            assert_eq!(store.next_verdict(&in_project("none"), None).unwrap(), (None, None));
        }
        assert_eq!(store.next_verdict(&of_group("unknown"), None).unwrap(), (None, None));
        // Portions of every size visit the same trajectories.
        let reader = store.readers.take_reader().unwrap();
        let groups = [None, Some("group-1")];
        for (group, ids) in groups.into_iter().zip([vec!["b#1", "a"], vec!["a"]]) {
            let filter = group.map_or_else(ReviewFilter::default, of_group);
            let walk = ReviewWalk::new(&reader, &filter).unwrap().unwrap();
            for (portion, most) in [(1, 9), (2, 9), (9, 9), (1, 1)] {
                let mut found: Vec<String> = Vec::new();
                walk.visit_portions(&reader, (i64::MAX, i64::MAX), most, portion, |row| {
                    found.push(row.get(2)?);
                    Ok(ControlFlow::Continue(()))
                })
                .unwrap();
                assert_eq!(found, ids[..ids.len().min(most as usize)], "{portion} {most}");
            }
        }
        assert_eq!(store.review_progress(&of_group("unknown"), None).unwrap(), ReviewProgress::default());
    }

    #[test]
    fn progress_counts_what_is_labelled_and_where_the_verdict_stands() {
        let (_folder, store) = store();
        let filter = ReviewFilter { author: "ann".to_owned(), ..ReviewFilter::default() };
        let next = || store.next_verdict(&filter, None).unwrap().0.unwrap().place;
        let of = |labelled, position| ReviewProgress { verdicts: 4, labelled, is_more: false, position };
        assert_eq!(store.review_progress(&filter, Some(&next())).unwrap(), of(0, Some(1)));
        label(&store, "trajectory:b#1#1", 2, "ann", "good");
        label(&store, "trajectory:b#1#2", 2, "bob", "good");
        assert_eq!(store.review_progress(&filter, Some(&next())).unwrap(), of(1, Some(2)));
        assert_eq!(store.review_progress(&filter, None).unwrap(), of(1, None));
        let wrong = ReviewFilter { only_wrong: true, ..filter.clone() };
        let expected = ReviewProgress { verdicts: 2, labelled: 0, is_more: false, position: Some(1) };
        assert_eq!(store.review_progress(&wrong, Some(&next())).unwrap(), expected);
        // Also one that is labelled is found by its position.
        let place = next();
        label(&store, "trajectory:b#1#2", 2, "ann", "good");
        assert_eq!(store.review_item(&place).unwrap().unwrap().place, place);
        assert_eq!(store.review_item(&ReviewPosition { trajectory: 99, ..place }).unwrap(), None);
    }

    #[test]
    fn labels_stand_beside_what_the_judge_says_now() {
        let (_folder, store) = store();
        label(&store, "trajectory:b#1#2", 2, "ann", "good");
        label(&store, "trajectory:a#1", 1, "bob", "good");
        label(&store, "trajectory:a#7", 1, "bob", "good");
        label(&store, "span:0000000000000001", 1, "bob", "good");
        let mut rows = store.labels_after(Some("shop"), (0, 0), 10).unwrap();
        let second = (rows[1].updated_ns, rows[1].no);
        assert_eq!(store.labels_after(None, second, 10).unwrap(), rows[2..]);
        // Of those of one moment none is left out, and none comes twice.
        let before = (second.0, second.1 - 1);
        assert_eq!(store.labels_after(None, before, 10).unwrap(), rows[1..]);
        rows.reverse();
        let latest = store.labels(Some("shop"), 10).unwrap();
        assert!(latest.iter().map(|row| row.no).eq(rows.iter().map(|row| row.no)), "{latest:?}");
        let shown: Vec<_> = rows
            .iter()
            .map(|row| (row.trajectory_id.as_str(), row.step, row.author.as_str(), row.judge_label.as_deref()))
            .collect();
        let wanted =
            [("a", Some(7), "bob", None), ("a", Some(1), "bob", Some("good")), ("b#1", Some(2), "ann", Some("bad"))];
        assert_eq!(shown, wanted);
        assert_eq!(rows[2].judged.as_deref(), Some(r#"{"judge":"rules"}"#));
        assert_eq!((rows[0].judged.as_deref(), rows[0].metadata.as_str()), (None, "{}"));
        assert_eq!(store.labels(Some("nobody"), 10).unwrap(), []);
        assert_eq!(store.labels(None, 1).unwrap().len(), 1);
        // What is said again is the latest.
        label(&store, "trajectory:b#1#2", 2, "ann", "bad");
        let again = store.labels(None, 1).unwrap();
        assert_eq!((again[0].trajectory_id.as_str(), again[0].label.as_str()), ("b#1", "bad"));
        assert_eq!(again[0].identifier, "ann");
        let all = store.labels_after(None, (0, 0), 10).unwrap();
        assert_eq!(all.last().map(|row| row.no), Some(again[0].no));
    }

    #[test]
    fn walks_go_through_indexes() {
        let folder = tempfile::tempdir().unwrap();
        let sql = open_writer(&folder.path().join("store.db")).unwrap();
        assert_plan(&sql, &trajectory_walk_sql(false), "trajectory_by_start (start_ns<?)");
        assert_plan(&sql, &trajectory_walk_sql(true), "trajectory_by_project (project=? AND start_ns<?)");
        for of_project in [false, true] {
            assert_plan(&sql, &group_walk_sql(of_project), "failure USING PRIMARY KEY (failure_group=? AND ");
            assert_plan(&sql, &label_walk_sql(of_project, false), "annotation_of_people (updated_ns<?)");
            assert_plan(&sql, &label_walk_sql(of_project, true), "annotation_of_people (updated_ns>?)");
        }
    }
}
