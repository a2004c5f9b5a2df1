//! The domain of Gradus: spans in, trajectories out. Owns what the spans of every framework mean, and how traces become
//! steps.
//!
//! It does no input or output, and knows nothing of wire formats, judges, stores or servers. Every function is total:
//! hostile or broken traces give defects, never a panic or unbounded work.

pub mod assemble;
pub mod coverage;
pub mod dialect;
pub mod duration_text;
pub mod message;
pub mod path_budget;
mod phoenix_attributes;
mod quote_tracker;
pub mod raw_json;
mod short_text;
pub mod span;
pub mod span_json;
pub mod text_signature;
pub mod trajectory;
pub mod visible;
pub mod whitespace;

pub use gradus_react::{bounded_json, lenient_json as literal, react_text as react};

/// A digest of bytes that is the same on every machine and in every version, for ids of things that have none. Not
/// cryptographic: whoever writes a trace can make two things collide, and only harms that trace.
pub fn stable_digest(bytes: &[u8]) -> u128 {
    xxhash_rust::xxh3::xxh3_128(bytes)
}
