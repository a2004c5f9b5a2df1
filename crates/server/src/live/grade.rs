//! Judging by models. Each rule with a model has one run that continues while trajectories wait and the budget lasts.
//! The queue is in the store, so a restart continues where it stopped.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gradus_core::trajectory::Trajectory;
use gradus_eval::runner::{self, QuestionScope, RunLimits, RunPlan, RunTermination};
use gradus_eval::shared::QuestionCoordinator;
use gradus_store::{StoreError, UngradedTrajectory};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::ledger::{ActiveTrajectories, StoreLedger};
use super::regrade::reassemble_trajectories;
use super::reroute::reroute_ungraded;
use crate::clock::{DAY_NS, now_ns, today_ns};
use crate::grading_rule::GradingRule;
use crate::judge_pause::JudgePauseReason;
use crate::settings::ReloadableSettings;
use crate::state::ServerState;
use crate::store_coordinator::StoreCoordinator;

/// One task for each rule that asks a model, and one that reroutes trajectories of removed rules.
pub(super) struct GraderTasks {
    stop: Arc<AtomicBool>,
    all: JoinHandle<()>,
}

/// How often tasks look for new work and for a stop.
const GRADER_POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Number of trajectories that are fetched and assembled at once.
const UNGRADED_PER_FETCH: usize = 32;
/// Maximum number of trajectories that are being judged or whose verdicts are not stored yet, so that judging stops
/// while the store accepts nothing.
const MAX_ACTIVE_TRAJECTORIES: usize = 1_000;
/// Minimum pause after a failed run. It doubles with each failure in a row, up to `MAX_PAUSE` (exponential backoff).
const MIN_PAUSE: Duration = Duration::from_secs(2);
const MAX_PAUSE: Duration = Duration::from_secs(300);
/// How often the ungraded queue is checked for trajectories of removed rules.
const REROUTE_INTERVAL: Duration = Duration::from_secs(10);

impl GraderTasks {
    pub(super) fn start(server: &Arc<ServerState>) -> GraderTasks {
        GraderTasks::start_after(server, None)
    }

    /// Replaces the rules. Questions in flight are finished by the old tasks before the new ones start.
    pub(super) fn restart(&mut self, server: &Arc<ServerState>) {
        self.stop.store(true, Ordering::Relaxed);
        let old = std::mem::replace(&mut self.all, tokio::spawn(async {}));
        *self = GraderTasks::start_after(server, Some(old));
    }

    /// Starts the tasks of all rules once `before` has ended.
    fn start_after(server: &Arc<ServerState>, before: Option<JoinHandle<()>>) -> GraderTasks {
        let stop = Arc::new(AtomicBool::new(false));
        let reloadable = server.reloadable();
        let mut graders = Vec::new();
        for number in 0..reloadable.rules.len() {
            if reloadable.rules[number].asks_model() {
                graders.push(RuleGrader {
                    server: Arc::clone(server),
                    reloadable: Arc::clone(&reloadable),
                    number,
                    stop: Arc::clone(&stop),
                });
            }
        }
        let (routing, is_over) = ((Arc::clone(server), Arc::clone(&reloadable)), Arc::clone(&stop));
        let all = tokio::spawn(async move {
            if let Some(before) = before {
                // Two runs of one rule at the same time would ask, and pay for, the same questions.
                let _ = before.await;
            }
            let mut tasks = tokio::task::JoinSet::new();
            tasks.spawn(reroute_until_stopped(routing.0, routing.1, is_over));
            graders.into_iter().for_each(|grader| drop(tasks.spawn(Arc::new(grader).run())));
            tasks.join_all().await;
        });
        GraderTasks { stop, all }
    }

    /// Waits for questions in flight. The caller bounds the time.
    pub(super) async fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.all.await;
    }
}

/// Moves trajectories that wait for a removed rule, for as long as the rules are in force. It repeats, because assembly
/// under way may still queue trajectories for the rules from before.
async fn reroute_until_stopped(server: Arc<ServerState>, reloadable: Arc<ReloadableSettings>, stop: Arc<AtomicBool>) {
    let is_over = || stop.load(Ordering::Relaxed) || server.is_stopping.load(Ordering::Relaxed);
    while !is_over() {
        let (store, rules) = (Arc::clone(&server.store), Arc::clone(&reloadable));
        let routed = tokio::task::spawn_blocking(move || reroute_ungraded(&store, &rules.rules)).await;
        match routed {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(%error, "failed to reassign trajectories that wait for a model"),
            Err(error) => tracing::error!(%error, "failed to reassign trajectories that wait for a model"),
        }
        let until = tokio::time::Instant::now() + REROUTE_INTERVAL;
        while tokio::time::Instant::now() < until && !is_over() {
            tokio::time::sleep(GRADER_POLL_INTERVAL).await;
        }
    }
}

