//! Arize Phoenix: spans are read from it, and verdicts are written to it.

mod address;
mod annotate;
mod client;
mod error;
mod kept;
mod page;
mod read;
mod traces;

pub(crate) use address::Address;
pub(crate) use annotate::Writer;
pub(crate) use client::{Client, headers};
pub use read::PhoenixSource;
