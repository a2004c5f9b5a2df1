//! The simulator, as its clients see it.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod against_git;
mod determinism;
mod faults;
mod lab;
mod octocrab;
mod random_requests;
mod rights;
mod seeds;
