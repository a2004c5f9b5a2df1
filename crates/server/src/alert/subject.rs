//! The metrics that a condition can watch: their names, units, the form of their thresholds, and what is counted.

use std::fmt;

use super::name_suggestion::find_nearest_name;

/// An evaluator that can be watched, with the range of the scores of its labels. `gives_only_flags` says that rules judge
/// it that notice mistakes and decide nothing else.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AlertableEvaluator<'e> {
    pub name: &'e str,
    pub worst: f64,
    pub best: f64,
    pub gives_only_flags: bool,
}

/// The left-hand side of a condition.
#[derive(Clone, Debug, PartialEq)]
pub enum AlertMetric {
    /// Mean score of the decided cases of an evaluator. `worst` and `best` bound its values. A case that rules with
    /// `gives_only_flags` did not flag counts as `best`: a mean of their flags alone would be `worst` whatever happens.
    Evaluator { name: String, worst: f64, best: f64, gives_only_flags: bool },
    /// Share of questions that the judge could not answer.
    FailureRate,
    /// Share of trajectories that ended in an error.
    ErrorRate,
    /// Dollars an hour.
    CostPerHour,
    /// How long trajectories take, in seconds.
    Latency(LatencyPercentile),
    /// Tools that were called now and not in the window before.
    UnseenTool,
    /// Judges whose labels for their anchors have changed.
    JudgeDrift,
}

/// The percentiles that a condition can name, as in `latency_p95`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LatencyPercentile {
    P50,
    P90,
    P95,
    P99,
}

impl LatencyPercentile {
    /// 0.95 for the 95th percentile.
    pub fn as_fraction(self) -> f64 {
        match self {
            LatencyPercentile::P50 => 0.5,
            LatencyPercentile::P90 => 0.9,
            LatencyPercentile::P95 => 0.95,
            LatencyPercentile::P99 => 0.99,
        }
    }
}

/// The unit of a sample size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleUnit {
    Steps,
    Trajectories,
    Questions,
}

impl SampleUnit {
    /// Accepts singular and plural in any case.
    pub(super) fn from_name(word: &str) -> Option<SampleUnit> {
        match word.to_ascii_lowercase().as_str() {
            "step" | "steps" => Some(SampleUnit::Steps),
            "trajectory" | "trajectories" => Some(SampleUnit::Trajectories),
            "question" | "questions" => Some(SampleUnit::Questions),
            _ => None,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            SampleUnit::Steps => "steps",
            SampleUnit::Trajectories => "trajectories",
            SampleUnit::Questions => "questions",
        }
    }

    /// Singular or plural, as `count` requires.
    pub fn name_for(self, count: u64) -> &'static str {
        match (self, count) {
            (SampleUnit::Steps, 1) => "step",
            (SampleUnit::Trajectories, 1) => "trajectory",
            (SampleUnit::Questions, 1) => "question",
            _ => self.name(),
        }
    }
}

/// Names of the metrics that are not evaluators. They are part of the configuration format.
const BUILT_IN_METRICS: [(&str, AlertMetric); 9] = [
    ("failure_rate", AlertMetric::FailureRate),
    ("error_rate", AlertMetric::ErrorRate),
    ("cost_per_hour", AlertMetric::CostPerHour),
    ("latency_p50", AlertMetric::Latency(LatencyPercentile::P50)),
    ("latency_p90", AlertMetric::Latency(LatencyPercentile::P90)),
    ("latency_p95", AlertMetric::Latency(LatencyPercentile::P95)),
    ("latency_p99", AlertMetric::Latency(LatencyPercentile::P99)),
    ("unseen_tool", AlertMetric::UnseenTool),
    ("judge_drift", AlertMetric::JudgeDrift),
];

