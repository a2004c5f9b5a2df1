//! The list of sessions, and one session: its trajectories in order, with what they come to together.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::response::Response;
use gradus_eval::evaluator::OUTCOME;
use gradus_store::{RunEndingRow, SessionFilter, SessionSummary};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::traces::TrajectorySummary;
use crate::http_error::{ApiError, ApiQuery, respond_json, respond_to_query};
use crate::queries::QueryKind;
use crate::session_view::{MAX_TURNS, SessionTurn, SessionView};
use crate::state::ServerState;
use crate::time_text as time;

/// Maximum number of sessions in one response.
const MAX_SESSIONS: usize = 200;

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct SessionListParams {
    project: Option<String>,
    /// Sessions with a trajectory that started at or after this time (RFC 3339).
    from: Option<String>,
    /// Sessions with a trajectory that started before this time (RFC 3339).
    to: Option<String>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
    /// From 1 to 200.
    #[param(minimum = 1, maximum = 200, default = 50)]
    limit: Option<usize>,
}

/// A page of sessions.
#[derive(Serialize, ToSchema)]
pub(super) struct SessionList {
    items: Vec<SessionListItem>,
    /// Null at the end. A page may be short or empty and still have a next one.
    next_cursor: Option<String>,
}

/// A conversation without its turns. The same name in two projects is two sessions.
#[derive(Serialize, ToSchema)]
#[schema(as = SessionSummary)]
struct SessionListItem {
    session_id: String,
    project: String,
    /// The beginning of the first request.
    query: Option<String>,
    /// The agent of the first request.
    agent: Option<String>,
    start: String,
    end: String,
    /// This and the following numbers count the first 1,000 trajectories of the session.
    trajectories: i64,
    /// Whether the session has more trajectories.
    is_cut: bool,
    /// Trajectories with a verdict below the best score of its evaluator.
    flagged: i64,
    /// How its trajectories ended, most frequent first.
    outcomes: Vec<SessionOutcomeCount>,
    tokens: i64,
    /// The sum of the known costs; null if none is known.
    cost_usd: Option<f64>,
    /// Trajectories without a known cost.
    unpriced: i64,
}

/// Trajectories with the same label of the evaluator `outcome`.
#[derive(Serialize, ToSchema)]
struct SessionOutcomeCount {
    label: String,
    trajectories: u64,
    /// Below the best score of the evaluator.
    is_wrong: bool,
}

/// Sessions, those with the latest trajectory first.
#[utoipa::path(get, path = "/api/v1/sessions", tag = "traces", params(SessionListParams),
    responses((status = 200, body = SessionList), (status = 400, body = crate::http_error::ErrorBody)))]
pub(super) async fn list_sessions(
    State(server): State<Arc<ServerState>>,
    ApiQuery(params): ApiQuery<SessionListParams>,
) -> Result<Response, ApiError> {
    let limit = params.limit.unwrap_or(50);
    if !(1..=MAX_SESSIONS).contains(&limit) {
        return Err(ApiError::bad_request(format!("limit={limit}: from 1 to {MAX_SESSIONS}")));
    }
    let cursor = params.cursor.as_deref().map(str::parse).transpose();
    let cursor = cursor.map_err(|()| ApiError::bad_request("cursor: give the next_cursor of the page before"))?;
    let filter = SessionFilter {
        project: params.project,
        from_ns: time::parse_rfc3339("from", params.from.as_deref())?,
        to_ns: time::parse_rfc3339("to", params.to.as_deref())?,
    };
    respond_to_query(&server, QueryKind::Rows, move |server| {
        let page = server.store.session_summaries(&filter, OUTCOME, cursor, limit)?;
        let items = page.sessions.into_iter().map(SessionListItem::from_summary).collect();
        Ok(Json(SessionList { items, next_cursor: page.next.map(|cursor| cursor.to_string()) }))
    })
    .await
}

