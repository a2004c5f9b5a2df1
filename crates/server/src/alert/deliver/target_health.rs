//! How the latest delivery to each target went, so that pages can show a target that fails.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;

use crate::alert::target::AlertTarget;

/// The latest result of one target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetHealth {
    /// When a notice was last accepted.
    pub sent_at: Option<Timestamp>,
    /// Present while the latest attempt has failed.
    pub failure: Option<TargetFailure>,
}

/// Failed attempts without a success in between.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetFailure {
    pub since: Timestamp,
    pub attempts: u64,
    /// Never contains an address.
    pub reason: String,
    /// Whether the notice was given up after the last attempt.
    pub is_given_up: bool,
}

/// Written by all lanes. There are as many entries as targets in the settings ever were.
#[derive(Debug, Default)]
pub(super) struct TargetHealthRegistry(Mutex<HashMap<AlertTarget, TargetHealth>>);

impl TargetHealthRegistry {
    pub(super) fn record_success(&self, target: &AlertTarget) {
        let health = TargetHealth { sent_at: Some(Timestamp::now()), failure: None };
        self.lock().insert(target.clone(), health);
    }

    pub(super) fn record_failure(&self, target: &AlertTarget, reason: &str, is_given_up: bool) {
        let mut all = self.lock();
        let health = all.entry(target.clone()).or_default();
        let (since, attempts) =
            health.failure.as_ref().map_or((Timestamp::now(), 0), |failure| (failure.since, failure.attempts));
        // Giving up follows a failed attempt, which was counted.
        let attempts = attempts + u64::from(!is_given_up || attempts == 0);
        health.failure = Some(TargetFailure { since, attempts, reason: reason.to_owned(), is_given_up });
    }

    pub(super) fn snapshot(&self) -> HashMap<AlertTarget, TargetHealth> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<AlertTarget, TargetHealth>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
