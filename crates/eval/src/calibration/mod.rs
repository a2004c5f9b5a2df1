//! Calibration of a judge: labels with the truth beside its verdicts, and what follows from them for the numbers of a
//! run.

mod calibration_builder;
mod calibration_file;
mod corrected_metric;
mod label_draw;
mod label_merge;
mod run_calibration;
mod sample_calibration;

pub use calibration_builder::{CalibrationInput, DrawnCases, build_calibration};
pub use calibration_file::{
    CALIBRATION_SCHEMA, CalibratedJudge, CalibrationFile, CalibrationFileError, CalibrationMeasures,
    CalibrationMismatch, JudgeCalibration, LabelPopulation, LabelSampling, LabelledVerdict, LabellerKind,
    LabellerRecord, MeasuredShare,
};
pub use corrected_metric::{JudgedPopulation, apply_calibrations, find_refusals, plan_labels};
pub use label_draw::{CasePopulation, JudgedCase, LabelDraw, LabelDrawError, PopulationDigest};
pub use label_merge::{CaseLabel, LabelMergeError, MergedLabels, merge_labels};
pub use run_calibration::{
    DimensionCalibration, RunCalibration, apply_run_calibration, judged_at, read_run_calibration, store_run_calibration,
};
pub use sample_calibration::ReviewedSample;
