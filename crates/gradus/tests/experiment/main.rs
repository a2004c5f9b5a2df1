//! `gradus dataset` and `gradus experiment` as a user meets them.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod bad_agents;
mod datasets;
mod http_agents;
mod partial;
#[path = "../place/mod.rs"]
mod place;
mod programs;
mod signals;
mod spans;

use place::Place;
use serde_json::Value as Json;

fn document(place: &Place, name: &str) -> Json {
    serde_json::from_str(&place.read(name)).unwrap()
}

/// Rates of an experiment in its JSON document, by name: value and number of trials or items.
fn rate(document: &Json, name: &str) -> (f64, u64) {
    let rates = document["experiment"]["rates"].as_array().unwrap();
    let rate = rates.iter().find(|rate| rate["name"] == name).unwrap_or_else(|| panic!("no {name}: {rates:?}"));
    (rate["value"].as_f64().unwrap(), rate["denominator"].as_u64().unwrap())
}
