//! The domain of Gradus: spans in, trajectories out. Owns what spans of every framework mean, and how traces become steps.
//!
//! It does no input or output, and knows nothing of wire formats, judges, stores or servers.

pub mod assemble;
pub mod coverage;
pub mod dialect;
pub mod duration_text;
pub mod message;
pub mod path_budget;
mod phoenix_attributes;
pub mod raw_json;
mod short_text;
pub mod span;
pub mod span_json;
pub mod trajectory;
pub mod visible;

pub use gradus_react::{bounded_json, lenient_json as literal, react_text as react};

/// A stable digest of bytes, for ids of things that have none.
pub fn stable_digest(bytes: &[u8]) -> u128 {
    xxhash_rust::xxh3::xxh3_128(bytes)
}
