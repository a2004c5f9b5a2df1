//! Gates: a condition on a number of a run that passes or fails.
//!
//! The point estimate decides by default. The certainty is reported with it: whether the 95 % interval excludes the
//! bar, and about how many more runs would decide.

use std::collections::BTreeMap;

use serde::Serialize;

use super::gate_bar::{BarFault, GateBar, GateOperator};
use super::gate_metric::{GateMeasurement, GateMetric, GateMetricError};
use super::gate_vocabulary::GateVocabulary;
use super::{EvaluationSummary, MetricResult};
use gradus_stats::interval::ConfidenceInterval;

/// A parsed gate, `thought_to_tool >= 0.85`.
#[derive(Clone, Debug, PartialEq)]
pub struct QualityGate {
    pub metric: GateMetric,
    pub comparison: GateOperator,
    pub bar: GateBar,
}

/// Which number is compared with the bar.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GateBasis {
    /// The estimate itself.
    #[default]
    Estimate,
    /// The unfavourable end of the interval: the gate passes only if the whole interval meets it.
    Lower,
    /// The favourable end: the gate fails only if the whole interval misses it.
    Upper,
}

/// Why a gate cannot be parsed.
#[derive(Debug, thiserror::Error)]
pub enum GateError {
    #[error(
        "{0:?} is no gate: write a metric, >= > <= or <, and a number or `baseline`, as in 'thought_to_tool >= 0.85' \
         or 'thought_to_tool >= baseline - 0.02'"
    )]
    Form(String),
    #[error("gate {gate:?}: more than all is never reached\nhint: write a share from 0 to 1 as 0.85 or 85%")]
    Bar { gate: String },
    #[error("gate {gate:?}: a share is never below 0\nhint: write a share from 0 to 1 as 0.85 or 85%")]
    NegativeBar { gate: String },
    #[error("gate {gate:?}: percent of what? this metric is an amount\nhint: write a number, or 'baseline + 10%'")]
    PercentOfAmount { gate: String },
    #[error("gate {gate:?}: {source}")]
    Metric { gate: String, source: GateMetricError },
    #[error("gate {gate:?}: there is no baseline to compare with\nhint: add --baseline FILE")]
    NoBaseline { gate: String },
    #[error(
        "gate {gate:?}: what judging costs depends on what was judged before, so baselines have no such number\nhint: \
         write an amount, as in 'cost <= 5'"
    )]
    CostOfBaseline { gate: String },
    #[error("gate {gate:?}: the baseline has no number for {metric}; {known}")]
    NotInBaseline { gate: String, metric: String, known: String },
}

/// The result of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GateVerdict {
    Pass,
    Fail,
    /// The run ended early, so the number is about a part of it.
    Incomplete,
}

/// A checked gate, as in `--json` and in reports.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GateResult {
    pub gate: String,
    /// The name of the metric.
    pub metric: String,
    /// `None` if the bar is relative to a baseline that lacks the metric.
    pub bar: Option<f64>,
    /// Whether value and bar are shares and can be printed in percent.
    pub is_share: bool,
    pub verdict: GateVerdict,
    pub value: Option<f64>,
    pub interval: Option<ConfidenceInterval>,
    /// How many steps or runs the value is about.
    pub count: u64,
    /// Whether the interval excludes the bar. False without an interval.
    pub is_certain: bool,
    /// About how many more runs like these would make it certain; `None` if it is, or if the value is the bar.
    pub more_runs: Option<u64>,
    /// The judge's own number, where `value` is corrected for its errors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raw_value: Option<f64>,
    /// Whether a model judged whose errors are not known.
    pub is_uncalibrated: bool,
    /// The verdict in words.
    pub explanation: String,
}

/// The input of a gate check.
#[derive(Clone, Copy, Debug)]
pub struct GateContext<'c> {
    pub summary: &'c EvaluationSummary,
    /// Metrics that only gates ask for; see [`super::measure_gate_metrics`].
    pub more_metrics: &'c [MetricResult],
    /// Values of the baseline by the name of the metric; empty without one.
    pub baseline: &'c BTreeMap<String, f64>,
    pub basis: GateBasis,
    /// Whether gates are also decided if the run ended early.
    pub allow_partial: bool,
}

