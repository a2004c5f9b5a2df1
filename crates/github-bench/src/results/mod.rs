//! What a bench comes to: numbers with intervals, and judges held against the truth of scripted runs.

mod confusion;
pub mod gold_labels;
mod outputs;
mod report;
mod run_supplement;
mod tables;
mod terminal;

pub use confusion::Scores;
pub use report::{AgentReport, BenchReport, Kept, Measure};
pub use run_supplement::load_supplement;
