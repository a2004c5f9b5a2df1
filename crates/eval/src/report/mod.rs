//! Summaries and gates of a run. Everything here is computed from the run's files, so a report can be made again later.

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
