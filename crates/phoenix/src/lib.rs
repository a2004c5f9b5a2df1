//! Everything Arize Phoenix: a span as Phoenix stores and lists it, its filter language, and a client for its REST API.
//!
//! It knows neither the store nor the server: the routes that answer Phoenix's clients are the server's.

pub mod client;
mod condition;
pub mod filter;
pub mod span_view;

pub use condition::{FilterCondition, FilterConditionError};
