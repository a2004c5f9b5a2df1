//! Stores the result of assembling a trace group: its trajectories, their outcomes, and everything that lists and
//! metrics derive from both.

use crate::records::{OutcomeRecord, TrajectoryRecord, latest_outcomes};
use std::collections::{HashMap, HashSet};

use crate::sql::{OptionalRow, SqlConnection, params};
use gradus_core::span::TraceId;

use crate::Store;
use crate::compress::compress_bytes;
use crate::error::StoreError;
use crate::facets::{KnownRecords, NewFacets, update_facets_batched};
use crate::failures::{assign_failure_group, forget_failures, replace_failures};
use crate::index_words;
use crate::judge_calls::forget_trajectory_answers;
use crate::rollup::{self, ScoreRollupChanges};
use crate::usage::{self, UsageRollupChanges};
use crate::writer::{WriteContext, WriteHandle};

/// A trace group and the trajectories that were assembled from it.
#[derive(Clone, Debug)]
pub struct AssembledTraceGroup {
    pub trace_group: i64,
    /// The time of arrival that the ready queue had when it was read. A different time at writing means that more
    /// records came. `None` if it was not in the queue.
    pub due_ns: Option<i64>,
    pub records: Vec<TrajectoryRecord>,
}

impl AssembledTraceGroup {
    /// Approximate memory, for the budget of the write queue.
    pub fn memory_bytes(&self) -> usize {
        self.records.iter().map(|record| record.json.len() + record.words.len()).sum()
    }
}

/// A trace group whose bodies are compressed, which happens on the thread of the caller and not of the writer.
struct CompressedTraceGroup {
    trace_group: i64,
    due_ns: Option<i64>,
    records: Vec<CompressedTrajectory>,
    extent: TraceGroupExtent,
}

/// How much of a trace group is written at once. A group with thousands of trajectories would block all other writers,
/// so it is written in parts. Until the last part it stays in the ready queue.
enum TraceGroupExtent {
    Whole,
    /// Some of its trajectories; more follow.
    Part,
    /// The last part, with the ids of all its trajectories. Others of the group are removed.
    Rest {
        trajectory_ids: HashSet<String>,
    },
}

/// A trajectory with its compressed body. The JSON of the record is freed.
struct CompressedTrajectory {
    record: TrajectoryRecord,
    digest: TrajectoryDigest,
    body: Vec<u8>,
}

/// Maximum tokens of one trajectory. The numbers come from traces and go into sums that many share; a larger number is
/// certainly wrong, and could make a sum overflow.
const MAX_TOKENS: u64 = 1 << 36;
/// Maximum cost of one trajectory in US dollars, for the same reason.
const MAX_USD: f64 = 1e9;

/// Maximum number of rows in one part of a trace group: some tens of milliseconds of writing.
const MAX_PART_ROWS: usize = 2_000;

/// Identifies the version of a trajectory that an outcome is about. A verdict of a model that arrives after the
/// trajectory changed is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrajectoryDigest(pub(crate) [u8; 16]);

impl TrajectoryDigest {
    /// Of the uncompressed JSON: two versions of the compressor give different bytes.
    fn from_json(json: &[u8]) -> TrajectoryDigest {
        TrajectoryDigest(gradus_core::stable_digest(json).to_be_bytes())
    }
}

impl Store {
    /// Stores the trajectories of trace groups and replaces their earlier ones. Unchanged trajectories keep their
    /// outcomes. All groups are stored or none, which costs much less than one by one. Returns the number of new and
    /// changed trajectories.
    pub fn store_assembled_groups(
        &self,
        trace_groups: Vec<AssembledTraceGroup>,
        now_ns: i64,
    ) -> Result<WriteHandle<usize>, StoreError> {
        let trace_groups = trace_groups.into_iter().map(|trace_group| (trace_group, TraceGroupExtent::Whole)).collect();
        self.write_trace_groups(trace_groups, now_ns)
    }