impl SessionListItem {
    fn from_summary(one: SessionSummary) -> SessionListItem {
        // The store writes missing names as empty strings.
        let text = |text: String| (!text.is_empty()).then_some(text);
        let count = |row: RunEndingRow| SessionOutcomeCount {
            label: row.label,
            trajectories: row.trajectories,
            is_wrong: row.is_wrong,
        };
        SessionListItem {
            session_id: one.session,
            project: one.project,
            query: text(one.query),
            agent: text(one.agent),
            start: time::format_rfc3339(one.totals.start_ns),
            end: time::format_rfc3339(one.totals.end_ns),
            trajectories: one.totals.trajectories,
            is_cut: one.is_cut,
            flagged: one.flagged,
            outcomes: one.endings.into_iter().map(count).collect(),
            tokens: one.totals.tokens,
            cost_usd: one.totals.cost_usd,
            unpriced: one.totals.unpriced,
        }
    }
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct SessionParams {
    /// The same name in two projects is two sessions. Without it, the first project that has a session of this name.
    project: Option<String>,
    /// `next_offset` of the page before.
    offset: Option<usize>,
    /// From 1 to 50.
    #[param(minimum = 1, maximum = 50, default = 50)]
    limit: Option<usize>,
}

/// A conversation.
#[derive(Serialize, ToSchema)]
#[schema(as = Session)]
pub(super) struct SessionDetail {
    session_id: String,
    project: String,
    start: String,
    end: String,
    /// Trajectories of the whole session. This and the sums count at most 10,000.
    trajectories: i64,
    tokens: i64,
    /// The sum of the known costs; null if none is known.
    cost_usd: Option<f64>,
    /// Trajectories without a known cost.
    unpriced: i64,
    /// In order of time. An agent that a turn started names it as its parent.
    turns: Vec<SessionTurnItem>,
    /// Null at the end.
    next_offset: Option<usize>,
}

/// A turn of the conversation, or an agent that one started.
#[derive(Serialize, ToSchema)]
#[schema(as = SessionTurn)]
struct SessionTurnItem {
    trace_id: String,
    /// Position in the conversation, from 1; null when the trace does not tell.
    turn_index: Option<u32>,
    parent_trajectory_id: Option<String>,
    parent_step_index: Option<u32>,
    query: Option<String>,
    answer: Option<String>,
    /// The label of the evaluator `outcome`; null if it gave none.
    outcome: Option<String>,
    /// Verdicts below the best score of their evaluator.
    wrong: i64,
    trajectory: TrajectorySummary,
}

/// One session: its turns in order, with verdicts, cost and time.
#[utoipa::path(get, path = "/api/v1/sessions/{session_id}", tag = "traces",
    params(("session_id" = String, Path, description = "As the sender named it"), SessionParams),
    responses((status = 200, body = SessionDetail), (status = 400, body = crate::http_error::ErrorBody),
        (status = 404, body = crate::http_error::ErrorBody)))]
pub(super) async fn get_session(
    State(server): State<Arc<ServerState>>,
    Path(session): Path<String>,
    ApiQuery(params): ApiQuery<SessionParams>,
) -> Result<Response, ApiError> {
    let limit = params.limit.unwrap_or(MAX_TURNS);
    if !(1..=MAX_TURNS).contains(&limit) {
        return Err(ApiError::bad_request(format!("limit={limit}: from 1 to {MAX_TURNS}")));
    }
    respond_json(&server, QueryKind::Large, move |server| {
        let offset = params.offset.unwrap_or(0);
        let view = SessionView::load(server, &session, params.project.as_deref(), offset, limit)?;
        Ok(SessionDetail {
            session_id: session,
            project: view.project,
            start: time::format_rfc3339(view.totals.start_ns),
            end: time::format_rfc3339(view.totals.end_ns),
            trajectories: view.totals.trajectories,
            tokens: view.totals.tokens,
            cost_usd: view.totals.cost_usd,
            unpriced: view.totals.unpriced,
            turns: view.turns.into_iter().map(SessionTurnItem::from_turn).collect(),
            next_offset: view.next_offset,
        })
    })
    .await
}

impl SessionTurnItem {
    fn from_turn(turn: SessionTurn) -> SessionTurnItem {
        let SessionTurn { row, trajectory } = turn;
        let scores = &row.trajectory.scores;
        SessionTurnItem {
            trace_id: row.trace_id.to_string(),
            turn_index: trajectory.turn_index,
            parent_trajectory_id: trajectory.parent_trajectory_id,
            parent_step_index: trajectory.parent_step_index,
            query: trajectory.query,
            answer: trajectory.final_answer,
            outcome: scores.iter().find(|score| score.evaluator == OUTCOME).and_then(|score| score.label.clone()),
            wrong: scores.iter().map(|score| score.wrong).sum(),
            trajectory: TrajectorySummary::from_row(row.trajectory),
        }
    }
}
