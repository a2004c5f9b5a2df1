//! The text form of an alert condition: `thought_to_tool < 0.8 over 1h, at least 30 steps`.
//!
//! Grammar: `METRIC [COMPARISON THRESHOLD] over DURATION [, at least COUNT [UNIT]]`. Keywords are case-insensitive.
//! Parsing and `Display` are inverse: what `Display` writes parses to an equal condition.

use std::fmt;
use std::time::Duration;

use super::subject::{AlertMetric, AlertableEvaluator, SampleUnit};
use gradus_core::duration_text::{format_duration, parse_duration};

/// A parsed condition. It holds no measurement; `advance_alert_state` compares it with one.
#[derive(Clone, Debug, PartialEq)]
pub struct AlertCondition {
    pub subject: AlertMetric,
    /// The comparison. None only for `unseen_tool` and `judge_drift`, which fire on any unseen tool or drifted judge.
    pub bar: Option<AlertThreshold>,
    /// Length of the period before now that is measured.
    pub window: Duration,
    /// Measurements from a smaller sample neither fire nor resolve the alert.
    pub min_sample: Option<MinSampleSize>,
}

/// A comparison operator with its right-hand side.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AlertThreshold {
    pub comparison: ThresholdComparison,
    /// In the unit of the metric: a share from 0 to 1, a score, dollars an hour or seconds.
    pub threshold: f64,
}

/// Equality is left out on purpose: measured means almost never equal a number exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThresholdComparison {
    Less,
    AtMost,
    More,
    AtLeast,
}

/// The minimum sample size, written `at least 30 steps`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MinSampleSize {
    pub count: u64,
    /// Only checked against the metric and displayed; the metric itself determines the counted unit.
    pub unit: Option<SampleUnit>,
}