/// The grader of one rule. `number` is its index in `reloadable`.
struct RuleGrader {
    server: Arc<ServerState>,
    reloadable: Arc<ReloadableSettings>,
    number: usize,
    stop: Arc<AtomicBool>,
}

impl RuleGrader {
    fn rule(&self) -> &GradingRule {
        &self.reloadable.rules[self.number]
    }

    fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.server.is_stopping.load(Ordering::Relaxed)
    }

    /// Repeats runs until the rules are replaced or the server stops. Failures pause the rule; budget limits pause it
    /// for [`MAX_PAUSE`].
    async fn run(self: Arc<Self>) {
        let rule = self.rule().name.clone();
        let mut pause = MIN_PAUSE;
        while !self.is_stopping() {
            // A task of its own, so that a panic ends this run only.
            let grader = Arc::clone(&self);
            let run = tokio::spawn(async move { grader.run_once().await });
            match run.await.unwrap_or_else(|panic| Err(panic.into())) {
                Ok(RunTermination::Finished) => pause = MIN_PAUSE,
                Ok(RunTermination::Limit(_)) if self.is_stopping() => {}
                Ok(RunTermination::Limit(reason)) => {
                    self.begin_pause(JudgePauseReason::Budget, reason.clone());
                    tracing::warn!(rule, %reason, "budget exhausted; judging resumes when it resets at 00:00 UTC");
                    self.sleep(MAX_PAUSE).await;
                }
                Ok(RunTermination::Interrupted) => {}
                Ok(RunTermination::Endpoint { failure, .. }) => {
                    self.begin_pause(JudgePauseReason::Judge, failure.to_string());
                    tracing::error!(rule, %failure, pause_s = pause.as_secs(), "the judge is unavailable");
                    self.sleep(pause).await;
                    pause = (pause * 2).min(MAX_PAUSE);
                }
                Ok(RunTermination::EndpointDied(reason)) => {
                    self.begin_pause(JudgePauseReason::Judge, reason.clone());
                    tracing::error!(rule, %reason, pause_s = pause.as_secs(), "the judge stopped answering");
                    self.sleep(pause).await;
                    pause = (pause * 2).min(MAX_PAUSE);
                }
                Err(error) => {
                    self.begin_pause(JudgePauseReason::Judge, error.to_string());
                    tracing::error!(rule, %error, "judging failed");
                    // An unreachable database is retried soon: a retry costs nothing, and other work waits for it.
                    pause = if error.is::<StoreError>() { MIN_PAUSE } else { pause };
                    self.sleep(pause).await;
                    pause = (pause * 2).min(MAX_PAUSE);
                }
            }
        }
    }

    /// Ends the recorded pause if no trajectory waits any more. Postponed trajectories still wait.
    async fn end_pause_if_idle(&self) -> anyhow::Result<()> {
        let rule = &self.rule().name;
        if self.server.judge_pauses.find_for_rule(rule).is_none() {
            return Ok(());
        }
        let (store, name) = (Arc::clone(&self.server.store), rule.clone());
        if tokio::task::spawn_blocking(move || store.rule_backlog(&name, 1)).await??.count == 0 {
            self.server.judge_pauses.end(rule);
        }
        Ok(())
    }

    /// Records the pause for the pages.
    fn begin_pause(&self, why: JudgePauseReason, reason: String) {
        self.server.judge_pauses.begin(&self.rule().name, why, reason, now_ns());
    }

    /// Sleeps in short steps, so that a stop is noticed within [`GRADER_POLL_INTERVAL`].
    async fn sleep(&self, pause: Duration) {
        let until = tokio::time::Instant::now() + pause;
        while tokio::time::Instant::now() < until && !self.is_stopping() {
            tokio::time::sleep(GRADER_POLL_INTERVAL).await;
        }
    }

    /// Judges waiting trajectories until the UTC day ends, the budget is spent, or the judge fails.
    async fn run_once(&self) -> anyhow::Result<RunTermination> {
        let rule = self.rule();
        if self.load_ungraded(0, 1).await?.is_empty() {
            self.end_pause_if_idle().await?;
            self.sleep(GRADER_POLL_INTERVAL).await;
            return Ok(RunTermination::Finished);
        }
        // The budget is read from the store: what an earlier process spent today counts.
        let mut max_cost_usd = None;
        if let Some(budget) = rule.daily_budget_usd {
            let spent = self.load_spent_today().await?;
            if spent >= budget {
                return Ok(RunTermination::Limit(format!("today's budget of ${budget} is spent")));
            }
            // Where servers share the store, every call is reserved from the budget of all.
            max_cost_usd = Some(budget - spent).filter(|_| !self.server.store.is_shared());
        }
        let plan = RunPlan {
            evaluators: rule.evaluators.iter().filter(|one| one.asks_model()).cloned().collect(),
            judge: rule.judge.clone().map(Into::into),
            tools: rule.tool_texts(),
            limits: RunLimits { concurrency: rule.concurrency, max_calls: None, max_cost_usd, max_time: None },
            ignore_cache: false,
        };
        let at_work = ActiveTrajectories::for_evaluators(&rule.evaluators);
        let mut ledger = StoreLedger::open(&self.server, rule.name.clone(), at_work.clone())?;
        let coordinator = self.server.store.is_shared().then(|| self.coordinator(at_work.clone()));
        let (sender, receiver) = mpsc::channel(2);
        let (interrupt, interrupts) = mpsc::unbounded_channel();
        let feeding = self.feed_ungraded(at_work.clone(), sender);
        let id = rule.run_id();
        let mut nobody = ();
        let scope = QuestionScope { selection: None, coordinator };
        let judging = runner::run_shared(plan, &id, scope, &mut ledger, receiver, interrupts, &mut nobody);
        tokio::select! {
            (end, fed) = async { tokio::join!(judging, feeding) } => {
                at_work.wait_until_written(&self.server.store, || self.is_stopping()).await;
                fed?;
                Ok(end?)
            }
            never = self.interrupt_when_stopping(interrupt) => match never {},
        }
    }

    /// Builds the coordinator that divides the questions among the servers on the database.
    fn coordinator(&self, at_work: ActiveTrajectories) -> Arc<dyn QuestionCoordinator> {
        let look_up_project = Box::new(move |trajectory_id: &str| at_work.project(trajectory_id));
        Arc::new(StoreCoordinator::new(&self.server, self.rule(), look_up_project, &self.stop))
    }

    /// Loads the spending of the rule since 00:00 UTC in dollars, rubric trials included.
    async fn load_spent_today(&self) -> anyhow::Result<f64> {
        let today = today_ns();
        let (store, name) = (Arc::clone(&self.server.store), self.rule().name.clone());
        let spent = tokio::task::spawn_blocking(move || store.load_spend_since(today, Some(&name), None)).await??;
        Ok(spent.cost_usd)
    }

    /// Interrupts the run when the server stops. Questions in flight are finished; the others stay in the store.
    /// Never returns, so that `select!` waits for the run.
    async fn interrupt_when_stopping(&self, interrupt: mpsc::UnboundedSender<()>) -> Infallible {
        while !self.is_stopping() {
            tokio::time::sleep(GRADER_POLL_INTERVAL).await;
        }
        let _ = interrupt.send(());
        std::future::pending().await
    }

    /// Loads the next waiting trajectories of the rule after the row number `after`, in order of that number.
    async fn load_ungraded(&self, after: i64, limit: usize) -> anyhow::Result<Vec<UngradedTrajectory>> {
        let (store, rule) = (Arc::clone(&self.server.store), self.rule().name.clone());
        Ok(tokio::task::spawn_blocking(move || store.ungraded_trajectories(&rule, now_ns(), after, limit)).await??)
    }

    /// Feeds waiting trajectories to the run until the UTC day ends, because a run has the budget of one day.
    async fn feed_ungraded(
        &self,
        at_work: ActiveTrajectories,
        sender: mpsc::Sender<Vec<Trajectory>>,
    ) -> anyhow::Result<()> {
        let today = now_ns().div_euclid(DAY_NS);
        let mut after = 0;
        let mut has_sent = false;
        while now_ns().div_euclid(DAY_NS) == today && !sender.is_closed() && !self.is_stopping() {
            if at_work.len() >= MAX_ACTIVE_TRAJECTORIES {
                tokio::time::sleep(GRADER_POLL_INTERVAL).await;
                continue;
            }
            let waiting = self.load_ungraded(after, UNGRADED_PER_FETCH).await?;
            // The run itself counts only its own questions. Trials of rubrics spend from the same budget.
            if !waiting.is_empty()
                && let Some(budget) = self.rule().daily_budget_usd
                && self.load_spent_today().await? >= budget
            {
                break;
            }
            let Some(last) = waiting.last() else {
                // A trajectory that was assembled again keeps its row number, so the next pass starts at the first row.
                after = 0;
                if !std::mem::take(&mut has_sent) {
                    tokio::time::sleep(GRADER_POLL_INTERVAL).await;
                }
                continue;
            };
            after = last.no;
            let wanted = waiting.into_iter().filter(|one| !at_work.contains(&one.trajectory_id)).collect();
            let store = Arc::clone(&self.server.store);
            let found = tokio::task::spawn_blocking(move || reassemble_trajectories(&store, wanted)).await??;
            let mut batch = Vec::with_capacity(found.len());
            for (one, trajectory) in found {
                at_work.begin(one, &trajectory);
                batch.push(trajectory);
            }
            if !batch.is_empty() {
                has_sent = true;
                if sender.send(batch).await.is_err() {
                    break;
                }
            }
        }
        Ok(())
    }
}
