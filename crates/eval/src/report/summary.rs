//! The summary of a run: metrics with numerator, denominator and interval, cost, and findings. Doc comments of the
//! types below become descriptions in `docs/schemas/summary.schema.json`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::agent_cost::AgentCost;
use super::failure_group::FailureGroup;
use super::panel_summary::PanelSummary;
use crate::evaluator::{ARGUMENT_PROVENANCE, CALL_VALIDITY, OFFLINE_JUDGE, OUTCOME, RULES_JUDGE, SIMULATOR_JUDGE};
use crate::outcome::{OutcomeKind, TokenCount};
use crate::run::EarlyGateRecord;
use gradus_stats::calibration::ShareEstimator;
use gradus_stats::interval::ConfidenceInterval;

/// Evaluators whose rules can prove that something is right: how a run ended, that a call fits its schema, and where
/// its values come from.
const CONFIRMING_RULES: [&str; 3] = [OUTCOME, CALL_VALIDITY, ARGUMENT_PROVENANCE];

/// Judges that are not models: their errors are published, or there are none.
const NON_MODEL_JUDGES: [&str; 4] = [OFFLINE_JUDGE, RULES_JUDGE, SIMULATOR_JUDGE, "none"];

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
    /// One for each evaluator; `outcome` is the first.
    pub metrics: Vec<MetricResult>,
    /// Steps that are right in the step dimensions that apply: `thought_to_tool` and `query_to_thought` where there is a
    /// thought, `request_to_tool` where there is none.
    pub combined: Option<MetricResult>,
    /// Trajectories that ended well, in which every step is right and the sequence optimal.
    pub trajectories_right: Option<MetricResult>,
    /// Steps and trajectories with a verdict below its bar.
    #[serde(default)]
    pub flagged: FlaggedCounts,
    /// Most used first.
    pub tools: Vec<ToolUse>,
    /// What judging cost.
    pub cost: CostSummary,
    /// What the agent itself cost.
    #[serde(default)]
    pub agent_cost: AgentCost,
    /// Why questions were not answered, most frequent first.
    pub reasons: Vec<ReasonCount>,
    /// Wrong verdicts by evaluator, tool and reason, the largest groups first; not more than 100.
    #[serde(default)]
    pub failure_groups: Vec<FailureGroup>,
    /// Groups that are not in `failure_groups`.
    #[serde(default)]
    pub omitted_failure_groups: u64,
    /// What was found wrong, worst first; not more than 50.
    pub findings: Vec<ReportFinding>,
    /// Outcomes for which the judge saw only a part of the data.
    pub shortened: u64,
    /// Absent where one judge is asked once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub panel: Option<PanelSummary>,
    /// Gates that `--stop-early` decided before everything was judged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub early_gates: Vec<EarlyGateRecord>,
}

/// How many trajectories and steps have at least one verdict below its bar. A plain count, of all `trajectories` and
/// `steps` of the run: useful where the judge abstains from most questions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FlaggedCounts {
    /// Trajectories with such a verdict on the whole or on one of their steps.
    pub trajectories: u64,
    pub steps: u64,
}

/// A share, or a mean of scores.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Metric")]
pub struct MetricResult {
    pub name: String,
    pub title: String,
    pub judge: String,
    /// Whether it is about steps and not about whole trajectories.
    #[serde(default)]
    pub of_steps: bool,
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
    /// The rules cannot decide it, or gave a label that is neither good nor bad; or the votes of a panel are tied.
    #[serde(default)]
    pub abstained: u64,
    /// The question did not arise.
    pub not_applicable: u64,
    pub labels: BTreeMap<String, u64>,
    /// How far the judge behind the number is known; absent for measurements, and for rules without a calibration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calibration: Option<MetricCalibration>,
}

/// How far the judge behind a number is known.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum MetricCalibration {
    /// A model judged, and nothing is known about its errors.
    Uncalibrated,
    /// There is a calibration, and it cannot be used for this number.
    NotApplied { reason: String },
    /// Corrected for the errors of the judge.
    Corrected(CorrectedMetric),
}

/// A metric without the errors that the judge is known to make.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CorrectedMetric {
    /// On the scale of the metric.
    pub value: f64,
    /// 95 %. It accounts for the number of labels, too.
    pub interval: ConfidenceInterval,
    pub estimator: ShareEstimator,
    /// Cases with a label, and trajectories that they are from.
    pub labelled_cases: u64,
    pub labelled_trajectories: u64,
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
    /// Null when it is not known; `usd_unknown` says why.
    pub usd: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usd_unknown: Option<UnknownCost>,
    pub from_cache: u64,
    pub by_evaluator: Vec<EvaluatorCost>,
}

/// Why a cost is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UnknownCost {
    /// The price table has no entry for the model.
    PriceNotKnown,
    /// The endpoint did not report the tokens of every answer.
    UsageNotReported,
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

impl MetricResult {
    /// Questions that were asked, whether or not they have a verdict.
    pub fn asked_count(&self) -> u64 {
        self.denominator + self.failed + self.abstained + self.not_applicable
    }

    /// Of `abstained`, those with a label that is neither good nor bad. 0 where the labels are not known.
    pub fn unscored_count(&self) -> u64 {
        self.labels.values().sum::<u64>().saturating_sub(self.denominator).min(self.abstained)
    }

    /// Verdicts below the best score; `None` where scores are not only 0 and 1, since a sum is no count then.
    pub fn wrong_count(&self) -> Option<u64> {
        let is_counted = self.is_share && self.numerator.fract() == 0.0 && self.numerator >= 0.0;
        is_counted.then(|| self.denominator.saturating_sub(self.numerator as u64))
    }

    /// The corrected number, if there is one.
    pub fn corrected(&self) -> Option<&CorrectedMetric> {
        match &self.calibration {
            Some(MetricCalibration::Corrected(corrected)) => Some(corrected),
            _ => None,
        }
    }

    /// Whether the verdicts are flags of rules: such rules notice mistakes and never prove the absence of one.
    pub fn is_from_flagging_rules(&self) -> bool {
        matches!(self.judge.as_str(), OFFLINE_JUDGE | RULES_JUDGE) && !CONFIRMING_RULES.contains(&self.name.as_str())
    }
}

impl MetricCalibration {
    /// Returns the calibration state of a judge's numbers before any calibration is applied.
    pub fn for_judge(judge: &str) -> Option<MetricCalibration> {
        (!NON_MODEL_JUDGES.contains(&judge)).then_some(MetricCalibration::Uncalibrated)
    }
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
        let asked = || self.metrics.iter().filter(|metric| metric.judge != SIMULATOR_JUDGE);
        let failed: u64 = asked().map(|metric| metric.failed).sum();
        let asked: u64 = asked().map(|metric| metric.failed + metric.denominator).sum();
        (asked > 0).then(|| failed as f64 / asked as f64)
    }
}
