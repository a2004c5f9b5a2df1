//! A run in numbers: shares with what they are shares of, and how far they can be trusted.

use std::collections::BTreeMap;

use gradus_core::trajectory::Trajectory;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::RunReader;
use crate::interval::{self, Cluster, Interval};
use crate::outcome::{OutcomeKind, OutcomeLine, TokenCount};
use crate::run::{RunFileError, RunRecord, RunState};

/// The names of the step evaluators whose agreement is the combined accuracy.
const THOUGHT_TO_TOOL: &str = "thought_to_tool";
const QUERY_TO_THOUGHT: &str = "query_to_thought";
const SEQUENCE_OPTIMALITY: &str = "sequence_optimality";
/// Findings that are kept for a report.
const MAX_FINDINGS: usize = 50;

/// The document that `gradus eval --json` writes.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Summary {
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
    pub metrics: Vec<Metric>,
    /// Steps that are right in both step dimensions.
    pub combined: Option<Metric>,
    /// Trajectories in which every step is right and the sequence optimal.
    pub trajectories_right: Option<Metric>,
    /// Most used first.
    pub tools: Vec<ToolUse>,
    pub cost: CostSummary,
    /// Why questions were not answered, most frequent first.
    pub reasons: Vec<ReasonCount>,
    /// What was found wrong, worst first; not more than 50.
    pub findings: Vec<Finding>,
    /// Outcomes for which the judge saw only a part of the data.
    pub shortened: u64,
}

/// A share, or a mean of scores.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Metric {
    pub name: String,
    pub title: String,
    pub judge: String,
    /// Null when nothing was judged.
    pub value: Option<f64>,
    /// 95 %.
    pub interval: Option<Interval>,
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
pub struct Finding {
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

impl Summary {
    pub fn of(reader: &mut RunReader) -> Result<Summary, RunFileError> {
        let mut counter = Counter::new(&reader.record);
        reader.visit(|trajectory, outcomes| {
            counter.add(trajectory, outcomes);
            Ok::<(), RunFileError>(())
        })?;
        Ok(counter.finish(&reader.record))
    }

    pub fn metric(&self, name: &str) -> Option<&Metric> {
        let also = [&self.combined, &self.trajectories_right];
        self.metrics.iter().chain(also.into_iter().flatten()).find(|metric| metric.name == name)
    }

    /// Of all questions that arose, the share that was not answered.
    pub fn failed_share(&self) -> Option<f64> {
        let failed: u64 = self.metrics.iter().map(|metric| metric.failed).sum();
        let asked: u64 = self.metrics.iter().map(|metric| metric.failed + metric.denominator).sum();
        (asked > 0).then(|| failed as f64 / asked as f64)
    }
}

/// One metric in the making.
#[derive(Default)]
struct Tally {
    clusters: Vec<Cluster>,
    failed: u64,
    not_applicable: u64,
    labels: BTreeMap<String, u64>,
    cost: EvaluatorCost,
}

impl Tally {
    fn metric(&self, name: &str, title: &str, judge: &str, worst: f64, best: f64) -> Metric {
        let denominator = self.clusters.iter().map(|cluster| cluster.count).sum::<f64>();
        let numerator = self.clusters.iter().map(|cluster| cluster.sum).sum::<f64>();
        Metric {
            name: name.to_owned(),
            title: title.to_owned(),
            judge: judge.to_owned(),
            value: (denominator > 0.0).then(|| numerator / denominator),
            interval: interval::clustered(&self.clusters, worst, best),
            is_share: worst >= 0.0 && best <= 1.0,
            numerator,
            denominator: denominator as u64,
            failed: self.failed,
            not_applicable: self.not_applicable,
            labels: self.labels.clone(),
        }
    }
}

struct Counter {
    evaluators: Vec<(String, f64)>,
    tallies: Vec<Tally>,
    combined: Tally,
    right: Tally,
    trajectories: u64,
    steps: u64,
    tools: BTreeMap<String, ToolUse>,
    reasons: BTreeMap<(usize, bool, String), u64>,
    findings: Vec<Finding>,
    shortened: u64,
}

/// How one question of a step or a trajectory ended, for combining several.
#[derive(Clone, Copy, PartialEq)]
enum Ending {
    Right,
    Wrong,
    Failed,
    Absent,
}

impl Counter {
    fn new(record: &RunRecord) -> Self {
        let best = |labels: &[(String, f64)]| labels.first().map_or(1.0, |(_, score)| *score);
        Counter {
            evaluators: record
                .evaluators
                .iter()
                .map(|known| (known.name.clone(), best(&known.labels)))
                .collect(),
            tallies: record
                .evaluators
                .iter()
                .map(|known| Tally {
                    cost: EvaluatorCost {
                        evaluator: known.name.clone(),
                        judge: known.judge.clone(),
                        usd: record.priced.then_some(0.0),
                        ..EvaluatorCost::default()
                    },
                    ..Tally::default()
                })
                .collect(),
            combined: Tally::default(),
            right: Tally::default(),
            trajectories: 0,
            steps: 0,
            tools: BTreeMap::new(),
            reasons: BTreeMap::new(),
            findings: Vec::new(),
            shortened: 0,
        }
    }

