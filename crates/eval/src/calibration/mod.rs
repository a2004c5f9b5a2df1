//! Calibration of a judge: labels with the truth beside its verdicts, and what follows from them for the numbers of a
//! run.

mod calibration_builder;
mod calibration_file;
mod corrected_metric;
mod label_draw;
mod label_merge;

pub use calibration_builder::{CalibrationInput, DrawnCases, build_calibration};
pub use calibration_file::{
    CALIBRATION_SCHEMA, CalibratedJudge, CalibrationFile, CalibrationFileError, CalibrationMeasures,
    CalibrationMismatch, JudgeCalibration, LabelPopulation, LabelSampling, LabelledVerdict, LabellerKind,
    LabellerRecord, MeasuredShare,
};
pub use corrected_metric::{apply_calibrations, find_refusals, plan_labels};
pub use label_draw::{CasePopulation, JudgedCase, LabelDraw, LabelDrawError, PopulationDigest};
pub use label_merge::{CaseLabel, LabelMergeError, MergedLabels, merge_labels};
