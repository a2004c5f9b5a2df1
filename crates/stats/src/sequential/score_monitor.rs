//! A monitor that says when the mean of a stream of scores is below a bar, or above it.
//!
//! An alert that compares the mean of a window with a bar, every few seconds, fires by chance sooner or later. This
//! monitor may be looked at after every score: on a stream whose scores never fall below the bar on average, the
//! probability that it ever fires is at most `alpha`, however long the stream is.
//!
//! It bets against the hypothesis that the stream is healthy, as a sequential gate does. A
//! gambler that began long ago has lost its capital on the healthy part and would notice a late regression late. So a new
//! gambler begins with every score, with a part of the capital that gets smaller with time: of the whole capital 1,
//! `1 / (1 + ln(t + 1))` is left for those after the score `t`. Together they are one sum, so a score costs constant
//! time and space.

use serde::{Deserialize, Serialize};

use super::betting::RestartingCapital;
use super::confidence_sequence::ConfidenceSequence;
use super::sequential_error::SequentialError;
use crate::interval::ConfidenceInterval;

/// Which mean of the scores is bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MonitorDirection {
    Below,
    Above,
}

/// The settings of a monitor.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MonitorSettings {
    /// Between 0 and 1, both excluded.
    pub bar: f64,
    pub direction: MonitorDirection,
    /// The probability of a false alarm over the whole life of the stream, at most.
    pub alpha: f64,
    /// Number of scores in a window of [`ScoreMonitor::interval`].
    pub window: u64,
}

/// A monitor of one stream of scores from 0 to 1, of constant size. One score per run: steps of a run are alike, so a
/// run with several steps adds their mean.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScoreMonitor {
    settings: MonitorSettings,
    count: u64,
    capital: RestartingCapital,
    /// Windows that were completed, the interval of the last one, and the present one.
    windows: u64,
    last_window: Option<WindowInterval>,
    present: ConfidenceSequence,
    is_alarming: bool,
}

/// The mean of the scores of one window.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct WindowInterval {
    /// Scores of the window so far.
    pub count: u64,
    pub low: f64,
    pub high: f64,
}

impl ScoreMonitor {
    pub fn new(settings: MonitorSettings) -> Result<ScoreMonitor, SequentialError> {
        let MonitorSettings { bar, alpha, window, .. } = settings;
        let invalid = |name, value, hint| Err(SequentialError::InvalidMonitor { name, value, hint });
        if !(bar > 0.0 && bar < 1.0) {
            return invalid("bar", bar, "it must be between 0 and 1, both excluded");
        }
        if !(alpha > 0.0 && alpha < 0.5) {
            return invalid("alpha", alpha, "it must be between 0 and 0.5");
        }
        if window == 0 {
            return invalid("window", 0.0, "it needs at least one score");
        }
        Ok(ScoreMonitor {
            settings,
            count: 0,
            capital: RestartingCapital::default(),
            windows: 0,
            last_window: None,
            present: ConfidenceSequence::new(window_alpha(alpha, 0)),
            is_alarming: false,
        })
    }

    /// Takes the next score of the stream. Returns whether the monitor fires; it keeps firing until it is reset.
    pub fn add(&mut self, value: f64) -> Result<bool, SequentialError> {
        if !(0.0..=1.0).contains(&value) {
            return Err(SequentialError::InvalidValue { value, expected: "share from 0 to 1" });
        }
        let MonitorSettings { bar, direction, alpha, window } = self.settings;
        self.count += 1;
        let (value_of_interest, bar) = match direction {
            MonitorDirection::Above => (value, bar),
            MonitorDirection::Below => (1.0 - value, 1.0 - bar),
        };
        self.capital.bet_above(value_of_interest, bar);
        self.is_alarming |= self.capital.is_significant(alpha);
        self.present.add(value);
        if self.present.count() >= window {
            self.last_window = Some(WindowInterval::from_sequence(&self.present));
            self.windows += 1;
            self.present = ConfidenceSequence::new(window_alpha(alpha, self.windows));
        }
        Ok(self.is_alarming)
    }

    pub fn is_alarming(&self) -> bool {
        self.is_alarming
    }

    /// Scores so far, since the beginning or the last reset.
    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn settings(&self) -> &MonitorSettings {
        &self.settings
    }

    /// The interval for the mean of the scores of the present window, or of the last complete one while the present one
    /// is short. All intervals of all windows hold at once with the probability 1 - alpha, at all times. `None` before
    /// the first score.
    pub fn interval(&self) -> Option<WindowInterval> {
        let present = WindowInterval::from_sequence(&self.present);
        match self.last_window {
            Some(last) if 2 * present.count < self.settings.window => Some(last),
            _ => (present.count > 0).then_some(present),
        }
    }

    /// Whether the interval of the recent scores lies below `bar`.
    pub fn is_below(&self, bar: f64) -> bool {
        self.interval().is_some_and(|interval| interval.high < bar)
    }

    /// Whether the interval of the recent scores lies above `bar`.
    pub fn is_above(&self, bar: f64) -> bool {
        self.interval().is_some_and(|interval| interval.low > bar)
    }

    /// Begins a new life, after an alarm was handled. The bound on false alarms holds for each life.
    pub fn reset(&mut self) {
        self.count = 0;
        self.capital = RestartingCapital::default();
        self.windows = 0;
        self.last_window = None;
        self.present = ConfidenceSequence::new(window_alpha(self.settings.alpha, 0));
        self.is_alarming = false;
    }
}

/// Returns the part of `alpha` that a window may spend: all windows together spend it once.
fn window_alpha(alpha: f64, window: u64) -> f64 {
    let at = window as f64 + 1.0;
    alpha / (at * (at + 1.0))
}

impl WindowInterval {
    fn from_sequence(sequence: &ConfidenceSequence) -> WindowInterval {
        let ConfidenceInterval { low, high } = sequence.interval();
        WindowInterval { count: sequence.count(), low, high }
    }
}
