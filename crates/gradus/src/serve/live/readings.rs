//! What alert rules found when they last looked, for people who want to see how near a rule is to its threshold.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::alert::{AlertRule, Measured};

/// By the rule's name. Not kept over a restart: the first look comes within seconds.
#[derive(Debug, Default)]
pub(in crate::serve) struct Readings(Mutex<HashMap<String, Reading>>);

#[derive(Clone, Debug, PartialEq)]
pub(in crate::serve) struct Reading {
    /// A rule of the same name may have been another before the settings were read again.
    condition: String,
    /// None where there was no data at all.
    pub(in crate::serve) measured: Option<Measured>,
    pub(in crate::serve) at_ns: i64,
}

impl Readings {
    pub(super) fn put(&self, rule: &AlertRule, measured: Option<Measured>, at_ns: i64) {
        let reading = Reading { condition: rule.condition.to_string(), measured, at_ns };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(rule.name.clone(), reading);
    }

    pub(in crate::serve) fn of(&self, rule: &AlertRule) -> Option<Reading> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&rule.name).cloned();
        known.filter(|known| known.condition == rule.condition.to_string())
    }
}
