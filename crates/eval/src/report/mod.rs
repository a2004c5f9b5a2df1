//! Summaries and gates of a run. Everything here is computed from the run's files, so a report can be made again later.

mod agent_cost;
mod combine;
mod failure_group;
mod gate;
mod gate_bar;
mod gate_measurement;
mod gate_metric;
mod gate_price;
#[cfg(test)]
mod gate_tests;
mod gate_vocabulary;
mod group_tally;
mod head;
mod judge_cost;
mod panel_summary;
mod reader;
mod reason_pattern;
mod similar_reasons;
mod summarize;
mod summary;
mod summary_builder;
#[cfg(test)]
mod summary_builder_tests;
mod trial_index;

pub use agent_cost::{AgentCost, UnpricedModel, known_agent_cost};
pub use failure_group::{FailureGroup, FailureGroupBuilder, MAX_FAILURE_GROUPS, VerdictGroup, excerpt_request};
pub use gate::{GateBasis, GateContext, GateError, GateResult, GateVerdict, QualityGate};
pub use gate_bar::{BaselineOffset, GateBar, GateOperator};
pub use gate_measurement::{GateTrials, collect_gate_values, measure_gate_metrics, measure_gate_values};
pub use gate_metric::{GateMetric, GateMetricError, MetricSelector, UsageMetric};
pub use gate_price::explain_unpriced_runs;
pub use gate_vocabulary::{GateVocabulary, TrialMetricNames};
pub use group_tally::FailureExample;
pub use head::{AnswerHead, ItemCount, JudgedHead, VerdictHead, VoteHead};
pub use panel_summary::{DisputedQuestion, EscalationSummary, PanelAgreement, PanelJudgeSummary, PanelSummary};
pub use reader::RunReader;
pub use summary::{
    CorrectedMetric, CostSummary, EvaluationSummary, EvaluatorCost, FindingVerdict, FlaggedCounts, MetricCalibration,
    MetricResult, ReasonCount, ReportFinding, ToolUse, UnknownCost,
};
pub use trial_index::TrialIndex;
