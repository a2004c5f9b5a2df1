//! What Gradus knows of GitHub: an agent with tools for it, a simulator of its REST API, so that agents can be run,
//! repeated and checked without the real one, and tasks to run them on. Of ours it sees `llm` only: an agent is known by
//! the traces it emits, like anyone else's.

pub mod agent;
pub mod bench;
pub mod mcp;
mod number;
mod occurrences;
pub mod policy;
pub mod record;
pub mod replay;
pub mod rules;
pub mod simulator;
pub mod suite;
pub mod tools;
pub mod trace;
mod written;
