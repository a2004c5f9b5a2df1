//! Counts the outcomes of a run into its summary.

use std::borrow::Cow;
use std::collections::BTreeMap;

use gradus_core::trajectory::{Trajectory, TrajectoryStep};
use gradus_llm::price::PriceTable;

use super::agent_cost::AgentCostCounter;
use super::combine::{QuestionStatus, StepStatuses, combine_trajectory};
use super::failure_group::{FailureGroupBuilder, MAX_FAILURE_GROUPS};
use super::panel_summary::PanelSummaryBuilder;
use super::summary::{
    CostSummary, EvaluationSummary, EvaluatorCost, FindingVerdict, FlaggedCounts, MetricCalibration, MetricResult,
    ReasonCount, ReportFinding, ToolUse,
};
use crate::evaluator::OUTCOME;
use crate::evaluator::REQUEST_TO_TOOL;
use crate::evaluator::{QUERY_TO_THOUGHT, SEQUENCE_OPTIMALITY, SIMULATOR_JUDGE, THOUGHT_TO_TOOL};
use crate::outcome::{OutcomeKind, OutcomeLine};
use crate::run::{EvaluatorRecord, RunManifest, RunState};
use crate::scale::ScoreScale;
use gradus_stats::interval::{self, ScoreCluster};

/// Maximum number of findings in a summary.
const MAX_FINDINGS: usize = 50;
/// Maximum number of distinct reasons that are counted. Some contain ids and differ every time; the rest is counted
/// as "other reasons".
const MAX_REASONS: usize = 500;

/// Running counts of one metric.
#[derive(Default)]
struct MetricTally {
    /// One entry per trajectory with at least one score.
    clusters: Vec<ScoreCluster>,
    failed: u64,
    abstained: u64,
    not_applicable: u64,
    labels: BTreeMap<String, u64>,
    cost: EvaluatorCost,
}

impl MetricTally {
    /// The value is the mean over all scores, not over trajectories; the interval accounts for the clusters.
    fn to_metric(&self, name: &str, title: &str, judge: &str, of_steps: bool, scale: ScoreScale) -> MetricResult {
        // Starts from 0, because the empty sum is -0.
        let denominator = self.clusters.iter().fold(0.0, |sum, cluster| sum + cluster.count);
        let numerator = self.clusters.iter().fold(0.0, |sum, cluster| sum + cluster.sum);
        MetricResult {
            name: name.to_owned(),
            title: title.to_owned(),
            judge: judge.to_owned(),
            of_steps,
            value: (denominator > 0.0).then(|| numerator / denominator),
            interval: interval::clustered_interval(&self.clusters, scale.worst, scale.best),
            is_share: scale.is_share(),
            numerator,
            denominator: denominator as u64,
            failed: self.failed,
            abstained: self.abstained,
            not_applicable: self.not_applicable,
            labels: self.labels.clone(),
            calibration: MetricCalibration::for_judge(judge).filter(|_| denominator > 0.0),
        }
    }

    /// Adds the scores of one trajectory. A trajectory without a score is no cluster.
    fn push_cluster(&mut self, cluster: ScoreCluster) {
        if cluster.count > 0.0 {
            self.clusters.push(cluster);
        }
    }

    /// Counts a combined verdict. Unasked questions are skipped.
    fn count_status(&mut self, status: QuestionStatus, cluster: &mut ScoreCluster) {
        match status {
            QuestionStatus::Right | QuestionStatus::Wrong => {
                cluster.count += 1.0;
                cluster.sum += f64::from(u8::from(status == QuestionStatus::Right));
            }
            QuestionStatus::Failed => self.failed += 1,
            QuestionStatus::Abstained => self.abstained += 1,
            QuestionStatus::Absent => self.not_applicable += 1,
            QuestionStatus::Unasked => {}
        }
    }
}

/// All counters of a summary. Memory grows with the number of trajectories only by one cluster per metric.
pub(super) struct SummaryBuilder {
    evaluators: Vec<EvaluatorRecord>,
    tallies: Vec<MetricTally>,
    /// Steps that are right in their step dimensions.
    combined: MetricTally,
    /// Trajectories that are right in all dimensions.
    right: MetricTally,
    flagged: FlaggedCounts,
    trajectories: u64,
    steps: u64,
    tools: BTreeMap<String, ToolUse>,
    /// Counts by evaluator, kind, and text.
    reasons: BTreeMap<(usize, OutcomeKind, String), u64>,
    findings: Vec<ReportFinding>,
    groups: FailureGroupBuilder,
    agent_cost: AgentCostCounter,
    shortened: u64,
    panel: Option<PanelSummaryBuilder>,
}

