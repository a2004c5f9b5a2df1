//! Where a run of live grading writes: verdicts go to the cache first and then to the store, and are kept here until the
//! store has said that it has them.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gradus_core::trajectory::Trajectory;
use gradus_eval::evaluator::Evaluator;
use gradus_eval::outcome::{OutcomeKind, OutcomeLine};
use gradus_eval::prompt::TruncatedValue;
use gradus_eval::run::{CachedVerdict, QuestionKey, RunFileError, StateFolder, VerdictCache};
use gradus_eval::runner::{QuestionCost, RunLedger};
use gradus_eval::verdict::ParsedVerdict;
use gradus_store::{JudgeSpend, OutcomeRecord, RemainingGrading, Store, StoreError, UngradedTrajectory, WriteHandle};
use tokio::time::Instant;

use super::record::{EvaluatorScales, outcome_record};
use crate::clock::now_ns;
use crate::state::ServerState;

/// Writes a run's outcomes to the store.
pub(super) struct StoreLedger {
    server: Arc<ServerState>,
    rule: String,
    cache: VerdictCache,
    at_work: ActiveTrajectories,
}

impl StoreLedger {
    pub(super) fn open(
        server: &Arc<ServerState>,
        rule: String,
        at_work: ActiveTrajectories,
    ) -> Result<StoreLedger, RunFileError> {
        let cache = open_cache(&server.settings.data)?;
        Ok(StoreLedger { server: Arc::clone(server), rule, cache, at_work })
    }
}

fn open_cache(data: &Path) -> Result<VerdictCache, RunFileError> {
    VerdictCache::open(&StateFolder::open(data)?.cache_path())
}

impl RunLedger for StoreLedger {
    fn trajectory(&mut self, _trajectory: &mut Trajectory) -> Result<bool, RunFileError> {
        Ok(false)
    }

    fn planned(&mut self, trajectory_id: &str, questions: usize) {
        if let Some(judging) = self.at_work.lock().get_mut(trajectory_id) {
            judging.left = Some(questions);
        }
    }

    fn outcome(&mut self, line: &OutcomeLine) -> Result<(), RunFileError> {
        self.server.meters.record_outcome(line);
        if line.outcome == OutcomeKind::Failed
            && let Some(times) = self.server.judge_fails.record_occurrence()
        {
            // Why is in the outcome: it may repeat what was recorded.
            tracing::warn!(evaluator = &*line.evaluator, times, "the judge gave no verdict");
        }
        if line.outcome == OutcomeKind::Scored && line.calls > 0 {
            self.server.standstills.end(&self.rule);
        }
        self.at_work.record_outcome(line);
        Ok(())
    }

    /// A budget holds also where the endpoint does not say what it used.
    fn asked(&mut self, trajectory_id: &str, effort: QuestionCost) {
        if let Some(judging) = self.at_work.lock().get_mut(trajectory_id) {
            let calls = u64::from(effort.calls);
            judging.news.spend.calls += calls;
            judging.news.spend.unpriced += if effort.is_priced { 0 } else { calls };
            self.server.meters.record_call_pricing(calls, effort.is_priced);
            judging.news.spend.cost_usd += effort.cost_usd;
            judging.lacks_endpoint |= effort.is_endpoint_at_fault;
        }
    }

    fn cached(&mut self, key: QuestionKey) -> Result<Option<CachedVerdict>, RunFileError> {
        self.cache.get(key)
    }

    fn cache(
        &mut self,
        key: QuestionKey,
        reading: &ParsedVerdict,
        shortened: &[TruncatedValue],
    ) -> Result<(), RunFileError> {
        self.cache.add(key, CachedVerdict::new(reading, shortened))
    }

    /// Verdicts go to the cache first: they were paid for, and from there they are never lost.
    fn write(&mut self) -> Result<(), RunFileError> {
        self.cache.write()?;
        self.at_work.write(&self.server.store).map_err(|error| RunFileError {
            path: self.server.store.path().display().to_string(),
            reason: std::io::Error::other(error.to_string()),
        })
    }
}

/// The trajectories that are being judged.
#[derive(Clone, Default)]
pub(super) struct ActiveTrajectories(Arc<LedgerState>);

#[derive(Default)]
struct LedgerState {
    judging: Mutex<HashMap<String, TrajectoryJudgingState>>,
    /// The store did not take what it was given last; said once, not for every trajectory.
    is_store_failing: AtomicBool,
    scales: EvaluatorScales,
}

struct TrajectoryJudgingState {
    ungraded: UngradedTrajectory,
    tools: HashMap<u32, String>,
    /// Outcomes that are still to come; not known before the trajectory is planned.
    left: Option<usize>,
    /// What the store does not have yet, without what is being written.
    news: PendingOutcomes,
    /// One write at a time: so what the last one says of what is left holds for all that came before it.
    is_being_written: bool,
    /// Some question got no answer.
    has_failed: bool,
    /// Some question got none because the endpoint gives none.
    lacks_endpoint: bool,
}

/// What is to be stored of a trajectory.
#[derive(Default)]
struct PendingOutcomes {
    outcomes: Vec<OutcomeRecord>,
    spend: JudgeSpend,
}

