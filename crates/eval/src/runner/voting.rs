//! The ballots of a run with several judges or repeats: requests votes, and turns them into an outcome.

use gradus_llm::price::TokenPrice;

use super::asked_question::JudgeAsk;
use super::ballot::{self, CastVote, PanelDecision};
use super::evaluation_runner::{BallotStage, EvaluationRunner, OpenBallot};
use super::plan::JudgeJob;
use crate::judge::JudgeResponse;
use crate::outcome::{EscalationReason, EvaluationOutcome, JudgeVote, OutcomeLine, ScoredVerdict, TokenCount};
use crate::prompt::TruncatedValue;
use crate::run::{CachedVerdict, QuestionKey, RunFileError};

/// Why a ballot of a stopped run has no verdict. It is asked again when the run is resumed; its votes are in the cache.
const STOPPED: &str = "the run stopped before all votes were there";

impl EvaluationRunner<'_> {
    /// Queues the first votes on a question.
    pub(super) fn open_ballot(&mut self, job: JudgeJob) {
        let Some(panel) = &self.panel else { unreachable!("one judge that is asked once needs no ballot") };
        let number = self.ballot_count;
        self.ballot_count += 1;
        let stage = if panel.are_repeats_optional() { BallotStage::FirstAnswer } else { BallotStage::Members };
        let repeats = if stage == BallotStage::FirstAnswer { 1 } else { panel.max_repeats() };
        let members = panel.members().len();
        let mut ballot = OpenBallot { job, votes: Vec::new(), last_vote: None, outstanding: 0, stage };
        for repeat in 0..repeats {
            for judge in 0..members {
                let job = ballot.job.clone();
                self.next_asks.push_back(JudgeAsk { job, judge, repeat, ballot: Some(number) });
                ballot.outstanding += 1;
            }
        }
        self.ballots.insert(number, ballot);
    }

    /// Casts a vote from the cache. It cost nothing in this run.
    pub(super) fn cast_cached_vote(
        &mut self,
        ask: &JudgeAsk,
        key: QuestionKey,
        verdict: CachedVerdict,
        shortened: Vec<TruncatedValue>,
    ) -> Result<(), RunFileError> {
        let vote = JudgeVote {
            score: self.planner.label_score(&ask.job, &verdict.label),
            label: Some(verdict.label),
            explanation: Some(verdict.explanation),
            label_probability: verdict.label_probability,
            answered_by: verdict.answered_by,
            cost_usd: Some(0.0),
            cached: true,
            ..self.blank_vote(ask, key)
        };
        let shortened = if verdict.shortened.is_empty() { shortened } else { verdict.shortened };
        self.cast_vote(ask, CastVote { judge: ask.judge, vote, tokens: None, shortened })
    }

    /// Casts a missing vote for a judge that does not answer.
    pub(super) fn cast_missing_vote(
        &mut self,
        ask: &JudgeAsk,
        key: QuestionKey,
        reason: String,
    ) -> Result<(), RunFileError> {
        let vote = JudgeVote { reason: Some(reason), cost_usd: Some(0.0), ..self.blank_vote(ask, key) };
        self.cast_vote(ask, CastVote { judge: ask.judge, vote, tokens: None, shortened: Vec::new() })
    }

    /// Casts the vote of a question that was sent.
    pub(super) fn cast_asked_vote(
        &mut self,
        ask: &JudgeAsk,
        key: QuestionKey,
        judgement: &JudgeResponse,
        price: Option<TokenPrice>,
    ) -> Result<(), RunFileError> {
        if let Some(text) = judgement.raw_response.as_deref() {
            self.ledger.store_raw_response(&self.planner.build_blank_line(&ask.job), key, Some(text))?;
        }
        let vote = JudgeVote {
            cost_usd: price.zip(judgement.usage).map(|(price, usage)| price.cost_of_usage(usage)),
            calls: judgement.calls,
            ..self.answered_vote(ask, key, judgement)
        };
        let tokens = judgement.usage.map(TokenCount::from_usage);
        // The outcome has the cost only when the ballot is complete; until then it counts against the budget here.
        self.unrecorded_usd += vote.cost_usd.unwrap_or(0.0);
        let shortened = judgement.prompt.shortened.clone();
        self.cast_vote(ask, CastVote { judge: ask.judge, vote, tokens, shortened })
    }

    /// Casts the vote of a question that is identical to one that was sent. The cost stays with that one.
    pub(super) fn cast_shared_vote(
        &mut self,
        ask: &JudgeAsk,
        key: QuestionKey,
        judgement: &JudgeResponse,
    ) -> Result<(), RunFileError> {
        if judgement.raw_response.is_some() {
            self.ledger.store_raw_response(&self.planner.build_blank_line(&ask.job), key, None)?;
        }
        let is_answered = judgement.result.is_ok();
        let vote = JudgeVote { cost_usd: Some(0.0), cached: is_answered, ..self.answered_vote(ask, key, judgement) };
        let shortened = judgement.prompt.shortened.clone();
        self.cast_vote(ask, CastVote { judge: ask.judge, vote, tokens: None, shortened })
    }

    fn answered_vote(&self, ask: &JudgeAsk, key: QuestionKey, judgement: &JudgeResponse) -> JudgeVote {
        let blank = JudgeVote { answered_by: judgement.answered_by.clone(), ..self.blank_vote(ask, key) };
        match &judgement.result {
            Ok(reading) => JudgeVote {
                score: self.planner.label_score(&ask.job, &reading.label),
                label: Some(reading.label.clone()),
                explanation: Some(reading.explanation.clone()),
                label_probability: judgement.label_probability,
                ..blank
            },
            Err(failure) => JudgeVote { reason: Some(failure.to_string()), ..blank },
        }
    }

    fn blank_vote(&self, ask: &JudgeAsk, key: QuestionKey) -> JudgeVote {
        JudgeVote {
            k: key.to_string(),
            judge: self.health.name(ask.judge).clone(),
            answered_by: None,
            repeat: ask.repeat,
            label: None,
            score: None,
            explanation: None,
            reason: None,
            label_probability: None,
            cost_usd: None,
            calls: 0,
            cached: false,
        }
    }

    /// Adds a vote to its ballot. The last one of a stage leads to more votes or to the outcome.
    fn cast_vote(&mut self, ask: &JudgeAsk, cast: CastVote) -> Result<(), RunFileError> {
        let Some(number) = ask.ballot else { unreachable!("only ballots have votes") };
        // A stopped run closes its ballots before the last answers arrive.
        let Some(ballot) = self.ballots.get_mut(&number) else { return Ok(()) };
        match ballot.stage {
            BallotStage::Escalated(_) => ballot.last_vote = Some(cast),
            BallotStage::FirstAnswer | BallotStage::Members => ballot.votes.push(cast),
        }
        ballot.outstanding -= 1;
        if ballot.outstanding > 0 {
            return Ok(());
        }
        if self.ask_for_more_votes(number) {
            return Ok(());
        }
        match self.ballots.remove(&number) {
            Some(ballot) => self.record_ballot(ballot),
            None => Ok(()),
        }
    }

    /// Queues the votes of the next stage, before those of other questions. Returns false if the ballot is complete.
    fn ask_for_more_votes(&mut self, number: u64) -> bool {
        let (Some(panel), Some(ballot)) = (&self.panel, self.ballots.get_mut(&number)) else { return false };
        let ask = |judge, repeat| JudgeAsk { job: ballot.job.clone(), judge, repeat, ballot: Some(number) };
        if ballot.stage == BallotStage::FirstAnswer {
            let is_doubt_known = ballot.votes.iter().any(|cast| cast.vote.label_probability.is_some());
            if !is_doubt_known {
                (1..panel.max_repeats()).rev().for_each(|repeat| self.next_asks.push_front(ask(0, repeat)));
                ballot.stage = BallotStage::Members;
                ballot.outstanding = panel.max_repeats() - 1;
                return true;
            }
        }
        let Some(policy) = panel.escalation().filter(|_| !matches!(ballot.stage, BallotStage::Escalated(_))) else {
            return false;
        };
        let reason = if ballot::is_unsure(&ballot.votes, policy.min_probability) {
            EscalationReason::Unsure
        } else {
            let line = self.planner.build_blank_line(&ballot.job);
            if !policy.is_audited(&line.trajectory_id, line.step_index, &line.evaluator) {
                return false;
            }
            EscalationReason::Audit
        };
        self.next_asks.push_front(ask(panel.members().len(), 0));
        ballot.stage = BallotStage::Escalated(reason);
        ballot.outstanding = 1;
        true
    }

    /// Turns a ballot with all its votes into an outcome.
    fn record_ballot(&mut self, ballot: OpenBallot) -> Result<(), RunFileError> {
        let labels = self.planner.labels(&ballot.job);
        let mut votes = ballot.votes;
        votes.sort_by_key(|cast| (cast.judge, cast.vote.repeat));
        let first = ballot::decide_votes(labels, &votes);
        let mut line = self.planner.build_blank_line(&ballot.job);
        match (ballot.stage, ballot.last_vote) {
            (BallotStage::Escalated(reason), Some(last)) => {
                let decision = ballot::decide_votes(labels, std::slice::from_ref(&last));
                let is_audit_without_answer =
                    reason == EscalationReason::Audit && matches!(decision, PanelDecision::Unanswered { .. });
                votes.push(last);
                if is_audit_without_answer {
                    // The first judges were sure: their verdict stands, and the audit has one case fewer.
                    line = line.with_decision(first).with_single_vote(&votes[..votes.len() - 1]);
                } else {
                    line.first_label = match first {
                        PanelDecision::Decided { label, .. } => Some(label),
                        PanelDecision::Tied { .. } | PanelDecision::Unanswered { .. } => None,
                    };
                    line = line.with_decision(decision).with_single_vote(std::slice::from_ref(&votes[votes.len() - 1]));
                    line.escalated = Some(reason);
                    line.vote_count = None;
                }
            }
            _ => line = line.with_decision(first).with_single_vote(&votes),
        }
        line.disagreement = ballot::disagreement_share(labels, &votes);
        self.record_votes(line, votes)
    }

    /// Adds the votes and their cost to the outcome of their ballot, and records it.
    fn record_votes(&mut self, mut line: OutcomeLine, votes: Vec<CastVote>) -> Result<(), RunFileError> {
        let is_cost_known = votes.iter().all(|cast| cast.vote.calls == 0 || cast.vote.cost_usd.is_some());
        let cost_usd: f64 = votes.iter().filter_map(|cast| cast.vote.cost_usd).sum();
        line.cost_usd = is_cost_known.then_some(cost_usd);
        line.calls = votes.iter().map(|cast| cast.vote.calls).sum();
        line.cached = votes.iter().all(|cast| cast.vote.cached);
        for cast in &votes {
            if let Some(tokens) = cast.tokens {
                *line.tokens.get_or_insert_default() += tokens;
            }
            if line.shortened.is_empty() {
                line.shortened.clone_from(&cast.shortened);
            }
        }
        line.votes = votes.into_iter().map(|cast| ballot::shorten_vote(cast.vote)).collect();
        self.unrecorded_usd -= line.cost_usd.unwrap_or(0.0);
        self.record_outcome(&line)
    }

    /// Closes the open ballots of a stopped run, so that their cost is recorded. Their questions count as failed, so
    /// that a resumed run asks for the missing votes.
    pub(super) fn close_open_ballots(&mut self) -> Result<(), RunFileError> {
        let mut open: Vec<(u64, OpenBallot)> = self.ballots.drain().collect();
        open.sort_by_key(|(number, _)| *number);
        for (_, ballot) in open {
            let mut votes = ballot.votes;
            votes.sort_by_key(|cast| (cast.judge, cast.vote.repeat));
            votes.extend(ballot.last_vote);
            if votes.iter().all(|cast| cast.vote.calls == 0) {
                continue;
            }
            let reason = STOPPED.to_owned();
            let line = self.planner.build_blank_line(&ballot.job).with(EvaluationOutcome::Failed { reason });
            self.record_votes(line, votes)?;
        }
        Ok(())
    }
}

impl OutcomeLine {
    /// Adds the label probability and the model, if a single vote decided.
    fn with_single_vote(mut self, deciding: &[CastVote]) -> OutcomeLine {
        if let [only] = deciding {
            self.label_probability = only.vote.label_probability;
            self.answered_by.clone_from(&only.vote.answered_by);
        }
        self
    }

    fn with_decision(mut self, decision: PanelDecision) -> OutcomeLine {
        let outcome = match decision {
            PanelDecision::Decided { label, score, vote_count, explanation } => {
                self.vote_count = Some(vote_count);
                let (score, evidence, rule) = (Some(score), Vec::new(), None);
                EvaluationOutcome::Scored(ScoredVerdict { label, score, explanation, evidence, rule })
            }
            PanelDecision::Tied { reason } => EvaluationOutcome::Abstained { reason },
            PanelDecision::Unanswered { reason } => EvaluationOutcome::Failed { reason },
        };
        self.with(outcome)
    }
}
