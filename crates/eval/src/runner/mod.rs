//! Runs the evaluators over trajectories: plans the questions, keeps a bounded number of them in flight, and writes
//! down every answer before it starts the next question.
//!
//! One task dispatches, and each question to a model is a task of its own. A question counts as in flight until its
//! outcome is in the journal. So whenever the process dies, at most the questions in flight are asked again.

mod estimate;
mod journal;
mod ledger;
mod plan;
mod progress;
mod progress_order;
mod rules;

pub use estimate::{ANSWER_TOKENS, CostEstimator, EvaluatorEstimate};
pub use ledger::{QuestionCost, RunLedger};
pub use progress::{ProgressWatcher, RunProgress};
pub use progress_order::AnsweredQuestions;
pub use rules::RulesJudge;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use gradus_core::trajectory::Trajectory;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::evaluator::Evaluator;
use crate::judge::{JudgeFailure, JudgeResponse, ModelJudge};
use crate::prompt::ToolTexts;
use crate::run::{QuestionKey, RunFileError, RunFolder, VerdictCache};
use journal::RunJournal;
use plan::{JudgeJob, PreparedQuestion, QuestionPlanner};

/// Everything that decides what a run asks.
#[derive(Debug)]
pub struct RunPlan {
    pub evaluators: Vec<Evaluator>,
    /// The model; `None` if rules answer all evaluators.
    pub judge: Option<Arc<ModelJudge>>,
    pub tools: ToolTexts,
    pub limits: RunLimits,
    /// Asks again what is in the cache. New answers are still added to it.
    pub ignore_cache: bool,
}

/// Limits of a run. Reaching one stops the run with a partial report.
#[derive(Clone, Copy, Debug)]
pub struct RunLimits {
    /// Maximum number of questions in flight.
    pub concurrency: usize,
    /// Maximum number of requests, retries included.
    pub max_calls: Option<u64>,
    /// Maximum cost in dollars. Questions in flight count with their upper bound, so the limit holds even if all are
    /// expensive.
    pub max_cost_usd: Option<f64>,
    /// Maximum duration. Questions in flight then have a few more seconds to finish.
    pub max_time: Option<Duration>,
}

/// How a run ended. In every case, all outcomes up to then are in the journal.
#[derive(Clone, Debug, PartialEq)]
pub enum RunTermination {
    Finished,
    /// A limit of the run was reached.
    Limit(String),
    /// Ctrl-C.
    Interrupted,
    /// The endpoint answers no question at all, and trying again would not help: wrong key, unknown model, no quota.
    Endpoint(gradus_llm::ModelCallFailure),
    /// The endpoint worked and then stopped answering.
    EndpointDied(String),
}

/// After this many consecutive failures the endpoint counts as dead.
const FAILURES_IN_A_ROW: u32 = 50;
/// The same at the end of a run, when no further questions can show whether it recovered.
const FAILURES_AT_THE_END: u32 = 10;
/// How long a stopped run waits for the questions in flight, which are already paid for.
const GRACE: Duration = Duration::from_secs(5);
/// Questions that are planned ahead: enough to show a total for most runs, few enough that their trajectories fit in
/// memory.
const PLANNED_AHEAD: usize = 500;
/// Identical questions that may wait for one answer. Beyond that, reading waits, too, since each holds its trajectory.
const MAX_WAITING: usize = 10_000;
/// Interval of progress reports and of syncing the journal.
const TICK: Duration = Duration::from_millis(200);

/// Interrupts a run: the first message lets questions in flight finish, the second one drops them.
pub type InterruptReceiver = mpsc::UnboundedReceiver<()>;

/// Judges trajectories until the channel closes, and keeps the outcomes in the run's folder. A resumed run skips
/// questions that its journal already answers.
pub async fn run_evaluation(
    plan: RunPlan,
    folder: &RunFolder,
    cache: VerdictCache,
    trajectories: mpsc::Receiver<Vec<Trajectory>>,
    interrupts: InterruptReceiver,
    watcher: &mut (dyn ProgressWatcher + Send),
) -> Result<RunTermination, RunFileError> {
    let mut cache = cache;
    folder.restore_cache(&mut cache)?;
    let done = progress_order::outcomes_in(folder)?;
    let mut journal = RunJournal::open(folder, cache)?;
    run_with(plan, &folder.record.run_id, done, &mut journal, trajectories, interrupts, watcher).await
}

