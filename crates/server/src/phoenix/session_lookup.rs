//! Finds sessions by name or by Phoenix's global id.

use gradus_core::span::TraceId;
use gradus_store::{SessionRow, StoreError};

use super::ids;
use crate::state::ServerState;

/// Finds a session by its global id or its name. If several projects have the name, the first one is returned.
pub(super) fn find_session(server: &ServerState, identifier: &str) -> Result<Option<SessionRow>, StoreError> {
    let (project, session) = match decode_session_id(identifier) {
        Some((project, session)) => (Some(project), session),
        None => (None, identifier.to_owned()),
    };
    let rows = server.store.sessions_named(&session)?;
    Ok(rows.into_iter().find(|row| project.is_none_or(|project| row.project == project)))
}

/// Returns the name of a session from its name or its global id.
pub(super) fn resolve_session_name(identifier: &str) -> String {
    decode_session_id(identifier).map_or_else(|| identifier.to_owned(), |(_, session)| session)
}

/// Finds the first trace of a session, to which annotations of the session are attached.
pub(super) fn find_first_trace(server: &ServerState, identifier: &str) -> Result<Option<TraceId>, StoreError> {
    Ok(find_session(server, identifier)?.and_then(|row| row.traces.first().map(|trace| trace.trace_id)))
}

/// Finds all traces of these sessions in one project.
pub(super) fn find_session_traces(
    server: &ServerState,
    project: i64,
    identifiers: &[String],
) -> Result<Vec<TraceId>, StoreError> {
    let mut found = Vec::new();
    for identifier in identifiers {
        let rows = server
            .store
            .sessions_named(&resolve_session_name(identifier))?
            .into_iter()
            .filter(|row| row.project == project);
        found.extend(rows.flat_map(|row| row.traces).map(|trace| trace.trace_id));
    }
    Ok(found)
}

/// Decodes the project and the name in a global id. A name may contain colons, so only the first one separates.
pub(super) fn decode_session_id(id: &str) -> Option<(i64, String)> {
    let text = ids::decode_node_id(SESSION_NODE_TYPE, id)?;
    let (project, session) = text.split_once(':')?;
    Some((project.parse().ok()?, session.to_owned()))
}

/// Phoenix's type name of sessions in global ids.
pub(super) const SESSION_NODE_TYPE: &str = "ProjectSession";
