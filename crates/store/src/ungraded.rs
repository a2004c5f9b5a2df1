//! The queue of trajectories that a model has yet to judge, and the storing of its verdicts.

use std::collections::{BTreeSet, HashSet};

use crate::ready_queue::LEASE_INTERVAL;
use crate::sql::{OptionalRow, SqlConnection, SqlValue, params, params_from_iter};

use crate::Store;
use crate::error::StoreError;
use crate::facets::update_facets;
use crate::failures::replace_failures;
use crate::grading::{TrajectoryDigest, insert_outcomes};
use crate::records::OutcomeRecord;
use crate::rollup;
use crate::spend::{JudgeSpend, add_spend};
use crate::writer::WriteHandle;

/// A trajectory that waits for a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UngradedTrajectory {
    pub no: i64,
    pub trajectory_id: String,
    pub trace_group: i64,
    pub project: String,
    pub rule: String,
    /// The version that the caller judges. Verdicts on another version are dropped.
    pub digest: TrajectoryDigest,
    /// Failed attempts to get its verdicts.
    pub attempts: u32,
    /// How often it was postponed without a fault of its own, for example because a budget was exhausted.
    pub delays: u32,
}

/// What is left to do for a trajectory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemainingGrading {
    /// More verdicts follow.
    More,
    Nothing,
    /// Some questions failed through their own fault. They are asked again at this time.
    RetryAt {
        ns: i64,
    },
    /// No judge was available. It waits until this time, and no attempt is counted.
    PostponedUntil {
        ns: i64,
    },
}

/// Number of waiting trajectories. Counting stops at a limit, so that it stays cheap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GradingBacklog {
    pub count: u64,
    /// Whether the limit was reached: there may be more.
    pub is_cut: bool,
}

