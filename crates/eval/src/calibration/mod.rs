//! Calibration of a judge: its error rates from labelled verdicts, and the correction of the numbers of a run.

mod calibrated_judge;
mod calibration_builder;
mod calibration_file;
mod calibration_measures;
mod calibration_mismatch;
mod corrected_metric;
mod label_draw;
mod label_merge;
mod run_calibration;
mod sample_calibration;
mod verdict_strata;

pub use calibrated_judge::{AnsweringModels, CalibratedJudge, CalibratedModel, CalibratedPanel, RunJudge, VotingRule};
pub use calibration_builder::{CalibrationInput, DrawnCases, build_calibration};
pub use calibration_file::{
    CALIBRATION_SCHEMA, CalibrationFile, CalibrationFileError, JudgeCalibration, LabelPopulation, LabelSampling,
    LabelledVerdict, LabellerKind, LabellerRecord,
};
pub use calibration_measures::{CalibrationMeasures, MeasuredShare, VoteStratum};
pub use calibration_mismatch::CalibrationMismatch;
pub use corrected_metric::{JudgedPopulation, RefusedCalibration, apply_calibrations, find_refusals, plan_labels};
pub use label_draw::{CasePopulation, JudgedCase, LabelDraw, LabelDrawError, PopulationDigest};
pub use label_merge::{CaseLabel, LabelMergeError, MergedLabels, merge_labels};
pub use run_calibration::{
    DimensionCalibration, RunCalibration, apply_run_calibration, judging_time, read_run_calibration,
    store_run_calibration,
};
pub use sample_calibration::ReviewedSample;
pub use verdict_strata::VoteSplit;
