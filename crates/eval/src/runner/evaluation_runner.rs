//! The state of a run: starts questions within its limits, and records their results. `voting` has the part that only
//! panels need.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use gradus_core::trajectory::Trajectory;
use gradus_llm::price::TokenPrice;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::answered_questions::AnsweredQuestions;
use super::asked_question::{AskedQuestion, FinishedTask, JudgeAsk};
use super::ballot::CastVote;
use super::judge_health::JudgeHealth;
use super::ledger::{QuestionCost, RunLedger};
use super::panel::JudgePanel;
use super::plan::{JudgeJob, QuestionPlanner};
use super::progress::{ProgressWatcher, RunProgress};
use super::question_selection::QuestionSelection;
use super::question_task::QuestionTask;
use super::run_plan::{RunLimits, RunPlan, RunTermination};
use crate::judge::JudgeFailure;
use crate::outcome::OutcomeLine;
use crate::prompt::TruncatedValue;
use crate::run::{CachedVerdict, QuestionKey, RunFileError};
use crate::shared::{QuestionCoordinator, QuestionIntent};

/// Maximum number of questions that wait for the answer to an identical one. Beyond that, reading pauses, since each
/// holds its trajectory.
const MAX_WAITING_ASKS: usize = 10_000;

/// The state of a run. Only the dispatching task touches it, so it needs no lock.
pub(super) struct EvaluationRunner<'w> {
    pub(super) planner: QuestionPlanner,
    pub(super) panel: Option<JudgePanel>,
    pub(super) health: JudgeHealth,
    pub(super) limits: RunLimits,
    pub(super) ledger: &'w mut (dyn RunLedger + Send),
    pub(super) watcher: &'w mut (dyn ProgressWatcher + Send),
    pub(super) progress: RunProgress,
    /// Planned questions.
    pub(super) pending: VecDeque<JudgeJob>,
    /// Questions to one judge that precede all of `pending`: votes of open ballots, and questions that did not fit
    /// into the limits.
    pub(super) next_asks: VecDeque<JudgeAsk>,
    pub(super) tasks: JoinSet<FinishedTask>,
    /// Questions that wait for an identical one in flight. Every question in flight has an entry.
    waiting: HashMap<QuestionKey, Vec<JudgeAsk>>,
    /// Total length of the lists in `waiting`.
    waiting_asks: usize,
    /// Ballots with outstanding votes, by number. Empty unless there is a panel.
    pub(super) ballots: HashMap<u64, OpenBallot>,
    /// Number of ballots opened so far.
    pub(super) ballot_count: u64,
    /// Number of questions sent so far.
    asked: u64,
    /// Upper bound in dollars of the questions in flight.
    reserved_usd: f64,
    /// Upper bound in dollars of costs that are not in recorded outcomes: answers without reported usage, and votes
    /// of open ballots.
    pub(super) unrecorded_usd: f64,
    /// Set once: no further question is started.
    pub(super) stopping: Option<RunTermination>,
    /// The end of `max_time`, or of the grace period after it.
    pub(super) deadline: Option<Instant>,
    pub(super) started: Instant,
    ignore_cache: bool,
    /// Added to the number of every repetition: other numbers are other questions to the cache.
    first_repeat: u32,
    /// Coordinates with other processes who asks; `None` for a run in a single process.
    coordinator: Option<Arc<dyn QuestionCoordinator>>,
}

/// A question with outstanding votes.
pub(super) struct OpenBallot {
    pub(super) job: JudgeJob,
    /// In the order of arrival.
    pub(super) votes: Vec<CastVote>,
    /// The vote of the judge of the escalation.
    pub(super) last_vote: Option<CastVote>,
    pub(super) outstanding: u32,
    pub(super) stage: BallotStage,
}

/// Which votes of a ballot are being asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BallotStage {
    /// The first answer of the only member, which may report the probability of its label.
    FirstAnswer,
    /// All answers of the members.
    Members,
    Escalated(crate::outcome::EscalationReason),
}

/// Whether one more question fits into the limits of the run.
enum QuestionAdmission {
    Now,
    Later,
    Never(String),
}

