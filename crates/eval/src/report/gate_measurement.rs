//! Measures what gates need in addition to the summary of a run: parts of it by tool and by tag, and the agent's
//! usage.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::ops::ControlFlow;

use gradus_core::trajectory::Trajectory;
use gradus_stats::interval::{ScoreCluster, clustered_interval, mean_interval};

use super::gate_metric::{GateMetric, MetricSelector, UsageMetric};
use super::gate_vocabulary::GateVocabulary;
use super::head::JudgedHead;
use super::trial_index::TrialIndex;
use super::{EvaluationSummary, MetricResult, RunReader};
use crate::outcome::OutcomeLine;
use crate::run::{EvaluatorRecord, RunFileError};
use crate::scale::ScoreScale;

/// Maximum number of tools and of tags whose numbers a baseline stores: the most used ones.
const MAX_STORED_TOOLS: usize = 50;
const MAX_STORED_TAGS: usize = 50;
/// Maximum bytes of names of tools and tags in baselines. Longer ones are left out, since baselines are text for a
/// repository.
const MAX_STORED_NAME: usize = 100;

/// The trials of a run, for gates on them.
pub struct GateTrials<'t> {
    pub index: &'t TrialIndex,
    /// The metrics of the trials with a tag, under their plain names.
    pub tag_metrics: &'t dyn Fn(&str) -> Vec<MetricResult>,
}

impl fmt::Debug for GateTrials<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GateTrials").field("index", self.index).finish_non_exhaustive()
    }
}

/// Measures these metrics if they are not in the summary. Reads the run again only if that is necessary.
pub fn measure_gate_metrics<'g>(
    metrics: impl Iterator<Item = &'g GateMetric>,
    reader: &mut RunReader,
    trials: &GateTrials<'_>,
) -> Result<Vec<MetricResult>, RunFileError> {
    let mut found: Vec<MetricResult> = Vec::new();
    let mut usage: Vec<UsageValues> = Vec::new();
    let mut selected = SelectedScores::default();
    let mut by_tag: HashMap<&str, Vec<MetricResult>> = HashMap::new();
    for metric in metrics {
        match metric {
            GateMetric::Usage { usage: wanted, tag } => {
                usage.push(UsageValues::new(metric.to_string(), *wanted, tag));
            }
            GateMetric::Selected { evaluator, selector } => selected.add(metric.to_string(), evaluator, selector),
            GateMetric::TrialShare { name, tag } => {
                let known = by_tag.entry(tag).or_insert_with(|| (trials.tag_metrics)(tag));
                let of_tag = known.iter().find(|known| known.name == *name);
                found.extend(of_tag.map(|known| MetricResult { name: metric.to_string(), ..known.clone() }));
            }
            _ => {}
        }
    }
    if !usage.is_empty() {
        let mut position = 0;
        reader.visit_verdicts(|head, _| {
            let session = head.session_id.as_deref();
            let trial = trials.index.find_trial(&head.trajectory_id, session);
            let tags = trials.index.find_tags(&head.trajectory_id, session);
            position += 1;
            // Trajectories of one trial are one value: called agents are part of the usage of their caller.
            let key = trial.map_or((1, position), |trial| (0, trial));
            usage.iter_mut().for_each(|values| values.add(key, head, tags));
            ControlFlow::Continue(())
        })?;
        found.extend(usage.iter().map(UsageValues::to_metric));
    }
    if !selected.parts.is_empty() {
        reader.visit_trajectories(|trajectory, outcomes| {
            let tags = trials.index.find_tags(&trajectory.trajectory_id, trajectory.session_id.as_deref());
            selected.count(trajectory, outcomes, tags);
            Ok::<(), RunFileError>(())
        })?;
        let scale =
            |name: &str| reader.record.evaluators.iter().find(|known| known.name == name).map(EvaluatorRecord::scale);
        found.extend(selected.parts.iter().map(|part| part.to_metric(scale(&part.evaluator))));
    }
    Ok(found)
}

/// Returns all numbers of a run that a later gate can be relative to, by the name of the metric. The cost of judging
/// is left out: it depends on the cache.
pub fn collect_gate_values(
    vocabulary: &GateVocabulary,
    summary: &EvaluationSummary,
    reader: &mut RunReader,
    trials: &GateTrials<'_>,
) -> Result<BTreeMap<String, f64>, RunFileError> {
    let is_short = |name: &str| name.chars().count() <= MAX_STORED_NAME;
    let mut metrics = vocabulary.plain_metrics();
    let tools = summary.tools.iter().map(|used| used.tool.as_str()).filter(|tool| is_short(tool));
    metrics.extend(tools.take(MAX_STORED_TOOLS).flat_map(|tool| vocabulary.tool_metrics(tool)));
    let tags = trials.index.rank_tags();
    let tags = tags.iter().map(|(tag, _)| *tag).filter(|tag| is_short(tag));
    metrics.extend(tags.take(MAX_STORED_TAGS).flat_map(|tag| vocabulary.tag_metrics(tag)));
    measure_gate_values(metrics.iter(), summary, reader, trials)
}

/// Returns the values of these metrics by name; those without one are left out.
pub fn measure_gate_values<'g>(
    metrics: impl Iterator<Item = &'g GateMetric> + Clone,
    summary: &EvaluationSummary,
    reader: &mut RunReader,
    trials: &GateTrials<'_>,
) -> Result<BTreeMap<String, f64>, RunFileError> {
    let more_metrics = measure_gate_metrics(metrics.clone(), reader, trials)?;
    let values = metrics.filter(|metric| **metric != GateMetric::JudgeCost).filter_map(|metric| {
        let value = metric.measure(summary, &more_metrics).value?;
        Some((metric.to_string(), value))
    });
    Ok(values.collect())
}

