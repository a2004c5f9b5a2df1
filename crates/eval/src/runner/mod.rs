//! Runs the evaluators over trajectories: plans the questions, keeps a bounded number of them in flight, and records
//! every answer before it starts the next question.
//!
//! One task dispatches, and each question to a model is a task of its own. A question counts as in flight until its
//! outcome is in the journal. So whenever the process dies, at most the questions in flight are asked again.
//!
//! With several judges or repeats (`JudgePanel`) a question is a ballot: each vote is asked, cached and paid for like a
//! question of its own, and the last one turns the ballot into an outcome. A process that dies leaves the votes of open
//! ballots in the cache.

mod answered_questions;
mod asked_question;
mod ballot;
mod estimate;
mod evaluation_runner;
mod journal;
mod judge_health;
mod ledger;
mod panel;
mod plan;
mod progress;
mod question_selection;
mod question_task;
mod rules;
mod run_control;
mod run_plan;
mod shared_questions;
mod voting;

pub use answered_questions::AnsweredQuestions;
pub use estimate::{CostEstimator, EvaluatorEstimate, TYPICAL_ANSWER_TOKENS};
pub use ledger::{QuestionCost, RunLedger};
pub use panel::{DEFAULT_ESCALATION_REPEATS, EscalationPolicy, JudgePanel, MAX_VOTES, PanelError};
pub use progress::{ProgressWatcher, RunProgress};
pub use question_selection::QuestionSelection;
pub use rules::RulesJudge;
pub use run_plan::{RunLimits, RunPlan, RunTermination};

use std::sync::Arc;
use std::time::Duration;

use gradus_core::trajectory::Trajectory;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::run::{RunFileError, RunFolder, VerdictCache};
use crate::shared::QuestionCoordinator;
use evaluation_runner::EvaluationRunner;
use journal::RunJournal;

/// Maximum number of questions that are planned ahead: enough to show a total for most runs, few enough that their
/// trajectories fit in memory.
const MAX_PLANNED_AHEAD: usize = 500;
/// Interval of progress reports and of syncing the journal.
const TICK_INTERVAL: Duration = Duration::from_millis(200);

/// Interrupts a run: the first message lets questions in flight finish, the second one drops them.
pub type InterruptReceiver = mpsc::UnboundedReceiver<()>;

/// Judges trajectories until the channel closes, and stores the outcomes in the run's folder. A resumed run skips
/// questions that its journal already answers.
pub async fn run_evaluation(
    plan: RunPlan,
    folder: &RunFolder,
    cache: VerdictCache,
    trajectories: mpsc::Receiver<Vec<Trajectory>>,
    interrupts: InterruptReceiver,
    watcher: &mut (dyn ProgressWatcher + Send),
) -> Result<RunTermination, RunFileError> {
    run_selected(plan, None, folder, cache, trajectories, interrupts, watcher).await
}

/// Like [`run_evaluation`], for a selection of the questions; `None` asks all of them.
pub async fn run_selected(
    plan: RunPlan,
    selection: Option<QuestionSelection>,
    folder: &RunFolder,
    cache: VerdictCache,
    trajectories: mpsc::Receiver<Vec<Trajectory>>,
    interrupts: InterruptReceiver,
    watcher: &mut (dyn ProgressWatcher + Send),
) -> Result<RunTermination, RunFileError> {
    let mut cache = cache;
    folder.restore_cache(&mut cache)?;
    let done = answered_questions::read_answered_questions(folder)?;
    let mut journal = RunJournal::open(folder, cache)?;
    let runner = EvaluationRunner::new(plan, &folder.record.run_id, done, &mut journal, watcher);
    run_all_questions(runner.with_selection(selection), trajectories, interrupts).await
}

/// The questions that a run asks, and the coordinator of the processes that share them.
#[derive(Debug, Default)]
pub struct QuestionScope {
    /// `None` asks all of them.
    pub selection: Option<QuestionSelection>,
    /// `None` for a single process.
    pub coordinator: Option<Arc<dyn QuestionCoordinator>>,
}

/// Like [`run_selected`], with any ledger, and with answers and limits that several processes may share. A question
/// that a shared limit refuses is recorded as failed, and the run continues: rules still judge, and other processes
/// may have answered later questions. A temporarily exhausted limit stops the run.
pub async fn run_shared(
    plan: RunPlan,
    run_id: &str,
    scope: QuestionScope,
    ledger: &mut (dyn RunLedger + Send),
    trajectories: mpsc::Receiver<Vec<Trajectory>>,
    interrupts: InterruptReceiver,
    watcher: &mut (dyn ProgressWatcher + Send),
) -> Result<RunTermination, RunFileError> {
    let runner = EvaluationRunner::new(plan, run_id, AnsweredQuestions::default(), ledger, watcher);
    let runner = runner.with_selection(scope.selection).with_coordinator(scope.coordinator);
    run_all_questions(runner, trajectories, interrupts).await
}

/// The loop of a run: plans what arrives, starts questions, records answers, until nothing is left or a limit is
/// reached.
async fn run_all_questions(
    mut runner: EvaluationRunner<'_>,
    mut trajectories: mpsc::Receiver<Vec<Trajectory>>,
    mut interrupts: InterruptReceiver,
) -> Result<RunTermination, RunFileError> {
    let mut tick = tokio::time::interval(TICK_INTERVAL);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut source_ended = false;
    loop {
        runner.start_questions()?;
        let idle = runner.tasks.is_empty() && !runner.has_pending();
        if (runner.stopping.is_some() && runner.tasks.is_empty()) || (source_ended && idle) {
            break;
        }
        // Reading pauses while enough questions are planned, which is the backpressure towards the source.
        let wants_more = !source_ended && runner.stopping.is_none() && runner.pending.len() < MAX_PLANNED_AHEAD;
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
            Some(()) = interrupts.recv() => runner.handle_interrupt(),
            () = sleep_until(deadline), if deadline.is_some() => runner.handle_deadline(),
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
