//! Counts the outcomes of a run into its summary.

use std::borrow::Cow;
use std::collections::BTreeMap;

use gradus_core::trajectory::{Trajectory, TrajectoryStep};

use super::summary::{
    CostSummary, EvaluationSummary, EvaluatorCost, FindingVerdict, MetricResult, ReasonCount, ReportFinding, ToolUse,
};
use crate::evaluator::{QUERY_TO_THOUGHT, SEQUENCE_OPTIMALITY, THOUGHT_TO_TOOL};
use crate::interval::{self, ScoreCluster};
use crate::outcome::{OutcomeKind, OutcomeLine};
use crate::run::{EvaluatorRecord, RunManifest, RunState};
use crate::scale::ScoreScale;

/// Findings that a summary contains.
const MAX_FINDINGS: usize = 50;
/// Distinct reasons that are counted. Some contain ids and differ every time; the rest is counted as "other reasons".
const MAX_REASONS: usize = 500;

/// One metric while it is being counted.
#[derive(Default)]
struct MetricTally {
    /// One entry per trajectory with at least one score.
    clusters: Vec<ScoreCluster>,
    failed: u64,
    not_applicable: u64,
    labels: BTreeMap<String, u64>,
    cost: EvaluatorCost,
}

impl MetricTally {
    /// The value is the mean over all scores, not over trajectories; the interval accounts for the clusters.
    fn to_metric(&self, name: &str, title: &str, judge: &str, scale: ScoreScale) -> MetricResult {
        // From 0: the sum of nothing is -0.
        let denominator = self.clusters.iter().fold(0.0, |sum, cluster| sum + cluster.count);
        let numerator = self.clusters.iter().fold(0.0, |sum, cluster| sum + cluster.sum);
        MetricResult {
            name: name.to_owned(),
            title: title.to_owned(),
            judge: judge.to_owned(),
            value: (denominator > 0.0).then(|| numerator / denominator),
            interval: interval::clustered_interval(&self.clusters, scale.worst, scale.best),
            is_share: scale.is_share(),
            numerator,
            denominator: denominator as u64,
            failed: self.failed,
            not_applicable: self.not_applicable,
            labels: self.labels.clone(),
        }
    }
}

/// All counters of a summary. Memory grows with the number of trajectories only by one cluster per metric.
pub(super) struct SummaryBuilder {
    evaluators: Vec<EvaluatorRecord>,
    tallies: Vec<MetricTally>,
    /// Steps that are right in both step dimensions.
    combined: MetricTally,
    /// Trajectories that are right in all dimensions.
    right: MetricTally,
    trajectories: u64,
    steps: u64,
    tools: BTreeMap<String, ToolUse>,
    /// Counts by evaluator, whether it is a failure, and text.
    reasons: BTreeMap<(usize, bool, String), u64>,
    findings: Vec<ReportFinding>,
    shortened: u64,
}

/// How one question ended, for combining several of them.
#[derive(Clone, Copy, PartialEq)]
enum QuestionStatus {
    Right,
    Wrong,
    Failed,
    /// The question does not apply, or the run has no such evaluator.
    Absent,
    /// The run stopped before the question was asked.
    Unasked,
}

impl SummaryBuilder {
    pub(super) fn new(record: &RunManifest) -> Self {
        SummaryBuilder {
            evaluators: record.evaluators.clone(),
            tallies: record
                .evaluators
                .iter()
                .map(|known| MetricTally {
                    cost: EvaluatorCost {
                        evaluator: known.name.clone(),
                        judge: known.judge.clone(),
                        usd: record.priced.then_some(0.0),
                        ..EvaluatorCost::default()
                    },
                    ..MetricTally::default()
                })
                .collect(),
            combined: MetricTally::default(),
            right: MetricTally::default(),
            trajectories: 0,
            steps: 0,
            tools: BTreeMap::new(),
            reasons: BTreeMap::new(),
            findings: Vec::new(),
            shortened: 0,
        }
    }

