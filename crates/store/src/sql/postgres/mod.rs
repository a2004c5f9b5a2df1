//! The PostgreSQL engine: its connections, and the conversion of its values.

mod connection;
mod value;

pub(crate) use connection::{PostgresBulkInsert, PostgresConnection, PostgresStatement, run_outside_runtime};
pub(crate) use value::{read_value, replace_nul_chars};
