//! The ledger of a live run. Verdicts go to the verdict cache first and then to the store, and stay in memory until the
//! store has confirmed them.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gradus_core::trajectory::Trajectory;
use gradus_eval::evaluator::Evaluator;
use gradus_eval::outcome::{OutcomeKind, OutcomeLine};
use gradus_eval::run::{CachedVerdict, QuestionKey, RunFileError, StateFolder, VerdictCache};
use gradus_eval::runner::{QuestionCost, RunLedger};
use gradus_store::{JudgeSpend, OutcomeRecord, RemainingGrading, Store, StoreError, UngradedTrajectory, WriteHandle};
use tokio::time::Instant;

use super::record::{EvaluatorScales, build_outcome_record};
use crate::clock::now_ns;
use crate::state::ServerState;

/// Implements the runner's ledger on the store. The runner calls it from one task; confirmations arrive on others.
pub(super) struct StoreLedger {
    server: Arc<ServerState>,
    rule: String,
    cache: VerdictCache,
    at_work: ActiveTrajectories,
    /// Whether calls are charged with the verdicts. Where servers share the store, each call is charged when it is
    /// settled.
    charges_calls: bool,
}

impl StoreLedger {
    pub(super) fn open(
        server: &Arc<ServerState>,
        rule: String,
        at_work: ActiveTrajectories,
    ) -> Result<StoreLedger, RunFileError> {
        let cache = open_verdict_cache(&server.settings.data)?;
        let charges_calls = !server.store.is_shared();
        Ok(StoreLedger { server: Arc::clone(server), rule, cache, at_work, charges_calls })
    }
}

/// The cache is the same file that `gradus eval` uses in this folder, so an answered question is never paid for twice.
fn open_verdict_cache(data: &Path) -> Result<VerdictCache, RunFileError> {
    VerdictCache::open(&StateFolder::open(data)?.cache_path())
}

impl RunLedger for StoreLedger {
    // The store already has the trajectory. False: it was not answered before.
    fn store_trajectory(&mut self, _trajectory: &mut Trajectory) -> Result<bool, RunFileError> {
        Ok(false)
    }

    /// Sets how many outcomes a trajectory will get, so that the last one is recognised.
    fn set_question_count(&mut self, trajectory_id: &str, questions: usize) {
        if let Some(judging) = self.at_work.lock().get_mut(trajectory_id) {
            judging.left = Some(questions);
        }
    }

    /// Called for every outcome, also for those from the cache. A scored answer of the model ends the rule's pause.
    fn store_outcome(&mut self, line: &OutcomeLine) -> Result<(), RunFileError> {
        self.server.meters.record_outcome(line);
        if line.outcome == OutcomeKind::Failed
            && let Some(times) = self.server.judge_failure_log.record_occurrence()
        {
            // The reason may repeat recorded text, so it is in the outcome and not in the log.
            tracing::warn!(evaluator = &*line.evaluator, times, "the judge gave no verdict");
        }
        if line.outcome == OutcomeKind::Scored && line.calls > 0 {
            self.server.judge_pauses.end(&self.rule);
        }
        self.at_work.record_outcome(line);
        Ok(())
    }

    /// Counts the calls and the cost of a question when it ends, also without a verdict, so that a budget holds even
    /// where the endpoint does not report its usage.
    fn record_question_cost(&mut self, trajectory_id: &str, effort: QuestionCost) {
        if let Some(judging) = self.at_work.lock().get_mut(trajectory_id) {
            let calls = u64::from(effort.calls);
            self.server.meters.record_call_pricing(calls, effort.is_priced);
            if self.charges_calls {
                judging.unstored.spend.calls += calls;
                judging.unstored.spend.unpriced += if effort.is_priced { 0 } else { calls };
                judging.unstored.spend.cost_usd += effort.cost_usd;
            }
            judging.lacks_endpoint |= effort.is_endpoint_at_fault;
        }
    }

    fn find_cached_verdict(&mut self, key: QuestionKey) -> Result<Option<CachedVerdict>, RunFileError> {
        self.cache.get(key)
    }

    fn store_verdict(&mut self, key: QuestionKey, verdict: CachedVerdict) -> Result<(), RunFileError> {
        self.cache.add(key, verdict)
    }

