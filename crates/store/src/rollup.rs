//! Rollups of scores: what one trajectory adds to them, and what is subtracted when it changes.

use std::collections::HashMap;

use crate::sql::{OptionalRow, SqlConnection, params};
use foldhash::fast::RandomState;

use crate::buckets::bucket_index;
use crate::coarse_rollup::{ALL_PROJECTS, CoarseRollupKey, RollupDimensions};
use crate::error::StoreError;
use crate::query::ScoreMoments;
use crate::records::{RecordedKind, TrajectoryRecord, latest_outcomes};

/// The columns of a row that are sums.
macro_rules! sums {
    () => {
        "trajectories, scored_trajectories, scored, sum, sum_sum, sum_n, n_n, failed, not_applicable, abstained"
    };
}

/// Adds to an existing row of a table with this key.
macro_rules! added {
    ($table:literal, $key:literal) => {
        concat!(
            "ON CONFLICT (",
            $key,
            ") DO UPDATE SET \
             trajectories = ",
            $table,
            ".trajectories + excluded.trajectories, \
             scored_trajectories = ",
            $table,
            ".scored_trajectories + excluded.scored_trajectories, \
             scored = ",
            $table,
            ".scored + excluded.scored, \
             sum = ",
            $table,
            ".sum + excluded.sum, \
             sum_sum = ",
            $table,
            ".sum_sum + excluded.sum_sum, \
             sum_n = ",
            $table,
            ".sum_n + excluded.sum_n, \
             n_n = ",
            $table,
            ".n_n + excluded.n_n, \
             failed = ",
            $table,
            ".failed + excluded.failed, \
             not_applicable = ",
            $table,
            ".not_applicable + excluded.not_applicable, \
             abstained = ",
            $table,
            ".abstained + excluded.abstained"
        )
    };
}

/// Adds the outcomes of a stored trajectory, of all evaluators or of one.
pub(crate) fn add_score_rollups(
    sql: &SqlConnection,
    trajectory: i64,
    evaluator: Option<&str>,
) -> Result<(), StoreError> {
    apply_score_rollups(sql, trajectory, evaluator, 1)
}

/// Subtracts them. Must be called before the outcomes or the dimensions of the trajectory change.
pub(crate) fn subtract_score_rollups(
    sql: &SqlConnection,
    trajectory: i64,
    evaluator: Option<&str>,
) -> Result<(), StoreError> {
    apply_score_rollups(sql, trajectory, evaluator, -1)
}

/// Adds or subtracts a trajectory by its stored outcomes: all, or those of one evaluator.
fn apply_score_rollups(
    sql: &SqlConnection,
    trajectory: i64,
    evaluator: Option<&str>,
    sign: i64,
) -> Result<(), StoreError> {
    let verdicts: Vec<(String, String, i64, Option<f64>)> = sql
        .prepare_cached(
            "SELECT evaluator, tool, kind, score FROM outcome \
             WHERE trajectory = ?1 AND (?2 IS NULL OR evaluator = ?2)",
        )?
        .query_map(params![trajectory, evaluator], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))?
        .collect::<Result<_, _>>()?;
    if verdicts.is_empty() {
        return Ok(());
    }
    let known: Option<(i64, i64, String, String, String)> = sql
        .prepare_cached("SELECT project, start_ns, agent, version, model FROM trajectory WHERE no = ?")?
        .query_row([trajectory], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?)))
        .optional()?;
    // Removed meanwhile: it was subtracted then.
    let Some((project, start_ns, agent, version, model)) = known else { return Ok(()) };
    let of =
        RollupDimensions { project, bucket: bucket_index(start_ns), agent: &agent, version: &version, model: &model };
    let verdicts = verdicts.iter().map(|(evaluator, tool, kind, score)| RollupVerdict {
        evaluator,
        tool,
        kind: *kind,
        score: *score,
    });
    let mut sums = ScoreRollupChanges::default();
    sums.count_trajectory(of, verdicts, sign);
    sums.write(sql)
}

/// Key of a five-minute row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct RollupKey<'r> {
    of: RollupDimensions<'r>,
    evaluator: &'r str,
    /// Empty for all tools together.
    tool: &'r str,
}

/// Key of a coarse row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct CoarseScoreKey<'r> {
    place: CoarseRollupKey<'r>,
    evaluator: &'r str,
    tool: &'r str,
}

/// The parts of an outcome that rollups need.
struct RollupVerdict<'r> {
    evaluator: &'r str,
    tool: &'r str,
    kind: i64,
    score: Option<f64>,
}

