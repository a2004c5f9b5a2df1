//! Runs a planned trial in the background, within the remainder of its limits.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gradus_core::trajectory::Trajectory;
use gradus_eval::rubric::{Rubric, RubricOrigin};
use gradus_eval::run::{StateFolder, VerdictCache};
use gradus_eval::runner::{self, QuestionScope, RunLimits, RunPlan, RunTermination};
use gradus_eval::shared::QuestionCoordinator;
use gradus_store::{Store, StoreError};
use tokio::sync::mpsc;

use super::folder::{BulkTrialFolder, BulkTrialFolderError};
use super::journal::BulkTrialLedger;
use super::plan::{BulkTrialCase, BulkTrialPlan, BulkTrialState, BulkTrialStatus};
use super::planner::{BulkTrialPlanError, build_trial_evaluator, find_model_rule, select_questions};
use crate::bulk_trial_registry::BulkTrialSlot;
use crate::clock::today_ns;
use crate::http_error::{ApiError, run_short_query};
use crate::state::ServerState;
use crate::store_coordinator::StoreCoordinator;
use crate::trace_group::TraceGroupView;

/// Number of trajectories that are read at once.
const TRAJECTORIES_PER_READ: usize = 8;
/// How often a stop of the server is checked for.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Why a trial cannot be started. Each message is a sentence for the page.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BulkTrialStartError {
    #[error("Another trial is running. Wait for it, or cancel it.")]
    Busy,
    #[error("This trial is finished.")]
    Finished,
    #[error(transparent)]
    Judge(BulkTrialPlanError),
    #[error("The judge of this project is {now} now; the trial was planned for {planned}. Plan it again.")]
    OtherJudge { planned: String, now: String },
    #[error("The trial has made {calls} of {max_calls} calls. Plan it again with a higher limit.")]
    NoCalls { calls: u64, max_calls: u64 },
    #[error("The rubric of this trial cannot be read: {0}")]
    Rubric(String),
    #[error("{0}")]
    Folder(#[from] BulkTrialFolderError),
    #[error("The journal of this trial cannot be written: {0}")]
    Journal(std::io::Error),
    #[error("The verdict cache cannot be read: {0}")]
    Cache(#[source] gradus_eval::run::RunFileError),
    #[error("{}", .0.message())]
    Query(ApiError),
}

/// Starts a planned trial, or continues one that was stopped. Answered questions are not asked again.
pub(crate) async fn start_bulk_trial(
    server: &Arc<ServerState>,
    folder: BulkTrialFolder,
) -> Result<(), BulkTrialStartError> {
    let plan = folder.load_plan()?;
    let (interrupt, interrupts) = mpsc::unbounded_channel();
    let slot = server.bulk_trials.begin(&plan.id, interrupt.clone()).ok_or(BulkTrialStartError::Busy)?;
    if folder.load_state()?.status == BulkTrialStatus::Finished {
        return Err(BulkTrialStartError::Finished);
    }
    let settings = server.reloadable();
    let (rule, judge) = find_model_rule(&settings, &plan.project).map_err(BulkTrialStartError::Judge)?;
    if judge.name() != plan.judge {
        return Err(BulkTrialStartError::OtherJudge { planned: plan.judge, now: judge.name() });
    }
    let rubric = Rubric::parse(&plan.text, RubricOrigin::BuiltIn)
        .map_err(|error| BulkTrialStartError::Rubric(error.to_string()))?;
    let record = folder.load_record()?;
    let max_calls = plan.limits.max_calls.saturating_sub(record.calls);
    if max_calls == 0 {
        return Err(BulkTrialStartError::NoCalls { calls: record.calls, max_calls: plan.limits.max_calls });
    }
    let mut max_cost_usd = plan.limits.max_cost_usd.map(|most| (most - record.cost_usd).max(0.0));
    // Where servers share the store, every call is reserved from the budget of all.
    if let Some(budget) = rule.daily_budget_usd.filter(|_| !server.store.is_shared()) {
        let name = rule.name.clone();
        let spent =
            run_short_query(server, move |server| Ok(server.store.load_spend_since(today_ns(), Some(&name), None)?));
        let left = (budget - spent.await.map_err(BulkTrialStartError::Query)?.cost_usd).max(0.0);
        max_cost_usd = Some(max_cost_usd.map_or(left, |most| most.min(left)));
    }
    let open: Vec<BulkTrialCase> =
        plan.cases.iter().filter(|case| !record.is_answered(&case.trajectory_id, case.step)).cloned().collect();
    let run_plan = RunPlan {
        evaluators: vec![build_trial_evaluator(&rubric, judge)],
        judge: Some(Arc::new(judge.with_own_calls(Some(max_calls))).into()),
        tools: rule.tool_texts(),
        limits: RunLimits { concurrency: rule.concurrency, max_calls: Some(max_calls), max_cost_usd, max_time: None },
        ignore_cache: false,
    };
    let cache = StateFolder::open(&server.settings.data).and_then(|state| VerdictCache::open(&state.cache_path()));
    let cache = cache.map_err(BulkTrialStartError::Cache)?;
    let ledger = BulkTrialLedger::open(server, &plan.rule, &plan.project, cache, &folder.journal_path())
        .map_err(BulkTrialStartError::Journal)?;
    folder.save_state(&BulkTrialState::new(BulkTrialStatus::Running, ""))?;
    let cancelled = Arc::new(AtomicBool::new(false));
    let coordinator = server.store.is_shared().then(|| {
        let project = plan.project.clone();
        let look_up_project = Box::new(move |_: &str| Some(project.clone()));
        Arc::new(StoreCoordinator::new(server, rule, look_up_project, &cancelled)) as Arc<dyn QuestionCoordinator>
    });
    let task = BulkTrialTask { server: Arc::clone(server), plan, folder, rubric, open, slot, coordinator, cancelled };
    tokio::spawn(task.run(run_plan, ledger, interrupt, interrupts));
    Ok(())
}

/// A trial that runs.
struct BulkTrialTask {
    server: Arc<ServerState>,
    plan: BulkTrialPlan,
    folder: BulkTrialFolder,
    rubric: Rubric,
    open: Vec<BulkTrialCase>,
    slot: BulkTrialSlot,
    /// Coordinates questions with the other servers on the database, and reserves their upper cost bound.
    coordinator: Option<Arc<dyn QuestionCoordinator>>,
    /// Set by a cancellation, so that waiting questions are abandoned.
    cancelled: Arc<AtomicBool>,
}

impl BulkTrialTask {
    async fn run(
        self,
        plan: RunPlan,
        mut ledger: BulkTrialLedger,
        interrupt: mpsc::UnboundedSender<()>,
        interrupts: runner::InterruptReceiver,
    ) {
        let selection = select_questions(&self.rubric, self.open.iter());
        let (sender, receiver) = mpsc::channel(1);
        let feeding = tokio::spawn(feed_trial_cases(Arc::clone(&self.server), self.open.clone(), sender));
        let stopping = tokio::spawn(interrupt_when_stopping(Arc::clone(&self.server), interrupt));
        let id = format!("trial-{}", self.plan.id);
        let mut nobody = ();
        let (forward, forwarded) = mpsc::unbounded_channel();
        let forwarding = tokio::spawn(forward_interrupts(interrupts, Arc::clone(&self.cancelled), forward));
        let scope = QuestionScope { selection: Some(selection), coordinator: self.coordinator.clone() };
        let end = runner::run_shared(plan, &id, scope, &mut ledger, receiver, forwarded, &mut nobody).await;
        stopping.abort();
        forwarding.abort();
        // The run has ended, so the channel is closed and feeding ends, too.
        let fed = feeding.await;
        let is_stopping = self.server.is_stopping.load(Ordering::Relaxed);
        // A question that was abandoned while it waited ends the run as a limit does.
        let end = end.map(|end| match end {
            RunTermination::Limit(_) if self.cancelled.load(Ordering::Relaxed) => RunTermination::Interrupted,
            end => end,
        });
        let state = match (end, fed) {
            (Err(error), _) => stopped(format!("It failed: {error}.")),
            (Ok(RunTermination::Finished), Ok(Ok(()))) => BulkTrialState::new(BulkTrialStatus::Finished, ""),
            (Ok(RunTermination::Finished), Ok(Err(error))) => stopped(format!("Traces could not be read: {error}.")),
            (Ok(RunTermination::Finished), Err(error)) => stopped(format!("Traces could not be read: {error}.")),
            (Ok(RunTermination::Limit(reason)), _) => stopped(format!("A limit was reached: {reason}.")),
            (Ok(RunTermination::Interrupted), _) if is_stopping => stopped("The server was stopped.".to_owned()),
            (Ok(RunTermination::Interrupted), _) => stopped("It was cancelled.".to_owned()),
            (Ok(RunTermination::Endpoint { failure, .. }), _) => {
                stopped(format!("The judge is unavailable: {failure}."))
            }
            (Ok(RunTermination::EndpointDied(reason)), _) => stopped(format!("The judge stopped answering: {reason}.")),
        };
        // Before the state is saved: an ended trial then always shows its full cost.
        if let Err(error) = ledger.settle_spend().await {
            tracing::error!(%error, "failed to charge the cost of a rubric trial to its grading rule");
        }
        if let Err(error) = self.folder.save_state(&state) {
            tracing::error!(%error, "failed to record the end of a rubric trial");
        }
        // After the state is saved: otherwise the trial would briefly appear neither running nor ended.
        drop(self.slot);
    }
}

fn stopped(reason: String) -> BulkTrialState {
    BulkTrialState::new(BulkTrialStatus::Stopped, reason)
}

/// Passes the trajectories of the cases to the run. Deleted trajectories are left out.
async fn feed_trial_cases(
    server: Arc<ServerState>,
    cases: Vec<BulkTrialCase>,
    sender: mpsc::Sender<Vec<Trajectory>>,
) -> Result<(), StoreError> {
    let mut known = HashSet::new();
    let ids: Vec<String> =
        cases.into_iter().map(|case| case.trajectory_id).filter(|id| known.insert(id.clone())).collect();
    for batch in ids.chunks(TRAJECTORIES_PER_READ) {
        let (store, batch) = (Arc::clone(&server.store), batch.to_vec());
        let read = tokio::task::spawn_blocking(move || load_trajectories(&store, &batch)).await;
        let read = read.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))?;
        if sender.send(read).await.is_err() {
            break;
        }
    }
    Ok(())
}

