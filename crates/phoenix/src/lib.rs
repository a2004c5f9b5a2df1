//! Everything about Arize Phoenix: a span as Phoenix stores and lists it, its filter language, and a client for its
//! REST API.
//!
//! This crate knows neither the store nor the server. The routes that answer Phoenix's clients belong to the server,
//! which uses the types of this crate.

pub mod client;
mod condition;
pub mod filter;
pub mod span_view;

pub use condition::{FilterCondition, FilterConditionError};
