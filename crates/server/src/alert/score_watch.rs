//! Watches the scores of an evaluator, one trajectory after another, until they prove that their mean is on the bad
//! side of a threshold.
//!
//! The mean of a window that is compared every few seconds crosses any threshold near it by chance, sooner or later.
//! This watch may be checked after every trajectory: while the mean stays on the good side, the probability that it
//! ever fires is [`MAX_FALSE_ALARM_PROBABILITY`] at most.

use gradus_stats::sequential::{MonitorDirection, MonitorSettings, ScoreMonitor};
use serde::{Deserialize, Serialize};

use super::rule::AlertRule;
use super::subject::AlertMetric;

/// The probability of a false alarm between two resets.
pub const MAX_FALSE_ALARM_PROBABILITY: f64 = 0.01;
/// Number of trajectories in the window of the monitor's interval, which is not used here.
const MONITOR_WINDOW: u64 = 200;

/// The watch of one rule. It is stored between two evaluations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScoreWatch {
    /// What is watched. A changed rule starts a new watch.
    condition: String,
    project: Option<String>,
    /// Row number of the last trajectory that was added.
    pub cursor: i64,
    worst: f64,
    best: f64,
    /// Whether cases without a flag count as the best score. Earlier versions counted none of them.
    #[serde(default)]
    counts_unflagged: bool,
    monitor: ScoreMonitor,
}

impl ScoreWatch {
    /// `None` if the rule watches no score, or a threshold at the end of the scale: a single score beyond the end
    /// proves that.
    pub fn new(rule: &AlertRule, cursor: i64) -> Option<ScoreWatch> {
        let AlertMetric::Evaluator { worst, best, gives_only_flags, .. } = rule.condition.subject else { return None };
        let bar = rule.condition.bar?;
        let settings = MonitorSettings {
            bar: (bar.threshold - worst) / (best - worst),
            direction: if bar.comparison.is_below() { MonitorDirection::Below } else { MonitorDirection::Above },
            alpha: MAX_FALSE_ALARM_PROBABILITY,
            window: MONITOR_WINDOW,
        };
        let monitor = ScoreMonitor::new(settings).ok()?;
        let (condition, project) = (rule.condition.to_string(), rule.project.clone());
        Some(ScoreWatch { condition, project, cursor, worst, best, counts_unflagged: gives_only_flags, monitor })
    }

    /// Whether the watch was started for the present version of this rule.
    pub fn is_for_rule(&self, rule: &AlertRule) -> bool {
        let counts_unflagged = matches!(rule.condition.subject, AlertMetric::Evaluator { gives_only_flags: true, .. });
        self.condition == rule.condition.to_string()
            && self.project == rule.project
            && self.counts_unflagged == counts_unflagged
    }

    /// Adds the mean score of the next trajectory. A score outside of the scale comes from an earlier version of the
    /// rubric and is ignored.
    pub fn add(&mut self, score: f64) {
        // Rounding must not put a mean outside of its scale.
        let share = (score - self.worst) / (self.best - self.worst);
        let share = if (-1e-9..=1.0 + 1e-9).contains(&share) { share.clamp(0.0, 1.0) } else { share };
        // The monitor accepts only shares.
        let _ = self.monitor.add(share);
    }

    /// Whether the scores since the last reset prove that their mean is bad.
    pub fn is_proven(&self) -> bool {
        self.monitor.is_alarming()
    }

    /// Number of trajectories since the last reset.
    pub fn count(&self) -> u64 {
        self.monitor.count()
    }

    /// Discards all scores, after the alert is over.
    pub fn reset(&mut self) {
        self.monitor.reset();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alert::{AlertMeasurement, AlertSection, AlertState, AlertableEvaluator, advance_alert_state};

    fn rule(when: &str) -> AlertRule {
        let section = AlertSection {
            name: "n".to_owned(),
            when: when.to_owned(),
            cool_down: Some("1s".to_owned()),
            ..AlertSection::default()
        };
        let shares = AlertableEvaluator { name: "fit", worst: 0.0, best: 1.0, gives_only_flags: false };
        AlertRule::from_section(
            section,
            &[shares, AlertableEvaluator { name: "helpful", worst: 1.0, best: 5.0, gives_only_flags: false }],
        )
        .unwrap()
    }

    /// Looks after every trajectory of a stream whose scores are 1 with a probability, with the mean of the last 50 as
    /// its window. Returns after how many it fires.
    fn trajectories_until_fired(rule: &AlertRule, share: f64, seed: u64, is_watched: bool) -> Option<usize> {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut watch = ScoreWatch::new(rule, 0).unwrap();
        let mut scores: Vec<f64> = Vec::new();
        let mut state = AlertState::default();
        for at in 1..=3_000 {
            scores.push(f64::from(u8::from(random.f64() < share)));
            watch.add(scores[at - 1]);
            let window = &scores[at.saturating_sub(50)..];
            let measured = AlertMeasurement {
                value: window.iter().sum::<f64>() / window.len() as f64,
                count: window.len() as u64,
                is_proven: is_watched.then(|| watch.is_proven()),
                ..AlertMeasurement::default()
            };
            let now = jiff::Timestamp::from_second(1_700_000_000 + 60 * at as i64).unwrap();
            let (next, notice) = advance_alert_state(rule, state, Some(measured), now);
            if notice.is_some() {
                return Some(at);
            }
            state = next;
        }
        None
    }

    #[test]
    fn traffic_at_the_threshold_rarely_fires_and_a_drop_is_found() {
        let rule = rule("fit < 0.8 over 1h, at least 30 steps");
        let fired = |share: f64, is_watched: bool| -> Vec<usize> {
            (0..100).filter_map(|seed| trajectories_until_fired(&rule, share, seed, is_watched)).collect()
        };
        // The mean is at the threshold: comparing windows fires in every stream, the watch in one of a hundred.
        assert_eq!(fired(0.8, false).len(), 100);
        assert!(fired(0.8, true).len() <= 4, "{:?}", fired(0.8, true));
        // A drop to 60 % is found soon.
        let drop = fired(0.6, true);
        assert_eq!(drop.len(), 100);
        let mean = drop.iter().sum::<usize>() / 100;
        assert!(mean < 120, "{mean} trajectories");
    }

    #[test]
    fn a_watch_survives_a_restart_and_begins_anew_with_another_condition() {
        let rule_of = rule("helpful < 3 over 1h");
        let mut watch = ScoreWatch::new(&rule_of, 7).unwrap();
        for _ in 0..20 {
            watch.add(1.0);
        }
        watch.add(9.0);
        assert!(watch.is_proven() && watch.count() == 20, "a score outside of the scale does not count");
        let read: ScoreWatch = serde_json::from_str(&serde_json::to_string(&watch).unwrap()).unwrap();
        assert_eq!(read, watch);
        assert!(read.is_for_rule(&rule_of) && !read.is_for_rule(&rule("helpful < 4 over 1h")));
        watch.reset();
        assert!(!watch.is_proven() && watch.cursor == 7);
        let read: ScoreWatch = serde_json::from_str(&serde_json::to_string(&watch).unwrap()).unwrap();
        assert_eq!(read, watch, "an empty watch, too");
        for when in ["fit < 1 over 1h", "error_rate > 5% over 1h", "unseen_tool over 7d"] {
            assert!(ScoreWatch::new(&rule(when), 0).is_none(), "{when}");
        }
        let mut above = ScoreWatch::new(&rule("helpful > 2 over 1h"), 0).unwrap();
        (0..20).for_each(|_| above.add(5.0));
        assert!(above.is_proven());
    }
}