impl SummaryBuilder {
    pub(super) fn new(record: &RunManifest) -> Self {
        let mut prices = PriceTable::default();
        prices.add_prices(&record.prices);
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
            flagged: FlaggedCounts::default(),
            trajectories: 0,
            steps: 0,
            tools: BTreeMap::new(),
            reasons: BTreeMap::new(),
            findings: Vec::new(),
            groups: FailureGroupBuilder::default(),
            agent_cost: AgentCostCounter::new(prices),
            shortened: 0,
            panel: record
                .panel
                .as_ref()
                .map(|panel| PanelSummaryBuilder::new(panel, &record.evaluators, record.priced)),
        }
    }

    fn evaluator_index(&self, name: &str) -> Option<usize> {
        self.evaluators.iter().position(|known| known.name == name)
    }

    /// Counts one trajectory. `outcomes` must be sorted by step, with those of the whole last.
    pub(super) fn add_trajectory(&mut self, trajectory: &Trajectory, outcomes: &[OutcomeLine]) {
        self.trajectories += 1;
        self.steps += trajectory.steps.len() as u64;
        self.count_tools(trajectory, outcomes);
        let mut clusters = vec![ScoreCluster::default(); self.tallies.len()];
        for line in outcomes {
            let Some(number) = self.evaluator_index(&line.evaluator) else { continue };
            self.count_outcome(number, line, &mut clusters[number]);
        }
        for (tally, cluster) in self.tallies.iter_mut().zip(clusters) {
            tally.push_cluster(cluster);
        }
        if let Some(panel) = &mut self.panel {
            panel.add(outcomes);
        }
        self.count_combined(trajectory, outcomes);
        self.agent_cost.add(trajectory);
        // Measurements of the simulator are not verdicts.
        let is_wrong =
            |line: &&OutcomeLine| &*line.judge != SIMULATOR_JUDGE && self.outcome_status(line) == QuestionStatus::Wrong;
        let wrong: Vec<&OutcomeLine> = outcomes.iter().filter(is_wrong).collect();
        self.count_flagged(&wrong);
        self.collect_findings(trajectory, &wrong);
        self.groups.add(trajectory, wrong);
    }

    fn count_outcome(&mut self, number: usize, line: &OutcomeLine, cluster: &mut ScoreCluster) {
        let tally = &mut self.tallies[number];
        match (line.outcome, line.score) {
            (OutcomeKind::Scored, Some(score)) => {
                cluster.count += 1.0;
                cluster.sum += score;
                *tally.labels.entry(line.label.clone().unwrap_or_default()).or_default() += 1;
            }
            (OutcomeKind::Scored, None) => {
                tally.abstained += 1;
                *tally.labels.entry(line.label.clone().unwrap_or_default()).or_default() += 1;
            }
            (OutcomeKind::NotApplicable, _) => tally.not_applicable += 1,
            (OutcomeKind::Abstained, _) => tally.abstained += 1,
            (OutcomeKind::Failed, _) => tally.failed += 1,
        }
        if let Some(reason) = &line.reason {
            let is_full = self.reasons.len() >= MAX_REASONS;
            let mut key = (number, line.outcome, reason.clone());
            if is_full && !self.reasons.contains_key(&key) {
                key.2 = "other reasons".to_owned();
            }
            *self.reasons.entry(key).or_default() += 1;
        }
        self.shortened += u64::from(!line.shortened.is_empty());
        self.add_cost(line);
    }

    /// Adds the cost of an outcome that a later one replaced.
    pub(super) fn add_superseded(&mut self, line: &OutcomeLine) {
        self.add_cost(line);
        if let Some(panel) = &mut self.panel {
            panel.add_cost(line);
        }
    }

    fn add_cost(&mut self, line: &OutcomeLine) {
        if let Some(number) = self.evaluator_index(&line.evaluator) {
            self.tallies[number].cost.add_outcome(line);
        }
    }

    fn question_status(&self, outcomes: &[OutcomeLine], evaluator: &str, step: Option<u32>) -> QuestionStatus {
        let mut of_it = outcomes.iter().filter(|line| line.step_index == step && &*line.evaluator == evaluator);
        match of_it.next() {
            Some(line) => self.outcome_status(line),
            None if self.evaluator_index(evaluator).is_some() => QuestionStatus::Unasked,
            None => QuestionStatus::Absent,
        }
    }

    fn outcome_status(&self, line: &OutcomeLine) -> QuestionStatus {
        let is_right =
            || self.evaluator_index(&line.evaluator).is_some_and(|number| self.evaluators[number].is_right(line.score));
        match line.outcome {
            OutcomeKind::Scored if line.score.is_none() => QuestionStatus::Abstained,
            OutcomeKind::Scored if is_right() => QuestionStatus::Right,
            OutcomeKind::Scored => QuestionStatus::Wrong,
            OutcomeKind::Abstained => QuestionStatus::Abstained,
            OutcomeKind::Failed => QuestionStatus::Failed,
            OutcomeKind::NotApplicable => QuestionStatus::Absent,
        }
    }

    /// Counts steps that are right in their dimensions, and trajectories that are right in all.
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
            let statuses = StepStatuses::from_questions(|evaluator| self.question_status(of_step, evaluator, index));
            endings.extend(statuses.all());
            self.combined.count_status(statuses.combine(), &mut cluster);
        }
        self.combined.push_cluster(cluster);
        let ending = self.question_status(outcomes, OUTCOME, None);
        let mut of_whole = ScoreCluster::default();
        self.right.count_status(combine_trajectory(ending, &endings), &mut of_whole);
        self.right.push_cluster(of_whole);
    }

    /// Counts steps and trajectories with at least one wrong verdict.
    fn count_flagged(&mut self, wrong: &[&OutcomeLine]) {
        let mut last_step = None;
        let mut steps = 0;
        for line in wrong {
            // Outcomes are sorted by step, so a step is new if it differs from the last one.
            if line.step_index.is_some() && line.step_index != last_step {
                last_step = line.step_index;
                steps += 1;
            }
        }
        self.flagged.steps += steps;
        self.flagged.trajectories += u64::from(!wrong.is_empty());
    }

    /// Counts calls and errors per tool, and how many calls `thought_to_tool` judged right.
    fn count_tools(&mut self, trajectory: &Trajectory, outcomes: &[OutcomeLine]) {
        let choices: Vec<&OutcomeLine> =
            outcomes.iter().filter(|line| &*line.evaluator == THOUGHT_TO_TOOL && line.is_scored()).collect();
        for step in &trajectory.steps {
            let choice = choices.binary_search_by_key(&Some(step.index), |line| line.step_index);
            let is_right = choice.ok().map(|at| self.outcome_status(choices[at]) == QuestionStatus::Right);
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
    fn collect_findings(&mut self, trajectory: &Trajectory, wrong: &[&OutcomeLine]) {
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
                    let final_thought =
                        trajectory.final_thought.as_ref().filter(|_| step.is_none() && line.step_index.is_some());
                    found.push(ReportFinding {
                        trajectory_id: line.trajectory_id.to_string(),
                        step_index: line.step_index,
                        query: trajectory.query.clone(),
                        thought: step.and_then(|step| step.thought.as_ref()).or(final_thought).cloned(),
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
            self.prune_findings();
        }
    }

    /// Keeps the findings with the most wrong verdicts. The sort is stable, so ties keep the order of the source.
    fn prune_findings(&mut self) {
        self.findings.sort_by_key(|finding| std::cmp::Reverse(finding.verdicts.len()));
        self.findings.truncate(MAX_FINDINGS);
    }

    /// Computes metrics and intervals. `combined` and `trajectories_right` exist only if the run asked all of their
    /// questions.
    pub(super) fn finish(mut self, record: &RunManifest) -> EvaluationSummary {
        self.prune_findings();
        let has = |name: &str| record.evaluators.iter().any(|known| known.name == name);
        let has_both = has(THOUGHT_TO_TOOL) && has(QUERY_TO_THOUGHT);
        let share = |tally: &MetricTally, name: &str, title: &str, of_steps| {
            tally.to_metric(name, title, &record.judge, of_steps, ScoreScale::SHARE)
        };
        let mut metrics: Vec<MetricResult> = record
            .evaluators
            .iter()
            .zip(&self.tallies)
            .map(|(known, tally)| {
                tally.to_metric(&known.name, &known.title, &known.judge, known.of_steps, known.scale())
            })
            .collect();
        // The outcome of runs comes first; the sort is stable.
        metrics.sort_by_key(|metric| metric.name != OUTCOME);
        let title = if has(REQUEST_TO_TOOL) { "Combined (whole step correct)" } else { "Combined (both correct)" };
        let mut tools: Vec<ToolUse> = self.tools.into_values().collect();
        tools.sort_by_key(|tool| std::cmp::Reverse(tool.uses));
        let mut reasons: Vec<ReasonCount> = self
            .reasons
            .into_iter()
            .map(|((number, outcome, reason), count)| ReasonCount {
                evaluator: self.evaluators[number].name.clone(),
                outcome,
                reason,
                count,
            })
            .collect();
        reasons.sort_by_key(|reason| std::cmp::Reverse(reason.count));
        let mut failure_groups = self.groups.finish();
        let omitted_failure_groups = failure_groups.len().saturating_sub(MAX_FAILURE_GROUPS) as u64;
        failure_groups.truncate(MAX_FAILURE_GROUPS);
        let costs = self.tallies.into_iter().map(|tally| tally.cost).collect();
        EvaluationSummary {
            run_id: record.run_id.clone(),
            complete: record.state == RunState::Finished,
            stopped_because: record.stopped_because.clone(),
            early_gates: record.early_gates.clone(),
            judge: record.judge.clone(),
            started: record.started.clone(),
            ended: record.ended.clone(),
            sources: record.sources.clone(),
            trajectories: self.trajectories,
            steps: self.steps,
            combined: has_both.then(|| share(&self.combined, "combined", title, true)),
            trajectories_right: (has_both && has(SEQUENCE_OPTIMALITY))
                .then(|| share(&self.right, "trajectories_right", "Trajectories all right", false)),
            flagged: self.flagged,
            metrics,
            tools,
            cost: CostSummary::from_evaluator_costs(costs, record.priced),
            agent_cost: self.agent_cost.finish(),
            reasons,
            failure_groups,
            omitted_failure_groups,
            findings: self.findings,
            shortened: self.shortened,
            panel: self.panel.map(PanelSummaryBuilder::finish),
        }
    }
}
