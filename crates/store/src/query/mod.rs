//! Queries. Every list uses an index and examines a bounded number of rows; tests check the query plans.

mod alert_windows;
mod annotations;
mod compared_runs;
mod failure_groups;
mod judged_cases;
mod latest;
mod metrics;
mod name_scores;
mod overview;
mod recent_outcomes;
mod review;
mod review_progress;
mod search;
mod session_list;
mod session_turns;
mod sessions;
mod spans;
mod store_progress;
mod trace_conditions;
mod trace_filter;
mod trace_list_page;
mod trace_order;
mod trace_rows;
mod trace_search;
mod trace_walk;
mod traces;
mod trends;
mod verdicts;
mod wrong_verdicts;

pub use crate::buckets::TrajectoryUsage;
pub use crate::buckets::{BUCKET_NS, ScoreMoments};
pub use crate::query::trace_filter::ScoreBound;
pub use crate::query::trace_filter::TraceFilter;
pub use alert_windows::{ExampleRow, TrajectoryWindow};
pub use annotations::AnnotationQuery;
pub use compared_runs::{ComparedGroupRow, ComparedOutcome, ComparedRunRow, ComparedRuns};
pub use failure_groups::{FailureGroupList, FailureGroupOptions, FailureGroupRow, FailureTrajectoryRow};
pub use judged_cases::JudgedCaseRow;
pub use metrics::{MetricFilter, MetricGroup, MetricRow};
pub use name_scores::{NameScoreRow, NameScoreTable};
pub use overview::{LatestOverview, OverviewTotals, RunEndingRow, TaskRow, VersionRow};
pub use recent_outcomes::RecentOutcomeRow;
pub use review::{LabelRow, ReviewFilter, ReviewItem, ReviewPosition};
pub use review_progress::ReviewProgress;
pub use session_list::{SessionFilter, SessionListCursor, SessionSummary, SessionSummaryPage};
pub(crate) use session_turns::read_earlier_turns;
pub use session_turns::{EarlierTurnRow, SessionTotals, SessionTurnPage, SessionTurnRow};
pub use sessions::{SessionRow, SessionTrace};
pub(crate) use spans::{BLOCKS_OF_TRACE, SPANS_OF_TRACE, read_trace_group, signal_from_number};
pub use spans::{PagePosition, ProjectPosition, StoredBlock, StoredTraceGroup, TraceGroupLimits};
pub use store_progress::{GradedTrajectory, StoreProgress};
pub use trace_list_page::TraceListCursor;
pub use trace_order::{GroupTotals, MAX_SORTED_TRACES, SortedTraces, TraceCount, TraceOrder};
pub(crate) use trace_rows::read_trajectory_json;
pub use trace_rows::{ScoreRow, TraceRow, TrajectoryRow};
pub use trace_walk::{TraceRecords, TraceWalk};
pub use traces::TraceRowPage;
pub use trends::{MetricPeriod, MetricPeriods, ToolSums, UsagePeriods};
pub use verdicts::VerdictLine;

use crate::sql::{OptionalRow, SqlConnection, params};
use gradus_core::span::{SpanId, TraceId};

use crate::Store;
use crate::error::StoreError;

/// A project with its counts, which triggers keep up to date.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProjectRow {
    pub name: String,
    pub created_ns: i64,
    pub traces: i64,
    pub spans: i64,
    pub trajectories: i64,
    pub first_ns: Option<i64>,
    pub last_ns: Option<i64>,
}

impl Store {
    /// All projects by name, with the times of their first and last trace.
    pub fn projects(&self) -> Result<Vec<ProjectRow>, StoreError> {
        let reader = self.readers.take_reader()?;
        let counts = reader.choose(
            "traces, spans, trajectories",
            "(SELECT coalesce(sum(traces), 0) FROM project_count WHERE project = project.no), \
             (SELECT coalesce(sum(spans), 0) FROM project_count WHERE project = project.no), \
             (SELECT coalesce(sum(trajectories), 0) FROM project_count WHERE project = project.no)",
        );
        // Minimum and maximum are one index lookup each.
        let mut statement = reader.prepare_cached(&format!(
            "SELECT name, created_ns, {counts}, (SELECT min(start_ns) FROM trace WHERE project = project.no), \
             (SELECT max(start_ns) FROM trace WHERE project = project.no) FROM project ORDER BY name"
        ))?;
        let rows = statement.query_map((), |row| {
            Ok(ProjectRow {
                name: row.get(0)?,
                created_ns: row.get(1)?,
                traces: row.get(2)?,
                spans: row.get(3)?,
                trajectories: row.get(4)?,
                first_ns: row.get(5)?,
                last_ns: row.get(6)?,
            })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Whether a project exists, also one without traces.
    pub fn has_project(&self, name: &str) -> Result<bool, StoreError> {
        Ok(project_number(&*self.readers.take_reader()?, name)?.is_some())
    }

    /// The trace that contains a span. Ids of spans are unique in practice only; the first match counts.
    pub fn trace_of_span(&self, span: SpanId) -> Result<Option<TraceId>, StoreError> {
        let reader = self.readers.take_reader()?;
        let id = reader
            .prepare_cached(
                "SELECT trace.trace_id FROM span JOIN trace ON trace.no = span.trace WHERE span.span_id = ? LIMIT 1",
            )?
            .query_row(params![span.0 as i64], |row| row.get::<[u8; 16]>(0))
            .optional()?;
        Ok(id.map(|id| TraceId(u128::from_be_bytes(id))))
    }
}

/// The number of a project; `None` if the project does not exist.
pub(crate) fn project_number(sql: &SqlConnection, name: &str) -> Result<Option<i64>, StoreError> {
    Ok(sql.prepare_cached("SELECT no FROM project WHERE name = ?")?.query_row([name], |row| row.get(0)).optional()?)
}
