//! What a run comes to. Everything here is read from a run's files, so a report can be made again at any time.

mod counter;
mod gate;
mod head;
mod reader;
mod summarize;
mod summary;

pub use gate::{Gate, GateError, GateResult, GateVerdict};
pub use head::{JudgedHead, Verdict};
pub use reader::RunReader;
pub use summary::{
    CostSummary, EvaluatorCost, Finding, FindingVerdict, Metric, ReasonCount, Summary, ToolUse,
};
