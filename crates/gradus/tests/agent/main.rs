//! `gradus agent` as its user, its model, GitHub and the receiver of its traces meet it: the real binary, a model endpoint
//! that plays a script, a simulated GitHub, a real `gradus serve`.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests fail by panicking")]

mod bad_input;
mod forms;
mod lab;
#[path = "../place/mod.rs"]
#[allow(dead_code, reason = "not all of it is needed here")]
mod place;
mod sessions;
mod traced;
mod working;
