//! The `gradus` command: arguments, environment and settings file become typed settings, the libraries do the work, and
//! the results become output and an exit code.

pub mod cli;
mod config;
mod experiment_report;
mod known_sources;
mod orphan_watcher;
mod otlp_exporter;
mod output_failure;
mod process_groups;
mod program_agent;
mod program_runner;
mod received_traces;
#[cfg(feature = "s3")]
mod s3_storage;