/// Why a text is not a condition. Each message is one line and shows a valid condition for the same metric, so a user
/// can correct the file without the documentation. Texts from the file are truncated before they are repeated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConditionError {
    #[error("nothing says what to watch; write a name first, as in '{FALLBACK_CONDITION_EXAMPLE}'")]
    NoSubject,
    #[error("there is no metric {name:?}{}; there are {}; an example: '{FALLBACK_CONDITION_EXAMPLE}'", format_suggestion(.nearest), list_metric_names(.evaluators))]
    Subject { name: String, nearest: Option<String>, evaluators: Vec<String> },
    #[error("{subject} has to be compared with < <= > or >=, as in '{example}'")]
    NoComparison { subject: String, example: String },
    #[error("{found:?} is no comparison; write < <= > or >=, as in '{example}'")]
    Comparison { found: String, example: String },
    #[error("{subject} is there or not and takes no comparison; write '{example}'")]
    NeedlessComparison { subject: String, example: String },
    #[error("{found:?} is no threshold for {subject}; write {form}, as in '{example}'")]
    Threshold { found: String, subject: String, form: String, example: String },
    #[error("'{written}' is {always} true; write another threshold, as in '{example}'")]
    Constant { written: String, always: &'static str, example: String },
    #[error("nothing says how far to look back; write 'over' and a time, as in '{example}'")]
    NoWindow { example: String },
    #[error("{found:?} is no time to look back; write 90s, 15m, 1h or 7d, as in '{example}'")]
    Window { found: String, example: String },
    #[error("{found:?} is not understood; after the comma comes 'at least' and a number, as in '{example}'")]
    Floor { found: String, example: String },
    #[error("{subject} is a sum, which holds however little it is taken from; leave 'at least' out, as in '{example}'")]
    NeedlessFloor { subject: String, example: String },
    #[error("{unit} do not fit {subject}, which counts {fitting}; an example: '{example}'")]
    Unit { unit: &'static str, subject: String, fitting: String, example: String },
}

/// Shown if the metric is unknown, so that no example of that metric can be given.
const FALLBACK_CONDITION_EXAMPLE: &str = "failure_rate > 5% over 1h, at least 50 questions";
/// Maximum number of characters of the written text that an error repeats.
const MAX_SHOWN_TEXT_CHARS: usize = 60;

fn format_suggestion(nearest: &Option<String>) -> String {
    nearest.as_ref().map(|name| format!(" (did you mean {name}?)")).unwrap_or_default()
}

/// Lists the names of all metrics: evaluators first, then built-in metrics.
fn list_metric_names(evaluators: &[String]) -> String {
    let names: Vec<&str> = evaluators.iter().map(String::as_str).collect();
    [names.join(", "), AlertMetric::built_in_names()]
        .into_iter()
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join(", ")
}

/// Truncates text of the file, which may contain anything, so that a message stays on one line.
fn truncate_for_error(text: &str) -> String {
    let text = text.trim();
    match text.char_indices().nth(MAX_SHOWN_TEXT_CHARS) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

impl AlertCondition {
    /// Parses a condition on one of `evaluators` or on a built-in metric.
    pub fn parse(text: &str, evaluators: &[AlertableEvaluator<'_>]) -> Result<AlertCondition, ConditionError> {
        // `over` is found first: everything before it is the comparison, and an evaluator may have any name but that.
        let (head, tail) = match split_at_word(text, "over") {
            Some((head, tail)) => (head, Some(tail)),
            None => (text, None),
        };
        let compared_at = head.find(['<', '>', '=', '!']);
        let (name, compared) = head.split_at(compared_at.unwrap_or(head.len()));
        let subject = parse_subject(name.trim(), evaluators)?;
        let bar = parse_bar(&subject, compared)?;
        let example = subject.example_condition();
        let tail = tail.ok_or_else(|| ConditionError::NoWindow { example: example.clone() })?;
        let (window, min_sample) = match tail.split_once(',') {
            Some((window, min_sample)) => (window, Some(min_sample)),
            None => (tail, None),
        };
        let window = parse_duration(window.trim())
            .ok_or_else(|| ConditionError::Window { found: truncate_for_error(window), example })?;
        let min_sample = min_sample.map(|min_sample| parse_min_sample(&subject, min_sample)).transpose()?;
        Ok(AlertCondition { subject, bar, window, min_sample })
    }

    /// Formats a measured value. Where rounding would make it look equal to the threshold, it gets more digits: "0.800
    /// is below 0.8" would read as a mistake.
    pub fn format_measured_value(&self, value: f64) -> String {
        let shown = self.subject.format_measured_value(value);
        let seems_equal = self
            .bar
            .is_some_and(|bar| value != bar.threshold && shown == self.subject.format_measured_value(bar.threshold));
        match self.subject {
            AlertMetric::Evaluator { .. } if seems_equal => format!("{value:.5}"),
            AlertMetric::FailureRate | AlertMetric::ErrorRate if seems_equal => {
                format!("{:.4}%", value * 100.0)
            }
            _ => shown,
        }
    }

    /// Returns the minimum sample size. Without `at least` it is 1, because an empty sample has no mean. For the cost
    /// it is 0: no trajectories cost 0 dollars, which is a valid measurement.
    pub fn min_sample_count(&self) -> u64 {
        let default = u64::from(self.subject != AlertMetric::CostPerHour);
        self.min_sample.map_or(default, |min_sample| min_sample.count)
    }
}

fn parse_subject(name: &str, evaluators: &[AlertableEvaluator<'_>]) -> Result<AlertMetric, ConditionError> {
    if name.is_empty() {
        return Err(ConditionError::NoSubject);
    }
    AlertMetric::from_name(name, evaluators).ok_or_else(|| ConditionError::Subject {
        name: truncate_for_error(name),
        nearest: AlertMetric::nearest_name(name, evaluators),
        evaluators: evaluators.iter().map(|known| known.name.to_owned()).collect(),
    })
}

/// Parses operator and threshold. `compared` is the text from the operator on, and empty without an operator.
fn parse_bar(subject: &AlertMetric, compared: &str) -> Result<Option<AlertThreshold>, ConditionError> {
    let example = subject.example_condition();
    match (subject, compared.is_empty()) {
        (AlertMetric::UnseenTool | AlertMetric::JudgeDrift, true) => return Ok(None),
        (AlertMetric::UnseenTool | AlertMetric::JudgeDrift, false) => {
            return Err(ConditionError::NeedlessComparison { subject: subject.to_string(), example });
        }
        (_, true) => return Err(ConditionError::NoComparison { subject: subject.to_string(), example }),
        (_, false) => {}
    }
    let symbol_end = compared.find(|c| !matches!(c, '<' | '>' | '=' | '!')).unwrap_or(compared.len());
    let (symbol, number) = compared.split_at(symbol_end);
    let comparison = ThresholdComparison::ALL.into_iter().find(|comparison| comparison.symbol() == symbol);
    let Some(comparison) = comparison else {
        return Err(ConditionError::Comparison { found: truncate_for_error(symbol), example });
    };
    let Some(threshold) = subject.parse_threshold(number) else {
        let form = subject.threshold_form();
        return Err(ConditionError::Threshold {
            found: truncate_for_error(number),
            subject: subject.to_string(),
            form,
            example,
        });
    };
    let bar = AlertThreshold { comparison, threshold };
    // A condition that no possible value changes is a mistake in the file: it would fire for ever, or never.
    match bar.constant_result(subject.value_range()) {
        Some(answer) => Err(ConditionError::Constant {
            written: format!("{subject} {symbol} {}", subject.format_value(threshold)),
            always: if answer { "always" } else { "never" },
            example,
        }),
        None => Ok(Some(bar)),
    }
}

/// Parses the part behind the comma: ` at least 30 steps`.
fn parse_min_sample(subject: &AlertMetric, text: &str) -> Result<MinSampleSize, ConditionError> {
    let example = subject.example_condition();
    if *subject == AlertMetric::CostPerHour {
        return Err(ConditionError::NeedlessFloor { subject: subject.to_string(), example });
    }
    // One word more than a valid text has, so that extra words are noticed without collecting all of them.
    let words: Vec<&str> = text.split_whitespace().take(5).collect();
    let (count, unit) = match words.as_slice() {
        [at, least, count] if is_at_least_phrase(at, least) => (*count, None),
        [at, least, count, unit] if is_at_least_phrase(at, least) => (*count, Some(*unit)),
        _ => return Err(ConditionError::Floor { found: truncate_for_error(text), example }),
    };
    let not_understood =
        || ConditionError::Floor { found: truncate_for_error(text), example: subject.example_condition() };
    // Digits only: `u64` would read a sign.
    let digits = Some(count).filter(|count| count.bytes().all(|byte| byte.is_ascii_digit()));
    let count = digits.and_then(|count| count.parse().ok()).filter(|count| *count > 0).ok_or_else(not_understood)?;
    let unit = unit.map(|word| SampleUnit::from_name(word).ok_or_else(not_understood)).transpose()?;
    match unit {
        Some(unit) if !subject.units().contains(&unit) => Err(ConditionError::Unit {
            unit: unit.name(),
            subject: subject.to_string(),
            fitting: subject.units().iter().map(|unit| unit.name()).collect::<Vec<_>>().join(" or "),
            example,
        }),
        unit => Ok(MinSampleSize { count, unit }),
    }
}

fn is_at_least_phrase(at: &str, least: &str) -> bool {
    at.eq_ignore_ascii_case("at") && least.eq_ignore_ascii_case("least")
}

/// Splits around the first whole word that equals `word`, ignoring case. The word itself is in neither part.
fn split_at_word<'a>(text: &'a str, word: &str) -> Option<(&'a str, &'a str)> {
    let mut from = 0;
    loop {
        let start = from + text[from..].find(|c: char| !c.is_whitespace())?;
        let end = text[start..].find(char::is_whitespace).map_or(text.len(), |length| start + length);
        if text[start..end].eq_ignore_ascii_case(word) {
            return Some((&text[..start], &text[end..]));
        }
        from = end;
    }
}

impl ThresholdComparison {
    const ALL: [ThresholdComparison; 4] = [
        ThresholdComparison::Less,
        ThresholdComparison::AtMost,
        ThresholdComparison::More,
        ThresholdComparison::AtLeast,
    ];

    pub fn symbol(self) -> &'static str {
        match self {
            ThresholdComparison::Less => "<",
            ThresholdComparison::AtMost => "<=",
            ThresholdComparison::More => ">",
            ThresholdComparison::AtLeast => ">=",
        }
    }

    /// Whether the alert fires on values below the threshold.
    pub fn is_below(self) -> bool {
        matches!(self, ThresholdComparison::Less | ThresholdComparison::AtMost)
    }
}

impl AlertThreshold {
    /// NaN meets no comparison, so a value that is not a number never fires.
    pub fn is_met_by(&self, value: f64) -> bool {
        match self.comparison {
            ThresholdComparison::Less => value < self.threshold,
            ThresholdComparison::AtMost => value <= self.threshold,
            ThresholdComparison::More => value > self.threshold,
            ThresholdComparison::AtLeast => value >= self.threshold,
        }
    }

    /// The result of the comparison if it is the same for every value from `low` to `high`, both included.
    fn constant_result(&self, (low, high): (f64, f64)) -> Option<bool> {
        match self.comparison {
            ThresholdComparison::Less if self.threshold <= low => Some(false),
            ThresholdComparison::AtLeast if self.threshold <= low => Some(true),
            ThresholdComparison::More if self.threshold >= high => Some(false),
            ThresholdComparison::AtMost if self.threshold >= high => Some(true),
            _ => None,
        }
    }
}

/// The canonical text form. `AlertCondition::parse` reads it back.
impl fmt::Display for AlertCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.subject)?;
        if let Some(bar) = self.bar {
            write!(f, " {} {}", bar.comparison.symbol(), self.subject.format_value(bar.threshold))?;
        }
        write!(f, " over {}", format_duration(self.window))?;
        if let Some(MinSampleSize { count, unit }) = self.min_sample {
            write!(f, ", at least {count}")?;
            if let Some(unit) = unit {
                write!(f, " {}", unit.name_for(count))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "condition_tests.rs"]
mod tests;
