//! The latest measurement of each alert rule, so that pages can show how far a rule is from its threshold.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::alert::{AlertMeasurement, AlertRule};

/// Keyed by the name of the rule. It is not stored: after a restart the first measurement is made within seconds.
#[derive(Debug, Default)]
pub(crate) struct AlertMeasurementCache(Mutex<HashMap<String, LatestAlertMeasurement>>);

/// A measurement with the condition that it was made for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LatestAlertMeasurement {
    /// Compared on lookup, because a reload may have replaced the rule by another one of the same name.
    condition: String,
    project: Option<String>,
    /// `None` if the store had no data to measure.
    pub(crate) measured: Option<AlertMeasurement>,
    pub(crate) at_ns: i64,
}

impl AlertMeasurementCache {
    /// Replaces the last measurement. `at_ns` is the time of the measurement, not of the data.
    pub(super) fn put(&self, rule: &AlertRule, measured: Option<AlertMeasurement>, at_ns: i64) {
        let (condition, project) = (rule.condition.to_string(), rule.project.clone());
        self.lock().insert(rule.name.clone(), LatestAlertMeasurement { condition, project, measured, at_ns });
    }

    /// Returns the latest measurement. `None` if the rule was not measured since the start, or was changed since.
    pub(crate) fn find_for_rule(&self, rule: &AlertRule) -> Option<LatestAlertMeasurement> {
        let known = self.lock().get(&rule.name).cloned();
        known.filter(|known| known.condition == rule.condition.to_string() && known.project == rule.project)
    }

    /// Called when a measurement fails: an old value would look current.
    pub(super) fn remove_after_failure(&self, rule: &AlertRule) {
        self.lock().remove(&rule.name);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, LatestAlertMeasurement>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alert::{AlertSection, AlertableEvaluator};

    fn rule(project: Option<&str>, when: &str) -> AlertRule {
        let section = AlertSection {
            name: "n".to_owned(),
            project: project.map(str::to_owned),
            when: when.to_owned(),
            ..AlertSection::default()
        };
        AlertRule::from_section(
            section,
            &[AlertableEvaluator { name: "fit", worst: 0.0, best: 1.0, gives_only_flags: false }],
        )
        .unwrap()
    }

    #[test]
    fn a_reading_is_of_the_rule_as_it_is_now() {
        let readings = AlertMeasurementCache::default();
        let first = rule(None, "fit < 0.5 over 1h");
        assert_eq!(readings.find_for_rule(&first), None);
        readings.put(&first, None, 7);
        assert_eq!(readings.find_for_rule(&first).map(|known| known.at_ns), Some(7));
        assert_eq!(readings.find_for_rule(&rule(Some("shop"), "fit < 0.5 over 1h")), None);
        assert_eq!(readings.find_for_rule(&rule(None, "fit < 0.6 over 1h")), None);
        readings.remove_after_failure(&first);
        assert_eq!(readings.find_for_rule(&first), None);
    }
}
