//! Repeats a run or a part of it, and evaluates the checks on what results.

use std::sync::PoisonError;

use serde_json::Value;

use super::rebind::ReplayBindings;
use super::{CheckResults, ReplayEnvironment, RunVerifier};
use crate::record::TrialRecord;
use crate::replay::step_selection::StepSet;
use gradus_github_agent::agent::RunStep;
use gradus_github_sim::{RequestMethod, SimulatedRequest, World};

/// Maximum number of waits for rate limits within one step, as for the agent.
const MAX_STEP_WAITS: usize = 3;

/// The checks after a repetition, and its record with new observations and requests.
pub(super) struct ReplayAttempt {
    pub(super) checks: CheckResults,
    pub(super) record: TrialRecord,
}

/// Resets the world to the seed and repeats the kept steps in order. Arguments are rewritten where earlier steps now
/// get other numbers or SHAs. The lock on the world is never held across an await.
pub(super) async fn replay_steps(
    seed: &World,
    record: &TrialRecord,
    kept: &StepSet,
    environment: ReplayEnvironment<'_>,
    verify: &RunVerifier<'_>,
) -> ReplayAttempt {
    let lock = || environment.world.lock().unwrap_or_else(PoisonError::into_inner);
    {
        let mut world = seed.clone();
        world.start_recording_exchanges();
        *lock() = world;
    }
    let mut bindings = ReplayBindings::default();
    let mut steps = Vec::with_capacity(kept.len());
    for (index, step) in record.steps.iter().enumerate().filter(|(index, _)| kept.contains(index)) {
        let waited = simulated_wait_before(record, index);
        // Requests of this step begin here in the new record.
        let from = {
            let mut world = lock();
            world.advance_clock(waited);
            world.recorded_exchanges().len()
        };
        let arguments = bindings.rebind_arguments(&step.arguments);
        let (observation, is_error) = replay_step(record, step, &arguments, &bindings, environment).await;
        bindings.learn_from_observations(&step.observation, &observation);
        let exchanges = from..lock().recorded_exchanges().len();
        steps.push(RunStep { arguments, observation, is_error, exchanges, ..step.clone() });
    }
    let answer = record.answer.as_deref().map(|answer| bindings.rebind_text(answer));
    let exchanges = lock().recorded_exchanges().to_vec();
    let record = TrialRecord {
        steps,
        answer,
        exchanges,
        ..TrialRecord { steps: Vec::new(), exchanges: Vec::new(), ..record.clone() }
    };
    let state = lock().state().clone();
    let checks = verify(&state, &record);
    ReplayAttempt { checks, record }
}

/// Returns the simulated seconds between the previous request and the first one of a step. A replay waits as long,
/// because rate limits and timestamps depend on it.
fn simulated_wait_before(record: &TrialRecord, index: usize) -> i64 {
    let begin = record.steps[index].exchanges.start;
    let first = record.exchanges.get(begin).filter(|_| !record.steps[index].exchanges.is_empty());
    let before = begin.checked_sub(1).and_then(|one| record.exchanges.get(one));
    first.zip(before).map_or(0, |(first, before)| first.from.0.saturating_sub(before.to.0).max(0))
}

/// Repeats one step and returns its observation and whether it failed. A call that was not approved had no effect and
/// is returned as recorded. A step of an external program is repeated as its requests.
async fn replay_step(
    record: &TrialRecord,
    step: &RunStep,
    arguments: &Value,
    bindings: &ReplayBindings,
    environment: ReplayEnvironment<'_>,
) -> (String, bool) {
    // Refused by the user, so the call was not made.
    if step.approved == Some(false) {
        return (step.observation.clone(), step.is_error);
    }
    if environment.tools.tools().iter().any(|tool| *tool.definition.name == *step.tool) {
        let mut seen = environment.tools.call(&step.tool, arguments).await;
        // Within the recorded step the agent waited for the limit and succeeded, so the replay does too.
        for _ in 0..MAX_STEP_WAITS {
            let Some(time) = seen.retry_after.filter(|_| seen.is_error && !step.is_error) else { break };
            let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
            environment.world.lock().unwrap_or_else(PoisonError::into_inner).advance_clock(seconds);
            seen = environment.tools.call(&step.tool, arguments).await;
        }
        return (seen.text, seen.is_error);
    }
    let sent = record.exchanges.get(step.exchanges.clone()).unwrap_or_default();
    let mut last = (step.observation.clone(), step.is_error);
    for exchange in sent {
        let mut target = bindings.rebind_text(&exchange.path);
        if !exchange.query.is_empty() {
            target = format!("{target}?{}", bindings.rebind_text(&exchange.query));
        }
        let mut request =
            SimulatedRequest::new(RequestMethod::from_name(&exchange.method), &target).with_token(environment.token);
        request.body = match serde_json::from_str::<Value>(&exchange.body) {
            Ok(body) => bindings.rebind_arguments(&body).to_string().into_bytes(),
            Err(_) => bindings.rebind_text(&exchange.body).into_bytes(),
        };
        let response = environment.world.lock().unwrap_or_else(PoisonError::into_inner).handle(&request);
        last = (String::from_utf8_lossy(&response.body).into_owned(), response.status >= 400);
    }
    last
}
