//! What alert rules found when they last looked, for people who want to see how near a rule is to its threshold.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::alert::{AlertRule, Measured};

/// By the rule's name. Not kept over a restart: the first look comes within seconds.
#[derive(Debug, Default)]
pub(crate) struct Readings(Mutex<HashMap<String, Reading>>);

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Reading {
    /// A rule of the same name may have been another before the settings were read again.
    condition: String,
    project: Option<String>,
    /// None where there was no data at all.
    pub(crate) measured: Option<Measured>,
    pub(crate) at_ns: i64,
}

impl Readings {
    pub(super) fn put(&self, rule: &AlertRule, measured: Option<Measured>, at_ns: i64) {
        let (condition, project) = (rule.condition.to_string(), rule.project.clone());
        self.lock().insert(rule.name.clone(), Reading { condition, project, measured, at_ns });
    }

    pub(crate) fn of(&self, rule: &AlertRule) -> Option<Reading> {
        let known = self.lock().get(&rule.name).cloned();
        known.filter(|known| known.condition == rule.condition.to_string() && known.project == rule.project)
    }

    /// What cannot be looked at is not known.
    pub(super) fn forget(&self, rule: &AlertRule) {
        self.lock().remove(&rule.name);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Reading>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alert::{AlertSection, Watchable};

    fn rule(project: Option<&str>, when: &str) -> AlertRule {
        let section = AlertSection {
            name: "n".to_owned(),
            project: project.map(str::to_owned),
            when: when.to_owned(),
            ..AlertSection::default()
        };
        AlertRule::from_section(section, &[Watchable { name: "fit", worst: 0.0, best: 1.0 }]).unwrap()
    }

    #[test]
    fn a_reading_is_of_the_rule_as_it_is_now() {
        let readings = Readings::default();
        let first = rule(None, "fit < 0.5 over 1h");
        assert_eq!(readings.of(&first), None);
        readings.put(&first, None, 7);
        assert_eq!(readings.of(&first).map(|known| known.at_ns), Some(7));
        assert_eq!(readings.of(&rule(Some("shop"), "fit < 0.5 over 1h")), None);
        assert_eq!(readings.of(&rule(None, "fit < 0.6 over 1h")), None);
        readings.forget(&first);
        assert_eq!(readings.of(&first), None);
    }
}