impl<'w> EvaluationRunner<'w> {
    pub(super) fn new(
        plan: RunPlan,
        run_id: &str,
        done: AnsweredQuestions,
        ledger: &'w mut (dyn RunLedger + Send),
        watcher: &'w mut (dyn ProgressWatcher + Send),
    ) -> Self {
        let started = Instant::now();
        let window = plan.judge.as_ref().and_then(JudgePanel::window);
        EvaluationRunner {
            progress: RunProgress { cost_usd: done.cost_usd, ..RunProgress::default() },
            planner: QuestionPlanner::new(run_id, plan.evaluators, plan.tools, window, done),
            health: JudgeHealth::new(plan.judge.as_ref()),
            panel: plan.judge.filter(|panel| !panel.is_single()),
            limits: plan.limits,
            ledger,
            watcher,
            pending: VecDeque::new(),
            next_asks: VecDeque::new(),
            tasks: JoinSet::new(),
            waiting: HashMap::new(),
            waiting_asks: 0,
            ballots: HashMap::new(),
            ballot_count: 0,
            asked: 0,
            reserved_usd: 0.0,
            unrecorded_usd: 0.0,
            stopping: None,
            deadline: plan.limits.max_time.map(|time| started + time),
            started,
            ignore_cache: plan.ignore_cache,
            first_repeat: 0,
            coordinator: None,
        }
    }

    /// Shares answers and limits with other processes.
    pub(super) fn with_coordinator(mut self, coordinator: Option<Arc<dyn QuestionCoordinator>>) -> Self {
        self.coordinator = coordinator;
        self
    }

    /// Asks only the selected questions.
    pub(super) fn with_selection(mut self, selection: Option<QuestionSelection>) -> Self {
        self.first_repeat = selection.as_ref().map_or(0, QuestionSelection::repeat);
        self.planner.select_questions(selection);
        self
    }

    /// Plans a trajectory: questions that need no model are answered at once, the rest is queued.
    pub(super) fn plan_trajectory(&mut self, mut trajectory: Trajectory) -> Result<(), RunFileError> {
        let is_known = self.ledger.store_trajectory(&mut trajectory)?;
        self.progress.trajectories += 1;
        let planned = self.planner.plan(trajectory, is_known);
        let questions = planned.answered.len() + planned.jobs.len();
        self.progress.planned += questions as u64;
        self.ledger.set_question_count(&planned.trajectory_id, questions);
        for line in planned.answered {
            self.record_outcome(&line)?;
        }
        self.pending.extend(planned.jobs);
        self.ledger.write_if_large()
    }

    /// Whether questions wait to be started.
    pub(super) fn has_pending(&self) -> bool {
        !self.pending.is_empty() || !self.next_asks.is_empty()
    }

    /// Starts queued questions up to the concurrency.
    pub(super) fn start_questions(&mut self) -> Result<(), RunFileError> {
        while self.stopping.is_none()
            && self.tasks.len() < self.limits.concurrency
            && let Some(ask) = self.next_ask()
        {
            if !self.start_ask(ask)? {
                break;
            }
        }
        Ok(())
    }

    /// Votes of open ballots come first, so that few ballots are open.
    fn next_ask(&mut self) -> Option<JudgeAsk> {
        if let Some(ask) = self.next_asks.pop_front() {
            return Some(ask);
        }
        let job = self.pending.pop_front()?;
        if self.panel.is_none() {
            return Some(JudgeAsk { job, judge: 0, repeat: 0, ballot: None });
        }
        self.open_ballot(job);
        self.next_asks.pop_front()
    }

