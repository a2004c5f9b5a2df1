//! A PostgreSQL server as a store: how it is reached, and its tables.

mod address;
mod migration;

pub(crate) use address::PostgresServer;
