//! The list of traces, and one trace with its trajectories, verdicts and annotations.

use crate::score_bound::score_bound;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::response::Response;
use gradus_core::span::TraceId;
use gradus_core::trajectory::Trajectory;
use gradus_eval::outcome::{ExportedOutcome, OutcomeSpans};
use gradus_store::{AnnotationFilter, ScoreRow, TraceFilter, TraceRow, TrajectoryRow, VerdictLine};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as JsonValue};
use utoipa::{IntoParams, ToSchema};

use super::annotations::AnnotationBody;
use super::schema;
use crate::http_error::{ApiError, ApiQuery, respond_json, respond_to_query};
use crate::queries::QueryKind;
use crate::state::ServerState;
use crate::time_text as time;
use crate::trace_group::TraceGroupView;
use crate::trace_search::{TraceSearch, parse_order};

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ListParams {
    project: Option<String>,
    /// Started at or after this time (RFC 3339).
    from: Option<String>,
    /// Started before this time (RFC 3339).
    to: Option<String>,
    agent: Option<String>,
    version: Option<String>,
    model: Option<String>,
    /// Calls this tool.
    tool: Option<String>,
    /// This evaluator gave a score below its best.
    wrong: Option<String>,
    /// The key of a failure group.
    group: Option<String>,
    /// Has a verdict with this label: `incorrect`, or `thought_to_tool=incorrect`.
    label: Option<String>,
    /// Mean score of a trajectory: `thought_to_tool<0.5` or `thought_to_tool>=0.9`.
    score: Option<String>,
    /// Contains an error, or does not.
    error: Option<bool>,
    /// Full-text search: all of these words occur in a trajectory.
    q: Option<String>,
    /// Has a span that meets this condition in Phoenix's filter language. Spans are read for it, so a page may be short.
    #[serde(rename = "where")]
    #[param(rename = "where")]
    condition: Option<String>,
    /// Another order than newest first: `duration`, `steps`, `cost` or `wrong`. Not together with `where`.
    sort: Option<String>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
    /// From 1 to 500.
    #[param(minimum = 1, maximum = 500, default = 50)]
    limit: Option<usize>,
}

/// A page of traces.
#[derive(Serialize, ToSchema)]
pub(super) struct TracePage {
    items: Vec<TraceSummary>,
    /// Null at the end. A page may be short or empty and still have a next one.
    next_cursor: Option<String>,
}

/// A trace without its content.
#[derive(Serialize, ToSchema)]
pub(super) struct TraceSummary {
    trace_id: String,
    project: String,
    /// The root span's name.
    name: String,
    start: String,
    end: String,
    duration_ms: f64,
    spans: i64,
    /// Spans that ended in an error.
    errors: i64,
    is_error: bool,
    /// Stored bytes.
    bytes: i64,
    /// False while the root span is missing.
    has_root: bool,
    /// When its latest record arrived.
    arrived: String,
    /// Trajectories that begin in this trace; empty until the trace is complete.
    trajectories: Vec<TrajectorySummary>,
}

/// A trajectory without its steps.
#[derive(Serialize, ToSchema)]
pub(super) struct TrajectorySummary {
    trajectory_id: String,
    agent: Option<String>,
    version: Option<String>,
    model: Option<String>,
    /// The beginning of the request.
    query: Option<String>,
    /// Null if it belongs to none.
    session_id: Option<String>,
    steps: i64,
    is_error: bool,
    start: String,
    end: String,
    tokens: i64,
    cost_usd: Option<f64>,
    scores: Vec<EvaluatorScoreSummary>,
}

/// Outcomes of one evaluator in one trajectory.
#[derive(Serialize, ToSchema)]
#[schema(as = Score)]
pub(super) struct EvaluatorScoreSummary {
    evaluator: String,
    /// Null if nothing was scored, which is neither 0 nor 1.
    mean: Option<f64>,
    scored: i64,
    /// Questions that could not be judged.
    failed: i64,
    /// Questions that did not apply.
    not_applicable: i64,
    /// Questions that the judge could not decide, or answered with a label without a score.
    abstained: i64,
}

/// Traces, newest first. With `q` they are ordered by arrival, latest first.
#[utoipa::path(get, path = "/api/v1/traces", tag = "traces", params(ListParams),
    responses((status = 200, body = TracePage), (status = 400, body = crate::http_error::ErrorBody)))]