/// How long a question that got no answer waits before it is asked again. After the last it stays without one.
const AGAIN_AFTER_S: [i64; 3] = [60, 600, 3_600];
/// How long a trajectory waits when there was nobody to answer: twice as long each time, up to an hour, without an end.
const PUT_OFF_S: i64 = 60;
const MAX_PUT_OFF_S: i64 = 3_600;
/// How long a server that stops waits for a store that takes nothing.
const LAST_WRITES: Duration = Duration::from_secs(8);
const POLL: Duration = Duration::from_millis(50);

impl TrajectoryJudgingState {
    fn is_done(&self) -> bool {
        self.left == Some(0)
    }

    fn has_news(&self) -> bool {
        self.is_done() || !self.news.outcomes.is_empty() || self.news.spend.calls > 0
    }

    /// Answers that were given are in the cache: only the others are asked for again.
    fn what_is_left(&self) -> RemainingGrading {
        if !self.is_done() {
            return RemainingGrading::More;
        }
        if self.lacks_endpoint {
            return put_off(&self.ungraded);
        }
        match AGAIN_AFTER_S.get(self.ungraded.attempts as usize) {
            Some(seconds) if self.has_failed => RemainingGrading::AgainAt { ns: now_ns() + seconds * 1_000_000_000 },
            _ => RemainingGrading::Nothing,
        }
    }
}

/// It waits, and loses none of its attempts.
pub(super) fn put_off(ungraded: &UngradedTrajectory) -> RemainingGrading {
    let seconds = (PUT_OFF_S << ungraded.delays.min(10)).min(MAX_PUT_OFF_S);
    RemainingGrading::PutOff { ns: now_ns() + seconds * 1_000_000_000 }
}

impl ActiveTrajectories {
    pub(super) fn for_evaluators(evaluators: &[Evaluator]) -> ActiveTrajectories {
        ActiveTrajectories(Arc::new(LedgerState {
            scales: EvaluatorScales::from_evaluators(evaluators),
            ..LedgerState::default()
        }))
    }

    pub(super) fn begin(&self, ungraded: UngradedTrajectory, trajectory: &Trajectory) {
        let tools = trajectory.steps.iter().map(|step| (step.index, step.tool.clone())).collect();
        let spend = JudgeSpend { rule: ungraded.rule.clone(), ..JudgeSpend::default() };
        let judging = TrajectoryJudgingState {
            ungraded,
            tools,
            left: None,
            news: PendingOutcomes { outcomes: Vec::new(), spend },
            is_being_written: false,
            has_failed: false,
            lacks_endpoint: false,
        };
        self.lock().insert(trajectory.trajectory_id.clone(), judging);
    }

    pub(super) fn contains(&self, trajectory_id: &str) -> bool {
        self.lock().contains_key(trajectory_id)
    }

    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    fn record_outcome(&self, line: &OutcomeLine) {
        if let Some(judging) = self.lock().get_mut(&*line.trajectory_id) {
            judging.news.outcomes.push(outcome_record(line, &judging.tools, &self.0.scales));
            judging.has_failed |= line.outcome == OutcomeKind::Failed;
            judging.left = judging.left.map(|left| left.saturating_sub(1));
        }
    }

    /// Hands to the store what it does not have yet. What finds no room is handed over the next time.
    fn write(&self, store: &Store) -> Result<(), StoreError> {
        for (id, judging) in self.lock().iter_mut() {
            if judging.is_being_written || !judging.has_news() {
                continue;
            }
            let (outcomes, spend) = (judging.news.outcomes.clone(), judging.news.spend.clone());
            let is_done = judging.is_done();
            match store.record_verdicts(&judging.ungraded, outcomes, spend, judging.what_is_left(), now_ns()) {
                Ok(written) => {
                    judging.is_being_written = true;
                    let next = JudgeSpend { rule: judging.ungraded.rule.clone(), ..JudgeSpend::default() };
                    let handed =
                        std::mem::replace(&mut judging.news, PendingOutcomes { outcomes: Vec::new(), spend: next });
                    tokio::spawn(self.clone().finish_write(id.clone(), handed, is_done, written));
                }
                Err(StoreError::Busy) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// A trajectory is at work until the store says that it waits no more: else it would be taken up again.
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
                judging.news.outcomes.splice(0..0, handed.outcomes);
                judging.news.spend.calls += handed.spend.calls;
                judging.news.spend.unpriced += handed.spend.unpriced;
                judging.news.spend.cost_usd += handed.spend.cost_usd;
                if !was_failing {
                    tracing::error!(%error, "failed to store verdicts; retrying");
                }
            }
        }
    }

    /// Waits until the store has everything: what was spent is nowhere else. A server that stops waits a while only.
    pub(super) async fn wait_until_written(&self, store: &Store, is_stopping: impl Fn() -> bool) {
        let mut until = None;
        loop {
            if let Err(error) = self.write(store) {
                tracing::error!(%error, "failed to store verdicts; they will be read from the verdict cache again");
                return;
            }
            if !self.lock().values().any(|judging| judging.is_being_written || judging.has_news()) {
                return;
            }
            if is_stopping() && Instant::now() > *until.get_or_insert(Instant::now() + LAST_WRITES) {
                tracing::error!("the store accepts no writes; verdicts will be read from the verdict cache again");
                return;
            }
            tokio::time::sleep(POLL).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, TrajectoryJudgingState>> {
        self.0.judging.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
#[path = "ledger_tests.rs"]
mod tests;