/// The usage of the agent, for each trial or trajectory.
struct UsageValues<'g> {
    name: String,
    usage: UsageMetric,
    tag: &'g Option<String>,
    values: BTreeMap<(u8, usize), f64>,
    /// Trials and trajectories with a trajectory of unknown cost, and whether that has tokens.
    unpriced: BTreeMap<(u8, usize), bool>,
}

impl<'g> UsageValues<'g> {
    fn new(name: String, usage: UsageMetric, tag: &'g Option<String>) -> UsageValues<'g> {
        UsageValues { name, usage, tag, values: BTreeMap::new(), unpriced: BTreeMap::new() }
    }

    fn add(&mut self, key: (u8, usize), head: &JudgedHead<'_>, tags: &[String]) {
        if self.tag.as_ref().is_some_and(|tag| !tags.contains(tag)) {
            return;
        }
        let value = match self.usage {
            UsageMetric::AgentCost => head.cost_usd,
            UsageMetric::Latency => head.duration_seconds(),
            UsageMetric::Steps => Some(f64::from(head.steps.0)),
            UsageMetric::Tokens => Some(head.tokens.total() as f64).filter(|tokens| *tokens > 0.0),
        };
        let Some(value) = value else {
            if self.usage == UsageMetric::AgentCost {
                *self.unpriced.entry(key).or_default() |= head.tokens.total() > 0;
            }
            return;
        };
        let known = self.values.entry(key).or_insert(0.0);
        // Called agents work while the caller waits, so latency is not added up; everything else is.
        *known = if self.usage == UsageMetric::Latency { known.max(value) } else { *known + value };
    }

    /// Returns the mean over runs with Student's interval; without one for fewer than two runs. Runs of unknown cost
    /// count as failed.
    fn to_metric(&self) -> MetricResult {
        let values: Vec<f64> = self.values.values().copied().collect();
        let count = values.len() as f64;
        let sum = values.iter().fold(0.0, |sum, value| sum + value);
        // An agent that only calls other agents has no tokens of its own, so their cost is complete.
        let unpriced = self.unpriced.iter().filter(|(key, has_tokens)| **has_tokens || !self.values.contains_key(key));
        MetricResult {
            name: self.name.clone(),
            value: (count > 0.0).then(|| sum / count),
            interval: mean_interval(&values),
            is_share: false,
            numerator: sum,
            denominator: values.len() as u64,
            failed: unpriced.count() as u64,
            ..MetricResult::default()
        }
    }
}

/// Scores of evaluators on parts of a run.
#[derive(Default)]
struct SelectedScores {
    parts: Vec<SelectedPart>,
    /// Positions of parts by evaluator, and by tool or tag.
    by_tool: HashMap<String, HashMap<String, usize>>,
    by_tag: HashMap<String, HashMap<String, usize>>,
}

/// Scores of one evaluator on one part of a run.
struct SelectedPart {
    name: String,
    evaluator: String,
    clusters: Vec<ScoreCluster>,
}

impl SelectedScores {
    fn add(&mut self, name: String, evaluator: &str, selector: &MetricSelector) {
        let (positions, value) = match selector {
            MetricSelector::Tool(tool) => (&mut self.by_tool, tool),
            MetricSelector::Tag(tag) => (&mut self.by_tag, tag),
        };
        let positions = positions.entry(evaluator.to_owned()).or_default();
        // Two gates on the same part are measured once.
        if !positions.contains_key(value) {
            positions.insert(value.clone(), self.parts.len());
            self.parts.push(SelectedPart { name, evaluator: evaluator.to_owned(), clusters: Vec::new() });
        }
    }

    fn count(&mut self, trajectory: &Trajectory, outcomes: &[OutcomeLine], tags: &[String]) {
        let mut clusters: BTreeMap<usize, ScoreCluster> = BTreeMap::new();
        for outcome in outcomes {
            let Some(score) = outcome.score else { continue };
            let by_tool = || {
                let tools = self.by_tool.get(&*outcome.evaluator)?;
                let index = outcome.step_index?;
                tools.get(&trajectory.steps.iter().find(|step| step.index == index)?.tool)
            };
            let by_tag = self.by_tag.get(&*outcome.evaluator);
            let by_tag = by_tag.into_iter().flat_map(|known| tags.iter().filter_map(|tag| known.get(tag)));
            for position in by_tool().into_iter().chain(by_tag) {
                let cluster = clusters.entry(*position).or_default();
                cluster.count += 1.0;
                cluster.sum += score;
            }
        }
        for (position, cluster) in clusters {
            self.parts[position].clusters.push(cluster);
        }
    }
}

impl SelectedPart {
    fn to_metric(&self, scale: Option<ScoreScale>) -> MetricResult {
        let scale = scale.unwrap_or(ScoreScale::SHARE);
        let count = self.clusters.iter().fold(0.0, |sum, cluster| sum + cluster.count);
        let sum = self.clusters.iter().fold(0.0, |sum, cluster| sum + cluster.sum);
        MetricResult {
            name: self.name.clone(),
            value: (count > 0.0).then(|| sum / count),
            interval: clustered_interval(&self.clusters, scale.worst, scale.best),
            is_share: scale.is_share(),
            numerator: sum,
            denominator: count as u64,
            ..MetricResult::default()
        }
    }
}