    fn evaluator_index(&self, name: &str) -> Option<usize> {
        self.evaluators.iter().position(|known| known.name == name)
    }

    /// Counts one trajectory. `outcomes` must be sorted by step, with those of the whole last.
    pub(super) fn add(&mut self, trajectory: &Trajectory, outcomes: &[OutcomeLine]) {
        self.trajectories += 1;
        self.steps += trajectory.steps.len() as u64;
        self.count_tools(trajectory, outcomes);
        let mut clusters = vec![ScoreCluster::default(); self.tallies.len()];
        for line in outcomes {
            let Some(number) = self.evaluator_index(&line.evaluator) else { continue };
            self.count_outcome(number, line, &mut clusters[number]);
        }
        for (tally, cluster) in self.tallies.iter_mut().zip(clusters) {
            if cluster.count > 0.0 {
                tally.clusters.push(cluster);
            }
        }
        self.count_combined(trajectory, outcomes);
        self.collect_findings(trajectory, outcomes);
    }

    fn count_outcome(&mut self, number: usize, line: &OutcomeLine, cluster: &mut ScoreCluster) {
        let tally = &mut self.tallies[number];
        match (line.outcome, line.score) {
            (OutcomeKind::Scored, Some(score)) => {
                cluster.count += 1.0;
                cluster.sum += score;
                *tally.labels.entry(line.label.clone().unwrap_or_default()).or_default() += 1;
            }
            (OutcomeKind::NotApplicable, _) => tally.not_applicable += 1,
            _ => tally.failed += 1,
        }
        if let Some(reason) = &line.reason {
            let is_failure = line.outcome == OutcomeKind::Failed;
            let is_full = self.reasons.len() >= MAX_REASONS;
            let mut key = (number, is_failure, reason.clone());
            if is_full && !self.reasons.contains_key(&key) {
                key.2 = "other reasons".to_owned();
            }
            *self.reasons.entry(key).or_default() += 1;
        }
        self.shortened += u64::from(!line.shortened.is_empty());
        self.add_cost(line);
    }

    /// Adds the cost of an outcome, also of a superseded one.
    pub(super) fn add_cost(&mut self, line: &OutcomeLine) {
        let Some(number) = self.evaluator_index(&line.evaluator) else { return };
        let cost = &mut self.tallies[number].cost;
        cost.calls += u64::from(line.calls);
        cost.from_cache += u64::from(line.cached);
        if let Some(tokens) = line.tokens {
            cost.tokens.prompt += tokens.prompt;
            cost.tokens.completion += tokens.completion;
            cost.tokens.cached_prompt += tokens.cached_prompt;
        }
        if line.calls > 0 {
            // If an endpoint does not report its usage, the sum is unknown, not smaller.
            cost.usd = cost.usd.zip(line.cost_usd).map(|(sum, more)| sum + more);
        }
    }

    fn question_status(&self, outcomes: &[OutcomeLine], evaluator: &str, step: Option<u32>) -> QuestionStatus {
        let mut of_it = outcomes.iter().filter(|line| line.step_index == step && &*line.evaluator == evaluator);
        match of_it.next() {
            Some(line) => self.ending_of(line),
            None if self.evaluator_index(evaluator).is_some() => QuestionStatus::Unasked,
            None => QuestionStatus::Absent,
        }
    }

    fn ending_of(&self, line: &OutcomeLine) -> QuestionStatus {
        let is_right =
            || self.evaluator_index(&line.evaluator).is_some_and(|number| self.evaluators[number].is_right(line.score));
        match line.outcome {
            OutcomeKind::Scored if is_right() => QuestionStatus::Right,
            OutcomeKind::Scored => QuestionStatus::Wrong,
            OutcomeKind::Failed => QuestionStatus::Failed,
            OutcomeKind::NotApplicable => QuestionStatus::Absent,
        }
    }

