//! What several judges, or repeats of one, say about each other: how far they agree, how much of the variance is the
//! judge's, what an escalation saved, and which questions people should label first. Doc comments of the types become
//! descriptions in `docs/schemas/summary.schema.json`.

use std::collections::BTreeMap;

use gradus_stats::calibration::{VarianceComponents, VarianceTally};
use gradus_stats::interval::{ConfidenceInterval, ScoreCluster, clustered_interval};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::outcome::{EscalationReason, JudgeVote, OutcomeKind, OutcomeLine};
use crate::run::{EvaluatorRecord, PanelRecord};

/// Maximum number of disputed questions in a summary.
const MAX_DISPUTED: usize = 50;

/// The votes of a run with several judges or repeats.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PanelSummary {
    /// How often each judge was asked each question, at most.
    pub repeats: u32,
    /// In the order of the options; the judge of `--escalate-to` is the last.
    pub judges: Vec<PanelJudgeSummary>,
    /// One for each evaluator that asks a model.
    pub evaluators: Vec<PanelAgreement>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub escalation: Option<EscalationSummary>,
    /// The questions with the most disagreement, which people should label first; not more than 50.
    pub disputed: Vec<DisputedQuestion>,
}

/// The votes of one judge.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PanelJudgeSummary {
    pub judge: String,
    /// Votes with a label.
    pub votes: u64,
    /// Votes without one.
    pub missing: u64,
    /// Why votes are missing: the most recent reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing_reason: Option<String>,
    /// Votes on questions that have a verdict, and how many of those gave its label.
    pub decided: u64,
    pub agreeing: u64,
    /// Requests, retries included.
    pub calls: u64,
    pub from_cache: u64,
    /// Null when it is not known.
    pub usd: Option<f64>,
}

/// How far the votes on the questions of one evaluator agree. Votes of the judge of `--escalate-to` do not count.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PanelAgreement {
    pub evaluator: String,
    /// Questions with at least two votes.
    pub questions: u64,
    /// Of those, the ones where all votes agree.
    pub unanimous: u64,
    /// Questions without a verdict, because two labels have the most votes.
    pub tied: u64,
    /// How often two answers of one judge to one question differ. Null without repeats.
    pub flip_rate: Option<f64>,
    /// 95 %.
    pub flip_interval: Option<ConfidenceInterval>,
    /// How often the answers of two judges to one question differ. Null with one judge.
    pub judges_differ: Option<f64>,
    /// 95 %.
    pub differ_interval: Option<ConfidenceInterval>,
    /// What the agent and the judge add to the variance of scores. Null where fewer than two trajectories have a question
    /// with two votes.
    pub variance: Option<VarianceComponents>,
}

/// What became of `--escalate-to`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EscalationSummary {
    pub judge: String,
    /// Questions with votes.
    pub questions: u64,
    /// Escalated because the first judges were unsure.
    pub unsure: u64,
    /// Of those, the ones where the first judges had a label and the other judge gave another one.
    pub overturned: u64,
    /// Escalated at random, to check the first judges where they were sure.
    pub audited: u64,
    /// Of those, the ones where the other judge gave another label.
    pub audit_errors: u64,
    /// How often verdicts of the first judges alone differ from the other judge's. Null without an audit.
    pub audited_error: Option<f64>,
    /// 95 %.
    pub audited_interval: Option<ConfidenceInterval>,
    /// Questions that the other judge was not asked.
    pub questions_saved: u64,
    /// Dollars saved against asking the other judge every question: negative if the first judges cost more than they
    /// saved. Null when a price is not known, or when no answer of a judge was paid for in this run.
    pub usd_saved: Option<f64>,
}

/// A question that the votes disagree on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DisputedQuestion {
    pub trajectory_id: String,
    pub step_index: Option<u32>,
    pub evaluator: String,
    /// The share of votes that differ from the most frequent label.
    pub disagreement: f64,
    /// Null without a verdict.
    pub label: Option<String>,
    /// Votes for each label.
    pub votes: BTreeMap<String, u32>,
}

/// Pairs of answers, and how many differ, by trajectory.
#[derive(Default)]
struct PairTally {
    clusters: Vec<ScoreCluster>,
    of_trajectory: ScoreCluster,
}

impl PairTally {
    fn add_pair(&mut self, is_different: bool) {
        self.of_trajectory.count += 1.0;
        self.of_trajectory.sum += f64::from(u8::from(is_different));
    }

    fn end_trajectory(&mut self) {
        let cluster = std::mem::take(&mut self.of_trajectory);
        if cluster.count > 0.0 {
            self.clusters.push(cluster);
        }
    }