impl AlertMetric {
    /// Built-in names win over evaluators: otherwise adding a rubric could change the meaning of an existing rule.
    pub(super) fn from_name(name: &str, evaluators: &[AlertableEvaluator<'_>]) -> Option<AlertMetric> {
        let built_in = BUILT_IN_METRICS.iter().find(|(known, _)| *known == name).map(|(_, subject)| subject.clone());
        let evaluator = || {
            let known = evaluators.iter().find(|known| known.name == name)?;
            let AlertableEvaluator { worst, best, gives_only_flags, .. } = *known;
            Some(AlertMetric::Evaluator { name: name.to_owned(), worst, best, gives_only_flags })
        };
        built_in.or_else(evaluator)
    }

    /// A suggestion for a name that is not known; none if no known name is similar.
    pub(super) fn nearest_name(name: &str, evaluators: &[AlertableEvaluator<'_>]) -> Option<String> {
        let known = evaluators.iter().map(|known| known.name).chain(BUILT_IN_METRICS.iter().map(|(known, _)| *known));
        find_nearest_name(name, known).map(str::to_owned)
    }

    pub(super) fn built_in_names() -> String {
        BUILT_IN_METRICS.map(|(name, _)| name).join(", ")
    }

    pub fn name(&self) -> &str {
        match self {
            AlertMetric::Evaluator { name, .. } => name,
            other => BUILT_IN_METRICS.iter().find(|(_, subject)| subject == other).map_or("", |(name, _)| name),
        }
    }

    /// The smallest and the largest possible value, both included.
    pub(super) fn value_range(&self) -> (f64, f64) {
        match self {
            AlertMetric::Evaluator { worst, best, .. } => (*worst, *best),
            AlertMetric::FailureRate | AlertMetric::ErrorRate => (0.0, 1.0),
            AlertMetric::CostPerHour | AlertMetric::Latency(_) | AlertMetric::UnseenTool | AlertMetric::JudgeDrift => {
                (0.0, f64::INFINITY)
            }
        }
    }

    /// Whether thresholds may be written in percent.
    fn is_share(&self) -> bool {
        let (low, high) = self.value_range();
        low >= 0.0 && high <= 1.0
    }

    /// Returns the units that may be counted for the metric. Whether an evaluator judges steps or trajectories
    /// depends on its rubric, which is checked where the rubrics are known. The cost is a sum and has no sample.
    pub fn units(&self) -> &'static [SampleUnit] {
        match self {
            AlertMetric::Evaluator { .. } => &[SampleUnit::Steps, SampleUnit::Trajectories],
            AlertMetric::FailureRate | AlertMetric::JudgeDrift => &[SampleUnit::Questions],
            AlertMetric::ErrorRate | AlertMetric::Latency(_) => &[SampleUnit::Trajectories],
            AlertMetric::CostPerHour => &[],
            AlertMetric::UnseenTool => &[SampleUnit::Steps],
        }
    }

    /// A valid condition on this metric, for error messages.
    pub(super) fn example_condition(&self) -> String {
        match self {
            AlertMetric::Evaluator { name, worst, best, .. } => {
                let threshold = round_to_nine_decimals(worst + 0.8 * (best - worst));
                format!("{name} < {threshold} over 1h, at least 30 steps")
            }
            AlertMetric::FailureRate => "failure_rate > 5% over 1h, at least 50 questions".to_owned(),
            AlertMetric::ErrorRate => "error_rate > 10% over 1h, at least 20 trajectories".to_owned(),
            AlertMetric::CostPerHour => "cost_per_hour > $5 over 1h".to_owned(),
            AlertMetric::Latency(_) => format!("{} > 30s over 15m, at least 20 trajectories", self.name()),
            AlertMetric::UnseenTool => "unseen_tool over 7d".to_owned(),
            AlertMetric::JudgeDrift => "judge_drift over 2d".to_owned(),
        }
    }

    /// How a threshold of this metric is written, as part of a sentence.
    pub(super) fn threshold_form(&self) -> String {
        match self {
            AlertMetric::CostPerHour => "dollars, as $5 or 0.5".to_owned(),
            AlertMetric::Latency(_) => "a time with its unit, as 30s or 500ms".to_owned(),
            AlertMetric::Evaluator { worst, best, .. } if !self.is_share() => {
                format!("a score from {worst} to {best}, which it gives")
            }
            _ => "a share from 0 to 1, as 0.8 or 80%".to_owned(),
        }
    }

    /// Parses a threshold into the unit of the metric. None if it has the wrong form or lies outside of the possible
    /// values.
    pub(super) fn parse_threshold(&self, text: &str) -> Option<f64> {
        let text: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        let value = match self {
            AlertMetric::UnseenTool | AlertMetric::JudgeDrift => return None,
            AlertMetric::CostPerHour => parse_plain_number(text.strip_prefix('$').unwrap_or(&text))?,
            AlertMetric::Latency(_) => {
                let unit = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
                let number = parse_plain_number(&text[..unit])?;
                match &text[unit..] {
                    "ms" => number / 1e3,
                    "s" => number,
                    "m" => number * 60.0,
                    "h" => number * 3600.0,
                    _ => return None,
                }
            }
            AlertMetric::Evaluator { .. } if !self.is_share() => match text.strip_prefix('-') {
                Some(number) => -parse_plain_number(number)?,
                None => parse_plain_number(&text)?,
            },
            _ => match text.strip_suffix('%') {
                Some(percent) => parse_plain_number(percent)? / 100.0,
                None => parse_plain_number(&text)?,
            },
        };
        // A share within 0 to 1 that the evaluator never gives is accepted here; `parse_bar` rejects it with the better
        // message that the condition is never or always true.
        let (low, high) = if self.is_share() { (0.0, 1.0) } else { self.value_range() };
        (value.is_finite() && (low..=high).contains(&value)).then_some(value)
    }

    /// Formats a threshold without rounding: `parse_threshold` reads it back exactly.
    pub fn format_value(&self, value: f64) -> String {
        match self {
            AlertMetric::CostPerHour => format!("${value}"),
            AlertMetric::Latency(_) => format!("{value}s"),
            _ => value.to_string(),
        }
    }

    /// Formats a measured value, rounded to the digits that a sample can support.
    pub fn format_measured_value(&self, value: f64) -> String {
        match self {
            AlertMetric::Evaluator { .. } => format!("{value:.3}"),
            AlertMetric::FailureRate | AlertMetric::ErrorRate => format!("{:.1}%", value * 100.0),
            AlertMetric::CostPerHour => format!("${value:.2}"),
            AlertMetric::Latency(_) if value < 1.0 => format!("{:.0}ms", value * 1e3),
            AlertMetric::Latency(_) => format!("{value:.1}s"),
            AlertMetric::UnseenTool | AlertMetric::JudgeDrift => format!("{value:.0}"),
        }
    }
}

impl fmt::Display for AlertMetric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Rounds to nine decimals: 0.88 instead of the 0.8800000000000001 of binary fractions.
pub(super) fn round_to_nine_decimals(value: f64) -> f64 {
    (value * 1e9).round() / 1e9
}

/// Digits with at most one point. `f64::from_str` would also accept signs, exponents and `inf`.
fn parse_plain_number(text: &str) -> Option<f64> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    if is_plain { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_have_the_unit_of_their_subject() {
        let latency = AlertMetric::Latency(LatencyPercentile::P95);
        assert_eq!(latency.parse_threshold("500ms"), Some(0.5));
        assert_eq!(latency.parse_threshold("2 m"), Some(120.0));
        assert_eq!(latency.parse_threshold("30"), None);
        assert_eq!(AlertMetric::CostPerHour.parse_threshold("$ 5"), Some(5.0));
        assert_eq!(AlertMetric::CostPerHour.parse_threshold("5%"), None);
        assert_eq!(AlertMetric::FailureRate.parse_threshold("5%"), Some(0.05));
        for wrong in ["5", "-1", "1e-1", "inf", "nan", "", ".", "%", "$0.5"] {
            assert_eq!(AlertMetric::FailureRate.parse_threshold(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn an_evaluator_has_the_scale_of_its_labels() {
        let graded =
            AlertMetric::Evaluator { name: "helpful".to_owned(), worst: -1.0, best: 5.0, gives_only_flags: false };
        assert_eq!(["4.5", "-0.5", "5"].map(|text| graded.parse_threshold(text)), [Some(4.5), Some(-0.5), Some(5.0)]);
        for wrong in ["5.1", "-2", "80%", "--1", "-", "1e0"] {
            assert_eq!(graded.parse_threshold(wrong), None, "{wrong}");
        }
        assert_eq!(graded.threshold_form(), "a score from -1 to 5, which it gives");
        assert_eq!(graded.example_condition(), "helpful < 3.8 over 1h, at least 30 steps");
    }

    #[test]
    fn every_built_in_has_its_name() {
        for (name, subject) in BUILT_IN_METRICS {
            assert_eq!(subject.name(), name);
            assert_eq!(AlertMetric::from_name(name, &[]), Some(subject));
        }
    }
}