    /// Stores one trace group in parts, each in a transaction of its own, and waits for them. If the process ends in
    /// between, the group is still in the ready queue and is assembled again.
    pub fn store_assembled_in_parts(&self, trace_group: AssembledTraceGroup, now_ns: i64) -> Result<usize, StoreError> {
        let AssembledTraceGroup { trace_group, due_ns, records } = trace_group;
        let trajectory_ids = records.iter().map(|record| record.trajectory_id.clone()).collect();
        let mut changed = 0;
        let mut records = records.into_iter().peekable();
        while records.peek().is_some() {
            let mut part = AssembledTraceGroup { trace_group, due_ns, records: Vec::new() };
            let mut rows = 0;
            while let Some(record) = records.next_if(|_| rows < MAX_PART_ROWS) {
                rows += 1 + record.outcomes.len();
                part.records.push(record);
            }
            changed += self.write_trace_groups(vec![(part, TraceGroupExtent::Part)], now_ns)?.wait()?;
        }
        let rest = AssembledTraceGroup { trace_group, due_ns, records: Vec::new() };
        changed += self.write_trace_groups(vec![(rest, TraceGroupExtent::Rest { trajectory_ids })], now_ns)?.wait()?;
        Ok(changed)
    }

    /// Compresses on the thread of the caller, then queues one task for all groups.
    fn write_trace_groups(
        &self,
        trace_groups: Vec<(AssembledTraceGroup, TraceGroupExtent)>,
        now_ns: i64,
    ) -> Result<WriteHandle<usize>, StoreError> {
        let bytes = trace_groups.iter().map(|(trace_group, _)| trace_group.memory_bytes()).sum();
        let pack = |mut record: TrajectoryRecord| {
            let (digest, body) = (TrajectoryDigest::from_json(&record.json), compress_bytes(&record.json));
            record.json = Vec::new();
            record.words = index_words::collect_distinct_words(&record.words);
            record.tokens = record.tokens.min(MAX_TOKENS);
            record.cost_usd = record.cost_usd.filter(|usd| (0.0..=MAX_USD).contains(usd));
            CompressedTrajectory { record, digest, body }
        };
        let pack = |(trace_group, extent): (AssembledTraceGroup, TraceGroupExtent)| CompressedTraceGroup {
            trace_group: trace_group.trace_group,
            due_ns: trace_group.due_ns,
            records: trace_group.records.into_iter().map(pack).collect(),
            extent,
        };
        let trace_groups: Vec<CompressedTraceGroup> = trace_groups.into_iter().map(pack).collect();
        self.writer()?.submit(bytes, move |writing| {
            let mut changed = 0;
            let mut pending = PendingWrites::default();
            for trace_group in &trace_groups {
                changed += write_trace_group(writing, trace_group, now_ns, &mut pending)?;
            }
            pending.write(writing.sql)?;
            Ok(changed)
        })
    }
}

/// Rows that are written for many trajectories at once. The full-text index flushes whenever another statement comes
/// between two inserts, and rollups are the same few rows time and again. Must be written before anything is removed.
#[derive(Default)]
struct PendingWrites<'r> {
    words: Vec<(i64, &'r str)>,
    sums: ScoreRollupChanges<'r>,
    usage: UsageRollupChanges<'r>,
    facets: NewFacets,
}

impl PendingWrites<'_> {
    /// Writes everything that was collected. Also called before a row is removed that the collected changes may refer
    /// to.
    fn write(&mut self, sql: &SqlConnection) -> Result<(), StoreError> {
        self.sums.write(sql)?;
        self.usage.write(sql)?;
        self.facets.write(sql)?;
        insert_words(sql, self.words.drain(..))
    }
}

/// Adds texts to the full-text index, by the number of their trajectory.
pub(crate) fn insert_words<'w>(
    sql: &SqlConnection,
    texts: impl IntoIterator<Item = (i64, &'w str)>,
) -> Result<(), StoreError> {
    let mut insert = sql.prepare_cached(sql.choose(
        "INSERT INTO words (rowid, text) VALUES (?, ?)",
        "INSERT INTO words (rowid, text) VALUES (?, array_to_tsvector(string_to_array(?, ' ')))",
    ))?;
    for (no, text) in texts {
        match sql.sqlite() {
            Some(_) => insert.execute(params![no, text])?,
            None => insert.execute(params![no, index_words::fold_words(text)])?,
        };
    }
    Ok(())
}