    /// Answers a question from the cache, lets it wait for an identical one, or sends it. Returns false if nothing more
    /// can be started for now.
    fn start_ask(&mut self, ask: JudgeAsk) -> Result<bool, RunFileError> {
        let judge = Arc::clone(self.health.judge(ask.judge));
        let question = self.planner.prepare_question(&ask.job);
        let key = judge.question_key(&question.rubric.hash, &question.prompt, self.first_repeat + ask.repeat);
        if let Some(waiting) = self.waiting.get_mut(&key) {
            if self.waiting_asks >= MAX_WAITING_ASKS {
                self.next_asks.push_front(ask);
                return Ok(false);
            }
            self.waiting_asks += 1;
            waiting.push(ask);
            return Ok(true);
        }
        // A cached label that the rubric does not have comes from a corrupted file.
        if !self.ignore_cache
            && let Some(verdict) = self.ledger.find_cached_verdict(key)?
            && question.rubric.labels.score(&verdict.label).is_some()
        {
            self.record_cached(&ask, key, verdict, question.prompt.shortened)?;
            return Ok(true);
        }
        if let Some(reason) = self.health.dropped_because(ask.judge).map(str::to_owned) {
            self.cast_missing_vote(&ask, key, reason)?;
            return Ok(true);
        }
        let reserved_usd = judge.max_question_cost_usd(&question.prompt).unwrap_or(0.0);
        match self.check_admission(reserved_usd) {
            QuestionAdmission::Now => {}
            QuestionAdmission::Later => {
                self.next_asks.push_front(ask);
                return Ok(false);
            }
            QuestionAdmission::Never(reason) => {
                self.stopping = Some(RunTermination::Limit(reason));
                return Ok(false);
            }
        }
        self.asked += 1;
        self.reserved_usd += reserved_usd;
        self.waiting.insert(key, Vec::new());
        let turn =
            self.coordinator.clone().map(|coordinator| (coordinator, self.build_intent(&ask, key, reserved_usd)));
        self.tasks.spawn(QuestionTask { ask, key, reserved_usd, judge, question, turn }.run());
        Ok(true)
    }

    fn build_intent(&self, ask: &JudgeAsk, key: QuestionKey, max_cost_usd: f64) -> QuestionIntent {
        let OutcomeLine { trajectory_id, step_index, rubric_hash, .. } = self.planner.build_blank_line(&ask.job);
        let judge = Arc::clone(self.health.name(ask.judge));
        QuestionIntent { key, trajectory_id, step_index, rubric_hash, judge, max_cost_usd }
    }

    /// Records the cached answer of an identical question.
    pub(super) fn record_cached(
        &mut self,
        ask: &JudgeAsk,
        key: QuestionKey,
        verdict: CachedVerdict,
        shortened: Vec<TruncatedValue>,
    ) -> Result<(), RunFileError> {
        match ask.ballot {
            Some(_) => self.cast_cached_vote(ask, key, verdict, shortened),
            None => {
                let line = self.planner.cached_line(&ask.job, verdict, shortened);
                self.record_outcome(&line)
            }
        }
    }

    /// Upper bound in dollars of everything asked so far.
    fn max_spent_usd(&self) -> f64 {
        self.progress.cost_usd + self.unrecorded_usd + self.reserved_usd
    }

    /// Checks the limits for one more question that costs at most `cost_usd`.
    fn check_admission(&self, cost_usd: f64) -> QuestionAdmission {
        if let Some(most) = self.limits.max_calls
            && self.asked >= most
        {
            return QuestionAdmission::Never(describe_call_limit(most));
        }
        match self.limits.max_cost_usd {
            Some(most) if self.max_spent_usd() + cost_usd > most => {
                // Questions in flight usually cost less than their bound, so there may be room once they finish.
                if self.tasks.is_empty() {
                    QuestionAdmission::Never(format!(
                        "the next call could cost ${cost_usd:.4} and go over the limit of ${most}"
                    ))
                } else {
                    QuestionAdmission::Later
                }
            }
            _ => QuestionAdmission::Now,
        }
    }

    /// Records the result of a question, and of the identical ones that waited for it.
    pub(super) fn finish_question(
        &mut self,
        joined: Result<FinishedTask, tokio::task::JoinError>,
    ) -> Result<(), RunFileError> {
        let asked = match joined {
            Ok(FinishedTask::Asked(asked)) => asked,
            Ok(FinishedTask::Unasked { ask, key, reserved_usd, result }) => {
                return self.finish_unasked(*ask, key, reserved_usd, &result?);
            }
            Err(error) if error.is_cancelled() => return Ok(()),
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        };
        let waiting = self.end_in_flight(asked.key, asked.reserved_usd);
        let price = self.health.judge(asked.ask.judge).price;
        let is_endpoint_at_fault = matches!(asked.judgement.result, Err(JudgeFailure::Call(_)));
        self.count_cost(&asked, price, is_endpoint_at_fault);
        if !self.update_judge_health(&asked) {
            // No outcome is recorded: the question stays open for the next run.
            return Ok(());
        }
        if let Some(verdict) = asked.cached_verdict() {
            self.ledger.store_verdict(asked.key, verdict)?;
        }
        let recorded = match asked.ask.ballot {
            Some(_) => {
                self.cast_asked_vote(&asked.ask, asked.key, &asked.judgement, price)?;
                None
            }
            None => Some(self.record_answer(&asked, price)?),
        };
        for ask in waiting {
            // Identical questions share the answer, which is paid for once.
            let effort = QuestionCost { is_endpoint_at_fault, ..QuestionCost::default() };
            self.ledger.record_question_cost(ask.job.trajectory_id(), effort);
            let Some(line) = &recorded else {
                self.cast_shared_vote(&ask, asked.key, &asked.judgement)?;
                continue;
            };
            let copy = self.planner.copied_line(&ask.job, line);
            self.record_outcome(&copy)?;
            if asked.judgement.raw_response.is_some() {
                self.ledger.store_raw_response(&copy, asked.key, None)?;
            }
        }
        Ok(())
    }

