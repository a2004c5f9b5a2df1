//! Keeps what was made of a story: its trajectories, the verdicts on them, and all that lists and metrics need of both.

use std::collections::{HashMap, HashSet};

use gradus_core::span::TraceId;
use rusqlite::{Connection, OptionalExtension, params};

use crate::Store;
use crate::compress::compress;
use crate::error::StoreError;
use crate::facets::write_facets;
use crate::rollup::{self, Sums};
use crate::words;
use crate::writer::{Writing, Written};

/// A trajectory as it is stored.
#[derive(Clone, Debug, Default)]
pub struct TrajectoryRecord {
    pub trajectory_id: String,
    /// The trace it begins in.
    pub trace_id: TraceId,
    pub start_ns: i64,
    pub end_ns: i64,
    pub agent: String,
    pub version: String,
    pub model: String,
    /// The conversation it belongs to; empty when it belongs to none.
    pub session: String,
    /// The beginning of the query.
    pub query: String,
    pub steps: u32,
    pub is_error: bool,
    pub tokens: u64,
    pub cost_usd: Option<f64>,
    /// The names of the tools it calls, each once.
    pub tools: Vec<String>,
    /// The trajectory without tool definitions.
    pub json: Vec<u8>,
    /// What it is found by.
    pub words: String,
    /// What rules said of it.
    pub outcomes: Vec<OutcomeRecord>,
    /// The rule whose model has still to judge it.
    pub ungraded_by: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordedKind {
    Scored = 0,
    NotApplicable = 1,
    Failed = 2,
}

/// A verdict as it is stored.
#[derive(Clone, Debug)]
pub struct OutcomeRecord {
    pub evaluator: String,
    /// `None` for the whole trajectory.
    pub step: Option<u32>,
    pub kind: RecordedKind,
    pub label: Option<String>,
    pub score: Option<f64>,
    /// The tool that the step calls; empty for the whole trajectory.
    pub tool: String,
    pub run: String,
    /// The outcome's line of JSON.
    pub line: String,
}

/// A story and what was made of it.
#[derive(Clone, Debug)]
pub struct AssembledStory {
    pub story: i64,
    /// When it was due; `None` when it was not.
    pub due_ns: Option<i64>,
    pub records: Vec<TrajectoryRecord>,
}

impl AssembledStory {
    /// What it holds in memory, by and large.
    pub fn bytes(&self) -> usize {
        self.records.iter().map(|record| record.json.len() + record.words.len()).sum()
    }
}

struct PackedStory {
    story: i64,
    due_ns: Option<i64>,
    records: Vec<Packed>,
}

struct Packed {
    record: TrajectoryRecord,
    digest: Digest,
    body: Vec<u8>,
}

/// What judging cost.
#[derive(Clone, Debug, Default)]
pub struct Spend {
    pub rule: String,
    pub calls: u64,
    pub cost_usd: f64,
}

/// A trajectory that waits for a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ungraded {
    pub no: i64,
    pub trajectory_id: String,
    pub story: i64,
    pub project: String,
    pub rule: String,
    pub digest: Digest,
    /// How often it was asked about in vain.
    pub attempts: u32,
}

/// What is left to do about a trajectory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// More answers come.
    More,
    Nothing,
    /// Some questions got no answer: they are asked again then.
    AgainAt {
        ns: i64,
    },
}

/// Which version of a trajectory a verdict is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest([u8; 16]);

impl Digest {
    fn of(json: &[u8]) -> Digest {
        Digest(gradus_core::digest(json).to_be_bytes())
    }
}

