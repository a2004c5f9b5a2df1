//! A GitHub agent: its loop, its tools, tools of MCP servers, and the traces it emits. Never sees the simulator, verdicts or
//! how traces are read: it is known by its traces, like anyone else's agent.

pub mod agent;
pub mod mcp;
pub mod plural;
pub mod tools;
pub mod trace;
