//! Judging: what is asked of a trajectory, who answers, and what the answers come to.
//!
//! The crate takes trajectories and yields outcomes; where trajectories come from and who looks at the outcomes is the
//! binary's business.
pub mod agreement;
mod chance;
pub mod comparison;
pub mod evaluator;
pub mod interval;
pub mod judge;
pub mod offline;
pub mod outcome;
pub mod prompt;
pub mod report;
pub mod rubric;
pub mod run;
pub mod runner;
pub mod scale;
pub mod verdict;