    /// Ends a question in flight: releases its reserved cost, and returns the questions that wait for its answer.
    pub(super) fn end_in_flight(&mut self, key: QuestionKey, reserved_usd: f64) -> Vec<JudgeAsk> {
        self.reserved_usd = (self.reserved_usd - reserved_usd).max(0.0);
        let waiting = self.waiting.remove(&key).unwrap_or_default();
        self.waiting_asks -= waiting.len();
        waiting
    }

    /// Reports the cost of a question that was sent. Without reported usage, the upper bound counts against the budget.
    fn count_cost(&mut self, asked: &AskedQuestion, price: Option<TokenPrice>, is_endpoint_at_fault: bool) {
        let (reported_usd, cost_usd) = asked.costs(price);
        self.unrecorded_usd += cost_usd - reported_usd;
        let (calls, is_priced) = (asked.judgement.calls, price.is_some());
        let effort = QuestionCost { calls, cost_usd, is_priced, is_endpoint_at_fault };
        self.ledger.record_question_cost(asked.ask.job.trajectory_id(), effort);
    }

    /// Records whether the judge answered, and stops the run if it cannot continue. Returns false if the question
    /// stays open.
    fn update_judge_health(&mut self, asked: &AskedQuestion) -> bool {
        let number = asked.ask.judge;
        match &asked.judgement.result {
            Err(JudgeFailure::Endpoint(failure)) => {
                if self.health.drop_judge(number, failure.to_string()) {
                    return true;
                }
                self.stopping = Some(RunTermination::Endpoint { judge: number, failure: failure.clone() });
                self.tasks.abort_all();
                false
            }
            Err(JudgeFailure::CallLimit) => {
                let most = self.limits.max_calls.unwrap_or_default();
                self.stopping.get_or_insert(RunTermination::Limit(describe_call_limit(most)));
                false
            }
            Ok(_) | Err(JudgeFailure::Case(_)) => {
                self.health.record_answer(number);
                true
            }
            Err(failure @ JudgeFailure::Call(_)) => {
                if !self.health.record_failure(number, failure.to_string()) && self.stopping.is_none() {
                    self.stopping = Some(RunTermination::EndpointDied(failure.to_string()));
                }
                true
            }
        }
    }

    /// Records the answer of the only judge as the outcome.
    fn record_answer(&mut self, asked: &AskedQuestion, price: Option<TokenPrice>) -> Result<OutcomeLine, RunFileError> {
        let line = self.planner.judged_line(&asked.ask.job, &asked.judgement, price);
        match &asked.judgement.result {
            Ok(_) => self.ledger.store_model_outcome(&line, asked.key)?,
            Err(_) => self.ledger.store_outcome(&line)?,
        }
        if let Some(text) = asked.judgement.raw_response.as_deref() {
            self.ledger.store_raw_response(&line, asked.key, Some(text))?;
        }
        self.notify_outcome(&line);
        if asked.judgement.raw_response.is_some() {
            self.watcher.on_answer_time(&line, asked.elapsed);
        }
        Ok(line)
    }

    pub(super) fn record_outcome(&mut self, line: &OutcomeLine) -> Result<(), RunFileError> {
        self.ledger.store_outcome(line)?;
        self.notify_outcome(line);
        Ok(())
    }

    fn notify_outcome(&mut self, line: &OutcomeLine) {
        self.progress.count_outcome(line);
        self.watcher.on_outcome(line);
    }
}

fn describe_call_limit(most: u64) -> String {
    format!("the limit of {most} {} is reached", if most == 1 { "call" } else { "calls" })
}
