//! Collects the results of one version run by run, from the files of a run or the store of a server.

use std::collections::{BTreeMap, HashMap, HashSet};

use gradus_core::whitespace::collapse_whitespace;
use gradus_eval::outcome::OutcomeKind;
use gradus_eval::report::{JudgedHead, MetricResult, TrialIndex, VerdictHead};
use gradus_eval::run::{EvaluatorRecord, RunManifest, RunState};
use gradus_eval::scale::ScoreScale;

use super::version_results::{
    RunValues, ScoreTally, ScoredDimension, TaskKey, UNFLAGGED_PREFIX, VersionHeader, VersionResults,
};
use crate::{TrialMeasurement, TrialResult, index_trials};

/// Maximum number of agent versions: traces can state a different one in every run.
const MAX_AGENT_VERSIONS: usize = 20;
/// Maximum characters of the excerpt of a request.
const MAX_REQUEST_CHARS: usize = 160;

/// Builds the results of a version run by run.
#[derive(Debug)]
pub struct VersionResultsBuilder<'m> {
    results: VersionResults,
    /// Dimensions that are evaluators; those of trials follow.
    evaluator_count: usize,
    /// Evaluators whose rules only notice mistakes, with the dimension of the share that they did not flag.
    notices: HashMap<usize, usize>,
    scales: Vec<ScoreScale>,
    of_steps: Vec<bool>,
    measurements: &'m [TrialMeasurement],
    trials: TrialIndex,
    /// The run of each trial: its task, and the position there.
    trial_runs: HashMap<usize, (TaskKey, usize)>,
    /// Trials whose own trajectory was added, with their results.
    measured_trials: HashSet<usize>,
}

