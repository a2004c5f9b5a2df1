//! Judging: what is asked of a trajectory, who answers, and what the answers come to.
pub mod offline;
pub mod outcome;
