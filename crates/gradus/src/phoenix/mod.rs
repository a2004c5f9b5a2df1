//! Arize Phoenix: spans are read from it, and verdicts are written to it.

mod address;
mod annotate;
mod client;
mod error;
mod kept;
mod page;
mod paging;
mod read;
mod traces;

pub(crate) use address::Address;
pub(crate) use annotate::Writer;
pub(crate) use client::Client;
pub use read::PhoenixSource;
