//! `--calibration`: the errors of the judge, by which the numbers of a run are corrected; the same for `eval`, `bench`,
//! `demo`, `experiment` and `report`.

use std::path::{Path, PathBuf};

use clap::Args;
use gradus_eval::calibration::{
    CalibrationFile, CalibrationFileError, CalibrationMismatch, RefusedCalibration, apply_calibrations, find_refusals,
    judging_time, read_run_calibration,
};
use gradus_eval::report::{EvaluationSummary, GateMetric, QualityGate, RunReader};
use gradus_eval::run::{EvaluatorRecord, PanelRecord, RunFileError, RunFolder};

#[derive(Args, Clone, Default)]
pub(super) struct CalibrationOptions {
    /// Correct numbers for the errors of the judge, as measured by `gradus judge calibrate`; gates decide by the
    /// corrected ones [default: `calibration` of [eval] in the settings file].
    #[arg(long, value_name = "FILE", help_heading = "Gates")]
    calibration: Option<PathBuf>,
    /// Let gates decide by raw numbers where the calibration is of another judge or rubric, or has expired.
    #[arg(long, help_heading = "Gates")]
    uncalibrated: bool,
}

/// Why a calibration cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum CalibrationOptionError {
    #[error(transparent)]
    File(#[from] CalibrationFileError),
    #[error(
        "gate {gate:?}: the calibration of {evaluator} does not apply: {mismatch}\nhint: calibrate again with `gradus judge \
         calibrate`, or decide by the raw number with --uncalibrated"
    )]
    Refused { gate: String, evaluator: String, mismatch: Box<CalibrationMismatch> },
    #[error(
        "--uncalibrated: no calibration is given\nhint: leave it out, or name a file with --calibration or with `calibration` \
         of [eval] in the settings file"
    )]
    NoCalibration,
    #[error(
        "--stop-early and --calibration exclude each other: no method is valid for both\nhint: judge all trajectories, or \
         leave out the calibration"
    )]
    StopEarly,
}

/// A calibration that was read, and whether gates may decide without it.
#[derive(Debug)]
pub(super) struct LoadedCalibration {
    pub(super) file: CalibrationFile,
    is_optional: bool,
    /// The time at which it must not have expired.
    now: jiff::Timestamp,
}

impl CalibrationOptions {
    /// Returns the file of `--calibration`, else the one of the settings file.
    fn path<'p>(&'p self, configured: Option<&'p Path>) -> Option<&'p Path> {
        self.calibration.as_deref().or(configured)
    }

    /// Whether a calibration is configured, by the option or, as `configured`, by the settings file.
    pub(super) fn has_calibration(&self, configured: Option<&Path>) -> bool {
        self.path(configured).is_some()
    }

    /// Reads the file. A gate on an evaluator whose calibration does not apply is refused before anything is judged.
    pub(super) fn load(
        &self,
        configured: Option<&Path>,
        evaluators: &[EvaluatorRecord],
        panel: Option<&PanelRecord>,
        gates: &[QualityGate],
    ) -> Result<Option<LoadedCalibration>, CalibrationOptionError> {
        let Some(path) = self.path(configured) else {
            return if self.uncalibrated { Err(CalibrationOptionError::NoCalibration) } else { Ok(None) };
        };
        let loaded = self.date_calibration(CalibrationFile::read(path)?, jiff::Timestamp::now());
        loaded.check_gates(find_refusals(&loaded.file, evaluators, panel, loaded.now), gates)?;
        Ok(Some(loaded))
    }

    /// Reads the calibration of a run that was judged before: the file of `--calibration`, else the calibration that
    /// the run was judged with, else the one of the settings file.
    pub(super) fn load_for_run(
        &self,
        configured: Option<&Path>,
        folder: &RunFolder,
        gates: &[QualityGate],
    ) -> Result<Option<LoadedCalibration>, CalibrationOptionError> {
        let (evaluators, panel) = (&folder.record.evaluators, folder.record.panel.as_ref());
        let own = match &self.calibration {
            Some(_) => None,
            None => read_run_calibration(&folder.calibration_path())?,
        };
        let Some(file) = own else { return self.load(configured, evaluators, panel, gates) };
        let loaded = self.date_calibration(file, judging_time(&folder.record));
        loaded.check_gates(find_refusals(&loaded.file, evaluators, panel, loaded.now), gates)?;
        Ok(Some(loaded))
    }

    fn date_calibration(&self, file: CalibrationFile, now: jiff::Timestamp) -> LoadedCalibration {
        LoadedCalibration { file, is_optional: self.uncalibrated, now }
    }
}

impl LoadedCalibration {
    /// Refuses gates on evaluators whose calibration does not apply.
    fn check_gates(
        &self,
        refused: Vec<RefusedCalibration>,
        gates: &[QualityGate],
    ) -> Result<(), CalibrationOptionError> {
        if self.is_optional {
            return Ok(());
        }
        for RefusedCalibration { evaluator, mismatch } in refused {
            let is_about = |gate: &&QualityGate| matches!(&gate.metric, GateMetric::Named(name) if *name == evaluator);
            if let Some(gate) = gates.iter().find(is_about) {
                return Err(CalibrationOptionError::Refused {
                    gate: gate.to_string(),
                    evaluator,
                    mismatch: mismatch.into(),
                });
            }
        }
        Ok(())
    }
}

/// Corrects the metrics of a summary, if there is a calibration. Which model answered is only known now, so gates can
/// be refused once more.
pub(super) fn correct_summary(
    summary: &mut EvaluationSummary,
    reader: &mut RunReader,
    calibration: Option<&LoadedCalibration>,
    gates: &[QualityGate],
) -> Result<Result<(), CalibrationOptionError>, RunFileError> {
    let Some(calibration) = calibration else { return Ok(Ok(())) };
    let refused = apply_calibrations(summary, reader, &calibration.file, calibration.now)?;
    Ok(calibration.check_gates(refused, gates))
}
