//! Finds runs of `gradus eval` in the data folder by id.

use gradus_eval::run::{RunFileError, RunFolder, StateFolder};

use crate::http_error::ApiError;
use crate::state::ServerState;

/// Finds a run by its id. The id is compared with the list of existing runs and never used as a path, so `../` has no
/// effect.
pub(super) fn find_run(server: &ServerState, id: &str) -> Result<RunFolder, ApiError> {
    let missing = || ApiError::not_found("The data folder of this server has no run with this id.");
    let folder = StateFolder::from_path(&server.settings.data);
    let known = folder.run_ids().into_iter().find(|known| known == id).ok_or_else(missing)?;
    folder.read_run(&known).map_err(log_run_failure)
}

/// Logs the reason, which is not returned, because it contains paths.
#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
pub(super) fn log_run_failure(error: RunFileError) -> ApiError {
    tracing::error!(%error, "failed to read a run");
    ApiError::not_found("The files of this run cannot be read; see the server log.")
}
