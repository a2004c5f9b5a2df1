//! The PostgreSQL engine: its connections, and the conversion of its values.

mod connection;
mod value;

pub(crate) use connection::{PostgresBulkInsert, PostgresConnection, PostgresStatement, outside_runtime};
pub(crate) use value::{clean_text, read_value};
