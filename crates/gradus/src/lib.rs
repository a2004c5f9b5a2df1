//! The `gradus` command: arguments, environment and settings file become typed settings, libraries do the work, and what
//! comes of it becomes output and an exit code.

mod carrier;
pub mod cli;
mod config;
mod known_sources;
mod process_groups;
mod program_agent;
