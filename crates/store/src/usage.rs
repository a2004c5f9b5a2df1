//! Coarse rollups of usage: time and cost of trajectories, by hour and day.

use std::collections::HashMap;

use crate::sql::{OptionalRow, SqlConnection, params};
use foldhash::fast::RandomState;

use crate::buckets::bucket_index;
use crate::coarse_rollup::{ALL_PROJECTS, CoarseRollupKey, RollupDimensions};
use crate::error::StoreError;
use crate::query::TrajectoryUsage;
use crate::records::TrajectoryRecord;

/// Adds to an existing row.
macro_rules! added {
    () => {
        "ON CONFLICT (size, project, kind, name, bucket) DO UPDATE SET \
         trajectories = usage_long.trajectories + excluded.trajectories, \
         errors = usage_long.errors + excluded.errors, steps = usage_long.steps + excluded.steps, \
         tokens = usage_long.tokens + excluded.tokens, took_ns = usage_long.took_ns + excluded.took_ns, \
         costed = usage_long.costed + excluded.costed, cost_usd = usage_long.cost_usd + excluded.cost_usd"
    };
}

/// Changes of usage, collected before they are written: many trajectories change the same rows.
#[derive(Debug, Default)]
pub(crate) struct UsageRollupChanges<'r> {
    /// By hour, since there are no shorter rows of usage.
    hours: HashMap<RollupDimensions<'r>, TrajectoryUsage, RandomState>,
}

impl<'r> UsageRollupChanges<'r> {
    /// Adds a trajectory that is about to be inserted.
    pub(crate) fn add_trajectory(&mut self, project: i64, record: &'r TrajectoryRecord) {
        let of = RollupDimensions {
            project,
            bucket: bucket_index(record.start_ns),
            agent: &record.agent,
            version: &record.version,
            model: &record.model,
        };
        let usage = TrajectoryUsage {
            trajectories: 1,
            errors: i64::from(record.is_error),
            steps: i64::from(record.steps),
            tokens: i64::try_from(record.tokens).unwrap_or_default(),
            took_ns: took_ns(record.start_ns, record.end_ns),
            costed: i64::from(record.cost_usd.is_some()),
            cost_usd: record.cost_usd.unwrap_or(0.0),
        };
        self.add_usage(of, &usage);
    }

    fn add_usage(&mut self, of: RollupDimensions<'r>, usage: &TrajectoryUsage) {
        *self.hours.entry(of.truncate_to_hour()).or_default() += *usage;
    }

    /// Writes the coarse rows of all collected hours.
    pub(crate) fn write(&mut self, sql: &SqlConnection) -> Result<(), StoreError> {
        let mut rows: HashMap<CoarseRollupKey<'_>, TrajectoryUsage, RandomState> = HashMap::default();
        for (of, usage) in self.hours.drain() {
            // One hour goes into rows of the hour and of the day, of the project and of all projects, and of each name.
            for place in of.coarse_keys() {
                *rows.entry(place).or_default() += usage;
            }
        }
        rows.iter().try_for_each(|(place, usage)| upsert_usage_row(sql, place, usage))
    }
}

/// Negative durations, from clocks that disagree, count as zero.
fn took_ns(start_ns: i64, end_ns: i64) -> f64 {
    end_ns.saturating_sub(start_ns).max(0) as f64
}

/// Adds a stored trajectory, after its columns changed.
pub(crate) fn add_trajectory_usage(sql: &SqlConnection, trajectory: i64) -> Result<(), StoreError> {
    apply_trajectory_usage(sql, trajectory, 1)
}

/// Subtracts a stored trajectory, before its columns change or it is removed.
pub(crate) fn subtract_trajectory_usage(sql: &SqlConnection, trajectory: i64) -> Result<(), StoreError> {
    apply_trajectory_usage(sql, trajectory, -1)
}

/// Adds or subtracts a stored trajectory.
fn apply_trajectory_usage(sql: &SqlConnection, trajectory: i64, sign: i64) -> Result<(), StoreError> {
    let factor = sign as f64;
    let known: Option<(i64, i64, [String; 3], TrajectoryUsage)> = sql
        .prepare_cached(
            "SELECT project, start_ns, agent, version, model, is_error, steps, tokens, end_ns, cost_usd \
             FROM trajectory WHERE no = ?",
        )?
        .query_row([trajectory], |row| {
            let start_ns = row.get(1)?;
            let cost: Option<f64> = row.get(9)?;
            let usage = TrajectoryUsage {
                trajectories: sign,
                errors: sign * row.get::<i64>(5)?,
                steps: sign * row.get::<i64>(6)?,
                tokens: sign.saturating_mul(row.get(7)?),
                took_ns: factor * took_ns(start_ns, row.get(8)?),
                costed: sign * i64::from(cost.is_some()),
                cost_usd: factor * cost.unwrap_or(0.0),
            };
            Ok((row.get(0)?, start_ns, [row.get(2)?, row.get(3)?, row.get(4)?], usage))
        })
        .optional()?;
    let Some((project, start_ns, [agent, version, model], usage)) = known else { return Ok(()) };
    let bucket = bucket_index(start_ns);
    let mut sums = UsageRollupChanges::default();
    sums.add_usage(RollupDimensions { project, bucket, agent: &agent, version: &version, model: &model }, &usage);
    sums.write(sql)
}

/// Adds to a row, or removes it with its last trajectory.
fn upsert_usage_row(sql: &SqlConnection, place: &CoarseRollupKey<'_>, by: &TrajectoryUsage) -> Result<(), StoreError> {
    let CoarseRollupKey { size, project, kind, bucket, .. } = *place;
    let name = place.name();
    sql.prepare_cached(concat!(
        "INSERT INTO usage_long (size, project, kind, name, bucket, trajectories, errors, steps, tokens, took_ns, costed, \
         cost_usd) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ",
        added!()
    ))?
    .execute(params![
        size,
        project,
        kind as i64,
        name,
        bucket,
        by.trajectories,
        by.errors,
        by.steps,
        by.tokens,
        by.took_ns,
        by.costed,
        by.cost_usd,
    ])?;
    // A row is deleted with its last trajectory, and with it the rounding error.
    if by.trajectories < 0 {
        sql.prepare_cached(
            "DELETE FROM usage_long WHERE size = ? AND project = ? AND kind = ? AND name = ? AND bucket = ? \
             AND trajectories <= 0",
        )?
        .execute(params![size, project, kind as i64, name, bucket])?;
    }
    Ok(())
}

/// Removes a project, also from the sums over all projects.
pub(crate) fn delete_project_usage(sql: &SqlConnection, project: i64) -> Result<(), StoreError> {
    sql.prepare_cached(concat!(
        "INSERT INTO usage_long (size, project, kind, name, bucket, trajectories, errors, steps, tokens, took_ns, costed, \
         cost_usd) SELECT size, ?2, kind, name, bucket, -trajectories, -errors, -steps, -tokens, -took_ns, -costed, \
         -cost_usd FROM usage_long WHERE size IN (1, 24) AND project = ?1 ",
        added!()
    ))?
    .execute([project, ALL_PROJECTS])?;
    for (statement, project) in [
        ("DELETE FROM usage_long WHERE size IN (1, 24) AND project = ?", project),
        ("DELETE FROM usage_long WHERE size IN (1, 24) AND project = ? AND trajectories <= 0", ALL_PROJECTS),
    ] {
        sql.prepare_cached(statement)?.execute([project])?;
    }
    Ok(())
}