    fn number(&self, name: &str) -> Option<usize> {
        self.evaluators.iter().position(|(known, _)| known == name)
    }

    fn add(&mut self, trajectory: &Trajectory, outcomes: &[OutcomeLine]) {
        self.trajectories += 1;
        self.steps += trajectory.steps.len() as u64;
        self.count_tools(trajectory, outcomes);
        let mut clusters = vec![Cluster::default(); self.tallies.len()];
        for line in outcomes {
            let Some(number) = self.number(&line.evaluator) else { continue };
            self.count(number, line, &mut clusters[number]);
        }
        for (tally, cluster) in self.tallies.iter_mut().zip(clusters) {
            if cluster.count > 0.0 {
                tally.clusters.push(cluster);
            }
        }
        self.combine(trajectory, outcomes);
        self.find(trajectory, outcomes);
    }

    fn count(&mut self, number: usize, line: &OutcomeLine, cluster: &mut Cluster) {
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
            let key = (number, line.outcome == OutcomeKind::Failed, reason.clone());
            *self.reasons.entry(key).or_default() += 1;
        }
        let cost = &mut tally.cost;
        cost.calls += u64::from(line.calls);
        cost.from_cache += u64::from(line.cached);
        if let Some(tokens) = line.tokens {
            cost.tokens.prompt += tokens.prompt;
            cost.tokens.completion += tokens.completion;
            cost.tokens.cached_prompt += tokens.cached_prompt;
            cost.usd = cost.usd.zip(line.cost_usd).map(|(sum, more)| sum + more);
        }
        self.shortened += u64::from(!line.shortened.is_empty());
    }

    fn ending(&self, outcomes: &[OutcomeLine], evaluator: &str, step: Option<u32>) -> Ending {
        let mut of_it =
            outcomes.iter().filter(|line| line.step_index == step && &*line.evaluator == evaluator);
        match of_it.next() {
            Some(line) => self.ending_of(line),
            None => Ending::Absent,
        }
    }

    fn ending_of(&self, line: &OutcomeLine) -> Ending {
        match (line.outcome, line.score, self.number(&line.evaluator)) {
            (OutcomeKind::Scored, Some(score), Some(number)) if score >= self.evaluators[number].1 => {
                Ending::Right
            }
            (OutcomeKind::Scored, ..) => Ending::Wrong,
            (OutcomeKind::Failed, ..) => Ending::Failed,
            (OutcomeKind::NotApplicable, ..) => Ending::Absent,
        }
    }

    /// Steps that are right in both dimensions, and trajectories that are right in all.
    fn combine(&mut self, trajectory: &Trajectory, outcomes: &[OutcomeLine]) {
        let mut cluster = Cluster::default();
        let mut endings = vec![self.ending(outcomes, SEQUENCE_OPTIMALITY, None)];
        // Outcomes are sorted by step: each step's are next to each other.
        let mut rest = outcomes;
        for step in &trajectory.steps {
            let index = Some(step.index);
            let count = rest.iter().take_while(|line| line.step_index == index).count();
            let (of_step, later) = rest.split_at(count);
            rest = later;
            let both =
                [self.ending(of_step, THOUGHT_TO_TOOL, index), self.ending(of_step, QUERY_TO_THOUGHT, index)];
            endings.extend(both);
            if both.contains(&Ending::Failed) {
                self.combined.failed += 1;
            } else if both.contains(&Ending::Absent) {
                self.combined.not_applicable += 1;
            } else {
                cluster.count += 1.0;
                cluster.sum += f64::from(u8::from(both == [Ending::Right; 2]));
            }
        }
        if cluster.count > 0.0 {
            self.combined.clusters.push(cluster);
        }
        if trajectory.steps.is_empty() || endings.iter().all(|ending| *ending == Ending::Absent) {
            self.right.not_applicable += 1;
        } else if endings.contains(&Ending::Failed) {
            // Also where something else is wrong: or else what could not be judged would only ever count against.
            self.right.failed += 1;
        } else {
            let is_right = !endings.contains(&Ending::Wrong);
            self.right.clusters.push(Cluster { count: 1.0, sum: f64::from(u8::from(is_right)) });
        }
    }

