//! What a rule is up to: quiet or firing, and when it last spoke. A state machine without a clock and without memory of
//! its own; who calls it keeps the state, so that a restart neither forgets an alert nor repeats it.

use crate::alert::measurement::AlertMeasurement;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::condition::AlertCondition;
use super::notice::{AlertNotice, NoticeKind};
use super::rule::AlertRule;

/// Kept between two measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum AlertState {
    Quiet {
        /// When a notice last went out.
        noticed_at: Option<Timestamp>,
    },
    Firing {
        since: Timestamp,
        noticed_at: Option<Timestamp>,
        /// Whether anyone was told of this firing. One that began within the cool-down of the last may pass untold.
        is_told: bool,
    },
}

impl Default for AlertState {
    fn default() -> Self {
        AlertState::Quiet { noticed_at: None }
    }
}

/// What a measurement says about a condition.
enum ConditionStatus {
    Bad,
    /// Neither bad nor good enough to call it over.
    Between,
    Good,
}

/// Takes in one measurement. Too little data, or none, changes nothing and says nothing.
pub fn advance_alert_state(
    rule: &AlertRule,
    state: AlertState,
    measured: Option<AlertMeasurement>,
    now: Timestamp,
) -> (AlertState, Option<AlertNotice>) {
    let Some((finding, measured)) =
        measured.and_then(|measured| Some((evaluate_condition(rule, &measured)?, measured)))
    else {
        return (state, None);
    };
    let tell = |kind, since| Some(AlertNotice::new(rule, kind, measured, since, now));
    let may_speak = |noticed_at| is_cooled_down(rule, noticed_at, now);
    match (state, finding) {
        (AlertState::Quiet { noticed_at }, ConditionStatus::Bad) if may_speak(noticed_at) => {
            (AlertState::Firing { since: now, noticed_at: Some(now), is_told: true }, tell(NoticeKind::Fired, now))
        }
        (AlertState::Quiet { noticed_at }, ConditionStatus::Bad) => {
            (AlertState::Firing { since: now, noticed_at, is_told: false }, None)
        }
        (AlertState::Quiet { .. }, ConditionStatus::Between | ConditionStatus::Good) => (state, None),
        (AlertState::Firing { since, noticed_at, is_told }, ConditionStatus::Bad) if may_speak(noticed_at) => {
            let kind = if is_told { NoticeKind::Reminder } else { NoticeKind::Fired };
            (AlertState::Firing { since, noticed_at: Some(now), is_told: true }, tell(kind, since))
        }
        (AlertState::Firing { .. }, ConditionStatus::Bad | ConditionStatus::Between) => (state, None),
        (AlertState::Firing { since, is_told: true, .. }, ConditionStatus::Good) => {
            (AlertState::Quiet { noticed_at: Some(now) }, tell(NoticeKind::Resolved, since))
        }
        (AlertState::Firing { noticed_at, is_told: false, .. }, ConditionStatus::Good) => {
            (AlertState::Quiet { noticed_at }, None)
        }
    }
}

fn evaluate_condition(rule: &AlertRule, measured: &AlertMeasurement) -> Option<ConditionStatus> {
    let AlertCondition { bar, .. } = &rule.condition;
    if measured.count < rule.condition.least_count() {
        return None;
    }
    Some(match bar {
        None if measured.unseen.is_empty() => ConditionStatus::Good,
        None => ConditionStatus::Bad,
        Some(_) if measured.value.is_nan() => return None,
        Some(bar) if bar.is_met_by(measured.value) => ConditionStatus::Bad,
        Some(bar) if rule.is_clear(bar, measured.value) => ConditionStatus::Good,
        Some(_) => ConditionStatus::Between,
    })
}

/// Whether enough time has passed since the last notice. A notice from the future means that the clock was set back:
/// waiting for it could take for ever.
fn is_cooled_down(rule: &AlertRule, noticed_at: Option<Timestamp>, now: Timestamp) -> bool {
    let Some(noticed_at) = noticed_at else { return true };
    match std::time::Duration::try_from(now.duration_since(noticed_at)) {
        Ok(passed) => passed >= rule.cool_down,
        Err(_) => true,
    }
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