/// Changes of rollups, collected before they are written: many trajectories change the same rows.
#[derive(Debug, Default)]
pub(crate) struct ScoreRollupChanges<'r> {
    rows: HashMap<RollupKey<'r>, ScoreMoments, RandomState>,
}

impl<'r> ScoreRollupChanges<'r> {
    /// Adds a trajectory that has no outcomes but those of its record.
    pub(crate) fn add_trajectory(&mut self, project: i64, record: &'r TrajectoryRecord) {
        let of = RollupDimensions {
            project,
            bucket: bucket_index(record.start_ns),
            agent: &record.agent,
            version: &record.version,
            model: &record.model,
        };
        let verdicts = latest_outcomes(&record.outcomes).map(|outcome| RollupVerdict {
            evaluator: &outcome.evaluator,
            tool: &outcome.tool,
            kind: outcome.kind as i64,
            score: outcome.score,
        });
        self.count_trajectory(of, verdicts, 1);
    }

    /// Adds one trajectory, or subtracts it with a negative sign: for each evaluator over all tools, and for each tool.
    fn count_trajectory(
        &mut self,
        of: RollupDimensions<'r>,
        verdicts: impl Iterator<Item = RollupVerdict<'r>>,
        sign: i64,
    ) {
        let mut parts: HashMap<(&'r str, &'r str), TrajectoryRollup, RandomState> = HashMap::default();
        for verdict in verdicts {
            // Every outcome counts in the row over all tools, and once more in that of its tool.
            parts.entry((verdict.evaluator, "")).or_default().add_verdict(&verdict);
            if !verdict.tool.is_empty() {
                parts.entry((verdict.evaluator, verdict.tool)).or_default().add_verdict(&verdict);
            }
        }
        for ((evaluator, tool), part) in parts {
            *self.rows.entry(RollupKey { of, evaluator, tool }).or_default() += part.to_moments(sign);
        }
    }

    /// Writes the five-minute rows, sums them up by hour, and writes the coarse rows.
    pub(crate) fn write(&mut self, sql: &SqlConnection) -> Result<(), StoreError> {
        if self.rows.is_empty() {
            return Ok(());
        }
        write_rollup_rows(sql, &self.rows)?;
        let mut hours: HashMap<RollupKey<'_>, ScoreMoments, RandomState> = HashMap::default();
        for (row, moments) in self.rows.drain() {
            *hours.entry(RollupKey { of: row.of.truncate_to_hour(), ..row }).or_default() += moments;
        }
        let mut long: HashMap<CoarseScoreKey<'_>, ScoreMoments, RandomState> = HashMap::default();
        for (row, moments) in hours {
            for place in row.of.coarse_keys() {
                let of_place = CoarseScoreKey { place, evaluator: row.evaluator, tool: row.tool };
                *long.entry(of_place).or_default() += moments;
            }
        }
        write_coarse_rows(sql, &long)
    }
}

/// Sums of the outcomes of one trajectory.
#[derive(Default)]
struct TrajectoryRollup {
    scored: i64,
    sum: f64,
    failed: i64,
    not_applicable: i64,
    abstained: i64,
}

impl TrajectoryRollup {
    /// A label without a score is neither good nor bad, so it decides nothing: it counts as an abstention.
    fn add_verdict(&mut self, verdict: &RollupVerdict<'_>) {
        const SCORED: i64 = RecordedKind::Scored as i64;
        const NOT_APPLICABLE: i64 = RecordedKind::NotApplicable as i64;
        const ABSTAINED: i64 = RecordedKind::Abstained as i64;
        match (verdict.kind, verdict.score) {
            (SCORED, Some(score)) => {
                self.scored += 1;
                self.sum += score;
            }
            (SCORED, None) | (ABSTAINED, _) => self.abstained += 1,
            (NOT_APPLICABLE, _) => self.not_applicable += 1,
            _ => self.failed += 1,
        }
    }

    /// Its contribution to the moments: the trajectory is one cluster.
    fn to_moments(&self, sign: i64) -> ScoreMoments {
        let (n, factor) = (self.scored as f64, sign as f64);
        ScoreMoments {
            trajectories: sign,
            scored_trajectories: sign * i64::from(self.scored > 0),
            scored: sign * self.scored,
            sum: factor * self.sum,
            sum_sum: factor * self.sum * self.sum,
            sum_n: factor * self.sum * n,
            n_n: factor * n * n,
            failed: sign * self.failed,
            not_applicable: sign * self.not_applicable,
            abstained: sign * self.abstained,
        }
    }
}

