//! Reading: real captures, spans in any order, any number of threads, damaged and random input.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests fail by panicking")]

mod captures;
mod conversations;
mod early_versions;
mod framework_spans;
mod imports;
mod order;
mod other_conventions;
mod random_input;
mod small_traces;
mod threads;
