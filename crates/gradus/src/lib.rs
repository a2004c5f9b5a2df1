//! The library behind the `gradus` command: sources are read into trajectories, trajectories are printed and judged.

pub mod alert;
mod annotation;
mod bench;
mod carrier;
pub mod cli;
mod config;
mod http;
mod judging;
mod output;
mod phoenix;
mod project_pattern;
pub mod redaction;
mod serve;
pub mod source;
mod stored_records;
mod tool_file;
