//! The summary of a run: metrics with numerator, denominator and interval, cost, and findings. Doc comments of the
//! types below become descriptions in `docs/schemas/summary.schema.json`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::evaluator::SIMULATOR;
use crate::interval::ConfidenceInterval;
use crate::outcome::{OutcomeKind, TokenCount};

/// The document that `gradus eval --json` writes.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Summary")]
pub struct EvaluationSummary {
    pub run_id: String,
    /// False for a run that ended early; its numbers are about what was judged by then.
    pub complete: bool,
    pub stopped_because: Option<String>,
    pub judge: String,
    pub started: String,
    pub ended: Option<String>,
    pub sources: Vec<String>,
    pub trajectories: u64,
    pub steps: u64,
    /// One for each evaluator.
    pub metrics: Vec<MetricResult>,
    /// Steps that are right in both step dimensions.
    pub combined: Option<MetricResult>,
    /// Trajectories in which every step is right and the sequence optimal.
    pub trajectories_right: Option<MetricResult>,
    /// Most used first.
    pub tools: Vec<ToolUse>,
    pub cost: CostSummary,
    /// Why questions were not answered, most frequent first.
    pub reasons: Vec<ReasonCount>,
    /// What was found wrong, worst first; not more than 50.
    pub findings: Vec<ReportFinding>,
    /// Outcomes for which the judge saw only a part of the data.
    pub shortened: u64,
}

/// A share, or a mean of scores.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Metric")]
pub struct MetricResult {
    pub name: String,
    pub title: String,
    pub judge: String,
    /// Null when nothing was judged.
    pub value: Option<f64>,
    /// 95 %.
    pub interval: Option<ConfidenceInterval>,
    /// True when scores go from 0 to 1; else the value is a mean on the rubric's own scale.
    pub is_share: bool,
    /// The sum of the scores: how many are right, where labels are worth 1 and 0.
    pub numerator: f64,
    /// How many were judged.
    pub denominator: u64,
    /// Could not be judged.
    pub failed: u64,
    /// The question did not arise.
    pub not_applicable: u64,
    pub labels: BTreeMap<String, u64>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ToolUse {
    pub tool: String,
    pub uses: u64,
    /// Calls that failed.
    pub errors: u64,
    /// Calls whose choice was judged, and how many of those were right.
    pub judged: u64,
    pub right: u64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct CostSummary {
    /// Requests to models, retries included.
    pub calls: u64,
    pub tokens: TokenCount,
    /// Null when the model's price is not known.
    pub usd: Option<f64>,
    pub from_cache: u64,
    pub by_evaluator: Vec<EvaluatorCost>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct EvaluatorCost {
    pub evaluator: String,
    pub judge: String,
    pub calls: u64,
    pub tokens: TokenCount,
    pub usd: Option<f64>,
    pub from_cache: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ReasonCount {
    pub evaluator: String,
    pub outcome: OutcomeKind,
    pub reason: String,
    pub count: u64,
}

/// A step, or a whole trajectory, that was found wrong.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Finding")]
pub struct ReportFinding {
    pub trajectory_id: String,
    pub step_index: Option<u32>,
    pub query: Option<String>,
    pub thought: Option<String>,
    pub tool: Option<String>,
    pub arguments: Option<String>,
    pub verdicts: Vec<FindingVerdict>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct FindingVerdict {
    pub evaluator: String,
    pub label: String,
    pub explanation: String,
    pub evidence: Vec<String>,
}

impl EvaluationSummary {
    /// Also finds `combined` and `trajectories_right`.
    pub fn find_metric(&self, name: &str) -> Option<&MetricResult> {
        let also = [&self.combined, &self.trajectories_right];
        self.metrics.iter().chain(also.into_iter().flatten()).find(|metric| metric.name == name)
    }

    /// The share of applicable questions that were not answered; `None` if there were none. Measurements of the
    /// simulator are not questions.
    pub fn failed_share(&self) -> Option<f64> {
        let asked = || self.metrics.iter().filter(|metric| metric.judge != SIMULATOR);
        let failed: u64 = asked().map(|metric| metric.failed).sum();
        let asked: u64 = asked().map(|metric| metric.failed + metric.denominator).sum();
        (asked > 0).then(|| failed as f64 / asked as f64)
    }
}