impl QualityGate {
    /// Parses a gate on a metric of a run. It is done before the run, so that a misspelled gate costs nothing.
    pub fn parse(text: &str, vocabulary: &GateVocabulary) -> Result<QualityGate, GateError> {
        let form = || GateError::Form(text.to_owned());
        let gate = || text.to_owned();
        // The name of a tool in braces may contain any character.
        let from = if text.contains('{') { text.rfind('}').ok_or_else(form)? } else { 0 };
        let at = from + text[from..].find(['<', '>']).ok_or_else(form)?;
        let (name, rest) = text.split_at(at);
        let (comparison, rest) = GateOperator::split_from(rest);
        // A text without a bar is not a gate, whatever it names.
        if GateBar::parse(rest.trim(), true) == Err(BarFault::Form) {
            return Err(form());
        }
        let metric = vocabulary
            .parse_metric(name.trim())
            .map_err(|source| GateError::Metric { gate: text.to_owned(), source })?;
        let bar = GateBar::parse(rest.trim(), vocabulary.is_share(&metric)).map_err(|fault| match fault {
            BarFault::Form => form(),
            BarFault::AboveAll => GateError::Bar { gate: gate() },
            BarFault::BelowNone => GateError::NegativeBar { gate: gate() },
            BarFault::PercentOfAmount => GateError::PercentOfAmount { gate: gate() },
        })?;
        if matches!((&metric, bar), (GateMetric::JudgeCost, GateBar::Baseline(_))) {
            return Err(GateError::CostOfBaseline { gate: gate() });
        }
        Ok(QualityGate { metric, comparison, bar })
    }

    pub fn is_relative(&self) -> bool {
        matches!(self.bar, GateBar::Baseline(_))
    }

    /// Refuses a relative gate if there is no baseline, or if the baseline lacks the metric.
    pub fn check_baseline(&self, values: Option<&BTreeMap<String, f64>>) -> Result<(), GateError> {
        let metric = self.metric.to_string();
        match values {
            _ if !self.is_relative() => Ok(()),
            None => Err(GateError::NoBaseline { gate: self.to_string() }),
            Some(values) if values.contains_key(&metric) => Ok(()),
            Some(values) => Err(GateError::NotInBaseline {
                gate: self.to_string(),
                known: list_similar_metrics(values, &metric),
                metric,
            }),
        }
    }

    /// Checks the gate. A gate on a number that does not exist fails, because a pipeline must not pass if nothing was
    /// judged.
    pub fn check(&self, context: &GateContext<'_>) -> GateResult {
        let measured = self.metric.measure(context.summary, context.more_metrics);
        let metric = self.metric.to_string();
        let bar = self.bar.resolve(context.baseline.get(&metric).copied());
        let mut result = GateResult {
            gate: self.to_string(),
            metric,
            bar,
            is_share: measured.is_share,
            verdict: GateVerdict::Fail,
            value: measured.value,
            interval: measured.interval,
            count: measured.count,
            is_certain: false,
            more_runs: None,
            raw_value: measured.raw_value,
            is_uncalibrated: measured.is_uncalibrated,
            explanation: String::new(),
        };
        if let Some(decided) = context.summary.early_gates.iter().find(|decided| decided.gate == result.gate) {
            result.verdict = if decided.passes { GateVerdict::Pass } else { GateVerdict::Fail };
            // A fixed-time interval does not belong to a sequential decision.
            (result.value, result.interval, result.count) = (decided.value, None, decided.count);
            result.is_certain = true;
            result.explanation = decided.explanation.clone();
            return result;
        }
        let (Some(value), Some(bar)) = (measured.value, bar) else {
            let missing = match measured.value {
                Some(_) => "the baseline has no such number",
                None => measured.missing_reason,
            };
            result.explanation = format!("{missing}, so the gate cannot pass");
            if !context.summary.complete && !context.allow_partial {
                result.verdict = GateVerdict::Incomplete;
            }
            return result;
        };
        let meets = |number: f64| self.comparison.is_met(number, bar);
        let ends = measured.interval.map(|interval| (meets(interval.low), meets(interval.high)));
        result.is_certain = ends.is_some_and(|(low, high)| low == high);
        result.more_runs = measured
            .interval
            // More labels, not more runs, narrow the interval of a corrected number.
            .filter(|_| !result.is_certain && measured.raw_value.is_none())
            .and_then(|interval| count_more_runs(value, bar, interval, &measured));
        let is_exact = self.metric.is_exact();
        let passes = match (context.basis, ends) {
            // Without an interval it is unknown whether the unfavourable end meets the bar.
            (GateBasis::Lower, None) => is_exact && meets(value),
            (GateBasis::Estimate, _) | (GateBasis::Upper, None) => meets(value),
            (GateBasis::Lower, Some((low, high))) => low && high,
            (GateBasis::Upper, Some((low, high))) => low || high,
        };
        result.explanation = explain_verdict(&result, meets(value), passes, measured.interval.is_some());
        if ends.is_none() && context.basis != GateBasis::Estimate {
            result.explanation.push_str(match (is_exact, context.basis) {
                (true, _) => "; it is a figure of this run and no estimate, so it has no interval",
                (false, GateBasis::Lower) => {
                    ", but it has no interval: there are fewer than two runs, or all are equal; the estimate alone \
                     does not meet --gate-on lower"
                }
                (false, _) => " by the estimate, since it has no interval",
            });
        }
        if self.is_relative() {
            let bar = if measured.is_share { format!("{:.1} %", 100.0 * bar) } else { format!("{bar:.4}") };
            result.explanation.push_str(&format!(" (the bar is {bar})"));
        }
        if let Some(raw) = measured.raw_value {
            let raw = if measured.is_share { format!("{:.1} %", 100.0 * raw) } else { format!("{raw:.4}") };
            let labels = if result.is_certain { "" } else { "; more labels narrow the interval" };
            result.explanation.push_str(&format!(" (corrected; the judge says {raw}{labels})"));
        }
        if measured.is_uncalibrated {
            result.explanation.push_str(" (uncalibrated)");
        }
        result.verdict = match passes {
            _ if !context.summary.complete && !context.allow_partial => GateVerdict::Incomplete,
            true => GateVerdict::Pass,
            false => GateVerdict::Fail,
        };
        if result.verdict == GateVerdict::Incomplete {
            let reason = context.summary.stopped_because.as_deref().unwrap_or("the run ended early");
            result.explanation = format!("not decided: {reason}; so far it is {}", result.explanation);
        }
        result
    }
}

