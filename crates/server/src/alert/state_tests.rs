//! Alerts over time, minute by minute.

use super::*;
use crate::alert::{AlertSection, AlertableEvaluator};

/// A rule, its state, and a clock that only moves when told.
struct Watch {
    rule: AlertRule,
    state: AlertState,
}

impl Watch {
    fn new(when: &str) -> Watch {
        let section = AlertSection { name: "n".to_owned(), when: when.to_owned(), ..AlertSection::default() };
        let rule = AlertRule::from_section(
            section,
            &[AlertableEvaluator { name: "thought_to_tool", worst: 0.0, best: 1.0, gives_only_flags: false }],
        )
        .expect("a rule");
        Watch { rule, state: AlertState::default() }
    }

    fn take(&mut self, minute: i64, measured: Option<AlertMeasurement>) -> Option<AlertNotice> {
        // As after a restart: the state has been written and read.
        let written = serde_json::to_string(&self.state).expect("written");
        let state = serde_json::from_str(&written).expect("read");
        let (state, notice) = advance_alert_state(&self.rule, state, measured, at(minute));
        self.state = state;
        notice
    }

    /// The notice's kind for a value of 30 steps.
    fn see(&mut self, minute: i64, value: f64) -> Option<&'static str> {
        let notice = self.take(minute, Some(AlertMeasurement { value, count: 30, ..AlertMeasurement::default() }));
        notice.map(|notice| notice.kind.name())
    }
}

fn at(minute: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + 60 * minute).expect("a time")
}

const LOW: &str = "thought_to_tool < 0.8 over 1h, at least 30 steps";

#[test]
fn fires_once_and_resolves_past_the_margin() {
    let mut watch = Watch::new(LOW);
    assert_eq!(watch.see(0, 0.9), None);
    assert_eq!(watch.see(1, 0.79), Some("fired"));
    assert_eq!(watch.see(2, 0.5), None);
    // Back above the threshold, but not past 0.88.
    assert_eq!(watch.see(3, 0.85), None);
    assert!(matches!(watch.state, AlertState::Firing { since, .. } if since == at(1)));
    assert_eq!(watch.see(4, 0.88), Some("resolved"));
    assert_eq!(watch.state, AlertState::Quiet { noticed_at: Some(at(4)) });
    assert_eq!(watch.see(5, 0.95), None);
}

#[test]
fn a_threshold_is_not_crossed_by_touching_it() {
    let mut watch = Watch::new(LOW);
    assert_eq!(watch.see(0, 0.8), None);
    let mut watch = Watch::new("error_rate >= 10% over 1h");
    watch.rule.clear_at = Some(0.1);
    assert_eq!(watch.see(0, 0.1), Some("fired"));
    // Where both touch, bad wins: otherwise it would fire and resolve in turns.
    assert_eq!(watch.see(1, 0.1), None);
    assert_eq!(watch.see(2, 0.099), Some("resolved"));
}

#[test]
fn reminds_no_more_often_than_the_cool_down() {
    let mut watch = Watch::new(LOW);
    let told: Vec<i64> = (0..=95).filter(|minute| watch.see(*minute, 0.5).is_some()).collect();
    assert_eq!(told, [0, 30, 60, 90]);
    assert_eq!(watch.see(120, 0.5), Some("reminder"));
    // In between the two, it still fires but there is nothing to remind of.
    assert_eq!(watch.see(160, 0.85), None);
    let notice = watch.take(161, Some(AlertMeasurement { value: 0.5, count: 30, ..AlertMeasurement::default() }));
    assert_eq!(notice.map(|notice| (notice.kind, notice.since)), Some((NoticeKind::Reminder, at(0))));
}

#[test]
fn flapping_is_told_once() {
    let mut watch = Watch::new(LOW);
    assert_eq!(watch.see(0, 0.5), Some("fired"));
    assert_eq!(watch.see(1, 0.9), Some("resolved"));
    for minute in 2..30 {
        assert_eq!(watch.see(minute, if minute % 2 == 0 { 0.5 } else { 0.9 }), None, "{minute}");
    }
    // Bad since minute 30, untold until the cool-down of minute 1 is over; then it is news, not a reminder.
    assert_eq!(watch.see(30, 0.5), None);
    assert_eq!(watch.see(31, 0.5), Some("fired"));
    assert_eq!(watch.see(32, 0.9), Some("resolved"));
}

#[test]
fn too_little_data_changes_nothing() {
    let mut watch = Watch::new(LOW);
    let few = |value| Some(AlertMeasurement { value, count: 29, ..AlertMeasurement::default() });
    assert_eq!(watch.take(0, few(0.1)), None);
    assert_eq!(watch.take(0, None), None);
    assert_eq!(watch.see(1, f64::NAN), None);
    assert_eq!(watch.state, AlertState::default());
    assert_eq!(watch.see(2, 0.5), Some("fired"));
    let firing = watch.state;
    for measured in [few(1.0), few(0.1), None] {
        assert_eq!(watch.take(300, measured), None);
        assert_eq!(watch.state, firing);
    }
}

#[test]
fn costs_resolve_when_nothing_runs() {
    let mut watch = Watch::new("cost_per_hour > $5 over 1h");
    assert_eq!(watch.see(0, 7.0), Some("fired"));
    let nothing = watch.take(1, Some(AlertMeasurement::default()));
    assert_eq!(nothing.map(|notice| notice.kind), Some(NoticeKind::Resolved));
}

#[test]
fn unseen_tools_fire_and_pass() {
    let mut watch = Watch::new("unseen_tool over 7d");
    let seen = |unseen: &[&str]| {
        let unseen: Vec<String> = unseen.iter().map(|name| (*name).to_owned()).collect();
        Some(AlertMeasurement { value: unseen.len() as f64, count: 10, unseen, is_proven: None })
    };
    assert_eq!(watch.take(0, seen(&[])), None);
    let notice = watch.take(1, seen(&["drop_table"])).expect("a notice");
    assert_eq!((notice.kind, notice.unseen.as_slice()), (NoticeKind::Fired, ["drop_table".to_owned()].as_slice()));
    assert_eq!(watch.take(2, seen(&[])).map(|notice| notice.kind), Some(NoticeKind::Resolved));
}

#[test]
fn a_clock_that_is_set_back_does_not_silence() {
    let mut watch = Watch::new(LOW);
    assert_eq!(watch.see(1000, 0.5), Some("fired"));
    assert_eq!(watch.see(0, 0.5), Some("reminder"));
    assert_eq!(watch.see(1, 0.5), None);
}
