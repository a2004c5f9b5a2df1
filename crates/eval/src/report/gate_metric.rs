//! The numbers that gates can be about.

use std::fmt;

use gradus_stats::interval::{ConfidenceInterval, ScoreCluster, clustered_interval};

use super::summary::UnknownCost;
use super::{EvaluationSummary, MetricCalibration, MetricResult};
use crate::evaluator::OUTCOME;

/// A number of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GateMetric {
    /// An evaluator, `combined`, `trajectories_right`, or a metric of a benchmark.
    Named(String),
    /// An evaluator on a part of the run.
    Selected { evaluator: String, selector: MetricSelector },
    /// The share of runs with this outcome.
    OutcomeShare(String),
    /// The share of questions that the judge did not answer.
    Failed,
    /// What judging cost, in dollars.
    JudgeCost,
    /// A metric of trials, over the trials of dataset items with this tag.
    TrialShare { name: String, tag: String },
    /// The mean of a quantity over runs, or over those of items with a tag.
    Usage { usage: UsageMetric, tag: Option<String> },
}

/// The part of a run that a metric is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetricSelector {
    /// Steps that call this tool.
    Tool(String),
    /// Runs of dataset items with this tag.
    Tag(String),
}

/// What the agent used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageMetric {
    AgentCost,
    Latency,
    Steps,
    Tokens,
}

/// Why a metric is not known.
#[derive(Debug, thiserror::Error)]
pub enum GateMetricError {
    #[error("there is no metric {name:?} in this run; there are {known}")]
    Unknown { name: String, known: String },
    #[error("there is no outcome {label:?}; there are {known}")]
    UnknownOutcome { label: String, known: String },
    #[error("{text:?} selects nothing; write {{tool=NAME}} or {{tag=NAME}} behind a metric")]
    Selector { text: String },
    #[error(
        "{name:?} is about whole runs, so {{tool=NAME}} selects nothing of it\nhint: gate on an evaluator of steps"
    )]
    NotPerTool { name: String },
    #[error("{name:?} is about the whole run, and cannot be restricted to a tool or a tag")]
    WholeRun { name: String },
    #[error(
        "{name:?} needs the evaluators {needed}, and this run has not all of them\nhint: add them with --evaluators"
    )]
    MissingEvaluators { name: String, needed: String },
    #[error("this run has no tags\nhint: tags are those of dataset items; run the agent with `gradus experiment`")]
    NoTags,
    #[error("no item has the tag {tag:?}; there are {known}")]
    UnknownTag { tag: String, known: String },
}

/// The value of a metric, with the details that a gate reports.
#[derive(Clone, Debug)]
pub(super) struct GateMeasurement {
    pub value: Option<f64>,
    pub interval: Option<ConfidenceInterval>,
    pub is_share: bool,
    pub count: u64,
    pub run_count: u64,
    /// Why there is no value.
    pub missing_reason: &'static str,
    /// The number before its correction, if it was corrected.
    pub raw_value: Option<f64>,
    /// Whether a model judged, and its errors are not known.
    pub is_uncalibrated: bool,
}

impl UsageMetric {
    const ALL: [(&str, UsageMetric); 4] = [
        ("agent_cost", UsageMetric::AgentCost),
        ("latency", UsageMetric::Latency),
        ("steps", UsageMetric::Steps),
        ("tokens", UsageMetric::Tokens),
    ];

    pub(super) fn from_name(name: &str) -> Option<UsageMetric> {
        Self::ALL.iter().find(|(known, _)| *known == name).map(|(_, metric)| *metric)
    }

    pub(super) fn all() -> impl Iterator<Item = UsageMetric> {
        Self::ALL.iter().map(|(_, metric)| *metric)
    }

    pub(super) fn names() -> impl Iterator<Item = &'static str> {
        Self::ALL.iter().map(|(name, _)| *name)
    }

    fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, metric)| *metric == self).map_or("", |(name, _)| name)
    }
}

impl GateMetric {
    /// Whether it is an exact figure of this run, not an estimate, so that it needs no interval.
    pub(super) fn is_exact(&self) -> bool {
        matches!(self, GateMetric::Failed | GateMetric::JudgeCost)
    }