    fn rate(&self) -> Option<f64> {
        let count = self.clusters.iter().fold(0.0, |sum, cluster| sum + cluster.count);
        (count > 0.0).then(|| self.clusters.iter().fold(0.0, |sum, cluster| sum + cluster.sum) / count)
    }

    fn interval(&self) -> Option<ConfidenceInterval> {
        clustered_interval(&self.clusters, 0.0, 1.0)
    }
}

/// One evaluator while its votes are counted.
#[derive(Default)]
struct AgreementTally {
    questions: u64,
    unanimous: u64,
    tied: u64,
    flips: PairTally,
    differences: PairTally,
    variance: VarianceTally,
}

/// Counts the votes of a run.
pub(super) struct PanelSummaryBuilder {
    record: PanelRecord,
    judges: Vec<PanelJudgeSummary>,
    /// Answers of each judge that were paid for in this run, and their cost.
    paid: Vec<(u64, Option<f64>)>,
    names: Vec<String>,
    tallies: Vec<AgreementTally>,
    escalation: EscalationSummary,
    audit: PairTally,
    disputed: Vec<DisputedQuestion>,
}

impl PanelSummaryBuilder {
    pub(super) fn new(record: &PanelRecord, evaluators: &[EvaluatorRecord], priced: bool) -> PanelSummaryBuilder {
        let judges: Vec<PanelJudgeSummary> = record
            .judges
            .iter()
            .chain(&record.escalate_to)
            .map(|judge| PanelJudgeSummary {
                judge: judge.clone(),
                usd: priced.then_some(0.0),
                ..PanelJudgeSummary::default()
            })
            .collect();
        PanelSummaryBuilder {
            paid: vec![(0, Some(0.0)); judges.len()],
            judges,
            names: evaluators.iter().map(|known| known.name.clone()).collect(),
            tallies: evaluators.iter().map(|_| AgreementTally::default()).collect(),
            escalation: EscalationSummary {
                judge: record.escalate_to.clone().unwrap_or_default(),
                ..EscalationSummary::default()
            },
            audit: PairTally::default(),
            disputed: Vec::new(),
            record: record.clone(),
        }
    }

    /// Counts the outcomes of one trajectory.
    pub(super) fn add(&mut self, outcomes: &[OutcomeLine]) {
        for line in outcomes.iter().filter(|line| !line.votes.is_empty()) {
            self.count_judges(line);
            self.count_escalation(line);
            self.count_agreement(line);
            self.collect_dispute(line);
        }
        for tally in &mut self.tallies {
            tally.flips.end_trajectory();
            tally.differences.end_trajectory();
            tally.variance.end_run();
        }
        self.audit.end_trajectory();
    }

    /// Adds the cost of votes on questions that were asked again.
    pub(super) fn add_cost(&mut self, line: &OutcomeLine) {
        for vote in &line.votes {
            if let Some(number) = self.judge_index(vote) {
                self.judges[number].add_vote_cost(vote);
            }
        }
    }

    fn judge_index(&self, vote: &JudgeVote) -> Option<usize> {
        self.judges.iter().position(|known| known.judge == *vote.judge)
    }

    fn count_judges(&mut self, line: &OutcomeLine) {
        for vote in &line.votes {
            let Some(number) = self.judge_index(vote) else { continue };
            let judge = &mut self.judges[number];
            judge.add_vote_cost(vote);
            if vote.calls > 0 && vote.label.is_some() {
                let (count, usd) = &mut self.paid[number];
                *count += 1;
                *usd = usd.zip(vote.cost_usd).map(|(sum, more)| sum + more);
            }
            match &vote.label {
                Some(_) => judge.votes += 1,
                None => {
                    judge.missing += 1;
                    judge.missing_reason.clone_from(&vote.reason);
                }
            }
            if let (Some(given), Some(label)) = (&vote.label, &line.label) {
                judge.decided += 1;
                judge.agreeing += u64::from(given == label);
            }
        }
    }

    fn count_escalation(&mut self, line: &OutcomeLine) {
        if self.record.escalate_to.is_none() || line.outcome == OutcomeKind::Failed {
            return;
        }
        let is_changed = line.first_label.is_some() && line.first_label != line.label;
        let summary = &mut self.escalation;
        summary.questions += 1;
        match line.escalated {
            Some(EscalationReason::Unsure) => {
                summary.unsure += 1;
                summary.overturned += u64::from(is_changed);
            }
            Some(EscalationReason::Audit) => {
                summary.audited += 1;
                summary.audit_errors += u64::from(is_changed);
                self.audit.add_pair(is_changed);
            }
            None => summary.questions_saved += 1,
        }
    }