/// Adds to five-minute rows, and removes those that lost their last trajectory.
fn write_rollup_rows(
    sql: &SqlConnection,
    rows: &HashMap<RollupKey<'_>, ScoreMoments, RandomState>,
) -> Result<(), StoreError> {
    let mut insert = sql.bulk_insert(concat!(
        "INSERT INTO rollup (project, evaluator, tool, bucket, agent, version, model, ",
        sums!(),
        ") \
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ",
        added!("rollup", "project, evaluator, tool, bucket, agent, version, model")
    ))?;
    for (RollupKey { of, evaluator, tool }, by) in rows {
        insert.push(params![
            of.project,
            evaluator,
            tool,
            of.bucket,
            of.agent,
            of.version,
            of.model,
            by.trajectories,
            by.scored_trajectories,
            by.scored,
            by.sum,
            by.sum_sum,
            by.sum_n,
            by.n_n,
            by.failed,
            by.not_applicable,
            by.abstained,
        ])?;
    }
    insert.finish()?;
    for (RollupKey { of, evaluator, tool }, _) in rows.iter().filter(|(_, by)| by.trajectories < 0) {
        // A row is deleted with its last trajectory, and with it the rounding error.
        sql.prepare_cached(
            "DELETE FROM rollup WHERE project = ? AND evaluator = ? AND tool = ? AND bucket = ? AND agent = ? \
             AND version = ? AND model = ? AND trajectories <= 0",
        )?
        .execute(params![of.project, evaluator, tool, of.bucket, of.agent, of.version, of.model])?;
    }
    Ok(())
}

/// Adds to coarse rows, and removes those that lost their last trajectory.
fn write_coarse_rows(
    sql: &SqlConnection,
    rows: &HashMap<CoarseScoreKey<'_>, ScoreMoments, RandomState>,
) -> Result<(), StoreError> {
    let mut insert = sql.bulk_insert(concat!(
        "INSERT INTO rollup_long (size, project, evaluator, tool, kind, name, bucket, ",
        sums!(),
        ") \
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ",
        added!("rollup_long", "size, project, evaluator, tool, kind, name, bucket")
    ))?;
    for (CoarseScoreKey { place, evaluator, tool }, by) in rows {
        insert.push(params![
            place.size,
            place.project,
            evaluator,
            tool,
            place.kind as i64,
            place.name(),
            place.bucket,
            by.trajectories,
            by.scored_trajectories,
            by.scored,
            by.sum,
            by.sum_sum,
            by.sum_n,
            by.n_n,
            by.failed,
            by.not_applicable,
            by.abstained,
        ])?;
    }
    insert.finish()?;
    for (CoarseScoreKey { place, evaluator, tool }, _) in rows.iter().filter(|(_, by)| by.trajectories < 0) {
        sql.prepare_cached(
            "DELETE FROM rollup_long WHERE size = ? AND project = ? AND evaluator = ? AND tool = ? AND kind = ? \
             AND name = ? AND bucket = ? AND trajectories <= 0",
        )?
        .execute(params![
            place.size,
            place.project,
            evaluator,
            tool,
            place.kind as i64,
            place.name(),
            place.bucket
        ])?;
    }
    Ok(())
}

/// Removes a project, also from the sums over all projects.
pub(crate) fn delete_project_rollups(sql: &SqlConnection, project: i64) -> Result<(), StoreError> {
    sql.prepare_cached(concat!(
        "INSERT INTO rollup_long (size, project, evaluator, tool, kind, name, bucket, ",
        sums!(),
        ") \
         SELECT size, ?2, evaluator, tool, kind, name, bucket, -trajectories, -scored_trajectories, -scored, -sum, \
         -sum_sum, -sum_n, -n_n, -failed, -not_applicable, -abstained FROM rollup_long \
         WHERE size IN (1, 24) AND project = ?1 ",
        added!("rollup_long", "size, project, evaluator, tool, kind, name, bucket")
    ))?
    .execute([project, ALL_PROJECTS])?;
    for (statement, project) in [
        ("DELETE FROM rollup WHERE project = ?", project),
        ("DELETE FROM rollup_long WHERE size IN (1, 24) AND project = ?", project),
        ("DELETE FROM rollup_long WHERE size IN (1, 24) AND project = ? AND trajectories <= 0", ALL_PROJECTS),
    ] {
        sql.prepare_cached(statement)?.execute([project])?;
    }
    Ok(())
}
