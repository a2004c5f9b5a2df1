//! The calibration that a run was judged with. It is a file of the run, so that every later report of it gives the same
//! corrected numbers.

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::calibration_file::{CalibrationFile, CalibrationFileError};
use super::corrected_metric::{EvaluatorCorrection, apply_calibrations, correct_evaluators, refuse_corrections};
use crate::report::{EvaluationSummary, MetricCalibration, RunReader};
use crate::run::{RunFileError, RunFolder, RunManifest};

/// The calibration stored with a run.
#[derive(Clone, Debug)]
pub enum RunCalibration {
    Known(CalibrationFile),
    /// The run has a calibration that cannot be read. Its numbers stay uncalibrated, with the reason.
    Unreadable {
        reason: String,
    },
}

/// A number of a model judge, raw and corrected if possible.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DimensionCalibration {
    pub dimension: String,
    /// The mean over all verdicts.
    pub raw: f64,
    pub calibration: MetricCalibration,
}

/// Stores the calibration with a run, or removes the one of an earlier attempt. Evaluators that the run does not have are
/// left out.
pub fn store_run_calibration(folder: &RunFolder, file: Option<&CalibrationFile>) -> Result<(), RunFileError> {
    let path = folder.calibration_path();
    let done = match file {
        Some(file) => {
            let is_asked = |name: &str| folder.record.evaluators.iter().any(|evaluator| evaluator.name == name);
            let own = file.calibrations.iter().filter(|known| is_asked(&known.evaluator)).cloned();
            CalibrationFile::new(own.collect()).write(&path)
        }
        None => match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        },
    };
    done.map_err(|reason| RunFileError::new(&path, reason))
}

/// Reads the calibration of a run, see [`RunFolder::calibration_path`]; `None` if it has none.
pub fn read_run_calibration(path: &Path) -> Result<Option<CalibrationFile>, CalibrationFileError> {
    match CalibrationFile::read(path) {
        Ok(file) => Ok(Some(file)),
        Err(CalibrationFileError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

impl RunCalibration {
    /// `None` if the run has no calibration.
    pub fn load(reader: &RunReader) -> Option<RunCalibration> {
        match read_run_calibration(reader.calibration_path()) {
            Ok(file) => file.map(RunCalibration::Known),
            // Pages show the reason to people who need not know the path.
            Err(_) => {
                Some(RunCalibration::Unreadable { reason: "the calibration.json of the run cannot be read".to_owned() })
            }
        }
    }

    /// Returns the numbers of each evaluator with a calibration, over the trajectories whose id `is_selected`
    /// accepts.
    pub fn correct_dimensions(
        &self,
        reader: &mut RunReader,
        is_selected: impl Fn(&str) -> bool,
    ) -> Result<Vec<DimensionCalibration>, RunFileError> {
        let corrections = match self {
            RunCalibration::Known(file) => {
                let now = judging_time(&reader.record);
                correct_evaluators(reader, file, now, is_selected)?
            }
            RunCalibration::Unreadable { reason } => refuse_corrections(reader, reason, is_selected)?,
        };
        let describe = |correction: EvaluatorCorrection| {
            let dimension = reader.record.evaluators[correction.evaluator].name.clone();
            Some(DimensionCalibration { dimension, raw: correction.raw?, calibration: correction.calibration })
        };
        Ok(corrections.into_iter().filter_map(describe).collect())
    }
}

/// Adds corrected numbers to the summary of a run that was judged with a calibration.
pub fn apply_run_calibration(summary: &mut EvaluationSummary, reader: &mut RunReader) -> Result<(), RunFileError> {
    match RunCalibration::load(reader) {
        None => Ok(()),
        Some(RunCalibration::Known(file)) => {
            let now = judging_time(&reader.record);
            apply_calibrations(summary, reader, &file, now)?;
            Ok(())
        }
        Some(RunCalibration::Unreadable { reason }) => {
            for metric in summary.metrics.iter_mut().filter(|metric| metric.calibration.is_some()) {
                metric.calibration = Some(MetricCalibration::NotApplied { reason: reason.clone() });
            }
            Ok(())
        }
    }
}

/// Returns the time when the run was judged: a calibration that was valid then stays valid for its verdicts.
pub fn judging_time(manifest: &RunManifest) -> jiff::Timestamp {
    let ended = manifest.ended.as_deref().unwrap_or(&manifest.started);
    ended.parse().unwrap_or_else(|_| jiff::Timestamp::now())
}
