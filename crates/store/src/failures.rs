//! Failure groups: which wrong verdicts have the same reason, and which trajectories have them.
//!
//! Groups are made from verdicts when these are written, in the same transaction. The rows of a trajectory are replaced
//! as a whole whenever its verdicts or its dimensions change, so that they cannot drift from the verdicts.

use crate::sql::{OptionalRow, SqlConnection, params};
use gradus_core::text_signature::TextSignature;

use crate::Store;
use crate::error::StoreError;
use crate::records::{FailureGroupKey, OutcomeRecord};
use crate::writer::WriteHandle;

/// Maximum number of groups. Models word reasons freely, so their number has to be bounded; beyond it, further
/// reasons of an evaluator share one group.
const MAX_GROUPS: i64 = 2_000;
/// Maximum number of groups of the same evaluator, tool and label that a new reason is compared with: the newest
/// ones.
const MAX_COMPARED: i64 = 200;
/// The reason of groups that stand for many.
const OTHER_REASONS: &str = "other reasons";

/// What people say about a group. Empty texts remove an earlier text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FailureGroupNote {
    pub name: Option<String>,
    pub note: Option<String>,
    pub is_muted: Option<bool>,
}

/// The number of the group of an outcome, which is made if it is new. `None` for an outcome that is not wrong.
pub(crate) fn assign_failure_group(
    sql: &SqlConnection,
    outcome: &OutcomeRecord,
    start_ns: i64,
) -> Result<Option<i64>, StoreError> {
    let Some(group) = outcome.failure_group.as_ref().filter(|_| outcome.is_wrong) else { return Ok(None) };
    if let Some(no) = find_failure_group(sql, &group.key)? {
        lower_first_seen(sql, no, start_ns)?;
        return Ok(Some(no));
    }
    if let Some(no) = find_similar_group(sql, group)? {
        lower_first_seen(sql, no, start_ns)?;
        return Ok(Some(no));
    }
    if count_groups(sql)? >= MAX_GROUPS {
        // Deletes groups without trajectories to make room.
        forget_empty_groups(sql)?;
    }
    if count_groups(sql)? < MAX_GROUPS {
        return insert_failure_group(sql, group, start_ns).map(Some);
    }
    let other = FailureGroupKey {
        key: format!("other-{}", group.evaluator),
        evaluator: group.evaluator.clone(),
        reason: OTHER_REASONS.to_owned(),
        ..FailureGroupKey::default()
    };
    match find_failure_group(sql, &other.key)? {
        Some(no) => {
            lower_first_seen(sql, no, start_ns)?;
            Ok(Some(no))
        }
        None => insert_failure_group(sql, &other, start_ns).map(Some),
    }
}

fn count_groups(sql: &SqlConnection) -> Result<i64, StoreError> {
    Ok(sql.prepare_cached("SELECT count(*) FROM failure_group")?.query_row((), |row| row.get(0))?)
}

fn find_failure_group(sql: &SqlConnection, key: &str) -> Result<Option<i64>, StoreError> {
    let mut find = sql.prepare_cached("SELECT no FROM failure_group WHERE key = ?")?;
    Ok(find.query_row([key], |row| row.get(0)).optional()?)
}

/// A group whose reason probably says the same in other words. Only reasons of models are compared.
fn find_similar_group(sql: &SqlConnection, group: &FailureGroupKey) -> Result<Option<i64>, StoreError> {
    if group.signature == TextSignature::default() {
        return Ok(None);
    }
    let mut candidates = sql.prepare_cached(
        "SELECT no, signature FROM failure_group WHERE evaluator = ? AND tool = ? AND label = ? AND rule = '' \
         ORDER BY no DESC LIMIT ?",
    )?;
    let mut rows = candidates.query(params![group.evaluator, group.tool, group.label, MAX_COMPARED])?;
    while let Some(row) = rows.next()? {
        let signature = TextSignature::from_bytes(row.get_ref(1)?.as_blob());
        if group.signature.is_similar(&signature) {
            return Ok(Some(row.get(0)?));
        }
    }
    Ok(None)
}

fn insert_failure_group(sql: &SqlConnection, group: &FailureGroupKey, start_ns: i64) -> Result<i64, StoreError> {
    let insert = "INSERT INTO failure_group (key, evaluator, tool, rule, label, reason, signature, first_seen_ns) \
                  VALUES (?, ?, ?, ?, ?, ?, ?, ?)";
    let signature = group.signature.to_bytes();
    let values =
        params![group.key, group.evaluator, group.tool, group.rule, group.label, group.reason, signature, start_ns];
    Ok(sql.insert_numbered(insert, values)?)
}

/// Traces do not arrive in the order in which they began.
fn lower_first_seen(sql: &SqlConnection, no: i64, start_ns: i64) -> Result<(), StoreError> {
    sql.prepare_cached("UPDATE failure_group SET first_seen_ns = ?2 WHERE no = ?1 AND first_seen_ns > ?2")?
        .execute([no, start_ns])?;
    Ok(())
}

