//! What people say about a failure group, from its page and from the API: name, note and muting.

use std::sync::Arc;

use gradus_store::FailureGroupNote;

use crate::clock::now_ns;
use crate::http_error::{ApiError, run_outside_pool};
use crate::state::ServerState;

/// Maximum number of characters of a name and of a note.
pub(crate) const MAX_NAME_CHARS: usize = 120;
pub(crate) const MAX_NOTE_CHARS: usize = 2_000;
/// The message of a 404.
pub(crate) const UNKNOWN_GROUP: &str = "failure group not found";

/// Checks, redacts and stores a note. 400 for a text that is too long, 404 for an unknown group.
pub(crate) async fn annotate_failure_group(
    server: &Arc<ServerState>,
    key: String,
    submitted: FailureGroupNote,
) -> Result<(), ApiError> {
    let note = FailureGroupNote {
        name: check_text(server, "name", submitted.name, MAX_NAME_CHARS)?,
        note: check_text(server, "note", submitted.note, MAX_NOTE_CHARS)?,
        is_muted: submitted.is_muted,
    };
    let is_known = run_outside_pool(server, move |server| {
        Ok(server.store.annotate_failure_group(&key, note, now_ns())?.wait()?)
    })
    .await?;
    if is_known { Ok(()) } else { Err(ApiError::not_found(UNKNOWN_GROUP)) }
}

fn check_text(
    server: &ServerState,
    field: &str,
    text: Option<String>,
    most: usize,
) -> Result<Option<String>, ApiError> {
    let Some(text) = text else { return Ok(None) };
    // Forms send CRLF; the limit that browsers check counts one character.
    let text = text.trim().replace("\r\n", "\n");
    match text.chars().count() {
        count if count > most => {
            Err(ApiError::bad_request(format!("The {field} has {count} characters; at most {most} are kept.")))
        }
        _ => Ok(Some(server.reloadable().redaction.apply(&text).unwrap_or(text))),
    }
}