pub(super) async fn search_traces(
    State(server): State<Arc<ServerState>>,
    ApiQuery(params): ApiQuery<ListParams>,
) -> Result<Response, ApiError> {
    let limit = params.limit.unwrap_or(50);
    if !(1..=500).contains(&limit) {
        return Err(ApiError::bad_request(format!("limit={limit}: from 1 to 500")));
    }
    let order = parse_order(params.sort.as_deref())?;
    if order.is_some() && params.condition.is_some() {
        return Err(ApiError::bad_request("sort: a list with `where` is sorted by time"));
    }
    let filter = TraceFilter {
        project: params.project,
        from_ns: time::parse_rfc3339("from", params.from.as_deref())?,
        to_ns: time::parse_rfc3339("to", params.to.as_deref())?,
        agent: params.agent,
        version: params.version,
        model: params.model,
        tool: params.tool,
        wrong: params.wrong,
        failure_group: params.group,
        label: params.label,
        score: params.score.as_deref().map(score_bound).transpose()?,
        error: params.error,
        text: params.q.filter(|text| !text.trim().is_empty()),
        is_folded: false,
    };
    // The JSON is serialized on the thread of the query: a page of traces would hold up the async threads.
    respond_to_query(&server, QueryKind::Rows, move |server| {
        let (condition, cursor) = (params.condition.as_deref(), params.cursor.as_deref());
        let found = TraceSearch { filter: &filter, order, condition, cursor, limit }.find(server)?;
        let items = found.traces.into_iter().map(TraceSummary::from_row).collect();
        Ok(Json(TracePage { items, next_cursor: found.next }))
    })
    .await
}

/// One trace with everything that is known of it.
#[derive(Serialize, ToSchema)]
pub(super) struct TraceDetail {
    trace: TraceSummary,
    /// As `gradus traces --format jsonl` writes them.
    #[schema(schema_with = trajectories_schema)]
    trajectories: Vec<Trajectory>,
    /// As `gradus eval --jsonl` writes them.
    #[schema(schema_with = outcomes_schema)]
    outcomes: Vec<LocatedOutcome>,
    annotations: Vec<AnnotationBody>,
    /// True while the trace may still grow. Its trajectories are then assembled for this response and not graded yet.
    is_open: bool,
    /// True if the trace group exceeds the size that is assembled at once. Its last records are missing here.
    is_cut: bool,
    /// Why the trace could not be assembled. Its spans are stored.
    quarantine_reason: Option<String>,
}

fn trajectories_schema() -> utoipa::openapi::schema::Array {
    utoipa::openapi::schema::Array::new(schema::generate_openapi_schema::<Trajectory>())
}

fn outcomes_schema() -> utoipa::openapi::schema::Array {
    utoipa::openapi::schema::Array::new(schema::generate_openapi_schema::<ExportedOutcome<'_>>())
}

/// One trace with its trajectories, their verdicts and the annotations.
#[utoipa::path(get, path = "/api/v1/traces/{trace_id}", tag = "traces",
    params(("trace_id" = String, Path, description = "32 hexadecimal digits")),
    responses((status = 200, body = TraceDetail), (status = 404, body = crate::http_error::ErrorBody)))]
pub(super) async fn get_trace(
    State(server): State<Arc<ServerState>>,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    let missing = || ApiError::not_found("there is no trace with this id");
    let number = u128::from_str_radix(&id, 16).ok().filter(|_| id.len() == 32).ok_or_else(missing)?;
    // A trace may be large and is assembled for each request, so few of these run at once.
    respond_json(&server, QueryKind::Large, move |server| {
        let row = server.store.trace(TraceId(number))?.ok_or_else(missing)?;
        let (trajectories, outcomes, trace_group) = load_trajectories(server, &row)?;
        let filter = AnnotationFilter { trace_id: Some(number), limit: 10_000, ..AnnotationFilter::default() };
        let annotations = server.store.annotations(&filter)?.into_iter().map(AnnotationBody::from_row).collect();
        Ok(TraceDetail {
            trace: TraceSummary::from_row(row),
            trajectories,
            outcomes,
            annotations,
            is_open: trace_group.has_new_records,
            is_cut: trace_group.is_cut,
            quarantine_reason: trace_group.quarantine_reason,
        })
    })
    .await
}

