//! The metrics that gates of one run can use: its evaluators, the metrics of its trials, and the tags of their items.
//! Gates are parsed with it before the run begins, so that invalid ones are refused before anything is paid for.

use std::collections::BTreeSet;

use super::gate_metric::{GateMetric, GateMetricError, MetricSelector, UsageMetric};
use crate::evaluator::GAVE_UP;
use crate::evaluator::{OUTCOME, QUERY_TO_THOUGHT, SEQUENCE_OPTIMALITY, THOUGHT_TO_TOOL};
use crate::offline::OUTCOME_LABELS;
use crate::run::EvaluatorRecord;

/// Metrics that combine several evaluators, with the evaluators that they need.
const COMBINED_METRICS: [(&str, &[&str]); 2] = [
    ("combined", &[THOUGHT_TO_TOOL, QUERY_TO_THOUGHT]),
    ("trajectories_right", &[THOUGHT_TO_TOOL, QUERY_TO_THOUGHT, SEQUENCE_OPTIMALITY]),
];
/// Maximum number of tags in a message.
const MAX_LISTED_TAGS: usize = 20;

/// The names of what the trials of a benchmark or an experiment measure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrialMetricNames {
    /// Metrics from 0 to 1.
    pub shares: Vec<String>,
    /// Metrics on another scale.
    pub amounts: Vec<String>,
    /// Tags of the tasks or dataset items.
    pub tags: BTreeSet<String>,
}

impl TrialMetricNames {
    /// Shares first.
    pub fn all_names(&self) -> impl Iterator<Item = &str> {
        self.shares.iter().chain(&self.amounts).map(String::as_str)
    }
}

/// The metrics of one run.
#[derive(Clone, Debug, Default)]
pub struct GateVocabulary {
    evaluators: Vec<EvaluatorRecord>,
    /// `None` for a run without trials.
    trials: Option<TrialMetricNames>,
}

impl GateVocabulary {
    pub fn new(evaluators: Vec<EvaluatorRecord>, trials: Option<TrialMetricNames>) -> GateVocabulary {
        GateVocabulary { evaluators, trials }
    }

    fn find_evaluator(&self, name: &str) -> Option<&EvaluatorRecord> {
        self.evaluators.iter().find(|known| known.name == name)
    }

    fn is_trial_metric(&self, name: &str) -> bool {
        self.trials.iter().flat_map(TrialMetricNames::all_names).any(|known| known == name)
    }

    /// Parses the metric of a gate.
    pub(super) fn parse_metric(&self, text: &str) -> Result<GateMetric, GateMetricError> {
        if let Some((name, selector)) = text.split_once('{') {
            return self.parse_selected(text, name.trim(), selector);
        }
        if let Some(label) = text.strip_prefix("outcome.")
            && self.find_evaluator(OUTCOME).is_some()
        {
            return match outcome_labels().any(|known| known == label) {
                true => Ok(GateMetric::OutcomeShare(label.to_owned())),
                false => Err(GateMetricError::UnknownOutcome {
                    label: label.to_owned(),
                    known: outcome_labels().collect::<Vec<_>>().join(", "),
                }),
            };
        }
        if let Some((_, needed)) = COMBINED_METRICS.iter().find(|(name, _)| *name == text) {
            return match needed.iter().all(|name| self.find_evaluator(name).is_some()) {
                true => Ok(GateMetric::Named(text.to_owned())),
                false => Err(GateMetricError::MissingEvaluators { name: text.to_owned(), needed: needed.join(", ") }),
            };
        }
        if self.find_evaluator(text).is_some() || self.is_trial_metric(text) {
            return Ok(GateMetric::Named(text.to_owned()));
        }
        match (text, UsageMetric::from_name(text)) {
            ("failed", _) => Ok(GateMetric::Failed),
            ("cost", _) => Ok(GateMetric::JudgeCost),
            (_, Some(usage)) => Ok(GateMetric::Usage { usage, tag: None }),
            _ => Err(self.unknown_metric(text)),
        }
    }

    /// Parses a metric on a part of the run, `NAME{tool=X}` or `NAME{tag=X}`.
    fn parse_selected(&self, text: &str, name: &str, selector: &str) -> Result<GateMetric, GateMetricError> {
        let bad_selector = || GateMetricError::Selector { text: text.to_owned() };
        let (key, value) =
            selector.strip_suffix('}').and_then(|inside| inside.split_once('=')).ok_or_else(bad_selector)?;
        let value = value.trim().to_owned();
        if value.is_empty() {
            return Err(bad_selector());
        }
        let is_tag = match key.trim() {
            "tool" => false,
            "tag" => true,
            _ => return Err(bad_selector()),
        };
        if is_tag {
            self.check_tag(&value)?;
        }
        match (self.find_evaluator(name), UsageMetric::from_name(name)) {
            (Some(_), _) if is_tag => {
                Ok(GateMetric::Selected { evaluator: name.to_owned(), selector: MetricSelector::Tag(value) })
            }
            (Some(known), _) if known.of_steps => {
                Ok(GateMetric::Selected { evaluator: name.to_owned(), selector: MetricSelector::Tool(value) })
            }
            (Some(_), _) => Err(GateMetricError::NotPerTool { name: name.to_owned() }),
            (None, _) if self.is_trial_metric(name) => match is_tag {
                true => Ok(GateMetric::TrialShare { name: name.to_owned(), tag: value }),
                false => Err(GateMetricError::NotPerTool { name: name.to_owned() }),
            },
            (None, Some(usage)) => match is_tag {
                true => Ok(GateMetric::Usage { usage, tag: Some(value) }),
                false => Err(GateMetricError::NotPerTool { name: name.to_owned() }),
            },
            (None, None) => match self.parse_metric(name) {
                Ok(_) => Err(GateMetricError::WholeRun { name: name.to_owned() }),
                Err(error) => Err(error),
            },
        }
    }

