//! Trials of rubrics that somebody looks at.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use gradus_report::html::text::DisplayText;

/// What a judge said in a trial.
#[derive(Clone, Debug)]
pub(super) struct RubricTrialAnswer {
    pub(super) class: &'static str,
    pub(super) label: String,
    pub(super) explanation: DisplayText,
    pub(super) by: String,
    pub(super) cost: String,
}

/// A trial that somebody made: looking at it again asks nobody again.
#[derive(Clone, Debug, Default)]
pub(super) struct RubricTrial {
    /// The rubric's text, if it was changed.
    pub(super) text: Option<String>,
    pub(super) answer: Option<RubricTrialAnswer>,
    /// Why there is none.
    pub(super) wrong: Option<String>,
}

/// The latest trials, each under a name of its own. They are gone when the server is.
#[derive(Debug, Default)]
pub(crate) struct RubricTrialCache {
    pub(super) kept: Mutex<VecDeque<(String, RubricTrial)>>,
    /// Where there is a budget, what one question cost is known before the next is asked.
    pub(super) asking: tokio::sync::Mutex<()>,
}

impl RubricTrialCache {
    pub(crate) const MAX_TRIALS: usize = 50;

    pub(super) fn get(&self, name: &str) -> Option<RubricTrial> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().find(|(known, _)| known == name).map(|(_, trial)| trial.clone())
    }

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
