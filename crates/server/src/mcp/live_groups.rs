//! Failure groups of live traffic, as the store counts them for the overview and the API.

use gradus_eval::report::{FailureExample, FailureGroup};
use gradus_mcp::{ArchiveError, FlaggedScope, RunFilter, StoredFailureGroups};
use gradus_store::{FailureGroupOptions, FailureGroupRow, FailureTrajectoryRow, MetricFilter, Store, TrajectoryWindow};
use jiff::Timestamp;

use super::live_runs::LIVE_TRAFFIC;
use super::store_failure::to_archive_error;

/// Maximum number of groups, the largest, which are then paged.
const MAX_GROUPS: usize = 500;

/// Loads the groups. Muted ones are included: muting applies to the pages only.
pub(super) fn load_live_groups(store: &Store, filter: &RunFilter) -> Result<StoredFailureGroups, ArchiveError> {
    let nanoseconds = |time: Timestamp| i64::try_from(time.as_nanosecond()).unwrap_or(i64::MAX);
    let (from_ns, to_ns) = (filter.from.map(nanoseconds), filter.to.map(nanoseconds));
    let metrics = MetricFilter {
        project: filter.project.clone(),
        agent: filter.agent.clone(),
        from_ns,
        to_ns,
        ..MetricFilter::default()
    };
    let options = FailureGroupOptions { before_ns: None, with_muted: true, key: None, limit: MAX_GROUPS };
    let rows = store.failure_groups(&metrics, options).map_err(to_archive_error)?.groups;
    let window = TrajectoryWindow {
        project: filter.project.clone(),
        from_ns: from_ns.unwrap_or(i64::MIN),
        to_ns: to_ns.unwrap_or(i64::MAX),
    };
    let (counted, _) = store.error_counts(&window).map_err(to_archive_error)?;
    // Of many runs, only the latest are counted.
    let run_count = counted.max(rows.iter().map(|row| row.trajectories).max().unwrap_or(0));
    let scope = FlaggedScope { description: LIVE_TRAFFIC.to_owned(), run_count, is_partial: false };
    Ok(StoredFailureGroups { scope, groups: rows.into_iter().map(|row| describe_group(row, run_count)).collect() })
}

fn describe_group(row: FailureGroupRow, run_count: u64) -> FailureGroup {
    // The store writes missing names as empty strings.
    let text = |text: String| (!text.is_empty()).then_some(text);
    FailureGroup {
        key: row.key,
        evaluator: row.evaluator,
        tool: text(row.tool),
        rule: text(row.rule),
        label: row.label,
        reason: row.reason,
        count: row.verdicts,
        trajectories: row.trajectories,
        share: row.trajectories as f64 / run_count.max(1) as f64,
        examples: row.example.into_iter().map(describe_example).collect(),
    }
}

fn describe_example(row: FailureTrajectoryRow) -> FailureExample {
    FailureExample {
        trajectory_id: row.trajectory_id,
        trace_id: Some(row.trace_id.to_string()),
        step_index: row.step,
        request: (!row.query.is_empty()).then_some(row.query),
    }
}