impl<'m> VersionResultsBuilder<'m> {
    /// For the run of a manifest.
    pub(super) fn from_manifest(
        manifest: &RunManifest,
        measurements: &'m [TrialMeasurement],
    ) -> VersionResultsBuilder<'m> {
        let header = VersionHeader {
            name: manifest.display_name().to_owned(),
            run_id: manifest.run_id.clone(),
            started: manifest.started.clone(),
            is_complete: manifest.state == RunState::Finished,
            tags: manifest.tags.clone(),
            judge: manifest.judge.clone(),
            gradus_version: manifest.gradus_version.clone(),
            ..VersionHeader::default()
        };
        VersionResultsBuilder::new(header, &manifest.evaluators, measurements)
    }

    /// `header` says what the version is; its dimensions are those of the evaluators and of the trials.
    pub fn new(
        mut header: VersionHeader,
        evaluators: &[EvaluatorRecord],
        measurements: &'m [TrialMeasurement],
    ) -> VersionResultsBuilder<'m> {
        let mut dimensions: Vec<ScoredDimension> = evaluators.iter().map(ScoredDimension::from_evaluator).collect();
        let unflagged_from = dimensions.len();
        let notices: Vec<usize> = (0..unflagged_from).filter(|at| notices_only(&evaluators[*at])).collect();
        for at in &notices {
            let known = &evaluators[*at];
            dimensions.push(ScoredDimension {
                name: format!("{UNFLAGGED_PREFIX}{}", known.name),
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
        header.dimensions = dimensions;
        VersionResultsBuilder {
            results: VersionResults { header, tasks: BTreeMap::new(), metrics: BTreeMap::new() },
            evaluator_count: evaluators.len(),
            notices: notices.into_iter().enumerate().map(|(at, evaluator)| (evaluator, unflagged_from + at)).collect(),
            scales: evaluators.iter().map(EvaluatorRecord::scale).collect(),
            of_steps: evaluators.iter().map(|known| known.of_steps).collect(),
            measurements,
            trials: index_trials(measurements),
            trial_runs: HashMap::new(),
            measured_trials: HashSet::new(),
        }
    }

    /// Adds a run. Evaluators of verdicts are positions in the list that the builder was made with.
    pub fn add_run(&mut self, head: &JudgedHead<'_>, verdicts: &[VerdictHead]) {
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
        // The trajectory belongs to an agent that the agent of the trial called.
        let is_nested =
            trial.is_some_and(|trial| trial.trajectory_id.as_deref().is_some_and(|main| main != head.trajectory_id));
        if is_nested {
            // The outcome and the path of the called agent say nothing about the trial.
            for (at, score) in scores.iter_mut().enumerate().take(self.evaluator_count) {
                *score = score.filter(|_| self.of_steps[at]);
            }
        }
        if let (Some(position), Some(trial), false) = (position, trial, is_nested) {
            self.measured_trials.insert(position);
            add_trial_scores(trial, &header.dimensions, &mut scores);
        }
        let request = head.query.as_deref().map(str::trim).filter(|query| !query.is_empty());
        let digest = request.map(|request| format!("{:032x}", gradus_core::stable_digest(request.as_bytes())));
        let key = match (trial.and_then(|trial| trial.task_id.clone()), digest) {
            (Some(item), digest) => {
                if let Some(digest) = digest.filter(|_| !is_nested) {
                    header.item_requests.entry(item.clone()).or_insert(digest);
                }
                TaskKey::Item(item)
            }
            (None, Some(digest)) => TaskKey::Request(digest),
            (None, None) => TaskKey::Trajectory(head.trajectory_id.clone().into_owned()),
        };
        let task = self.results.tasks.entry(key.clone()).or_default();
        if task.request.is_none() {
            task.request = request.map(excerpt_request).filter(|_| !is_nested);
        }
        let values = RunValues {
            trajectory_id: head.trajectory_id.clone().into_owned(),
            scores,
            steps: Some(head.steps.0),
            tokens: Some(head.tokens.total()).filter(|tokens| *tokens > 0),
            cost_usd: head.cost_usd,
            // Baselines store microseconds; the same run must be equal in both.
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

    /// Adds the results of trials whose trajectory was not added: nothing was judged, or judging ended before them. Only
    /// for a version that is the whole run.
    pub fn add_unjudged_trials(&mut self) {
        for (position, trial) in self.measurements.iter().enumerate() {
            let Some(task_id) = trial.task_id.as_ref().filter(|_| !self.measured_trials.contains(&position)) else {
                continue;
            };
            let dimensions = &self.results.header.dimensions;
            let mut scores: Vec<Option<ScoreTally>> = vec![None; dimensions.len()];
            add_trial_scores(trial, dimensions, &mut scores);
            let trajectory_id = trial.trajectory_id.clone().unwrap_or_default();
            let values = RunValues { trajectory_id, scores, ..RunValues::default() };
            let known = self.trial_runs.get(&position);
            match known.and_then(|(key, at)| self.results.tasks.get_mut(key)?.runs.get_mut(*at)) {
                // A trajectory of a called agent was judged.
                Some(run) => run.merge(values, false),
                None => self.results.tasks.entry(TaskKey::Item(task_id.clone())).or_default().runs.push(values),
            }
        }
    }

    pub fn finish(self) -> VersionResults {
        self.results
    }
}

/// Puts the results of a trial among the scores of its run, which are in the order of the dimensions.
fn add_trial_scores(trial: &TrialMeasurement, dimensions: &[ScoredDimension], scores: &mut [Option<ScoreTally>]) {
    for result in &trial.results {
        if let Some(at) = dimensions.iter().position(|known| known.name == result.name) {
            scores[at] = Some(ScoreTally { sum: f64::from(u8::from(result.is_good)), count: 1 });
        }
    }
}

/// Whether an evaluator is judged by rules that notice mistakes and mostly abstain. Its share of right verdicts is about
/// the few cases that a rule decided, so versions are compared by how much was flagged instead.
fn notices_only(evaluator: &EvaluatorRecord) -> bool {
    let metric =
        MetricResult { name: evaluator.name.clone(), judge: evaluator.judge.clone(), ..MetricResult::default() };
    metric.is_from_flagging_rules()
}

/// The beginning of a request, on one line. It is escaped where it is printed.
fn excerpt_request(request: &str) -> String {
    let mut line = collapse_whitespace(request);
    if let Some((end, _)) = line.char_indices().nth(MAX_REQUEST_CHARS) {
        line.truncate(end);
        line.push('…');
    }
    line
}