/// Writes one trace group. Returns the number of new and changed trajectories.
fn write_trace_group<'r>(
    writing: &mut WriteContext<'_>,
    &CompressedTraceGroup { trace_group, due_ns, ref records, ref extent }: &'r CompressedTraceGroup,
    now_ns: i64,
    pending: &mut PendingWrites<'r>,
) -> Result<usize, StoreError> {
    let sql = writing.sql;
    let (due, is_own) = match sql.sqlite() {
        Some(_) => {
            let mut queued = sql.prepare_cached("SELECT arrived_ns FROM due WHERE story = ?")?;
            (queued.query_row([trace_group], |row| row.get::<i64>(0)).optional()?, true)
        }
        None => find_claim(writing, trace_group)?,
    };
    // Another server claimed it since: this one was too slow, and its result is outdated.
    if due_ns.is_some() && !is_own {
        return Ok(0);
    }
    // More records came while it was assembled. It stays in the queue, and trajectories that are missing here may only
    // not have been seen, so none is removed.
    let is_outdated = due.is_some() && due_ns.is_some() && due != due_ns;
    let traces: HashMap<TraceId, (i64, i64)> = sql
        .prepare_cached(
            "SELECT trace_id, no, project FROM trace WHERE no = ?1 AND story = ?1 \
             UNION ALL SELECT trace_id, no, project FROM trace WHERE story = ?1 AND story <> no",
        )?
        .query_map([trace_group], |row| Ok((TraceId(u128::from_be_bytes(row.get(0)?)), (row.get(1)?, row.get(2)?))))?
        .collect::<Result<_, _>>()?;
    let mut old: HashMap<String, (i64, [u8; 16])> = sql
        .prepare_cached("SELECT trajectory_id, no, digest FROM trajectory WHERE story = ?")?
        .query_map([trace_group], |row| Ok((row.get(0)?, (row.get(1)?, row.get(2)?))))?
        .collect::<Result<_, _>>()?;
    let mut changed = 0;
    let mut stored = KnownRecords::default();
    for packed in records {
        let record = &packed.record;
        // The trace was removed, or belongs to another group by now, which is in the queue.
        let Some(&(trace, project)) = traces.get(&record.trace_id) else { continue };
        let known = match old.remove(&record.trajectory_id) {
            Some(known) => Some(known),
            None => find_trajectory_by_id(sql, &record.trajectory_id)?,
        };
        let place = TrajectoryForeignKeys { trace_group, trace, project };
        // The same digest: the trajectory did not change, so its outcomes stay.
        match known {
            Some((no, known)) if known == packed.digest.0 => move_trajectory(sql, no, place, record, pending)?,
            known => {
                let number = known.map(|(no, _)| no);
                if let Some(no) = number {
                    remove_trajectory(sql, no, pending)?;
                }
                let no = insert_trajectory(sql, place, number, packed, now_ns, pending)?;
                stored.insert(no, record);
                changed += 1;
            }
        }
    }
    // Trajectories that were not assembled again are removed, but by the last part only.
    let is_kept = |id: &String| match extent {
        TraceGroupExtent::Whole => false,
        TraceGroupExtent::Part => true,
        TraceGroupExtent::Rest { trajectory_ids } => trajectory_ids.contains(id),
    };
    if !is_outdated {
        for (_, (no, _)) in old.into_iter().filter(|(id, _)| !is_kept(id)) {
            remove_trajectory(sql, no, pending)?;
        }
    }
    if matches!(extent, TraceGroupExtent::Part) {
        return Ok(changed);
    }
    for (trace, _) in traces.into_values() {
        update_facets_batched(sql, trace, &stored, &mut pending.facets)?;
    }
    if is_outdated {
        // The failure that quarantined it belongs to older records.
        sql.prepare_cached(
            sql.choose(
                "UPDATE due SET attempts = 0, is_started = 0, is_suspect = 0, not_before_ns = 0, reason = NULL WHERE story = ?",
                "UPDATE due SET attempts = 0, is_started = 0, is_suspect = 0, not_before_ns = 0, reason = NULL, \
                 owner = NULL, leased_until = NULL WHERE story = ?",
            ),
        )?
        .execute([trace_group])?;
    } else if due_ns.is_some() {
        sql.prepare_cached("DELETE FROM due WHERE story = ?")?.execute([trace_group])?;
    }
    Ok(changed)
}

