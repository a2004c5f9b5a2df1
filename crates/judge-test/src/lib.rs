//! Judge tests: how good a judge is at a question, before its numbers are trusted. Owns the material with known truth
//! (right runs and one planted flaw each), the bias probes, and the statistics of the verdicts on them.
//!
//! It asks nobody and reads no source: whoever calls it brings right runs and passes the cases to the ordinary
//! evaluation runner. It knows trajectories only, never the simulator, which checks planted flaws through
//! [`case_plan::TruthCheck`].

pub mod bias_probe;
pub mod case_file;
pub mod case_plan;
pub mod fitness;
pub mod flaw;
pub mod judge_comparison;
pub mod judge_figures;
pub mod right_run;
mod run_text;
mod seeded_choice;
pub mod test_case;
pub mod test_report;
mod tool_words;
