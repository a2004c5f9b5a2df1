//! Finds a run as people name it: by id, by name, or by the beginning of an id.

use super::folder::StateFolder;

/// The name of the latest run, unless a run has this name.
pub const LATEST_RUN: &str = "latest";

/// Why a text does not identify a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunNameError {
    #[error("there is no such run")]
    NotFound,
    #[error("{count} runs begin with it")]
    Ambiguous { count: usize },
}

/// Finds the id of a run by its id, by its name (the latest run with it), by `latest`, or by the beginning of an id,
/// in this order.
pub fn find_run_id(state: &StateFolder, wanted: &str) -> Result<String, RunNameError> {
    let ids = state.run_ids();
    let is_named = |id: &&String| state.read_run(id).is_ok_and(|run| run.record.name.as_deref() == Some(wanted));
    let exact = ids.iter().find(|id| *id == wanted).or_else(|| ids.iter().find(is_named));
    // Ids begin with their time, and the latest is first.
    let exact = exact.or_else(|| ids.first().filter(|_| wanted == LATEST_RUN));
    let matching: Vec<&String> = ids.iter().filter(|id| !wanted.is_empty() && id.starts_with(wanted)).collect();
    match (exact, matching.as_slice()) {
        (Some(exact), _) => Ok(exact.clone()),
        (None, [one]) => Ok((*one).clone()),
        (None, []) => Err(RunNameError::NotFound),
        (None, several) => Err(RunNameError::Ambiguous { count: several.len() }),
    }
}