/// Replaces the rows of a trajectory by those of its current verdicts.
pub(crate) fn replace_failures(sql: &SqlConnection, trajectory: i64) -> Result<(), StoreError> {
    forget_failures(sql, trajectory)?;
    sql.prepare_cached(
        "INSERT INTO failure (failure_group, start_ns, trajectory, project, agent, version, model, verdicts) \
         SELECT outcome.failure_group, start_ns, no, project, agent, version, model, count(*) \
         FROM trajectory CROSS JOIN outcome ON outcome.trajectory = no AND outcome.failure_group IS NOT NULL \
         WHERE no = ? GROUP BY outcome.failure_group, no",
    )?
    .execute([trajectory])?;
    Ok(())
}

pub(crate) fn forget_failures(sql: &SqlConnection, trajectory: i64) -> Result<(), StoreError> {
    // By the key of the table: the index over trajectories gives the other parts of it.
    sql.prepare_cached("DELETE FROM failure WHERE trajectory = ?")?.execute([trajectory])?;
    Ok(())
}

/// Removes groups that have neither a trajectory nor a note of a person.
pub(crate) fn forget_empty_groups(sql: &SqlConnection) -> Result<(), StoreError> {
    sql.prepare_cached(
        "DELETE FROM failure_group WHERE name IS NULL AND note IS NULL AND muted_ns IS NULL \
         AND NOT EXISTS (SELECT 1 FROM failure WHERE failure.failure_group = failure_group.no)",
    )?
    .execute(())?;
    Ok(())
}

/// A wrong verdict that belongs to no group, because it was stored before there were any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UngroupedVerdict {
    pub trajectory: i64,
    pub evaluator: String,
    pub step: u32,
    /// The tool that the step calls; empty for a whole trajectory.
    pub tool: String,
    /// The line of JSON of the outcome.
    pub line: String,
}

impl Store {
    /// Wrong verdicts without a group, at most `limit`.
    pub fn ungrouped_verdicts(&self, limit: usize) -> Result<Vec<UngroupedVerdict>, StoreError> {
        let reader = self.readers.take_reader()?;
        let mut statement = reader.prepare_cached(
            "SELECT trajectory, evaluator, step, tool, line FROM outcome INDEXED BY outcome_ungrouped \
             WHERE is_wrong AND failure_group IS NULL LIMIT ?",
        )?;
        let rows = statement.query_map([limit as i64], |row| {
            Ok(UngroupedVerdict {
                trajectory: row.get(0)?,
                evaluator: row.get(1)?,
                step: row.get(2)?,
                tool: row.get(3)?,
                line: row.get(4)?,
            })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Gives groups to verdicts that have none. Those that changed meanwhile are left alone.
    pub fn group_verdicts(
        &self,
        verdicts: Vec<(UngroupedVerdict, FailureGroupKey)>,
    ) -> Result<WriteHandle<()>, StoreError> {
        let bytes = verdicts.iter().map(|(verdict, _)| verdict.line.len()).sum();
        self.writer()?.submit(bytes, move |writing| {
            let sql = writing.sql;
            for (verdict, group) in &verdicts {
                let start: Option<(i64, i64)> = sql
                    .prepare_cached("SELECT start_ns, trace FROM trajectory WHERE no = ?")?
                    .query_row([verdict.trajectory], |row| Ok((row.get(0)?, row.get(1)?)))
                    .optional()?;
                let Some((start_ns, trace)) = start else { continue };
                let outcome = OutcomeRecord::wrong_with_group(group.clone());
                let no = assign_failure_group(sql, &outcome, start_ns)?;
                sql.prepare_cached(
                    "UPDATE outcome SET failure_group = ? WHERE trajectory = ? AND evaluator = ? AND step = ? AND line = ?",
                )?
                .execute(params![no, verdict.trajectory, verdict.evaluator, verdict.step, verdict.line])?;
                replace_failures(sql, verdict.trajectory)?;
                crate::facets::update_facets(sql, trace)?;
            }
            Ok(())
        })
    }

    /// Writes what people say about a group. Returns false if the group does not exist.
    pub fn annotate_failure_group(
        &self,
        key: &str,
        note: FailureGroupNote,
        now_ns: i64,
    ) -> Result<WriteHandle<bool>, StoreError> {
        let key = key.to_owned();
        self.writer()?.submit(256, move |writing| {
            let text = |text: &Option<String>| text.clone().map(|text| Some(text).filter(|text| !text.is_empty()));
            let (name, body) = (text(&note.name), text(&note.note));
            let muted_ns = note.is_muted.map(|is_muted| is_muted.then_some(now_ns));
            let changed = writing
                .sql
                .prepare_cached(
                    "UPDATE failure_group SET name = CASE WHEN ?2 THEN ?3 ELSE name END, \
                     note = CASE WHEN ?4 THEN ?5 ELSE note END, muted_ns = CASE WHEN ?6 THEN CAST(?7 AS BIGINT) ELSE muted_ns END WHERE key = ?1",
                )?
                .execute(params![
                    key,
                    name.is_some(),
                    name.flatten(),
                    body.is_some(),
                    body.flatten(),
                    muted_ns.is_some(),
                    muted_ns.flatten()
                ])?;
            Ok(changed > 0)
        })
    }
}