    /// Counts steps that are right in both dimensions, and trajectories that are right in all.
    fn count_combined(&mut self, trajectory: &Trajectory, outcomes: &[OutcomeLine]) {
        let mut cluster = ScoreCluster::default();
        let mut endings = vec![self.question_status(outcomes, SEQUENCE_OPTIMALITY, None)];
        // Outcomes are sorted by step, so those of one step are adjacent.
        let mut rest = outcomes;
        for step in &trajectory.steps {
            let index = Some(step.index);
            let count = rest.iter().take_while(|line| line.step_index == index).count();
            let (of_step, later) = rest.split_at(count);
            rest = later;
            let both = [
                self.question_status(of_step, THOUGHT_TO_TOOL, index),
                self.question_status(of_step, QUERY_TO_THOUGHT, index),
            ];
            endings.extend(both);
            if both.contains(&QuestionStatus::Unasked) {
                continue;
            }
            if both.contains(&QuestionStatus::Failed) {
                self.combined.failed += 1;
            } else if both.contains(&QuestionStatus::Absent) {
                self.combined.not_applicable += 1;
            } else {
                cluster.count += 1.0;
                cluster.sum += f64::from(u8::from(both == [QuestionStatus::Right; 2]));
            }
        }
        if cluster.count > 0.0 {
            self.combined.clusters.push(cluster);
        }
        if endings.contains(&QuestionStatus::Unasked) {
            return;
        }
        if trajectory.steps.is_empty() || endings.iter().all(|ending| *ending == QuestionStatus::Absent) {
            self.right.not_applicable += 1;
        } else if endings.contains(&QuestionStatus::Failed) {
            // Also if another question was answered with wrong: otherwise failures could only ever lower the share.
            self.right.failed += 1;
        } else {
            let is_right = !endings.contains(&QuestionStatus::Wrong);
            self.right.clusters.push(ScoreCluster { count: 1.0, sum: f64::from(u8::from(is_right)) });
        }
    }

    /// Uses, errors and right choices per tool, by the verdicts of `thought_to_tool`.
    fn count_tools(&mut self, trajectory: &Trajectory, outcomes: &[OutcomeLine]) {
        let choices: Vec<&OutcomeLine> =
            outcomes.iter().filter(|line| &*line.evaluator == THOUGHT_TO_TOOL && line.is_scored()).collect();
        for step in &trajectory.steps {
            let choice = choices.binary_search_by_key(&Some(step.index), |line| line.step_index);
            let is_right = choice.ok().map(|at| self.ending_of(choices[at]) == QuestionStatus::Right);
            let entry = self.tools.entry(step.tool.clone()).or_insert_with(|| ToolUse {
                tool: step.tool.clone(),
                uses: 0,
                errors: 0,
                judged: 0,
                right: 0,
            });
            entry.uses += 1;
            entry.errors += u64::from(step.is_error);
            entry.judged += u64::from(is_right.is_some());
            entry.right += u64::from(is_right == Some(true));
        }
    }

    /// Collects wrong steps and trajectories. Verdicts on the same step become one finding.
    fn collect_findings(&mut self, trajectory: &Trajectory, outcomes: &[OutcomeLine]) {
        let wrong = outcomes.iter().filter(|line| self.ending_of(line) == QuestionStatus::Wrong);
        let mut found: Vec<ReportFinding> = Vec::new();
        for line in wrong {
            let verdict = FindingVerdict {
                evaluator: line.evaluator.to_string(),
                label: line.label.clone().unwrap_or_default(),
                explanation: line.explanation.clone().unwrap_or_default(),
                evidence: line.evidence.clone(),
            };
            match found.last_mut() {
                Some(last) if last.step_index == line.step_index => last.verdicts.push(verdict),
                _ => {
                    let at = trajectory.steps.binary_search_by_key(&line.step_index, |step| Some(step.index));
                    let step = at.ok().map(|at| &trajectory.steps[at]);
                    found.push(ReportFinding {
                        trajectory_id: line.trajectory_id.to_string(),
                        step_index: line.step_index,
                        query: trajectory.query.clone(),
                        thought: step.and_then(|step| step.thought.clone()),
                        tool: step.map(|step| step.tool.clone()),
                        arguments: step.and_then(TrajectoryStep::arguments_text).map(Cow::into_owned),
                        verdicts: vec![verdict],
                    });
                }
            }
        }
        self.findings.extend(found);
        // Pruned in batches, which keeps the sort cheap.
        if self.findings.len() > 4 * MAX_FINDINGS {
            self.keep_worst();
        }
    }

