//! `gradus eval` as a user meets it, with a real endpoint behind it: one that answers, one that fails in every way.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests fail by panicking")]

mod bad_input;
mod calibration;
mod chaos;
mod compare;
mod crash;
mod escalation;
mod export;
mod judge_identity;
mod judging;
mod lab;
mod limits;
mod loading;
mod local_judges;
mod offline;
mod outputs;
mod panel_calibration;
mod panels;
#[path = "../place/mod.rs"]
mod place;
mod rubrics;
mod secrets;
