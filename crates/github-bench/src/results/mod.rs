//! Results of a benchmark: metrics with confidence intervals in every output format, and judges compared with the truth
//! of scripted runs.

mod confusion;
pub mod gold_labels;
mod outputs;
mod report;
mod run_supplement;
mod tables;
mod terminal;

pub use confusion::JudgeAccuracy;
pub use report::{AgentMetric, AgentReport, BenchReport, BenchResults};
pub use run_supplement::{BenchFileError, load_supplement};