    pub(super) fn measure(&self, summary: &EvaluationSummary, more_metrics: &[MetricResult]) -> GateMeasurement {
        let plain = |value: Option<f64>, is_share, missing_reason| GateMeasurement {
            value,
            interval: None,
            is_share,
            count: summary.trajectories,
            run_count: summary.trajectories,
            missing_reason,
            raw_value: None,
            is_uncalibrated: false,
        };
        // The corrected number decides if there is one.
        let corrected = |metric: Option<&MetricResult>| metric.and_then(MetricResult::corrected).cloned();
        let from_metric = |metric: Option<&MetricResult>, missing_reason| GateMeasurement {
            value: corrected(metric).map(|found| found.value).or(metric.and_then(|metric| metric.value)),
            interval: corrected(metric).map(|found| found.interval).or(metric.and_then(|metric| metric.interval)),
            is_share: metric.is_none_or(|metric| metric.is_share),
            count: metric.map_or(0, |metric| metric.denominator),
            // An evaluation that ended early has read more runs than it judged.
            run_count: metric.map_or(0, |metric| metric.denominator.min(summary.trajectories)),
            missing_reason,
            raw_value: corrected(metric).and(metric.and_then(|metric| metric.value)),
            is_uncalibrated: metric
                .and_then(|metric| metric.calibration.as_ref())
                .is_some_and(|calibration| !matches!(calibration, MetricCalibration::Corrected(_))),
        };
        let find_more = || {
            let name = self.to_string();
            more_metrics.iter().find(|metric| metric.name == name)
        };
        match self {
            GateMetric::Named(name) => from_metric(summary.find_metric(name), "nothing was judged"),
            GateMetric::Selected { .. } => {
                // Only whole metrics are corrected; a part of one stays raw.
                let name = self.to_string();
                let whole = summary.find_metric(name.split('{').next().unwrap_or_default());
                let is_uncalibrated = whole.is_some_and(|metric| metric.calibration.is_some());
                GateMeasurement { is_uncalibrated, ..from_metric(find_more(), "nothing of that was judged") }
            }
            GateMetric::TrialShare { .. } => from_metric(find_more(), "no trial has this tag and this result"),
            GateMetric::Usage { usage: UsageMetric::AgentCost, .. } => {
                from_metric(find_more(), "the traces have no cost and no known price")
            }
            GateMetric::Usage { .. } => from_metric(find_more(), "the traces do not record it"),
            GateMetric::Failed => plain(summary.failed_share(), true, "nothing was judged"),
            GateMetric::JudgeCost => match summary.cost.usd_unknown {
                Some(UnknownCost::UsageNotReported) => {
                    plain(summary.cost.usd, false, "the endpoint does not report its usage")
                }
                _ => plain(summary.cost.usd, false, "the model's price is not known"),
            },
            GateMetric::OutcomeShare(label) => {
                let outcome = summary.find_metric(OUTCOME);
                let all: u64 = outcome.map_or(0, |outcome| outcome.labels.values().sum());
                let with_label = outcome.and_then(|outcome| outcome.labels.get(label)).copied().unwrap_or(0);
                let clusters: Vec<ScoreCluster> =
                    (0..all).map(|at| ScoreCluster { count: 1.0, sum: f64::from(u8::from(at < with_label)) }).collect();
                GateMeasurement {
                    value: (all > 0).then(|| with_label as f64 / all as f64),
                    interval: clustered_interval(&clusters, 0.0, 1.0),
                    is_share: true,
                    count: all,
                    run_count: all,
                    missing_reason: "no outcome was judged",
                    raw_value: None,
                    is_uncalibrated: false,
                }
            }
        }
    }
}

impl fmt::Display for GateMetric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GateMetric::Named(name) => f.write_str(name),
            GateMetric::Selected { evaluator, selector: MetricSelector::Tool(name) } => {
                write!(f, "{evaluator}{{tool={name}}}")
            }
            GateMetric::Selected { evaluator, selector: MetricSelector::Tag(name) } => {
                write!(f, "{evaluator}{{tag={name}}}")
            }
            GateMetric::OutcomeShare(label) => write!(f, "outcome.{label}"),
            GateMetric::Failed => f.write_str("failed"),
            GateMetric::JudgeCost => f.write_str("cost"),
            GateMetric::TrialShare { name, tag } => write!(f, "{name}{{tag={tag}}}"),
            GateMetric::Usage { usage, tag: None } => f.write_str(usage.name()),
            GateMetric::Usage { usage, tag: Some(tag) } => write!(f, "{}{{tag={tag}}}", usage.name()),
        }
    }
}