impl Store {
    /// Stories that are complete: those whose root has ended when nothing came for `quiet_ns`, the others when nothing
    /// came for `give_up_ns`.
    pub fn due(
        &self,
        now_ns: i64,
        quiet_ns: i64,
        give_up_ns: i64,
        limit: usize,
    ) -> Result<Vec<i64>, StoreError> {
        let reader = self.readers.take()?;
        let mut statement = reader.prepare_cached(
            "SELECT story FROM due INDEXED BY due_by_time WHERE is_ended = 1 AND arrived_ns <= ?1 \
             UNION ALL SELECT story FROM due INDEXED BY due_by_time WHERE is_ended = 0 AND arrived_ns <= ?2 LIMIT ?3",
        )?;
        let rows = statement.query_map(
            params![now_ns.saturating_sub(quiet_ns), now_ns.saturating_sub(give_up_ns), limit as i64],
            |row| row.get(0),
        )?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    pub fn due_count(&self) -> Result<i64, StoreError> {
        let reader = self.readers.take()?;
        Ok(reader.prepare_cached("SELECT count(*) FROM due")?.query_row([], |row| row.get(0))?)
    }

    /// Stores the trajectories of a story in the place of those it had. What did not change keeps its verdicts. Returns how
    /// many are new or changed.
    pub fn assembled(
        &self,
        story: i64,
        due_ns: Option<i64>,
        records: Vec<TrajectoryRecord>,
        now_ns: i64,
    ) -> Result<Written<usize>, StoreError> {
        self.assembled_all(vec![AssembledStory { story, due_ns, records }], now_ns)
    }

    /// The same for many stories, for much less than one by one. All of them are stored or none.
    pub fn assembled_all(
        &self,
        stories: Vec<AssembledStory>,
        now_ns: i64,
    ) -> Result<Written<usize>, StoreError> {
        let bytes = stories.iter().map(AssembledStory::bytes).sum();
        let pack = |mut record: TrajectoryRecord| {
            let (digest, body) = (Digest::of(&record.json), compress(&record.json));
            record.json = Vec::new();
            record.words = words::distinct(&record.words);
            Packed { record, digest, body }
        };
        let pack = |story: AssembledStory| PackedStory {
            story: story.story,
            due_ns: story.due_ns,
            records: story.records.into_iter().map(pack).collect(),
        };
        let stories: Vec<PackedStory> = stories.into_iter().map(pack).collect();
        self.writer()?.submit(bytes, move |writing| {
            let mut changed = 0;
            let mut pending = Pending::default();
            for story in &stories {
                changed += assembled(writing, story, now_ns, &mut pending)?;
            }
            pending.write(writing.sql)?;
            Ok(changed)
        })
    }

    /// Stores what a model said of a trajectory, and what is left to ask about it. Verdicts on a version that is
    /// not there any more are dropped: that trajectory is due again.
    pub fn judged(
        &self,
        trajectory: &Ungraded,
        outcomes: Vec<OutcomeRecord>,
        spend: Spend,
        left: Left,
        now_ns: i64,
    ) -> Result<Written<()>, StoreError> {
        let bytes = outcomes.iter().map(|outcome| outcome.line.len() + 200).sum();
        let (no, digest) = (trajectory.no, trajectory.digest);
        self.writer()?.submit(bytes, move |writing| {
            let sql = writing.sql;
            let known: Option<(i64, [u8; 16], i64)> = sql
                .prepare_cached("SELECT trace, digest, project FROM trajectory WHERE no = ?")?
                .query_row([no], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
                .optional()?;
            let project = known.map(|(_, _, project)| project);
            add_spend(sql, &spend, project, now_ns)?;
            let Some((trace, _, _)) = known.filter(|(_, known, _)| *known == digest.0) else { return Ok(()) };
            put_outcomes(sql, no, &outcomes, now_ns)?;
            match left {
                Left::More => {}
                Left::Nothing => {
                    sql.prepare_cached("DELETE FROM ungraded WHERE trajectory = ?")?.execute([no])?;
                }
                Left::AgainAt { ns } => {
                    sql.prepare_cached(
                        "UPDATE ungraded SET attempts = attempts + 1, not_before_ns = ? WHERE trajectory = ?",
                    )?
                    .execute([ns, no])?;
                }
            }
            write_facets(sql, trace)
        })
    }

    /// Trajectories that wait for a rule's model, oldest first.
    pub fn ungraded(
        &self,
        rule: &str,
        now_ns: i64,
        after: i64,
        limit: usize,
    ) -> Result<Vec<Ungraded>, StoreError> {
        let reader = self.readers.take()?;
        let mut statement = reader.prepare_cached(
            "SELECT trajectory.no, trajectory_id, story, project.name, ungraded.rule, digest, attempts \
             FROM ungraded INDEXED BY ungraded_by_rule \
             CROSS JOIN trajectory ON trajectory.no = ungraded.trajectory \
             CROSS JOIN project ON project.no = trajectory.project \
             WHERE ungraded.rule = ? AND ungraded.trajectory > ? AND not_before_ns <= ? ORDER BY ungraded.trajectory LIMIT ?",
        )?;
        let rows = statement.query_map(params![rule, after, now_ns, limit as i64], |row| {
            Ok(Ungraded {
                no: row.get(0)?,
                trajectory_id: row.get(1)?,
                story: row.get(2)?,
                project: row.get(3)?,
                rule: row.get(4)?,
                digest: Digest(row.get(5)?),
                attempts: row.get(6)?,
            })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    pub fn ungraded_count(&self) -> Result<i64, StoreError> {
        let reader = self.readers.take()?;
        Ok(reader.prepare_cached("SELECT count(*) FROM ungraded")?.query_row([], |row| row.get(0))?)
    }

    /// What was spent since then: by one rule or by all, in one project or in all.
    pub fn spent_since(
        &self,
        since_ns: i64,
        rule: Option<&str>,
        project: Option<&str>,
    ) -> Result<f64, StoreError> {
        let reader = self.readers.take()?;
        Ok(reader
            .prepare_cached(
                "SELECT coalesce(sum(cost_usd), 0.0) FROM spend LEFT JOIN project ON project.no = spend.project \
                 WHERE hour >= ?1 AND (?2 IS NULL OR rule = ?2) AND (?3 IS NULL OR project.name = ?3)",
            )?
            .query_row(params![hour(since_ns), rule, project], |row| row.get(0))?)
    }
}

fn hour(ns: i64) -> i64 {
    const HOUR_NS: i64 = 3_600_000_000_000;
    ns.div_euclid(HOUR_NS)
}

fn add_spend(sql: &Connection, spend: &Spend, project: Option<i64>, now_ns: i64) -> Result<(), StoreError> {
    if spend.calls == 0 && spend.cost_usd == 0.0 {
        return Ok(());
    }
    sql.prepare_cached(
        "INSERT INTO spend (hour, rule, project, calls, cost_usd) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET \
         calls = calls + excluded.calls, cost_usd = cost_usd + excluded.cost_usd",
    )?
    .execute(params![hour(now_ns), spend.rule, project.unwrap_or(0), spend.calls, spend.cost_usd])?;
    Ok(())
}

/// What is written for many trajectories at once, and before anything is taken out again: the index of words writes
/// whatever it has whenever another statement comes between, and sums are the same few rows time and again.
#[derive(Default)]
struct Pending<'r> {
    words: Vec<(i64, &'r str)>,
    sums: Sums<'r>,
}

impl Pending<'_> {
    fn write(&mut self, sql: &Connection) -> Result<(), StoreError> {
        self.sums.write(sql)?;
        let mut insert = sql.prepare_cached("INSERT INTO words (rowid, text) VALUES (?, ?)")?;
        for (no, words) in self.words.drain(..) {
            insert.execute(params![no, words])?;
        }
        Ok(())
    }
}

fn assembled<'r>(
    writing: &mut Writing<'_>,
    &PackedStory { story, due_ns, ref records }: &'r PackedStory,
    now_ns: i64,
    pending: &mut Pending<'r>,
) -> Result<usize, StoreError> {
    let sql = writing.sql;
    let due: Option<i64> = sql
        .prepare_cached("SELECT arrived_ns FROM due WHERE story = ?")?
        .query_row([story], |row| row.get(0))
        .optional()?;
    // Something came while it was assembled: it is due again, and what is missing here may only not have been seen.
    let is_outdated = due.is_some() && due_ns.is_some() && due != due_ns;
    let traces: HashMap<TraceId, (i64, i64)> = sql
        .prepare_cached(
            "SELECT trace_id, no, project FROM trace WHERE no = ?1 AND story = ?1 \
             UNION ALL SELECT trace_id, no, project FROM trace WHERE story = ?1 AND story <> no",
        )?
        .query_map([story], |row| {
            Ok((TraceId(u128::from_be_bytes(row.get(0)?)), (row.get(1)?, row.get(2)?)))
        })?
        .collect::<Result<_, _>>()?;
    let mut old: HashMap<String, (i64, [u8; 16])> = sql
        .prepare_cached("SELECT trajectory_id, no, digest FROM trajectory WHERE story = ?")?
        .query_map([story], |row| Ok((row.get(0)?, (row.get(1)?, row.get(2)?))))?
        .collect::<Result<_, _>>()?;
    let mut changed = 0;
    for packed in records {
        let record = &packed.record;
        // Its trace is gone, or belongs to another story by now, which is due.
        let Some(&(trace, project)) = traces.get(&record.trace_id) else { continue };
        let known = match old.remove(&record.trajectory_id) {
            Some(known) => Some(known),
            None => elsewhere(sql, &record.trajectory_id)?,
        };
        let place = Place { story, trace, project };
        match known {
            Some((no, known)) if known == packed.digest.0 => {
                move_trajectory(sql, no, place, record, pending)?
            }
            known => {
                let number = known.map(|(no, _)| no);
                if let Some(no) = number {
                    remove_trajectory(sql, no, pending)?;
                }
                insert_trajectory(sql, place, number, packed, now_ns, pending)?;
                changed += 1;
            }
        }
    }
    if !is_outdated {
        for (no, _) in old.into_values() {
            remove_trajectory(sql, no, pending)?;
        }
    }
    for (trace, _) in traces.into_values() {
        write_facets(sql, trace)?;
    }
    if !is_outdated && due_ns.is_some() {
        sql.prepare_cached("DELETE FROM due WHERE story = ?")?.execute([story])?;
    }
    Ok(changed)
}

/// Where a trajectory belongs.
#[derive(Clone, Copy)]
struct Place {
    story: i64,
    trace: i64,
    project: i64,
}

/// A trajectory that belonged to another story until now.
fn elsewhere(sql: &Connection, id: &str) -> Result<Option<(i64, [u8; 16])>, StoreError> {
    Ok(sql
        .prepare_cached("SELECT no, digest FROM trajectory WHERE trajectory_id = ?")?
        .query_row([id], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?)
}

/// Brings up to date what is told of a trajectory that is still the same; with it go its verdicts, in the metrics, too.
fn move_trajectory(
    sql: &Connection,
    no: i64,
    place: Place,
    record: &TrajectoryRecord,
    pending: &mut Pending<'_>,
) -> Result<(), StoreError> {
    let tools = record.tools.join("\n");
    let is_as_it_was: bool = sql
        .prepare_cached(
            "SELECT story = ?2 AND trace = ?3 AND project = ?4 AND start_ns = ?5 AND end_ns = ?6 AND agent = ?7 \
             AND version = ?8 AND model = ?9 AND tools = ?10 AND is_error = ?11 AND cost_usd IS ?12 \
             FROM trajectory WHERE no = ?1",
        )?
        .query_row(
            params![
                no,
                place.story,
                place.trace,
                place.project,
                record.start_ns,
                record.end_ns,
                record.agent,
                record.version,
                record.model,
                tools,
                record.is_error,
                record.cost_usd
            ],
            |row| row.get(0),
        )?;
    if is_as_it_was {
        return Ok(());
    }
    pending.write(sql)?;
    rollup::subtract(sql, no, None)?;
    sql.prepare_cached(
        "UPDATE trajectory SET story = ?2, trace = ?3, project = ?4, start_ns = ?5, end_ns = ?6, agent = ?7, \
         version = ?8, model = ?9, tools = ?10, is_error = ?11, cost_usd = ?12 WHERE no = ?1",
    )?
    .execute(params![
        no,
        place.story,
        place.trace,
        place.project,
        record.start_ns,
        record.end_ns,
        record.agent,
        record.version,
        record.model,
        tools,
        record.is_error,
        record.cost_usd
    ])?;
    rollup::add(sql, no, None)
}

fn insert_trajectory<'r>(
    sql: &Connection,
    place: Place,
    number: Option<i64>,
    Packed { record, digest, body }: &'r Packed,
    now_ns: i64,
    pending: &mut Pending<'r>,
) -> Result<(), StoreError> {
    sql.prepare_cached(
        "INSERT INTO trajectory (no, trajectory_id, story, trace, project, start_ns, end_ns, agent, version, model, \
         query, steps, is_error, tools, tokens, cost_usd, digest, body, session) \
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    )?
    .execute(params![
        number,
        record.trajectory_id,
        place.story,
        place.trace,
        place.project,
        record.start_ns,
        record.end_ns,
        record.agent,
        record.version,
        record.model,
        record.query,
        record.steps,
        record.is_error,
        record.tools.join("\n"),
        i64::try_from(record.tokens).unwrap_or(i64::MAX),
        record.cost_usd,
        &digest.0[..],
        body,
        record.session,
    ])?;
    let no = sql.last_insert_rowid();
    pending.words.push((no, &record.words));
    pending.sums.add(place.project, record);
    insert_outcomes(sql, no, &record.outcomes, now_ns)?;
    if let Some(rule) = &record.ungraded_by {
        sql.prepare_cached("INSERT OR REPLACE INTO ungraded (trajectory, rule, since_ns) VALUES (?, ?, ?)")?
            .execute(params![no, rule, now_ns])?;
    }
    Ok(())
}

/// Takes a trajectory out, and out of the metrics.
fn remove_trajectory(sql: &Connection, no: i64, pending: &mut Pending<'_>) -> Result<(), StoreError> {
    pending.write(sql)?;
    rollup::subtract(sql, no, None)?;
    forget_trajectory(sql, no)
}

/// Takes a trajectory out, but leaves it in the metrics: they reach further back than what they were made of.
pub(crate) fn forget_trajectory(sql: &Connection, no: i64) -> Result<(), StoreError> {
    for statement in [
        "DELETE FROM outcome WHERE trajectory = ?",
        "DELETE FROM ungraded WHERE trajectory = ?",
        "DELETE FROM words WHERE rowid = ?",
        "DELETE FROM trajectory WHERE no = ?",
    ] {
        sql.prepare_cached(statement)?.execute([no])?;
    }
    Ok(())
}

/// Puts verdicts in the place of those to the same questions.
fn put_outcomes(
    sql: &Connection,
    no: i64,
    outcomes: &[OutcomeRecord],
    now_ns: i64,
) -> Result<(), StoreError> {
    let evaluators: HashSet<&str> = outcomes.iter().map(|outcome| outcome.evaluator.as_str()).collect();
    for evaluator in &evaluators {
        rollup::subtract(sql, no, Some(evaluator))?;
    }
    insert_outcomes(sql, no, outcomes, now_ns)?;
    for evaluator in &evaluators {
        rollup::add(sql, no, Some(evaluator))?;
    }
    Ok(())
}

fn insert_outcomes(
    sql: &Connection,
    no: i64,
    outcomes: &[OutcomeRecord],
    now_ns: i64,
) -> Result<(), StoreError> {
    let mut insert = sql.prepare_cached(
        "INSERT OR REPLACE INTO outcome (trajectory, evaluator, step, kind, label, score, tool, judged_ns, run, line) \
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    )?;
    for outcome in outcomes {
        insert.execute(params![
            no,
            outcome.evaluator,
            outcome.step.unwrap_or(0),
            outcome.kind as i64,
            outcome.label,
            outcome.score,
            outcome.tool,
            now_ns,
            outcome.run,
            outcome.line,
        ])?;
    }
    Ok(())
}