/// Lists the metrics of a baseline that resemble a metric: those of the same evaluator, else a few.
fn list_similar_metrics(values: &BTreeMap<String, f64>, metric: &str) -> String {
    const MAX_LISTED: usize = 12;
    let stem = |name: &str| name.split(['{', '.']).next().unwrap_or_default().to_owned();
    let mut near: Vec<&str> = values.keys().map(String::as_str).filter(|name| stem(name) == stem(metric)).collect();
    if near.is_empty() {
        near = values.keys().map(String::as_str).filter(|name| !name.contains('{')).collect();
    }
    match near.len() {
        0 => "it has none".to_owned(),
        count if count > MAX_LISTED => format!("it has {}, …", near[..MAX_LISTED].join(", ")),
        _ => format!("it has {}", near.join(", ")),
    }
}

/// Explains the verdict in words: what decided, and how certain that is.
fn explain_verdict(result: &GateResult, is_met: bool, passes: bool, has_interval: bool) -> String {
    let word = if is_met { "met" } else { "missed" };
    let more = match result.more_runs {
        Some(1) => "; 1 more run would decide".to_owned(),
        Some(count) => format!("; about {count} more runs would decide"),
        None => String::new(),
    };
    match (has_interval, result.is_certain) {
        (false, _) | (_, true) => word.to_owned(),
        (true, false) if is_met == passes => format!("{word}, but the interval contains the bar{more}"),
        // An end of the interval decided, not the estimate.
        (true, false) if passes => format!("{word}, but the favourable end of the interval meets it{more}"),
        (true, false) => format!("{word}, but the unfavourable end of the interval does not meet it{more}"),
    }
}

/// Maximum number of further runs that is recommended.
const MAX_ADVISED_RUNS: f64 = 100_000.0;

/// Returns how many more runs are needed until the end of the interval nearer to the bar reaches it.
///
/// An interval shrinks with the square root of the number of runs. That of a share also changes its form: Wilson's
/// end `e` of a share `p` solves `(p - e)² = z² e (1 - e) / n`. The present end gives `z² / n`, and the bar in place
/// of `e` gives the needed number.
fn count_more_runs(value: f64, bar: f64, interval: ConfidenceInterval, measured: &GateMeasurement) -> Option<u64> {
    let end = if bar > value { interval.high } else { interval.low };
    let (distance, reach, run_count) = ((value - bar).abs(), (end - value).abs(), measured.run_count);
    // At the bar itself, no number of runs decides.
    if distance <= 1e-9 || run_count == 0 || !reach.is_finite() {
        return None;
    }
    let spread = |share: f64| share * (1.0 - share);
    let is_inside = measured.is_share && spread(end) > 0.0 && spread(bar) > 0.0;
    let form = if is_inside { spread(bar) / spread(end) } else { 1.0 };
    let needed = (run_count as f64 * (reach / distance).powi(2) * form).ceil();
    (needed < MAX_ADVISED_RUNS).then(|| (needed as u64).saturating_sub(run_count).max(1))
}

impl std::fmt::Display for QualityGate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} {}", self.metric, self.comparison, self.bar)
    }
}
