//! Trials of rubrics: a person tests a changed rubric on one trajectory from the page.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use gradus_report::html::text::DisplayText;

/// The answer of the judge, formatted for the page.
#[derive(Clone, Debug)]
pub(super) struct RubricTrialAnswer {
    pub(super) class: &'static str,
    pub(super) label: String,
    pub(super) explanation: DisplayText,
    pub(super) by: String,
    pub(super) cost: String,
}

/// A finished trial. Its page can be reloaded without asking, and paying, the judge again.
#[derive(Clone, Debug, Default)]
pub(super) struct RubricTrial {
    /// The text of the rubric, if it was changed.
    pub(super) text: Option<String>,
    pub(super) answer: Option<RubricTrialAnswer>,
    /// Why there is no answer.
    pub(super) wrong: Option<String>,
}

/// The latest trials by random name, in memory only.
#[derive(Debug, Default)]
pub(crate) struct RubricTrialCache {
    pub(super) kept: Mutex<VecDeque<(String, RubricTrial)>>,
    /// One question at a time, so that the cost of each is known before the next one is checked against the budget.
    pub(super) asking: tokio::sync::Mutex<()>,
}

impl RubricTrialCache {
    pub(crate) const MAX_TRIALS: usize = 50;

    pub(super) fn get(&self, name: &str) -> Option<RubricTrial> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().find(|(known, _)| known == name).map(|(_, trial)| trial.clone())
    }

    /// Stores a trial under a random name, which becomes part of its address, and drops the oldest one beyond
    /// [`Self::MAX_TRIALS`].
    pub(super) fn insert(&self, trial: RubricTrial) -> String {
        let name = format!("{:016x}{:016x}", fastrand::u64(..), fastrand::u64(..));
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.truncate(Self::MAX_TRIALS - 1);
        kept.push_front((name.clone(), trial));
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trials_are_found_again_and_do_not_fill_the_memory() {
        let trials = RubricTrialCache::default();
        let trial = || RubricTrial { text: Some("x".to_owned()), ..RubricTrial::default() };
        let names: Vec<String> = (0..2 * RubricTrialCache::MAX_TRIALS).map(|_| trials.insert(trial())).collect();
        assert!(trials.get(&names[0]).is_none() && trials.get("nonsense").is_none());
        let last = trials.get(names.last().unwrap()).unwrap();
        assert_eq!(last.text.as_deref(), Some("x"));
        assert_eq!(trials.kept.lock().unwrap().len(), RubricTrialCache::MAX_TRIALS);
    }
}
