//! A PostgreSQL server as a store: how it is reached, and its tables.

mod address;
mod connect_advice;
mod migration;

pub(crate) use address::PostgresServer;
