//! One session: its trajectories in order, with what they come to together.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use gradus_eval::evaluator::OUTCOME;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::traces::TrajectorySummary;
use crate::http_error::{ApiError, ApiQuery, respond_json};
use crate::queries::QueryKind;
use crate::session_view::{MAX_TURNS, SessionTurn, SessionView};
use crate::state::ServerState;
use crate::time_text as time;

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
