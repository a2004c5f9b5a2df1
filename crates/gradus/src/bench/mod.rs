//! What a bench comes to: numbers with intervals, and judges held against the truth of scripted runs. The trials
//! themselves are played by `gradus-github-bench`, or by programs of others (`foreign`).

pub(crate) mod foreign;
pub(crate) mod labels;
mod of_run;
pub(crate) mod outputs;
mod print;
pub(crate) mod programs;
pub(crate) mod report;
pub(crate) mod tables;
pub(crate) mod truth;
