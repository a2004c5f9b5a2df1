//! The results of one version of an agent: values for each run, by task. It comes from the files of a run or from a
//! baseline file.

use std::collections::{BTreeMap, BTreeSet};

use gradus_eval::calibration::DimensionCalibration;
use gradus_eval::run::EvaluatorRecord;
use gradus_eval::scale::ScoreScale;
use serde::{Deserialize, Serialize};

/// Prefix of the name of a dimension: the share of questions that no rule flagged.
pub(super) const UNFLAGGED_PREFIX: &str = "unflagged.";

/// One version of an agent.
#[derive(Clone, Debug, PartialEq)]
pub struct VersionResults {
    pub header: VersionHeader,
    /// Runs by task. A task is an item of a dataset, or all runs with the same request.
    pub tasks: BTreeMap<TaskKey, TaskRuns>,
    /// Numbers of the run for gates that are relative to it, by the name of the metric. Empty unless they were measured,
    /// and in baselines of the first format.
    pub metrics: BTreeMap<String, f64>,
}

/// What is known of a version beside its numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VersionHeader {
    /// The name for people: the name of the run, or its id.
    pub name: String,
    pub run_id: String,
    pub started: String,
    /// `false` if the run stopped early.
    pub is_complete: bool,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// Versions that the agent reported, in order of first appearance; the first ones, if there are many.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agent_versions: Vec<String>,
    pub judge: String,
    /// One for each score of [`RunValues::scores`], in the same order.
    pub dimensions: Vec<ScoredDimension>,
    /// Numbers of model judges, corrected by the calibration that the run was judged with; empty without one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calibrations: Vec<DimensionCalibration>,
    pub gradus_version: String,
    /// Digests of the requests of dataset items by the id of the item, to pair them with runs that name no item. Baselines
    /// do not keep them.
    #[serde(skip)]
    pub item_requests: BTreeMap<String, String>,
}

/// A dimension that runs have scores in: an evaluator, or a result of a benchmark.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScoredDimension {
    pub name: String,
    pub title: String,
    pub worst: f64,
    pub best: f64,
    /// Hash of the rubric; empty for results that are measured and not judged.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub rubric_hash: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub judge: String,
}

impl ScoredDimension {
    pub fn from_evaluator(known: &EvaluatorRecord) -> ScoredDimension {
        ScoredDimension {
            name: known.name.clone(),
            title: known.title.clone(),
            worst: known.scale().worst,
            best: known.scale().best,
            rubric_hash: known.rubric_hash.clone(),
            judge: known.judge.clone(),
        }
    }

    pub fn scale(&self) -> ScoreScale {
        ScoreScale { worst: self.worst, best: self.best }
    }
}

/// Identifies a task in every version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskKey {
    /// The id of a dataset item or of a task of a benchmark.
    Item(String),
    /// A digest of the request.
    Request(String),
    /// A run without a request: it can only be paired with itself.
    Trajectory(String),
}

/// The runs of one task.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TaskRuns {
    /// The request on one line, cut; `None` in baselines without content.
    pub request: Option<String>,
    pub runs: Vec<RunValues>,
}

/// The values of one run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunValues {
    pub trajectory_id: String,
    /// In the order of the dimensions of the header; `None` if the run has no score in it.
    pub scores: Vec<Option<ScoreTally>>,
    /// `None` for a trial whose trajectory was not judged.
    pub steps: Option<u32>,
    /// `None` if the trace records no tokens.
    pub tokens: Option<u64>,
    pub cost_usd: Option<f64>,
    pub seconds: Option<f64>,
}

/// Scores of one run in one dimension. The share is kept as a fraction, so that equal shares are equal.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ScoreTally {
    pub sum: f64,
    pub count: u32,
}

impl ScoreTally {
    pub fn mean(self) -> f64 {
        self.sum / f64::from(self.count.max(1))
    }
}

impl VersionResults {
    pub fn run_count(&self) -> usize {
        self.tasks.values().map(|task| task.runs.len()).sum()
    }

    /// Returns the values that gates can be relative to: the stored numbers, else the means over the runs.
    pub fn gate_values(&self) -> BTreeMap<String, f64> {
        if self.metrics.is_empty() { self.metric_values() } else { self.metrics.clone() }
    }

    /// Means over all scores and runs by the name of the metric, as gates name them: `thought_to_tool`, `steps`.
    pub fn metric_values(&self) -> BTreeMap<String, f64> {
        let runs = || self.tasks.values().flat_map(|task| &task.runs);
        let mut values = BTreeMap::new();
        for (at, dimension) in self.header.dimensions.iter().enumerate() {
            let tallies = || runs().filter_map(|run| run.scores[at]);
            let count: f64 = tallies().map(|tally| f64::from(tally.count)).sum();
            if count > 0.0 {
                let mean = tallies().fold(0.0, |sum, tally| sum + tally.sum) / count;
                // Gates name results of benchmarks and experiments without their prefix: `success`, `pass`.
                if let Some((_, short)) = dimension.name.split_once(": ") {
                    values.insert(short.to_owned(), mean);
                }
                values.insert(dimension.name.clone(), mean);
            }
        }
        let mut add_mean = |name: &str, of_run: fn(&RunValues) -> Option<f64>| {
            let amounts: Vec<f64> = runs().filter_map(of_run).collect();
            if !amounts.is_empty() {
                values.insert(name.to_owned(), amounts.iter().sum::<f64>() / amounts.len() as f64);
            }
        };
        add_mean("steps", |run| run.steps.map(f64::from));
        add_mean("tokens", |run| run.tokens.map(|tokens| tokens as f64));
        add_mean("latency", |run| run.seconds);
        add_mean("agent_cost", |run| run.cost_usd);
        values
    }

    /// Names of [`VersionResults::metric_values`] that are shares from 0 to 1.
    pub fn share_names(&self) -> BTreeSet<String> {
        let shares = self.header.dimensions.iter().filter(|dimension| dimension.scale().is_share());
        let names = shares.flat_map(|dimension| {
            let short = dimension.name.split_once(": ").map(|(_, short)| short.to_owned());
            short.into_iter().chain([dimension.name.clone()])
        });
        names.collect()
    }

    /// The position of a dimension in the scores of each run.
    pub fn find_dimension(&self, name: &str) -> Option<usize> {
        self.header.dimensions.iter().position(|known| known.name == name)
    }
}

impl RunValues {
    /// Adds another trajectory of the same trial. The trajectory of the agent itself gives the run its id.
    pub(super) fn merge(&mut self, other: RunValues, is_nested: bool) {
        if !is_nested {
            self.trajectory_id = other.trajectory_id;
        }
        for (own, other) in self.scores.iter_mut().zip(other.scores) {
            *own = match (*own, other) {
                (Some(own), Some(other)) => {
                    Some(ScoreTally { sum: own.sum + other.sum, count: own.count + other.count })
                }
                (own, other) => own.or(other),
            };
        }
        self.steps = merge_options(self.steps, other.steps, |own, other| own + other);
        self.tokens = merge_options(self.tokens, other.tokens, |own, other| own + other);
        self.cost_usd = merge_options(self.cost_usd, other.cost_usd, |own, other| own + other);
        // Not added: the called agent works while the caller waits.
        self.seconds = merge_options(self.seconds, other.seconds, f64::max);
    }
}

fn merge_options<T: Copy>(own: Option<T>, other: Option<T>, add: fn(T, T) -> T) -> Option<T> {
    match (own, other) {
        (Some(own), Some(other)) => Some(add(own, other)),
        (own, other) => own.or(other),
    }
}
