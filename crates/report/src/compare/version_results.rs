//! What one version of an agent did, as far as versions are compared: values for each run, by task. It comes from the
//! files of a run or from a baseline file.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::ControlFlow;

use gradus_eval::calibration::{DimensionCalibration, RunCalibration};
use gradus_eval::outcome::OutcomeKind;
use gradus_eval::report::{JudgedHead, MetricResult, RunReader, TrialIndex, VerdictHead};
use gradus_eval::run::{EvaluatorRecord, RunFileError, RunManifest, RunState};
use gradus_eval::scale::ScoreScale;
use serde::{Deserialize, Serialize};

use crate::{TrialMeasurement, TrialResult, index_trials};

/// Begins the name of a dimension: the share of questions that no rule flagged.
pub(super) const UNFLAGGED: &str = "unflagged.";
/// A trace can state any version, so that every run could have another one.
const MAX_AGENT_VERSIONS: usize = 20;
/// Longest excerpt of a request, in characters.
const MAX_REQUEST_CHARS: usize = 160;

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
    /// As people call it: the name of the run, or its id.
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
    pub steps: u32,
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
    /// Reads a run. `measurements` are the results of its trials, if it belongs to a benchmark or an experiment.
    pub fn from_run(reader: &mut RunReader, measurements: &[TrialMeasurement]) -> Result<VersionResults, RunFileError> {
        VersionResults::from_selected(reader, measurements, |_| ControlFlow::Continue(true))
    }

    /// Reads the trajectories of a run that `select` continues with `true`; it may also stop the reading.
    pub fn from_selected(
        reader: &mut RunReader,
        measurements: &[TrialMeasurement],
        mut select: impl FnMut(&JudgedHead<'_>) -> ControlFlow<(), bool>,
    ) -> Result<VersionResults, RunFileError> {
        let mut collector = ResultsCollector::new(&reader.record, measurements);
        let calibration = RunCalibration::load(reader);
        let mut selected = HashSet::new();
        reader.visit_verdicts(|head, verdicts| {
            match select(head) {
                ControlFlow::Break(()) => return ControlFlow::Break(()),
                ControlFlow::Continue(true) => {
                    collector.add_run(head, verdicts);
                    if calibration.is_some() {
                        selected.insert(head.trajectory_id.clone().into_owned());
                    }
                }
                ControlFlow::Continue(false) => {}
            }
            ControlFlow::Continue(())
        })?;
        let mut results = collector.results;
        if let Some(calibration) = calibration {
            results.header.calibrations = calibration.correct_dimensions(reader, |id| selected.contains(id))?;
        }
        Ok(results)
    }

    pub fn run_count(&self) -> usize {
        self.tasks.values().map(|task| task.runs.len()).sum()
    }

    /// What gates can be relative to: the stored numbers, else the means that the runs have.
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
        add_mean("steps", |run| Some(f64::from(run.steps)));
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

/// Builds the results of a version run by run.
struct ResultsCollector<'m> {
    results: VersionResults,
    /// Dimensions that are evaluators; those of trials follow.
    evaluator_count: usize,
    /// Evaluators whose rules only notice mistakes, and the dimension of what they did not flag.
    notices: HashMap<usize, usize>,
    scales: Vec<ScoreScale>,
    of_steps: Vec<bool>,
    measurements: &'m [TrialMeasurement],
    trials: TrialIndex,
    /// The run of each trial: its task, and the position there.
    trial_runs: HashMap<usize, (TaskKey, usize)>,
}

