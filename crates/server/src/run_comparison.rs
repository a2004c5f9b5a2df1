//! Comparison of two runs in the data folder, by the same code as `gradus compare`.

use std::ops::ControlFlow;
use std::sync::Arc;

use gradus_eval::report::RunReader;
use gradus_eval::run::{RunFolder, RunState};
use gradus_report::TrialMeasurement;
use gradus_report::compare::{VersionComparison, VersionResults};
use gradus_stats::comparison::ComparisonSettings;

use crate::http_error::ApiError;
use crate::run_lookup::{find_run, log_run_failure};
use crate::state::ServerState;

/// Maximum number of trajectories that are read of one run. The response tells if a run is truncated.
const MAX_TRAJECTORIES: usize = 50_000;

/// Compares two runs. 400 without two ids, 404 for unknown ones.
pub(crate) fn compare_runs(
    server: &ServerState,
    first: &str,
    second: &str,
) -> Result<Arc<VersionComparison>, ApiError> {
    if first.is_empty() || second.is_empty() {
        return Err(ApiError::bad_request("Choose two runs to compare, A and B."));
    }
    let runs = [find_run(server, first)?, find_run(server, second)?];
    let key = [0, 1].map(|at| (runs[at].record.run_id.clone(), runs[at].record.ended.clone()));
    if let Some(known) = server.comparisons.get(&key) {
        return Ok(known);
    }
    let comparison = Arc::new(read_comparison(server, &runs)?);
    if runs.iter().all(|run| run.record.state == RunState::Finished) {
        server.comparisons.insert(key, &comparison);
    }
    Ok(comparison)
}

/// Returns the settings of `gradus compare` with fewer permutations, because a page has to appear at once. Verdicts
/// need far fewer.
pub(crate) fn comparison_settings() -> ComparisonSettings {
    ComparisonSettings { max_draws: 19_999, ..ComparisonSettings::default() }
}

/// Reads both runs from their files and holds them in memory, within bounds.
fn read_comparison(server: &ServerState, runs: &[RunFolder; 2]) -> Result<VersionComparison, ApiError> {
    let mut results = Vec::new();
    let mut readers = Vec::new();
    let mut is_cut = false;
    for run in runs {
        let mut reader = RunReader::open(run).map_err(log_run_failure)?;
        let mut count = 0;
        let read = VersionResults::from_selected(&mut reader, &load_trial_measurements(server, run), |_| {
            is_cut |= count == MAX_TRAJECTORIES;
            // The query was cancelled or ran out of time. The visitor cannot return an error, so it is checked again
            // below.
            if count == MAX_TRAJECTORIES || gradus_store::check_query().is_err() {
                return ControlFlow::Break(());
            }
            count += 1;
            ControlFlow::Continue(true)
        });
        results.push(read.map_err(log_run_failure)?);
        gradus_store::check_query().map_err(gradus_store::StoreError::from)?;
        readers.push(reader);
    }
    let compared = VersionComparison::from_versions(&results, &comparison_settings());
    let mut comparison = compared.map_err(|error| ApiError::bad_request(error.to_string()))?;
    let mut readers: Vec<Option<&mut RunReader>> = readers.iter_mut().map(Some).collect();
    comparison.add_run_details(&results, &mut readers).map_err(log_run_failure)?;
    gradus_store::check_query().map_err(gradus_store::StoreError::from)?;
    if is_cut {
        comparison.task_mix.push(format!("A run is too long: only its first {MAX_TRAJECTORIES} runs are compared."));
    }
    Ok(comparison)
}

/// Loads the trials of a benchmark or experiment; empty for other runs. Unreadable trials are logged, and the
/// verdicts are compared without them.
fn load_trial_measurements(server: &ServerState, run: &RunFolder) -> Vec<TrialMeasurement> {
    match (server.settings.supplements)(run.path()) {
        Ok(supplement) => supplement.map(|supplement| supplement.measurements()).unwrap_or_default(),
        Err(error) => {
            tracing::error!(error, "failed to read the trials of a run; comparing without them");
            Vec::new()
        }
    }
}