    fn check_tag(&self, tag: &str) -> Result<(), GateMetricError> {
        let Some(trials) = self.trials.as_ref().filter(|trials| !trials.tags.is_empty()) else {
            return Err(GateMetricError::NoTags);
        };
        if trials.tags.contains(tag) {
            return Ok(());
        }
        let mut known: Vec<&str> = trials.tags.iter().map(String::as_str).take(MAX_LISTED_TAGS).collect();
        if trials.tags.len() > MAX_LISTED_TAGS {
            known.push("…");
        }
        Err(GateMetricError::UnknownTag { tag: tag.to_owned(), known: known.join(", ") })
    }

    /// Whether the metric is a share from 0 to 1, so that percent means points of it.
    pub(super) fn is_share(&self, metric: &GateMetric) -> bool {
        match metric {
            GateMetric::Named(name) | GateMetric::Selected { evaluator: name, .. } => match self.find_evaluator(name) {
                Some(known) => known.scale().is_share(),
                None => !self.is_trial_amount(name),
            },
            GateMetric::TrialShare { name, .. } => !self.is_trial_amount(name),
            GateMetric::OutcomeShare(_) | GateMetric::Failed => true,
            GateMetric::JudgeCost | GateMetric::Usage { .. } => false,
        }
    }

    fn is_trial_amount(&self, name: &str) -> bool {
        self.trials.iter().flat_map(|trials| &trials.amounts).any(|known| known == name)
    }

    fn unknown_metric(&self, name: &str) -> GateMetricError {
        let evaluators = self.evaluators.iter().map(|known| known.name.as_str());
        let trials = self.trials.iter().flat_map(TrialMetricNames::all_names);
        let mut known: Vec<&str> = evaluators.chain(trials).collect();
        let has_all = |needed: &[&str]| needed.iter().all(|name| self.find_evaluator(name).is_some());
        known.extend(COMBINED_METRICS.iter().filter(|(_, needed)| has_all(needed)).map(|(name, _)| *name));
        known.extend(Some("outcome.LABEL").filter(|_| has_all(&[OUTCOME])));
        known.extend(["failed", "cost"]);
        known.extend(UsageMetric::names().map(|name| -> &str { name }));
        GateMetricError::Unknown { name: name.to_owned(), known: known.join(", ") }
    }

    /// Returns the metrics that a baseline stores for gates of later runs: all but those of single tools and tags.
    pub(super) fn plain_metrics(&self) -> Vec<GateMetric> {
        let evaluators = self.evaluators.iter().map(|known| known.name.as_str());
        let mut named: Vec<&str> = evaluators.chain(self.trials.iter().flat_map(TrialMetricNames::all_names)).collect();
        named.extend(COMBINED_METRICS.map(|(name, _)| name));
        let mut metrics: Vec<GateMetric> = named.into_iter().map(|name| GateMetric::Named(name.to_owned())).collect();
        if self.find_evaluator(OUTCOME).is_some() {
            metrics.extend(outcome_labels().map(|label| GateMetric::OutcomeShare(label.to_owned())));
        }
        metrics.push(GateMetric::Failed);
        metrics.extend(UsageMetric::all().map(|usage| GateMetric::Usage { usage, tag: None }));
        metrics
    }

    /// Returns a metric of each step evaluator for this tool.
    pub(super) fn tool_metrics<'v>(&'v self, tool: &'v str) -> impl Iterator<Item = GateMetric> + 'v {
        self.evaluators.iter().filter(|known| known.of_steps).map(|known| GateMetric::Selected {
            evaluator: known.name.clone(),
            selector: MetricSelector::Tool(tool.to_owned()),
        })
    }

    /// Returns each metric that can be restricted to this tag.
    pub(super) fn tag_metrics<'v>(&'v self, tag: &'v str) -> impl Iterator<Item = GateMetric> + 'v {
        let selected = self.evaluators.iter().map(|known| GateMetric::Selected {
            evaluator: known.name.clone(),
            selector: MetricSelector::Tag(tag.to_owned()),
        });
        let trials = self.trials.iter().flat_map(TrialMetricNames::all_names);
        let trials = trials.map(|name| GateMetric::TrialShare { name: name.to_owned(), tag: tag.to_owned() });
        let usage = UsageMetric::all().map(|usage| GateMetric::Usage { usage, tag: Some(tag.to_owned()) });
        selected.chain(trials).chain(usage)
    }
}

fn outcome_labels() -> impl Iterator<Item = &'static str> {
    OUTCOME_LABELS.iter().map(|(label, _)| *label).chain([GAVE_UP])
}