impl<'m> ResultsCollector<'m> {
    fn new(manifest: &RunManifest, measurements: &'m [TrialMeasurement]) -> ResultsCollector<'m> {
        let mut dimensions: Vec<ScoredDimension> =
            manifest.evaluators.iter().map(ScoredDimension::from_evaluator).collect();
        let unflagged_from = dimensions.len();
        let notices: Vec<usize> = (0..unflagged_from).filter(|at| notices_only(&manifest.evaluators[*at])).collect();
        for at in &notices {
            let known = &manifest.evaluators[*at];
            dimensions.push(ScoredDimension {
                name: format!("{UNFLAGGED}{}", known.name),
                title: format!("{}, not flagged", known.title),
                worst: 0.0,
                best: 1.0,
                rubric_hash: known.rubric_hash.clone(),
                judge: known.judge.clone(),
            });
        }
        for TrialResult { name, title, .. } in measurements.iter().flat_map(|trial| &trial.results) {
            if !dimensions.iter().any(|known| known.name == *name) {
                dimensions.push(ScoredDimension {
                    name: (*name).to_owned(),
                    title: (*title).to_owned(),
                    worst: 0.0,
                    best: 1.0,
                    rubric_hash: String::new(),
                    judge: String::new(),
                });
            }
        }
        let header = VersionHeader {
            name: manifest.display_name().to_owned(),
            run_id: manifest.run_id.clone(),
            started: manifest.started.clone(),
            is_complete: manifest.state == RunState::Finished,
            tags: manifest.tags.clone(),
            agent_versions: Vec::new(),
            judge: manifest.judge.clone(),
            dimensions,
            calibrations: Vec::new(),
            gradus_version: manifest.gradus_version.clone(),
        };
        ResultsCollector {
            results: VersionResults { header, tasks: BTreeMap::new(), metrics: BTreeMap::new() },
            evaluator_count: manifest.evaluators.len(),
            notices: notices.into_iter().enumerate().map(|(at, evaluator)| (evaluator, unflagged_from + at)).collect(),
            scales: manifest.evaluators.iter().map(EvaluatorRecord::scale).collect(),
            of_steps: manifest.evaluators.iter().map(|known| known.of_steps).collect(),
            measurements,
            trials: index_trials(measurements),
            trial_runs: HashMap::new(),
        }
    }

    fn add_run(&mut self, head: &JudgedHead<'_>, verdicts: &[VerdictHead]) {
        let header = &mut self.results.header;
        if let Some(version) = head.agent_version.as_deref()
            && header.agent_versions.len() < MAX_AGENT_VERSIONS
            && !header.agent_versions.iter().any(|known| known == version)
        {
            header.agent_versions.push(version.to_owned());
        }
        let mut scores: Vec<Option<ScoreTally>> = vec![None; header.dimensions.len()];
        for verdict in verdicts.iter().filter(|verdict| verdict.evaluator < self.evaluator_count) {
            if let Some(score) = verdict.score {
                let tally = scores[verdict.evaluator].get_or_insert_default();
                tally.sum += score;
                tally.count += 1;
            }
            let is_asked = matches!(verdict.outcome, OutcomeKind::Scored | OutcomeKind::Abstained);
            if let Some(at) = self.notices.get(&verdict.evaluator).filter(|_| is_asked) {
                let is_flagged = verdict.score.is_some_and(|score| self.scales[verdict.evaluator].is_wrong(score));
                let tally = scores[*at].get_or_insert_default();
                tally.sum += f64::from(u8::from(!is_flagged));
                tally.count += 1;
            }
        }
        let position = self.trials.find_trial(&head.trajectory_id, head.session_id.as_deref());
        let trial = position.map(|position| &self.measurements[position]);
        // The trajectory of an agent that the agent of the trial called.
        let is_nested =
            trial.is_some_and(|trial| trial.trajectory_id.as_deref().is_some_and(|main| main != head.trajectory_id));
        if is_nested {
            // How the called agent ended, and whether its path was short, is not about the trial.
            for (at, score) in scores.iter_mut().enumerate().take(self.evaluator_count) {
                *score = score.filter(|_| self.of_steps[at]);
            }
        }
        for result in trial.iter().filter(|_| !is_nested).flat_map(|trial| &trial.results) {
            if let Some(at) = header.dimensions.iter().position(|known| known.name == result.name) {
                scores[at] = Some(ScoreTally { sum: f64::from(u8::from(result.is_good)), count: 1 });
            }
        }
        let request = head.query.as_deref().map(str::trim).filter(|query| !query.is_empty());
        let key = match (trial.and_then(|trial| trial.task_id.clone()), request) {
            (Some(item), _) => TaskKey::Item(item),
            (None, Some(request)) => {
                TaskKey::Request(format!("{:032x}", gradus_core::stable_digest(request.as_bytes())))
            }
            (None, None) => TaskKey::Trajectory(head.trajectory_id.clone().into_owned()),
        };
        let task = self.results.tasks.entry(key.clone()).or_default();
        if task.request.is_none() {
            task.request = request.map(excerpt_request).filter(|_| !is_nested);
        }
        let values = RunValues {
            trajectory_id: head.trajectory_id.clone().into_owned(),
            scores,
            steps: head.steps.0,
            tokens: Some(head.tokens.total()).filter(|tokens| *tokens > 0),
            cost_usd: head.cost_usd,
            // Baselines have microseconds; the same run must be the same in both.
            seconds: head.duration_seconds().map(|seconds| (seconds * 1e6).round() / 1e6),
        };
        let known = position.and_then(|position| self.trial_runs.get(&position)).filter(|(known, _)| *known == key);
        match known {
            Some((_, at)) => task.runs[*at].merge(values, is_nested),
            None => {
                self.trial_runs.extend(position.map(|position| (position, (key, task.runs.len()))));
                task.runs.push(values);
            }
        }
    }
}

impl RunValues {
    /// Adds another trajectory of the same trial. The trajectory of the agent itself gives the run its id.
    fn merge(&mut self, other: RunValues, is_nested: bool) {
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
        self.steps += other.steps;
        self.tokens = add_known(self.tokens, other.tokens, |own, other| own + other);
        self.cost_usd = add_known(self.cost_usd, other.cost_usd, |own, other| own + other);
        // The called agent works while the caller waits.
        self.seconds = add_known(self.seconds, other.seconds, f64::max);
    }
}

fn add_known<T: Copy>(own: Option<T>, other: Option<T>, add: fn(T, T) -> T) -> Option<T> {
    match (own, other) {
        (Some(own), Some(other)) => Some(add(own, other)),
        (own, other) => own.or(other),
    }
}

/// Whether an evaluator is judged by rules that notice mistakes and mostly abstain. Its share of right verdicts is about
/// the few cases that a rule decided, so versions are compared by how much was flagged instead.
fn notices_only(evaluator: &EvaluatorRecord) -> bool {
    let metric =
        MetricResult { name: evaluator.name.clone(), judge: evaluator.judge.clone(), ..MetricResult::default() };
    metric.is_flags_of_rules()
}

/// The beginning of a request, on one line. It is escaped where it is printed.
fn excerpt_request(request: &str) -> String {
    let mut line: String = request.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some((end, _)) = line.char_indices().nth(MAX_REQUEST_CHARS) {
        line.truncate(end);
        line.push('…');
    }
    line
}