    /// Writes the cache first: answers were paid for, and the cache is kept even if the store fails.
    fn write(&mut self) -> Result<(), RunFileError> {
        self.cache.write()?;
        self.at_work.write(&self.server.store).map_err(|error| RunFileError {
            path: self.server.store.location(),
            reason: std::io::Error::other(error.to_string()),
        })
    }
}

/// The trajectories that are being judged; clones share them.
#[derive(Clone, Default)]
pub(super) struct ActiveTrajectories(Arc<LedgerState>);

/// Shared by the ledger, the feeding task and the tasks that wait for writes.
#[derive(Default)]
struct LedgerState {
    judging: Mutex<HashMap<String, TrajectoryJudgingState>>,
    /// Whether the last write failed. The failure is logged once, and not for every trajectory.
    is_store_failing: AtomicBool,
    scales: EvaluatorScales,
}

/// One trajectory from the first question until the store has confirmed the last outcome.
struct TrajectoryJudgingState {
    ungraded: UngradedTrajectory,
    /// The tool of each step, by step index, for the rollups by tool.
    tools: HashMap<u32, String>,
    /// Outcomes that are still expected; `None` until the trajectory is planned.
    left: Option<usize>,
    /// Outcomes and spending that are not passed to the store yet.
    unstored: PendingOutcomes,
    /// At most one write is under way, so that the state of the last one holds for all before it.
    is_being_written: bool,
    /// Whether some question got no verdict.
    has_failed: bool,
    /// Whether some question got no verdict because the endpoint was unreachable or failing.
    lacks_endpoint: bool,
}

/// Outcomes and spending that are to be stored in one transaction.
#[derive(Default)]
struct PendingOutcomes {
    outcomes: Vec<OutcomeRecord>,
    spend: JudgeSpend,
}

/// Seconds until a question without a verdict is asked again, by attempt. After the last attempt it stays without one.
const RETRY_DELAYS_S: [i64; 3] = [60, 600, 3_600];
/// Seconds until a trajectory is tried again when the endpoint was unavailable. The delay doubles up to an hour,
/// without a limit on attempts.
const FIRST_POSTPONEMENT_S: i64 = 60;
const MAX_POSTPONEMENT_S: i64 = 3_600;
/// How long a stopping server waits for a store that accepts nothing.
const MAX_FINAL_WRITE_WAIT: Duration = Duration::from_secs(8);
const WRITE_POLL_INTERVAL: Duration = Duration::from_millis(50);

impl TrajectoryJudgingState {
    /// Whether all planned outcomes have arrived.
    fn is_done(&self) -> bool {
        self.left == Some(0)
    }

    /// Whether something has to be stored. True for a finished trajectory even without outcomes: the store must
    /// remove it from the queue.
    fn has_unstored(&self) -> bool {
        self.is_done() || !self.unstored.outcomes.is_empty() || self.unstored.spend.calls > 0
    }

    /// Returns what the queue should do with the trajectory. Answers are in the cache, so a retry asks only the
    /// failed questions.
    fn remaining_grading(&self) -> RemainingGrading {
        if !self.is_done() {
            return RemainingGrading::More;
        }
        if self.lacks_endpoint {
            return postpone_grading(&self.ungraded);
        }
        match RETRY_DELAYS_S.get(self.ungraded.attempts as usize) {
            Some(seconds) if self.has_failed => RemainingGrading::RetryAt { ns: now_ns() + seconds * 1_000_000_000 },
            _ => RemainingGrading::Nothing,
        }
    }
}

/// Delays grading without counting an attempt.
pub(super) fn postpone_grading(ungraded: &UngradedTrajectory) -> RemainingGrading {
    let seconds = (FIRST_POSTPONEMENT_S << ungraded.delays.min(10)).min(MAX_POSTPONEMENT_S);
    RemainingGrading::PostponedUntil { ns: now_ns() + seconds * 1_000_000_000 }
}

impl ActiveTrajectories {
    pub(super) fn for_evaluators(evaluators: &[Evaluator]) -> ActiveTrajectories {
        ActiveTrajectories(Arc::new(LedgerState {
            scales: EvaluatorScales::from_evaluators(evaluators),
            ..LedgerState::default()
        }))
    }

