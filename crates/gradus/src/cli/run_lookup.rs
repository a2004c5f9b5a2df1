//! Finds a run of a state folder as users name it.

use std::path::PathBuf;

pub(super) use gradus_eval::run::{RunNameError, find_run_id};

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

/// Returns the state folder: the option, the environment, `gradus.toml`, or `.gradus`.
pub(super) fn resolve_state_dir(
    option: Option<&PathBuf>,
    environment: &EnvironmentVariables,
    file: &ConfigFile,
) -> PathBuf {
    let known = option.or(environment.state_dir.as_ref()).or(file.state_dir.as_ref());
    known.cloned().unwrap_or_else(|| PathBuf::from(crate::config::DEFAULT_STATE_DIR))
}

/// Finds a run by its id, the beginning of it, or its name; without one, the latest.
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
