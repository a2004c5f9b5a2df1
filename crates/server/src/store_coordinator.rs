//! Judging by several servers on one database. Each call is announced in the store before it is made: that reserves its
//! upper bound from the daily budget of the rule, and no two servers ask the same question at once.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gradus_eval::run::{CachedVerdict, QuestionKey, RunFileError};
use gradus_eval::shared::{CoordinatorFuture, QuestionCoordinator, QuestionIntent, QuestionPermit, QuestionTurn};
use gradus_store::{JudgeCall, JudgeSpend};

use crate::call_reservation::{CallReservation, CallTurn};
use crate::grading_rule::GradingRule;
use crate::state::ServerState;

/// Minimum and maximum wait between two checks of a call that another server makes, and while the database is
/// unreachable. The wait grows.
const MIN_WAIT: Duration = Duration::from_millis(50);
const MAX_WAIT: Duration = Duration::from_secs(1);
const STOPPING_REASON: &str = "the server is stopping";

/// Looks up the project of a trajectory that is judged, by its id; `None` if it is not known any more.
pub(crate) type ProjectLookup = Box<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Reserves and settles the calls that one rule pays for.
pub(crate) struct StoreCoordinator {
    server: Arc<ServerState>,
    rule: String,
    daily_budget_usd: Option<f64>,
    is_priced: bool,
    look_up_project: ProjectLookup,
    /// Set when the rules are replaced or the run is cancelled.
    stop: Arc<AtomicBool>,
}

impl StoreCoordinator {
    pub(crate) fn new(
        server: &Arc<ServerState>,
        rule: &GradingRule,
        look_up_project: ProjectLookup,
        stop: &Arc<AtomicBool>,
    ) -> StoreCoordinator {
        StoreCoordinator {
            server: Arc::clone(server),
            rule: rule.name.clone(),
            daily_budget_usd: rule.daily_budget_usd,
            is_priced: rule.judge.as_ref().is_some_and(|judge| judge.price.is_some()),
            look_up_project,
            stop: Arc::clone(stop),
        }
    }

    fn judge_call(&self, intent: &QuestionIntent) -> JudgeCall {
        JudgeCall {
            key: Some(intent.key.to_bytes()),
            rule: self.rule.clone(),
            project: (self.look_up_project)(&intent.trajectory_id).unwrap_or_default(),
            trajectory_id: intent.trajectory_id.to_string(),
            step: intent.step_index,
            rubric_hash: intent.rubric_hash.to_string(),
            judge: intent.judge.to_string(),
            max_cost_usd: intent.max_cost_usd,
            daily_budget_usd: self.daily_budget_usd,
        }
    }

    fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.server.is_stopping.load(Ordering::Relaxed)
    }

    /// Waits for a turn, also while the database is unreachable: an error would end the run, and with it paid calls
    /// in progress.
    async fn begin(&self, intent: QuestionIntent) -> QuestionTurn {
        let call = self.judge_call(&intent);
        let mut wait = MIN_WAIT;
        loop {
            match CallReservation::begin(&self.server.store, call.clone()).await {
                Ok(CallTurn::Held(hold)) => return QuestionTurn::Granted(self.build_permit(hold)),
                Ok(CallTurn::Answered(text)) => match serde_json::from_str(&text) {
                    Ok(verdict) => return QuestionTurn::Answered(verdict),
                    Err(error) => return QuestionTurn::Refused(format!("the stored answer cannot be read: {error}")),
                },
                Ok(CallTurn::Exhausted { spent_usd }) => {
                    let budget = self.daily_budget_usd.unwrap_or_default();
                    return QuestionTurn::Exhausted(format!(
                        "the next call could cost ${:.4} and go over today's budget of ${budget}; ${spent_usd:.4} is spent",
                        call.max_cost_usd
                    ));
                }
                Ok(CallTurn::Later) => {}
                Err(error) if wait == MIN_WAIT => {
                    tracing::warn!(rule = self.rule, %error, "failed to reserve the cost of a call; retrying");
                }
                Err(_) => {}
            }
            if self.is_stopping() {
                return QuestionTurn::Exhausted(STOPPING_REASON.to_owned());
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(MAX_WAIT);
        }
    }

    fn build_permit(&self, hold: CallReservation) -> Box<StorePermit> {
        Box::new(StorePermit {
            server: Arc::clone(&self.server),
            rule: self.rule.clone(),
            is_priced: self.is_priced,
            hold,
        })
    }
}

impl fmt::Debug for StoreCoordinator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreCoordinator").field("rule", &self.rule).finish_non_exhaustive()
    }
}

impl QuestionCoordinator for StoreCoordinator {
    // Answers of other servers are looked up together with the reservation.
    fn find_answer(&self, _key: QuestionKey) -> Result<Option<CachedVerdict>, RunFileError> {
        Ok(None)
    }

    fn begin_question(&self, intent: QuestionIntent) -> CoordinatorFuture<'_, QuestionTurn> {
        Box::pin(async move { Ok(self.begin(intent).await) })
    }
}

/// The right to make one call.
struct StorePermit {
    server: Arc<ServerState>,
    rule: String,
    is_priced: bool,
    hold: CallReservation,
}

impl StorePermit {
    /// Retries until the store has accepted it: the answer is paid for. A stopping server leaves the reservation to
    /// the others, which charge the upper bound.
    async fn settle(mut self: Box<Self>, answer: Option<CachedVerdict>, spend: JudgeSpend) -> Result<(), RunFileError> {
        let answer = answer.map(|answer| serde_json::to_string(&answer)).transpose();
        let answer =
            answer.map_err(|error| RunFileError { path: self.server.store.location(), reason: error.into() })?;
        let mut wait = MIN_WAIT;
        while let Err(error) = self.hold.settle(spend.clone(), answer.clone()).await {
            if self.server.is_stopping.load(Ordering::Relaxed) {
                tracing::error!(rule = self.rule, %error, "failed to record the cost of a call; its upper bound is charged");
                self.hold.leave_reserved();
                break;
            }
            if wait == MIN_WAIT {
                tracing::warn!(rule = self.rule, %error, "failed to record the cost of a call; retrying");
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(MAX_WAIT);
        }
        Ok(())
    }
}

impl fmt::Debug for StorePermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StorePermit").field("rule", &self.rule).finish_non_exhaustive()
    }
}

impl QuestionPermit for StorePermit {
    fn finish(
        self: Box<Self>,
        answer: Option<CachedVerdict>,
        cost_usd: f64,
        call_count: u32,
    ) -> CoordinatorFuture<'static, ()> {
        let calls = u64::from(call_count);
        let unpriced = if self.is_priced { 0 } else { calls };
        let spend = JudgeSpend { rule: self.rule.clone(), calls, unpriced, cost_usd };
        Box::pin(self.settle(answer, spend))
    }
}