/// The time of arrival of a queued trace group, and whether no other server has claimed it. Locks it until the commit.
fn find_claim(writing: &WriteContext<'_>, trace_group: i64) -> Result<(Option<i64>, bool), StoreError> {
    lock_derived_rows(writing.sql)?;
    let found: Option<(i64, Option<String>)> = writing
        .sql
        .prepare_cached("SELECT arrived_ns, owner FROM due WHERE story = ? FOR UPDATE")?
        .query_row([trace_group], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    Ok(match found {
        Some((arrived_ns, owner)) => (Some(arrived_ns), owner.is_none_or(|owner| owner == writing.node)),
        None => (None, true),
    })
}

/// Rows that are derived from trajectories are shared by all traces, so servers write them one after the other. Otherwise
/// they would wait for each other in circles. SQLite has one writer only.
pub(crate) fn lock_derived_rows(sql: &SqlConnection) -> Result<(), StoreError> {
    if sql.sqlite().is_none() {
        sql.prepare_cached("SELECT 1 FROM pg_advisory_xact_lock(?)")?.exists([DERIVED_ROWS_LOCK])?;
    }
    Ok(())
}

/// Advisory lock of the rows that are derived from trajectories: "grde" in ASCII.
const DERIVED_ROWS_LOCK: i64 = 0x6772_6465;

/// The rows that a trajectory refers to.
#[derive(Clone, Copy)]
struct TrajectoryForeignKeys {
    trace_group: i64,
    trace: i64,
    project: i64,
}

/// Finds a trajectory that belonged to another trace group until now.
fn find_trajectory_by_id(sql: &SqlConnection, id: &str) -> Result<Option<(i64, [u8; 16])>, StoreError> {
    Ok(sql
        .prepare_cached("SELECT no, digest FROM trajectory WHERE trajectory_id = ?")?
        .query_row([id], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?)
}

/// Updates the columns of a trajectory whose content did not change. Rollups move with it.
fn move_trajectory(
    sql: &SqlConnection,
    no: i64,
    place: TrajectoryForeignKeys,
    record: &TrajectoryRecord,
    pending: &mut PendingWrites<'_>,
) -> Result<(), StoreError> {
    let tools = record.tools.join("\n");
    let is_as_it_was: bool = sql
        .prepare_cached(
            "SELECT story = ?2 AND trace = ?3 AND project = ?4 AND start_ns = ?5 AND end_ns = ?6 AND agent = ?7 \
             AND version = ?8 AND model = ?9 AND tools = ?10 AND is_error = ?11 AND cost_usd IS NOT DISTINCT FROM ?12 \
             FROM trajectory WHERE no = ?1",
        )?
        .query_row(
            params![
                no,
                place.trace_group,
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
    rollup::subtract_score_rollups(sql, no, None)?;
    usage::subtract_trajectory_usage(sql, no)?;
    sql.prepare_cached(
        "UPDATE trajectory SET story = ?2, trace = ?3, project = ?4, start_ns = ?5, end_ns = ?6, agent = ?7, \
         version = ?8, model = ?9, tools = ?10, is_error = ?11, cost_usd = ?12 WHERE no = ?1",
    )?
    .execute(params![
        no,
        place.trace_group,
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
    usage::add_trajectory_usage(sql, no)?;
    rollup::add_score_rollups(sql, no, None)?;
    replace_failures(sql, no)
}

/// Both engines assign the number. For SQLite see `INSERT_TRACE`.
pub(crate) const INSERT_NEW_TRAJECTORY: &str = "INSERT OR FAIL INTO trajectory (trajectory_id, story, trace, project, start_ns, end_ns, agent, version, model, query, \
     steps, is_error, tools, tokens, cost_usd, digest, body, session) \
     VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
/// With the number of the trajectory that it replaces, for which SQLite copies pages. Most trajectories are stored once.
const REPLACE_TRAJECTORY: &str = "INSERT INTO trajectory (trajectory_id, story, trace, project, start_ns, end_ns, agent, version, model, query, \
     steps, is_error, tools, tokens, cost_usd, digest, body, session, no) \
     VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";

/// Inserts a trajectory with its outcomes. A replaced one keeps its number, so that cursors and references stay valid.
fn insert_trajectory<'r>(
    sql: &SqlConnection,
    place: TrajectoryForeignKeys,
    number: Option<i64>,
    CompressedTrajectory { record, digest, body }: &'r CompressedTrajectory,
    now_ns: i64,
    pending: &mut PendingWrites<'r>,
) -> Result<i64, StoreError> {
    let tools = record.tools.join("\n");
    let values = params![
        record.trajectory_id,
        place.trace_group,
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
        tools,
        record.tokens,
        record.cost_usd,
        &digest.0[..],
        body,
        record.session,
        number,
    ];
    let no = match number {
        Some(_) => sql.insert_numbered(REPLACE_TRAJECTORY, values)?,
        None => sql.insert_numbered(INSERT_NEW_TRAJECTORY, &values[..values.len() - 1])?,
    };
    pending.words.push((no, &record.words));
    pending.sums.add_trajectory(place.project, record);
    pending.usage.add_trajectory(place.project, record);
    insert_outcomes(sql, no, record.start_ns, &record.outcomes, now_ns)?;
    if record.outcomes.iter().any(|outcome| outcome.failure_group.is_some()) {
        replace_failures(sql, no)?;
    }
    if let Some(rule) = &record.ungraded_by {
        sql.prepare_cached(
            "INSERT INTO ungraded (trajectory, rule, since_ns) VALUES (?, ?, ?) ON CONFLICT (trajectory) DO UPDATE SET \
             rule = excluded.rule, since_ns = excluded.since_ns, attempts = 0, delays = 0, not_before_ns = 0",
        )?
        .execute(params![no, rule, now_ns])?;
    }
    Ok(no)
}

/// Removes a trajectory, also from the metrics: it was replaced, or is no longer assembled.
fn remove_trajectory(sql: &SqlConnection, no: i64, pending: &mut PendingWrites<'_>) -> Result<(), StoreError> {
    pending.write(sql)?;
    rollup::subtract_score_rollups(sql, no, None)?;
    usage::subtract_trajectory_usage(sql, no)?;
    remove_trajectory_keeping_metrics(sql, no)
}

/// Removes a trajectory, but keeps it in the metrics: they reach further back than the traces that they were computed
/// from.
pub(crate) fn remove_trajectory_keeping_metrics(sql: &SqlConnection, no: i64) -> Result<(), StoreError> {
    forget_failures(sql, no)?;
    forget_trajectory_answers(sql, no)?;
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

/// Inserts outcomes, and replaces those to the same question. Step 0 stands for the whole trajectory.
pub(crate) fn insert_outcomes(
    sql: &SqlConnection,
    no: i64,
    start_ns: i64,
    outcomes: &[OutcomeRecord],
    now_ns: i64,
) -> Result<(), StoreError> {
    let mut insert = sql.bulk_insert(
        "INSERT INTO outcome (trajectory, evaluator, step, kind, label, score, is_wrong, tool, judged_ns, run, line, \
         failure_group) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (trajectory, evaluator, step) DO UPDATE SET \
         kind = excluded.kind, label = excluded.label, score = excluded.score, is_wrong = excluded.is_wrong, \
         tool = excluded.tool, judged_ns = excluded.judged_ns, run = excluded.run, line = excluded.line, \
         failure_group = excluded.failure_group",
    )?;
    for outcome in latest_outcomes(outcomes) {
        insert.push(params![
            no,
            outcome.evaluator,
            outcome.step.unwrap_or(0),
            outcome.kind as i64,
            outcome.label,
            outcome.score,
            outcome.is_wrong,
            outcome.tool,
            now_ns,
            outcome.run,
            outcome.line,
            assign_failure_group(sql, outcome, start_ns)?,
        ])?;
    }
    Ok(insert.finish()?)
}
