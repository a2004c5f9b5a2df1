//! Rules whose model is not asked at the moment, and why: nothing says so but the log, and what waits grows.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// By the rule's name.
#[derive(Debug, Default)]
pub(crate) struct Standstills(Mutex<HashMap<String, Standstill>>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Standstill {
    pub(crate) why: Why,
    /// May repeat what an endpoint said.
    pub(crate) reason: String,
    pub(crate) since_ns: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// What is left of the budget is not enough.
    Budget,
    /// The judge cannot be asked, or gives no answer.
    Judge,
}

impl Standstills {
    pub(super) fn begin(&self, rule: &str, why: Why, reason: String, now_ns: i64) {
        let mut all = self.lock();
        let since_ns = all.get(rule).filter(|known| known.why == why).map_or(now_ns, |known| known.since_ns);
        all.insert(rule.to_owned(), Standstill { why, reason, since_ns });
    }

    /// The judge answers.
    pub(super) fn end(&self, rule: &str) {
        self.lock().remove(rule);
    }

    pub(crate) fn of(&self, rule: &str) -> Option<Standstill> {
        self.lock().get(rule).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Standstill>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standstill_is_as_old_as_its_cause() {
        let all = Standstills::default();
        all.begin("r", Why::Judge, "refused".to_owned(), 1);
        all.begin("r", Why::Judge, "timed out".to_owned(), 9);
        let known = all.of("r").unwrap();
        assert_eq!((known.since_ns, known.reason.as_str()), (1, "timed out"));
        all.begin("r", Why::Budget, "spent".to_owned(), 12);
        assert_eq!(all.of("r").map(|known| known.since_ns), Some(12));
        all.end("r");
        assert_eq!(all.of("r"), None);
    }
}
