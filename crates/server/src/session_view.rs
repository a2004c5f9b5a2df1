//! A part of a session: its trajectories in order of time, for the page and for the API.

use gradus_core::trajectory::Trajectory;
use gradus_store::{SessionTotals, SessionTurnRow};

use crate::http_error::ApiError;
use crate::record_keys::sanitize_name;
use crate::state::ServerState;

/// Maximum number of trajectories on one page of a session. Each of them is read as a whole.
pub(crate) const MAX_TURNS: usize = 50;

/// A part of a session.
pub(crate) struct SessionView {
    pub(crate) project: String,
    pub(crate) totals: SessionTotals,
    pub(crate) turns: Vec<SessionTurn>,
    /// Offset of the next part, if there is one.
    pub(crate) next_offset: Option<usize>,
}

/// One trajectory of a session: a turn, or an agent that a turn started.
pub(crate) struct SessionTurn {
    pub(crate) row: SessionTurnRow,
    pub(crate) trajectory: Trajectory,
}

impl SessionView {
    /// Loads a part of a session; 404 for an unknown session. Reads whole trajectories, so it belongs on the pool for
    /// large queries.
    pub(crate) fn load(
        server: &ServerState,
        session: &str,
        project: Option<&str>,
        offset: usize,
        limit: usize,
    ) -> Result<SessionView, ApiError> {
        // The store has names in the form of its index.
        let name = sanitize_name(session);
        let limit = limit.clamp(1, MAX_TURNS);
        let page = server
            .store
            .session_turns(&name, project, offset, limit + 1)?
            .ok_or_else(|| ApiError::not_found("No session has this name. Retention may have deleted it."))?;
        let has_more = page.turns.len() > limit;
        let mut turns = Vec::with_capacity(limit);
        for row in page.turns.into_iter().take(limit) {
            let json = server.store.trajectory_json(&row.trajectory.trajectory_id)?.unwrap_or_default();
            turns.push(SessionTurn { trajectory: serde_json::from_slice(&json).unwrap_or_default(), row });
        }
        let next_offset = has_more.then(|| offset.saturating_add(limit));
        Ok(SessionView { project: page.project, totals: page.totals, turns, next_offset })
    }
}