/// The same with any ledger. The server uses it with its store.
pub async fn run_with(
    plan: RunPlan,
    run_id: &str,
    done: AnsweredQuestions,
    ledger: &mut (dyn RunLedger + Send),
    mut trajectories: mpsc::Receiver<Vec<Trajectory>>,
    mut interrupts: InterruptReceiver,
    watcher: &mut (dyn ProgressWatcher + Send),
) -> Result<RunTermination, RunFileError> {
    let mut runner = EvaluationRunner::new(plan, run_id, done, ledger, watcher);
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut source_ended = false;
    loop {
        runner.start_questions()?;
        let idle = runner.tasks.is_empty() && runner.pending.is_empty();
        if (runner.stopping.is_some() && runner.tasks.is_empty()) || (source_ended && idle) {
            break;
        }
        // Reading pauses while enough questions are planned, which is the backpressure towards the source.
        let wants_more = !source_ended && runner.stopping.is_none() && runner.pending.len() < PLANNED_AHEAD;
        let deadline = runner.deadline;
        tokio::select! {
            Some(joined) = runner.tasks.join_next(), if !runner.tasks.is_empty() => {
                runner.finish_question(joined)?;
                // All finished questions share one write.
                while let Some(joined) = runner.tasks.try_join_next() {
                    runner.finish_question(joined)?;
                }
                runner.ledger.write()?;
            }
            received = trajectories.recv(), if wants_more => match received {
                Some(batch) => {
                    for trajectory in batch {
                        runner.plan_trajectory(trajectory)?;
                    }
                }
                None => {
                    source_ended = true;
                    runner.progress.is_all_planned = true;
                }
            },
            _ = tick.tick() => runner.tick()?,
            Some(()) = interrupts.recv() => runner.interrupt(),
            () = sleep_until(deadline), if deadline.is_some() => runner.at_deadline(),
        }
    }
    runner.finish_run()
}

async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(instant) => tokio::time::sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

/// The state of a run. Only the dispatching task touches it, so it needs no lock.
struct EvaluationRunner<'w> {
    planner: QuestionPlanner,
    judge: Option<Arc<ModelJudge>>,
    limits: RunLimits,
    ledger: &'w mut (dyn RunLedger + Send),
    watcher: &'w mut (dyn ProgressWatcher + Send),
    progress: RunProgress,
    pending: VecDeque<JudgeJob>,
    tasks: JoinSet<AskedQuestion>,
    /// Jobs that wait for an identical question in flight. Every question in flight has an entry.
    waiting: HashMap<QuestionKey, Vec<JudgeJob>>,
    /// Total length of the lists in `waiting`.
    waiting_jobs: usize,
    /// Questions that were sent so far.
    asked: u64,
    /// Upper bound in dollars of the questions in flight.
    reserved_usd: f64,
    /// Upper bound in dollars of what may have been billed beyond the reported usage.
    unreported_usd: f64,
    /// Reset by every answer, readable or not.
    failures_in_a_row: u32,
    last_failure: String,
    /// Set once: no further question is started.
    stopping: Option<RunTermination>,
    /// The end of `max_time`, or of the grace period after it.
    deadline: Option<Instant>,
    started: Instant,
    ignore_cache: bool,
}

/// Whether one more question fits into the limits of the run.
enum QuestionAdmission {
    Now,
    Later,
    Never(String),
}

/// The result of a question's task.
struct AskedQuestion {
    job: JudgeJob,
    key: QuestionKey,
    reserved_usd: f64,
    judgement: JudgeResponse,
}

impl<'w> EvaluationRunner<'w> {
    fn new(
        plan: RunPlan,
        run_id: &str,
        done: AnsweredQuestions,
        ledger: &'w mut (dyn RunLedger + Send),
        watcher: &'w mut (dyn ProgressWatcher + Send),
    ) -> Self {
        let started = Instant::now();
        let window = plan.judge.as_ref().map(|judge| judge.settings.window);
        EvaluationRunner {
            progress: RunProgress { cost_usd: done.cost_usd, ..RunProgress::default() },
            planner: QuestionPlanner::new(run_id, plan.evaluators, plan.tools, window, done),
            judge: plan.judge,
            limits: plan.limits,
            ledger,
            watcher,
            pending: VecDeque::new(),
            tasks: JoinSet::new(),
            waiting: HashMap::new(),
            waiting_jobs: 0,
            asked: 0,
            reserved_usd: 0.0,
            unreported_usd: 0.0,
            failures_in_a_row: 0,
            last_failure: String::new(),
            stopping: None,
            deadline: plan.limits.max_time.map(|time| started + time),
            started,
            ignore_cache: plan.ignore_cache,
        }
    }

