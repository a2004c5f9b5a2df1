//! A call to a judge that is reserved in the store, from the daily budget of its rule, until it is settled.

use std::sync::Arc;

use gradus_store::{CallAdmission, CallTicket, JudgeCall, JudgeSpend, Store, StoreError};

use crate::clock::{now_ns, today_ns};

/// A reserved call. Dropped without [`CallReservation::settle`], its upper bound is charged: it may have been billed.
pub(crate) struct CallReservation {
    store: Arc<Store>,
    project: String,
    /// `None` once it is settled, and where only one server uses the store.
    ticket: Option<CallTicket>,
}

/// Whether a call may be made now.
pub(crate) enum CallTurn {
    Held(CallReservation),
    /// Another server has asked the same question: its answer.
    Answered(String),
    Exhausted {
        spent_usd: f64,
    },
    Later,
}

/// Why a call may not be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallReservationError {
    #[error("today's budget of the rule does not cover it")]
    Budget { spent_usd: f64 },
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl CallReservation {
    /// Requests a reservation from the store.
    pub(crate) async fn begin(store: &Arc<Store>, call: JudgeCall) -> Result<CallTurn, StoreError> {
        let own = Arc::clone(store);
        let begin = move |store: &Store| {
            Ok(match store.begin_call(&call, now_ns())? {
                // Reserved from here on: dropping the future also drops the reservation.
                CallAdmission::Granted(ticket) => {
                    CallTurn::Held(CallReservation { store: own, project: call.project, ticket: Some(ticket) })
                }
                CallAdmission::Answered(text) => CallTurn::Answered(text),
                CallAdmission::Exhausted { spent_usd } => CallTurn::Exhausted { spent_usd },
                CallAdmission::Later => CallTurn::Later,
            })
        };
        run_on_store(store, begin).await
    }

    /// Reserves a single call from the budget of its rule, for the trial of a rubric or an anchor.
    pub(crate) async fn reserve(store: &Arc<Store>, call: JudgeCall) -> Result<CallReservation, CallReservationError> {
        if !store.is_shared() {
            check_own_budget(store, &call).await?;
            return Ok(CallReservation { store: Arc::clone(store), project: call.project, ticket: None });
        }
        let rule = call.rule.clone();
        match CallReservation::begin(store, call).await? {
            CallTurn::Held(hold) => Ok(hold),
            CallTurn::Exhausted { spent_usd } => Err(CallReservationError::Budget { spent_usd }),
            // Calls under way have reserved the rest.
            CallTurn::Later | CallTurn::Answered(_) => {
                let spent = run_on_store(store, move |store| store.load_spend_since(today_ns(), Some(&rule), None));
                Err(CallReservationError::Budget { spent_usd: spent.await?.cost_usd })
            }
        }
    }

    /// Charges the cost of the call. A failure changes nothing, so settling can be repeated.
    pub(crate) async fn settle(&mut self, spend: JudgeSpend, answer: Option<String>) -> Result<(), StoreError> {
        let Some(ticket) = self.ticket.clone() else {
            return self.store.record_spend(spend, self.project.clone(), now_ns())?.wait_async().await;
        };
        run_on_store(&self.store, move |store| store.settle_call(&ticket, spend, answer, now_ns())).await?;
        self.ticket = None;
        Ok(())
    }

    /// Leaves the reservation in the store, which charges it when this server is gone.
    pub(crate) fn leave_reserved(mut self) {
        self.ticket = None;
    }
}

impl Drop for CallReservation {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket.take() else { return };
        let store = Arc::clone(&self.store);
        // Without a runtime the process is ending, and the store charges the call.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn_blocking(move || {
                if let Err(error) = store.abandon_call(&ticket) {
                    tracing::warn!(%error, "failed to record the cost of a call that was given up");
                }
            });
        }
    }
}

/// Checks the budget by the spending so far, where only one server uses the store and nothing is reserved.
async fn check_own_budget(store: &Arc<Store>, call: &JudgeCall) -> Result<(), CallReservationError> {
    let Some(budget) = call.daily_budget_usd else { return Ok(()) };
    let rule = call.rule.clone();
    let spent = run_on_store(store, move |store| store.load_spend_since(today_ns(), Some(&rule), None)).await?;
    match spent.cost_usd + call.max_cost_usd > budget {
        true => Err(CallReservationError::Budget { spent_usd: spent.cost_usd }),
        false => Ok(()),
    }
}

/// Runs blocking work on the store outside of the async threads.
pub(crate) async fn run_on_store<T: Send + 'static>(
    store: &Arc<Store>,
    work: impl FnOnce(&Store) -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    let store = Arc::clone(store);
    match tokio::task::spawn_blocking(move || work(&store)).await {
        Ok(result) => result,
        // Happens only while the runtime ends.
        Err(_) => Err(StoreError::Closed),
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future as _;
    use std::task::Poll;
    use std::time::Duration;

    use gradus_store::StoreOptions;

    use super::*;

    fn call(key: u8) -> JudgeCall {
        JudgeCall {
            key: Some([key; 16]),
            rule: "r".to_owned(),
            project: "shop".to_owned(),
            trajectory_id: "t".to_owned(),
            step: None,
            rubric_hash: "hash".to_owned(),
            judge: "openai:gpt".to_owned(),
            max_cost_usd: 0.5,
            daily_budget_usd: Some(10.0),
        }
    }

    /// Spent and reserved dollars.
    fn amounts(store: &Store) -> (f64, f64) {
        (store.load_spend_since(0, Some("r"), None).unwrap().cost_usd, store.reserved_usd("r").unwrap())
    }

    async fn wait_for_amounts(store: &Store, expected: (f64, f64)) {
        while amounts(store) != expected {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_call_that_is_given_up_is_charged_and_can_be_made_again() {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(Store::open(folder.path(), StoreOptions::default()).unwrap());
        let CallTurn::Held(hold) = CallReservation::begin(&store, call(1)).await.unwrap() else {
            panic!("not granted")
        };
        assert_eq!(amounts(&store), (0.0, 0.5));
        drop(hold);
        wait_for_amounts(&store, (0.5, 0.0)).await;
        // The reservation itself is under way when nobody waits for it any more.
        let mut beginning = Box::pin(CallReservation::begin(&store, call(1)));
        let polled = std::future::poll_fn(|context| Poll::Ready(beginning.as_mut().poll(context))).await;
        drop((polled, beginning));
        wait_for_amounts(&store, (1.0, 0.0)).await;
        let CallTurn::Held(mut hold) = CallReservation::begin(&store, call(1)).await.unwrap() else {
            panic!("not granted")
        };
        let spend = JudgeSpend { rule: "r".to_owned(), calls: 1, unpriced: 0, cost_usd: 0.25 };
        hold.settle(spend, Some("answer".to_owned())).await.unwrap();
        drop(hold);
        assert_eq!(amounts(&store), (1.25, 0.0), "what is settled is not charged again");
    }
}
