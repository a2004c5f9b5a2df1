//! Rules whose model calls are paused, and why. Pages show it, because the ungraded queue grows silently in the
//! meantime.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Keyed by the name of the rule; not stored, since a restart tries again.
#[derive(Debug, Default)]
pub(crate) struct JudgePauseRegistry(Mutex<HashMap<String, JudgePause>>);

/// One pause of one rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JudgePause {
    pub(crate) why: JudgePauseReason,
    /// A line for people. It may repeat the message of an endpoint, so it is escaped where it is shown.
    pub(crate) reason: String,
    pub(crate) since_ns: i64,
}

/// The condition that has to change before judging resumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JudgePauseReason {
    /// The daily budget does not cover another answer. It resets at 00:00 UTC.
    Budget,
    /// The endpoint is unreachable, refuses, or fails.
    Judge,
}

impl JudgePauseRegistry {
    /// Records a pause. The time of the first occurrence is kept while the kind of the reason stays the same.
    pub(super) fn begin(&self, rule: &str, why: JudgePauseReason, reason: String, now_ns: i64) {
        let mut all = self.lock();
        let since_ns = all.get(rule).filter(|known| known.why == why).map_or(now_ns, |known| known.since_ns);
        all.insert(rule.to_owned(), JudgePause { why, reason, since_ns });
    }

    /// Ends a pause. Called when the judge has answered, or when nothing waits for it any more.
    pub(super) fn end(&self, rule: &str) {
        self.lock().remove(rule);
    }

    pub(crate) fn find_for_rule(&self, rule: &str) -> Option<JudgePause> {
        self.lock().get(rule).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, JudgePause>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standstill_is_as_old_as_its_cause() {
        let all = JudgePauseRegistry::default();
        all.begin("r", JudgePauseReason::Judge, "refused".to_owned(), 1);
        all.begin("r", JudgePauseReason::Judge, "timed out".to_owned(), 9);
        let known = all.find_for_rule("r").unwrap();
        assert_eq!((known.since_ns, known.reason.as_str()), (1, "timed out"));
        all.begin("r", JudgePauseReason::Budget, "spent".to_owned(), 12);
        assert_eq!(all.find_for_rule("r").map(|known| known.since_ns), Some(12));
        all.end("r");
        assert_eq!(all.find_for_rule("r"), None);
    }
}
