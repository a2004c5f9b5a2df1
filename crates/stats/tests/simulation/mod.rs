//! Simulated agents, and how often comparisons and gates are right about them. The tests run short forms, the examples
//! long ones, each its own part.

#![allow(dead_code)]

pub(crate) mod agents;
pub(crate) mod gates;
pub(crate) mod judges;
pub(crate) mod streams;

/// A share with what it is of.
pub(crate) fn share(count: u32, all: u32) -> f64 {
    f64::from(count) / f64::from(all)
}