    /// Keeps the findings with the most wrong verdicts. The sort is stable, so ties keep the order of the source.
    fn keep_worst(&mut self) {
        self.findings.sort_by_key(|finding| std::cmp::Reverse(finding.verdicts.len()));
        self.findings.truncate(MAX_FINDINGS);
    }

    /// Computes metrics and intervals. `combined` and `trajectories_right` exist only if the run asked all of their
    /// questions.
    pub(super) fn finish(mut self, record: &RunManifest) -> EvaluationSummary {
        self.keep_worst();
        let has = |name: &str| record.evaluators.iter().any(|known| known.name == name);
        let has_both = has(THOUGHT_TO_TOOL) && has(QUERY_TO_THOUGHT);
        let share = |tally: &MetricTally, name: &str, title: &str| {
            tally.to_metric(name, title, &record.judge, ScoreScale::SHARE)
        };
        let metrics: Vec<MetricResult> = record
            .evaluators
            .iter()
            .zip(&self.tallies)
            .map(|(known, tally)| tally.to_metric(&known.name, &known.title, &known.judge, known.scale()))
            .collect();
        let mut tools: Vec<ToolUse> = self.tools.into_values().collect();
        tools.sort_by_key(|tool| std::cmp::Reverse(tool.uses));
        let mut reasons: Vec<ReasonCount> = self
            .reasons
            .into_iter()
            .map(|((number, failed, reason), count)| ReasonCount {
                evaluator: self.evaluators[number].name.clone(),
                outcome: if failed { OutcomeKind::Failed } else { OutcomeKind::NotApplicable },
                reason,
                count,
            })
            .collect();
        reasons.sort_by_key(|reason| std::cmp::Reverse(reason.count));
        EvaluationSummary {
            run_id: record.run_id.clone(),
            complete: record.state == RunState::Finished,
            stopped_because: record.stopped_because.clone(),
            judge: record.judge.clone(),
            started: record.started.clone(),
            ended: record.ended.clone(),
            sources: record.sources.clone(),
            trajectories: self.trajectories,
            steps: self.steps,
            combined: has_both.then(|| share(&self.combined, "combined", "Combined (both correct)")),
            trajectories_right: (has_both && has(SEQUENCE_OPTIMALITY))
                .then(|| share(&self.right, "trajectories_right", "Trajectories all right")),
            metrics,
            tools,
            cost: CostSummary::from_evaluator_costs(self.tallies.into_iter().map(|tally| tally.cost).collect()),
            reasons,
            findings: self.findings,
            shortened: self.shortened,
        }
    }
}

impl CostSummary {
    /// The total is unknown if the cost of one evaluator is.
    fn from_evaluator_costs(by_evaluator: Vec<EvaluatorCost>) -> CostSummary {
        let mut total = CostSummary { usd: Some(0.0), ..CostSummary::default() };
        for cost in &by_evaluator {
            total.calls += cost.calls;
            total.from_cache += cost.from_cache;
            total.tokens.prompt += cost.tokens.prompt;
            total.tokens.completion += cost.tokens.completion;
            total.tokens.cached_prompt += cost.tokens.cached_prompt;
            total.usd = total.usd.zip(cost.usd).map(|(sum, more)| sum + more);
        }
        CostSummary { by_evaluator, ..total }
    }
}
