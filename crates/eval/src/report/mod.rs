//! What a run comes to. Everything here is read from a run's files, so a report can be made again at any time.

mod counter;
mod gate;
mod head;
mod reader;
mod summarize;
mod summary;

pub use gate::{GateError, GateResult, GateVerdict, QualityGate};
pub use head::{JudgedHead, VerdictHead};
pub use reader::RunReader;
pub use summary::{
    CostSummary, EvaluationSummary, EvaluatorCost, FindingVerdict, MetricResult, ReasonCount, ReportFinding, ToolUse,
};