    /// Plans a trajectory: questions that need no model are answered at once, the rest is queued.
    fn plan_trajectory(&mut self, mut trajectory: Trajectory) -> Result<(), RunFileError> {
        let is_known = self.ledger.trajectory(&mut trajectory)?;
        self.progress.trajectories += 1;
        let planned = self.planner.plan(trajectory, is_known);
        let questions = planned.answered.len() + planned.jobs.len();
        self.progress.planned += questions as u64;
        self.ledger.planned(&planned.trajectory_id, questions);
        for line in planned.answered {
            self.record_outcome(&line)?;
        }
        self.pending.extend(planned.jobs);
        self.ledger.write_if_long()
    }

    /// Starts queued questions up to the concurrency.
    fn start_questions(&mut self) -> Result<(), RunFileError> {
        while self.stopping.is_none()
            && self.tasks.len() < self.limits.concurrency
            && let Some(job) = self.pending.pop_front()
        {
            if !self.start_job(job)? {
                break;
            }
        }
        Ok(())
    }

    /// Answers a job from the cache, lets it wait for an identical question, or sends it. Returns false if nothing more
    /// can be started for now.
    fn start_job(&mut self, job: JudgeJob) -> Result<bool, RunFileError> {
        let Some(judge) = self.judge.clone() else { unreachable!("a run without a model plans no questions for one") };
        let question = self.planner.prepare_question(&job);
        let key = judge.question_key(&question.rubric.hash, &question.prompt, 0);
        if let Some(waiting) = self.waiting.get_mut(&key) {
            if self.waiting_jobs >= MAX_WAITING {
                self.pending.push_front(job);
                return Ok(false);
            }
            self.waiting_jobs += 1;
            waiting.push(job);
            return Ok(true);
        }
        // A cached label that the rubric does not have comes from a corrupted file.
        if !self.ignore_cache
            && let Some(verdict) = self.ledger.cached(key)?
            && question.rubric.labels.score(&verdict.label).is_some()
        {
            let line = self.planner.cached_line(&job, verdict, question.prompt.shortened);
            self.record_outcome(&line)?;
            return Ok(true);
        }
        let reserved_usd = judge.most_it_costs(&question.prompt).unwrap_or(0.0);
        match self.check_admission(reserved_usd) {
            QuestionAdmission::Now => {}
            QuestionAdmission::Later => {
                self.pending.push_front(job);
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
        let PreparedQuestion { rubric, answer, prompt, renderer } = question;
        self.tasks.spawn(async move {
            let judgement =
                judge.judge(&answer, &rubric.labels, prompt, |window| renderer.render_shortened(&job, window)).await;
            AskedQuestion { job, key, reserved_usd, judgement }
        });
        Ok(true)
    }

    /// Upper bound in dollars of everything asked so far.
    fn spent_at_most(&self) -> f64 {
        self.progress.cost_usd + self.unreported_usd + self.reserved_usd
    }

    /// Checks the limits for one more question that costs at most `cost_usd`.
    fn check_admission(&self, cost_usd: f64) -> QuestionAdmission {
        if let Some(most) = self.limits.max_calls
            && self.asked >= most
        {
            return QuestionAdmission::Never(calls_reached(most));
        }
        match self.limits.max_cost_usd {
            Some(most) if self.spent_at_most() + cost_usd > most => {
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
    fn finish_question(&mut self, joined: Result<AskedQuestion, tokio::task::JoinError>) -> Result<(), RunFileError> {
        let asked = match joined {
            Ok(asked) => asked,
            Err(error) if error.is_cancelled() => return Ok(()),
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        };
        self.reserved_usd = (self.reserved_usd - asked.reserved_usd).max(0.0);
        let waiting = self.waiting.remove(&asked.key).unwrap_or_default();
        self.waiting_jobs -= waiting.len();
        let price = self.judge.as_ref().and_then(|judge| judge.price);
        let reported_usd = price.zip(asked.judgement.usage).map_or(0.0, |(price, usage)| price.cost_of_usage(usage));
        // Without reported usage, the upper bound counts against the budget.
        let cost_usd =
            if asked.judgement.is_usage_partial { reported_usd.max(asked.reserved_usd) } else { reported_usd };
        self.unreported_usd += cost_usd - reported_usd;
        let is_endpoint_at_fault = matches!(asked.judgement.result, Err(JudgeFailure::Call(_)));
        let is_priced = price.is_some();
        let effort = QuestionCost { calls: asked.judgement.calls, cost_usd, is_priced, is_endpoint_at_fault };
        self.ledger.asked(asked.job.trajectory_id(), effort);
        match &asked.judgement.result {
            // No outcome is recorded: the question stays open for the next run.
            Err(JudgeFailure::Endpoint(failure)) => {
                self.stopping = Some(RunTermination::Endpoint(failure.clone()));
                self.tasks.abort_all();
                return Ok(());
            }
            Err(JudgeFailure::CallLimit) => {
                let most = self.limits.max_calls.unwrap_or_default();
                self.stopping.get_or_insert(RunTermination::Limit(calls_reached(most)));
                return Ok(());
            }
            _ => {}
        }
        match &asked.judgement.result {
            Ok(_) | Err(JudgeFailure::Case(_)) => self.failures_in_a_row = 0,
            Err(failure) => {
                self.failures_in_a_row += 1;
                self.last_failure = failure.to_string();
                if self.failures_in_a_row >= FAILURES_IN_A_ROW && self.stopping.is_none() {
                    self.stopping = Some(RunTermination::EndpointDied(failure.to_string()));
                }
            }
        }
        let line = self.planner.judged_line(&asked.job, &asked.judgement, price);
        if let Ok(reading) = &asked.judgement.result {
            self.ledger.cache(asked.key, reading, &asked.judgement.prompt.shortened)?;
            self.ledger.answered(&line, asked.key)?;
        } else {
            self.ledger.outcome(&line)?;
        }
        self.notify_outcome(&line);
        for job in waiting {
            // An identical question shares the answer, which is paid for once.
            let effort = QuestionCost { is_endpoint_at_fault, ..QuestionCost::default() };
            self.ledger.asked(job.trajectory_id(), effort);
            let copy = self.planner.copied_line(&job, &line);
            self.record_outcome(&copy)?;
        }
        Ok(())
    }

    fn record_outcome(&mut self, line: &crate::outcome::OutcomeLine) -> Result<(), RunFileError> {
        self.ledger.outcome(line)?;
        self.notify_outcome(line);
        Ok(())
    }

    fn notify_outcome(&mut self, line: &crate::outcome::OutcomeLine) {
        self.progress.count_outcome(line);
        self.watcher.outcome(line);
    }

    /// Progress is reported after the write, so everything that is shown as finished is on disk.
    fn tick(&mut self) -> Result<(), RunFileError> {
        // What is shown as done is on disk.
        self.ledger.write_all()?;
        self.report_progress();
        Ok(())
    }

    fn report_progress(&mut self) {
        self.progress.elapsed = self.started.elapsed();
        self.progress.in_flight = self.tasks.len();
        if let Some(judge) = &self.judge {
            self.progress.calls = judge.client.call_count();
            self.progress.limit = judge.client.limiter().limit();
            self.progress.loading = judge.client.loading_for();
        }
        self.watcher.tick(&self.progress);
    }

    fn interrupt(&mut self) {
        // While the server is loading its model there is nothing to wait for.
        let is_loading = self.judge.as_ref().is_some_and(|judge| judge.client.loading_for().is_some());
        if self.stopping == Some(RunTermination::Interrupted) || is_loading {
            self.stopping = Some(RunTermination::Interrupted);
            self.tasks.abort_all();
            return;
        }
        self.stopping = Some(RunTermination::Interrupted);
        self.deadline = Some(Instant::now() + GRACE);
    }

    /// The first deadline stops the run and starts the grace period; the second one drops the questions in flight.
    fn at_deadline(&mut self) {
        self.deadline = None;
        match (&self.stopping, self.limits.max_time) {
            (None, Some(time)) => {
                self.stopping = Some(RunTermination::Limit(format!("the limit of {} s is reached", time.as_secs())));
                self.deadline = Some(Instant::now() + GRACE);
            }
            _ => self.tasks.abort_all(),
        }
    }

    /// Closes the ledger. A run that ends in a row of failures counts as stopped by its endpoint, so that it can be
    /// resumed.
    fn finish_run(mut self) -> Result<RunTermination, RunFileError> {
        self.ledger.close()?;
        self.report_progress();
        let died = (self.failures_in_a_row >= FAILURES_AT_THE_END)
            .then(|| RunTermination::EndpointDied(self.last_failure.clone()));
        Ok(self.stopping.take().or(died).unwrap_or(RunTermination::Finished))
    }
}

fn calls_reached(most: u64) -> String {
    format!("the limit of {most} {} is reached", if most == 1 { "call" } else { "calls" })
}
