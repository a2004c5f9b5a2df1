//! `--calibration`: the errors of the judge, by which the numbers of a run are corrected; the same for `eval`, `bench`,
//! `demo`, `experiment` and `report`.

use std::path::PathBuf;

use clap::Args;
use gradus_eval::calibration::{
    CalibrationFile, CalibrationFileError, CalibrationMismatch, apply_calibrations, find_refusals, judged_at,
    read_run_calibration,
};
use gradus_eval::report::{EvaluationSummary, GateMetric, QualityGate, RunReader};
use gradus_eval::run::{EvaluatorRecord, RunFileError, RunFolder};

#[derive(Args, Clone, Default)]
pub(super) struct CalibrationOptions {
    /// Correct numbers for the errors of the judge, as measured by `gradus judge calibrate`; gates decide by the
    /// corrected ones.
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
    Refused { gate: String, evaluator: String, mismatch: CalibrationMismatch },
    #[error(
        "--stop-early and --calibration exclude each other: no method is valid for both\nhint: judge all trajectories, or \
         leave out the calibration"
    )]
    StopEarly,
}

impl CalibrationOptions {
    /// Whether `--calibration` was given.
    pub(super) fn is_given(&self) -> bool {
        self.calibration.is_some()
    }

    /// Reads the file. A gate on an evaluator whose calibration does not apply is refused before anything is judged.
    pub(super) fn load(
        &self,
        evaluators: &[EvaluatorRecord],
        gates: &[QualityGate],
    ) -> Result<Option<CalibrationFile>, CalibrationOptionError> {
        let Some(path) = &self.calibration else { return Ok(None) };
        let file = CalibrationFile::read(path)?;
        self.check_gates(&file, evaluators, gates, jiff::Timestamp::now())?;
        Ok(Some(file))
    }

    /// For a run that was judged before: the file, else the calibration that the run was judged with.
    pub(super) fn load_for_run(
        &self,
        folder: &RunFolder,
        gates: &[QualityGate],
    ) -> Result<Option<DatedCalibration>, CalibrationOptionError> {
        let evaluators = &folder.record.evaluators;
        if self.is_given() {
            let file = self.load(evaluators, gates)?;
            return Ok(file.map(|file| DatedCalibration { file, now: jiff::Timestamp::now() }));
        }
        let Some(file) = read_run_calibration(&folder.calibration_path())? else { return Ok(None) };
        let now = judged_at(&folder.record);
        self.check_gates(&file, evaluators, gates, now)?;
        Ok(Some(DatedCalibration { file, now }))
    }

    fn check_gates(
        &self,
        file: &CalibrationFile,
        evaluators: &[EvaluatorRecord],
        gates: &[QualityGate],
        now: jiff::Timestamp,
    ) -> Result<(), CalibrationOptionError> {
        if self.uncalibrated {
            return Ok(());
        }
        for (evaluator, mismatch) in find_refusals(file, evaluators, now) {
            let is_about = |gate: &&QualityGate| matches!(&gate.metric, GateMetric::Named(name) if name == evaluator);
            if let Some(gate) = gates.iter().find(is_about) {
                return Err(CalibrationOptionError::Refused {
                    gate: gate.to_string(),
                    evaluator: evaluator.to_owned(),
                    mismatch,
                });
            }
        }
        Ok(())
    }
}

/// A calibration, and the time at which it must not have expired.
pub(super) struct DatedCalibration {
    file: CalibrationFile,
    now: jiff::Timestamp,
}

/// Corrects the metrics of a summary, if there is a calibration.
pub(super) fn correct_summary(
    summary: &mut EvaluationSummary,
    reader: &mut RunReader,
    calibration: Option<&DatedCalibration>,
) -> Result<(), RunFileError> {
    match calibration {
        Some(DatedCalibration { file, now }) => apply_calibrations(summary, reader, file, *now),
        None => Ok(()),
    }
}
