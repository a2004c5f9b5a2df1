//! Runs by their ids.

use gradus_eval::run::{RunFileError, RunFolder, StateFolder};

use crate::http_error::ApiError;
use crate::state::ServerState;

/// A run that is in the list: an id is a name, not a path.
pub(super) fn find(server: &ServerState, id: &str) -> Result<RunFolder, ApiError> {
    let missing = || ApiError::missing("There is no run with this id in the server's folder.");
    let folder = StateFolder::at(&server.settings.data);
    let known = folder.runs().into_iter().find(|known| known == id).ok_or_else(missing)?;
    folder.read_run(&known).map_err(failed)
}

#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
pub(super) fn failed(error: RunFileError) -> ApiError {
    tracing::error!(%error, "a run cannot be read");
    ApiError::missing("The run's files cannot be read; see the server's log.")
}
