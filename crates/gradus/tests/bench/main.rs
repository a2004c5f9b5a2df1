//! `gradus bench` and `gradus demo` as a user meets them.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod endpoint;
mod outputs;
#[path = "../place/mod.rs"]
mod place;
mod programs;
mod scripted;

use place::Place;
use serde_json::Value as Json;

fn document(place: &Place, name: &str) -> Json {
    serde_json::from_str(&place.read(name)).unwrap()
}
