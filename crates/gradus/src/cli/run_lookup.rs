//! Finds a run of a state folder as users name it.

use std::path::PathBuf;

use gradus_eval::run::{RunFileError, RunFolder, StateFolder};

use crate::config::{ConfigFile, EnvironmentVariables};

/// Why a run cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(super) enum RunLookupError {
    #[error("there are no runs in {}; `gradus eval` makes them", state_dir.display())]
    NoRuns { state_dir: PathBuf },
    #[error("there is no run {name:?}; `gradus runs` lists them")]
    NotFound { name: String },
    #[error("{count} runs begin with {name:?}; give more of the id")]
    Ambiguous { name: String, count: usize },
    #[error(transparent)]
    File(#[from] RunFileError),
}

/// The state folder: the option, the environment, `gradus.toml`, or `.gradus`.
pub(super) fn resolve_state_dir(
    option: Option<&PathBuf>,
    environment: &EnvironmentVariables,
    file: &ConfigFile,
) -> PathBuf {
    let known = option.or(environment.state_dir.as_ref()).or(file.state_dir.as_ref());
    known.cloned().unwrap_or_else(|| PathBuf::from(crate::config::DEFAULT_STATE_DIR))
}

/// A run by its id, the beginning of it, or its name; without one, the latest.
pub(super) fn find_run(state_dir: PathBuf, wanted: Option<&str>) -> Result<RunFolder, RunLookupError> {
    let state = StateFolder::from_path(&state_dir);
    let Some(latest) = state.run_ids().into_iter().next() else { return Err(RunLookupError::NoRuns { state_dir }) };
    // Run ids begin with their time and the latest is first.
    let Some(wanted) = wanted else { return Ok(state.read_run(&latest)?) };
    let id = find_run_id(&state, wanted).map_err(|error| match error {
        RunNameError::NotFound => RunLookupError::NotFound { name: wanted.to_owned() },
        RunNameError::Ambiguous { count } => RunLookupError::Ambiguous { name: wanted.to_owned(), count },
    })?;
    Ok(state.read_run(&id)?)
}

/// Why a text names no run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum RunNameError {
    #[error("there is no such run")]
    NotFound,
    #[error("{count} runs begin with it")]
    Ambiguous { count: usize },
}

/// The id of a run: an id, then a name, of which the latest run counts, then the beginning of an id.
pub(super) fn find_run_id(state: &StateFolder, wanted: &str) -> Result<String, RunNameError> {
    let ids = state.run_ids();
    let is_named = |id: &&String| state.read_run(id).is_ok_and(|run| run.record.name.as_deref() == Some(wanted));
    let exact = ids.iter().find(|id| *id == wanted).or_else(|| ids.iter().find(is_named));
    let matching: Vec<&String> = ids.iter().filter(|id| !wanted.is_empty() && id.starts_with(wanted)).collect();
    match (exact, matching.as_slice()) {
        (Some(exact), _) => Ok(exact.clone()),
        (None, [one]) => Ok((*one).clone()),
        (None, []) => Err(RunNameError::NotFound),
        (None, several) => Err(RunNameError::Ambiguous { count: several.len() }),
    }
}