impl Store {
    /// Stores verdicts of a model on a trajectory, their cost, and what is left to do. Verdicts on a version that no
    /// longer exists are dropped, because the new version is in the queue itself; the cost is counted in any case.
    pub fn record_verdicts(
        &self,
        trajectory: &UngradedTrajectory,
        outcomes: Vec<OutcomeRecord>,
        spend: JudgeSpend,
        left: RemainingGrading,
        now_ns: i64,
    ) -> Result<WriteHandle<()>, StoreError> {
        let bytes = outcomes.iter().map(|outcome| outcome.line.len() + 200).sum();
        let (no, digest) = (trajectory.no, trajectory.digest);
        // Other servers wait until this time, and count the spending of this day.
        let now_ns = self.node.shared_time_ns(now_ns);
        let left = match left {
            RemainingGrading::RetryAt { ns } => RemainingGrading::RetryAt { ns: self.node.shared_time_ns(ns) },
            RemainingGrading::PostponedUntil { ns } => {
                RemainingGrading::PostponedUntil { ns: self.node.shared_time_ns(ns) }
            }
            left => left,
        };
        self.writer()?.submit(bytes, move |writing| {
            let sql = writing.sql;
            crate::grading::lock_derived_rows(sql)?;
            let known: Option<(i64, [u8; 16], i64)> = sql
                .prepare_cached("SELECT trace, digest, project FROM trajectory WHERE no = ?")?
                .query_row([no], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
                .optional()?;
            let project = known.map(|(_, _, project)| project);
            add_spend(sql, &spend, project, now_ns)?;
            let Some((trace, _, _)) = known.filter(|(_, known, _)| *known == digest.0) else { return Ok(()) };
            put_outcomes(sql, no, &outcomes, now_ns)?;
            match left {
                RemainingGrading::More => {}
                RemainingGrading::Nothing => {
                    sql.prepare_cached("DELETE FROM ungraded WHERE trajectory = ?")?.execute([no])?;
                }
                RemainingGrading::RetryAt { ns } => {
                    sql.prepare_cached(
                        "UPDATE ungraded SET attempts = attempts + 1, not_before_ns = ? WHERE trajectory = ?",
                    )?
                    .execute([ns, no])?;
                }
                RemainingGrading::PostponedUntil { ns } => {
                    sql.prepare_cached(
                        "UPDATE ungraded SET delays = delays + 1, not_before_ns = ? WHERE trajectory = ?",
                    )?
                    .execute([ns, no])?;
                }
            }
            // Without verdicts, the facets did not change.
            if outcomes.is_empty() { Ok(()) } else { update_facets(sql, trace) }
        })
    }

    /// Trajectories that wait for the model of a rule, oldest first, behind the number `after`.
    pub fn ungraded_trajectories(
        &self,
        rule: &str,
        now_ns: i64,
        after: i64,
        limit: usize,
    ) -> Result<Vec<UngradedTrajectory>, StoreError> {
        let now_ns = self.node.shared_time_ns(now_ns);
        if self.engine.file().is_none() {
            self.claim_ungraded(rule, now_ns, after, limit)?;
        }
        let reader = self.readers.take_reader()?;
        // What another server judges is left out.
        let own = reader.choose("", "AND ungraded.owner = ?5 AND ungraded.leased_until > now()");
        let mut statement = reader.prepare_cached(&format!(
            "SELECT trajectory.no, trajectory_id, story, project.name, ungraded.rule, digest, attempts, delays \
             FROM ungraded INDEXED BY ungraded_by_rule \
             CROSS JOIN trajectory ON trajectory.no = ungraded.trajectory \
             CROSS JOIN project ON project.no = trajectory.project \
             WHERE ungraded.rule = ?1 AND ungraded.trajectory > ?2 AND not_before_ns <= ?3 {own} \
             ORDER BY ungraded.trajectory LIMIT ?4"
        ))?;
        let mut values = vec![
            SqlValue::Text(rule.to_owned()),
            SqlValue::Integer(after),
            SqlValue::Integer(now_ns),
            SqlValue::Integer(limit as i64),
        ];
        values.extend(reader.choose(None, Some(SqlValue::Text(self.node.name().to_owned()))));
        let rows = statement.query_map(params_from_iter(values), |row| {
            Ok(UngradedTrajectory {
                no: row.get(0)?,
                trajectory_id: row.get(1)?,
                trace_group: row.get(2)?,
                project: row.get(3)?,
                rule: row.get(4)?,
                digest: TrajectoryDigest(row.get(5)?),
                attempts: row.get(6)?,
                delays: row.get(7)?,
            })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Claims trajectories that no other server judges, and waits for the commit: a claim must be known to all before
    /// anything is paid for.
    fn claim_ungraded(&self, rule: &str, now_ns: i64, after: i64, limit: usize) -> Result<(), StoreError> {
        let (rule, node) = (rule.to_owned(), self.node.name().to_owned());
        let claim = self.writer()?.submit(0, move |writing| {
            writing
                .sql
                .prepare_cached(&format!(
                    "UPDATE ungraded SET owner = ?5, leased_until = now() + {LEASE_INTERVAL} WHERE trajectory IN ( \
                     SELECT trajectory FROM ungraded WHERE rule = ?1 AND trajectory > ?2 AND not_before_ns <= ?3 \
                     AND (owner = ?5 OR leased_until IS NULL OR leased_until < now()) \
                     ORDER BY trajectory LIMIT ?4 FOR UPDATE SKIP LOCKED)"
                ))?
                .execute(params![rule, after, now_ns, limit as i64, node])?;
            Ok(())
        })?;
        claim.wait()
    }

    /// The trace group that a waiting trajectory belongs to at present; `None` if it does not wait any more.
    pub fn trace_group_of_ungraded(&self, trajectory: i64) -> Result<Option<i64>, StoreError> {
        let reader = self.readers.take_reader()?;
        Ok(reader
            .prepare_cached(
                "SELECT story FROM ungraded CROSS JOIN trajectory ON trajectory.no = ungraded.trajectory \
                 WHERE ungraded.trajectory = ?",
            )?
            .query_row([trajectory], |row| row.get(0))
            .optional()?)
    }

    /// Returns the rules other than `known` that trajectories wait for, with their projects, each pair once. Such
    /// rules were removed from the configuration.
    pub fn waiting_rules_except(&self, known: &[&str]) -> Result<Vec<(String, String)>, StoreError> {
        let reader = self.readers.take_reader()?;
        let mut next = reader.prepare_cached("SELECT min(rule) FROM ungraded WHERE rule > ?")?;
        let mut projects = reader.prepare_cached(
            "SELECT project.name FROM ungraded INDEXED BY ungraded_by_rule \
             CROSS JOIN trajectory ON trajectory.no = ungraded.trajectory \
             CROSS JOIN project ON project.no = trajectory.project WHERE ungraded.rule = ?",
        )?;
        let mut found = BTreeSet::new();
        let mut rule = String::new();
        // From one rule to the next through the index, not row by row.
        while let Some(other) = next.query_row([&rule], |row| row.get::<Option<String>>(0))? {
            rule = other;
            if !known.contains(&rule.as_str()) {
                for project in projects.query_map([&rule], |row| row.get::<String>(0))? {
                    found.insert((rule.clone(), project?));
                }
            }
        }
        Ok(found.into_iter().collect())
    }

    /// Moves some trajectories of one project that wait for a rule to another rule, or removes them from the queue.
    /// Returns their number; the caller repeats it until that is 0.
    pub fn reroute_ungraded(
        &self,
        rule: String,
        project: String,
        to: Option<String>,
    ) -> Result<WriteHandle<usize>, StoreError> {
        // Bounds the time that other writers wait.
        const MAX_REROUTED: i64 = 2_000;
        self.writer()?.submit(0, move |writing| {
            let some: Vec<i64> = writing
                .sql
                .prepare_cached(
                    "SELECT ungraded.trajectory FROM ungraded INDEXED BY ungraded_by_rule \
                     CROSS JOIN trajectory ON trajectory.no = ungraded.trajectory \
                     CROSS JOIN project ON project.no = trajectory.project \
                     WHERE ungraded.rule = ? AND project.name = ? LIMIT ?",
                )?
                .query_map(params![rule, project, MAX_REROUTED], |row| row.get(0))?
                .collect::<Result<_, _>>()?;
            for no in &some {
                match &to {
                    Some(to) => writing
                        .sql
                        .prepare_cached("UPDATE ungraded SET rule = ? WHERE trajectory = ?")?
                        .execute(params![to, no])?,
                    None => writing.sql.prepare_cached("DELETE FROM ungraded WHERE trajectory = ?")?.execute([no])?,
                };
            }
            Ok(some.len())
        })
    }

    /// Number of trajectories of a project, or of all, that wait for a model, among the first `most` of the queue.
    pub fn grading_backlog(&self, project: Option<&str>, most: usize) -> Result<GradingBacklog, StoreError> {
        let reader = self.readers.take_reader()?;
        let (count, looked_at): (u64, i64) = reader
            .prepare_cached(
                "SELECT count(*) FILTER (WHERE ?1 IS NULL OR trajectory.project = (SELECT no FROM project WHERE name = ?1)), \
                 count(*) FROM (SELECT trajectory AS no FROM ungraded LIMIT ?2) AS listed \
                 CROSS JOIN trajectory ON trajectory.no = listed.no",
            )?
            .query_row(params![project, most as i64], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(GradingBacklog { count, is_cut: looked_at >= most as i64 })
    }

    /// Whether a trajectory waits for a model.
    pub fn is_awaiting_grading(&self, trajectory_id: &str) -> Result<bool, StoreError> {
        let reader = self.readers.take_reader()?;
        Ok(reader
            .prepare_cached(
                "SELECT 1 FROM trajectory CROSS JOIN ungraded ON ungraded.trajectory = trajectory.no WHERE trajectory_id = ?",
            )?
            .exists([trajectory_id])?)
    }

    pub fn ungraded_count(&self) -> Result<i64, StoreError> {
        let reader = self.readers.take_reader()?;
        Ok(reader.prepare_cached("SELECT count(*) FROM ungraded")?.query_row((), |row| row.get(0))?)
    }

    /// Returns the number of trajectories that wait for the model of a rule, counted up to `most`.
    pub fn rule_backlog(&self, rule: &str, most: usize) -> Result<GradingBacklog, StoreError> {
        let reader = self.readers.take_reader()?;
        let count: u64 = reader
            .prepare_cached("SELECT count(*) FROM (SELECT 1 FROM ungraded WHERE rule = ?1 LIMIT ?2) AS waiting")?
            .query_row(params![rule, most as i64], |row| row.get(0))?;
        Ok(GradingBacklog { count, is_cut: count >= most as u64 })
    }
}

/// Replaces the verdicts to the same questions, and brings the rollups up to date: subtract, insert, add.
fn put_outcomes(sql: &SqlConnection, no: i64, outcomes: &[OutcomeRecord], now_ns: i64) -> Result<(), StoreError> {
    let evaluators: HashSet<&str> = outcomes.iter().map(|outcome| outcome.evaluator.as_str()).collect();
    for evaluator in &evaluators {
        rollup::subtract_score_rollups(sql, no, Some(evaluator))?;
    }
    let start_ns =
        sql.prepare_cached("SELECT start_ns FROM trajectory WHERE no = ?")?.query_row([no], |row| row.get(0))?;
    insert_outcomes(sql, no, start_ns, outcomes, now_ns)?;
    replace_failures(sql, no)?;
    for evaluator in &evaluators {
        rollup::add_score_rollups(sql, no, Some(evaluator))?;
    }
    Ok(())
}