    fn count_agreement(&mut self, line: &OutcomeLine) {
        let Some(number) = self.names.iter().position(|name| **name == *line.evaluator) else { return };
        let tally = &mut self.tallies[number];
        tally.tied += u64::from(line.outcome == OutcomeKind::Abstained);
        let is_first = |vote: &&JudgeVote| self.record.escalate_to.as_deref() != Some(&*vote.judge);
        let votes: Vec<&JudgeVote> = line.votes.iter().filter(is_first).filter(|vote| vote.label.is_some()).collect();
        if votes.len() < 2 {
            return;
        }
        tally.questions += 1;
        tally.unanimous += u64::from(votes.iter().all(|vote| vote.label == votes[0].label));
        for (at, one) in votes.iter().enumerate() {
            for other in &votes[at + 1..] {
                let pairs = if one.judge == other.judge { &mut tally.flips } else { &mut tally.differences };
                pairs.add_pair(one.label != other.label);
            }
        }
        tally.variance.add_case(votes.iter().filter_map(|vote| vote.score));
    }

    fn collect_dispute(&mut self, line: &OutcomeLine) {
        let Some(disagreement) = line.disagreement.filter(|share| *share > 0.0) else { return };
        let mut votes = BTreeMap::new();
        for label in line.votes.iter().filter_map(|vote| vote.label.clone()) {
            *votes.entry(label).or_default() += 1;
        }
        self.disputed.push(DisputedQuestion {
            trajectory_id: line.trajectory_id.to_string(),
            step_index: line.step_index,
            evaluator: line.evaluator.to_string(),
            disagreement,
            label: line.label.clone(),
            votes,
        });
        // Pruned in batches, which keeps the sort cheap.
        if self.disputed.len() > 4 * MAX_DISPUTED {
            self.keep_most_disputed();
        }
    }

    /// Keeps the questions with the most disagreement. The sort is stable, so ties keep the order of the source.
    fn keep_most_disputed(&mut self) {
        self.disputed.sort_by(|one, other| other.disagreement.total_cmp(&one.disagreement));
        self.disputed.truncate(MAX_DISPUTED);
    }

    pub(super) fn finish(mut self) -> PanelSummary {
        self.keep_most_disputed();
        let usd_saved = self.saved_dollars();
        let evaluators = self.names.iter().zip(&self.tallies).filter(|(_, tally)| tally.questions + tally.tied > 0);
        let escalation = self.record.escalate_to.is_some().then(|| EscalationSummary {
            audited_error: self.audit.rate(),
            audited_interval: self.audit.interval(),
            usd_saved,
            ..self.escalation.clone()
        });
        PanelSummary {
            repeats: self.record.repeats,
            evaluators: evaluators.map(|(name, tally)| tally.to_agreement(name)).collect(),
            escalation,
            judges: self.judges,
            disputed: self.disputed,
        }
    }

    /// Returns the cost of asking the better judge every question, less that of the votes. Cached answers count with
    /// the mean cost of the paid ones, since a first run would have paid for them.
    fn saved_dollars(&self) -> Option<f64> {
        let mean_cost = |number: usize| match self.paid[number] {
            (0, _) => None,
            (count, usd) => usd.map(|usd| usd / count as f64),
        };
        let last = self.judges.len().checked_sub(1).filter(|_| self.record.escalate_to.is_some())?;
        let always = self.escalation.questions as f64 * mean_cost(last)?;
        let mut spent = 0.0;
        for (number, judge) in self.judges.iter().enumerate().filter(|(_, judge)| judge.votes > 0) {
            spent += judge.votes as f64 * mean_cost(number)?;
        }
        Some(always - spent)
    }
}

impl AgreementTally {
    fn to_agreement(&self, name: &str) -> PanelAgreement {
        PanelAgreement {
            evaluator: name.to_owned(),
            questions: self.questions,
            unanimous: self.unanimous,
            tied: self.tied,
            flip_rate: self.flips.rate(),
            flip_interval: self.flips.interval(),
            judges_differ: self.differences.rate(),
            differ_interval: self.differences.interval(),
            variance: self.variance.components().filter(|_| self.variance.run_count() > 1),
        }
    }
}

impl PanelJudgeSummary {
    fn add_vote_cost(&mut self, vote: &JudgeVote) {
        self.calls += u64::from(vote.calls);
        self.from_cache += u64::from(vote.cached);
        if vote.calls > 0 {
            self.usd = self.usd.zip(vote.cost_usd).map(|(sum, more)| sum + more);
        }
    }
}
