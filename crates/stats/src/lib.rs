//! Statistics: confidence intervals, p-values, agreement, judge calibration, comparison of versions, and gates that stop early.
//!
//! The crate takes numbers and returns numbers. It has no I/O, no clock and sees no other crate of the workspace.
pub mod agreement;
pub mod calibration;
mod changed_share;
pub mod comparison;
mod distributions;
pub mod exact_test;
pub mod interval;
pub mod sequential;
mod significance;
