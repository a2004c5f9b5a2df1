//! `gradus serve` as its senders, its readers and its operator meet it: the real binary, real sockets, a real store.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests fail by panicking")]

mod alert_rules;
mod alerts;
mod amplified;
mod api;
mod bulk_trials;
mod calibration;
#[path = "../schema/compatibility.rs"]
mod compatibility;
mod connections;
mod cross_site;
mod duplicates;
mod durability;
mod ephemeral;
mod first_start;
mod health;
mod hostile;
mod http2;
mod judgement;
mod lab;
mod live;
mod mcp;
mod memory;
mod mishaps;
mod operations;
mod pages;
mod phoenix;
mod phoenix_annotations;
#[path = "../place/mod.rs"]
mod place;
mod poison;
mod protocol;
mod queries;
mod review;
mod security;
mod sessions;
mod sources;
mod spans;
mod trust;
mod upgrade;
mod versions;
