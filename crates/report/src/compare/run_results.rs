//! Reads the results of a version from the files of a run.

use std::collections::HashSet;
use std::ops::ControlFlow;

use gradus_eval::calibration::RunCalibration;
use gradus_eval::report::{JudgedHead, RunReader};
use gradus_eval::run::RunFileError;

use super::results_builder::VersionResultsBuilder;
use super::version_results::VersionResults;
use crate::TrialMeasurement;

impl VersionResults {
    /// Reads a run. `measurements` are the results of its trials, if it belongs to a benchmark or an experiment.
    pub fn from_run(reader: &mut RunReader, measurements: &[TrialMeasurement]) -> Result<VersionResults, RunFileError> {
        VersionResults::from_selected(reader, measurements, |_| ControlFlow::Continue(true))
    }

    /// Reads the trajectories of a run for which `select` returns `Continue(true)`. `Break` stops the reading.
    pub fn from_selected(
        reader: &mut RunReader,
        measurements: &[TrialMeasurement],
        mut select: impl FnMut(&JudgedHead<'_>) -> ControlFlow<(), bool>,
    ) -> Result<VersionResults, RunFileError> {
        let mut builder = VersionResultsBuilder::from_manifest(&reader.record, measurements);
        let calibration = RunCalibration::load(reader);
        let mut selected = HashSet::new();
        let mut is_whole = true;
        reader.visit_verdicts(|head, verdicts| {
            match select(head) {
                ControlFlow::Break(()) => {
                    is_whole = false;
                    return ControlFlow::Break(());
                }
                ControlFlow::Continue(true) => {
                    builder.add_run(head, verdicts);
                    if calibration.is_some() {
                        selected.insert(head.trajectory_id.clone().into_owned());
                    }
                }
                ControlFlow::Continue(false) => is_whole = false,
            }
            ControlFlow::Continue(())
        })?;
        // It is unknown which of the other trials a selection includes.
        if is_whole {
            builder.add_unjudged_trials();
        }
        let mut results = builder.finish();
        if let Some(calibration) = calibration {
            results.header.calibrations = calibration.correct_dimensions(reader, |id| selected.contains(id))?;
        }
        Ok(results)
    }
}