    fn count_tools(&mut self, trajectory: &Trajectory, outcomes: &[OutcomeLine]) {
        let choices: Vec<&OutcomeLine> =
            outcomes.iter().filter(|line| &*line.evaluator == THOUGHT_TO_TOOL && line.is_scored()).collect();
        for step in &trajectory.steps {
            let choice = choices.binary_search_by_key(&Some(step.index), |line| line.step_index);
            let is_right = choice.ok().map(|at| self.ending_of(choices[at]) == Ending::Right);
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

    fn find(&mut self, trajectory: &Trajectory, outcomes: &[OutcomeLine]) {
        let wrong = outcomes.iter().filter(|line| self.ending_of(line) == Ending::Wrong);
        let mut found: Vec<Finding> = Vec::new();
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
                    found.push(Finding {
                        trajectory_id: line.trajectory_id.to_string(),
                        step_index: line.step_index,
                        query: trajectory.query.clone(),
                        thought: step.and_then(|step| step.thought.clone()),
                        tool: step.map(|step| step.tool.clone()),
                        arguments: step.and_then(|step| {
                            let json = step.arguments.as_ref().map(ToString::to_string);
                            step.arguments_raw.clone().or(json)
                        }),
                        verdicts: vec![verdict],
                    });
                }
            }
        }
        self.findings.extend(found);
        // The worst are kept; sorting keeps the order of the source among equals.
        if self.findings.len() > 4 * MAX_FINDINGS {
            self.keep_worst();
        }
    }

    fn keep_worst(&mut self) {
        self.findings.sort_by_key(|finding| std::cmp::Reverse(finding.verdicts.len()));
        self.findings.truncate(MAX_FINDINGS);
    }

    fn finish(mut self, record: &RunRecord) -> Summary {
        self.keep_worst();
        let has = |name: &str| record.evaluators.iter().any(|known| known.name == name);
        let has_both = has(THOUGHT_TO_TOOL) && has(QUERY_TO_THOUGHT);
        let share =
            |tally: &Tally, name: &str, title: &str| tally.metric(name, title, &record.judge, 0.0, 1.0);
        let metrics: Vec<Metric> = record
            .evaluators
            .iter()
            .zip(&self.tallies)
            .map(|(known, tally)| {
                let score = |label: Option<&(String, f64)>| label.map_or(0.0, |(_, score)| *score);
                let (worst, best) = (score(known.labels.last()), score(known.labels.first()));
                tally.metric(&known.name, &known.title, &known.judge, worst, best)
            })
            .collect();
        let mut tools: Vec<ToolUse> = self.tools.into_values().collect();
        tools.sort_by_key(|tool| std::cmp::Reverse(tool.uses));
        let mut reasons: Vec<ReasonCount> = self
            .reasons
            .into_iter()
            .map(|((number, failed, reason), count)| ReasonCount {
                evaluator: self.evaluators[number].0.clone(),
                outcome: if failed { OutcomeKind::Failed } else { OutcomeKind::NotApplicable },
                reason,
                count,
            })
            .collect();
        reasons.sort_by_key(|reason| std::cmp::Reverse(reason.count));
        Summary {
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
            cost: CostSummary::of(self.tallies.into_iter().map(|tally| tally.cost).collect()),
            reasons,
            findings: self.findings,
            shortened: self.shortened,
        }
    }
}

impl CostSummary {
    fn of(by_evaluator: Vec<EvaluatorCost>) -> CostSummary {
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