    /// Registers a trajectory before it is handed to the runner.
    pub(super) fn begin(&self, ungraded: UngradedTrajectory, trajectory: &Trajectory) {
        let tools = trajectory.steps.iter().map(|step| (step.index, step.tool.clone())).collect();
        let spend = JudgeSpend { rule: ungraded.rule.clone(), ..JudgeSpend::default() };
        let judging = TrajectoryJudgingState {
            ungraded,
            tools,
            left: None,
            unstored: PendingOutcomes { outcomes: Vec::new(), spend },
            is_being_written: false,
            has_failed: false,
            lacks_endpoint: false,
        };
        self.lock().insert(trajectory.trajectory_id.clone(), judging);
    }

    /// Returns the project of a trajectory that is being judged.
    pub(super) fn project(&self, trajectory_id: &str) -> Option<String> {
        self.lock().get(trajectory_id).map(|judging| judging.ungraded.project.clone())
    }

    pub(super) fn contains(&self, trajectory_id: &str) -> bool {
        self.lock().contains_key(trajectory_id)
    }

    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    /// Records an outcome. Ignored for a trajectory that is not registered: it was completed before.
    fn record_outcome(&self, line: &OutcomeLine) {
        if let Some(judging) = self.lock().get_mut(&*line.trajectory_id) {
            judging.unstored.outcomes.push(build_outcome_record(line, &judging.tools, &self.0.scales));
            judging.has_failed |= line.outcome == OutcomeKind::Failed;
            judging.left = judging.left.map(|left| left.saturating_sub(1));
        }
    }

    /// Passes outcomes to the store. A busy store is not an error: they are passed with the next write.
    fn write(&self, store: &Store) -> Result<(), StoreError> {
        for (id, judging) in self.lock().iter_mut() {
            if judging.is_being_written || !judging.has_unstored() {
                continue;
            }
            let (outcomes, spend) = (judging.unstored.outcomes.clone(), judging.unstored.spend.clone());
            let is_done = judging.is_done();
            match store.record_verdicts(&judging.ungraded, outcomes, spend, judging.remaining_grading(), now_ns()) {
                Ok(written) => {
                    judging.is_being_written = true;
                    let next = JudgeSpend { rule: judging.ungraded.rule.clone(), ..JudgeSpend::default() };
                    let handed =
                        std::mem::replace(&mut judging.unstored, PendingOutcomes { outcomes: Vec::new(), spend: next });
                    tokio::spawn(self.clone().finish_write(id.clone(), handed, is_done, written));
                }
                Err(StoreError::Busy) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Handles the confirmation of a write. A failed write goes back in front of newer outcomes. A trajectory is
    /// removed only when the store has taken it off the queue, since it would be claimed again before.
    async fn finish_write(self, id: String, handed: PendingOutcomes, is_done: bool, written: WriteHandle<()>) {
        let written = written.wait_async().await;
        let was_failing = self.0.is_store_failing.swap(written.is_err(), Ordering::Relaxed);
        let mut at_work = self.lock();
        let Some(judging) = at_work.get_mut(&id) else { return };
        judging.is_being_written = false;
        match written {
            Ok(()) if is_done => drop(at_work.remove(&id)),
            Ok(()) => {}
            Err(error) => {
                judging.unstored.outcomes.splice(0..0, handed.outcomes);
                judging.unstored.spend.calls += handed.spend.calls;
                judging.unstored.spend.unpriced += handed.spend.unpriced;
                judging.unstored.spend.cost_usd += handed.spend.cost_usd;
                if !was_failing {
                    tracing::error!(%error, "failed to store verdicts; retrying");
                }
            }
        }
    }

    /// Waits until the store has everything, because spending is recorded nowhere else. A stopping server waits for
    /// [`MAX_FINAL_WRITE_WAIT`] only.
    pub(super) async fn wait_until_written(&self, store: &Store, is_stopping: impl Fn() -> bool) {
        let mut until = None;
        loop {
            if let Err(error) = self.write(store) {
                tracing::error!(%error, "failed to store verdicts; they will be read from the verdict cache again");
                return;
            }
            if !self.lock().values().any(|judging| judging.is_being_written || judging.has_unstored()) {
                return;
            }
            if is_stopping() && Instant::now() > *until.get_or_insert(Instant::now() + MAX_FINAL_WRITE_WAIT) {
                tracing::error!("the store accepts no writes; verdicts will be read from the verdict cache again");
                return;
            }
            tokio::time::sleep(WRITE_POLL_INTERVAL).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, TrajectoryJudgingState>> {
        self.0.judging.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
#[path = "ledger_tests.rs"]
mod tests;
