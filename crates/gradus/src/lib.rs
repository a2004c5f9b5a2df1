//! The library behind the `gradus` command: sources are read into trajectories, trajectories are printed.

pub mod cli;
mod output;
pub mod source;
