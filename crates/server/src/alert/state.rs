//! The state machine of a rule: quiet or firing, with the time of the last notice. It has neither a clock nor memory;
//! the caller stores the state, so a restart neither forgets an alert nor repeats its notice.

use crate::alert::measurement::AlertMeasurement;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::condition::AlertCondition;
use super::notice::{AlertNotice, NoticeKind};
use super::rule::AlertRule;

/// Stored as JSON between two measurements and shown by the API. Field names are part of the stored format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum AlertState {
    Quiet {
        /// When the last notice of any kind went out. None before the first.
        noticed_at: Option<Timestamp>,
    },
    Firing {
        since: Timestamp,
        noticed_at: Option<Timestamp>,
        /// Whether a notice about this firing went out. One that began within the cool-down of the last notice may
        /// resolve without any.
        is_told: bool,
    },
}

impl Default for AlertState {
    fn default() -> Self {
        AlertState::Quiet { noticed_at: None }
    }
}

/// A measurement compared with the condition and the clearing threshold.
enum ConditionStatus {
    Bad,
    /// The condition does not hold any more, but the value is not past the clearing threshold (hysteresis).
    Between,
    Good,
}

/// Applies one measurement and returns the new state with the notice to send, if any. A missing measurement or a
/// sample below the minimum changes nothing: missing data does not mean recovery.
pub fn advance_alert_state(
    rule: &AlertRule,
    state: AlertState,
    measured: Option<AlertMeasurement>,
    now: Timestamp,
) -> (AlertState, Option<AlertNotice>) {
    let Some((finding, measured)) =
        measured.and_then(|measured| Some((evaluate_condition(rule, &state, &measured)?, measured)))
    else {
        return (state, None);
    };
    let tell = |kind, since| Some(AlertNotice::new(rule, kind, measured, since, now));
    let may_speak = |noticed_at| is_cooled_down(rule, noticed_at, now);
    match (state, finding) {
        (AlertState::Quiet { noticed_at }, ConditionStatus::Bad) if may_speak(noticed_at) => {
            (AlertState::Firing { since: now, noticed_at: Some(now), is_told: true }, tell(NoticeKind::Fired, now))
        }
        // Within the cool-down it fires without a notice. If it still fires afterwards, that first notice is a `Fired`.
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
        // No notice was sent when it fired, so none is sent when it is over.
        (AlertState::Firing { noticed_at, is_told: false, .. }, ConditionStatus::Good) => {
            (AlertState::Quiet { noticed_at }, None)
        }
    }
}

/// Compares a measurement with the condition. None if the sample is too small or the value is not a number. A bad
/// mean that may be chance does not fire; once it was proven bad, the value decides when the alert is over.
fn evaluate_condition(rule: &AlertRule, state: &AlertState, measured: &AlertMeasurement) -> Option<ConditionStatus> {
    let AlertCondition { bar, .. } = &rule.condition;
    if measured.count < rule.condition.min_sample_count() {
        return None;
    }
    Some(match bar {
        None if measured.unseen.is_empty() => ConditionStatus::Good,
        None => ConditionStatus::Bad,
        Some(_) if measured.value.is_nan() => return None,
        Some(bar) if bar.is_met_by(measured.value) => match (state, measured.is_proven) {
            (AlertState::Quiet { .. }, Some(false)) => ConditionStatus::Between,
            _ => ConditionStatus::Bad,
        },
        Some(bar) if rule.is_clear(bar, measured.value) => ConditionStatus::Good,
        Some(_) => ConditionStatus::Between,
    })
}

/// Whether the cool-down since the last notice is over. A notice in the future means that the clock was set back;
/// waiting for that time could take for ever, so it counts as over.
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
