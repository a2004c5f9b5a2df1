//! Reads what models write: ReAct text, JSON that is almost JSON, and JSON of unknown size within a budget. Agents read
//! replies with it and traces are read with it, so that both mean the same. Never sees spans, trajectories or I/O.

pub mod bounded_json;
pub mod lenient_json;
pub mod react_text;
pub mod result_text;