fn load_trajectories(store: &Store, ids: &[String]) -> Result<Vec<Trajectory>, StoreError> {
    let mut found = Vec::new();
    for id in ids {
        let Some(trace) = store.trace_of_trajectory(id)? else { continue };
        let Some(row) = store.trace(trace)? else { continue };
        let all = TraceGroupView::load(store, row.trace_group)?.trajectories;
        found.extend(all.into_iter().find(|one| one.trajectory_id == *id));
    }
    Ok(found)
}

/// Forwards interrupts to the run, and sets `cancelled` for questions that wait for their turn.
async fn forward_interrupts(
    mut interrupts: runner::InterruptReceiver,
    cancelled: Arc<AtomicBool>,
    forward: mpsc::UnboundedSender<()>,
) {
    while let Some(()) = interrupts.recv().await {
        cancelled.store(true, Ordering::Relaxed);
        if forward.send(()).is_err() {
            break;
        }
    }
}

/// Interrupts the run when the server stops. Questions in flight are finished; the rest can be continued after the
/// restart.
async fn interrupt_when_stopping(server: Arc<ServerState>, interrupt: mpsc::UnboundedSender<()>) {
    while !server.is_stopping.load(Ordering::Relaxed) {
        tokio::time::sleep(STOP_POLL_INTERVAL).await;
    }
    let _ = interrupt.send(());
}
