//! Tasks, policies, rules and replays, on the simulator.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

#[path = "../../../github-sim/tests/simulator/lab.rs"]
mod lab;
mod oracles;
mod policies;
mod suite;
mod tasks;
