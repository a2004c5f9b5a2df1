//! The agent's tools, against the simulator and real MCP servers.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod hands;
mod mcp;
mod operations;
mod tools_refused;
