//! Judging: what is asked of a trajectory, who answers, and what the answers come to.
//!
//! The crate takes trajectories and yields outcomes; where trajectories come from and who looks at the outcomes is the
//! binary's business.
pub mod agreement;
pub mod annotation;
mod chance;
pub mod comparison;
pub mod evaluator;
pub mod interval;
pub mod judge;
pub mod judge_selection;
pub mod offline;
pub mod outcome;
pub mod prompt;
mod prompt_version;
pub mod report;
pub mod rubric;
pub mod run;
pub mod runner;
pub mod scale;
pub mod tool_file;
pub mod verdict;
