//! Judging: what is asked of a trajectory, who answers, and what the answers come to.
pub mod offline;
pub mod outcome;
pub mod prompt;
pub mod rubric;
pub mod run;
pub mod verdict;
