//! A GitHub agent: its loop, its tools, tools of MCP servers, and the traces it emits. It never sees the simulator,
//! verdicts, or how traces are read: it is judged by its traces, like any other agent.

pub mod agent;
pub mod mcp;
pub mod plural;
pub mod tools;
pub mod trace;
