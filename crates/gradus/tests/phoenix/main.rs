//! Reading from Phoenix and writing to it when things go wrong, against a scripted server: a real one cannot be made to
//! fail on demand. That it works with a real one, `tests/peers/phoenix.py` shows.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod datasets;
mod faults;
mod lab;
mod otlp;
mod read;
mod resume;
mod write;
