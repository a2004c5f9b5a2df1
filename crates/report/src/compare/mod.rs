//! Comparison of versions of an agent: their results, baseline files, and the differences.

mod baseline_file;
mod calibration_table;
mod compared_calibration;
mod comparison_output;
mod comparison_tables;
mod group_changes;
mod pairing_keys;
mod results_builder;
mod run_results;
mod step_alignment;
mod task_flips;
#[cfg(test)]
mod tests;
mod version_comparison;
mod version_results;

pub use baseline_file::{BaselineError, is_baseline, read_baseline, write_baseline};
pub use compared_calibration::ComparedCalibration;
pub use comparison_output::{print_comparison, write_comparison_html, write_comparison_markdown};
pub use comparison_tables::{build_comparison_tables, summarize_verdicts, verdict_word};
pub use group_changes::FailureGroupChange;
pub use pairing_keys::MAX_VERSIONS;
pub use results_builder::VersionResultsBuilder;
pub use step_alignment::{AlignedStep, StepRelation, align_steps};
pub use task_flips::{MAX_SHOWN_PATHS, TaskFlip, TaskFlips, describe_tool_path};
pub use version_comparison::{ComparedVersion, DimensionTitle, RunPairing, VersionComparison, find_mismatches};
pub use version_results::{RunValues, ScoreTally, ScoredDimension, TaskKey, TaskRuns, VersionHeader, VersionResults};