/// A stored outcome with the spans that it is about. Fields that this version does not know survive.
#[derive(Serialize)]
struct LocatedOutcome {
    #[serde(flatten)]
    line: Map<String, JsonValue>,
    #[serde(flatten)]
    spans: OutcomeSpans,
    /// Below the best score of its evaluator.
    is_wrong: bool,
}

impl LocatedOutcome {
    /// Parses a stored verdict; `None` if its line is not a JSON object.
    fn from_verdict(trajectory: &Trajectory, verdict: &VerdictLine) -> Option<LocatedOutcome> {
        let line: Map<String, JsonValue> = serde_json::from_str(&verdict.line).ok()?;
        let step_index = line.get("step_index").and_then(JsonValue::as_u64).and_then(|index| u32::try_from(index).ok());
        Some(LocatedOutcome { spans: OutcomeSpans::new(trajectory, step_index), line, is_wrong: verdict.is_wrong })
    }
}

/// Assembles the trajectories of a trace from what is stored now, with their verdicts. The whole trace group is
/// assembled, because a trajectory may span several traces; those without a span in this trace are dropped.
fn load_trajectories(
    server: &ServerState,
    row: &TraceRow,
) -> Result<(Vec<Trajectory>, Vec<LocatedOutcome>, TraceGroupView), ApiError> {
    let mut trace_group = TraceGroupView::load(&server.store, row.trace_group)?;
    let id = row.trace_id.to_string();
    let mut trajectories = std::mem::take(&mut trace_group.trajectories);
    trajectories.retain(|trajectory| trajectory.trace_ids.contains(&id));
    let mut outcomes = Vec::new();
    for trajectory in &trajectories {
        let verdicts = server.store.verdict_lines(&trajectory.trajectory_id)?;
        outcomes.extend(verdicts.iter().filter_map(|verdict| LocatedOutcome::from_verdict(trajectory, verdict)));
    }
    Ok((trajectories, outcomes, trace_group))
}

impl TraceSummary {
    /// A trace counts as failed if a span ended in an error or a trajectory did: some agents report errors only in
    /// messages.
    fn from_row(row: TraceRow) -> TraceSummary {
        let is_error = row.errors > 0 || row.trajectories.iter().any(|trajectory| trajectory.is_error);
        TraceSummary {
            trace_id: row.trace_id.to_string(),
            project: row.project,
            name: row.name,
            start: time::format_rfc3339(row.start_ns),
            end: time::format_rfc3339(row.end_ns),
            duration_ms: row.end_ns.saturating_sub(row.start_ns) as f64 / 1e6,
            spans: row.spans,
            errors: row.errors,
            is_error,
            bytes: row.bytes,
            has_root: row.has_root,
            arrived: time::format_rfc3339(row.arrived_ns),
            trajectories: row.trajectories.into_iter().map(TrajectorySummary::from_row).collect(),
        }
    }
}

impl TrajectorySummary {
    pub(super) fn from_row(row: TrajectoryRow) -> TrajectorySummary {
        // The store writes missing names as empty strings.
        let text = |text: String| (!text.is_empty()).then_some(text);
        TrajectorySummary {
            trajectory_id: row.trajectory_id,
            agent: text(row.agent),
            version: text(row.version),
            model: text(row.model),
            query: text(row.query),
            session_id: text(row.session),
            steps: row.steps,
            is_error: row.is_error,
            start: time::format_rfc3339(row.start_ns),
            end: time::format_rfc3339(row.end_ns),
            tokens: row.tokens,
            cost_usd: row.cost_usd,
            scores: row.scores.into_iter().map(EvaluatorScoreSummary::from_row).collect(),
        }
    }
}

impl EvaluatorScoreSummary {
    fn from_row(row: ScoreRow) -> EvaluatorScoreSummary {
        EvaluatorScoreSummary {
            evaluator: row.evaluator,
            mean: (row.scored > 0).then(|| row.sum / row.scored as f64),
            scored: row.scored,
            failed: row.failed,
            not_applicable: row.not_applicable,
            abstained: row.abstained,
        }
    }
}
