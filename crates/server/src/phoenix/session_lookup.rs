//! Sessions by their names.

use gradus_core::span::TraceId;
use gradus_store::{SessionRow, StoreError};

use super::ids;
use crate::state::ServerState;

/// A session by its id in Phoenix's form, or by its name.
pub(super) fn find_session(server: &ServerState, identifier: &str) -> Result<Option<SessionRow>, StoreError> {
    let (project, session) = match decode_session_id(identifier) {
        Some((project, session)) => (Some(project), session),
        None => (None, identifier.to_owned()),
    };
    let rows = server.store.sessions_named(&session)?;
    Ok(rows.into_iter().find(|row| project.is_none_or(|project| row.project == project)))
}

/// The name of a session, whichever way it is written.
pub(super) fn resolve_session_name(identifier: &str) -> String {
    decode_session_id(identifier).map_or_else(|| identifier.to_owned(), |(_, session)| session)
}

/// The first trace of a session.
pub(super) fn first_trace(server: &ServerState, identifier: &str) -> Result<Option<TraceId>, StoreError> {
    Ok(find_session(server, identifier)?.and_then(|row| row.traces.first().map(|trace| trace.trace_id)))
}

/// The traces of some sessions in a project.
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

/// The project and the name in an id.
pub(super) fn decode_session_id(id: &str) -> Option<(i64, String)> {
    let text = ids::decode_node_id(NODE, id)?;
    let (project, session) = text.split_once(':')?;
    Some((project.parse().ok()?, session.to_owned()))
}

pub(super) const NODE: &str = "ProjectSession";
