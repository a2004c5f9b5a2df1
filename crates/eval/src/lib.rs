//! Judging: the questions about a trajectory, the judges that answer them, and the summary of the answers.
//!
//! The crate takes trajectories and yields outcomes. It does not know where trajectories come from or how reports look:
//! the command line, the server and the benchmark pass trajectories in and read the files or lines that come out.
pub mod annotation;
pub mod calibration;
#[cfg(test)]
mod error_messages;
pub mod evaluator;
pub mod evaluator_selection;
pub mod judge;
pub mod judge_selection;
mod label_probability;
pub mod learned_window;
pub mod offline;
pub mod outcome;
pub mod prompt;
mod prompt_version;
pub mod report;
pub mod rubric;
pub mod rule_remark;
pub mod run;
pub mod runner;
pub mod scale;
pub mod shared;
pub mod tool_file;
pub mod verdict;
